"""What the pipelines of texts share: tokenization, inputs and outputs of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ...compiler.arrays import Array, as_input
from ...compiler.compile.model_file import OFFSET_POSITIONS
from ...compiler.declare.dtypes import unpack
from ...errors import InputError
from ..session.packaged import ProgramSession
from ..text.encoding import STRATEGIES, Encoding
from .base import Pipeline

PADDINGS = (None, True, False, "longest", "max_length", "do_not_pad")
"""Values of `padding`, which has no effect: each text runs alone and needs none."""


class Numbers:
    """An output of a graph, of which parts are read as Python numbers.

    Attributes:
        shape: dimensions.
    """

    def __init__(self, value: Any) -> None:
        self.code, self.shape, data = as_input(value, "output")
        self.data = memoryview(data).cast("B")

    def read(self, start: int, count: int) -> list[float]:
        """`count` numbers from the flat index `start` on."""
        size = len(self.data) // max(1, self.count)
        return unpack(self.code, self.data[start * size : (start + count) * size], count)

    @property
    def count(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    def cut(self, rows: int) -> None:
        """Leaves out what follows the first `rows` of the second dimension; the first is 1."""
        size = len(self.data) // max(1, self.count)
        self.shape = [1, rows, *self.shape[2:]]
        self.data = self.data[: self.count * size]

    def row(self, *index: int) -> list[float]:
        """The numbers of the last dimension at an index of the others."""
        at = 0
        for i, d in zip(index, self.shape):
            at = at * d + i
        return self.read(at * self.shape[-1], self.shape[-1])


BUCKET = 16
"""Texts that run together are padded to a multiple of this length."""
QUANTIZING = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")
"""Operators whose result for a token depends on all tokens of a run."""
MAX_PLANS = 512
"""Plans that are kept: where positions are relative (T5, DeBERTa, MPNet) there is one for each
length of a text; elsewhere one for a range of lengths."""


class TextPipeline(Pipeline):
    """A pipeline of a tokenizer and one graph. Each text runs alone and nothing is padded, so its
    result does not depend on what is processed with it (but see FeatureExtractionPipeline).
    """

    PACKAGED = True
    _padding: tuple[Any, bool] = (None, False)  # of which graph `can_pad` was found out

    TOKENIZER = True
    ENCODING: ClassVar[Mapping[str, Any]] = {
        "truncation": True,
        "max_length": None,
        "padding": False,
        "add_special_tokens": True,
    }
    """Options of calls for the tokenizer, of pipelines that take them."""

    def session(self, stem: str) -> Any:
        """As Pipeline.session."""
        session = super().session(stem)
        session.MAX_PLANS = MAX_PLANS
        return session

    def check_encoding(self, options: Mapping[str, Any]) -> None:
        """Checks the options of ENCODING. Raises InputError."""
        check_choice(options["truncation"], "truncation", (True, False, *STRATEGIES))
        if options["padding"] not in PADDINGS:
            raise InputError(f"{options['padding']!r} is not a way of padding", "padding")
        most = options["max_length"]
        if most is not None and (type(most) is not int or most < 1):
            raise InputError(f"{most!r} is not a positive integer", "max_length")
        if type(options["add_special_tokens"]) is not bool:
            raise InputError("it is neither True nor False", "add_special_tokens")

    def encodings(self, text: Any, pair: str | None = None, **options: Any) -> list[Encoding]:
        """The encodings of a text or a pair; see Tokenizer.encodings. By default it is cut to the
        length that the model takes.
        """
        encode = getattr(self.tokenizer, "encodings", None)
        if encode is None:
            raise InputError(
                f"a {type(self.tokenizer).__name__} gives no offsets and masks",
                "tokenizer",
                "Pass the path of a tokenizer, or an edgewise.text.Tokenizer.",
            )
        if options.get("max_length") is None:
            options["max_length"] = self.longest
        found: list[Encoding] = encode(text, pair, **options)
        return found

    @property
    def longest(self) -> int | None:
        """The greatest number of tokens that tokenizer and model take; None: not known."""
        most = self.config.get("max_position_embeddings")
        known = [self.tokenizer.longest, self._packaged_length]
        if type(most) is int and most > 0 and self.config.get("position_biased_input") is not False:
            offset = self.config.get("model_type") in OFFSET_POSITIONS
            known.append(most - (self.config.get("pad_token_id", 1) + 1 if offset else 0))
        found = [k for k in known if k is not None]
        return min(found) if found else None

    @property
    def _packaged_length(self) -> int | None:
        """The greatest number of tokens that the plans of a package take."""
        package = self.files.package if self.files is not None else None
        if package is None:
            return None
        most = package.manifest.get("processor", {}).get("text", {}).get("max_length")
        return most if type(most) is int else None

    @property
    def can_pad(self) -> bool:
        """Whether texts of different lengths can run together without a change of their results
        beyond rounding: the graph has a mask, and does not quantize over all tokens of a run.
        """
        session = self.session("model")
        if isinstance(session, ProgramSession):
            return False
        if session.graph is not self._padding[0]:
            quantizes = any(n.op in QUANTIZING for n in session.graph.every_node())
            self._padding = (session.graph, "attention_mask" in session.inputs and not quantizes)
        return self._padding[1]

    def forward(self, *encodings: Encoding, outputs: Sequence[str]) -> list[Numbers]:
        """Runs the graph on one encoding, or on several that are padded.

        Args:
            encodings: its inputs; several only if `can_pad`.
            outputs: names of outputs.

        Returns:
            the outputs

        Raises:
            InputError: the graph needs other inputs, or the text is empty.
        """
        if not all(e.ids for e in encodings):
            raise InputError("the text has no tokens", self.task, "Give a text.")
        session = self.session("model")
        n = max(len(e.ids) for e in encodings)
        if len(encodings) > 1:  # few plans
            n = min(-(-n // BUCKET) * BUCKET, max(n, self.longest or n))
        tokens = n
        if isinstance(session, ProgramSession):
            n = session.size_for("input_ids", 1, n)
        feeds = {name: self._feed(session.inputs[name], encodings, n) for name in session.inputs}
        found = [Numbers(x) for x in session.run(list(outputs), feeds)]
        if isinstance(session, ProgramSession) and n > tokens:
            for name, numbers in zip(outputs, found):
                if session.varies(name, 1):
                    numbers.cut(tokens)
        return found

    def _feed(self, info: Any, encodings: Sequence[Encoding], n: int) -> Any:
        """The value of an input of the graph for texts of n tokens. Raises InputError."""

        def padded(lists: Iterable[list[int]], value: int) -> list[list[int]]:
            return [one + [value] * (n - len(one)) for one in lists]

        if info.name == "input_ids":
            return padded((e.ids for e in encodings), self.tokenizer.pad_token_id or 0)
        if info.name == "attention_mask":
            return padded(([1] * len(e.ids) for e in encodings), 0)
        if info.name == "token_type_ids":
            return padded((e.type_ids for e in encodings), 0)
        if info.name == "position_ids":
            first = 0
            if self.config.get("model_type") in OFFSET_POSITIONS:
                first = self.config.get("pad_token_id", 1) + 1
            return [list(range(first, first + n))] * len(encodings)
        if info.name.startswith("past_key_values."):  # a decoder: nothing precedes the text
            sizes = [d if isinstance(d, int) else None for d in info.shape or ()]
            if len(sizes) == 4 and sizes[1] and sizes[3]:
                dtype = {1: "float32", 10: "float16"}.get(info.dtype, "float32")
                return Array((len(encodings), sizes[1], 0, sizes[3]), dtype, b"")
        raise InputError(
            f"the graph needs an input {info.name!r}",
            self.task,
            "It was exported for another task: give a model of this one.",
        )


def need_text(given: Any, where: str) -> str:
    """The text of an input. Raises InputError if it is none."""
    if not isinstance(given, str):
        raise InputError(
            f"a {type(given).__name__} is not a text", where, "Give a string or a list of strings."
        )
    return given


def joiner(tokenizer: Any) -> Callable[[list[str]], str]:
    """The function that makes text of tokens."""
    join: Callable[[list[str]], str] = tokenizer.convert_tokens_to_string
    return join


def labels_of(config: Mapping[str, Any], count: int) -> dict[str, str]:
    """id2label of config.json, for `count` labels."""
    given = config.get("id2label") or {}
    return {str(i): str(given.get(str(i), given.get(i, f"LABEL_{i}"))) for i in range(count)}


def label_ids(config: Mapping[str, Any]) -> dict[str, int]:
    """label2id of config.json, or the reverse of its id2label."""
    given = config.get("label2id")
    if not given:
        given = {label: int(i) for i, label in (config.get("id2label") or {}).items()}
    return {str(label): int(i) for label, i in given.items()}


def check_flag(value: Any, name: str) -> None:
    """Raises InputError unless a value is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{value!r} is neither True nor False", name)


def check_choice(value: Any, name: str, choices: Sequence[Any]) -> None:
    """Raises InputError unless a value is one of some."""
    if value not in choices:
        raise InputError(
            f"it is {value!r}", name, f"Use one of {', '.join(repr(c) for c in choices)}."
        )

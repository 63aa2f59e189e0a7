"""What the pipelines of texts share: tokenization, inputs and outputs of the graph."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from ...compiler.arrays import as_output
from ...compiler.task_package.decoders import empty_state
from ...errors import InputError
from ...logic.tasks.inputs import Values, first_position, tokens_fed
from ...logic.tasks.texts import Run, TextModel
from ...logic.text.encoding import EncodeOptions, Encoding
from ..drive import drive
from ..session.packaged import ProgramSession
from .base import Pipeline
from .post.plane import Plane

Result = TypeVar("Result")

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

    def inner_options(self, options: Mapping[str, Any], name: str) -> dict[str, Any]:
        """The options of ENCODING that are in an option. Raises InputError."""
        extra = options[name] or {}
        if not isinstance(extra, Mapping) or not set(extra) <= set(self.ENCODING):
            raise InputError(f"it is {extra!r}", name, f"There are: {', '.join(self.ENCODING)}.")
        return dict(extra)

    @property
    def model(self) -> TextModel:
        """The model, for the logic of its task."""
        own = getattr(self.tokenizer, "config", None) or {}
        return TextModel(
            self.task,
            self.config,
            TokenizerWords(self),
            bool(getattr(self.tokenizer, "continuing_subword_prefix", None)),
            "left" if own.get("padding_side") == "left" else "right",
            self.longest,
        )

    def done(self, steps: Generator[Run, Any, Result]) -> Result:
        """What a task returns."""
        return drive(steps, self._answer)

    def _answer(self, run: Run) -> list[Values]:
        names = [self.need_output("model", name) for name in run.outputs]
        return [Values(f.shape, f.numbers) for f in self.forward(run.read, outputs=names)]

    @property
    def longest(self) -> int | None:
        """The greatest number of tokens that tokenizer and model take; None: not known."""
        most = self.config.get("max_position_embeddings")
        known = [self.tokenizer.longest, self._packaged_length]
        if type(most) is int and most > 0 and self.config.get("position_biased_input") is not False:
            known.append(most - first_position(self.config))
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

    def forward(self, *encodings: Encoding, outputs: Sequence[str]) -> list[Plane]:
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
        found = [Plane(x) for x in session.run(list(outputs), feeds)]
        if isinstance(session, ProgramSession) and n > tokens:
            for name, plane in zip(outputs, found):
                if session.varies(name, 1):
                    plane.cut(tokens)
        return found

    def _feed(self, info: Any, encodings: Sequence[Encoding], n: int) -> Any:
        """The value of an input of the graph for texts of n tokens. Raises InputError."""
        pad, first = self.tokenizer.pad_token_id or 0, first_position(self.config)
        rows = [tokens_fed(info.name, e.ids, e.type_ids, n, pad, first) for e in encodings]
        if None not in rows:
            return rows
        state = empty_state(info, len(encodings))
        if state is not None:  # a decoder: nothing precedes the text
            return as_output(state.dtype, list(state.shape), state.bytes())
        raise InputError(
            f"the graph needs an input {info.name!r}",
            self.task,
            "It was exported for another task: give a model of this one.",
        )


class TokenizerWords:
    """The tokenizer of a pipeline, as its logic reads it (logic.tasks.texts.Words)."""

    def __init__(self, pipe: TextPipeline) -> None:
        self.pipe, self.own = pipe, pipe.tokenizer

    def special(self, name: str) -> str | None:
        """The special token of a name."""
        found: str | None = getattr(self.own, name, None)
        return found

    def id_of(self, token: str) -> int | None:
        """The id of a token."""
        found: int | None = self.own.token_to_id(token)
        return found

    def token_of(self, number: int) -> str:
        """The token of an id; "" if there is none."""
        return self.own.convert_ids_to_tokens([number])[0] or ""

    def ids(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        return list(self.own.encode(text, add_special_tokens=False))

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        """The text of ids."""
        return str(self.own.decode(ids, skip_special_tokens=skip_special_tokens))

    def join(self, tokens: list[str]) -> str:
        """The text of tokens."""
        return str(self.own.convert_tokens_to_string(tokens))

    def encodings(self, text: str, pair: str | None, options: EncodeOptions) -> list[Encoding]:
        """The encodings of a text or a pair."""
        return self.pipe.encodings(text, pair, **vars(options))


def need_text(given: Any, where: str) -> str:
    """The text of an input. Raises InputError if it is none."""
    if not isinstance(given, str):
        raise InputError(
            f"a {type(given).__name__} is not a text", where, "Give a string or a list of strings."
        )
    return given

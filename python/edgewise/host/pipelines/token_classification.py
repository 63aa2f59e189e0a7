"""token-classification. Mirrors transformers' TokenClassificationPipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from ...logic.post.classification import softmax
from ...logic.post.tokens import STRATEGIES, Scored, entities_of, is_subword, without_overlaps
from ..text.encoding import Encoding
from .text import TextPipeline, check_choice, joiner, labels_of, need_text

_FLAGS = (None, True, False)


class TokenClassificationPipeline(TextPipeline):
    """Finds entities in texts.

    Options:
        aggregation_strategy: how tokens become entities: "none", "simple", "first", "average" or
            "max".
        ignore_labels: labels that are left out. Default: ["O"].
        stride: a text that is too long is processed in parts that share as many tokens; it needs
            an aggregation_strategy. Default: a text is cut.
        grouped_entities, ignore_subwords: former names of the strategies "simple" and "first".
        offset_mapping: [(start, end)] of the tokens of a text, special ones included. Default:
            the tokenizer's.
        is_split_into_words: an input is a list of words; for one such list the result is a list of
            one, as in transformers. delimiter: between them in the text that
            start and end refer to; default: a space.

    Returns:
        a list for each text: {"entity", "score", "index", "word", "start", "end"}, with a strategy
        {"entity_group", "score", "word", "start", "end"}
    """

    task = "token-classification"
    CALL = {
        "aggregation_strategy": "none",
        "ignore_labels": None,
        "stride": None,
        "grouped_entities": None,
        "ignore_subwords": None,
        "offset_mapping": None,
        "is_split_into_words": False,
        "delimiter": None,
    }

    def check(self, options: Mapping[str, Any]) -> None:
        check_choice(options["aggregation_strategy"], "aggregation_strategy", STRATEGIES)
        for name in ("grouped_entities", "ignore_subwords"):
            check_choice(options[name], name, _FLAGS)
        check_choice(options["is_split_into_words"], "is_split_into_words", (True, False))
        if not isinstance(options["delimiter"], (str, type(None))):
            raise InputError("it is not a string", "delimiter")
        ignored, stride = options["ignore_labels"], options["stride"]
        if ignored is not None and not isinstance(ignored, (list, tuple)):
            raise InputError("it is not a list of labels", "ignore_labels")
        if stride is None:
            return
        if type(stride) is not int or stride < 0:
            raise InputError(f"{stride!r} is not an integer of 0 or more", "stride")
        if _strategy(options) == "none":
            raise InputError(
                'overlapping parts need another strategy than "none"',
                "stride",
                "Set aggregation_strategy.",
            )

    def __call__(self, inputs: Any, *, batch_size: int | None = None, **options: Any) -> Any:
        """See the class and Pipeline.__call__."""
        every = self.options(options)
        if (
            every["is_split_into_words"]
            and isinstance(inputs, (list, tuple))
            and all(isinstance(word, str) for word in inputs)
        ):
            inputs = [inputs]
        return self.run(inputs, every, batch_size)

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        words = None
        if options["is_split_into_words"]:
            if not isinstance(given, (list, tuple)) or not all(isinstance(w, str) for w in given):
                raise InputError("the input is not a list of words", self.task)
            words = list(given)
            delimiter = " " if options["delimiter"] is None else options["delimiter"]
            text = delimiter.join(words)
        else:
            delimiter, text = "", need_text(given, self.task)
        name = self.need_output("model", "logits")
        stride, strategy = options["stride"], _strategy(options)
        found = self.encodings(words or text, truncation=True, stride=stride or 0)
        parts = found if stride is not None else found[:1]
        ignored = ["O"] if options["ignore_labels"] is None else options["ignore_labels"]
        entities = []
        for encoding in parts:
            (logits,) = self.forward(encoding, outputs=[name])
            offsets = options["offset_mapping"] or encoding.offsets
            if words is not None:
                offsets = _in_text(encoding, words, len(delimiter))
            entities += entities_of(
                self._scored(text, encoding, offsets, logits),
                labels_of(self.config, logits.shape[-1]),
                strategy,
                ignored,
                joiner(self.tokenizer),
            )
        return without_overlaps(entities) if len(parts) > 1 else entities

    def _scored(
        self, text: str, encoding: Encoding, offsets: Sequence[tuple[int, int]], logits: Any
    ) -> list[Scored]:
        """The tokens that are not special, with their probabilities."""
        if not isinstance(offsets, (list, tuple)) or len(offsets) != len(encoding.ids):
            raise InputError(
                f"it is no list of {len(encoding.ids)} pairs, one for each token",
                "offset_mapping",
                "Give one pair for each token, special ones included.",
            )
        names = self.tokenizer.convert_ids_to_tokens(encoding.ids)
        prefix = bool(self.tokenizer.continuing_subword_prefix)
        scored = []
        for i, number in enumerate(encoding.ids):
            if encoding.special[i]:
                continue
            start, end = offsets[i]
            word, continues = names[i] or "", False
            if number == self.tokenizer.unk_token_id:
                word = text[start:end]
            else:
                continues = is_subword(text, word, start, end, prefix)
            scored.append(Scored(word, softmax(logits.row(0, i)), start, end, i, continues))
        return scored


def _strategy(options: Mapping[str, Any]) -> str:
    """The strategy that the options name, also by their former names."""
    grouped, ignore = options["grouped_entities"], options["ignore_subwords"]
    if grouped is None and ignore is None:
        return str(options["aggregation_strategy"])
    return ("first" if ignore else "simple") if grouped else "none"


def _in_text(encoding: Encoding, words: Sequence[str], gap: int) -> list[tuple[int, int]]:
    """Offsets in the joined text of tokens of separate words."""
    begins, at = [], 0
    for word in words:
        begins.append(at)
        at += len(word) + gap
    return [
        (start + (begins[w] if w is not None else 0), end + (begins[w] if w is not None else 0))
        for (start, end), w in zip(encoding.offsets, encoding.words)
    ]

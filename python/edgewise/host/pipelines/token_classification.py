"""token-classification. Mirrors transformers' TokenClassificationPipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from ...logic.options import read_flag, read_text
from ...logic.tasks.texts import find_entities, grouping
from ...logic.text.encoding import Encoding
from .text import TextPipeline, need_text


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
        grouping(options)
        read_flag(options, "is_split_into_words")
        read_text(options, "delimiter")

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
        self.need_output("model", "logits")
        how = grouping(options)
        parts = self.encodings(words or text, truncation=True, stride=how.stride or 0)
        if how.stride is None:
            parts = parts[:1]
        offsets = [
            _in_text(part, words, len(delimiter))
            if words is not None
            else _given_offsets(options["offset_mapping"], part)
            for part in parts
        ]
        return self.done(find_entities(self.model, text, parts, offsets, how))


def _given_offsets(given: Any, encoding: Encoding) -> list[tuple[int, int]]:
    """The offsets that the caller gives, or the tokenizer's. Raises InputError."""
    offsets = given or encoding.offsets
    if not isinstance(offsets, (list, tuple)) or len(offsets) != len(encoding.ids):
        raise InputError(
            f"it is no list of {len(encoding.ids)} pairs, one for each token",
            "offset_mapping",
            "Give one pair for each token, special ones included.",
        )
    return list(offsets)


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

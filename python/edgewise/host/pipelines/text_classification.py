"""text-classification and zero-shot-classification. Mirrors transformers' pipelines of these
names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ...logic.options import read_flag
from ...logic.post.classification import (
    Labeling,
    class_scores,
    id2label_of,
    label_of,
    labeled,
    labeling,
)
from ...logic.tasks.candidates import TEMPLATES, candidates, hypothesis
from ...logic.tasks.texts import classify_freely, encode_options, is_multi_label
from .text import TextPipeline, need_text

_ABSENT = ""  # as transformers' default of top_k: None stands for all


class TextClassificationPipeline(TextPipeline):
    """Classifies texts: pipe("text"), pipe({"text": ..., "text_pair": ...}), or a list of these.

    Options:
        top_k: how many labels; None: all. If it is given, the result of a text is a list.
        function_to_apply: "softmax", "sigmoid", "none", or "default": as problem_type and the
            number of labels in config.json imply.
        return_all_scores: all labels in the model's order; top_k=None is its replacement.
        truncation, max_length, padding, add_special_tokens: of the tokenizer. Default: a text is
            cut to the length that the model takes.

    Returns:
        [{"label", "score"}] for a string; {"label", "score"} for a dict or each item of a list;
        with top_k lists of them, the highest score first
    """

    task = "text-classification"
    CALL = {
        "top_k": _ABSENT,
        "function_to_apply": None,
        "return_all_scores": None,
        **TextPipeline.ENCODING,
    }

    def check(self, options: Mapping[str, Any]) -> None:
        self._labeling(options)
        read_flag(options, "return_all_scores")
        encode_options(options)

    def _labeling(self, options: Mapping[str, Any]) -> Labeling:
        given = options["top_k"] != _ABSENT
        return labeling({n: v for n, v in options.items() if n != "top_k" or given}, 1)

    def __call__(self, inputs: Any, *, batch_size: int | None = None, **options: Any) -> Any:
        """See the class and Pipeline.__call__."""
        result = super().__call__(inputs, batch_size=batch_size, **options)
        return [result] if isinstance(inputs, str) and "top_k" not in options else result

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        text, pair = _text_and_pair(given)
        encoding = self.encodings(text, pair, **vars(encode_options(options)))[0]
        (logits,) = self.forward(encoding, outputs=[self.need_output("model", "logits")])
        row, how = logits.row(0), self._labeling(options)
        if options["top_k"] == _ABSENT and options["return_all_scores"]:
            scores, names = class_scores(row, self.config, how.function), id2label_of(self.config)
            return [{"label": label_of(names, i), "score": s} for i, s in enumerate(scores)]
        found = labeled(row, self.config, how)
        return found[0] if options["top_k"] == _ABSENT else found


def _text_and_pair(given: Any) -> tuple[str, str | None]:
    if isinstance(given, dict):
        if not set(given) <= {"text", "text_pair"} or "text" not in given:
            raise InputError(
                f"a dict has {', '.join(map(repr, given)) or 'nothing'}",
                "text-classification",
                'Give {"text": ..., "text_pair": ...}.',
            )
        pair = given.get("text_pair")
        return need_text(given["text"], "text"), None if pair is None else need_text(
            pair, "text_pair"
        )
    if isinstance(given, (list, tuple)):
        raise InputError(
            "a list in a list is not a text",
            "text-classification",
            'For a pair of texts give {"text": ..., "text_pair": ...}.',
        )
    return need_text(given, "text-classification"), None


class ZeroShotClassificationPipeline(TextPipeline):
    """Classifies texts by any labels with a model of natural language inference:
    pipe(texts, labels).

    Options:
        candidate_labels: a list, or a string with commas.
        hypothesis_template: a text with {} for the label. Default: "This example is {}."
        multi_label, multi_class (its former name): whether several labels may be true. Default:
            False, the scores add up to 1.

    Returns:
        {"sequence", "labels", "scores"} for each text, the highest score first
    """

    task = "zero-shot-classification"
    CALL = {
        "candidate_labels": None,
        "hypothesis_template": TEMPLATES["zero-shot-classification"],
        "multi_label": False,
        "multi_class": None,
    }

    def check(self, options: Mapping[str, Any]) -> None:
        is_multi_label(options)
        hypothesis(options, self.task)

    def __call__(  # type: ignore[override]  # the names of transformers
        self,
        sequences: Any,
        candidate_labels: Any = None,
        *,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """See the class and Pipeline.__call__."""
        if candidate_labels is not None:
            options["candidate_labels"] = candidate_labels
        return super().__call__(sequences, batch_size=batch_size, **options)

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        text, labels = need_text(given, self.task), candidates(options, self.task)
        return self.done(classify_freely(self.model, text, labels, is_multi_label(options)))

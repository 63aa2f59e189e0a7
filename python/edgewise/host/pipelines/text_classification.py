"""text-classification and zero-shot-classification. Mirrors transformers' pipelines of these
names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...compiler.tokenizers.candidates import candidate_labels
from ...errors import InputError
from ...logic.post.classification import (
    FUNCTIONS,
    best,
    check_top_k,
    entailment_of,
    function_for,
    scores_of,
    zero_shot,
)
from .text import TextPipeline, check_choice, check_flag, label_ids, labels_of, need_text

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
        if options["top_k"] != _ABSENT:
            check_top_k(options["top_k"])
        check_choice(options["function_to_apply"], "function_to_apply", (None, *FUNCTIONS))
        check_choice(options["return_all_scores"], "return_all_scores", (None, True, False))
        self.check_encoding(options)

    def __call__(self, inputs: Any, *, batch_size: int | None = None, **options: Any) -> Any:
        """See the class and Pipeline.__call__."""
        result = super().__call__(inputs, batch_size=batch_size, **options)
        return [result] if isinstance(inputs, str) and "top_k" not in options else result

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        text, pair = _text_and_pair(given)
        extra = {name: options[name] for name in self.ENCODING if name != "padding"}
        encoding = self.encodings(text, pair, **extra)[0]
        (logits,) = self.forward(encoding, outputs=[self.need_output("model", "logits")])
        row = logits.row(0)
        labels = labels_of(self.config, len(row))
        function = options["function_to_apply"]
        if function in (None, "default"):
            function = function_for(self.config.get("problem_type"), len(row))
        scores = scores_of(row, function)
        if options["top_k"] != _ABSENT:
            return best(scores, labels, options["top_k"])
        if options["return_all_scores"]:
            return [{"label": labels[str(i)], "score": s} for i, s in enumerate(scores)]
        return best(scores, labels, 1)[0]


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
        "hypothesis_template": "This example is {}.",
        "multi_label": False,
        "multi_class": None,
    }

    def check(self, options: Mapping[str, Any]) -> None:
        check_flag(options["multi_label"], "multi_label")
        check_choice(options["multi_class"], "multi_class", (None, True, False))
        template = options["hypothesis_template"]
        try:
            same = template.format("x") == template
        except (AttributeError, IndexError, KeyError, ValueError):
            same = True
        if same:
            raise InputError(
                f"{template!r} has no place for the label",
                "hypothesis_template",
                "Put {} where the label belongs.",
            )

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
        text = need_text(given, "zero-shot-classification")
        labels = candidate_labels(options["candidate_labels"])
        template = options["hypothesis_template"]
        name = self.need_output("model", "logits")
        rows = []
        for label in labels:
            encoding = self._encoding(text, template.format(label))
            rows.append(self.forward(encoding, outputs=[name])[0].row(0))
        multi = options["multi_class"]
        multi = options["multi_label"] if multi is None else multi
        entailment = entailment_of(label_ids(self.config))
        ordered, scores = zero_shot(rows, labels, entailment, multi)
        return {"sequence": text, "labels": ordered, "scores": scores}

    def _encoding(self, text: str, hypothesis: str) -> Any:
        """The pair, of which the text is cut. (transformers leaves a pair uncut whose hypothesis
        alone is too long, and fails in the model.)
        """
        return self.encodings(text, hypothesis, truncation="only_first")[0]

"""audio-classification. Mirrors transformers' AudioClassificationPipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...logic.post.classification import Score, best, check_top_k, function_for, scores_of
from .audio import AudioPipeline
from .text import check_choice, labels_of


class AudioClassificationPipeline(AudioPipeline):
    """Classifies sounds: pipe("dog.wav"), pipe(samples), or a list of these.

    Options:
        top_k: how many labels; None: all. Default: 5.
        function_to_apply: "softmax", "sigmoid" or "none". Default: as problem_type and the number
            of labels in config.json imply; transformers' is always "softmax".

    Returns:
        [{"label", "score"}], the highest score first; a list of these for a list
    """

    task = "audio-classification"
    CALL = {"top_k": 5, "function_to_apply": None}

    def check(self, options: Mapping[str, Any]) -> None:
        check_top_k(options["top_k"])
        functions = (None, "softmax", "sigmoid", "none")
        check_choice(options["function_to_apply"], "function_to_apply", functions)

    def one(self, given: Any, options: dict[str, Any]) -> list[Score]:
        logits = self.vector(self.need_output("model", "logits"), self.inputs_of(given))
        function = options["function_to_apply"]
        if function is None:
            function = function_for(self.config.get("problem_type"), len(logits))
        labels = labels_of(self.config, len(logits))
        return best(scores_of(logits, function), labels, options["top_k"])

"""audio-classification. Mirrors transformers' AudioClassificationPipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...logic.post.classification import Score, labeled, labeling
from .audio import AudioPipeline


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
        labeling(options, 5)

    def one(self, given: Any, options: dict[str, Any]) -> list[Score]:
        logits = self.vector(self.need_output("model", "logits"), self.inputs_of(given))
        return labeled(logits, self.config, labeling(options, 5))

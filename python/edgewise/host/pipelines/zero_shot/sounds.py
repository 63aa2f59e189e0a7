"""zero-shot-audio-classification. Mirrors transformers' pipeline of this name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....compiler.task_package.towers import SOUNDS
from ....logic.tasks.candidates import TEMPLATES
from ..audio import AudioPipeline
from .candidates import CandidatesPipeline

__all__ = ["ZeroShotAudioClassificationPipeline"]


class ZeroShotAudioClassificationPipeline(CandidatesPipeline, AudioPipeline):
    """Classifies sounds by any labels: pipe("dog.wav", candidate_labels=[...]), with CLAP: as one
    graph that has the output logits_per_audio, or as audio_model.onnx and text_model.onnx. Of the
    latter, and of packages, each text is read once for all sounds.

    Options:
        candidate_labels: a list, or a string with commas.
        hypothesis_template: a text with {} for the label. Default: "This is a sound of {}."

    Returns:
        [{"score", "label"}] for each sound, the highest score first
    """

    task = "zero-shot-audio-classification"
    COMPARED = SOUNDS
    STEMS = (("model", SOUNDS.stem),)
    CALL = {"candidate_labels": None, "hypothesis_template": TEMPLATES[task]}

    def outputs_of(self, given: Any, names: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        inputs = self.inputs_of(given, self.perceiver, feeds)
        found: list[Any] = self.session(self.perceiver).run([*names], inputs)
        return found

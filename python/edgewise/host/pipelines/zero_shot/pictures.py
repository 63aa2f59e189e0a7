"""zero-shot-image-classification. Mirrors transformers' pipeline of this name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....compiler.task_package.towers import PICTURES
from ....logic.tasks.candidates import TEMPLATES
from ..images.base import ImagePipeline
from .candidates import CandidatesPipeline

__all__ = ["ZeroShotImageClassificationPipeline"]


class ZeroShotImageClassificationPipeline(CandidatesPipeline, ImagePipeline):
    """Classifies pictures by any labels: pipe(image, candidate_labels=[...]), with CLIP or SigLIP:
    as one graph that has the output logits_per_image, or as vision_model.onnx and text_model.onnx.
    Of the latter, and of packages, each text is read once for all pictures.

    Options:
        candidate_labels: a list, or a string with commas.
        hypothesis_template: a text with {} for the label. Default: "This is a photo of {}."

    Returns:
        [{"score", "label"}] for each picture, the highest score first
    """

    task = "zero-shot-image-classification"
    COMPARED = PICTURES
    FLEXIBLE = True
    STEMS = (("model", PICTURES.stem),)
    CALL = {"candidate_labels": None, "hypothesis_template": TEMPLATES[task]}

    @property
    def STEM(self) -> str:  # type: ignore[override]  # noqa: N802
        """The graph that takes the picture."""
        return self.perceiver

    def outputs_of(self, given: Any, names: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        return self.forward(self.picture(given), *names, feeds=feeds)

"""image-classification and image-feature-extraction. Mirrors transformers' pipelines of these
names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....logic.options import read_flag
from ....logic.post.classification import Score, labeled, labeling
from ....logic.tasks.pictures import feature_outputs
from .base import ImagePipeline, Plane

__all__ = ["ImageClassificationPipeline", "ImageFeatureExtractionPipeline"]


class ImageClassificationPipeline(ImagePipeline):
    """Classifies pictures.

    Options:
        top_k: how many labels; None: all. Default: 5.
        function_to_apply: "softmax", "sigmoid", "none", or "default": as problem_type and the
            number of labels in config.json imply.

    Returns:
        [{"label", "score"}] for each picture, the highest score first
    """

    task = "image-classification"
    FLEXIBLE = True
    CALL = {"top_k": 5, "function_to_apply": None}

    def check(self, options: Mapping[str, Any]) -> None:
        labeling(options, 5)

    def one(self, given: Any, options: dict[str, Any]) -> list[Score]:
        session = self.session(self.STEM)
        names = ("logits", "output", next(iter(session.outputs)))
        (logits,) = self.forward(self.picture(given), self.need_output(self.STEM, *names))
        return labeled(list(Plane(logits).numbers), self.config, labeling(options, 5))


class ImageFeatureExtractionPipeline(ImagePipeline):
    """Features of pictures, for search and for training of classifiers.

    Options:
        pool: whether the result is one vector for each picture (the output `pooler_output`, or
            `image_embeds`) instead of one for each patch. Default: False.
        return_tensors: whether the result is an array. Default: False.

    Returns:
        nested lists of [1, patches, size], with `pool` of [1, size]
    """

    task = "image-feature-extraction"
    FLEXIBLE = True
    STEMS = (("model", "vision_model"),)
    CALL = {"pool": False, "return_tensors": False}

    def check(self, options: Mapping[str, Any]) -> None:
        read_flag(options, "return_tensors")
        feature_outputs(options)

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        names = feature_outputs(options)
        (value,) = self.forward(self.picture(given), self.need_output(self.STEM, *names))
        return value if options["return_tensors"] else value.tolist()

    @property
    def STEM(self) -> str:  # type: ignore[override]  # noqa: N802
        """The graph that takes the picture: CLIP's has a name of its own."""
        names = self.sessions if self.files is None else self.files.graphs
        return "vision_model" if "vision_model" in names else "model"

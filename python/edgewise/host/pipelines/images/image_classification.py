"""image-classification and image-feature-extraction. Mirrors transformers' pipelines of these
names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import InputError
from ....logic.post.classification import (
    FUNCTIONS,
    Score,
    best,
    check_top_k,
    function_for,
    scores_of,
)
from .base import ImagePipeline, Plane, check_flag

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
    CALL = {"top_k": 5, "function_to_apply": None}

    def check(self, options: Mapping[str, Any]) -> None:
        check_top_k(options["top_k"])
        function = options["function_to_apply"]
        if function is not None and function not in FUNCTIONS:
            raise InputError(
                f"there is no function {function!r}",
                "function_to_apply",
                f"There are: {', '.join(FUNCTIONS)}.",
            )

    def one(self, given: Any, options: dict[str, Any]) -> list[Score]:
        session = self.session(self.STEM)
        names = ("logits", "output", next(iter(session.outputs)))
        (logits,) = self.forward(self.picture(given), self.need_output(self.STEM, *names))
        row = list(Plane(logits).numbers)
        function = options["function_to_apply"]
        if function in (None, "default"):
            function = function_for(self.config.get("problem_type"), len(row))
        return best(scores_of(row, function), self.labels, options["top_k"])


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
    STEMS = (("model", "vision_model"),)
    CALL = {"pool": False, "return_tensors": False}

    def check(self, options: Mapping[str, Any]) -> None:
        check_flag(options, "return_tensors")
        if options["pool"] is not None:
            check_flag(options, "pool")

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        names = (
            ("pooler_output", "image_embeds")
            if options["pool"]
            else ("last_hidden_state", "logits", "image_embeds")
        )
        (value,) = self.forward(self.picture(given), self.need_output(self.STEM, *names))
        return value if options["return_tensors"] else value.tolist()

    @property
    def STEM(self) -> str:  # type: ignore[override]  # noqa: N802
        """The graph that takes the picture: CLIP's has a name of its own."""
        names = self.sessions if self.files is None else self.files.graphs
        return "vision_model" if "vision_model" in names else "model"

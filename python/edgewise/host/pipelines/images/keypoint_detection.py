"""keypoint-detection. Mirrors the image processors of ViTPose and SuperPoint of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....compiler.task_package.images import DATASET
from ....logic.tasks.inputs import Values, choose_output
from ....logic.tasks.keypoints import HEATMAPS, POINTS, boxes_of, points, pose, posing
from .base import ImagePipeline, Plane

__all__ = ["KeypointDetectionPipeline"]


class KeypointDetectionPipeline(ImagePipeline):
    """Finds the joints of people (ViTPose), or salient points with descriptors (SuperPoint).

    Options:
        boxes: of ViTPose: where the people are: [left, top, width, height] of each in pixels, or
            the results of object-detection. Default: one, which is the whole picture.
        threshold: scores above it are kept. Default: all.
        kernel_size: of ViTPose: side of the Gaussian that heatmaps are blurred with. Default: 11.

    Returns:
        for each picture, of ViTPose a list with {"keypoints": [(x, y)] in pixels, "scores",
        "labels", "box": {"xmin", "ymin", "xmax", "ymax"}} for each box; of SuperPoint
        {"keypoints", "scores", "descriptors"}
    """

    task = "keypoint-detection"
    CALL = {"boxes": None, "threshold": None, "kernel_size": None}

    def check(self, options: Mapping[str, Any]) -> None:
        posing(options)

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        picture, how = self.picture(given), posing(options)
        size, outputs = (picture.height, picture.width), list(self.session(self.STEM).outputs)
        if all(name in outputs for name in POINTS):
            made = [self._values(x) for x in self.forward(picture, *POINTS)]
            return points(made, size, how.threshold, self.task)
        name = outputs[0] if len(outputs) == 1 else choose_output(outputs, [HEATMAPS], self.task)
        shown = self.processor.description.size or size
        found = []
        for box in boxes_of(how, size):
            (maps,) = self.forward(picture, name, feeds={DATASET: [0]}, box=box)
            found.append(pose(self._values(maps), box, shown, how, self.labels, self.task))
        return found

    @staticmethod
    def _values(value: Any) -> Values:
        plane = Plane(value)
        return Values(plane.shape, plane.numbers)

"""object-detection. Mirrors transformers' pipeline of this name, and runs YOLO models as
ultralytics does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....compiler.task_package.images import yolo_config, yolo_labels
from ....logic.tasks.inputs import Values
from ....logic.tasks.pictures import Found, detected, detecting, query_boxes, yolo_boxes
from .base import ImagePipeline, Plane

__all__ = ["ObjectDetectionPipeline"]


class ObjectDetectionPipeline(ImagePipeline):
    """Finds objects in pictures: DETR, YOLOS, Table Transformer, RT-DETR, D-FINE, Conditional and
    Deformable DETR; YOLO v8 and later without preprocessor_config.json.

    Options:
        threshold: scores above it are kept. Default: 0.5, as in transformers; transformers.js has
            0.9.
        percentage: whether boxes are parts of the picture instead of pixels. Default: False.
        iou: YOLO: of two boxes that overlap more, the one with the lower score is left out.
            Default: 0.45.
        agnostic_nms: YOLO: whether boxes of different classes suppress each other. Default: False.

    Returns:
        [{"score", "label", "box": {"xmin", "ymin", "xmax", "ymax"}}] for each picture
    """

    task = "object-detection"
    CALL = {"threshold": 0.5, "percentage": False, "iou": 0.45, "agnostic_nms": False}

    def check(self, options: Mapping[str, Any]) -> None:
        detecting(options)

    def default_processor(self) -> dict[str, Any]:
        """Of YOLO models, which have no preprocessor_config.json."""
        return yolo_config(self.session(self.STEM).graph) or super().default_processor()

    @property
    def labels(self) -> Mapping[str, str]:
        """id2label of config.json, or the names in a YOLO model's metadata."""
        found = super().labels
        if self.files is not None and self.files.package is not None:
            return dict(self.files.package.manifest.get("processor", {}).get("labels", found))
        return found or yolo_labels(self.session(self.STEM).graph)

    def one(self, given: Any, options: dict[str, Any]) -> list[Found]:
        picture, how = self.picture(given), detecting(options)
        size = (picture.height, picture.width)
        described = self.processor.description
        if described.type == "YoloImageProcessor":
            names = list(self.session(self.STEM).outputs)[:1]
        else:
            names = [self.need_output(self.STEM, name) for name in ("logits", "pred_boxes")]
        planes = [Plane(x) for x in self.forward(picture, *names)]
        first, *others = (Values(p.shape, p.numbers) for p in planes)
        if others:
            found = query_boxes(first, others[0], self.config, how.threshold, size, self.task)
        else:
            found = yolo_boxes(first, how, described.size, size, self.task)
        return detected(found, self.labels, size, how.percentage)

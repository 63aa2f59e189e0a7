"""object-detection. Mirrors transformers' pipeline of this name, and runs YOLO models as
ultralytics does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....compiler.task_package.images import yolo_config, yolo_labels
from ....errors import InputError
from ....logic.post.classification import label_of
from ....logic.post.detection import Detection, focal, named_box, set_prediction, unletterbox, yolo
from ...media.pictures import Picture
from .base import ImagePipeline, Plane, check_flag, check_part

__all__ = ["ObjectDetectionPipeline"]

# Models with independent scores of all classes: how many scores are considered (None: as many as
# there are queries).
FOCAL: dict[str, int | None] = {
    "conditional_detr": 100,
    "deformable_detr": 100,
    "d_fine": None,
    "rt_detr": None,
    "rt_detr_v2": None,
}
MAX = 300  # detections of YOLO models, as in ultralytics


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
        check_part(options, "threshold", "iou")
        check_flag(options, "percentage", "agnostic_nms")

    def default_processor(self) -> dict[str, Any]:
        """Of YOLO models, which have no preprocessor_config.json."""
        return yolo_config(self.session(self.STEM).graph) or super().default_processor()

    @property
    def labels(self) -> dict[str, str]:
        """id2label of config.json, or the names in a YOLO model's metadata."""
        found = super().labels
        if self.files is not None and self.files.package is not None:
            return dict(self.files.package.manifest.get("processor", {}).get("labels", found))
        return found or yolo_labels(self.session(self.STEM).graph)

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        picture = self.picture(given)
        height, width = picture.height, picture.width
        if self.processor.description.type == "YoloImageProcessor":
            found = self._yolo(picture, options)
        else:
            found = self._queries(picture, options["threshold"])
        labels = self.labels
        return [
            {
                "score": score,
                "label": label_of(labels, label),
                "box": named_box(box, height, width, options["percentage"]),
            }
            for score, label, box in found
        ]

    def _queries(self, picture: Picture, threshold: float) -> list[Detection]:
        names = [self.need_output(self.STEM, name) for name in ("logits", "pred_boxes")]
        logits, boxes = (Plane(x) for x in self.forward(picture, *names))
        classes, kind = logits.shape[-1], self.config.get("model_type")
        size = (picture.height, picture.width)
        if kind in FOCAL:
            most = FOCAL[kind]
            return focal(logits.numbers, boxes.numbers, classes, threshold, *size, most)
        return set_prediction(logits.numbers, boxes.numbers, classes, threshold, *size)

    def _yolo(self, picture: Picture, options: Mapping[str, Any]) -> list[Detection]:
        names = list(self.session(self.STEM).outputs)
        output = Plane(self.forward(picture, names[0])[0])
        shape, numbers = output.shape, output.numbers
        if len(shape) != 3 or shape[0] != 1 or shape[1] < 5 and shape[2] < 6:
            raise InputError(
                f"the output '{names[0]}' of shape {shape} is not that of YOLO v8 or later",
                self.task,
                "Give a model of this task, or preprocessor_config.json with it.",
            )
        if shape[2] == 6 and shape[1] > 6:  # boxes that were chosen in the graph
            rows = [numbers[i * 6 : i * 6 + 6] for i in range(shape[1])]
            found: list[Detection] = [
                (r[4], int(r[5]), (r[0], r[1], r[2], r[3]))
                for r in rows
                if r[4] > options["threshold"]
            ]
        else:
            found = yolo(
                numbers,
                shape[2],
                options["threshold"],
                options["iou"],
                options["agnostic_nms"],
                MAX,
            )
        size = self.processor.description.size
        return unletterbox(found, size, picture.height, picture.width)

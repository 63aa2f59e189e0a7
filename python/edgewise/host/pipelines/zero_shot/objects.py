"""zero-shot-object-detection. Mirrors transformers' pipeline of this name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....compiler.task_package.towers import OBJECTS
from ....logic.tasks.candidates import candidate_labels, candidates
from ....logic.tasks.inputs import Values, tokens_fed
from ....logic.tasks.objects import (
    check_text,
    finding,
    found_by_labels,
    grounded,
    grounded_text,
    is_grounded,
    is_squared,
)
from ....logic.tasks.pictures import Found
from ..images.base import ImagePipeline
from ..post.plane import Plane
from .candidates import CandidatesPipeline

__all__ = ["ZeroShotObjectDetectionPipeline"]


class ZeroShotObjectDetectionPipeline(CandidatesPipeline, ImagePipeline):
    """Finds objects by any labels: pipe(image, candidate_labels=[...]), with OWL-ViT, OWLv2 and
    Grounding DINO.

    Options:
        candidate_labels: a list, or a string with commas. Grounding DINO reads all as one text, and
            takes one with dots as it is: ["a cat. a dog."].
        threshold, box_threshold: scores above it are kept. Default: 0.1.
        text_threshold: Grounding DINO: the label of a box is its tokens with a score above it.
            Default: threshold.
        top_k: how many; None: all.
        percentage: whether boxes are parts of the picture instead of pixels. Default: False.

    Returns:
        [{"score", "label", "box": {"xmin", "ymin", "xmax", "ymax"}}] for each picture, the highest
        score first
    """

    task = "zero-shot-object-detection"
    COMPARED = OBJECTS
    OPTIONAL = ()
    CALL = {
        "candidate_labels": None,
        "threshold": 0.1,
        "box_threshold": None,
        "text_threshold": None,
        "top_k": None,
        "percentage": False,
    }

    def check(self, options: Mapping[str, Any]) -> None:
        finding(options)
        if options["candidate_labels"] is not None:
            candidate_labels(options["candidate_labels"])

    def outputs_of(self, given: Any, names: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        return self.forward(given, *names, feeds=feeds)

    def one(self, given: Any, options: dict[str, Any]) -> list[Found]:
        picture, how = self.picture(given), finding(options)
        labels = candidates(options, self.task).texts
        size = (picture.height, picture.width)
        if is_grounded(self.config):
            return self._grounded(picture, labels, options)
        if self.files is not None and self.files.package is not None:
            logits, boxes = self._packaged_boxes(picture, labels)
        else:
            names = [self.need_output("model", name) for name in ("logits", "pred_boxes")]
            rows = [self._ids(label) for label in labels]
            feeds = self._padded(rows, max(map(len, rows)))
            logits, boxes = (_values(x) for x in self.outputs_of(picture, names, feeds))
        return found_by_labels(logits, boxes, labels, how, size, is_squared(self.config), self.task)

    def _packaged_boxes(self, picture: Any, labels: Sequence[str]) -> tuple[Values, Values]:
        """Logits and boxes of a package, which reads each label once."""
        names = [*self.session("model").outputs]
        seen = dict(zip(names, self.outputs_of(picture, names, {})))
        text, scores = self.session("text"), self.session("scores")
        columns: list[Any] = []
        for label in labels:
            read = self._read(label, "text", [*text.outputs])
            both = {**seen, **dict(zip(text.outputs, read))}
            made, *_ = scores.run(None, {name: both[name] for name in scores.inputs})
            columns.append(Plane(made).numbers)
        flat = [column[q] for q in range(len(columns[0])) for column in columns]
        return Values([1, len(columns[0]), len(labels)], flat), _values(seen["pred_boxes"])

    def _grounded(
        self, picture: Any, labels: Sequence[str], options: dict[str, Any]
    ) -> list[Found]:
        """The objects of a model that reads all labels as one text."""
        ids = self.tokenizer.encode(grounded_text(labels))
        package, length = self.files.package if self.files is not None else None, len(ids)
        most = package.manifest["processor"]["text"]["max_length"] if package is not None else None
        check_text(length, most)
        names = [self.need_output("model", name) for name in ("logits", "pred_boxes")]
        inputs = ("input_ids", "attention_mask", "position_ids", "token_type_ids")
        if package is not None:
            length = self.session("model").size_for("input_ids", 1, length)
        feeds = {name: [tokens_fed(name, ids, [], length, 0, 0)] for name in inputs}
        logits, boxes = (_values(x) for x in self.outputs_of(picture, names, feeds))
        size = (picture.height, picture.width)
        found = grounded(logits, boxes, ids, finding(options), size, self.task)
        return [{**one.found, "label": self.tokenizer.decode(one.tokens).strip()} for one in found]


def _values(given: Any) -> Values:
    plane = Plane(given)
    return Values(plane.shape, plane.numbers)

"""zero-shot-image-classification. Mirrors transformers' pipeline of this name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from ...processors.images import Picture
from ...text.candidates import (
    candidate_ids,
    candidate_labels,
    is_padded,
    longest_candidate,
    padding,
)
from ..post.classification import sigmoid, softmax
from .base import ImagePipeline, Plane

__all__ = ["ZeroShotImageClassificationPipeline"]


class ZeroShotImageClassificationPipeline(ImagePipeline):
    """Classifies pictures by any labels: pipe(image, candidate_labels=[...]), with CLIP or SigLIP
    as one graph that has the output logits_per_image.

    Options:
        candidate_labels: a list, or a string with commas.
        hypothesis_template: a text with {} for the label. Default: "This is a photo of {}."

    Returns:
        [{"score", "label"}] for each picture, the highest score first
    """

    task = "zero-shot-image-classification"
    TOKENIZER = True
    CALL = {"candidate_labels": None, "hypothesis_template": "This is a photo of {}."}

    def __call__(
        self,
        inputs: Any,
        candidate_labels: Any = None,
        *,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """See the class and Pipeline.__call__."""
        if candidate_labels is not None:
            options["candidate_labels"] = candidate_labels
        return super().__call__(inputs, batch_size=batch_size, **options)

    def check(self, options: Mapping[str, Any]) -> None:
        template = options["hypothesis_template"]
        if not isinstance(template, str) or "{}" not in template:
            raise InputError("it is not a text with {}", "hypothesis_template", "Add {}.")
        if options["candidate_labels"] is not None:
            candidate_labels(options["candidate_labels"])

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        labels = candidate_labels(options["candidate_labels"])
        texts = [options["hypothesis_template"].replace("{}", label) for label in labels]
        rows = [candidate_ids(self.config, self.tokenizer, text) for text in texts]
        if self.files is not None and self.files.package is not None:
            logits = self._packaged(self.picture(given), rows)
        else:
            name = self.need_output(self.STEM, "logits_per_image")
            feeds = self._padded(rows, max(map(len, rows)))
            (found,) = self.forward(self.picture(given), name, feeds=feeds)
            logits = list(Plane(found).numbers)
        scores = sigmoid(logits) if is_padded(self.config) else softmax(logits)
        order = sorted(range(len(labels)), key=lambda i: -scores[i])
        return [{"score": scores[i], "label": labels[i]} for i in order]

    def _packaged(self, picture: Picture, rows: Sequence[list[int]]) -> list[float]:
        """The logits of each text, which the programs of a package read one by one."""
        text, scores = self.session("text"), self.session("scores")
        names = [*self.session(self.STEM).outputs]
        seen = dict(zip(names, self.forward(picture, *names)))
        found: list[float] = []
        for row in rows:
            feeds = self._padded([row], text.size_for("input_ids", 1, len(row)))
            read = text.run(None, {name: feeds[name] for name in text.inputs})
            both = {**seen, **dict(zip(text.outputs, read))}
            (logits,) = scores.run(None, {name: both[name] for name in scores.inputs})
            found += Plane(logits).numbers
        return found

    def _padded(self, rows: Sequence[list[int]], width: int) -> dict[str, Any]:
        """The texts, padded to one length, as inputs of the graph."""
        if is_padded(self.config):
            width = longest_candidate(self.config)
        pad = padding(self.config, self.tokenizer)
        return {
            "input_ids": [row + [pad] * (width - len(row)) for row in rows],
            "attention_mask": [[1] * len(row) + [0] * (width - len(row)) for row in rows],
        }

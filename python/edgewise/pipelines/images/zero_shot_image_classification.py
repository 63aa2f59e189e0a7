"""zero-shot-image-classification. Mirrors transformers' pipeline of this name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...arrays import Array
from ...declare.dtypes import FLOAT, pack
from ...errors import InputError
from ...onnx import FileSource
from ...processors.images import Picture
from ...session import InferenceSession
from ...task_package.towers import (
    IMAGE_EMBEDS,
    LOGITS,
    TEXT,
    TEXT_EMBEDS,
    VISION,
    WEIGHTS,
    check_inputs,
    check_shapes,
    embeds_of,
    scale_and_bias,
    scores_graph,
)
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

MOST_TEXTS = 1024  # whose results are kept


class ZeroShotImageClassificationPipeline(ImagePipeline):
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
    TOKENIZER = True
    STEMS = (("model", VISION),)
    OPTIONAL = (TEXT,)
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

    def __init__(self, model: Any, tokenizer: Any = None, **options: Any) -> None:
        self._texts: dict[str, list[Any]] = {}  # what a graph computed of a text
        self._scores: InferenceSession | None = None
        super().__init__(model, tokenizer, **options)

    @property
    def STEM(self) -> str:  # type: ignore[override]  # noqa: N802
        """The graph that takes the picture."""
        names = self.sessions if self.files is None else self.files.graphs
        return VISION if VISION in names else "model"

    def check(self, options: Mapping[str, Any]) -> None:
        template = options["hypothesis_template"]
        if not isinstance(template, str) or "{}" not in template:
            raise InputError("it is not a text with {}", "hypothesis_template", "Add {}.")
        if options["candidate_labels"] is not None:
            candidate_labels(options["candidate_labels"])

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        labels = candidate_labels(options["candidate_labels"])
        texts = [options["hypothesis_template"].replace("{}", label) for label in labels]
        if self.files is not None and self.files.package is not None:
            logits = self._packaged(self.picture(given), texts)
        elif self.STEM == VISION:
            logits = self._separate(self.picture(given), texts)
        else:
            name = self.need_output(self.STEM, LOGITS)
            rows = [candidate_ids(self.config, self.tokenizer, text) for text in texts]
            feeds = self._padded(rows, max(map(len, rows)))
            (found,) = self.forward(self.picture(given), name, feeds=feeds)
            logits = list(Plane(found).numbers)
        scores = sigmoid(logits) if is_padded(self.config) else softmax(logits)
        order = sorted(range(len(labels)), key=lambda i: -scores[i])
        return [{"score": scores[i], "label": labels[i]} for i in order]

    def _packaged(self, picture: Picture, texts: Sequence[str]) -> list[float]:
        """The logits of each text, which the programs of a package read one by one."""
        text, scores = self.session("text"), self.session("scores")
        names = [*self.session(self.STEM).outputs]
        seen = dict(zip(names, self.forward(picture, *names)))
        found: list[float] = []
        for one in texts:
            read = self._read(one, "text", [*text.outputs])
            both = {**seen, **dict(zip(text.outputs, read))}
            (logits,) = scores.run(None, {name: both[name] for name in scores.inputs})
            found += Plane(logits).numbers
        return found

    def _separate(self, picture: Picture, texts: Sequence[str]) -> list[float]:
        """The logits of each text, of a model in two files."""
        if self._scores is None:
            check_inputs(self.session(VISION).inputs, self.session(TEXT).inputs)
            weights = os.path.join(self.files.root, WEIGHTS) if self.files is not None else ""
            source = FileSource(weights) if os.path.isfile(weights) else None
            graph = scores_graph(*scale_and_bias(self.config, source))
            self._scores = InferenceSession(graph, engine=self.engine)
        image = embeds_of(self.session(VISION).outputs, IMAGE_EMBEDS, self.config)
        name = embeds_of(self.session(TEXT).outputs, TEXT_EMBEDS, self.config)
        (seen,) = self.forward(picture, image)
        rows = [self._read(text, TEXT, [name])[0] for text in texts]
        for row in rows:
            check_shapes(seen.shape, row.shape)
        both = {IMAGE_EMBEDS: _floats([seen]), TEXT_EMBEDS: _floats(rows)}
        (logits,) = self._scores.run(None, both)
        return list(Plane(logits).numbers)

    def _read(self, text: str, stem: str, outputs: list[str]) -> list[Any]:
        """What a graph computes of a text, which is kept for the next pictures."""
        found = self._texts.get(text)
        if found is None:
            session, ids = self.session(stem), candidate_ids(self.config, self.tokenizer, text)
            size = len(ids) if stem == TEXT else session.size_for("input_ids", 1, len(ids))
            feeds = self._padded([ids], size)
            missing = [name for name in session.inputs if name not in feeds]
            if missing:
                raise InputError(
                    f"it has inputs that are not known: {', '.join(missing)[:200]}",
                    stem,
                    "Give a model of this task.",
                )
            found = session.run(outputs, {name: feeds[name] for name in session.inputs})
            if len(self._texts) >= MOST_TEXTS:
                self._texts.clear()
            self._texts[text] = found
        return found

    def _padded(self, rows: Sequence[list[int]], width: int) -> dict[str, Any]:
        """The texts, padded to one length, as inputs of the graph."""
        if is_padded(self.config):
            width = longest_candidate(self.config)
        pad = padding(self.config, self.tokenizer)
        return {
            "input_ids": [row + [pad] * (width - len(row)) for row in rows],
            "attention_mask": [[1] * len(row) + [0] * (width - len(row)) for row in rows],
            "position_ids": [[*range(width)] for _ in rows],
            "token_type_ids": [[0] * width for _ in rows],
        }

    def close(self) -> None:
        with self.lock:
            if self._scores is not None:
                self._scores.free()
                self._scores = None
            self._texts.clear()
        super().close()


def _floats(rows: Sequence[Any]) -> Array:
    """Vectors of [1, size] of any type of float as float32 [rows, size]."""
    data = b"".join(pack(FLOAT, Plane(row).numbers) for row in rows)
    return Array((len(rows), rows[0].shape[1]), "float32", data)

"""What zero-shot classification of pictures and of sounds shares: any labels, whose texts a model
compares with the input.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ....compiler.arrays import Array
from ....compiler.declare.dtypes import FLOAT, pack
from ....compiler.onnx import FileSource
from ....compiler.task_package.towers import (
    TEXT,
    TEXT_EMBEDS,
    WEIGHTS,
    Compared,
    check_inputs,
    check_shapes,
    embeds_of,
    scale_and_bias,
    scores_graph,
)
from ....errors import InputError
from ....logic.tasks.candidates import (
    MAX_TEXTS,
    candidate_ids,
    candidate_labels,
    candidates,
    compared,
    hypothesis,
    is_padded,
    longest_candidate,
    padding_of,
)
from ....logic.tasks.inputs import tokens_fed
from ...session import InferenceSession
from ..base import Pipeline
from ..post.plane import Plane

__all__ = ["CandidatesPipeline"]


class CandidatesPipeline(Pipeline):
    """Classifies by any labels: pipe(input, candidate_labels=[...]). A subclass says what is
    compared, and implements `outputs_of`.
    """

    TOKENIZER = True
    OPTIONAL: ClassVar[Sequence[str]] = (TEXT,)
    COMPARED: ClassVar[Compared]

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

    def outputs_of(self, given: Any, names: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        """Outputs of the graph `perceiver` for a picture or sound and further inputs."""
        raise NotImplementedError

    @property
    def perceiver(self) -> str:
        """The graph that takes the picture or sound."""
        names = self.sessions if self.files is None else self.files.graphs
        return self.COMPARED.stem if self.COMPARED.stem in names else "model"

    def check(self, options: Mapping[str, Any]) -> None:
        hypothesis(options, self.task)
        if options["candidate_labels"] is not None:
            candidate_labels(options["candidate_labels"])

    def one(self, given: Any, options: dict[str, Any]) -> list[Any]:
        found = candidates(options, self.task)
        texts = found.texts
        if self.files is not None and self.files.package is not None:
            logits = self._packaged(given, texts)
        elif self.perceiver != "model":
            logits = self._separate(given, texts)
        else:
            name = self.need_output(self.perceiver, self.COMPARED.logits)
            rows = [self._ids(text) for text in texts]
            (values,) = self.outputs_of(given, [name], self._padded(rows, max(map(len, rows))))
            logits = list(Plane(values).numbers)
        return compared(self.config, found.labels, logits)

    def _ids(self, text: str) -> list[int]:
        """The tokens of a text, without padding. Raises InputError: there are too many."""
        ids = self.tokenizer.encode(text)
        return candidate_ids(self.config, text, ids, longest_candidate(self.config))

    @property
    def _padding(self) -> int:
        """The token that fills up texts."""
        token = (getattr(self.tokenizer, "config", None) or {}).get("pad_token")
        name = token.get("content") if isinstance(token, Mapping) else token
        own = self.tokenizer.token_to_id(name) if isinstance(name, str) else None
        return padding_of(self.config, own, getattr(self.tokenizer, "eos_token_id", None))

    def _packaged(self, given: Any, texts: Sequence[str]) -> list[float]:
        """The logits of each text, which the programs of a package read one by one."""
        text, scores = self.session("text"), self.session("scores")
        names = [*self.session(self.perceiver).outputs]
        seen = dict(zip(names, self.outputs_of(given, names, {})))
        found: list[float] = []
        for one in texts:
            read = self._read(one, "text", [*text.outputs])
            both = {**seen, **dict(zip(text.outputs, read))}
            _check_fed(scores.inputs, both, "scores")
            logits, *_ = scores.run(None, {name: both[name] for name in scores.inputs})
            found += Plane(logits).numbers
        return found

    def _separate(self, given: Any, texts: Sequence[str]) -> list[float]:
        """The logits of each text, of a model in two files."""
        of, other, text = self.COMPARED, self.session(self.perceiver), self.session(TEXT)
        if self._scores is None:
            check_inputs(of, other.inputs, text.inputs)
            weights = os.path.join(self.files.root, WEIGHTS) if self.files is not None else ""
            source = FileSource(weights) if os.path.isfile(weights) else None
            graph = scores_graph(of, *scale_and_bias(of, self.config, source))
            self._scores = InferenceSession(graph, engine=self.engine)
        embeds = embeds_of(other.outputs, of.embeds, of.stem, self.config)
        name = embeds_of(text.outputs, TEXT_EMBEDS, TEXT, self.config)
        (seen,) = self.outputs_of(given, [embeds], {})
        rows = [self._read(text, TEXT, [name])[0] for text in texts]
        for row in rows:
            check_shapes(of, seen.shape, row.shape)
        both = {of.embeds: _floats([seen]), TEXT_EMBEDS: _floats(rows)}
        (logits,) = self._scores.run(None, both)
        return list(Plane(logits).numbers)

    def _read(self, text: str, stem: str, outputs: list[str]) -> list[Any]:
        """What a graph computes of a text, which is kept for the next inputs."""
        found = self._texts.get(text)
        if found is None:
            session, ids = self.session(stem), self._ids(text)
            sized = stem != TEXT and "input_ids" in session.inputs  # of a package
            size = session.size_for("input_ids", 1, len(ids)) if sized else len(ids)
            feeds = self._padded([ids], size)
            _check_fed(session.inputs, feeds, stem)
            found = session.run(outputs, {name: feeds[name] for name in session.inputs})
            if len(self._texts) >= MAX_TEXTS:
                self._texts.clear()
            self._texts[text] = found
        return found

    def _padded(self, rows: Sequence[list[int]], width: int) -> dict[str, Any]:
        """The texts, padded to one length, as inputs of the graph."""
        if is_padded(self.config):
            width = longest_candidate(self.config)
        pad = self._padding
        names = ("input_ids", "attention_mask", "position_ids", "token_type_ids")
        return {name: [tokens_fed(name, row, [], width, pad, 0) for row in rows] for name in names}

    def close(self) -> None:
        with self.lock:
            if self._scores is not None:
                self._scores.free()
                self._scores = None
            self._texts.clear()
        super().close()


def _check_fed(inputs: Iterable[str], feeds: Container[str], stem: str) -> None:
    """InputError if a graph has inputs that nothing is known for."""
    missing = [name for name in inputs if name not in feeds]
    if missing:
        raise InputError(
            f"it has inputs that are not known: {', '.join(missing)[:200]}",
            stem,
            "Give a model of this task.",
        )


def _floats(rows: Sequence[Any]) -> Array:
    """Vectors of [1, size] of any type of float as float32 [rows, size]."""
    data = b"".join(pack(FLOAT, Plane(row).numbers) for row in rows)
    return Array((len(rows), rows[0].shape[1]), "float32", data)

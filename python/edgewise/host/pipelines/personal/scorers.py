"""Scores of features: of a trained head, or of the nearest examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array, as_input
from ....compiler.declare.dtypes import FLOAT, unpack
from ....compiler.heads.examples import Examples
from ....compiler.ir import Graph, Info, Node, Tensor
from ....errors import InputError
from ....logic.post.embeddings import normalized
from ...heads.fit import Head
from ...session import InferenceSession
from ..vectors import VectorIndex

if TYPE_CHECKING:
    from ...engine import Engine


class Linear:
    """The logits of a head.

    Args:
        head: the head.
        engine: the Engine to use; by default that of the process.
    """

    def __init__(self, head: Head, engine: Engine | None = None) -> None:
        count = len(head.labels)
        self.size = len(head.weight) // 4 // count
        graph = Graph(
            "head",
            [Node("Gemm", ["x", "weight", "bias"], ["logits"])],
            [Info("x", FLOAT, [1, self.size])],
            [Info("logits", FLOAT, [1, count])],
            {
                "weight": Tensor("weight", FLOAT, (self.size, count), data=head.weight),
                "bias": Tensor("bias", FLOAT, (count,), data=head.bias),
            },
            opsets={"": 17},
            ir_version=9,
        )
        self.session = InferenceSession(graph, engine=engine)

    def __call__(self, features: bytes) -> list[float]:
        """The logits of features, float32 [size]."""
        check_size(features, self.size)
        (logits,) = self.session.run(["logits"], {"x": Array((1, self.size), "float32", features)})
        code, shape, data = as_input(logits, "logits")
        return unpack(code, data, shape[-1])

    def close(self) -> None:
        """Frees the engine's memory."""
        self.session.free()


class Nearest:
    """The share of each label among the examples with the greatest cosines, weighted by them.

    Args:
        examples: the examples.
        neighbors: how many examples count.
        engine: the Engine to use; by default that of the process.
    """

    def __init__(self, examples: Examples, neighbors: int, engine: Engine | None = None) -> None:
        self.size, self.neighbors = examples.size, neighbors
        self.classes, self.count = list(examples.classes), len(examples.labels)
        rows = [normalized(unpack(FLOAT, examples.row(i), self.size)) for i in range(len(examples))]
        self.index = VectorIndex(rows, engine=engine)

    def __call__(self, features: bytes) -> list[float]:
        """The scores of features, float32 [size]: from 0 to 1, in the order of the labels."""
        check_size(features, self.size)
        query = normalized(unpack(FLOAT, features, self.size))
        (found,) = self.index.search([query], self.neighbors)
        scores = [0.0] * self.count
        for near in found:
            scores[self.classes[near["corpus_id"]]] += max(near["score"], 0.0)
        total = sum(scores)
        return [s / total for s in scores] if total else scores

    def close(self) -> None:
        """Frees the engine's memory."""
        self.index.close()


def check_size(features: bytes, size: int) -> None:
    """Raises InputError unless features have a size."""
    if len(features) != 4 * size:
        raise InputError(
            f"they have {len(features) // 4} numbers, those of the examples {size}",
            "features",
            "Use the head with the model that it was made with.",
        )


Scorer = Any

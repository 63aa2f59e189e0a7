"""Contrastive training of embeddings."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InputError
from ..bind.autodiff import Gradients
from ..declare.dtypes import FLOAT, INT64
from ..ir import Value
from .losses import Targets, Values, cross_entropy

POOLING_MASK = "pooling_mask"


@dataclass
class MultipleNegativesRankingLoss:
    """sentence-transformers' loss of this name (InfoNCE): each anchor is told from the positives of
    the other anchors, and from all negatives, by cosines.

    A batch has the anchors first, then their positives, then their negatives in the same order.

    Args:
        negatives: of each anchor.
        scale: of the cosines: the inverse of the temperature.
        output: name of the output: states [rows, tokens, size], or embeddings [rows, size].
            Default: the first.
        pooling: of states: "mean", or "cls", the first token's.

    For "mean" `pooling_mask` is fed: float32 [rows, tokens], 0 for padding.
    """

    negatives: int = 0
    scale: float = 20.0
    output: str | None = None
    pooling: str = "mean"

    def _states(self, outputs: Values) -> Value:
        name = next(iter(outputs)) if self.output is None else self.output
        if name not in outputs:
            raise InputError(
                f"the model has no output '{name}'",
                "loss",
                f"Its outputs are {', '.join(outputs)}.",
            )
        return outputs[name]

    def inputs(self, outputs: Values) -> Targets:
        """{"pooling_mask"}, if it pools by it.

        Raises:
            InputError: a field is out of range, or the rows are not those of pairs.
        """
        x = self._states(outputs)
        if self.pooling not in ("mean", "cls"):
            raise InputError(f"{self.pooling!r} is no pooling", "pooling", "Use 'mean' or 'cls'.")
        if type(self.negatives) is not int or self.negatives < 0:
            raise InputError(f"{self.negatives!r} is not a number", "negatives", "Give 0 or more.")
        if x.rank not in (2, 3):
            raise InputError(
                f"{x} is neither [rows, tokens, size] nor [rows, size]",
                "loss MultipleNegativesRankingLoss",
                "Name the output with the states or the embeddings.",
            )
        rows, texts = x.shape[0], 2 + self.negatives
        if rows % texts or rows < 2 * texts:
            raise InputError(
                f"{rows} rows are not those of two or more anchors with {texts - 1} others each",
                "batch_size",
                f"Give a multiple of {texts}, such as {16 * texts}.",
            )
        pools = x.rank == 3 and self.pooling == "mean"
        return {POOLING_MASK: (FLOAT, x.shape[:2])} if pools else {}

    def build(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """The scalar."""
        x = self._pooled(graph, self._states(outputs), fed)
        squares = graph.op("ReduceSum", graph.mul(x, x), graph.ints([1]), keepdims=1)
        length = graph.op("Sqrt", graph.op("Max", squares, graph.number(1e-24)))
        x = graph.div(x, length)
        rows = x.shape[0]
        count = rows // (2 + self.negatives)
        anchors = self._part(graph, x, 0, count)
        others = self._part(graph, x, count, rows)
        scores = graph.scale(graph.op("MatMul", anchors, graph.swap(others)), self.scale)
        return cross_entropy(graph, scores, graph.constant(INT64, [count], list(range(count))))

    def _part(self, graph: Gradients, x: Value, first: int, end: int) -> Value:
        return graph.op("Slice", x, graph.ints([first]), graph.ints([end]), graph.ints([0]))

    def _pooled(self, graph: Gradients, x: Value, fed: Values) -> Value:
        """Embeddings [rows, size]."""
        if x.rank == 2:
            return x
        rows, tokens, size = x.shape
        if self.pooling == "cls":
            first = graph.op("Slice", x, graph.ints([0]), graph.ints([1]), graph.ints([1]))
            return graph.reshape(first, [rows, size])
        mask = fed[POOLING_MASK]
        kept = graph.mul(x, graph.reshape(mask, [rows, tokens, 1]))
        total = graph.op("ReduceSum", kept, graph.ints([1]), keepdims=0)
        count = graph.op("ReduceSum", mask, graph.ints([1]), keepdims=1)
        return graph.div(total, graph.op("Max", count, graph.number(1e-9)))


__all__ = ["POOLING_MASK", "MultipleNegativesRankingLoss"]

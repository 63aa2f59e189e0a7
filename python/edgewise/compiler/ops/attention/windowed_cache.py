"""The cache of a GroupQueryAttention that holds a window of the last positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64
from .attention_kernel import masking

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Dim, Value


class Window:
    """A cache of the last positions, `sliding_window_cache`: after `length` tokens its first rows
    hold as many of the latest positions as `_resident` says.

    Args:
        rows: of the cache.
        tokens: new ones.
        window: how many positions a query sees, with its own.
        starts, ends: tokens before and after the run, int64 [batch].
    """

    def __init__(
        self, graph: Binder, rows: Dim, tokens: Dim, window: int, starts: Value, ends: Value
    ) -> None:
        self.graph, self.rows, self.tokens, self.window = graph, rows, tokens, window
        self.batch = starts.shape[0]
        self.starts, self.ends = (graph.reshape(v, [self.batch, 1]) for v in (starts, ends))
        self.before = self._resident(self.starts)
        self.after = self._resident(self.ends)

    def _number(self, n: Dim) -> Value:
        return self.graph.constant(INT64, [], [n])

    def _count(self, n: Dim) -> Value:
        return self.graph.op("Range", *(self._number(i) for i in (0, n, 1)))

    def _resident(self, lengths: Value) -> Value:
        """How many positions stay: eviction makes room for `rows - window + 1` at once."""
        op, step = self.graph.op, self.rows - self.window + 1
        over = op("Sub", lengths, self._number(self.rows))
        times = op("Div", op("Add", over, self._number(step - 1)), self._number(step))
        kept = op("Sub", lengths, op("Mul", times, self._number(step)))
        return op("Where", op("Greater", over, self._number(0)), kept, lengths)

    def kept(self, whole: Value) -> Value:
        """The rows of `present`.

        Args:
            whole: past and new rows, [batch, heads, rows + tokens, dim].
        """
        op = self.graph.op
        position = op("Add", op("Sub", self.ends, self.after), self._count(self.rows))
        first = op("Sub", self.starts, self.before)  # position of the first row of the past
        old = op("Sub", position, first)
        new = op("Add", op("Sub", position, self.starts), self._number(self.rows))
        row = op("Where", op("Less", position, self.starts), old, new)
        most = self._number(self.rows + self.tokens - 1)
        row = op("Min", op("Max", row, self._number(0)), most)  # rows after the last do not matter
        by_row = op("Transpose", whole, perm=[0, 2, 1, 3])
        index = self.graph.reshape(row, [self.batch, self.rows, 1])
        return op("Transpose", op("GatherND", by_row, index, batch_dims=1), perm=[0, 2, 1, 3])

    def mask(self, node: BoundNode, bias: Value | None, heads: int) -> Value:
        """What each query sees of the past and the new rows: a mask of the scores, [batch, 1 or
        heads, tokens, rows + tokens].
        """
        op, graph, tokens = self.graph.op, self.graph, self.tokens
        at = graph.reshape(self._count(tokens), [tokens, 1])
        old, before = self._count(self.rows), graph.reshape(self.before, [self.batch, 1, 1])
        near = op("Greater", op("Add", op("Sub", old, before), self._number(self.window)), at)
        seen_old = op("And", op("Less", old, before), near)
        new = self._count(tokens)
        near = op("Greater", op("Add", new, self._number(self.window)), at)
        seen_new = op("And", op("LessOrEqual", new, at), near)
        seen_new = op("Expand", seen_new, graph.ints([self.batch, tokens, tokens]))
        seen = op("Concat", seen_old, seen_new, axis=2)
        shape = [self.batch, 1, tokens, self.rows + tokens]
        seen = graph.reshape(seen, shape)
        if bias is None:
            return seen
        masking(node, 10, "attention_bias", self.batch, heads, tokens, bias.shape[-1])
        while bias.rank < 4:
            bias = op("Unsqueeze", bias, graph.ints([0]))
        column = op(
            "Concat",
            op("Add", op("Sub", self.starts, self.before), old),
            op("Add", self.starts, new),
            axis=1,
        )
        most = self._number(bias.shape[3] - 1)
        column = op("Min", op("Max", column, self._number(0)), most)
        column = graph.reshape(column, [self.batch, 1, 1, shape[3]])
        index = op("Expand", column, graph.ints([self.batch, bias.shape[1], *shape[2:]]))
        bias = op("Expand", bias, graph.ints([self.batch, bias.shape[1], tokens, bias.shape[3]]))
        bias = op("GatherElements", bias, index, axis=3)
        low = graph.constant(FLOAT, [], [float("-inf")])
        return op("Where", seen, bias, low)

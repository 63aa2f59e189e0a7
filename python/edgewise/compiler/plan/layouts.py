"""Views in the layouts that kernels take, copied only where strides cannot express them."""

from __future__ import annotations

from ..declare.dtypes import BOOL, FLOAT
from ..declare.symbolic import Sym, extent, product
from .steps import StepWriter
from .view import Dim, View


class Layouts(StepWriter):
    """Turns views into the layouts of kernels' operands."""

    def flat(self, v: View) -> View:
        """The tensor as one dense dimension.

        Raises:
            NotStatic: a dimension that depends on a register leaves gaps.
        """
        return self.reshaped(self.contiguous(v), [product(v.shape)])

    def dense(self, v: View) -> tuple[View, list[int]]:
        """(view, order): the tensor without gaps, its dimensions in the order in which they lie in
        memory, which need not be their own.
        """
        order = list(range(len(v.shape)))
        if not v.plain and all(isinstance(d, int) for d in [*v.shape, *v.strides]):
            order.sort(key=lambda i: (-abs(v.strides[i]), i))
            if (t := v.transpose(order)).plain:
                return t, order
            order.sort()
        return self.contiguous(v), order

    def inner_contiguous(self, v: View) -> View:
        """The tensor with a contiguous last dimension and no negative strides."""
        if (v.strides[-1] == 1 or v.shape[-1] == 1) and min(v.strides) >= 0:
            return v
        return self.contiguous(v)

    def as_rows(self, v: View, cols: Dim | None = None) -> View:
        """[rows, cols] with contiguous columns.

        Args:
            v: the tensor.
            cols: the product of its last dimensions; default: the last dimension.
        """
        if cols is None:
            cols = v.shape[-1] if v.shape else 1
        if isinstance(cols, Sym):
            rows = v.shape[:-1]
        else:
            i, n = len(v.shape), 1
            while i and n != cols:
                i -= 1
                n = n * v.shape[i]
            while i and v.shape[i - 1] == 1 and n == cols and cols == 1 and i > len(v.shape) - 1:
                i -= 1
            rows = v.shape[:i]
        r = v.reshape([product(rows), cols])
        if r is None or (r.strides[1] != 1 and r.shape[1] != 1) or r.strides[0] < 0:
            r = self.reshaped(self.contiguous(v), [product(rows), cols])
        # The stride of one row is never used, but contracts compare it with the width.
        if r.shape[0] == 1:
            r.strides[0] = extent(cols)
        if r.shape[1] == 1:
            r.strides[1] = 1
        return r

    def rows_from(self, v: View, axis: int) -> View:
        """The tensor with contiguous dimensions after `axis`, and one stride for all before it."""
        if (
            v.plain_from(axis + 1)
            and min(v.strides, default=0) >= 0
            and (axis == 0 or axis == 1 or v.plain_from(0))
        ):
            return v
        return self.contiguous(v)

    # ---- masks of attention
    def float_mask(self, m: View) -> View:
        """A bool mask as the number that is added: 0 where true, -inf where false."""
        if m.dtype == FLOAT:
            return m
        t = self.temp(FLOAT, m.shape)
        zero, low = (self.scalar(FLOAT, x).broadcast(m.shape) for x in (0.0, float("-inf")))
        self.nd(
            "where",
            m.shape,
            {"condition": m, "a": zero, "b": low, "y": t},
            {"cs": "condition", "as": "a", "bs": "b", "ys": "y"},
            size=4,
        )
        return t

    def add_masks(self, a: View, b: View) -> View:
        """Two attention masks as one: `and` of bools, else the sum of what is added to scores."""
        rank = max(len(a.shape), len(b.shape))
        shapes = [[1] * (rank - len(v.shape)) + v.shape for v in (a, b)]
        shape = [y if x == 1 else x for x, y in zip(*shapes)]
        if a.dtype == b.dtype == BOOL:
            t = self.temp(BOOL, shape)
            self.emit_binary("and", a, b, t, BOOL)
        else:
            t = self.temp(FLOAT, shape)
            self.emit_binary("add", self.float_mask(a), self.float_mask(b), t, FLOAT)
        return t

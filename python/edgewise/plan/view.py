"""Where a tensor lies: a buffer, an offset and strides.

Transposes, slices, splits and broadcasts are views and cost no step.
"""

from __future__ import annotations

from ..declare.dtypes import BITS, bytes_for, size_of
from ..declare.symbolic import NotStatic, Sym, extent, most, product, strides_of


class Buffer:
    """Memory of one tensor or several views of it. kind: "arena", "const" or "slot"."""

    __slots__ = (
        "kind",
        "nbytes",
        "index",
        "name",
        "first",
        "last",
        "offset",
        "init",
        "key",
        "owner",
    )

    def __init__(self, kind, nbytes, name="", init=False):
        self.kind, self.nbytes, self.name, self.init = kind, nbytes, name, init
        self.index, self.offset, self.first, self.last = -1, 0, None, None
        self.key = None
        self.owner = None  # the buffer whose memory this one takes over (in-place)


class View:
    """A tensor in a Buffer. offset and strides: in elements (for packed elements of less than a
    byte, too); shape: ints and Syms, offset and strides may be Syms as well. Methods give new
    views; none copies.
    """

    __slots__ = ("buffer", "offset", "shape", "strides", "dtype")

    def __init__(self, buffer, offset, shape, strides, dtype):
        self.buffer, self.offset, self.shape, self.strides, self.dtype = (
            buffer,
            offset,
            list(shape),
            list(strides),
            dtype,
        )

    def _with(self, shape, strides, offset=None):
        return View(
            self.buffer, self.offset if offset is None else offset, shape, strides, self.dtype
        )

    def as_type(self, dtype):
        """The same bits as elements of another type of the same size."""
        return View(self.buffer, self.offset, self.shape, self.strides, dtype)

    @property
    def plain(self):
        """Whether it is laid out as a contiguous tensor of its (largest) shape."""
        return self.plain_from(0)

    def plain_from(self, axis):
        """Whether the dimensions from `axis` on are laid out as a contiguous tensor."""
        want = 1
        for d, s in zip(reversed(self.shape[axis:]), reversed(self.strides[axis:])):
            if d != 1:
                if s != want:
                    return False
                want = want * extent(d)
        return True

    def byte_offset(self):
        """Its offset in bytes; an int or Sym."""
        if isinstance(self.offset, int) and self.offset == 0:
            return 0
        return (
            self.offset * BITS[self.dtype] // 8
            if self.dtype in BITS
            else self.offset * size_of(self.dtype)
        )

    def nbytes(self):
        """Bytes of a contiguous tensor of its (largest) shape."""
        return bytes_for(self.dtype, product([most(d) for d in self.shape]))

    def transpose(self, perm):
        """Dimension i of the new view is dimension perm[i] of this one."""
        return self._with([self.shape[p] for p in perm], [self.strides[p] for p in perm])

    def slice(self, axis, start, length, step=1):
        """`length` elements from `start` on along an axis, each `step` behind the one before
        (negative: backwards).
        """
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[axis] if most(length) else self.offset
        shape[axis], strides[axis] = (
            length,
            (abs(strides[axis]) if length == 1 else strides[axis] * step),
        )  # a stride that is never used is not negative
        return self._with(shape, strides, offset)

    def drop(self, axis):
        """Without an axis: its index 0."""
        return self._with(
            self.shape[:axis] + self.shape[axis + 1 :],
            self.strides[:axis] + self.strides[axis + 1 :],
        )

    def drop_leading(self, count):
        """Without the first `count` dimensions: their index 0."""
        return self._with(self.shape[count:], self.strides[count:])

    def unsqueeze(self, axis):
        """A dimension of 1 more, before `axis`."""
        return self._with(
            self.shape[:axis] + [1] + self.shape[axis:],
            self.strides[:axis] + [0] + self.strides[axis:],
        )

    def unsqueeze_each(self):
        """A dimension of 1 more before each one."""
        return self._with(
            [d for s in self.shape for d in (1, s)], [s for t in self.strides for s in (0, t)]
        )

    def with_batch(self, dims, strides, shift):
        """Its last two dimensions behind others, `shift` elements further on: one matrix of many,
        or many.
        """
        return self._with(
            list(dims) + self.shape[-2:], list(strides) + self.strides[-2:], self.offset + shift
        )

    def broadcast(self, shape):
        """As a larger shape, by ONNX's rule: what is repeated has stride 0."""
        pad = len(shape) - len(self.shape)
        strides = [0] * pad + [
            0 if d == 1 and o != 1 else s for d, s, o in zip(self.shape, self.strides, shape[pad:])
        ]
        return self._with(shape, strides)

    def extended(self, axis, length):
        """A cache seen with more of its room along an axis."""
        shape = list(self.shape)
        shape[axis] = length
        return self._with(shape, self.strides)

    def reshape(self, shape):
        """The same memory with other dimensions, or None where strides can't express it."""
        if any(d == 0 for d in shape if not isinstance(d, Sym)):
            return self._with(shape, strides_of(shape))
        old = [(d, s) for d, s in zip(self.shape, self.strides) if d != 1]
        new = [d for d in shape if d != 1]
        strides, i, j = [], 0, 0
        while i < len(old) and j < len(new):
            a, b, oi, nj = old[i][0], new[j], i + 1, j + 1
            while a != b:
                if most(a) < most(b):
                    if oi == len(old):
                        return None
                    a, oi = a * old[oi][0], oi + 1
                else:
                    if nj == len(new) or most(a) == most(b):
                        return None
                    b, nj = b * new[nj], nj + 1
            for k in range(
                i, oi - 1
            ):  # old dimensions that become one must lie one behind the other
                if _loose(old[k + 1][0]) or old[k][1] != old[k + 1][1] * old[k + 1][0]:
                    return None
            group, stride = [], old[oi - 1][1]
            for k in range(nj - 1, j - 1, -1):
                group.append(stride)
                if k > j:
                    if _loose(new[k]):
                        return None
                    stride = stride * new[k]
            strides += reversed(group)
            i, j = oi, nj
        if i < len(old) or j < len(new):
            return None
        it = iter(strides)
        return self._with(shape, [0 if d == 1 else next(it) for d in shape])


def _loose(d):
    """Whether a dimension leaves gaps behind its current value."""
    return isinstance(d, Sym) and not d.packed


def merge_dims(shape, strides_list):
    """Drops dimensions of 1 and merges neighbours that lie one behind the other in all operands."""
    dims, out = [], [[] for _ in strides_list]
    for i, d in enumerate(shape):
        if d == 1:
            continue
        if (
            dims
            and not isinstance(d, Sym)
            and all(o[-1] == s[i] * d for o, s in zip(out, strides_list))
        ):
            dims[-1] = dims[-1] * d
            for o, s in zip(out, strides_list):
                o[-1] = s[i]
        else:
            dims.append(d)
            for o, s in zip(out, strides_list):
                o.append(s[i])
    return dims, out


__all__ = ["Buffer", "View", "merge_dims", "NotStatic"]

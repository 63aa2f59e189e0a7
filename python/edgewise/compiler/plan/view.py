"""Views of tensors: a buffer, an offset and strides.

Transposes, slices, splits and broadcasts are views; they need no step of the plan.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ..declare.dtypes import BITS, bytes_for, size_of
from ..declare.symbolic import Sym, extent, most, product, strides_of
from ..ir import Tensor

# A dimension, offset or stride, in elements
Dim = int | Sym


class Storage:
    """Memory of a tensor, or of several views of it.

    Attributes:
        kind: "arena", "const" (the plan's constant section) or "slot".
        nbytes: size in bytes.
        name: name of the slot.
        init: whether only steps for constants write it; proven by once.split_steps.
        index: number of the slot, also of the slot that its arena is; -1: none.
        offset: offset in the arena in bytes; 0 for slots.
        first, last: the first and the last step that use it; None before steps are known.
        tensor: the constant of the model in a weight slot.
        owner: the buffer whose memory an in-place step reuses for this one, or None.
        bits: of the rows that it holds, 8 or 4 (the kernel store_rows); 0: it holds elements.
    """

    __slots__ = (
        "kind",
        "nbytes",
        "index",
        "name",
        "first",
        "last",
        "offset",
        "init",
        "tensor",
        "owner",
        "bits",
    )

    def __init__(self, kind: str, nbytes: int, name: str = "", init: bool = False) -> None:
        self.kind, self.nbytes, self.name, self.init = kind, nbytes, name, init
        self.index = -1
        self.offset = 0
        self.first: int | None = None
        self.last: int | None = None
        self.tensor: Tensor | None = None
        self.owner: Storage | None = None
        self.bits = 0


class View:
    """A tensor in a Storage. Its methods give new views; none copies.

    Attributes:
        buffer: the memory.
        offset: offset of the first element, in elements, also for elements smaller than a byte.
        shape: dimensions.
        strides: in elements.
        dtype: ONNX code.
    """

    __slots__ = ("buffer", "offset", "shape", "strides", "dtype")

    def __init__(
        self, buffer: Storage, offset: Dim, shape: Sequence[Dim], strides: Sequence[Any], dtype: int
    ) -> None:
        self.buffer = buffer
        self.offset: Any = offset
        self.shape: list[Any] = list(shape)
        self.strides: list[Any] = list(strides)
        self.dtype = dtype

    @property
    def power(self) -> int | None:
        """k of a weight of float32 that is stored as float16 numbers of w * 2^k (Tensor.power);
        None of everything else.
        """
        return self.buffer.tensor.power if self.buffer.tensor is not None else None

    @property
    def bits(self) -> int:
        """Of the rows that it shows in place of float32 numbers (Storage.bits); 0: none."""
        return self.buffer.bits

    def _with(
        self, shape: Sequence[Dim], strides: Sequence[Any], offset: Dim | None = None
    ) -> View:
        return View(
            self.buffer, self.offset if offset is None else offset, shape, strides, self.dtype
        )

    def as_type(self, dtype: int) -> View:
        """The same bits as elements of another type of the same size."""
        return View(self.buffer, self.offset, self.shape, self.strides, dtype)

    @property
    def layout(self) -> Hashable:
        """Equal for views of the same elements in the same order."""
        return self.buffer, self.offset, tuple(self.shape), tuple(self.strides), self.dtype

    @property
    def plain(self) -> bool:
        """Whether it is contiguous for its maximum shape."""
        return self.plain_from(0)

    def plain_from(self, axis: int) -> bool:
        """Whether the dimensions from `axis` on are contiguous."""
        expected: Dim = 1
        for d, s in zip(reversed(self.shape[axis:]), reversed(self.strides[axis:])):
            if d != 1:
                if s != expected:
                    return False
                expected = expected * extent(d)  # type: ignore[operator]
        return True

    @property
    def has_gaps(self) -> bool:
        """Whether rows are farther apart than they are long, below the maximum of a register."""
        outer = False
        for d in self.shape:
            if outer and isinstance(d, Sym) and not d.packed:
                return True
            outer = outer or d != 1
        return False

    def byte_offset(self) -> Any:
        """The offset in bytes: an int or a Sym."""
        if isinstance(self.offset, int) and self.offset == 0:
            return 0
        return (
            self.offset * BITS[self.dtype] // 8
            if self.dtype in BITS
            else self.offset * size_of(self.dtype)
        )

    def nbytes(self) -> int:
        """Bytes of a contiguous tensor of its maximum shape."""
        return bytes_for(self.dtype, product([most(d) for d in self.shape]))

    def transpose(self, perm: Sequence[int]) -> View:
        """Dimension i of the new view is dimension perm[i] of this one."""
        return self._with([self.shape[p] for p in perm], [self.strides[p] for p in perm])

    def slice(self, axis: int, start: Any, length: Dim, step: int = 1) -> View:
        """`length` elements along an axis: start, start + step, ... (step may be negative)."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[axis] if most(length) else self.offset
        shape[axis] = length
        # A stride that is never used must not be negative.
        strides[axis] = abs(strides[axis]) if length == 1 else strides[axis] * step
        return self._with(shape, strides, offset)

    def drop(self, axis: int) -> View:
        """Index 0 of an axis; the axis is removed."""
        return self._with(
            self.shape[:axis] + self.shape[axis + 1 :],
            self.strides[:axis] + self.strides[axis + 1 :],
        )

    def drop_leading(self, count: int) -> View:
        """Index 0 of each of the first `count` dimensions; they are removed."""
        return self._with(self.shape[count:], self.strides[count:])

    def unsqueeze(self, axis: int) -> View:
        """Inserts a dimension of 1 before `axis`."""
        return self._with(
            self.shape[:axis] + [1] + self.shape[axis:],
            self.strides[:axis] + [0] + self.strides[axis:],
        )

    def unsqueeze_each(self) -> View:
        """Inserts a dimension of 1 before each dimension."""
        return self._with(
            [d for s in self.shape for d in (1, s)], [s for t in self.strides for s in (0, t)]
        )

    def with_batch(self, dims: Sequence[Dim], strides: Sequence[Any], shift: Dim) -> View:
        """Replaces all but the last two dimensions, and adds `shift` elements to the offset."""
        return self._with(
            list(dims) + self.shape[-2:], list(strides) + self.strides[-2:], self.offset + shift
        )

    def broadcast(self, shape: Sequence[Dim]) -> View:
        """Broadcasts to a larger shape by ONNX's rules. Repeated dimensions have stride 0."""
        pad = len(shape) - len(self.shape)
        strides = [0] * pad + [
            0 if d == 1 and o != 1 else s for d, s, o in zip(self.shape, self.strides, shape[pad:])
        ]
        return self._with(shape, strides)

    def extended(self, axis: int, length: Dim) -> View:
        """A view of more of a cache's capacity along an axis."""
        shape = list(self.shape)
        shape[axis] = length
        return self._with(shape, self.strides)

    def reshape(self, shape: Sequence[Dim]) -> Any:
        """The same memory with other dimensions: a View, or None if strides cannot express it.

        The annotation is Any, since most callers know that it is possible.
        """
        if any(d == 0 for d in shape if not isinstance(d, Sym)):
            return self._with(shape, strides_of(shape))
        old = [(d, s) for d, s in zip(self.shape, self.strides) if d != 1]
        new = [d for d in shape if d != 1]
        strides: list[Any] = []
        i = j = 0
        while i < len(old) and j < len(new):
            ends = _equal_groups(old, new, i, j)
            if ends is None:
                return None
            group = _strides_of_group(old[i : ends[0]], new[j : ends[1]])
            if group is None:
                return None
            strides += group
            i, j = ends
        if i < len(old) or j < len(new):
            return None
        it = iter(strides)
        return self._with(shape, [0 if d == 1 else next(it) for d in shape])


def _equal_groups(
    old: list[tuple[Any, Any]], new: list[Any], i: int, j: int
) -> tuple[int, int] | None:
    """The ends of the shortest groups of old dimensions from i and new dimensions from j that have
    the same product; None if there are none.
    """
    a, b, i, j = old[i][0], new[j], i + 1, j + 1
    while a != b:
        if most(a) < most(b):
            if i == len(old):
                return None
            a, i = a * old[i][0], i + 1
        else:
            if j == len(new) or most(a) == most(b):
                return None
            b, j = b * new[j], j + 1
    return i, j


def _strides_of_group(old: list[tuple[Any, Any]], new: list[Any]) -> list[Any] | None:
    """Strides of new dimensions in the memory of old ones (size, stride). None if the old
    dimensions are not contiguous among themselves.
    """
    for (_, stride), (size, inner) in zip(old, old[1:]):
        if _loose(size) or stride != inner * size:
            return None
    out: list[Any] = []
    stride = old[-1][1]
    for k in range(len(new) - 1, -1, -1):
        out.append(stride)
        if k:
            if _loose(new[k]):
                return None
            stride = stride * new[k]
    out.reverse()
    return out


def _loose(d: Dim) -> bool:
    """Whether a dimension has gaps after its current value, since memory is laid out for its
    maximum.
    """
    return isinstance(d, Sym) and not d.packed


def merge_dims(
    shape: Sequence[Dim], strides_list: Sequence[Sequence[Any]]
) -> tuple[list[Any], list[list[Any]]]:
    """Drops dimensions of 1, and merges neighbours that are contiguous in all operands.

    Args:
        shape: shape of the operands.
        strides_list: strides of each operand.

    Returns:
        (shape, strides of each operand)
    """
    dims: list[Any] = []
    out: list[list[Any]] = [[] for _ in strides_list]
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


__all__ = ["Storage", "Dim", "View", "merge_dims"]

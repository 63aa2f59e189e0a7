"""Attention masks: triangles that a kernel needs no numbers for, and masks as what is added."""

from __future__ import annotations

from ..declare.dtypes import BOOL, FLOAT, UINT8, unpack
from ..ir import BoundNode, Value
from .rewrite import Rewriter, number

# What is added to scores, or (condition, what stands where it is false)
Mask = Value | tuple[Value, Value]
LOW = -1e4  # a number below this excludes a key


def causal_past(mask: Mask, q_len: int, kv_len: int) -> int | None:
    """How many more keys than queries the first query may attend to.

    The mask must be a triangle that the model stores (or a part cut out of it), which lets query i
    attend to keys up to i + past. None for all other masks.

    Of several masks none is such a triangle: a key that one excludes by a finite number counts
    where another excludes all others.

    Args:
        mask: the only mask.
        q_len, kv_len: numbers of queries and keys.
    """
    value = mask[0] if isinstance(mask, tuple) else mask
    rows = _rows(value)
    if (
        rows is None
        or [q_len, kv_len] != list(value.shape[-2:])
        or not isinstance(mask, tuple)
        and value.dtype != FLOAT
    ):
        return None
    past = kv_len - q_len
    if past < 0:
        return None
    allowed, excluded = b"\1", b"\0"
    if value.dtype == FLOAT:
        allowed, excluded = bytes(4), rows[0][-4:]
        if q_len > 1 and not unpack(FLOAT, excluded, 1)[0] < LOW:
            return None
    triangle = all(
        row == allowed * (past + i + 1) + excluded * (q_len - 1 - i) for i, row in enumerate(rows)
    )
    return past if triangle else None


def _rows(value: Value) -> list[bytes] | None:
    """The bytes of each row of a constant matrix (with dimensions of 1 before it), if the model
    stores it, or a matrix that it is cut out of.
    """
    n = value.producer
    if n is not None and n.op == "Cast":
        x, kinds = n.inputs[0], (BOOL, UINT8)
        if x.dtype in kinds and value.dtype in kinds:
            return _rows(x)
    if n is not None and n.op == "Slice" and len(n.inputs) >= 4:
        return _sliced_rows(n)
    t = value.tensor
    if (
        t is None
        or value.role == "state"
        or value.rank < 2
        or value.dtype not in (FLOAT, BOOL, UINT8)
        or t.count != value.shape[-2] * value.shape[-1]
        or not t.count
    ):
        return None
    data, length = t.bytes(), t.nbytes // value.shape[-2]
    return [bytes(data[i : i + length]) for i in range(0, len(data), length)]


def _sliced_rows(n: BoundNode) -> list[bytes] | None:
    """_rows of a Slice along one of the last two axes."""
    whole = n.inputs[0]
    starts, ends, axes = (v.numbers for v in n.inputs[1:4])
    steps = n.inputs[4].numbers if n.has(4) else [1]
    if (
        None in (starts, ends, axes, steps)
        or len(starts) != 1
        or list(steps) != [1]
        or not all(isinstance(x, int) for x in (*starts, *ends))
        or (rows := _rows(whole)) is None
    ):
        return None
    axis, length = axes[0] % whole.rank, whole.shape[axes[0]]
    part = slice(*slice(starts[0], ends[0]).indices(length))
    if axis == whole.rank - 2:
        return rows[part]
    if axis == whole.rank - 1:
        size = len(rows[0]) // whole.shape[-1]
        return [row[part.start * size : part.stop * size] for row in rows]
    return None


def added_mask(
    r: Rewriter,
    before: BoundNode,
    mask: Mask,
    made: dict[tuple[int, int, bool], Value],
    alone: bool,
) -> Value:
    """A mask as the number to add. Of Where(condition, scores, low): 0 where the condition is true,
    low elsewhere (low + score rounds to low).

    Float16's lowest number is not low enough for that, which shows in rows that are masked
    entirely: their weights are equal. Where no other mask is added, a number that absorbs every
    score replaces it.

    Args:
        r: the rewriter.
        before: node that the mask is computed in front of.
        mask: the mask.
        made: masks that were made before, by what they were made of.
        alone: whether no other mask is added.
    """
    if not isinstance(mask, tuple):
        return mask
    condition, low = mask
    key = (id(condition), id(low), alone)
    if key not in made:
        zero = Value("zero", FLOAT, [], numbers=[0.0])
        lowest = number(low)
        if alone and lowest is not None and lowest > -1e9:
            low = Value("low", FLOAT, [], numbers=[-1e38])
        made[key] = r.insert(before, "Where", "", [condition, zero, low], FLOAT, condition.shape)
    return made[key]


def as_four_dimensions(
    r: Rewriter, before: BoundNode, mask: Value, batch: int, heads: int
) -> Value | None:
    """A mask of three dimensions, of which the first is batch * heads or 1, with four; None where
    its first dimension is another.
    """
    if mask.shape[0] == batch * heads:
        return r.reshape(before, mask, [batch, heads] + mask.shape[1:])
    if mask.shape[0] == 1:
        return r.reshape(before, mask, [1] + mask.shape)
    return None

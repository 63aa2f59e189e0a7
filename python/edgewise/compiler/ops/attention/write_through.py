"""Lets rotations write to a cache what a copy after them would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...plan.steps import Step
    from ...plan.view import Storage, View


def write_through(steps: Sequence[Step], is_cache: Callable[[Storage], bool]) -> list[Step]:
    """Replaces a rotation whose result is only copied to a cache, and that copy, by one step.

    Args:
        steps: in their order.
        is_cache: whether a buffer is the slot of a cache.

    Returns:
        the steps that are left
    """
    out: list[Step | None] = list(steps)
    users: dict[int, list[int]] = {}
    for i, step in enumerate(steps):
        for _, v in step.bound():
            users.setdefault(id(v.buffer), []).append(i)
    for i, copy in enumerate(steps):
        if copy.kernel.name != "copy":
            continue
        x, y = (copy.operands[copy.kernel.index[name]] for name in "xy")
        if x is None or y is None or x.buffer.kind != "arena" or not is_cache(y.buffer):
            continue
        of = users[id(x.buffer)]
        rope = steps[of[0]]
        place = rope.kernel.index.get("y", -1)
        if len(of) != 2 or rope.kernel.name != "rope" or not _same(rope.operands[place], x):
            continue
        if len(y.shape) != 4 or y.strides[3] != 1 or min(y.strides) < 0:
            continue
        if any(of[0] <= k < i for k in _touching(steps, y.buffer)):
            continue  # who reads the cache meanwhile reads what it was
        strides = {f"y_{n}": stride for n, stride in zip("bhs", y.strides)}
        operands = [y if k == place else v for k, v in enumerate(rope.operands)]
        out[of[0]] = type(rope)(rope.kernel, {**rope.params, **strides}, operands, rope.label)
        out[i] = None
    return [step for step in out if step is not None]


def _same(a: View | None, b: View) -> bool:
    return a is not None and (a.buffer, a.offset, a.shape, a.strides, a.dtype) == (
        b.buffer,
        b.offset,
        b.shape,
        b.strides,
        b.dtype,
    )


def _touching(steps: Sequence[Step], buffer: Storage) -> list[int]:
    """Steps that read or write a slot."""
    slot = (buffer.kind, buffer.index)
    return [
        i
        for i, step in enumerate(steps)
        if any((v.buffer.kind, v.buffer.index) == slot for _, v in step.bound())
    ]

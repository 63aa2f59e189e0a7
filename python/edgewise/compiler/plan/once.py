"""Steps that run once, when the weights are there, and names of what they compute.

Lowerings say which steps they write for constants alone. Here that is proven: such a step runs
again in each run if a register decides a parameter or a place in memory, or if it shares memory
with a step that runs again. What the others compute for the steps of each run is named by its
content: the kernels, their parameters, and what they read. Plans of one model that need the same
content share one slot; other content has another name.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..declare.symbolic import Sym
from ..ir import content_of
from .steps import Step
from .view import Storage, View

DIGITS = 32  # hexadecimal digits of a name: 128 bits


def split_steps(
    written: Sequence[tuple[Step, bool]], is_fixed: Callable[[Storage], bool]
) -> tuple[list[Step], list[Step]]:
    """Splits the steps of a plan.

    Args:
        written: in the order in which they run, each with whether it was written for constants
            alone.
        is_fixed: whether the content of a slot is there before the first run.

    Returns:
        (steps that run once, steps of each run), in this order
    """
    changing: set[Storage] = set()
    runs_once = [constant and not _follows_register(step) for step, constant in written]
    for i, (step, _) in enumerate(written):
        slots = (v.buffer for _, v in step.bound() if v.buffer.kind == "slot")
        runs_once[i] = runs_once[i] and all(map(is_fixed, slots))
    before = -1
    while before != len(changing):  # a step that runs again lets further ones run again
        before = len(changing)
        for i, (step, _) in enumerate(written):
            runs_once[i] = runs_once[i] and changing.isdisjoint(v.buffer for _, v in step.bound())
            if not runs_once[i]:
                changing.update(v.buffer for _, v in outputs(step))
    for buffer in changing:
        buffer.init = False
    both = list(zip(written, runs_once))
    return [s for (s, _), once in both if once], [s for (s, _), once in both if not once]


def content_names(
    steps: Iterable[Step], constants: Sequence[tuple[int, bytes]]
) -> dict[Storage, str]:
    """Names the buffers that steps write, by their content.

    Args:
        steps: to be run once, in order.
        constants: [(offset, bytes)] in the plan's constant section, by offset.

    Returns:
        {buffer: name}, in the order in which the buffers are complete
    """
    names: dict[Storage, str] = {}
    for step in steps:
        params = [(name, step.params[name]) for name in step.kernel.params]
        content = [step.kernel.name, params] + [
            None if v is None or o.scratch else _read(v, names, constants)
            for o, v in zip(step.kernel.operands, step.operands)
        ]
        # An output counts among what is read: a step may write a part of it.
        for name, v in outputs(step):
            names.pop(v.buffer, None)
            names[v.buffer] = _digest([*content, name])
    return names


def outputs(step: Step) -> list[tuple[str, View]]:
    """(operand, memory between steps) that a step writes and others may read."""
    return [
        (o.name, v)
        for o, v in step.bound()
        if o.output and not o.scratch and v.buffer.kind == "arena"
    ]


def _read(v: View, names: dict[Storage, str], constants: Sequence[tuple[int, bytes]]) -> list[Any]:
    """What identifies the content of an operand, and how it lies in memory."""
    buffer, offset = v.buffer, v.byte_offset()
    if buffer.kind == "const":
        start, data = constants[bisect_right(constants, offset, key=lambda c: c[0]) - 1]
        return [offset - start, data, v.dtype, v.shape, v.strides]
    content = names.get(buffer, "")
    if buffer.tensor is not None:
        content = content_of(buffer.tensor)
    return [offset, content, buffer.name, buffer.nbytes, v.dtype, v.shape, v.strides]


def _digest(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:DIGITS]


def _follows_register(step: Step) -> bool:
    numbers = [x for v in step.params.values() for x in (v if isinstance(v, list) else [v])]
    return any(isinstance(x, Sym) for x in (*numbers, *(v.offset for _, v in step.bound())))

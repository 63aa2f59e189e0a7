"""Compares the steps of a plan on a GPU with the engine in C, each on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ...compiler.gpu.steps import element_dtype
from ...compiler.schema.plan_format import SLOT0
from .loaded import Run, WebGPUPlan
from .mirror import Mirrors, Ranges

# Bounds of the relative 2-norm of a difference: sums of many terms, everything else, and numbers
# that are only moved or whole.
SUMS, NEAR, EQUAL = 1e-4, 1e-5, 0.0


class Difference(NamedTuple):
    """An output of a step that differs.

    Attributes:
        step: number of the step in the plan, init steps counted.
        kernel: its kernel.
        where: the node that it belongs to.
        operand: name of the output.
        error: the 2-norm of the difference, relative to that of the reference; of whole numbers,
            the share of elements that differ.
        bound: the largest error that is allowed.
    """

    step: int
    kernel: str
    where: str
    operand: str
    error: float
    bound: float


def compare(loaded: WebGPUPlan, everything: bool = False) -> list[Difference]:
    """Runs a plan step by step on the GPU and on the processor.

    Each step gets the inputs that the processor computed, so that an error shows in the step that
    makes it. The slots must be bound and the inputs written; afterwards outputs, caches and states
    are those of the processor.

    Args:
        loaded: a plan, from the device of a WebGPUEngine.
        everything: also outputs within their bounds.

    Returns:
        the outputs beyond their bounds, in the order of the steps

    Raises:
        as LoadedPlan.run
    """
    if loaded.mirrors is None:
        loaded.mirrors = Mirrors(loaded)
    out: list[Difference] = []
    for part in loaded.parts[1]:
        for i in range(part.first, part.end):
            run = Run(i, i + 1, part.on_gpu)
            if part.on_gpu:
                out += [d for d in _compared(loaded, run) if _bad(d) or everything]
            else:
                loaded._go([run])
    return out


def _compared(loaded: WebGPUPlan, run: Run) -> list[Difference]:
    """Runs steps that are launched together on the GPU and on the processor."""
    assert loaded.mirrors is not None
    first, end = loaded.steps_in(run)
    launch = loaded.launches[run.first]
    assert launch is not None
    read, written = loaded.mirrors.ranges(first, end)
    before = _bytes(loaded, read)
    loaded._go([run])
    got = _bytes(loaded, written)
    for slot, data in before.items():  # in place: inputs that the steps overwrote
        loaded.engine.device.write(loaded.bound[slot], data, read[slot][0])
    loaded._go([Run(run.first, run.end, False)])
    want = _bytes(loaded, written)
    out = []
    for i in range(first, end):
        operands = list(range(len(loaded.steps[i].kernel.operands)))
        if not launch.members:  # what only these steps read is never written
            operands = [k for k in operands if not launch.is_virtual(i - first, k)]
        # Steps of one launch write between each other's numbers, which a copy's range contains.
        takes = i >= end - launch.takers if launch.takers else end - first > 1
        out += _differences(loaded, i, operands, written, got, want, takes)
    return out


def _bad(d: Difference) -> bool:
    return not d.error <= d.bound


def _bytes(loaded: WebGPUPlan, ranges: Ranges) -> dict[int, bytes]:
    device = loaded.engine.device
    return {
        slot: device.read(loaded.bound[slot], begin, end - begin)
        for slot, (begin, end) in ranges.items()
    }


def _differences(
    loaded: WebGPUPlan,
    index: int,
    operands: Iterable[int],
    written: Ranges,
    got: dict[int, bytes],
    want: dict[int, bytes],
    takes: bool,
) -> list[Difference]:
    """The differences of operands of a step. takes: its range has float32 numbers that other steps
    of the same launch computed.
    """
    step = loaded.steps[index]
    (resolved,) = loaded.resolve(index, 1)
    out = []
    for i in operands:
        o, v = step.kernel.operands[i], resolved.operands[i]
        if v is None or not o.output or v.buffer < SLOT0 or v.begin >= v.end:
            continue
        slot = v.buffer - SLOT0
        first = written[slot][0]
        a, b = (data[slot][v.begin - first : v.end - first] for data in (got, want))
        dtype, nbytes = element_dtype(step.kernel, i, step.params)
        if dtype == 1 or takes and nbytes == 4:
            error = _relative(memoryview(a).cast("f"), memoryview(b).cast("f"))
            bound = SUMS if takes or step.kernel.cost is not None else NEAR
        else:
            count = max(len(b) // nbytes, 1)
            differing = sum(
                a[k : k + nbytes] != b[k : k + nbytes] for k in range(0, len(b), nbytes)
            )
            error, bound = differing / count, EQUAL
        where = loaded.plan.label(index)
        out.append(Difference(index, step.kernel.name, where, o.name, error, bound))
    return out


def _relative(a: Iterable[float], b: Iterable[float]) -> float:
    """The relative 2-norm of a difference. Equal infinities, and NaN in both, do not count."""
    error = scale = 0.0
    for x, y in zip(a, b):
        if x != y and not (x != x and y != y):
            error += (x - y) ** 2
        scale += y * y if math.isfinite(y) else 0.0
    return math.sqrt(error) / max(math.sqrt(scale), 1e-30) if error else 0.0


__all__ = ["Difference", "compare"]

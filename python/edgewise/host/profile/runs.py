"""The recorded runs of one plan."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from ...compiler.schema.plan_format import HEADER, REGISTER


class Work(NamedTuple):
    """The work of a step at the lowest and at the highest value of the plan's register; it grows
    linearly between them.
    """

    low: float
    high: float

    def at(self, position: float) -> float:
        """The work at a position from 0 (lowest value) to 1 (highest value)."""
        return self.low + (self.high - self.low) * position


class PlanStep(NamedTuple):
    """A step of a plan. What depends on notes is empty or None in a plan without them.

    Attributes:
        node: name of the node that it belongs to.
        op: operator of the node, else the kernel.
        kernel: of the step.
        operations: two for each product of a matrix product, convolution or attention.
        bytes: elements read and written, each operand once.
        in_use: bytes of the arena that are alive during the step.
        arithmetic: name of the limit of its operations, "float32" or "int8".
    """

    node: str
    op: str
    kernel: str
    operations: Work | None
    bytes: Work | None
    in_use: int | None
    arithmetic: str


class PlanRun(NamedTuple):
    """A run of a plan.

    Attributes:
        at: seconds since the profile began.
        seconds: by step.
        position: of the plan's register between its lowest (0) and highest (1) value: in a
            decoder's plans, how full the cache is.
    """

    at: float
    seconds: array[float]
    position: float


class PlanRuns:
    """A plan and its runs.

    Args:
        loaded: the plan in an engine.

    Attributes:
        name: of the plan.
        arena_bytes: size of the arena.
        has_notes: whether the work and the memory of its steps are known.
        steps: without the init steps.
        runs: in order.
    """

    def __init__(self, loaded: Any) -> None:
        self.plan = loaded.plan  # keeps its id unique, which profiles use as a key
        self.name: str = loaded.title
        self.arena_bytes: int = HEADER.unpack_from(self.plan.data)[7]
        kernels = self.plan.kernels[self.plan.init_count :]
        notes = self.plan.notes
        self.has_notes = bool(kernels) and len(notes) == len(kernels)
        self.steps = [
            PlanStep(
                notes.node[i],
                notes.op[i] or kernel,
                kernel,
                Work(*notes.operations[i]) if notes.operations[i] else None,
                Work(*notes.bytes[i]) if notes.bytes[i] else None,
                notes.in_use[i],
                "int8" if notes.integer[i] else "float32",
            )
            if self.has_notes
            else PlanStep("", kernel, kernel, None, None, None, "float32")
            for i, kernel in enumerate(kernels)
        ]
        self.runs: list[PlanRun] = []

    def record(self, loaded: Any, at: float) -> None:
        """Runs the plan and records the run. at: seconds since the profile began."""
        self.runs.append(PlanRun(at, array("d", loaded.run_timed()), _register_position(loaded)))

    @property
    def seconds(self) -> float:
        """Seconds in steps, over all runs."""
        return sum(sum(run.seconds) for run in self.runs)

    def step_seconds(self, i: int) -> float:
        """Seconds of a step, over all runs."""
        return sum(run.seconds[i] for run in self.runs)

    def total_work(self, work: Work | None) -> float:
        """Work of a step over all runs; 0 if it is not known."""
        return sum(work.at(run.position) for run in self.runs) if work else 0


def _register_position(loaded: Any) -> float:
    """Position of the plan's first register between its lowest (0) and highest (1) value."""
    data = loaded.plan.data
    if not loaded.registers or not HEADER.unpack_from(data)[2]:
        return 0.0
    low, high, *_ = REGISTER.unpack_from(data, HEADER.unpack_from(data)[8])
    return (loaded.registers.get(0, low) - low) / (high - low) if high > low else 0.0

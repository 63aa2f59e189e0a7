"""Profiles of the plans of a session. web/src/page/profile.ts is the counterpart for pages."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from os import PathLike, fspath
from time import perf_counter
from typing import Any

from ...compiler.schema.plan_format import HEADER, REGISTER
from ...errors import InputError, StorageError
from ...logic.profile import (
    CACHED,
    Notes,
    PlanProfile,
    Recorded,
    Row,
    Run,
    count_runs,
    memory_rows,
    profile_text,
    rows_by_node,
    rows_by_op,
    rows_by_plan,
    total_ms,
    trace_of,
)

__all__ = ["CACHED", "Profile", "Watch"]


class Watch:
    """Shared by the plans of a session: the profile that records their runs, or None."""

    def __init__(self) -> None:
        self.profile: Profile | None = None


class Profile:
    """Times of the steps of all plans of a session, recorded while a `with` block runs.

    The time of each step of each run is kept, in 8 bytes. It is that of the step's kernel, threads
    included; reading the clock between steps adds a little. The work of a step is that of its
    algorithm: two operations for each product of a matrix product, convolution or attention, of
    floats or integers, and each operand's elements read or written once. Rates are compared with
    `limits`.

    Args:
        engine: of the session.
        watches: of the session's plans.

    Attributes:
        engine: of the session.
        wall: seconds in `with` blocks.
    """

    def __init__(self, engine: Any, watches: Sequence[Watch]) -> None:
        self.engine, self.watches = engine, watches
        self.wall = 0.0
        # by id, which is unique as long as the plan is kept, and title: (plan, its runs)
        self._plans: dict[tuple[int, str], tuple[Any, PlanProfile]] = {}
        self._begun = 0.0  # start of the current `with` block
        self._first: float | None = None  # start of the first one
        self._limits: dict[str, float | None] | None = None

    def __enter__(self) -> Profile:
        if any(watch.profile is not None for watch in self.watches):
            raise InputError(
                "another profile is active", "profile", "Leave its `with` block first."
            )
        for watch in self.watches:
            watch.profile = self
        self._begun = perf_counter()
        self._first = self._first or self._begun
        return self

    def __exit__(self, *_: object) -> None:
        for watch in self.watches:
            watch.profile = None
        self.wall += perf_counter() - self._begun

    def record(self, loaded: Any) -> None:
        """Runs a LoadedPlan and records its times."""
        key = (id(loaded.plan), loaded.title)
        at = 1000 * (perf_counter() - (self._first or 0.0))
        if key not in self._plans:
            self._plans[key] = (loaded.plan, _plan_profile(loaded))
        ms = array("d", (1000 * seconds for seconds in loaded.run_timed()))
        self._plans[key][1].runs.append(Run(at, ms, _place(loaded)))

    @property
    def plans(self) -> list[PlanProfile]:
        """The plans that ran."""
        return [plan for _, plan in self._plans.values()]

    @property
    def runs(self) -> int:
        """Number of runs of plans."""
        return count_runs(self.plans)

    @property
    def seconds(self) -> float:
        """Seconds in steps."""
        return total_ms(self.plans) / 1000

    @property
    def limits(self) -> dict[str, float | None]:
        """What this engine reaches with its threads, measured on first use in about 0.15 s.

        "float32" and "int8": 10^9 operations per second in a large matrix product. "memory": 10^9
        bytes per second in summing 128 MB. None if the engine has no kernel or memory for it.
        """
        if self._limits is None:
            from .limits import measure

            self._limits = measure(self.engine)
        return self._limits

    def by_op(self) -> list[dict[str, Any]]:
        """Totals by operator, the longest first.

        Returns:
            Dicts of op, calls, ms, share (of the time of all steps), operations, bytes, gops, gbs
            (10^9 operations and bytes per second, None if the work is not known), limit, of_limit.

            limit: which of `limits` would take longest: its operations alone ("float32", or "int8"
            if they may be integer operations) or its bytes alone ("memory"). of_limit: that least
            time divided by the time it took. Operands that come faster than from memory are in a
            cache: then only operations are compared, and without operations limit is "cache" and
            of_limit None. For several steps, limit is that of most of the time. Both are None if
            nothing is known.
        """
        return [{"op": row.op, **_totals(row)} for row in rows_by_op(self.plans, self.limits)]

    def by_node(self) -> list[dict[str, Any]]:
        """Totals by node of each plan, as `by_op` with plan, node, op and kernel.

        A node that was compiled to several kernels has several rows.
        """
        return [
            {"plan": row.plan, "node": row.node, "op": row.op, "kernel": row.kernel, **_totals(row)}
            for row in rows_by_node(self.plans, self.limits)
        ]

    def by_plan(self) -> list[dict[str, Any]]:
        """Totals by plan, the longest first.

        Returns:
            Dicts of plan, runs, steps, ms (of all runs), arena (bytes), most_in_use (bytes) and at
            ([step, node] with most_in_use); the last two are None in a plan without notes.
        """
        return [
            {
                "plan": row.plan,
                "runs": row.runs,
                "steps": row.steps,
                "ms": row.ms,
                "arena": row.arena_bytes,
                "most_in_use": row.most_in_use,
                "at": None if row.at is None else list(row.at),
            }
            for row in rows_by_plan(self.plans)
        ]

    def memory(self) -> list[dict[str, Any]]:
        """Memory over time of each plan that has notes.

        Returns:
            Dicts of plan, runs, ms (of a run), arena (bytes), and steps: (node, operator, ms, bytes
            of the arena in use) of each step. Times are means over the runs.
        """
        return [
            {
                "plan": row.plan,
                "runs": row.runs,
                "ms": row.ms,
                "arena": row.arena_bytes,
                "steps": [tuple(step) for step in row.steps],
            }
            for row in memory_rows(self.plans)
        ]

    def as_dict(self) -> dict[str, Any]:
        """The profile without single runs, as JSON-serializable values."""
        return {
            "flavour": self.engine.flavour,
            "threads": self.engine.threads,
            "runs": self.runs,
            "ms": 1000 * self.seconds,
            "wall_ms": 1000 * self.wall,
            "limits": self.limits,
            "plans": self.by_plan(),
            "ops": self.by_op(),
            "nodes": self.by_node(),
        }

    def __str__(self) -> str:
        engine, wall = self.engine, 1000 * self.wall
        return profile_text(Recorded(engine.flavour, engine.threads, wall, self.limits, self.plans))

    def trace(self) -> dict[str, Any]:
        """Chrome trace events: every run with its steps, and the bytes of the arena in use."""
        return trace_of(self.engine.flavour, self.engine.threads, self.plans)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the trace as JSON, for Perfetto (https://ui.perfetto.dev) and chrome://tracing.

        Raises:
            InputError: path is not a path.
            StorageError: the file cannot be written.
        """
        if not isinstance(path, (str, PathLike)):
            raise InputError(
                f"a {type(path).__name__} is not a path", "save", "Pass the name of a file."
            )
        data = json.dumps(self.trace(), separators=(",", ":"))
        try:
            with open(path, "w", encoding="utf-8") as f:
                f.write(data)
        except OSError as e:
            raise StorageError(
                f"it cannot be written ({e.strerror or e})",
                fspath(path),
                "Check the path, its permissions and the free disk space.",
            ) from None


def _totals(row: Row) -> dict[str, Any]:
    """The fields of a row but its names."""
    return {
        "calls": row.calls,
        "ms": row.ms,
        "operations": row.operations,
        "bytes": row.bytes,
        "share": row.share,
        "gops": None if row.gops is None else round(row.gops, 3),
        "gbs": None if row.gbs is None else round(row.gbs, 3),
        "limit": row.limit,
        "of_limit": row.of_limit,
    }


def _plan_profile(loaded: Any) -> PlanProfile:
    """A plan in an engine, without runs."""
    plan = loaded.plan
    kernels, notes = plan.kernels[plan.init_count :], plan.notes
    found = None
    if kernels and len(notes) == len(kernels):
        found = Notes(
            notes.node, notes.op, notes.operations, notes.bytes, notes.in_use, notes.integer
        )
    return PlanProfile(loaded.title, HEADER.unpack_from(plan.data)[7], kernels, found, [])


def _place(loaded: Any) -> float:
    """Position of the plan's first register between its lowest (0) and highest (1) value."""
    data = loaded.plan.data
    if not loaded.registers or not HEADER.unpack_from(data)[2]:
        return 0.0
    low, high, *_ = REGISTER.unpack_from(data, HEADER.unpack_from(data)[8])
    return (loaded.registers.get(0, low) - low) / (high - low) if high > low else 0.0

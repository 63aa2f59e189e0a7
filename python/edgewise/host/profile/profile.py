"""Profiles of the plans of a session. web/src/page/profile.ts is the counterpart for pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from os import PathLike, fspath
from time import perf_counter
from typing import Any, NamedTuple

from ...errors import InputError, StorageError
from .runs import PlanRuns
from .table import text
from .trace import trace_events

# Bytes that come this many times as fast as from memory came from a cache; the measured limit is a
# little low.
CACHED = 1.1


class Watch:
    """Shared by the plans of a session: the profile that records their runs, or None."""

    def __init__(self) -> None:
        self.profile: Profile | None = None


class _StepTotal(NamedTuple):
    """A step of a plan over all its runs."""

    plan: PlanRuns
    step: int
    seconds: float
    operations: float
    bytes: float


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
        self._plans: dict[tuple[int, str], PlanRuns] = {}
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
        at = perf_counter() - (self._first or 0.0)
        if key not in self._plans:
            self._plans[key] = PlanRuns(loaded)
        self._plans[key].record(loaded, at)

    @property
    def plans(self) -> list[PlanRuns]:
        """The plans that ran."""
        return list(self._plans.values())

    @property
    def runs(self) -> int:
        """Number of runs of plans."""
        return sum(len(plan.runs) for plan in self.plans)

    @property
    def seconds(self) -> float:
        """Seconds in steps."""
        return sum(plan.seconds for plan in self.plans)

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
        return self._grouped(lambda plan, i: {"op": plan.steps[i].op})

    def by_node(self) -> list[dict[str, Any]]:
        """Totals by node of each plan, as `by_op` with plan, node, op and kernel.

        A node that was compiled to several kernels has several rows.
        """
        return self._grouped(
            lambda plan, i: {
                "plan": plan.name,
                "node": plan.steps[i].node,
                "op": plan.steps[i].op,
                "kernel": plan.steps[i].kernel,
            }
        )

    def by_plan(self) -> list[dict[str, Any]]:
        """Totals by plan, the longest first.

        Returns:
            Dicts of plan, runs, steps, ms (of all runs), arena (bytes), most_in_use (bytes) and at
            ([step, node] with most_in_use); the last two are None in a plan without notes.
        """
        rows = []
        for plan in self.plans:
            most = None
            if plan.has_notes:
                most = max(range(len(plan.steps)), key=lambda i: plan.steps[i].in_use or 0)
            step = None if most is None else plan.steps[most]
            rows.append(
                {
                    "plan": plan.name,
                    "runs": len(plan.runs),
                    "steps": len(plan.steps),
                    "ms": 1000 * plan.seconds,
                    "arena": plan.arena_bytes,
                    "most_in_use": None if step is None else step.in_use,
                    "at": None if step is None else [most, step.node or step.op],
                }
            )
        return sorted(rows, key=lambda row: -row["ms"])

    def memory(self) -> list[dict[str, Any]]:
        """Memory over time of each plan that has notes.

        Returns:
            Dicts of plan, runs, ms (of a run), arena (bytes), and steps: (node, operator, ms, bytes
            of the arena in use) of each step. Times are means over the runs.
        """
        rows = []
        for plan in self.plans:
            if plan.has_notes:
                steps = [
                    (step.node, step.op, 1000 * plan.step_seconds(i) / len(plan.runs), step.in_use)
                    for i, step in enumerate(plan.steps)
                ]
                rows.append(
                    {
                        "plan": plan.name,
                        "runs": len(plan.runs),
                        "ms": sum(ms for _, _, ms, _ in steps),
                        "arena": plan.arena_bytes,
                        "steps": steps,
                    }
                )
        return sorted(rows, key=lambda row: -row["ms"] * row["runs"])

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
        return text(self.as_dict())

    def trace(self) -> dict[str, Any]:
        """Chrome trace events: every run with its steps, and the bytes of the arena in use."""
        title = f"Edgewise ({self.engine.flavour}, {self.engine.threads} threads)"
        return trace_events(title, self.plans)

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

    def _steps(self) -> Iterator[_StepTotal]:
        for plan in self.plans:
            for i, step in enumerate(plan.steps):
                yield _StepTotal(
                    plan,
                    i,
                    plan.step_seconds(i),
                    plan.total_work(step.operations),
                    plan.total_work(step.bytes),
                )

    def _binding_limit(self, total: _StepTotal) -> tuple[str | None, float | None]:
        """(limit, least seconds) of a step: the minimum that its operations, or its bytes, take.

        ("cache", None): only bytes are known, and they came faster than from memory. (None, None):
        nothing is known.
        """
        kind = total.plan.steps[total.step].arithmetic
        operations_limit, memory_limit = self.limits[kind], self.limits["memory"]
        computing = (
            total.operations / 1e9 / operations_limit
            if total.operations and operations_limit
            else 0
        )
        reading = total.bytes / 1e9 / memory_limit if memory_limit else 0
        if not total.seconds or not (computing or reading):
            return None, None
        if reading > CACHED * total.seconds:
            return (kind, computing) if computing else ("cache", None)
        if computing >= reading:
            return kind, computing
        return "memory", min(reading, total.seconds)

    def _grouped(self, key: Callable[[PlanRuns, int], dict[str, str]]) -> list[dict[str, Any]]:
        """Totals of the steps with equal keys, the longest first. key: from a plan and the index of
        a step to the first fields of a row.
        """
        groups: dict[tuple[str, ...], dict[str, Any]] = {}
        # [seconds, least seconds] of each group by limit.
        limits: dict[tuple[str, ...], dict[str | None, list[float]]] = {}
        for total in self._steps():
            names = key(total.plan, total.step)
            group = tuple(names.values())
            row = groups.setdefault(
                group, {**names, "calls": 0, "ms": 0.0, "operations": 0, "bytes": 0}
            )
            row["calls"] += len(total.plan.runs)
            row["ms"] += 1000 * total.seconds
            row["operations"] += total.operations
            row["bytes"] += total.bytes
            limit, least = self._binding_limit(total)
            known = limits.setdefault(group, {}).setdefault(limit, [0.0, 0.0])
            known[0] += total.seconds
            known[1] += least or 0
        all_seconds = self.seconds
        for group, row in groups.items():
            self._add_rates(row, limits[group], all_seconds)
        return sorted(groups.values(), key=lambda row: -row["ms"])

    def _add_rates(
        self, row: dict[str, Any], limits: dict[str | None, list[float]], total: float
    ) -> None:
        """Adds share, gops, gbs, limit and of_limit to a row. total: seconds of all steps."""
        seconds = row["ms"] / 1000
        row["share"] = seconds / total if total else 0.0
        for rate, work in (("gops", "operations"), ("gbs", "bytes")):
            row[rate] = round(row[work] / seconds / 1e9, 3) if seconds and row[work] else None
        row["limit"] = max(limits, key=lambda name: limits[name][0])
        compared = [times for name, times in limits.items() if name in self.limits]
        known = sum(seconds for seconds, _ in compared)
        row["of_limit"] = (
            sum(least for _, least in compared) / known
            if known and row["limit"] in self.limits
            else None
        )

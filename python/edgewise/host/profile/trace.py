"""A profile as Chrome trace events, which Perfetto and chrome://tracing read
(https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .runs import PlanRun, PlanRuns, PlanStep

Event = dict[str, Any]

TRACK = {"pid": 1, "tid": 1}


def trace_events(title: str, plans: Iterable[PlanRuns]) -> dict[str, Any]:
    """The contents of a trace file.

    Args:
        title: of the process.
        plans: with their runs.
    """
    events = [
        {"ph": "M", **TRACK, "name": "process_name", "args": {"name": title}},
        {"ph": "M", **TRACK, "name": "thread_name", "args": {"name": "steps"}},
    ]
    for plan in plans:
        for run in plan.runs:
            events += _run_events(plan, run)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _run_events(plan: PlanRuns, run: PlanRun) -> Iterator[Event]:
    """A run, the steps in it, and the bytes of the arena in use. Times are in microseconds."""
    t = 1e6 * run.at
    yield _slice(plan.name or "plan", "run", t, sum(run.seconds))
    for step, seconds in zip(plan.steps, run.seconds):
        if step.in_use is not None:
            yield _arena(t, step.in_use)
        yield {
            **_slice(step.op, step.kernel, t, seconds),
            "args": _step_args(step, seconds, run.position),
        }
        t += 1e6 * seconds
    if plan.has_notes:
        yield _arena(t, 0)


def _slice(name: str, category: str, t: float, seconds: float) -> Event:
    return {
        "ph": "X",
        **TRACK,
        "name": name,
        "cat": category,
        "ts": round(t, 3),
        "dur": round(1e6 * seconds, 3),
    }


def _arena(t: float, used: int) -> Event:
    return {"ph": "C", "pid": 1, "name": "arena", "ts": round(t, 3), "args": {"bytes in use": used}}


def _step_args(step: PlanStep, seconds: float, position: float) -> dict[str, Any]:
    args: dict[str, Any] = {"node": step.node, "kernel": step.kernel}
    for name, work in (("GOP/s", step.operations), ("GB/s", step.bytes)):
        count = work.at(position) if work else 0
        if count and seconds:
            args[name] = round(count / seconds / 1e9, 2)
    return args

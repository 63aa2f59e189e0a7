"""Profiles: the recorded steps of plans, summed up by operator, node and plan, as tables in a text,
and as a trace. Times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Pair = tuple[float, float]
"""Values at the lowest and at the highest value of a plan's first register, and linear between
them: in a decoder, with an empty and with a full cache.
"""


class Notes(NamedTuple):
    """Notes of a package about the steps of a plan.

    Attributes:
        node: name of the node that the step belongs to.
        op: operator of the node; "": see the kernel.
        operations: two for each product of a matrix product, convolution or attention.
        bytes: elements read and written, each operand once.
        in_use: bytes of the arena that are alive during the step.
        integer: whether its operations may be those of integers.
    """

    node: Sequence[str]
    op: Sequence[str]
    operations: Sequence[Pair]
    bytes: Sequence[Pair]
    in_use: Sequence[int]
    integer: Sequence[bool]


class Run(NamedTuple):
    """A run of a plan.

    Attributes:
        at: since the profile began.
        ms: of each step.
        place: of the plan's first register between its lowest (0) and highest (1) value.
    """

    at: float
    ms: Sequence[float]
    place: float


@dataclass(frozen=True)
class PlanProfile:
    """A plan and its runs.

    Attributes:
        name: of the plan.
        arena_bytes: memory for intermediate values.
        kernels: of the steps, without the init steps.
        notes: None: the package has none.
        runs: in order.
    """

    name: str
    arena_bytes: int
    kernels: Sequence[str]
    notes: Notes | None
    runs: list[Run]


Limits = Mapping[str, float | None]
"""What an engine reaches with its threads, in 10^9 per second: operations in a large product of
"float32" and of "int8", bytes in "memory". None: not measured.
"""

CACHED = 1.1
"""Bytes that come this many times as fast as from memory came from a cache; the measured limit is a
little low.
"""
MAX_NODES = 15
"""Rows of the table of nodes."""


@dataclass
class Row:
    """Totals of steps; see Profile in both hosts."""

    plan: str
    node: str
    op: str
    kernel: str
    calls: int = 0
    ms: float = 0.0
    share: float = 0.0
    operations: float = 0.0
    bytes: float = 0.0
    gops: float | None = None
    gbs: float | None = None
    limit: str | None = None
    of_limit: float | None = None


class PlanRow(NamedTuple):
    """Totals of a plan. at: the step with `most_in_use`, and its node."""

    plan: str
    runs: int
    steps: int
    ms: float
    arena_bytes: int
    most_in_use: int | None
    at: tuple[int, str] | None


class MemoryStep(NamedTuple):
    """A step, its mean time, and the bytes of the arena in use."""

    node: str
    op: str
    ms: float
    bytes: int


class MemoryRow(NamedTuple):
    """Memory over time of a plan. ms: of a run."""

    plan: str
    runs: int
    ms: float
    arena_bytes: int
    steps: list[MemoryStep]


# ---- sums
def total_ms(plans: Sequence[PlanProfile]) -> float:
    """The time in steps, over all runs."""
    return sum(_plan_ms(plan) for plan in plans)


def count_runs(plans: Sequence[PlanProfile]) -> int:
    """The number of runs of plans."""
    return sum(len(plan.runs) for plan in plans)


def rows_by_op(plans: Sequence[PlanProfile], limits: Limits) -> list[Row]:
    """Totals by operator, the longest first."""
    return _rows(plans, limits, False)


def rows_by_node(plans: Sequence[PlanProfile], limits: Limits) -> list[Row]:
    """Totals by node and kernel of each plan, the longest first."""
    return _rows(plans, limits, True)


def rows_by_plan(plans: Sequence[PlanProfile]) -> list[PlanRow]:
    """Totals by plan, the longest first."""
    rows: list[PlanRow] = []
    for plan in plans:
        notes, most, at = plan.notes, 0, None
        used: Sequence[int] = [] if notes is None else notes.in_use
        for i, nbytes in enumerate(used):
            if nbytes > used[most]:
                most = i
        if notes is not None and len(used):
            at = (most, notes.node[most] or _op_of(plan, most))
        in_use = used[most] if len(used) else None
        runs, steps, ms = len(plan.runs), len(plan.kernels), _plan_ms(plan)
        rows.append(PlanRow(plan.name, runs, steps, ms, plan.arena_bytes, in_use, at))
    return sorted(rows, key=lambda row: -row.ms)


def memory_rows(plans: Sequence[PlanProfile]) -> list[MemoryRow]:
    """Memory over time of each plan that ran and has notes, the longest first."""
    rows: list[MemoryRow] = []
    for plan in plans:
        notes, runs = plan.notes, len(plan.runs)
        if notes is None or not runs:
            continue
        steps = [
            MemoryStep(notes.node[i], _op_of(plan, i), _step_ms(plan, i) / runs, notes.in_use[i])
            for i in range(len(plan.kernels))
        ]
        ms = sum(step.ms for step in steps)
        rows.append(MemoryRow(plan.name, runs, ms, plan.arena_bytes, steps))
    return sorted(rows, key=lambda row: -row.ms * row.runs)


def _op_of(plan: PlanProfile, step: int) -> str:
    """The operator of a step, else its kernel."""
    return (plan.notes.op[step] if plan.notes is not None else "") or plan.kernels[step]


def _plan_ms(plan: PlanProfile) -> float:
    return sum(sum(run.ms) for run in plan.runs)


def _step_ms(plan: PlanProfile, step: int) -> float:
    return sum(run.ms[step] for run in plan.runs)


class _Share:
    """Times of steps that are compared with one limit: measured, and the least possible."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.least = 0.0


def _rows(plans: Sequence[PlanProfile], limits: Limits, nodes: bool) -> list[Row]:
    groups: dict[str, Row] = {}
    shares: dict[str, dict[str | None, _Share]] = {}
    for plan in plans:
        place = sum(run.place for run in plan.runs)
        calls, notes = len(plan.runs), plan.notes
        for i, kernel in enumerate(plan.kernels):
            op = _op_of(plan, i)
            row = Row("", "", op, "")
            if nodes:
                row = Row(plan.name, "" if notes is None else notes.node[i], op, kernel)
            key = "\n".join([row.plan, row.node, op, row.kernel])
            if key in groups:
                row = groups[key]
            groups[key] = row
            ms = _step_ms(plan, i)
            operations = 0.0 if notes is None else _work(notes.operations[i], calls, place)
            nbytes = 0.0 if notes is None else _work(notes.bytes[i], calls, place)
            row.calls += calls
            row.ms += ms
            row.operations += operations
            row.bytes += nbytes
            kind = "int8" if notes is not None and notes.integer[i] else "float32"
            limit, least = _binding(limits, kind, ms, operations, nbytes)
            known = shares.setdefault(key, {}).setdefault(limit, _Share())
            known.ms += ms
            known.least += least
    total = total_ms(plans)
    for key, row in groups.items():
        _finish(row, shares[key], total)
    return sorted(groups.values(), key=lambda row: -row.ms)


def _work(work: Pair, calls: int, place: float) -> float:
    """The work of a step over its runs. place: the sum of theirs."""
    return work[0] * calls + (work[1] - work[0]) * place


def _binding(
    limits: Limits, kind: str, ms: float, operations: float, nbytes: float
) -> tuple[str | None, float]:
    """(limit, least time) of a step: the minimum that its operations, or its bytes, take.

    ("cache", 0): only bytes are known, and they came faster than from memory. (None, 0): nothing is
    known.
    """
    arithmetic, memory = limits.get(kind), limits.get("memory")
    computing = operations / arithmetic / 1e6 if arithmetic else 0.0
    reading = nbytes / memory / 1e6 if memory else 0.0
    if not ms or not (computing or reading):
        return None, 0.0
    if reading > CACHED * ms:
        return (kind, computing) if computing else ("cache", 0.0)
    if computing >= reading:
        return kind, computing
    return "memory", min(reading, ms)


def _finish(row: Row, shares: dict[str | None, _Share], total: float) -> None:
    """Adds share, rates and limit to a row. total: time of all steps."""
    row.share = row.ms / total if total else 0.0
    row.gops = row.operations / row.ms / 1e6 if row.ms and row.operations else None
    row.gbs = row.bytes / row.ms / 1e6 if row.ms and row.bytes else None
    longest, ms, least = -1.0, 0.0, 0.0
    for limit, share in shares.items():
        if share.ms > longest:
            longest, row.limit = share.ms, limit
        if limit is not None and limit != "cache":
            ms += share.ms
            least += share.least
    if ms and row.limit is not None and row.limit != "cache":
        row.of_limit = least / ms


# ---- text
class Recorded(NamedTuple):
    """A profile.

    Attributes:
        flavour, threads: of the engine.
        wall_ms: duration of the recording.
        limits: of the engine.
        plans: with their runs.
    """

    flavour: str
    threads: int
    wall_ms: float
    limits: Limits
    plans: Sequence[PlanProfile]


def profile_text(profile: Recorded) -> str:
    """Tables of plans, operators and the longest nodes."""
    runs, threads, plans = count_runs(profile.plans), profile.threads, profile.plans
    title = (
        f"{profile.flavour}, {threads} thread{'' if threads == 1 else 's'}: {runs}"
        f" run{'' if runs == 1 else 's'} of plans, {_ms(total_ms(plans))} ms in steps of"
        f" {_ms(profile.wall_ms)} ms"
    )
    if not runs:
        return title + ". Nothing ran while this profile watched."
    nodes = rows_by_node(plans, profile.limits)
    shown = nodes[:MAX_NODES]
    figures = ["ms", "share", "GOP/s", "GB/s", "limit", "of limit"]
    lines = [
        title,
        *_limits_text(profile.limits),
        "",
        *_columns(
            ["plan", "runs", "ms", "ms/run", "arena"],
            [_plan_cells(row) for row in rows_by_plan(plans)],
            "<>>><",
        ),
        "",
        *_columns(
            ["operator", "calls", *figures],
            [[r.op, str(r.calls), *_figures(r)] for r in rows_by_op(plans, profile.limits)],
            "<>>>>>>>",
        ),
        "",
        *_columns(
            ["node", "kernel", "plan", *figures],
            [
                [_short(r.node or r.op, 60), r.kernel, _short(r.plan or "plan", 24), *_figures(r)]
                for r in shown
            ],
            "<<<>>>>>>",
        ),
    ]
    rest = nodes[MAX_NODES:]
    if rest:
        lines.append(f"and {len(rest)} more: {_ms(sum(r.ms for r in rest))} ms")
    return "\n".join(lines)


def _limits_text(limits: Limits) -> list[str]:
    found: list[str] = []
    for name, what in (
        ("float32", "GFLOP/s in a large product of float32"),
        ("int8", "GOP/s in one of int8"),
        ("memory", "GB/s in summing 128 MB of memory"),
    ):
        reached = limits.get(name)
        if reached:
            found.append(f"{_rate(reached)} {what}")
    if not found:
        return ["limits here: not measured, for lack of memory or kernels"]
    return [
        f"limits here, by this engine's own kernels: {', '.join(found)}",
        "of limit: the time that this limit would allow over the time it took; cache: quicker than"
        " memory, so it was not read from there",
    ]


def _plan_cells(row: PlanRow) -> list[str]:
    memory = _bytes(row.arena_bytes)
    if row.most_in_use is not None and row.at is not None:
        step, node = row.at
        memory += f", most in use {_bytes(row.most_in_use)} at step {step + 1} of {row.steps}"
        memory += f" ({_short(node, 60)})"
    ms = _ms(row.ms / row.runs) if row.runs else ""
    return [_short(row.plan or "plan", 60), str(row.runs), _ms(row.ms), ms, memory]


def _figures(row: Row) -> list[str]:
    return [
        _ms(row.ms),
        f"{100 * row.share:.1f} %",
        _rate(row.gops),
        _rate(row.gbs),
        row.limit or "",
        "" if row.of_limit is None else f"{100 * row.of_limit:.0f} %",
    ]


def _columns(head: list[str], rows: list[list[str]], sides: str) -> list[str]:
    """Lines of a table. sides: "<" for each column that is flush left, ">" for the others."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    made: list[str] = []
    for line in lines:
        cells = [
            cell.ljust(widths[i]) if sides[i] == "<" else cell.rjust(widths[i])
            for i, cell in enumerate(line)
        ]
        made.append("  ".join(cells).rstrip())
    return made


def _short(name: str, most: int) -> str:
    start = len(name) + 1 - most
    return "\u2026" + name[start:] if start > 1 else name


def _ms(x: float) -> str:
    return f"{x:.3f}" if x < 10 else f"{x:.1f}"


def _rate(x: float | None) -> str:
    return "" if x is None else f"{x:.2f}" if x < 10 else f"{x:.1f}"


def _bytes(n: float) -> str:
    return f"{n / 1e6:.1f} MB" if n >= 1e5 else f"{n / 1e3:.1f} kB"


# ---- trace
Event = dict[str, Any]


def trace_of(flavour: str, threads: int, plans: Sequence[PlanProfile]) -> Event:
    """Chrome trace events, which Perfetto and chrome://tracing read
    (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): every run
    with its steps, and the bytes of the arena in use.
    """
    title = f"Edgewise ({flavour}, {threads} threads)"
    events = [_named("process_name", title), _named("thread_name", "steps")]
    for plan in plans:
        for run in plan.runs:
            _add_run(events, plan, run)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(kind: str, name: str) -> Event:
    args: Event = {"name": name}
    return {"ph": "M", "pid": 1, "tid": 1, "name": kind, "args": args}


def _add_run(events: list[Event], plan: PlanProfile, run: Run) -> None:
    """Adds a run, the steps in it, and the bytes of the arena in use."""
    notes, t = plan.notes, run.at
    events.append(_slice(plan.name or "plan", "run", t, sum(run.ms)))
    for i, ms in enumerate(run.ms):
        kernel = plan.kernels[i]
        event = _slice(_op_of(plan, i), kernel, t, ms)
        args: Event = {"node": "", "kernel": kernel}
        if notes is not None:
            events.append(_arena(t, notes.in_use[i]))
            args["node"] = notes.node[i]
            _add_rate(args, "GOP/s", _work(notes.operations[i], 1, run.place), ms)
            _add_rate(args, "GB/s", _work(notes.bytes[i], 1, run.place), ms)
        event["args"] = args
        events.append(event)
        t += ms
    if notes is not None:
        events.append(_arena(t, 0))


def _add_rate(args: Event, name: str, work: float, ms: float) -> None:
    if work and ms:
        args[name] = round(work / ms / 1e4) / 100


def _slice(name: str, category: str, at: float, ms: float) -> Event:
    return {
        "ph": "X",
        "pid": 1,
        "tid": 1,
        "name": name,
        "cat": category,
        "ts": _microseconds(at),
        "dur": _microseconds(ms),
    }


def _arena(at: float, used: int) -> Event:
    args: Event = {"bytes in use": used}
    return {"ph": "C", "pid": 1, "name": "arena", "ts": _microseconds(at), "args": args}


def _microseconds(ms: float) -> float:
    return round(1e6 * ms) / 1e3

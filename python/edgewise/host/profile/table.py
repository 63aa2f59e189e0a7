"""A profile as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAX_NODES = 15  # rows of the table of nodes
LIMIT_TEXTS = {
    "float32": "GFLOP/s in a large product of float32",
    "int8": "GOP/s in one of int8",
    "memory": "GB/s in summing 128 MB of memory",
}


def text(d: Mapping[str, Any]) -> str:
    """Formats what Profile.as_dict returned."""
    runs, threads = d["runs"], d["threads"]
    title = (
        f"{d['flavour']}, {threads} thread{'s' * (threads != 1)}: {runs}"
        f" run{'s' * (runs != 1)} of plans, {_ms(d['ms'])} ms in steps of"
        f" {_ms(d['wall_ms'])} ms"
    )
    if not runs:
        return title + ". Nothing ran while this profile watched."
    lines = [title, *_limits(d["limits"]), "", *_plans(d["plans"]), "", *_ops(d["ops"]), ""]
    return "\n".join([*lines, *_nodes(d["nodes"])])


def _limits(limits: Mapping[str, float | None]) -> list[str]:
    found = [f"{_rate(limits[name])} {what}" for name, what in LIMIT_TEXTS.items() if limits[name]]
    if not found:
        return ["limits here: not measured, for lack of memory or kernels"]
    return [
        f"limits here, by this engine's own kernels: {', '.join(found)}",
        "of limit: the time that this limit would allow over the time it took; cache: quicker"
        " than memory, so it was not read from there",
    ]


def _plans(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        [
            _short(p["plan"] or "plan"),
            str(p["runs"]),
            _ms(p["ms"]),
            _ms(p["ms"] / p["runs"]),
            _memory(p),
        ]
        for p in plans
    ]
    return _columns(["plan", "runs", "ms", "ms/run", "arena"], rows, flush_left=(0, 4))


def _ops(ops: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [[op["op"], str(op["calls"]), *_figures(op)] for op in ops]
    return _columns(
        ["operator", "calls", "ms", "share", "GOP/s", "GB/s", "limit", "of limit"], rows
    )


def _nodes(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        [
            _short(node["node"] or node["op"]),
            node["kernel"],
            _short(node["plan"] or "plan", 24),
            *_figures(node),
        ]
        for node in nodes[:MAX_NODES]
    ]
    header = ["node", "kernel", "plan", "ms", "share", "GOP/s", "GB/s", "limit", "of limit"]
    lines = _columns(header, rows, flush_left=(0, 1, 2))
    rest = nodes[MAX_NODES:]
    if rest:
        lines.append(f"and {len(rest)} more: {_ms(sum(node['ms'] for node in rest))} ms")
    return lines


def _figures(r: Mapping[str, Any]) -> list[str]:
    return [
        _ms(r["ms"]),
        f"{100 * r['share']:.1f} %",
        _rate(r["gops"]),
        _rate(r["gbs"]),
        r["limit"] or "",
        "" if r["of_limit"] is None else f"{100 * r['of_limit']:.0f} %",
    ]


def _memory(p: Mapping[str, Any]) -> str:
    if p["most_in_use"] is None:
        return _bytes(p["arena"])
    return (
        f"{_bytes(p['arena'])}, most in use {_bytes(p['most_in_use'])} at step {p['at'][0] + 1} of"
        f" {p['steps']} ({_short(p['at'][1])})"
    )


def _columns(
    header: list[str], rows: list[list[str]], flush_left: Sequence[int] = (0,)
) -> list[str]:
    """Lines of a table. flush_left: indices of the columns that are not right-aligned."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return [
        "  ".join(
            cell.ljust(width) if i in flush_left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    ]


def _short(name: str, most: int = 60) -> str:
    return name if len(name) <= most else "…" + name[1 - most :]


def _ms(x: float) -> str:
    return f"{x:.3f}" if x < 10 else f"{x:.1f}"


def _rate(x: float | None) -> str:
    return "" if x is None else f"{x:.2f}" if x < 10 else f"{x:.1f}"


def _bytes(n: float) -> str:
    return f"{n / 1e6:.1f} MB" if n >= 1e5 else f"{n / 1e3:.1f} kB"

"""A profile as text."""

from __future__ import annotations

MOST_NODES = 15


def text(d):
    """d: Profile.as_dict()."""
    many = d["threads"] != 1
    lines = [
        f"{d['flavour']}, {d['threads']} thread{'s' * many}: {d['runs']}"
        f" run{'s' * (d['runs'] != 1)} of plans, {_ms(d['ms'])} ms in steps of"
        f" {_ms(d['wall_ms'])} ms"
    ]
    if not d["runs"]:
        return lines[0] + ". Nothing ran while this profile watched."
    lines += _limits(d["limits"])
    lines += [
        "",
        *_columns(
            ["plan", "runs", "ms", "ms/run", "arena"],
            [
                [
                    _short(p["plan"] or "plan"),
                    str(p["runs"]),
                    _ms(p["ms"]),
                    _ms(p["ms"] / p["runs"]),
                    _memory(p),
                ]
                for p in d["plans"]
            ],
        ),
    ]
    lines += [
        "",
        *_columns(
            ["operator", "calls", "ms", "share", "GOP/s", "GB/s", "limit", "of limit"],
            [[r["op"], str(r["calls"]), *_figures(r)] for r in d["ops"]],
        ),
    ]
    shown = d["nodes"][:MOST_NODES]
    lines += [
        "",
        *_columns(
            ["node", "kernel", "plan", "ms", "share", "GOP/s", "GB/s", "limit", "of limit"],
            [
                [
                    _short(r["node"] or r["op"]),
                    r["kernel"],
                    _short(r["plan"] or "plan", 24),
                    *_figures(r),
                ]
                for r in shown
            ],
            3,
        ),
    ]
    if len(d["nodes"]) > len(shown):
        rest = d["nodes"][len(shown) :]
        lines.append(f"and {len(rest)} more: {_ms(sum(r['ms'] for r in rest))} ms")
    return "\n".join(lines)


def _limits(limits):
    """What times are compared with, in words."""
    found = [
        f"{_rate(limits[name])} {words}"
        for name, words in (
            ("float32", "GFLOP/s in a large product of float32"),
            ("int8", "GOP/s in one of int8"),
            ("memory", "GB/s in summing 128 MB of memory"),
        )
        if limits[name]
    ]
    if not found:
        return ["limits here: not measured, for lack of memory or kernels"]
    return [
        f"limits here, by this engine's own kernels: {', '.join(found)}",
        (
            "of limit: the time that this limit would allow over the time it took; cache: quicker"
            " than memory, so it was not read from there"
        ),
    ]


def _figures(r):
    return [
        _ms(r["ms"]),
        f"{100 * r['share']:.1f} %",
        _rate(r["gops"]),
        _rate(r["gbs"]),
        r["limit"] or "",
        "" if r["of_limit"] is None else f"{100 * r['of_limit']:.0f} %",
    ]


def _memory(p):
    if p["most_in_use"] is None:
        return _bytes(p["arena"])
    return (
        f"{_bytes(p['arena'])}, most in use {_bytes(p['most_in_use'])} at step {p['at'][0] + 1} of"
        f" {p['steps']} ({_short(p['at'][1])})"
    )


def _columns(head, rows, left=1):
    """Lines of a table; the first `left` columns flush left, and a last one of words."""
    words = head[-1] == "arena"
    width = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    return [
        "  ".join(
            c.ljust(w) if i < left or words and i == len(head) - 1 else c.rjust(w)
            for i, (c, w) in enumerate(zip(r, width))
        ).rstrip()
        for r in [head, *rows]
    ]


def _short(name, most=60):
    return name if len(name) <= most else "…" + name[1 - most :]


def _ms(x):
    return f"{x:.3f}" if x < 10 else f"{x:.1f}"


def _rate(x):
    return "" if x is None else f"{x:.2f}" if x < 10 else f"{x:.1f}"


def _bytes(n):
    return f"{n / 1e6:.1f} MB" if n >= 1e5 else f"{n / 1e3:.1f} kB"

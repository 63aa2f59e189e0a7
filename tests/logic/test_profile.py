"""Profiles, on both forms: sums that are worked out by hand, the text and the trace."""

import json

import pytest
from edgewise.logic.profile import Notes, PlanProfile, Recorded, Run

from .forms import both, module

LIMITS = {"float32": 100.0, "int8": None, "memory": 10.0}  # 10^9 per second


@pytest.fixture
def plans():
    """A plan with notes of three runs, where the work of the first step doubles, and one without
    notes, of one run.
    """
    notes = Notes(
        ["a", "b", "c"],
        ["MatMul", "MatMul", ""],
        [(2e8, 4e8), (1e8, 1e8), (0.0, 0.0)],
        [(1e6, 1e6), (5e6, 5e6), (9e7, 9e7)],
        [400, 123_456, 0],
        [False, True, False],
    )
    runs = [
        Run(0.0, [4.0, 2.0, 1.0], 0.0),
        Run(10.0, [6.0, 2.0, 1.0], 0.5),
        Run(20.0, [8.0, 2.0, 1.0], 1.0),
    ]
    return [
        PlanProfile("plan/1", 200_000, ["gemm", "gemm_int8", "copy"], notes, runs),
        PlanProfile("", 64, ["relu"], None, [Run(30.0, [15.0], 0.0)]),
    ]


@both
def test_sums(form, plans):
    """Work follows the register linearly: 200, 300 and 400 million operations, 3 ms at least each
    on average, in 18 ms. The second product has no limit that was measured but memory, which is
    5 MB in 2 ms where 10 GB/s take 0.5. A copy of 90 MB in 1 ms came from a cache.
    """
    logic = module(form, "profile")
    assert logic.count_runs(plans) == 4
    assert logic.total_ms(plans) == 42
    rows = logic.rows_by_node(plans, LIMITS)
    assert [(r.plan, r.node, r.op, r.kernel, r.calls, r.ms) for r in rows] == [
        ("plan/1", "a", "MatMul", "gemm", 3, 18),
        ("", "", "relu", "relu", 1, 15),
        ("plan/1", "b", "MatMul", "gemm_int8", 3, 6),
        ("plan/1", "c", "copy", "copy", 3, 3),
    ]
    assert [r.share for r in rows] == pytest.approx([18 / 42, 15 / 42, 6 / 42, 3 / 42])
    assert [r.operations for r in rows] == [9e8, 0, 3e8, 0]
    assert [r.bytes for r in rows] == [3e6, 0, 15e6, 27e7]
    assert [r.gops for r in rows] == [pytest.approx(50), None, pytest.approx(50), None]
    assert [r.gbs for r in rows] == [pytest.approx(1 / 6), None, *map(pytest.approx, (2.5, 90))]
    assert [r.limit for r in rows] == ["float32", None, "memory", "cache"]
    assert [r.of_limit for r in rows] == [pytest.approx(0.5), None, pytest.approx(0.25), None]
    product = logic.rows_by_op(plans, LIMITS)[0]
    assert (product.op, product.calls, product.ms, product.limit) == ("MatMul", 6, 24, "float32")
    assert product.of_limit == pytest.approx((9 + 1.5) / 24)
    nothing = logic.rows_by_op(plans, {})
    assert all(r.limit is r.of_limit is None for r in nothing)


@both
def test_plans_and_memory(form, plans):
    logic = module(form, "profile")
    assert [tuple(row) for row in logic.rows_by_plan(plans)] == [
        ("plan/1", 3, 3, 27, 200_000, 123_456, (1, "b")),
        ("", 1, 1, 15, 64, None, None),
    ]
    [row] = logic.memory_rows(plans)
    assert (row.plan, row.runs, row.ms, row.arena_bytes) == ("plan/1", 3, 9, 200_000)
    assert [tuple(step) for step in row.steps] == [
        ("a", "MatMul", 6, 400),
        ("b", "MatMul", 2, 123_456),
        ("c", "copy", 1, 0),
    ]


TEXT = """\
simd128, 2 threads: 4 runs of plans, 42.0 ms in steps of 50.0 ms
limits here, by this engine's own kernels: 100.0 GFLOP/s in a large product of float32, \
10.0 GB/s in summing 128 MB of memory
of limit: the time that this limit would allow over the time it took; cache: quicker than memory, \
so it was not read from there

plan    runs    ms  ms/run  arena
plan/1     3  27.0   9.000  0.2 MB, most in use 0.1 MB at step 2 of 3 (b)
plan       1  15.0    15.0  0.1 kB

operator  calls     ms   share  GOP/s  GB/s    limit  of limit
MatMul        6   24.0  57.1 %   50.0  0.75  float32      44 %
relu          1   15.0  35.7 %
copy          3  3.000   7.1 %         90.0    cache

node  kernel     plan       ms   share  GOP/s  GB/s    limit  of limit
a     gemm       plan/1   18.0  42.9 %   50.0  0.17  float32      50 %
relu  relu       plan     15.0  35.7 %
b     gemm_int8  plan/1  6.000  14.3 %   50.0  2.50   memory      25 %
c     copy       plan/1  3.000   7.1 %         90.0    cache"""


@both
def test_text(form, plans):
    logic = module(form, "profile")
    text = logic.profile_text(Recorded("simd128", 2, 50.0, LIMITS, plans))
    assert text == TEXT
    empty = logic.profile_text(Recorded("scalar", 1, 0.5, {}, []))
    assert empty == (
        "scalar, 1 thread: 0 runs of plans, 0.000 ms in steps of 0.500 ms. Nothing ran while this"
        " profile watched."
    )
    long = PlanProfile("", 64, [f"{'k' * 70}{i}" for i in range(17)], None, [])
    long.runs.append(Run(0.0, [1.0] * 17, 0.0))
    lines = logic.profile_text(Recorded("scalar", 1, 0.5, {}, [long])).split("\n")
    assert lines[1] == "limits here: not measured, for lack of memory or kernels"
    assert lines[-1] == "and 2 more: 2.000 ms"
    assert lines[-2].startswith("\u2026" + "k" * 57 + "14  " + "k" * 70 + "14  plan")


@both
def test_trace(form, plans):
    """As https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU says:
    times in microseconds, and the names of process and thread.
    """
    trace = json.loads(json.dumps(module(form, "profile").trace_of("simd128", 2, plans)))
    assert trace["displayTimeUnit"] == "ms"
    events = trace["traceEvents"]
    named = [e["args"]["name"] for e in events if e["ph"] == "M"]
    assert named == ["Edgewise (simd128, 2 threads)", "steps"]
    spans = [e for e in events if e["ph"] == "X"]
    assert [(e["name"], e["cat"], e["ts"], e["dur"]) for e in spans[4:8]] == [
        ("plan/1", "run", 10_000, 9000),
        ("MatMul", "gemm", 10_000, 6000),
        ("MatMul", "gemm_int8", 16_000, 2000),
        ("copy", "copy", 18_000, 1000),
    ]
    assert spans[5]["args"] == {"node": "a", "kernel": "gemm", "GOP/s": 50, "GB/s": 0.17}
    assert spans[-1]["args"] == {"node": "", "kernel": "relu"}
    used = [(e["ts"], e["args"]["bytes in use"]) for e in events if e["ph"] == "C"]
    assert used[:4] == [(0, 400), (4000, 123_456), (6000, 0), (7000, 0)]
    assert len(used) == 12

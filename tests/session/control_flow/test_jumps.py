"""If, Loop and Scan that are jumps in one plan, against onnxruntime."""

import random
import threading
import time

import edgewise
import numpy as np
import onnxruntime
import pytest
from edgewise.errors import Aborted, ModelError
from edgewise.session import RunOptions
from onnx import TensorProto as T

from .models import LOOP_IN, SCALAR, B, F, I, R, c, check, counting, graph, model, n, same, value


def plans_of(session):
    """(nodes that run between plans, kernels of its plans), its bodies included."""
    programs, hosts, kernels = list(session.programs.values()), [], []
    while programs:
        p = programs.pop()
        hosts += [u.node.op for u, _ in p.units if hasattr(u, "node")]
        kernels += [c.plan.kernels for u in p.every_part() for _, c in u.plans.values() if c]
        programs += p.bodies.values()
    return hosts, kernels


def one_plan(data, *feeds, plans=1):
    """`check`, and that nothing runs between plans."""
    check(data, *feeds)
    session = edgewise.InferenceSession(data)
    for f in feeds:
        session.run(None, f)
    hosts, kernels = plans_of(session)
    assert not hosts and len(kernels) == plans
    session.free()
    return kernels[0]


def less_than(limit):
    return [n("Add", "a b", "sum"), n("Identity", "b", "next"), n("Less", f"sum {limit}", "more")]


def fibonacci():
    """Carried values that change places."""
    body = graph(
        less_than("limit"),
        [*LOOP_IN, value("a", F, []), value("b", F, [])],
        [value("more", B, []), value("b", F, []), value("sum", F, [])],
    )
    return model(
        [n("Loop", "M go a0 b0", "y z", body=body)],
        [SCALAR, value("go", B, []), *(value(x, F, []) for x in ("a0", "b0", "limit"))],
        [value("y"), value("z")],
    )


def test_trip_counts_and_conditions_of_a_run():
    feeds = [
        {"M": np.array(m), "go": np.array(go), "limit": np.array(limit, "f4")}
        | {"a0": np.array(1, "f4"), "b0": np.array(2, "f4")}
        for m, go, limit in (
            (5, True, 1e9),
            (0, True, 1e9),
            (1, True, 1e9),
            (30, False, 1e9),
            (30, True, 40),
            (30, True, -1),
            (-3, True, 1e9),
        )
    ]
    kernels = one_plan(fibonacci(), *feeds)
    assert kernels.count("loop_begin") == kernels.count("loop_end") == 1


def test_carried_values_that_change_places():
    """A rotation of three, one of them transposed."""
    body = counting(
        [n("Transpose", "a", "t", perm=[1, 0])],
        [("a", "b", F, [2, 2]), ("b", "d", F, [2, 2]), ("d", "t", F, [2, 2])],
    )
    data = model(
        [n("Loop", "M  x y z", "p q r", body=body)],
        [SCALAR, *(value(v, F, [2, 2]) for v in "xyz")],
        [value(v) for v in "pqr"],
    )
    body.output[1].name, body.output[2].name = "b", "d"
    feeds = {v: R.standard_normal((2, 2)).astype("f4") for v in "xyz"}
    one_plan(data, *[{"M": np.array(m), **feeds} for m in (0, 1, 2, 3, 7)])


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_scan(axis, back):
    """Sequences of several lengths, of which the third has a plan for a range of lengths."""
    body = graph(
        [n("MatMul", "s W", "m"), n("Add", "m x", "a"), n("Tanh", "a", "h")]
        + [n("Mul", "h z", "out"), n("ReduceSum", "out", "total", keepdims=0)],
        [value("s", F, [1, 4]), value("x", F, [1, 4]), value("z", F, [4])],
        [value("h", F, [1, 4]), value("out", F, [1, 4]), value("total", F, [])],
    )
    attrs = {
        "num_scan_inputs": 2,
        "scan_input_axes": [axis, 0],
        "scan_input_directions": [back, 0],
        "scan_output_axes": [axis, 0],
        "scan_output_directions": [0, back],
    }
    shape = ["t", 1, 4] if axis == 0 else [1, "t", 4]
    data = model(
        [n("Scan", "h0 X Z", "hT Y T", body=body, **attrs), n("Relu", "Y", "out_of_it")],
        [value("h0", F, [1, 4]), value("X", F, shape), value("Z", F, ["t", 4])],
        [value("hT"), value("Y"), value("T"), value("out_of_it")],
        [c("W", R.standard_normal((4, 4)) * 0.3, np.float32)],
    )
    feeds = [
        {
            "h0": R.standard_normal((1, 4)).astype("f4"),
            "X": R.standard_normal([t if d == "t" else d for d in shape]).astype("f4"),
            "Z": R.standard_normal((t, 4)).astype("f4"),
        }
        for t in (3, 1, 6, 5, 40)
    ]
    check(data, *feeds)
    session = edgewise.InferenceSession(data)
    session.run(None, feeds[0])
    assert plans_of(session)[0] == []


def test_branches():
    """Of the same shapes: one plan. An output may be a value around it, or a constant."""
    then = graph([n("Mul", "x x", "a"), n("Add", "a w", "b")], [], [value("b"), value("a")])
    other = graph(
        [n("Identity", "x", "same"), n("Constant", "", "k", value=c("k", [9.0, 8, 7], np.float32))],
        [],
        [value("same"), value("k")],
    )
    data = model(
        [
            n("ReduceSum", "x", "total", keepdims=0),
            n("Greater", "total zero", "yes"),
            n("If", "yes", "p q", then_branch=then, else_branch=other),
            n("Add", "p q", "y"),
        ],
        [value("x", F, [3])],
        [value("y"), value("p"), value("q")],
        [c("zero", 0.0), c("w", [1, 2, 3], np.float32)],
    )
    kernels = one_plan(data, {"x": np.float32([1, 2, 3])}, {"x": np.float32([-1, -2, -3])})
    assert kernels.count("branch") == 2


def test_branches_of_other_shapes():
    """A condition from data that decides a shape: the session chooses the branch."""
    then = graph([n("Concat", "x x", "a", axis=0)], [], [value("a")])
    other = graph([n("Neg", "x", "b")], [], [value("b")])
    data = model(
        [
            n("ReduceSum", "x", "total", keepdims=0),
            n("Greater", "total zero", "yes"),
            n("If", "yes", "y", then_branch=then, else_branch=other),
        ],
        [value("x", F, [3])],
        [value("y")],
        [c("zero", 0.0)],
    )
    check(data, {"x": np.float32([1, 2, 3])}, {"x": np.float32([-1, -2, -3])})


def test_a_value_that_register_numbers_follow():
    """A number of a range of lengths that a branch reads first, and then the graph."""
    then = graph([n("Cast", "size", "f", to=F), n("Add", "f total", "a")], [], [value("a")])
    other = graph([n("Neg", "total", "b")], [], [value("b")])
    data = model(
        [
            n("Size", "x", "size"),
            n("ReduceSum", "x", "total", keepdims=0),
            n("Greater", "total zero", "yes"),
            n("If", "yes", "y", then_branch=then, else_branch=other),
            n("Cast", "size", "g", to=F),
            n("Add", "y g", "z"),
        ],
        [value("x", F, ["n"])],
        [value("y"), value("z")],
        [c("zero", 0.0)],
    )
    feeds = [{"x": np.full(k, v, "f4")} for k, v in ((2, -1), (3, -1), (4, -1), (5, 1), (6, -1))]
    check(data, *feeds)


def nested(rng, level, depth):
    """(nodes, name of the result) that compute [3] from `x{level}`, with loops and branches."""
    nodes, now = [], f"x{level}"
    for k in range(rng.randint(1, 3)):
        kind = rng.choice([simple, simple, chosen, looped, looped, scanned] if depth else [simple])
        out = f"v{level}_{k}"
        nodes += kind(rng, now, out, f"{level}{k}", depth - 1)
        now = out
    return nodes, now


def simple(rng, x, out, mark, depth):
    op = rng.choice([("Tanh", x), ("Sin", x), ("Add", f"{x} w"), ("Mul", f"{x} w")])
    return [n(*op, out)]


def chosen(rng, x, out, mark, depth):
    branches = {}
    for name in ("then_branch", "else_branch"):
        level = mark + name[0]
        inner, result = nested(rng, level, depth)
        last = n("Neg", result, f"{out}{level}")
        branches[name] = graph(
            [n("Identity", x, f"x{level}"), *inner, last], [], [value(f"{out}{level}", F, [3])]
        )
    total = n("ReduceSum", x, f"{out}s", keepdims=0)
    return [total, n("Less", f"{out}s zero", f"{out}c"), n("If", f"{out}c", out, **branches)]


def looped(rng, x, out, mark, depth):
    """A Loop of so many iterations, or while its value is small."""
    inner, result = nested(rng, mark, depth)
    ends = [n("Identity", f"go{mark}", f"on{mark}")]
    if rng.random() < 0.5:
        ends = [
            n("ReduceSum", result, f"t{mark}", keepdims=0),
            n("Less", f"t{mark} one", f"on{mark}"),
        ]
    body = graph(
        [n("Cast", f"i{mark}", f"f{mark}", to=F), *inner]
        + [n("Add", f"{result} f{mark}", f"r{mark}"), *ends],
        [value(f"i{mark}", I, []), value(f"go{mark}", B, []), value(f"x{mark}", F, [3])],
        [value(f"on{mark}", B, []), value(f"r{mark}", F, [3])],
    )
    return [n("Loop", f"{rng.choice(['M', 'two'])}  {x}", out, body=body)]


def scanned(rng, x, out, mark, depth):
    inner, result = nested(rng, mark, depth)
    body = graph(
        [n("Add", f"h{mark} e{mark}", f"x{mark}"), *inner]
        + [n("Identity", result, f"r{mark}"), n("Neg", result, f"o{mark}")],
        [value(f"h{mark}", F, [3]), value(f"e{mark}", F, [3])],
        [value(f"r{mark}", F, [3]), value(f"o{mark}", F, [3])],
    )
    return [
        n("Scan", f"{x} rows", f"{out}a {out}b", body=body, num_scan_inputs=1),
        n("ReduceSum", f"{out}b axis", f"{out}c", keepdims=0),
        n("Add", f"{out}a {out}c", out),
    ]


@pytest.mark.parametrize("seed", range(24))
def test_nested_at_random(seed):
    """Loops, scans and branches in each other, which read values of all levels around them."""
    rng = random.Random(seed)
    nodes, result = nested(rng, "", 3)
    data = model(
        [*nodes, n("Add", f"{result} w", "y")],
        [SCALAR, value("x", F, [3]), value("w", F, [3]), value("rows", F, ["k", 3])],
        [value("y")],
        [c("zero", 0.0), c("one", 1.0), c("two", 2, np.int64), c("axis", [0], np.int64)],
    )
    session = edgewise.InferenceSession(data)
    other = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for m, k in ((2, 2), (0, 2), (3, 2), (1, 3), (4, 5), (2, 4)):
        feeds = {"M": np.array(m), "x": R.standard_normal(3).astype("f4")}
        feeds |= {"w": R.standard_normal(3).astype("f4") * 0.5}
        feeds |= {"rows": R.standard_normal((k, 3)).astype("f4")}
        (got,), (want,) = (s.run(None, feeds) for s in (session, other))
        same(got, want, rtol=1e-3)
    hosts, _ = plans_of(session)
    assert not hosts


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_constants_of_the_graph_and_of_bodies(kind):
    """Also what is computed from constants, halves, and constants of one name in two bodies."""
    type_, big = (F if kind is np.float32 else T.FLOAT16), R.standard_normal((3, 48, 48)) * 0.2

    def body(k, mark):
        return counting(
            [n("MatMul", f"s{mark} W", f"a{mark}"), n("MatMul", f"a{mark} Wt", f"b{mark}")]
            + [n("MatMul", f"b{mark} own", f"t{mark}")],
            [(f"s{mark}", f"t{mark}", type_, [1, 48])],
            constants=[c("own", big[k], kind)],
            level=mark,
        )

    data = model(
        [
            n("Transpose", "W", "Wt", perm=[1, 0]),
            n("Loop", "M  x", "y", body=body(0, "")),
            n("Loop", "two  x", "z", body=body(1, "2")),
        ],
        [SCALAR, value("x", type_, [1, 48])],
        [value("y", type_), value("z", type_)],
        [c("W", big[2], kind), c("two", 2, np.int64)],
    )
    session = edgewise.InferenceSession(data)
    other = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for m in (0, 1, 3):
        feeds = {"M": np.array(m), "x": R.standard_normal((1, 48)).astype(kind)}
        for got, want in zip(session.run(None, feeds), other.run(None, feeds)):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-4 if type_ == F else 0.05, atol=1e-2)


def slow_loop():
    """Ends only by its trip count; an iteration takes about a millisecond."""
    body = counting([n("MatMul", "s w", "t")], [("s", "t", F, [256, 256])])
    data = model(
        [n("Loop", "M  x", "y", body=body)],
        [SCALAR, value("x", F, [256, 256]), value("w", F, [256, 256])],
        [value("y")],
    )
    eye = np.eye(256, dtype="f4")
    return data, {"x": eye, "w": eye}


def test_a_loop_is_stopped_in_the_middle():
    data, feeds = slow_loop()
    options = edgewise.SessionOptions()
    options.max_loop_trips = 1 << 31
    session, run = edgewise.InferenceSession(data, options), RunOptions()
    same(session.run(None, {"M": np.array(2), **feeds}), [feeds["x"]])
    timer = threading.Timer(0.2, lambda: setattr(run, "terminate", True))
    timer.start()
    began = time.perf_counter()
    with pytest.raises(Aborted):
        session.run(None, {"M": np.array(1 << 30), **feeds}, run)
    assert time.perf_counter() - began < 60
    same(session.run(None, {"M": np.array(3), **feeds}), [feeds["x"]])


def test_iterations_are_limited():
    """Of all loops of a run together, also of a recorded run and of one that goes on later."""
    options = edgewise.SessionOptions()
    options.max_loop_trips = 100
    session = edgewise.InferenceSession(fibonacci(), options)
    feeds = {"go": np.array(True), "a0": np.array(0, "f4"), "b0": np.array(0, "f4")}
    feeds["limit"] = np.array(1, "f4")
    for _ in range(3):
        session.run(None, {"M": np.array(100), **feeds})
        with pytest.raises(ModelError, match=r"the_y.*100 iterations.*max_loop_trips"):
            session.run(None, {"M": np.array(101), **feeds})


def test_two_sessions_at_once():
    """Each runs a loop in an engine of both, in threads."""
    sessions = [edgewise.InferenceSession(fibonacci()) for _ in range(2)]
    feeds = {"go": np.array(True), "a0": np.array(0, "f4"), "limit": np.array(1e30, "f4")}
    wrong = []

    def work(session, b):
        for m in range(40):
            got = session.run(None, {"M": np.array(m), "b0": np.array(b, "f4"), **feeds})
            x, y = 0, b
            for _ in range(m):
                x, y = y, x + y
            if not np.allclose(got, [x, y]):
                wrong.append((m, got))

    threads = [threading.Thread(target=work, args=(s, b)) for s, b in zip(sessions, (1, 3))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_profiles_count_the_time_of_all_iterations():
    session = edgewise.InferenceSession(fibonacci())
    feeds = {"go": np.array(True), "a0": np.array(0, "f4"), "b0": np.array(1, "f4")}
    feeds |= {"limit": np.array(1e30, "f4"), "M": np.array(7)}
    session.run(None, feeds)
    (loaded,) = [
        c.loaded
        for p in session.programs.values()
        for u in p.every_part()
        for _, c in u.plans.values()
    ]
    seconds = loaded.run_timed()
    assert len(seconds) == len(loaded.plan.kernels) and min(seconds) >= 0
    assert loaded.limit_trips(1 << 20) == 7


@pytest.mark.parametrize("op", ["If", "Loop"])
def test_nodes_in_any_order(op):
    """Files that converters append to: a subgraph reads what a node further down computes."""
    if op == "If":
        branches = {
            name: graph([n(what, "late x", "t")], [], [value("t", F, ["n"])])
            for name, what in (("then_branch", "Add"), ("else_branch", "Sub"))
        }
        nodes, inputs = [n("If", "go", "y", **branches)], [value("go", B, [])]
    else:
        body = counting([n("Add", "s late", "t")], [("s", "t", F, None)])
        nodes, inputs = [n("Loop", "M  x", "y", body=body)], [SCALAR]
    nodes = [n("Mul", "x later", "late"), n("Exp", "x", "later"), *nodes]
    data = model(nodes, [value("x", F, ["n"]), *inputs], [value("y", F, None)])
    feeds = {"x": np.arange(3, dtype="f4")}
    last = {"If": [("go", np.array(True)), ("go", np.array(False))], "Loop": [("M", np.array(3))]}
    check(data, *({**feeds, k: v} for k, v in last[op]))

"""Profiles: what they count, what they print and the trace they write. Never how fast anything
is.
"""

import io
import json

import edgewise
import numpy as np
import onnx
import pytest
from edgewise.compiler.plan.notes import NOTES, StepNotes, add_notes, read_notes
from edgewise.errors import InputError, StorageError
from edgewise.host.session.decoder import open_package
from edgewise.onnx import BytesSource
from edgewise.package import Package
from edgewise.training.adapters import CausalLM
from onnx import TensorProto, helper, numpy_helper
from zoo.zoo import OWN, causal_lms

RNG = np.random.default_rng(0)
LM = next(m for m in causal_lms() if m.name.startswith("models/"))


def weight(name, *shape):
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name)


@pytest.fixture(scope="module")
def network():
    """(model bytes, feeds): a convolution, a product, attention."""
    q = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (
            ("x", [2, 3, 9, 9]),
            ("q", [1, 4, 6, 8]),
            ("k", [1, 4, 10, 8]),
            ("v", [1, 4, 10, 16]),
        )
    ]
    nodes = [
        helper.make_node(
            "Conv", ["x", "cw"], ["c"], name="conv", strides=[2, 2], pads=[1, 1, 1, 1]
        ),
        helper.make_node("Relu", ["c"], ["r"], name="bend"),
        helper.make_node("Flatten", ["r"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "gw"], ["y"], name="dense"),
        helper.make_node("Attention", ["q", "k", "v"], ["z"], name="look"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        q,
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 7]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 4, 6, 16]),
        ],
        [weight("cw", 6, 3, 3, 3), weight("gw", 6 * 25, 7)],
    )
    feeds = {
        i.name: (
            RNG.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(
                np.float32
            )
        )
        for i in q
    }
    return (
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10
        ).SerializeToString(),
        feeds,
    )


def check(p):
    """What is true of every profile of something that ran."""
    d = json.loads(json.dumps(p.as_dict()))
    total = sum(x["ms"] for x in d["plans"])
    assert (
        d["runs"] == p.runs == sum(x["runs"] for x in d["plans"]) > 0
        and d["ms"] == pytest.approx(total)
        and d["wall_ms"] >= total
    )
    for rows in (d["ops"], d["nodes"]):
        assert sum(r["ms"] for r in rows) == pytest.approx(total) and sum(
            r["share"] for r in rows
        ) == pytest.approx(1)
        assert sum(r["calls"] for r in rows) == sum(x["runs"] * x["steps"] for x in d["plans"])
        assert [r["ms"] for r in rows] == sorted((r["ms"] for r in rows), reverse=True)
        assert all((r["gops"] is not None) == (r["operations"] > 0 and r["ms"] > 0) for r in rows)
        assert all(
            r["limit"] in ("float32", "int8", "memory", "cache")
            and (r["of_limit"] is None) == (r["limit"] == "cache")
            for r in rows
        )
    assert set(d["limits"]) == {"float32", "int8", "memory"} and all(
        x > 0 for x in d["limits"].values()
    )
    trace = json.loads(json.dumps(p.trace()))
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert {e["ph"] for e in trace["traceEvents"]} <= {"M", "X", "C"} and all(
        set(e) >= {"name", "cat", "ts", "dur", "pid", "tid"} and e["ts"] >= 0 and e["dur"] >= 0
        for e in spans
    )
    assert len(spans) == sum(x["runs"] * (1 + x["steps"]) for x in d["plans"])
    begin = end = 0
    for e in spans:
        if e["cat"] == "run":
            begin, end = e["ts"], e["ts"] + e["dur"]
        else:
            assert begin - 0.01 <= e["ts"] and e["ts"] + e["dur"] <= end + 0.1
    text = str(p)
    assert all(
        w in text
        for w in ("operator", "of limit", "node", "arena", d["ops"][0]["op"], d["flavour"])
    )
    widths = [len(line) for line in text.splitlines()]
    assert max(widths) < 260
    return d


def test_operations_are_those_that_pytorch_counts(network):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model, feeds = network
    proto = onnx.load_from_string(model)
    w = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in proto.graph.initializer}
    t = {n: torch.from_numpy(x) for n, x in feeds.items()}
    want = {}
    for name, f in {
        "conv": lambda: torch.conv2d(t["x"], w["cw"], stride=2, padding=1),
        "dense": lambda: torch.zeros(2, 150) @ w["gw"],
        "look": lambda: torch.matmul(torch.matmul(t["q"], t["k"].transpose(2, 3)), t["v"]),
    }.items():
        with FlopCounterMode(display=False) as counter:
            f()
        want[name] = counter.get_total_flops()
    session = edgewise.InferenceSession(model)
    before = session.run(None, feeds)
    p = session.profile(feeds, runs=3)
    d = check(p)
    assert d["runs"] == 3
    assert {r["node"]: r["operations"] // 3 for r in d["nodes"] if r["operations"]} == want
    dense = next(r for r in d["nodes"] if r["node"] == "dense")
    assert dense["bytes"] == 3 * 4 * (2 * 150 + 150 * 7 + 2 * 7)
    for a, b in zip(before, session.run(None, feeds)):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def kinds():
    """A profile of products of floats and of bytes, of 4-bit weights at both accuracies, and of
    what only moves bytes.
    """
    rows, k, n = 32, 64, 48
    nbits = {"K": k, "N": n, "bits": 4, "block_size": 32, "domain": "com.microsoft"}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["floats"], name="floats"),
        helper.make_node("MatMulNBits", ["x", "q", "s"], ["exact"], name="exact", **nbits),
        helper.make_node(
            "MatMulNBits", ["x", "q", "s"], ["quick"], name="quick", accuracy_level=4, **nbits
        ),
        helper.make_node("MatMulInteger", ["b", "c"], ["bytes"], name="bytes"),
        helper.make_node("Softmax", ["x"], ["soft"], name="soft"),
    ]
    feeds = {
        "x": RNG.standard_normal((rows, k)).astype(np.float32),
        "b": RNG.integers(0, 255, (rows, k), np.uint8),
    }
    graph = helper.make_graph(
        nodes,
        "kinds",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, k]),
            helper.make_tensor_value_info("b", TensorProto.UINT8, [rows, k]),
        ],
        [
            helper.make_tensor_value_info(o, t, None)
            for o, t in (
                ("floats", TensorProto.FLOAT),
                ("exact", TensorProto.FLOAT),
                ("quick", TensorProto.FLOAT),
                ("bytes", TensorProto.INT32),
                ("soft", TensorProto.FLOAT),
            )
        ],
        [
            weight("w", k, n),
            numpy_helper.from_array(RNG.integers(0, 255, (n, 2, 16), np.uint8), "q"),
            weight("s", n * 2),
            numpy_helper.from_array(RNG.integers(-9, 9, (k, n), np.int8), "c"),
        ],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
        ir_version=9,
    )
    return edgewise.InferenceSession(model.SerializeToString()).profile(feeds, runs=2)


def test_what_steps_are_compared_with(kinds):
    """Each step has the limit of its arithmetic, or memory, whichever is lower."""
    check(kinds)
    kinds._limits = {"float32": 1e-3, "int8": 2e-3, "memory": 1e9}
    rows = {r["node"]: r for r in kinds.by_node()}
    assert {n: r["limit"] for n, r in rows.items()} == {
        "floats": "float32",
        "exact": "float32",
        "quick": "int8",
        "bytes": "int8",
        "soft": "memory",
    }
    for _name, r in rows.items():
        least = (
            r["operations"] / 1e9 / kinds._limits[r["limit"]]
            if r["operations"]
            else r["bytes"] / 1e18
        )
        assert r["of_limit"] == pytest.approx(1000 * least / r["ms"])
    both = next(r for r in kinds.by_op() if r["op"] == "MatMulNBits")
    assert both["of_limit"] == pytest.approx(
        sum(rows[n]["of_limit"] * rows[n]["ms"] for n in ("exact", "quick")) / both["ms"]
    )


def test_operands_in_a_cache(kinds):
    """What is quicker than memory could be was not read from there: its operations are compared, or
    nothing is.
    """
    kinds._limits = {"float32": 1.0, "int8": 1.0, "memory": 1e-9}
    rows = {r["node"]: r for r in kinds.by_node()}
    assert {n: r["limit"] for n, r in rows.items()} == {
        "floats": "float32",
        "exact": "float32",
        "quick": "int8",
        "bytes": "int8",
        "soft": "cache",
    }
    assert rows["soft"]["of_limit"] is None and "cache" in str(kinds)


def test_without_limits(kinds):
    """An engine made without a kernel, or without the memory."""
    kinds._limits = {"float32": 1.0, "int8": None, "memory": None}
    assert {r["node"]: r["limit"] for r in kinds.by_node()} == {
        "floats": "float32",
        "exact": "float32",
        "quick": None,
        "bytes": None,
        "soft": None,
    }
    kinds._limits = dict.fromkeys(kinds._limits)
    assert all(
        r["limit"] is r["of_limit"] is None for r in kinds.by_op()
    ) and "not measured" in str(kinds)


def test_watching(network):
    model, feeds = network
    session, other = edgewise.InferenceSession(model), edgewise.InferenceSession(model)
    with session.profile() as p:
        session.run(["y"], feeds)
        other.run(None, feeds)
        with pytest.raises(InputError, match="another profile is active"), session.profile():
            pass
    session.run(None, feeds)
    assert p.runs == 1 and len(p.by_plan()) == 1
    with p:
        session.run(["y"], feeds)
    assert p.runs == 2
    with pytest.raises(ZeroDivisionError), session.profile():
        raise ZeroDivisionError
    with session.profile() as nothing:
        pass
    assert (
        nothing.runs == 0
        and "Nothing ran" in str(nothing)
        and len(nothing.trace()["traceEvents"]) == 2
    )


def test_where_it_cannot_be_written(network, tmp_path):
    model, feeds = network
    p = edgewise.InferenceSession(model).profile(feeds, runs=1)
    for path, error in (
        (tmp_path, StorageError),
        (tmp_path / "none" / "t.json", StorageError),
        (None, InputError),
        (1, InputError),
    ):
        with pytest.raises(error):
            p.save(path)


def test_memory_in_use(network):
    """Within the arena, and at its most where the largest tensors live together."""
    model, feeds = network
    session = edgewise.InferenceSession(model)
    p = session.profile(feeds, runs=1)
    plan = next(iter(session.plans.values())).plan
    assert (
        max(plan.notes.in_use) <= plan.arena_bytes
        and len(plan.notes) == len(plan.kernels) - plan.init_count
    )
    row = p.by_plan()[0]
    assert [(s[0], s[3]) for s in p.memory()[0]["steps"]] == list(
        zip(plan.notes.node, plan.notes.in_use)
    ) and p.memory()[0]["ms"] == pytest.approx(row["ms"])
    assert (
        row["most_in_use"] == max(plan.notes.in_use) >= 4 * 2 * 6 * 25
        and row["arena"] == plan.arena_bytes
    )


def test_language_model_and_its_package(tmp_path):
    package = open_package(LM.path, capacity=40)
    lm = CausalLM(package)
    with lm.profile() as p:
        s = lm.open()
        lm.forward(s, [1, 2, 3])
        for _ in range(4):
            lm.forward(s, [5])
    d = check(p)
    data = io.BytesIO()
    package.write(data)
    again = CausalLM(Package.read(BytesSource(data.getvalue(), "model.edge")))
    with again.profile() as q:
        s = again.open()
        again.forward(s, [1, 2, 3])
        for _ in range(4):
            again.forward(s, [5])
    e = check(q)
    work = lambda x: sorted(
        (r["plan"], r["node"], r["kernel"], r["calls"], r["operations"], r["bytes"])
        for r in x["nodes"]
    )  # noqa: E731
    assert work(d) == work(e) and {x["plan"] for x in d["plans"]} <= {
        "plan/1",
        "plan/16",
        "plan/40",
    }
    q.save(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text()) == json.loads(json.dumps(q.trace()))
    growing = [lm for lm in read_notes(package.file(NOTES))["plan/1"].operations if lm[0] != lm[1]]
    assert growing, "attention's work grows with the cache"


@pytest.mark.parametrize("damage", [b"", b"x", b"deflated?", "names", "short"])
def test_damaged_notes(damage):
    """Then a profile knows kernels only."""
    package = open_package(LM.path, capacity=40)
    if damage == "short":
        package.blobs[NOTES] = add_notes(
            None, {"plan/1": StepNotes(["a"], ["B"], [[1, 1]], [[2, 2]], [3])}
        )
    elif damage == "names":
        import zlib

        package.blobs[NOTES] = zlib.compress(
            json.dumps(
                {
                    "names": [],
                    "plans": {
                        "plan/1": {
                            "node": [99],
                            "op": [0],
                            "operations": [],
                            "bytes": [],
                            "in_use": [],
                        }
                    },
                }
            ).encode()
        )
    else:
        package.blobs[NOTES] = damage
    lm = CausalLM(package)
    with lm.profile() as p:
        lm.forward(lm.open(), [1])
    d = p.as_dict()
    assert {r["op"] for r in d["ops"]} == {r["kernel"] for r in d["nodes"]} and all(
        r["of_limit"] is None for r in d["ops"]
    )
    assert d["plans"][0]["most_in_use"] is None and str(p) and p.trace() and p.memory() == []


def test_pipeline_and_trainer():
    pipe = edgewise.pipeline("text-generation", "web/demo/model")
    p = pipe.profile("Once upon a time", max_new_tokens=5, do_sample=False)
    assert (
        5 <= check(p)["runs"] <= 9
    )  # four after the first token; the prompt at once or token by token, whichever is quicker
    trainer = edgewise.Trainer(
        "web/demo/model",
        adapters=edgewise.LoraConfig(r=2, lora_alpha=4, target_modules="all-linear"),
        batch_size=1,
        sequence_length=16,
    )
    with trainer.profile() as t:
        trainer.fit(["The cat sat on the mat and looked at the moon. " * 3], max_steps=2)
        trainer.generate("Once", max_new_tokens=2, do_sample=False)
    d = check(t)
    assert {"train", "plan/1"} <= {x["plan"] for x in d["plans"]} and next(
        x for x in d["plans"] if x["plan"] == "train"
    )["runs"] == 2
    assert any(r["op"].endswith("Grad") and r["operations"] for r in d["ops"])


def test_every_zoo_model_of_ours_has_notes():
    for path in sorted(OWN.rglob("*.onnx")):
        from zoo.zoo import Model

        m = Model(path, OWN.parent)
        session = edgewise.InferenceSession(str(path))
        check(session.profile(m.feeds, runs=1))

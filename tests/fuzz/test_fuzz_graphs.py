"""A few hundred random graphs on each engine, and that the fuzzer notices what is wrong.

`make fuzz FUZZ_GRAPHS=100000` runs more of them.
"""

import numpy as np
import pytest
from edgewise.engine.native import NativeEngine
from edgewise.host.session.direct import DirectRun
from gpu.adapters import gpu
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .check import check, compared, references
from .fuzz_graphs import graphs_campaign
from .generate import generate
from .graph import Run
from .reference import Reference
from .shrink import shrink

GRAPHS = {"native": 240, "wasm": 60, "gpu": 2}


@pytest.mark.parametrize("engine", GRAPHS)
def test_campaign(engine):
    """Other numbers than onnxruntime's, damaged plans and crashes are findings."""
    if engine == "gpu":
        gpu(serial=True)  # skips
    lines = []
    counts, findings = graphs_campaign(GRAPHS[engine], engine=engine, seed=7, each=lines.append)
    assert not findings, "\n".join(findings)
    runs = sum(sum(line["runs"].values()) for line in lines)
    agree = sum(line["runs"].get("agree", 0) for line in lines)
    assert len(lines) == GRAPHS[engine] and agree > 0.9 * runs, counts
    assert not counts["only edgewise refuses"], [x for x in lines if "refuses" in x["kind"]]
    if engine == "native":  # of the others, Python cannot access the memory
        assert sum(line["recorded"] for line in lines) > 0.1 * runs


def test_a_case_depends_on_its_number_alone():
    a, b = generate(5), generate(5)
    assert a.model.SerializeToString() == b.model.SerializeToString()
    for x, y in zip(a.runs, b.runs, strict=True):
        np.testing.assert_equal(x.feeds, y.feeds)
        assert x.names == y.names


def test_old_numbers_of_recorded_runs_are_found(monkeypatch):
    """A session that answers recorded runs with what it gave before is noticed, though it is right
    in the first run of each shape.
    """
    right, engine = DirectRun.run, NativeEngine(threads=1)

    def run(self, feeds):
        self.old = getattr(self, "old", None) or right(self, feeds)
        return self.old

    monkeypatch.setattr(DirectRun, "run", run)
    found = [check(c.model, c.runs, engine).kind for c in map(generate, range(12))]
    assert "differ" in found
    monkeypatch.undo()
    assert "differ" not in [check(c.model, c.runs, engine).kind for c in map(generate, range(12))]


def small_graph(nodes, inputs, initializers=()):
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in inputs.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(o) for node in nodes[-1:] for o in node.output]
    tensors = [numpy_helper.from_array(x, n) for n, x in dict(initializers).items()]
    graph = helper.make_graph(nodes, "g", infos, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


INTEGERS = {
    "MatMulInteger": ((3, 40), (40, 5), {}),
    "ConvInteger": ((2, 3, 6, 6), (4, 3, 3, 3), {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2]}),
    "QLinearMatMul": ((3, 40), (40, 5), {}),
    "QLinearConv": ((2, 3, 6, 6), (4, 3, 3, 3), {"kernel_shape": [3, 3], "strides": [2, 1]}),
}


@pytest.mark.parametrize("op", INTEGERS)
def test_the_reference_multiplies_bytes_exactly(op):
    """Against ONNX's reference: onnxruntime's own products saturate on some processors."""
    shape, weights, attrs = INTEGERS[op]
    rng = np.random.default_rng(1)
    x, w = rng.integers(150, 256, shape).astype("u1"), rng.integers(90, 128, weights).astype("i1")
    zero, zeros = np.uint8(130), np.int8(101)
    scales = {"sx": np.float32(0.02), "sw": np.float32(0.01), "sy": np.float32(0.7)}
    names = ["x", "w", "zx", "zw"]
    constants = {"w": w, "zx": np.array(zero), "zw": np.array(zeros)}
    if op.startswith("Q"):
        names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zx"]
        constants |= {name: np.array(value) for name, value in scales.items()}
    model = small_graph([helper.make_node(op, names, ["y"], **attrs)], {"x": x}, constants)
    got, want = (
        Reference(model).run(Run({"x": x}, None))[0],
        ReferenceEvaluator(model).run(None, {"x": x})[0],
    )
    assert got.dtype == want.dtype
    if op.startswith("Q"):  # what lies in the middle of two bytes may be rounded to either
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
        assert (got == want).mean() > 0.9 and len(np.unique(want)) > 3
    else:
        np.testing.assert_array_equal(got, want)


def test_rounding_is_no_difference():
    """A step between two floats that rounding separates: another answer there is no finding, one
    elsewhere is.
    """
    x = np.array([1.0, 1.0, 5.0], np.float32)
    third = np.float32(1 / 3)
    nodes = [
        helper.make_node("Mul", ["x", "third"], ["a"]),
        helper.make_node("Sub", ["a", "third"], ["b"]),
        helper.make_node("Sign", ["b"], ["y"]),
    ]
    model = small_graph(nodes, {"x": x}, {"third": np.array(third)})
    run = Run({"x": x}, None)
    (want,) = references(model, [run])
    near, far = want[0].copy(), want[0].copy()
    near[0], far[2] = -1, -1
    assert compared(model, run, want, want)[0] == "agree"
    assert compared(model, run, [near], want)[0] == "sensitive"
    assert compared(model, run, [far], want)[0] == "differ"


def test_shrinking():
    """What is left: the node that fails, one run, one output."""

    def fails(model, runs):
        soft = any(n.op_type == "Softmax" for n in model.graph.node)
        return soft and not any(isinstance(w, str) for w in references(model, runs))

    case = next(c for c in map(generate, range(200)) if fails(c.model, c.runs))
    model, runs = shrink(case.model, case.runs, fails)
    assert [n.op_type for n in model.graph.node] == ["Softmax"]
    assert len(runs) == 1 and len(model.graph.output) == 1 and len(case.model.graph.node) > 1

"""Tunables of shaders: each value computes what others do, and the fastest right one is taken."""

import math

import numpy as np
import pytest
from edgewise import InferenceSession
from edgewise.compiler.gpu.gen.shaders import TUNABLES
from edgewise.compiler.gpu.tuned import tunings
from edgewise.engine.native import NativeEngine
from edgewise.host.webgpu import tuning
from edgewise.logic.gpu.tuning import ABSURD, MAX_MS, ROUNDS, WORTH, Trial, fastest, rounds_of
from onnx import TensorProto, helper, numpy_helper
from ops.harness import all_cases
from zoo.zoo import OWN

from .adapters import gpu
from .test_models_on_gpu import greedy
from .test_ops_on_gpu import run

VALUES = [(t.name, value) for t in tunings() for value in t.values[1:]]
R = np.random.default_rng(8)


@pytest.fixture
def engine(monkeypatch):
    engine = gpu()
    monkeypatch.setattr(engine, "tuned", {})
    return engine


def stages(engine):
    """The shaders of the steps of its plans."""
    launches = [x for plan in engine.plans for x in plan.launches if x is not None]
    return {(stage.name, x.step.values([])["m"]) for x in launches for stage in x.stages}


def product(m, k, n, bits, block, zeros, more, **attributes):
    """(model, x, y in float64) of a product of quantized weights."""
    blocks = -(-k // block)
    w = R.integers(0, 1 << bits, (n, blocks, block))
    fields = w.reshape(n, blocks, -1, 8 // bits) << (np.arange(8 // bits) * bits)
    scales = R.standard_normal((n, blocks)).astype("f4")
    zero = np.full((n, blocks), 1 << (bits - 1), "f4")
    weights = {"w": fields.sum(-1).astype(np.uint8), "s": scales.reshape(-1)}
    if zeros:
        zero = weights["z"] = R.uniform(0, 1 << bits, (n, blocks)).astype("f4")
    b = ((w - zero[..., None]) * scales[..., None].astype("f8")).reshape(n, -1)[:, :k]
    x = R.standard_normal((m, k)).astype("f4")
    y = x @ b.T
    inputs = ["x", "w", "s", "z" if zeros else "", "", "bias" if more else ""]
    if more:
        weights["bias"] = R.standard_normal(n).astype("f4")
        y = y + weights["bias"]
    sizes = {"K": k, "N": n, "bits": bits, "block_size": block, **attributes}
    nodes = [helper.make_node("MatMulNBits", inputs, ["y"], domain="com.microsoft", **sizes)]
    value, F = helper.make_tensor_value_info, TensorProto.FLOAT
    held = [numpy_helper.from_array(x, name) for name, x in weights.items()]
    graph = helper.make_graph(
        nodes, "g", [value("x", F, [m, k])], [value("y", F, [m, n])], initializer=held
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), x, y


PRODUCTS = {  # k, n, bits, block, zeros, bias
    "4 bits": (96, 50, 4, 32, False, False),
    "zeros": (320, 67, 4, 32, True, True),
    "a block of 128": (384, 33, 4, 128, False, True),
    "half a block": (112, 70, 4, 32, True, False),
    "2 bits": (256, 41, 2, 64, False, False),
    "8 bits": (160, 35, 8, 32, True, False),
    "a block of 64": (1536, 9, 4, 64, False, False),
}


@pytest.mark.parametrize("name, value", [x for x in VALUES if x[0] in ("WIDE", "TILE")])
@pytest.mark.parametrize("case", PRODUCTS)
def test_products(engine, name, value, case):
    engine.tuned = {name: value}
    k, n, *rest = PRODUCTS[case]
    for m in (1,) if name == "WIDE" else (9, 70):
        model, x, y = product(m, k, n, *rest)
        session = InferenceSession(model.SerializeToString(), engine=engine)
        (got,) = session.run(None, {"x": x})
        assert np.linalg.norm(got - y) <= 1e-5 * np.linalg.norm(y)
        expected = {"WIDE": "matmul_nbits.wide", "TILE": "matmul_nbits.tiled"}[name]
        assert expected in {stage for stage, _ in stages(engine)}
        session.free()


@pytest.mark.parametrize("k, n, block, zeros", [(96, 50, 32, False), (384, 33, 128, True)])
def test_products_of_rounded_rows(engine, k, n, block, zeros):
    """At accuracy_level 4 blocks of a are rounded to bytes."""
    engine.tuned, m = {"BYTES": 32}, 41
    model, x, _ = product(m, k, n, 4, block, zeros, False, accuracy_level=4)
    x[3, :block], x[4, 0] = 0, 100
    blocks = x.reshape(m, -1, block)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    whole = np.rint(blocks / np.where(scale == 0, 1, scale))
    # the product of these numbers, by the shader for floats
    exact = (whole * scale).reshape(m, k).astype("f4")
    session = InferenceSession(model.SerializeToString(), engine=engine)
    (got,) = session.run(None, {"x": x})
    assert "matmul_nbits.bytes" in {stage for stage, _ in stages(engine)}
    session.free()
    engine.tuned = {}
    session = InferenceSession(model.SerializeToString(), engine=engine)
    (want,) = session.run(None, {"x": exact})
    session.free()
    assert np.linalg.norm(got - want) <= 1e-4 * np.linalg.norm(want)


OPS = {"matmul_nbits": ["ms.MatMulNBits"]}
OPS["attention"] = ["Attention", "ms.GroupQueryAttention", "ms.MultiHeadAttention"]
CASES = {"matmul_nbits": 4, "attention": 8}  # of each


@pytest.mark.parametrize("name, value", VALUES)
def test_ops(engine, name, value):
    """Against onnxruntime."""
    engine.tuned, wrong = {name: value}, {}
    kernel = next(kernel for kernel, of in TUNABLES.items() if name in of)
    found = [(label.rsplit("-", 1)[0], case) for label, case in all_cases()]
    cases = []
    for op in OPS[kernel]:
        own = [case for of, case in found if of == op]
        assert own
        cases += own[:: -(-len(own) // CASES[kernel])]
    for case in cases:
        got, _ = run(case, engine)
        for label, expected in case.references.items():
            if difference := case.differences(got, expected):
                wrong[repr(case), label] = difference
    assert not wrong


def test_tokens(engine):
    """Steps run together as without tuning: what computes, joins or takes is in each variant."""
    path = next((OWN / "q4_llama").rglob("*.onnx"))
    want, _, _ = greedy(NativeEngine(threads=1), path, 2, (1, 4))
    _, _, before = greedy(engine, path, 2, (1, 4))
    for value in dict(VALUES), dict(reversed(VALUES)):  # the last values, and the first ones
        engine.tuned = value
        got, _, plans = greedy(engine, path, 2, (1, 4))
        assert got == want
        for key in ("dispatches", "takers"):
            assert sorted(p[key] for p in plans) == sorted(p[key] for p in before)


@pytest.mark.parametrize("library", ["wgpudawn", "wgpu"])
def test_a_gpu_is_tuned_once(monkeypatch, library):
    """A GPU in software, taken for another one: measurements are those that this clock makes."""
    engine, name = gpu(library), "TILE"
    monkeypatch.setattr(engine, "tuned", {})
    monkeypatch.setattr(tuning, "_TRIALS", {})
    tuning.tune(engine, {"matmul_nbits"})
    assert engine.tuned == {}  # it is one in software
    monkeypatch.setattr(engine.gpu, "software", False)
    monkeypatch.setattr(tuning, "MAX_MS", 60_000)
    one = next(t for t in tunings() if t.name == name)
    monkeypatch.setattr(tuning, "tunings", lambda: [one])
    times = {0: 1.0, 32: 0.5, 64: 0.25}
    monkeypatch.setattr(
        tuning.WebGPUPlan, "seconds", lambda self, runs: runs * times[self.tuned[name]]
    )
    tuning.tune(engine, {"softmax"})
    assert engine.tuned == {}
    tuning.tune(engine, {"matmul_nbits"})
    assert engine.tuned == engine.info["tuned"] == {name: 64}
    ((_, trials),) = tuning._TRIALS.items()
    assert [t.value for t in trials] == [0, 32, 64] and all(t.right for t in trials)
    monkeypatch.setattr(engine, "tuned", {})
    monkeypatch.setattr(tuning, "trials_of", None)  # is not called again
    tuning.tune(engine, {"matmul_nbits"})
    assert engine.tuned == {name: 64}


def test_without_time_there_are_defaults(engine):
    trials = tuning.trials_of(engine, tunings()[0], 0.0)
    assert not any(t.ms or t.right for t in trials)
    assert fastest(trials) == trials[0].value


def test_the_fastest_right_value():
    def of(*rows):
        return fastest([Trial(i, *row) for i, row in enumerate(rows)])

    right, wrong = 1e-6, 1e-2
    assert of((right, 1.0), (right, 0.5), (right, 0.4)) == 2
    assert of((right, 1.0), (right, 0.5), (wrong, 0.4)) == 1
    assert of((right, 1.0), (right, 0.97), (right, 2.0)) == 0
    assert of((right, 1.0), (right, WORTH)) == 1
    assert of((right, 1.0), (right, 0.0), (right, -1.0), (right, ABSURD / 2)) == 0
    assert of((right, 0.0), (right, 1.0)) == 0
    assert of((right, 1.0), (right, math.nan), (math.nan, 0.5), (math.inf, 0.5)) == 0


def test_measurements_are_bounded():
    assert rounds_of([0.01, 0.01], MAX_MS) == ROUNDS
    assert rounds_of([30.0, 40.0], MAX_MS) == 2
    assert rounds_of([300.0, 10.0], MAX_MS) == 0 and rounds_of([1.0], -5.0) <= 0

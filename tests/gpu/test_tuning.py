"""Tunables of shaders: each value computes what others do, and the fastest right one is taken."""

import math

import numpy as np
import pytest
from edgewise import InferenceSession
from edgewise.compiler.gpu import self_test
from edgewise.compiler.gpu.gen.shaders import TUNABLES
from edgewise.compiler.gpu.tuned import NAMES, tunings
from edgewise.engine.native import NativeEngine
from edgewise.errors import EngineError
from edgewise.host.webgpu import tuning
from edgewise.logic.gpu.self_test import TOLERANCE
from edgewise.logic.gpu.tuning import (
    ABSURD,
    MAX_MS,
    ROUNDS,
    WORTH,
    Trial,
    fastest,
    goes_on,
    refusal,
    runs_of,
    untried,
)
from onnx import TensorProto, helper, numpy_helper
from ops.harness import all_cases
from zoo.zoo import OWN

from .adapters import at_once, gpu
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
    for m in (1,) if name == "WIDE" else (value // 2 + 1, 70):
        model, x, y = product(m, k, n, *rest)
        session = InferenceSession(model.SerializeToString(), engine=engine)
        (got,) = session.run(None, {"x": x})
        assert np.linalg.norm(got - y) <= 1e-5 * np.linalg.norm(y)
        with at_once(engine, 1, 3) as pace:
            (again,) = session.run(None, {"x": x})
        assert pace.pieces and again.tobytes() == got.tobytes()
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
    with at_once(engine, 1, 3) as pace:
        (again,) = session.run(None, {"x": x})
    assert pace.pieces and again.tobytes() == got.tobytes()
    session.free()
    engine.tuned = {}
    session = InferenceSession(model.SerializeToString(), engine=engine)
    (want,) = session.run(None, {"x": exact})
    session.free()
    assert np.linalg.norm(got - want) <= 1e-4 * np.linalg.norm(want)


OPS = {"matmul_nbits": ["ms.MatMulNBits"]}
OPS["attention"] = ["Attention", "ms.GroupQueryAttention", "ms.MultiHeadAttention"]
CASES = {"matmul_nbits": 4, "attention": 8}  # of each


SHADERS = dict(WIDE="matmul_nbits.wide", TILE="matmul_nbits.tiled", BYTES="matmul_nbits.bytes")
SHADERS |= {"LANES": "attention.wide", "QUERIES": "attention.tiled"}


@pytest.mark.parametrize("name, value", VALUES)
def test_odd_shapes_run_each_variant(name, value):
    """Those on which each value is tested on a GPU before it is used."""
    for plan, _ in next(t for t in tunings() if t.name == name).cases:
        forms = self_test.forms_in(plan, False, {name: value})
        kernel = NAMES[name][0]
        assert [x for x in forms if x.startswith(f"shader {kernel}")] == [f"shader {SHADERS[name]}"]


def test_a_few_rows_have_no_tile():
    """One that is filled by half takes more time than none."""
    for m, value, tiled in (9, 64, False), (32, 64, False), (33, 64, True), (16, 32, False):
        plan = self_test.tested_plan("rows", lambda of, m=m: {"y": lambda: of.product(m, 64, 64)})[
            0
        ]
        forms = self_test.forms_in(plan, False, {"TILE": value})
        assert forms == [f"shader {SHADERS['TILE'] if tiled else 'matmul_nbits.rows'}"]


@pytest.mark.parametrize("name, value", [x for x in VALUES if x[0] not in ("TILE", "BYTES")])
def test_ops(monkeypatch, engine, name, value):
    """Against onnxruntime, also in pieces. Its shapes have too few rows for tiles of products."""
    engine.tuned, wrong = {name: value}, {}
    kernel = next(kernel for kernel, of in TUNABLES.items() if name in of)
    found = [(label.rsplit("-", 1)[0], case) for label, case in all_cases()]
    cases = []
    for op in OPS[kernel]:
        own = [case for of, case in found if of == op]
        assert own
        cases += own[:: -(-len(own) // CASES[kernel])]
    forms, free = set(), tuning.WebGPUPlan.free

    def forms_and_free(plan):
        forms.update(plan.forms)
        free(plan)

    monkeypatch.setattr(tuning.WebGPUPlan, "free", forms_and_free)
    for case in cases:
        got, _ = run(case, engine)
        for label, expected in case.references.items():
            if difference := case.differences(got, expected):
                wrong[repr(case), label] = difference
    assert not wrong
    assert f"shader {SHADERS[name]}" in forms


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


@pytest.fixture
def hardware(monkeypatch):
    """A GPU in software, taken for another one, on which nothing was tried. Function of a library's
    name that returns the engine.
    """

    def engine(library="wgpudawn"):
        engine = gpu(library)
        monkeypatch.setattr(engine.gpu, "software", False)
        monkeypatch.setattr(engine, "tuned", {})
        monkeypatch.setattr(engine, "refused", {})
        monkeypatch.setattr(tuning, "_TRIALS", {})
        monkeypatch.setattr(tuning, "NAMES", {"QUERIES": NAMES["QUERIES"]})
        return engine

    return engine


def by_clock(monkeypatch, times, name="QUERIES"):
    """Measurements are those of {value: seconds}."""
    monkeypatch.setattr(
        tuning.WebGPUPlan, "seconds", lambda self, runs: runs * times[self.tuned[name]]
    )


@pytest.mark.parametrize("library", ["wgpudawn", "wgpu"])
def test_a_gpu_is_tuned_once(monkeypatch, hardware, library):
    """Within the usual time, however long it takes to prepare the measurements."""
    engine = hardware(library)
    by_clock(monkeypatch, {1: 0.001, 8: 0.0005})
    tuning.tune(engine, {"softmax"})
    assert engine.tuned == {}
    tuning.tune(engine, {"attention"})
    assert engine.tuned == engine.info["tuned"] == {"QUERIES": 8}
    ((_, trials),) = tuning._TRIALS.items()
    assert [(t.value, t.ms) for t in trials] == [(1, 1.0), (8, 0.5)]
    assert all(t.right for t in trials) and not engine.refused
    monkeypatch.setattr(engine, "tuned", {})
    monkeypatch.setattr(tuning, "try_values", None)  # is not called again
    tuning.tune(engine, {"attention"})
    assert engine.tuned == {"QUERIES": 8}


def test_what_need_not_be_tuned_is_not_compiled(monkeypatch, hardware):
    engine = hardware()
    monkeypatch.setattr(tuning, "tuning_of", None)  # is not called
    monkeypatch.setattr(engine.gpu, "software", True)
    tuning.tune(engine, {"attention"})
    assert engine.tuned == {}
    monkeypatch.setattr(engine.gpu, "software", False)
    tuning.tune(engine, {"softmax"})
    assert engine.tuned == {}


def test_without_time_there_are_defaults_in_this_engine_alone(monkeypatch, hardware):
    engine = hardware()
    by_clock(monkeypatch, {1: 0.001, 8: 0.0005})
    monkeypatch.setattr(tuning, "MAX_MS", 0)
    tuning.tune(engine, {"attention"})
    assert engine.tuned == {"QUERIES": 1} and not tuning._TRIALS
    monkeypatch.setattr(tuning, "MAX_MS", MAX_MS)
    monkeypatch.setattr(engine, "tuned", {})
    tuning.tune(engine, {"attention"})
    assert engine.tuned == {"QUERIES": 8}


def runs_instead(monkeypatch, of, run):
    """Plans with a value of QUERIES run by another function, if one is given."""
    before = tuning.WebGPUPlan.run

    def other(self):
        if self.tuned["QUERIES"] == of:
            return run and run(self)
        return before(self)

    monkeypatch.setattr(tuning.WebGPUPlan, "run", other)


def test_a_variant_that_writes_nothing_is_not_used(monkeypatch, hardware):
    """The default has left the right numbers in the memory."""
    engine = hardware()
    by_clock(monkeypatch, {1: 0.001, 8: 0.0001})
    runs_instead(monkeypatch, 8, None)
    tuning.tune(engine, {"attention"})
    assert engine.tuned == {"QUERIES": 1} and not engine.refused


def test_a_variant_that_fails_is_not_used(monkeypatch, hardware):
    def fails(plan):
        raise EngineError("the GPU refused it", "a test", "")

    engine = hardware()
    by_clock(monkeypatch, {1: 0.001, 8: 0.0001})
    runs_instead(monkeypatch, 8, fails)
    tuning.tune(engine, {"attention"})
    assert engine.tuned == {"QUERIES": 1} and not engine.refused
    ((_, trials),) = tuning._TRIALS.items()
    assert [t.refused for t in trials] == [False, True]


def test_a_default_that_computes_wrongly_refuses_its_kernel(monkeypatch, hardware):
    engine = hardware()
    by_clock(monkeypatch, {1: 0.0001, 8: 0.001})
    runs_instead(monkeypatch, 1, None)
    with pytest.warns(UserWarning, match="attention run on the processor"):
        tuning.tune(engine, {"attention"})
    assert "computes it wrongly" in engine.refused["attention"]


def test_the_fastest_right_value():
    def of(*rows):
        trials = [Trial(i, TOLERANCE, False, *row) for i, row in enumerate(rows)]
        return fastest(trials)

    right, wrong = 1e-6, 1e-2
    assert of((right, 1.0), (right, 0.5), (right, 0.4)) == 2
    assert of((right, 1.0), (right, 0.5), (wrong, 0.4)) == 1
    assert of((right, 1.0), (right, 0.95), (right, 2.0)) == 0
    assert of((right, 1.0), (right, WORTH)) == 1
    assert of((right, 1.0), (right, 0.0), (right, -1.0), (right, ABSURD / 2)) == 0
    assert of((right, 0.0), (right, 1.0)) == 0
    assert of((right, 1.0), (right, math.nan), (math.nan, 0.5), (math.inf, 0.5)) == 0
    # the default is not right
    assert of((math.inf, 0.0), (right, 2.0), (right, 1.0)) == 2
    assert of((wrong, 0.0), (right, 0.0), (math.inf, 0.0)) == 0


def test_a_default_is_right_within_a_tolerance():
    def refused(name, difference, refused=False):
        first, second = untried(name, (0, 32))
        first.difference, first.refused = difference, refused
        assert second.tolerance == TOLERANCE
        return refusal([first, second]) is not None

    assert not refused("TILE", 1e-6) and not refused("BYTES", 1e-2)
    assert refused("TILE", 1e-2) and refused("BYTES", 0.1) and refused("TILE", math.inf)
    assert not refused("TILE", math.inf, True)  # its compiler says so when it is needed


def test_measurements_are_bounded():
    assert [runs_of(ms) for ms in (0.0, 0.1, 3.0, 8.0, 500.0)] == [256, 80, 3, 1, 1]
    assert goes_on(0, [80, 2], 100.0) and goes_on(ROUNDS - 1, [80, 2], 100.0)
    assert not goes_on(ROUNDS, [80, 2], 100.0) and not goes_on(1, [80, 2], 0.0)
    # one sample decides where it is long, and no other
    assert goes_on(0, [80, 1], 0.0) and not goes_on(0, [1, 1], 0.0) and not goes_on(0, [], 0.0)


def test_a_first_short_measurement_does_not_count(monkeypatch):
    """Clocks have steps: it may be far too short."""

    class Plan:
        def __init__(self, *times):
            self.times = iter(times)

        def seconds(self, runs):
            return next(self.times) * runs

    trials = untried("QUERIES", (1, 8))
    plans = Plan(0.001, 0.003, 0.002), Plan(0.0, 0.005, 0.004)
    tuning._measure(list(zip(trials, plans)), 1e6)
    assert [t.ms for t in trials] == [2.0, 4.0]

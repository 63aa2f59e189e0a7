"""A GPU is tested before it is used: one that computes wrongly is refused."""

import numpy as np
import pytest
from edgewise import InferenceSession
from edgewise.compiler.gpu.gen.shaders import SHADERS
from edgewise.compiler.gpu.self_test import self_test as first_test
from edgewise.compiler.gpu.self_test import test_cases as cases_of
from edgewise.compiler.gpu.variants import variants_of
from edgewise.errors import EngineError
from edgewise.host.webgpu import WebGPUEngine, gpu, self_test
from onnx import TensorProto, helper

from .adapters import gpu as working


@pytest.fixture
def untested(monkeypatch):
    working()  # skips where there is no GPU
    monkeypatch.setattr(self_test, "_TESTED", set())


def open_with(monkeypatch, change):
    """A WebGPUEngine on a driver that takes shaders for other ones."""
    opened = gpu.Gpu.__init__

    def broken(self, *args, **kwargs):
        opened(self, *args, **kwargs)
        make = self.device.create_shader_module
        self.device.create_shader_module = lambda *, code, **more: make(code=change(code), **more)

    monkeypatch.setattr(gpu.Gpu, "__init__", broken)
    return WebGPUEngine(threads=1, library="wgpudawn", serial=False)


@pytest.mark.parametrize(
    "before, after, named",
    [
        ("sqrt(", "abs(", {"RMSNormalization", "LayerNormalization"}),
        ("exp(", "exp2(", {"Softmax", "MultiHeadAttention"}),
    ],
)
def test_a_gpu_that_computes_wrongly_is_refused(untested, monkeypatch, before, after, named):
    with pytest.raises(EngineError, match="computes wrongly") as e:
        open_with(monkeypatch, lambda code: code.replace(before, after))
    assert all(f"{name} by " in str(e.value) for name in named), str(e.value)
    assert "Gather by" not in str(e.value)


def test_a_gpu_that_computes_rightly_is_tested_once(untested, monkeypatch):
    open_with(monkeypatch, lambda code: code)
    assert len(self_test._TESTED) == 1
    monkeypatch.setattr(self_test, "self_test", None)  # is not called again
    open_with(monkeypatch, lambda code: code)


def test_all_shaders_are_tested():
    tested = {kernel for case in cases_of() for kernel in case.kernels}
    # these make whole numbers of an index, and take bytes apart
    assert set(SHADERS) - tested - set(first_test()[0].kernels) == {"range", "pack"}


@pytest.fixture(scope="module")
def engine():
    working()
    return WebGPUEngine(threads=1, library="wgpudawn", serial=False)


@pytest.fixture
def breaks(engine, monkeypatch):
    """Has shaders of a kernel write other numbers to an output, and forgets earlier tests."""

    def change(kernel, output, type_):
        # where no numbers are computed, words of floats are moved
        step = "v ^ 0x100000" if type_ == "u32" else "v + v / 64"
        end = f"\nfn other_set(i: u32, v: {type_}) {{ {output}_set(i, {step}); }}\n"
        texts = [
            (name, declared, text.replace(f"{output}_set(", "other_set(") + end)
            for name, declared, text in SHADERS[kernel]
        ]
        monkeypatch.setitem(SHADERS, kernel, texts)
        variants_of.cache_clear()
        monkeypatch.setattr(self_test, "_WRONG", {})

    monkeypatch.setattr(engine, "tested", set())
    monkeypatch.setattr(engine, "refused", {})
    yield change
    monkeypatch.undo()
    variants_of.cache_clear()


@pytest.mark.parametrize(
    "kernel, output, type_",
    [
        ("where", "y", "u32"),
        ("scatter_nd", "y", "u32"),
        ("recurrent", "y", "f32"),
        ("pool", "y", "f32"),
        ("gather_elements", "y", "u32"),
        ("integer_product", "y", "i32"),
        ("norm_grad", "dx", "f32"),
        ("softmax_grad", "dx", "f32"),
        ("cross_entropy", "loss", "f32"),
        ("optimizer", "x", "f32"),
    ],
)
def test_a_kernel_that_computes_wrongly_is_refused(engine, breaks, kernel, output, type_):
    breaks(kernel, output, type_)
    with pytest.warns(UserWarning, match="run on the processor: this GPU computes it wrongly"):
        self_test.check_kernels(engine, {kernel})
    assert set(engine.refused) >= {kernel}
    assert len(engine.refused) <= 2, engine.refused  # with what packs for it


def test_steps_of_a_refused_kernel_run_on_the_processor(engine, breaks):
    breaks("where", "y", "u32")
    value, F = helper.make_tensor_value_info, TensorProto.FLOAT
    nodes = [helper.make_node("Greater", ["x", "b"], ["c"])]
    nodes += [helper.make_node("Where", ["c", "x", "b"], ["w"])]
    nodes += [helper.make_node("Softmax", ["w"], ["y"])]
    inputs = [value("x", F, [3, 70]), value("b", F, [70])]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", F, [3, 70])])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    r = np.random.default_rng(2)
    x, b = r.standard_normal((3, 70)).astype("f4"), r.standard_normal(70).astype("f4")
    with pytest.warns(UserWarning, match="where"):
        session = InferenceSession(model, engine=engine)
        (y,) = session.run(None, {"x": x, "b": b})
    e = np.exp(np.maximum(x, b))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
    why = [plan["why"] for plan in engine.info["plans"]]
    assert any("computes it wrongly" in of.get("where", "") for of in why), why

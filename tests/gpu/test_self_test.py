"""A GPU is tested before it is used: one that computes wrongly is refused."""

import numpy as np
import pytest
from bench import models
from edgewise import InferenceSession
from edgewise.compiler.gpu.gen.shaders import SHADERS
from edgewise.compiler.gpu.self_test import forms_in
from edgewise.compiler.gpu.self_test import self_test as first_test
from edgewise.compiler.gpu.self_test import test_cases as cases_of
from edgewise.compiler.gpu.variants import variants_of
from edgewise.compiler.targets.webgpu import WEBGPU
from edgewise.errors import EngineError
from edgewise.host.webgpu import WebGPUEngine, gpu, self_test
from edgewise.host.webgpu.pipelines import Pipelines
from onnx import TensorProto, helper, numpy_helper

from .adapters import gpu as working
from .test_batches import training
from .test_programs import plans_of

ALL = {"trainable": "all"}


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


def joined():
    """A model of a norm, two products of a row and their product."""
    r, F = np.random.default_rng(4), TensorProto.FLOAT
    node, held = helper.make_node, {"w": r.standard_normal(64).astype("f4")}
    nodes = [node("SimplifiedLayerNormalization", ["x", "w"], ["n"], axis=-1)]
    for name in "ab":
        held[f"w{name}"] = r.standard_normal((64, 128)).astype("f4")
        nodes.append(node("MatMul", ["n", f"w{name}"], [name]))
    nodes.append(node("Mul", ["a", "b"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", F, [1, 64])],
        [helper.make_tensor_value_info("y", F, [1, 128])],
        [numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


# what a GPU makes of a text, and what it computes wrongly then
LIES = {
    "norm before gemm": ("return before_value(i);", "return before_value(i) * 1.01;"),
    "binary after gemm": ("{ batch_kept = v; }", "{ batch_kept = v * 1.01; }"),
    "rope of the results of gemm": ("batch_last = v;", "batch_last = v * 1.01;"),
    "copy of the results of matmul_nbits": ("batch_last = v;", "batch_last = v * 1.01;"),
    "shader softmax.alone": ("fn element(i: u32) { run(", "fn element(i: u32) { run(1u + "),
}


@pytest.fixture
def lies(engine, monkeypatch):
    """Has a GPU compute a form wrongly, and each kernel that it tested rightly."""

    def begin(form):
        make = engine.gpu.device.create_shader_module
        lie = lambda *, code, **more: make(code=code.replace(*LIES[form]), **more)  # noqa: E731
        monkeypatch.setattr(engine.gpu.device, "create_shader_module", lie)
        monkeypatch.setattr(engine, "pipelines", Pipelines(engine.gpu))
        monkeypatch.setattr(self_test, "_WRONG", {})

    monkeypatch.setattr(engine, "tested", set())
    monkeypatch.setattr(engine, "refused", {})
    return begin


@pytest.mark.parametrize("form", LIES)
def test_a_form_that_a_gpu_computes_wrongly_is_refused(engine, lies, form):
    assert not self_test.check_forms(engine, {form})
    engine.tested.clear()
    lies(form)
    with pytest.warns(UserWarning, match=f"not used: {form}: this GPU"):
        assert self_test.check_forms(engine, {form})
    assert list(engine.refused) == [form]
    assert not self_test.check_forms(engine, {form})  # is known


def test_a_test_that_does_not_end_is_repeated(engine, breaks, monkeypatch):
    def fails(*_):
        raise EngineError("the GPU has no memory")

    for check, names in (
        (self_test.check_kernels, {"where"}),
        (self_test.check_forms, {"norm before gemm"}),
    ):
        with monkeypatch.context() as m:
            m.setattr(self_test, "_WRONG", {})
            m.setattr(self_test, "_wrong", fails)
            with pytest.raises(EngineError, match="no memory"):
                check(engine, names)
            m.setattr(self_test, "_wrong", lambda *_: "it by 1")
            with pytest.warns(UserWarning, match="it by 1"):
                check(engine, names)
        assert engine.refused.keys() >= names


def test_a_form_is_tested_with_the_values_of_tunables(engine, monkeypatch):
    form, tests = {"copy of the results of matmul_nbits"}, []
    monkeypatch.setattr(engine, "refused", {})
    monkeypatch.setattr(self_test, "_WRONG", {})
    monkeypatch.setattr(self_test, "_wrong", lambda engine, *_: tests.append(dict(engine.tuned)))
    for values in ({}, {"WIDE": 16}, {"WIDE": 64}, {"WIDE": 16}):
        monkeypatch.setattr(engine, "tuned", values)
        monkeypatch.setattr(engine, "tested", set())
        assert not self_test.check_forms(engine, form)
    assert tests == [{}, {"WIDE": 16}, {"WIDE": 64}]


def test_steps_that_share_a_dispatch_wrongly_run_alone(engine, lies, monkeypatch):
    lies("norm before gemm")
    tested = []

    def check(engine, forms):
        tested.append(forms)
        return self_test.check_forms(engine, forms)

    monkeypatch.setattr("edgewise.host.webgpu.device.check_forms", check)
    x = np.random.default_rng(5).standard_normal((1, 64)).astype("f4")
    with pytest.warns(UserWarning, match="not used: .*norm before gemm"):
        session = InferenceSession(joined(), engine=engine)
        (y,) = session.run(None, {"x": x})
    (want,) = InferenceSession(joined()).run(None, {"x": x})
    np.testing.assert_allclose(y, want, rtol=1e-3, atol=1e-4)
    (compiled,) = session.plans.values()
    assert not compiled.loaded.info["onCpu"]
    assert compiled.loaded.forms.isdisjoint(engine.refused)
    assert compiled.loaded.forms == tested[-1]  # of the plan that took its place, too
    session.free()


@pytest.mark.parametrize("serial", [False, True])
def test_forms_of_models_are_tested(serial):
    """All that a language model and training run besides kernels as such; `range` makes indices."""
    shape = {**models.SMOLLM2, "vocab": 512, "layers": 1}
    model = models.language_model(**shape)
    plans = [*plans_of(model), *plans_of(models.in_4_bits(model))]
    plans += [training(1, WEBGPU, small=True, **more).plan("train") for more in ({}, ALL)]
    found = {form for plan in plans for form in forms_in(plan, serial)}
    tested = {form for case in cases_of() for form in case.forms[serial]}
    tested |= set(forms_in(first_test()[0], serial))
    assert found - tested == {"shader range"}
    assert serial or {form for form in found if " of the results of " in form}


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

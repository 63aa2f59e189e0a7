"""Products of bytes on a GPU, with weights that either side has packed."""

from dataclasses import replace

import numpy as np
import pytest
from edgewise import InferenceSession
from edgewise.compiler.gpu import variants
from edgewise.compiler.gpu.steps import Linear, steps_of
from edgewise.engine.native import NativeEngine
from edgewise.host.webgpu.engine import packing_of
from edgewise.logic.gpu.arrange import Span, arrange
from edgewise.logic.gpu.link import declarations
from onnx import TensorProto, helper, numpy_helper

from .adapters import LIBRARIES, gpu
from .printed import program
from .test_models_on_gpu import model

RNG = np.random.default_rng(9)
A = RNG.integers(0, 256, (5, 42)).astype("u1")
W = RNG.integers(-128, 128, (42, 71)).astype("i1")


def product(monkeypatch, on_cpu=(), layout=None):
    """(result, kernels on the processor, steps) of a product with constant weights."""
    engine, found = gpu(), variants.variants_of

    def shaders(kernel):
        return () if kernel in on_cpu else found(kernel)

    monkeypatch.setattr(variants, "variants_of", shaders)
    if layout:
        monkeypatch.setattr(engine, "machine", declarations(*layout))
    zeros = [numpy_helper.from_array(np.array(z), n) for n, z in (("za", A[0, 0]), ("zw", W[0, 0]))]
    nodes = [helper.make_node("MatMulInteger", ["a", "w", "za", "zw"], ["y"])]
    data = model(
        nodes, [("a", TensorProto.UINT8, list(A.shape))], [numpy_helper.from_array(W, "w"), *zeros]
    )
    session = InferenceSession(data, engine=engine)
    (y,) = session.run(None, {"a": A})
    (compiled,) = session.plans.values()
    loaded = compiled.loaded
    kernels = {loaded.plan.kernels[i] for i in loaded.reasons}
    session.free()
    return y, kernels, steps_of(loaded.plan.data)


@pytest.mark.parametrize("on_cpu", [(), ("pack_integer",), ("integer_product",)], ids=str)
def test_weights_that_either_side_has_packed(on_cpu, monkeypatch):
    want = (A.astype(int) - A[0, 0]) @ (W.astype(int) - W[0, 0])
    y, kernels, _ = product(monkeypatch, on_cpu)
    np.testing.assert_array_equal(y, want)
    assert kernels == set(on_cpu)


@pytest.mark.parametrize("layout", [(8, 2, False), (16, 4, True)], ids=str)
def test_layouts_of_other_machines(layout, monkeypatch):
    want = (A.astype(int) - A[0, 0]) @ (W.astype(int) - W[0, 0])
    y, kernels, _ = product(monkeypatch, layout=layout)
    np.testing.assert_array_equal(y, want)
    assert not kernels


def test_the_layout_of_this_machine():
    columns, together = packing_of(NativeEngine(threads=1))
    assert columns in (8, 16, 32) and together in (2, 4)


@pytest.mark.parametrize(
    "sizes", [{"c": Linear(0, 1, 3)}, {"x_size": [1, Linear(0, 2, 0), 5]}], ids=list
)
def test_compilers_take_sizes_that_follow_registers(sizes, monkeypatch):
    *_, steps = product(monkeypatch)
    step = next(s for s in steps if s.kernel.name == "integer_product")
    step = replace(step, params={**step.params, **sizes})
    spans = [v and Span(v.buffer, 0, 1 << 20, v.offset) for v in step.operands]
    a = arrange([step.linked], [spans])
    (variant,) = variants.stages_of(step, [64])
    machine = declarations(32, 4, False)
    text = program(step, variant, a.roles[0], a.bindings, machine=machine).text
    for library in LIBRARIES:
        gpu(library).gpu.device.create_shader_module(code=text)

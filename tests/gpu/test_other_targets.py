"""Packages and plans for the processor on a GPU, and the reverse."""

import io
import math

import numpy as np
import pytest
from edgewise import InferenceSession
from edgewise.compiler.compile import compile_package
from edgewise.compiler.targets import target_named
from edgewise.engine.native import NativeEngine
from edgewise.errors import OutOfMemory, PackageError
from edgewise.host.session.open import folder_files
from edgewise.host.session.packaged import ProgramSession
from edgewise.host.webgpu import compare
from edgewise.onnx import BytesSource
from edgewise.package import Package
from edgewise.session.decoder import DecoderModel
from onnx import TensorProto, helper, numpy_helper
from zoo.zoo import OWN

from .adapters import gpu
from .test_models_on_gpu import model

RNG = np.random.default_rng(8)


def package(target):
    """A language model's package, written and read."""
    path = next((OWN / "q4_llama").rglob("*.onnx"))
    files, _ = folder_files(path)
    out = io.BytesIO()
    compile_package(
        files, capacity=32, chunks=(1, 4), model_file=path.name, target=target_named(target)
    ).write(out)
    return Package.read(BytesSource(out.getvalue(), "model.edge"))


def logits(package, engine):
    lm = DecoderModel(package, engine=engine)
    out = np.array(lm.logits(lm.forward(lm.open(), [3, 17, 5, 29, 11])))
    return lm, out


def test_a_package_for_the_processor_is_refused():
    with pytest.raises(PackageError) as e:
        DecoderModel(package("cpu"), engine=gpu())
    assert "'cpu'" in e.value.what and "--target webgpu" in e.value.remedy
    with pytest.raises(PackageError, match="'cpu'"):
        ProgramSession(package("cpu"), "model", gpu())


def test_a_package_for_a_gpu_runs_on_the_processor():
    (a, want), (b, got) = (logits(package(t), NativeEngine(threads=1)) for t in ("cpu", "webgpu"))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    a.free()
    b.free()


def test_a_plan_whose_values_lie_in_the_arena():
    """Its steps run on the processor, which has the arena."""
    w = numpy_helper.from_array(RNG.standard_normal((8, 5)).astype("f4"), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Softmax", ["h"], ["s"]),
        helper.make_node("Mul", ["s", "h"], ["y"]),
    ]
    data = model(nodes, [("x", TensorProto.FLOAT, [3, 8])], [w])
    x = RNG.standard_normal((3, 8)).astype("f4")
    host = InferenceSession(data, engine=NativeEngine(threads=1))
    (want,) = host.run(None, {"x": x})
    (compiled,) = host.plans.values()
    plan, device = compiled.loaded.plan, gpu().device
    loaded = device.load_plan(plan)
    bound = {}
    for i, slot in enumerate(plan.slots):
        bound[slot.kind] = device.allocate(slot.nbytes)
        if slot.kind == "weight":
            device.write(bound[slot.kind], slot.tensor.bytes())
        loaded.bind(i, bound[slot.kind])
    device.write(bound["input"], x.tobytes())
    loaded.init()
    loaded.run()
    got = np.frombuffer(device.read(bound["output"]), np.float32)[: math.prod(want.shape)]
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-6)
    assert set(loaded.reasons.values()) == {"its values lie in the engine's arena"}
    loaded.free()
    for buffer in bound.values():
        device.release(buffer)
    host.free()


def test_compare_leaves_out_what_is_never_written():
    """Norms that products compute as they read them."""
    lm, _ = logits(package("webgpu"), gpu())
    for plan in lm.plans:
        heads = [x for x in plan.loaded.launches if x and x.head]
        assert heads or len(lm.plans) > 1
        assert compare(plan.loaded) == []
    assert any(x and x.head for x in lm.plans[0].loaded.launches)
    lm.free()


def test_a_plan_without_memory_for_its_arenas(monkeypatch):
    """Nothing is left of it."""
    session = InferenceSession(
        model(
            [helper.make_node("Exp", ["x"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])],
            [("x", TensorProto.FLOAT, [3, 8])],
        ),
        engine=gpu(),
    )
    session.run(None, {"x": np.zeros((3, 8), "f4")})
    (compiled,) = session.plans.values()
    plan, engine = compiled.loaded.plan, NativeEngine(threads=1)
    assert any(slot.kind == "temp" for slot in plan.slots)
    taken, freed, original = [], [], engine.alloc

    def alloc(nbytes):
        if taken:
            raise OutOfMemory("as if", "engine memory", "none")
        taken.append(original(nbytes))
        return taken[-1]

    call = engine.call
    monkeypatch.setattr(engine, "alloc", alloc)
    monkeypatch.setattr(engine, "call", lambda name, *a: (freed.append(name), call(name, *a))[1])
    with pytest.raises(OutOfMemory):
        engine.device.load_plan(plan)
    assert freed[-1] == "ew_plan_free"
    session.free()

"""What a Target decides: kernels, layouts, alignment, limits and passes. The plans of targets that
are made from the CPU's by taking something away run on its engine.
"""

from dataclasses import replace

import edgewise
import numpy as np
import pytest
from edgewise.compiler import targets
from edgewise.compiler.plan import compile_graph
from edgewise.compiler.schema.plan_format import HEADER
from edgewise.compiler.targets import CPU, Limits, LoweringRules, MemoryRules
from edgewise.engine import Buffer
from edgewise.errors import UnsupportedOp
from edgewise.host.engine.device import EngineDevice
from edgewise.host.session.weights import WeightStore
from edgewise.onnx import BytesSource, read_model
from onnx import TensorProto, helper, numpy_helper

from engines import open_engine

RNG = np.random.default_rng(3)


def convolution():
    """Two 3 x 3 convolutions of 16 channels, for which the CPU uses Winograd's algorithm."""
    weights = [
        numpy_helper.from_array(
            (RNG.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32), f"w{i}"
        )
        for i in range(2)
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["y"], pads=[1, 1, 1, 1]),
    ]
    return model(nodes, weights), {"x": [1, 16, 12, 12]}


def attention():
    """softmax(q k^T) v, spelled out."""
    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    return model(nodes, []), {n: [1, 2, 5, 8] for n in "qkv"}


def model(nodes, weights):
    own = {w.name for w in weights} | {o for n in nodes for o in n.output}
    names = sorted({i for n in nodes for i in n.input} - own)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", infos, [y], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return made.SerializeToString()


def plan_of(case, target):
    data, shapes = case
    return compile_graph(read_model(BytesSource(data)), shapes, target=target)[0]


def run(plan, feeds):
    """The output `y` of a plan."""
    engine = open_engine("native")
    store, loaded = WeightStore(engine.device), engine.load(plan)
    fresh, addresses = store.connect(loaded), {}
    for i, slot in enumerate(plan.slots):
        if slot.kind in ("input", "output"):
            addresses[slot.name] = engine.alloc(slot.nbytes), slot.nbytes
            loaded.bind(i, Buffer(*addresses[slot.name]))
    store.init(loaded, fresh)
    for name, x in feeds.items():
        engine.write(addresses[name][0], x.tobytes())
    loaded.run()
    return np.frombuffer(engine.read(*addresses["y"]), np.float32)


def feeds_of(case):
    return {n: RNG.standard_normal(s).astype(np.float32) for n, s in case[1].items()}


def steps(plan):
    return plan.kernels[plan.init_count :]


def test_kernels_that_pay_are_the_targets_choice():
    case = convolution()
    feeds = feeds_of(case)
    plain = replace(CPU, lowering=LoweringRules())
    cpu, other = plan_of(case, CPU), plan_of(case, plain)
    assert "conv_winograd" in steps(cpu) and "conv_winograd" not in steps(other)
    assert not other.init_count  # weights stay as the model stores them
    np.testing.assert_allclose(run(other, feeds), run(cpu, feeds), atol=1e-5)


def test_passes_are_the_targets_choice():
    case = attention()
    feeds = feeds_of(case)
    spelled = tuple(p for p in CPU.recognise if p.__name__ != "fuse_attention")
    cpu, other = plan_of(case, CPU), plan_of(case, replace(CPU, recognise=spelled))
    assert "attention" in steps(cpu) and "attention" not in steps(other)
    np.testing.assert_allclose(run(other, feeds), run(cpu, feeds), atol=1e-6)


def test_alignment():
    case = convolution()
    feeds = feeds_of(case)
    wide = replace(CPU, memory=MemoryRules(arena_alignment=256, constant_alignment=256))
    plan = plan_of(case, wide)
    assert plan.arena_bytes % 256 == 0
    assert np.array_equal(run(plan, feeds), run(plan_of(case, CPU), feeds))


def test_outputs_beside_inputs():
    """Without reuse of inputs the arena is larger, and the numbers are the same."""
    nodes = [
        helper.make_node("Exp" if i % 2 else "Tanh", [f"a{i}" if i else "x"], [f"a{i + 1}"])
        for i in range(4)
    ]
    case = model([*nodes, helper.make_node("Neg", ["a4"], ["y"])], []), {"x": [64]}
    feeds = feeds_of(case)
    apart = plan_of(case, replace(CPU, memory=MemoryRules(in_place=False)))
    cpu = plan_of(case, CPU)
    assert apart.arena_bytes > cpu.arena_bytes
    assert np.array_equal(run(apart, feeds), run(cpu, feeds))


def test_a_missing_kernel_is_named():
    with pytest.raises(UnsupportedOp, match="Conv.*device .small. has no kernel .conv_winograd."):
        plan_of(convolution(), replace(CPU, name="small", lacks=frozenset({"conv_winograd"})))


def test_limits():
    case = convolution()
    with pytest.raises(UnsupportedOp, match="Conv.*binds at most 2"):
        plan_of(case, replace(CPU, limits=Limits(operands=2)))
    with pytest.raises(UnsupportedOp, match="weight 'w0'.*9216 bytes.*at most 9000"):
        plan_of(case, replace(CPU, limits=Limits(buffer_bytes=9000)))


def test_the_header_has_the_targets_hash():
    table = replace(CPU.kernel_table(), hash=0x1234)
    plan = plan_of(attention(), replace(CPU, kernel_table=lambda: table))
    assert HEADER.unpack_from(plan.data)[1] == 0x1234


@pytest.fixture
def without_softmax(monkeypatch):
    """An engine, and a target that it is said to be, which has no kernels for softmax."""
    lacking = replace(CPU, name="other", lacks=frozenset({"softmax", "attention"}), combine=())
    monkeypatch.setitem(targets.TARGETS, "other", lacking)
    monkeypatch.setattr(EngineDevice, "target", "other")
    return open_engine("native")


def test_sessions_compile_for_their_device(without_softmax):
    data, shapes = attention()
    session = edgewise.InferenceSession(data, engine=without_softmax)
    with pytest.raises(UnsupportedOp, match="device 'other' has no kernel 'attention'"):
        session.run(None, {n: np.zeros(s, np.float32) for n, s in shapes.items()})


def test_trainers_compile_for_their_device(without_softmax):
    weight = numpy_helper.from_array(RNG.standard_normal((8, 4)).astype(np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Softmax", ["h"], ["y"], axis=-1),
    ]
    trainer = edgewise.Trainer(
        model(nodes, [weight]), loss="mse", learning_rate=0.1, engine=without_softmax
    )
    with pytest.raises(UnsupportedOp, match="device 'other' has no kernel 'softmax"):
        trainer.step({"x": np.zeros((2, 8), np.float32), "target": np.zeros((2, 4), np.float32)})

"""Steps that the engine hands out: run by themselves they give what the engine's own run gives.

A `Replay` stands for another device. It has memory of its own for each buffer of a plan and knows
nothing of the plan but the resolved steps: each becomes a plan of one step, whose slots are the
buffers that the step touches.
"""

from __future__ import annotations

import sys
from pathlib import Path

import edgewise
import numpy as np
import pytest
from edgewise.compiler.declare.dtypes import FLOAT, INT64
from edgewise.compiler.declare.kernel import KERNELS
from edgewise.compiler.plan.plan import Plan, Slot
from edgewise.compiler.schema.plan_format import ARENA, CONST, HEADER, OPERAND, SLOT0, STEP
from edgewise.engine import Buffer
from edgewise.errors import EngineError
from edgewise.host.engine.resolved import ResolvedStep
from edgewise.onnx import BytesSource, read_model
from edgewise.training.program import Program
from onnx import TensorProto, helper, numpy_helper

sys.path.append(str(Path(__file__).parents[1] / "core"))
from raw_plan import plan as encode_plan  # noqa: E402  (the path is set above)

MODELS = Path(__file__).parents[1] / "zoo" / "models"


class Replay:
    """Runs the steps of a loaded plan one by one, from what `resolve` says of them."""

    def __init__(self, engine, loaded, contents):
        """contents: {slot: bytes} at the beginning; other slots begin as zeros."""
        self.engine, self.loaded = engine, loaded
        header = HEADER.unpack_from(loaded.plan.data)
        at = {field.name: value for field, value in zip(HEADER.fields, header)}
        constants = loaded.plan.data[at["const_at"] : at["const_at"] + at["const_bytes"]]
        self.memory = {
            ARENA: self.allocate(bytes([0xAA]) * at["arena_bytes"]),
            CONST: self.allocate(constants),
        }
        for i, slot in enumerate(loaded.plan.slots):
            self.memory[SLOT0 + i] = self.allocate(contents.get(i, bytes(slot.nbytes)))

    def allocate(self, data):
        address = self.engine.alloc(len(data))
        self.engine.write(address, bytes(data))
        return address, len(data)

    def read(self, slot):
        return self.engine.read(*self.memory[SLOT0 + slot])

    def run(self, steps: list[ResolvedStep]):
        for step in steps:
            if not step.empty:
                self.run_step(step)

    def run_step(self, step: ResolvedStep):
        kernel = KERNELS[step.kernel]
        buffers = list(dict.fromkeys(o.buffer for o in step.operands if o is not None))
        written = {
            o.buffer
            for o, declared in zip(step.operands, kernel.operands)
            if o is not None and declared.output
        }
        operands = b""
        for o, declared in zip(step.operands, kernel.operands):
            assert o is not None or declared.optional
            if o is None:
                operands += OPERAND.pack(0xFFFFFFFF, 0, 0, 0)
                continue
            assert 0 <= o.begin <= o.end <= self.memory[o.buffer][1]
            operands += OPERAND.pack(SLOT0 + buffers.index(o.buffer), 0, o.offset, 0)
        params = step.params + bytes(-len(step.params) % 8)
        size = STEP.size + len(params) + len(operands)
        head = STEP.pack(kernel.id, len(step.operands), 0, 0, len(step.params), size)
        slots = [(self.memory[b][1], b in written) for b in buffers]
        data = encode_plan([head + params + operands], slots)
        described = [Slot(str(b), "state", 2, [n], n) for b, (n, _) in zip(buffers, slots)]
        loaded = self.engine.load(Plan(data, described, [], [], [step.kernel], 0, 0))
        try:
            for i, b in enumerate(buffers):
                loaded.bind(i, Buffer(*self.memory[b]))
            loaded.run()
        finally:
            loaded.free()

    def free(self):
        for address, _ in self.memory.values():
            self.engine.free(address)


def own_memory(engine, loaded, contents):
    """Binds the plan itself to memory with the same contents; {slot: (address, bytes)}."""
    memory = {}
    for i, slot in enumerate(loaded.plan.slots):
        data = contents.get(i, bytes(slot.nbytes))
        address = engine.alloc(len(data))
        engine.write(address, bytes(data))
        loaded.bind(i, Buffer(address, len(data)))
        memory[i] = address, len(data)
    return memory


def compare(engine, replay, memory, slots):
    for i, slot in enumerate(slots):
        assert engine.read(*memory[i]) == replay.read(i), slot.name


def run_both(engine, plan, rng, *, registers=({},), before=lambda slot, rng: None):
    """Runs a plan by itself and from its resolved steps, once for each setting of the registers,
    and compares all slots, bit by bit.

    before: gives the bytes that an input slot begins a run with, or None for random numbers.
    """

    def first(slot):
        if slot.kind == "weight":
            return slot.tensor.bytes()
        data = before(slot, rng)
        if data is None and slot.dtype == FLOAT:
            data = (rng.standard_normal(slot.nbytes // 4) / 8).astype(np.float32).tobytes()
        return bytes(slot.nbytes) if data is None else data

    loaded = engine.load(plan)
    contents = {i: first(s) for i, s in enumerate(plan.slots)}
    memory, replay = own_memory(engine, loaded, contents), Replay(engine, loaded, contents)
    for setting in registers:
        for name, value in setting.items():
            loaded.register(plan.registers.index(name), value)
        for part, run in (("init", loaded.init), ("run", loaded.run)):
            init = plan.init_count
            steps = loaded.resolve(0, init) if part == "init" else loaded.resolve(init)
            assert any(s.registers for s in steps) == (part == "run" and bool(setting))
            run()
            replay.run(steps)
            compare(engine, replay, memory, plan.slots)
    replay.free()
    loaded.free()
    for address, _ in memory.values():
        engine.free(address)


def test_decoder_with_registers(engine):
    """Prefill and single tokens of a small Llama: caches, lengths and offsets in registers."""
    model = edgewise.CausalLM(MODELS / "genai_llama_int4_webgpu", engine=engine)
    rng = np.random.default_rng(3)

    def ids(slot, rng):
        if slot.kind == "input":
            return rng.integers(0, model.vocab_size, slot.nbytes // 8).astype(np.int64).tobytes()
        if slot.kind == "cache":
            return (rng.standard_normal(slot.nbytes // 4) / 8).astype(np.float32).tobytes()
        return None

    for one in model.plans:
        plan = one.loaded.plan
        settings = [{"past": past, "last": one.tokens - 1} for past in (0, 1, 7)]
        assert set(settings[0]) <= set(plan.registers)
        run_both(engine, plan, rng, registers=settings, before=ids)
    model.free()


def training_model():
    """A perceptron with a norm and a dropout."""
    rng = np.random.default_rng(1)
    weights = {
        "w0": rng.standard_normal((6, 32)) / 3,
        "g": np.ones(32),
        "b": np.zeros(32),
        "w1": rng.standard_normal((32, 5)) / 6,
    }
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("MatMul", ["x", "w0"], ["h"]),
            node("LayerNormalization", ["h", "g", "b"], ["n"]),
            node("Gelu", ["n"], ["a"]),
            node("MatMul", ["a", "w1"], ["logits"]),
        ],
        "perceptron",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [12, 6])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [12, 5])],
        [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@pytest.mark.parametrize("optimizer", ["AdamW", "AdamW8bit"])
def test_training_step(engine, optimizer):
    """Forward, loss, backward, clipping and the optimizer in one plan."""
    graph = read_model(BytesSource(training_model()))
    program = Program(
        graph, {"x": [12, 6]}, loss="cross_entropy", optimizer=optimizer, max_grad_norm=0.5
    )
    plan = program.plan("train")

    def integers(slot, rng):  # labels, the number of the step
        if slot.dtype == INT64:
            return np.ones(slot.nbytes // 8, np.int64).tobytes()
        if slot.dtype == FLOAT and slot.kind == "state":  # Adam's v is not negative
            return np.abs(rng.standard_normal(slot.nbytes // 4)).astype(np.float32).tobytes()
        return None

    run_both(engine, plan, np.random.default_rng(5), registers=({}, {}), before=integers)


def test_bounds(engine):
    """Steps that do not exist, and values of a register that no step can run with."""
    loaded = engine.load(Plan(encode_plan([], []), [], [], [], [], 0, 0))
    assert loaded.resolve() == [] == loaded.resolve(0, 0)
    for first, count in ((0, 1), (1, 0), (1, 1), (0xFFFFFFFF, 1), (0, 0xFFFFFFFF)):
        with pytest.raises(EngineError):
            loaded.resolve(first, count)
    loaded.free()

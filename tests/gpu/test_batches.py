"""Steps that one dispatch runs: how many dispatches are left, and that results stay the same."""

import functools

import numpy as np
import pytest
from bench import models
from edgewise.compiler.compile import compile_causal_lm
from edgewise.compiler.gpu.variants import stages_of
from edgewise.compiler.targets import CPU, target_of
from edgewise.compiler.targets.webgpu import WEBGPU
from edgewise.engine.native import NativeEngine
from edgewise.host.webgpu import compare
from edgewise.host.webgpu.loaded import WebGPUPlan
from edgewise.onnx import BytesSource, read_model
from edgewise.training.language_model import causal_lm_inputs
from edgewise.training.peft import LoraConfig
from edgewise.training.program import Program
from edgewise.training.session import TrainingSession

from .adapters import gpu

SMALL = {"width": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "inner": 96, "vocab": 80}
LORA = LoraConfig(r=4, target_modules="all-linear")


@functools.cache
def graph(layers, small=False, **more):
    shape = {**models.SMOLLM2, "vocab": 512, **(SMALL if small else {}), "layers": layers, **more}
    return read_model(BytesSource(models.language_model(**shape).SerializeToString()))


def training(layers, target, small=False, **more):
    inputs = causal_lm_inputs(graph(layers, small), 1, 16 if small else 128)
    more = more or {"lora": LORA, "trainable": []}
    return Program(graph(layers, small), **inputs, target=target, optimizer="AdamW", **more)


def loaded_on(plan, monkeypatch, serial=False):
    """The plan on a GPU, without compiled programs."""
    engine = gpu(serial=serial)
    monkeypatch.setattr(engine.pipelines, "prepare", lambda program, where: None)
    return WebGPUPlan(engine, plan)


def dispatches(plans, monkeypatch):
    out = []
    for plan in plans:
        loaded = loaded_on(plan, monkeypatch)
        out.append(loaded.info["dispatches"])
        loaded.free()
    return out


@pytest.mark.parametrize("kv_heads", [3, 1])
def test_dispatches_for_a_token(monkeypatch, kv_heads):
    """Of a layer: products for q, k and v with the norm before them and rotations that write the
    cache with the copy of v after them, attention, its product, both products of the MLP with norm
    and activation, the last one. Around them: the embedding, three for tables of rotations, the
    mask, and the logits with their norm.
    """
    graphs = [graph(n, kv_heads=kv_heads) for n in (2, 4)]
    plans = [compile_causal_lm(g, capacity=64, target=WEBGPU)[1][0] for g in graphs]
    two, four = dispatches(plans, monkeypatch)
    assert four - two == 10
    assert two - 10 <= 6


def test_dispatches_of_a_training_step(monkeypatch):
    plans = [training(n, WEBGPU).plan("train") for n in (1, 2)]
    one, two = dispatches(plans, monkeypatch)
    steps = [len(plan.kernels) - plan.init_count for plan in plans]
    assert two - one <= 49 < (steps[1] - steps[0]) / 2.1


def test_a_gpu_in_software_chooses_no_bindings(monkeypatch):
    """Each operand of a dispatch lies in one binding there; gradients have no barriers either."""
    plan = training(2, WEBGPU, small=True).plan("train")
    most, names = [], []
    for serial in (False, True):
        loaded = loaded_on(plan, monkeypatch, serial)
        found = [r for x in loaded.launches if x for of in x.arrangement.roles for r in of]
        most.append(max(len(role.bindings) for role in found))
        names.append({v.name for step in loaded.steps for v in stages_of(step, [])})
        loaded.free()
    assert most[0] > 1 == most[1]
    assert "softmax_and_grad.alone" in names[1] and "attention" not in names[1]


def test_one_dispatch_updates_all_parameters(monkeypatch):
    plan = training(2, WEBGPU).plan("train")
    loaded = loaded_on(plan, monkeypatch)
    updates = [x for x in loaded.launches if x and x.step.kernel.name == "optimizer"]
    assert plan.kernels.count("optimizer") == 28 == sum(len(x.steps) for x in updates)
    assert len(updates) == 1
    loaded.free()


@pytest.mark.parametrize("more", [{}, {"trainable": "all"}], ids=["lora", "all"])
def test_arenas_of_training_grow_little(more):
    # the memory of gradients that wait for their updates: 16 MB, and the one after them
    one, several = (training(2, t, **more).plan("train") for t in (CPU, WEBGPU))
    assert several.arena_bytes <= 1.3 * one.arena_bytes + (20 << 20) * bool(more)


@pytest.mark.parametrize("more", [{}, {"trainable": "all"}], ids=["lora", "all"])
def test_steps_of_training(more):
    ids = np.random.default_rng(2).integers(0, SMALL["vocab"], (3, 1, 16))
    runs = []
    for engine in (NativeEngine(threads=1), gpu(), gpu()):
        program = training(2, target_of(engine.device), small=True, **more)
        session = TrainingSession(program, engine)
        feeds = [{"input_ids": x, "attention_mask": np.ones_like(x), "labels": x} for x in ids]
        names = {i.name for i in program.plan("train").slots if i.kind == "input"}
        losses = [
            session.train({k: v for k, v in f.items() if k in names}, 1e-2)["loss"] for f in feeds
        ]
        states = {n: session.device.read(b) for n, b in session.memory.items()}
        runs.append((np.array(losses), states, session))
    (want, cpu, _), (got, first, session), (again, second, other) = runs
    np.testing.assert_allclose(got, want, rtol=1e-3)
    for name in cpu:
        if ".lora_" in name or name.endswith("weight"):
            a, b = (np.frombuffer(x[name], np.float32) for x in (cpu, first))
            assert np.abs(a - b).max() <= 2e-3 * max(np.abs(a).max(), 1e-3), name
    assert got.tobytes() == again.tobytes() and first == second  # the same bits in every run
    batches = [x for x in session.loaded["train"].launches if x and len(x.steps) > 1]
    assert len(batches) > 10 and not any(x.members for x in batches)
    assert compare(session.loaded["train"]) == []
    for s in (session, other):
        s.free()


def test_a_batch_that_needs_too_many_bindings(monkeypatch):
    """Its steps run one by one, with the same results."""
    ids = np.arange(16)[None] % SMALL["vocab"]
    losses = []
    for apart in (False, True):
        session = TrainingSession(training(1, WEBGPU, small=True), gpu())
        with monkeypatch.context() as m:
            if apart:
                m.setattr("edgewise.host.webgpu.launch.Launch.fits", fits_until_bound())
            names = {i.name for i in session.program.plan("train").slots if i.kind == "input"}
            feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": ids}
            feeds = {k: v for k, v in feeds.items() if k in names}
            losses += [[session.train(feeds, 1e-2)["loss"] for _ in range(2)]]
        members = [x for x in session.loaded["train"].launches if x and x.members]
        assert bool(members) == apart
        session.free()
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def fits_until_bound():
    """Launch.fits that is true while a plan is loaded."""
    return lambda self, arrangement: not self.loaded.bound or len(self.steps) == 1

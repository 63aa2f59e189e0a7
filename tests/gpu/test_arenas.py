"""Plans with several arenas: no step reads and writes one, and the engine in C runs them, too."""

from dataclasses import replace

import numpy as np
import pytest
from bench import models
from edgewise.compiler.compile import compile_causal_lm
from edgewise.compiler.declare.kernel import KERNELS
from edgewise.compiler.schema.plan_format import ARENA, SLOT0
from edgewise.compiler.targets import CPU, Limits, target_of
from edgewise.compiler.targets.webgpu import WEBGPU
from edgewise.engine.native import NativeEngine
from edgewise.errors import UnsupportedOp
from edgewise.host.engine.device import EngineDevice
from edgewise.onnx import BytesSource, read_model
from edgewise.training.session import TrainingSession
from training.zoo import ZooCase, cases


class Foreign(EngineDevice):
    """The engine in C on plans for a GPU."""

    target = "webgpu"


class ForeignEngine(NativeEngine):
    @property
    def device(self):
        return Foreign(self)


def language_model(target, layers=4):
    shape = {**models.SMOLLM2, "vocab": 512, "layers": layers}
    graph = read_model(BytesSource(models.language_model(**shape).SerializeToString()))
    return compile_causal_lm(graph, capacity=256, target=target)[1]


@pytest.fixture(scope="module")
def training():
    return ZooCase(cases()["nanogpt_op17_ce_adamw"])


def clashes(plan, engine):
    """Steps that read a temp slot and write the same one, other than the same bytes in place."""
    loaded = engine.load(plan)
    kinds = [s.kind for s in plan.slots]
    found = []
    for i, step in enumerate(loaded.resolve()):
        operands = [
            (o, v) for o, v in zip(KERNELS[step.kernel].operands, step.operands) if v is not None
        ]
        assert all(o.name == "scratch" for o, v in operands if v.buffer == ARENA)
        used = [
            (o.output, v)
            for o, v in operands
            if v.buffer >= SLOT0 and kinds[v.buffer - SLOT0] == "temp"
        ]
        for output, v in used:
            for other, w in used:
                if output and not other and v.buffer == w.buffer and v.begin != w.begin:
                    found.append(i)
    loaded.free()
    return found


def test_no_step_reads_and_writes_one_arena(training):
    engine = NativeEngine(threads=1)
    plans = [*language_model(WEBGPU), training.program(target=WEBGPU).plan("train")]
    for plan in plans:
        temps = [s for s in plan.slots if s.kind == "temp"]
        assert len(temps) >= 3 and clashes(plan, engine) == []


def test_several_arenas_need_little_more_memory():
    for one, several in zip(language_model(CPU, 8), language_model(WEBGPU, 8)):
        arenas = [s.nbytes for s in several.slots if s.kind == "temp"]
        assert all(nbytes % WEBGPU.memory.arena_alignment == 0 for nbytes in arenas)
        assert one.arena_bytes <= several.arena_bytes <= 1.15 * one.arena_bytes


def test_the_engine_in_c_runs_them(training):
    losses = []
    for engine in (NativeEngine(threads=1), ForeignEngine(threads=1)):
        session = TrainingSession(training.program(target=target_of(engine.device)), engine)
        rate = training.spec["lr"]
        losses.append([session.train(training.feeds(), rate)["loss"] for _ in range(3)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


def test_limits_hold_for_arenas(training):
    small = replace(WEBGPU, limits=Limits(buffer_bytes=4096))
    with pytest.raises(UnsupportedOp, match="4096"):
        training.program(target=small).plan("train")

"""Launches that run in pieces, of a language model and of training: the bits are the same as in one
dispatch, also where steps share it, take results or have several shaders.
"""

import numpy as np
import pytest
from bench import models
from edgewise.compiler.targets.webgpu import WEBGPU
from edgewise.training.session import TrainingSession
from training.zoo import ZooCase, cases

from .adapters import at_once, gpu
from .test_batches import SMALL, training
from .test_models_on_gpu import greedy

SHAPE = {"width": 128, "heads": 2, "kv_heads": 1, "head_dim": 64, "inner": 32, "vocab": 40}


@pytest.mark.parametrize("serial", [False, True])
def test_a_language_model(tmp_path, serial):
    path = tmp_path / "model.onnx"
    model = models.language_model(**{**models.SMOLLM2, **SHAPE, "layers": 1})
    path.write_bytes(models.in_4_bits(model).SerializeToString())
    engine = gpu(serial=serial)
    ids, logits, plans = greedy(engine, path, 2)
    with at_once(engine, 1, 5) as pace:
        again, others, _ = greedy(engine, path, 2)
    assert pace.pieces > sum(plan["dispatches"] for plan in plans)
    assert again == ids and [x.tobytes() for x in others] == [x.tobytes() for x in logits]
    assert serial or any(plan["takers"] for plan in plans)


@pytest.mark.parametrize("serial", [False, True])
def test_steps_of_training(serial):
    engine, runs = gpu(serial=serial), []
    ids = np.arange(16)[None] % SMALL["vocab"]
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": ids}
    for bound in (1 << 40, 20_000):
        session = TrainingSession(training(1, WEBGPU, small=True), engine)
        names = {i.name for i in session.program.plan("train").slots if i.kind == "input"}
        given = {k: v for k, v in feeds.items() if k in names}
        with at_once(engine, bound) as pace:
            losses = [session.train(given, 1e-2)["loss"] for _ in range(2)]
        states = {n: session.device.read(b) for n, b in session.memory.items()}
        runs.append((losses, states))
        session.free()
    assert runs[0] == runs[1] and pace.pieces > 50


def test_a_clipped_norm_of_gradients():
    case, engine, runs = ZooCase(cases()["mlp_clipnorm_ce_adamw"]), gpu(), []
    for bound in (1 << 40, 1):
        session = TrainingSession(case.program(target=WEBGPU), engine)
        with at_once(engine, bound):
            losses = [session.train(case.feeds(), case.spec["lr"])["loss"] for _ in range(2)]
        runs.append((losses, {n: session.device.read(b) for n, b in session.memory.items()}))
        session.free()
    assert runs[0] == runs[1]

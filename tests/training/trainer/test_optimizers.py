"""Optimizers, parameter groups, clipping and schedules of Trainer against PyTorch."""

import edgewise
import numpy as np
import pytest
import torch
from edgewise.compiler.training import optimizers
from edgewise.errors import InputError
from edgewise.logic.training.schedules import factor

from .models import net, rows, tensors, trainer

# ---- optimizers ----
OPTIMIZERS = [
    (optimizers.AdamW(lr=1e-2), lambda p: torch.optim.AdamW(p, lr=1e-2)),
    (
        optimizers.Adam(lr=1e-2, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1),
    ),
    (
        optimizers.SGD(lr=1e-2, momentum=0.9, nesterov=True, weight_decay=0.05),
        lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True, weight_decay=0.05),
    ),
    (
        optimizers.SGD(lr=1e-2, momentum=0.8, dampening=0.3),
        lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.8, dampening=0.3),
    ),
    (optimizers.Adagrad(lr=1e-2), lambda p: torch.optim.Adagrad(p, lr=1e-2)),
    (
        optimizers.RMSprop(lr=1e-2, centered=True, momentum=0.5),
        lambda p: torch.optim.RMSprop(p, lr=1e-2, centered=True, momentum=0.5),
    ),
]


@pytest.mark.parametrize("ours, theirs", OPTIMIZERS, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_optimizers(ours, theirs, accumulate):
    """In the plan that updates at once, and in the two that accumulate."""
    model, module = net()
    data = rows(8, kind="numbers")
    t = edgewise.Trainer(
        model,
        loss="mse",
        optimizer=ours,
        batch_size=8 // accumulate,
        gradient_accumulation_steps=accumulate,
    )
    optimizer, (x, y) = theirs(module.parameters()), tensors(data)
    parts = [{n: v[i::accumulate] for n, v in data.items()} for i in range(accumulate)]
    for _ in range(15):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        assert t.step(parts if accumulate > 1 else data) == pytest.approx(loss.item(), rel=1e-4)
    for name, p in module.named_parameters():
        np.testing.assert_allclose(t.session.get(name), p.detach(), rtol=1e-3, atol=1e-4)
    t.free()


@pytest.mark.parametrize("name", ["AdamW8bit", "Lion"])
def test_other_optimizers_learn(name):
    data = rows(64, kind="numbers")
    t = trainer("mse", optimizer=name, learning_rate=1e-2)
    got = t.fit(data, epochs=20, progress=False).losses
    if name == "AdamW8bit":
        want = trainer("mse", learning_rate=1e-2).fit(data, epochs=20, progress=False).losses
        assert got[-1] == pytest.approx(want[-1], rel=0.05) and sum(
            s.nbytes
            for s in t.program.states.values()
            if s.kind == "optimizer" and s.name.endswith(("exp_avg", "exp_avg_sq"))
        ) == 2 * (6 * 16 + 16 + 16 * 4 + 4)
    assert np.mean(got[-8:]) < 0.8 * np.mean(got[:8])


def test_the_callers_optimizer_is_left_alone():
    mine = optimizers.AdamW(lr=1.0)
    assert trainer(optimizer=mine, learning_rate=0.5).optimizer.lr == 0.5 and mine.lr == 1.0


def test_groups():
    """no_decay, learning rates by group, the first pattern that fits; a frozen parameter does not
    move.
    """
    model, module = net()
    data = rows(8)
    t = edgewise.Trainer(
        model,
        loss="cross_entropy",
        optimizer=optimizers.AdamW(lr=1e-2, weight_decay=0.3),
        batch_size=8,
        no_decay=["*bias"],
        groups=[("2.weight", {"lr_scale": 0.1, "weight_decay": 0.5})],
        frozen=["0.bias"],
    )
    p = dict(module.named_parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p["2.weight"]], "lr": 1e-3, "weight_decay": 0.5},
            {"params": [p["2.bias"]], "weight_decay": 0.0},
            {"params": [p["0.weight"]], "weight_decay": 0.3},
        ],
        lr=1e-2,
    )
    x, y = tensors(data)
    for _ in range(10):
        module.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
        t.step(data)
    for n in ("0.weight", "2.weight", "2.bias"):
        np.testing.assert_allclose(t.session.get(n), p[n].detach(), rtol=1e-4, atol=1e-5)
    assert "0.bias" not in t.program.states
    t.free()


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("how", ["norm", "value"])
def test_clipping(how, accumulate):
    model, module = net()
    data = rows(8, kind="numbers")
    t = edgewise.Trainer(
        model,
        loss="mse",
        optimizer="SGD",
        learning_rate=0.5,
        batch_size=8 // accumulate,
        gradient_accumulation_steps=accumulate,
        **{f"max_grad_{how}": 0.1},
    )
    optimizer, (x, y) = torch.optim.SGD(module.parameters(), lr=0.5), tensors(data)
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(module(x), y)
        loss.backward()
        (torch.nn.utils.clip_grad_norm_ if how == "norm" else torch.nn.utils.clip_grad_value_)(
            module.parameters(), 0.1
        )
        optimizer.step()
        assert t.step(
            [{n: v[i::2] for n, v in data.items()} for i in range(2)] if accumulate == 2 else data
        ) == pytest.approx(loss.item(), rel=1e-4)
    t.free()


@pytest.mark.parametrize("name", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 7])
def test_schedules(name, warmup):
    """transformers.get_scheduler's factors; and a run follows them."""
    from transformers import get_scheduler

    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=1.0)
    theirs = get_scheduler(
        name if name != "constant" or not warmup else "constant_with_warmup",
        optimizer,
        num_warmup_steps=warmup,
        num_training_steps=20,
    )
    want = []
    for _ in range(20):
        want.append(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
    assert [factor(name, i, 20, warmup) for i in range(20)] == pytest.approx(want, abs=1e-12)
    seen = []
    t = trainer(optimizer="SGD", learning_rate=0.5, schedule=name, warmup_steps=warmup)
    step = t.step
    t.step = lambda b: (seen.append(t.learning_rate()), step(b))[1]
    t.fit(rows(), epochs=5, progress=False)
    assert seen == pytest.approx([0.5 * w for w in want], abs=1e-9)
    t.free()


def test_schedule_words():
    with pytest.raises(InputError, match="no schedule 'linaer'"):
        trainer(schedule="linaer")
    t = trainer(schedule="linear")
    with pytest.raises(InputError, match="total_steps"):
        t.step(rows(8))
    t = trainer(schedule="linear", total_steps=4, optimizer="SGD", learning_rate=1.0)
    assert [(t.step(rows(8)), t.learning_rate())[1] for _ in range(4)] == [0.75, 0.5, 0.25, 0.0]
    t = trainer(schedule=lambda step, total: 1 / (1 + step), learning_rate=1.0)
    t.step(rows(8))
    assert t.learning_rate() == 0.5

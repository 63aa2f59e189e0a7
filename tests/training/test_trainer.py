"""`Trainer` and what it is made of: the loop, its options against PyTorch and transformers, and
what a failure must not lose.
"""

import io
import json
import os
import sys

import edgewise
import numpy as np
import onnx
import pytest
import torch
from edgewise.engine.native import NativeEngine
from edgewise.errors import Aborted, EdgewiseError, EngineError, InputError, ModelError
from edgewise.training import losses, optimizers
from edgewise.training.data import TokenRows, token_rows
from edgewise.training.peft import LoraConfig
from edgewise.training.safetensors import load_safetensors, save_safetensors
from edgewise.training.schedules import factor
from onnx import helper as h

from . import llama


def net(seed=0, dropout=None):
    """(bytes of an ONNX model, the same in PyTorch)."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    nodes = [
        h.make_node("Gemm", ["x", "0.weight", "0.bias"], ["a"], "/0/Gemm", transB=1),
        h.make_node("Tanh", ["a"], ["t"]),
    ]
    if dropout is not None:
        nodes.append(h.make_node("Dropout", ["t", "ratio"], ["b"]))
    nodes.append(
        h.make_node(
            "Gemm",
            ["b" if dropout is not None else "t", "2.weight", "2.bias"],
            ["y"],
            "/2/Gemm",
            transB=1,
        )
    )
    weights = [
        onnx.numpy_helper.from_array(p.detach().numpy().copy(), n)
        for n, p in model.named_parameters()
    ]
    if dropout is not None:
        weights.append(onnx.numpy_helper.from_array(np.float32(dropout), "ratio"))
    g = h.make_graph(
        nodes,
        "net",
        [h.make_tensor_value_info("x", 1, ["n", 6])],
        [h.make_tensor_value_info("y", 1, ["n", 4])],
        weights,
    )
    return (
        h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=9).SerializeToString(),
        model,
    )


def rows(n=32, seed=0, kind="classes"):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 6)).astype("f4")
    return {
        "x": x,
        "labels": (
            rng.integers(0, 4, n)
            if kind == "classes"
            else (
                rng.random((n, 4)).astype("f4")
                if kind == "probabilities"
                else (rng.standard_normal((n, 4)) * 2).astype("f4")
            )
        ),
    }


def trainer(loss="cross_entropy", **more):
    model, _ = net()
    return edgewise.Trainer(model, loss=loss, **{"batch_size": 8, "learning_rate": 1e-2, **more})


def tensors(batch):
    return torch.tensor(batch["x"]), torch.tensor(batch["labels"])


# ---- losses ----
WEIGHT = [0.2, 1.0, 3.0, 0.5]
LOSSES = [
    ("cross_entropy", torch.nn.CrossEntropyLoss(), "classes"),
    (
        losses.CrossEntropyLoss(label_smoothing=0.1),
        torch.nn.CrossEntropyLoss(label_smoothing=0.1),
        "classes",
    ),
    (
        losses.CrossEntropyLoss(weight=WEIGHT),
        torch.nn.CrossEntropyLoss(torch.tensor(WEIGHT)),
        "classes",
    ),
    (
        losses.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.3, ignore_index=2),
        torch.nn.CrossEntropyLoss(torch.tensor(WEIGHT), label_smoothing=0.3, ignore_index=2),
        "classes",
    ),
    (
        losses.CrossEntropyLoss(reduction="sum"),
        torch.nn.CrossEntropyLoss(reduction="sum"),
        "classes",
    ),
    ("mse", torch.nn.MSELoss(), "numbers"),
    (losses.MSELoss(reduction="sum"), torch.nn.MSELoss(reduction="sum"), "numbers"),
    ("l1", torch.nn.L1Loss(), "numbers"),
    ("huber", torch.nn.HuberLoss(), "numbers"),
    (losses.HuberLoss(delta=0.3), torch.nn.HuberLoss(delta=0.3), "numbers"),
    ("bce_with_logits", torch.nn.BCEWithLogitsLoss(), "probabilities"),
    (
        losses.BCEWithLogitsLoss(pos_weight=2.5),
        torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.5)),
        "probabilities",
    ),
]


@pytest.mark.parametrize("ours, theirs, kind", LOSSES, ids=lambda x: str(x)[:60])
def test_losses(ours, theirs, kind, engine):
    """Ten steps of SGD: the losses of PyTorch."""
    model, module = net()
    batch = rows(8, kind=kind)
    t = edgewise.Trainer(
        model, loss=ours, optimizer="SGD", learning_rate=0.02, batch_size=8, engine=engine
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
    x, y = tensors(batch)
    for _ in range(10):
        optimizer.zero_grad()
        loss = theirs(module(x), y)
        loss.backward()
        optimizer.step()
        assert t.step(batch) == pytest.approx(loss.item(), rel=1e-4)
    t.free()


def test_large_logits_stay_finite():
    """BCE and its gradient at logits where log(sigmoid) is none."""
    model, module = net()
    with torch.no_grad():
        module[2].bias += torch.tensor([200.0, -200.0, 90.0, 0.0])
    g = onnx.load_from_string(model)
    next(i for i in g.graph.initializer if i.name == "2.bias").CopyFrom(
        onnx.numpy_helper.from_array(module[2].bias.detach().numpy(), "2.bias")
    )
    batch = rows(8, kind="probabilities")
    t = edgewise.Trainer(
        g.SerializeToString(),
        loss="bce_with_logits",
        optimizer="SGD",
        learning_rate=0.1,
        batch_size=8,
    )
    x, y = tensors(batch)
    assert t.step(batch) == pytest.approx(
        torch.nn.functional.binary_cross_entropy_with_logits(module(x), y).item(), rel=1e-5
    )
    assert np.isfinite(t.step(batch))
    t.free()


def test_losses_of_ones_own():
    """A function that composes ONNX operators; an output of the model that is a loss; several
    outputs.
    """

    def loss(g, outputs, fed):
        d = g.sub(outputs["y"], fed["goal"])
        return g.op(
            "ReduceMean",
            g.op(
                "Mul",
                g.op("Exp", fed["weights"]),
                g.op("ReduceSum", g.mul(d, d), g.ints([1]), keepdims=0),
            ),
            keepdims=0,
        )

    model, module = net()
    b = rows(8, kind="numbers")
    batch = {"x": b["x"], "goal": b["labels"], "weights": np.linspace(-1, 1, 8).astype("f4")}
    t = edgewise.Trainer(
        model,
        loss=losses.FunctionLoss(loss, {"goal": (1, [8, 4]), "weights": (1, [8])}),
        optimizer="SGD",
        learning_rate=0.01,
        batch_size=8,
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        want = (
            torch.tensor(batch["weights"]).exp()
            * ((module(torch.tensor(b["x"])) - torch.tensor(b["labels"])) ** 2).sum(1)
        ).mean()
        want.backward()
        optimizer.step()
        assert t.step(batch) == pytest.approx(want.item(), rel=1e-4)
    t.free()
    g = onnx.load_from_string(model)
    g.graph.node.append(h.make_node("ReduceL2", ["y"], ["norm"], keepdims=0))
    g.graph.output.append(h.make_tensor_value_info("norm", 1, []))
    t = edgewise.Trainer(
        g.SerializeToString(), loss="output:norm", batch_size=8, learning_rate=1e-2
    )
    values = [t.step({"x": b["x"]}) for _ in range(5)]
    assert values == sorted(values, reverse=True)
    t.free()
    for bad, words in (
        ("output:none", "no output 'none'"),
        ("output:y", "no scalar"),
        ("msee", "no loss 'msee'"),
        (losses.MSELoss(reduction="none"), "one number"),
        (losses.CrossEntropyLoss(label_smoothing=2), "not in"),
        (3, "no loss"),
    ):
        with pytest.raises(InputError, match=words):
            edgewise.Trainer(model, loss=bad, batch_size=8).estimate(b)


def test_loss_that_is_a_model():
    """An ONNX file of its own opset, with a constant that has the name of a parameter: behind the
    model's output.
    """
    scale = np.array([0.5, 1, 2, 3], "f4")
    nodes = [
        h.make_node("Sub", ["y", "goal"], ["d"]),
        h.make_node("Mul", ["d", "0.bias"], ["s"]),
        h.make_node("ReduceSumSquare", ["s"], ["squares"], axes=[1], keepdims=0),
        h.make_node("ReduceMean", ["squares"], ["loss"], keepdims=0),
    ]
    g = h.make_graph(
        nodes,
        "loss",
        [h.make_tensor_value_info("y", 1, ["n", 4]), h.make_tensor_value_info("goal", 1, ["n", 4])],
        [h.make_tensor_value_info("loss", 1, [])],
        [onnx.numpy_helper.from_array(scale, "0.bias")],
    )
    file = h.make_model(g, opset_imports=[h.make_opsetid("", 13)], ir_version=8).SerializeToString()
    model, module = net()
    b = rows(8, kind="numbers")
    with pytest.raises(InputError, match="shapes="):
        edgewise.Trainer(model, loss=losses.GraphLoss(file), batch_size=8).estimate({"x": b["x"]})
    t = edgewise.Trainer(
        model,
        loss=losses.GraphLoss(file, {"goal": [8, 4]}),
        optimizer="SGD",
        learning_rate=0.01,
        batch_size=8,
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        want = (
            (
                ((module(torch.tensor(b["x"])) - torch.tensor(b["labels"])) * torch.tensor(scale))
                ** 2
            )
            .sum(1)
            .mean()
        )
        want.backward()
        optimizer.step()
        assert t.step({"x": b["x"], "goal": b["labels"]}) == pytest.approx(want.item(), rel=1e-4)
    t.free()


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


# ---- the loop ----
def test_fit_as_by_hand():
    """`fit` is `step` on the batches of ArrayRows, in the order that the seed gives."""
    from edgewise.training.data import ArrayRows

    data = rows(36)
    a, b = trainer(seed=5), trainer(seed=5)
    history = a.fit(data, epochs=3, progress=False)
    batches = ArrayRows(data, 8, 5)
    assert (
        history.losses == [b.step(batches.get(i, e)) for e in range(3) for i in range(4)]
        and len(history.losses) == 12
        and history.stopped == "done"
    )
    assert sorted(
        np.concatenate([batches.get(i, 0)["labels"] for i in range(4)]).tolist()
    ) != sorted(data["labels"].tolist()), "four rows fill no batch"
    c = trainer(seed=6)
    assert c.fit(data, epochs=3, progress=False).losses != history.losses
    for t in (a, b, c):
        t.free()


def test_fit_again():
    """A fit that ended is followed by a new one; one that was stopped is taken up; max_steps ends
    early.
    """
    data = rows(32)
    t = trainer()
    assert (
        len(t.fit(data, epochs=2, progress=False).losses) == 8
        and len(t.fit(data, epochs=2, progress=False).losses) == 8
        and t.session.step == 16
    )
    assert len(t.fit(data, epochs=9, max_steps=3, progress=False).losses) == 3
    h1 = t.fit(data, epochs=2, progress=False, callbacks=[lambda p: p.step < 3])
    assert (
        h1.stopped == "callback"
        and len(h1.losses) == 3
        and len(t.fit(data, epochs=2, progress=False).losses) == 5
    )
    straight, stopped = trainer(), trainer()
    want = straight.fit(data, epochs=2, progress=False).losses
    got = stopped.fit(data, epochs=2, progress=False, callbacks=[lambda p: p.step != 5]).losses
    assert got + stopped.fit(data, epochs=2, progress=False).losses == want
    assert len(t.fit(data, max_steps=0, progress=False).losses) == 0
    for x in (t, straight, stopped):
        x.free()


def test_evaluation_and_early_stopping():
    data, held_out = rows(32), rows(16, seed=9)
    t = trainer(learning_rate=0.1)
    seen = []
    history = t.fit(
        data,
        epochs=50,
        evaluation=held_out,
        evaluate_every=2,
        early_stopping=3,
        callbacks=[lambda p: seen.append(p)],
        progress=False,
    )
    assert history.stopped == "early_stopping" and [s for s, _ in history.evaluations] == list(
        range(2, 2 * len(history.evaluations) + 1, 2)
    )
    values = [v for _, v in history.evaluations]
    assert min(values[-3:]) >= min(values) and len(values) - 1 - values.index(min(values)) == 3
    assert (
        [p.evaluation for p in seen if p.evaluation is not None] == values
        and seen[-1].step == len(history.losses)
        and seen[0].total == 200
    )
    x, y = tensors(held_out)
    _, module = net()
    with torch.no_grad():
        for n, p in module.named_parameters():
            p.copy_(torch.tensor(np.array(t.session.get(n))))
        assert t.evaluate(held_out) == pytest.approx(
            torch.nn.functional.cross_entropy(module(x), y).item(), rel=1e-5
        )
    t.free()


def test_abort_keeps_what_was_learned():
    class Signal:
        aborted = False

    signal, t = Signal(), trainer()
    with pytest.raises(Aborted, match="update 3"):
        t.fit(
            rows(),
            epochs=4,
            progress=False,
            signal=signal,
            callbacks=[lambda p: setattr(signal, "aborted", p.step == 3)],
        )
    assert t.session.step == 3
    signal.aborted = False
    assert len(t.fit(rows(), epochs=4, progress=False, signal=signal).losses) == 13
    t.free()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_save_and_resume(tmp_path, accumulate, engine):
    """Stopped after any update and taken up in a new trainer: the same losses and parameters, bit
    for bit; dropout's random numbers go on, too.
    """
    model, _ = net(dropout=0.3)

    def make():
        return edgewise.Trainer(
            model,
            loss="cross_entropy",
            batch_size=4,
            gradient_accumulation_steps=accumulate,
            learning_rate=1e-2,
            schedule="cosine",
            warmup_steps=2,
            seed=4,
            engine=engine,
        )

    data, path = rows(32), tmp_path / "run.safetensors"
    whole = make()
    want = whole.fit(data, epochs=2, progress=False).losses
    for stop in (1, 5, 8 // accumulate):
        first = make()
        got = first.fit(
            data,
            epochs=2,
            progress=False,
            callbacks=[lambda p, stop=stop: p.step != stop],
            checkpoint=path,
            checkpoint_every=100,
        ).losses
        assert len(got) == stop
        second = make().resume(path)
        assert got + second.fit(data, epochs=2, progress=False).losses == want
        for n in ("0.weight", "2.bias"):
            assert np.array_equal(second.session.get(n), whole.session.get(n))
        first.free(), second.free()
    whole.free()


def test_checkpoints_that_do_not_fit(tmp_path):
    """Whatever is wrong with the file, the trainer stays as it was."""
    path = tmp_path / "run.safetensors"
    data = rows()
    t = trainer()
    t.fit(data, progress=False)
    t.save(path)
    good = path.read_bytes()
    other = trainer(learning_rate=3e-3)
    other.fit(data, progress=False)
    before = {n: other.session.read(n) for n in other.program.states}
    cursor = other.epoch, other.cursor, other.session.runs

    def refused(content, kind, make=None):
        path.write_bytes(content)
        with pytest.raises(kind):
            (make or other).resume(path)
        assert {n: other.session.read(n) for n in other.program.states} == before and (
            other.epoch,
            other.cursor,
            other.session.runs,
        ) == cursor

    for cut in (0, 7, 8, 100, len(good) // 2, len(good) - 1):
        refused(good[:cut], ModelError)
    refused(b"\xff" * 400, ModelError)
    refused(good.replace(b"edgewise-checkpoint-2", b"edgewise-checkpoint-9"), ModelError)
    for at in (
        *range(8, len(good), 97),
        len(good) - 1,
    ):  # a flipped bit anywhere: the file has a sum, which its header is a part of
        refused(good[:at] + bytes([good[at] ^ 16]) + good[at + 1 :], ModelError)
    refused(good.replace(b'"0.weight"', b'"0.wei_ht"'), EdgewiseError)
    refused(good.replace(b'\\"runs\\": ', b'\\"ruXs\\": '), EdgewiseError)
    refused(good, InputError, trainer(optimizer="SGD"))
    path.write_bytes(good)
    other.resume(path, changed=["learning_rate"])
    assert np.array_equal(other.session.get("0.weight"), t.session.get("0.weight"))
    tensors, metadata = load_safetensors(str(path))  # as earlier versions wrote them, without a sum
    run = json.loads(metadata["edgewise"])
    del run["sha256"]
    save_safetensors(
        {n: (x.dtype, x.shape, x.bytes()) for n, x in tensors.items()},
        path,
        {"edgewise": json.dumps({**run, "format": "edgewise-checkpoint-1"})},
    )
    other.resume(path, changed=["learning_rate"])
    with pytest.raises(EdgewiseError):
        t.save(tmp_path / "no" / "folder" / "x")
    t.free(), other.free()


def test_seeds():
    """Dropout follows from the seed: the same twice, on one thread bit for bit; another seed gives
    other masks; evaluation has none.
    """
    model, _ = net(dropout=0.5)
    data = rows(8)

    def losses_of(seed, threads=1):
        t = edgewise.Trainer(
            model,
            loss="cross_entropy",
            batch_size=8,
            seed=seed,
            learning_rate=1e-2,
            engine=NativeEngine(threads),
        )
        out = [t.step(data) for _ in range(6)], t.evaluate(data), t.evaluate(data)
        t.free()
        return out

    a, b, c = losses_of(1), losses_of(1), losses_of(2)
    assert (
        a == b
        and a[0] != c[0]
        and a[1] == a[2]
        and losses_of(1, 2)[0] == pytest.approx(a[0], rel=1e-5)
    )


def test_engines_agree(engine):
    """The same trajectory on every engine, dropout included."""
    model, _ = net(dropout=0.2)
    out = []
    for e in (NativeEngine(1), engine):
        t = edgewise.Trainer(
            model, loss="cross_entropy", batch_size=8, seed=3, learning_rate=1e-2, engine=e
        )
        out.append(t.fit(rows(), epochs=5, progress=False).losses)
        t.free()
    assert out[1] == pytest.approx(out[0], rel=1e-4)


# ---- what goes wrong ----
def test_failed_calls_lose_nothing(engine):
    """Bad batches are refused before a state changes, also where only the engine can tell (a label
    that is no class, a token that is none).
    """
    t = trainer(engine=engine, optimizer=optimizers.AdamW())
    good = rows(8)
    for _ in range(2):
        t.step(good)
    before = {n: t.session.read(n) for n in t.program.states}
    runs = t.session.runs
    bad = [
        ({"x": good["x"][:7], "labels": good["labels"][:7]}, "is wanted"),
        ({"x": good["x"]}, "missing"),
        ({**good, "z": good["x"]}, "no input 'z'"),
        ({**good, "labels": good["labels"].astype("f4")}, "is wanted"),
        ({**good, "labels": np.full(8, np.nan, "f4")}, "is wanted"),
        ({**good, "x": good["x"].astype("f8")}, "is wanted"),
        ({**good, "labels": good["labels"] + 4}, "out of range"),
        ({**good, "labels": good["labels"] - 5}, "out of range"),
        ({**good, "x": [["a"] * 6] * 8}, "list of numbers"),
    ]
    for batch, words in bad:
        with pytest.raises(InputError, match=words):
            t.step(batch)
        assert {
            n: t.session.read(n) for n in t.program.states
        } == before and t.session.runs == runs, words
    fresh = trainer(engine=engine, optimizer=optimizers.AdamW())
    want = [fresh.step(good) for _ in range(3)][-1]
    assert t.step(good) == want
    t.free(), fresh.free()


def test_running_statistics_wait_for_the_loss():
    """A batch that fails in the loss has not moved BatchNormalization's statistics either."""
    from edgewise.training.losses import CrossEntropyLoss
    from edgewise.training.program import Program
    from edgewise.training.session import TrainingSession

    from .zoo import ZooCase, cases

    case = ZooCase(cases()["cnn_bn_ce_adamw"])
    shapes = {n: list(x.shape) for n, x in case.data.items() if n != "target"}
    s = TrainingSession(Program(case.graph, shapes, loss=CrossEntropyLoss(), batch_norm="train"))
    good = case.feeds()
    s.train(good, 1e-3)
    before = {n: s.read(n) for n in s.program.states}
    assert any(x.kind == "buffer" for x in s.program.states.values())
    with pytest.raises(InputError, match="out of range"):
        s.train({**good, "labels": good["labels"] + 1000}, 1e-3)
    assert {n: s.read(n) for n in s.program.states} == before
    s.free()


def test_tokens_out_of_range():
    t = edgewise.Trainer(
        llama.base("q4"),
        adapters=LoraConfig(r=2, target_modules="all-linear"),
        batch_size=2,
        sequence_length=16,
    )
    t.step(llama.batch())
    before = {n: t.session.read(n) for n in t.program.states}
    bad = llama.batch()
    bad["input_ids"][1, 3] = 256
    with pytest.raises(InputError, match="out of range"):
        t.step(bad)
    assert {n: t.session.read(n) for n in t.program.states} == before
    t.free()


def test_numbers_that_are_none():
    t = trainer("mse")
    bad = rows(8, kind="numbers")
    bad["labels"][3, 1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        t.step(bad)
    wild = trainer("mse", optimizer="SGD", learning_rate=1e30)
    with pytest.raises(EngineError, match="loss is (nan|inf).*smaller learning rate"):
        wild.fit(rows(kind="numbers"), epochs=9, progress=False)
    t.free(), wild.free()


def test_nan_leaves_the_checkpoint(tmp_path):
    path = tmp_path / "run"
    t = trainer("mse", optimizer="SGD", learning_rate=1e30)
    with pytest.raises(EngineError):
        t.fit(rows(kind="numbers"), epochs=9, progress=False, checkpoint=path, checkpoint_every=1)
    back = trainer("mse", optimizer="SGD").resume(path, changed=["learning_rate"])
    assert back.session.step <= 3
    t.free(), back.free()


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"batch_size": 0}, "batch_size"),
        ({"gradient_accumulation_steps": 1.5}, "gradient_acc"),
        ({"optimizer": "Adamm"}, "no optimizer"),
        ({"optimizer": {"type": "SGD", "beta": 1}}, "beta"),
        ({"adapters": 3}, "LoraConfig"),
        ({"trainable": ["x*"]}, "no initializer"),
        ({"frozen": ["nope"]}, "no initializer"),
        ({"trainable": ["0.*"], "frozen": ["0.*"]}, "no parameter"),
        ({"optimizer": optimizers.SGD(nesterov=True)}, "momentum"),
    ],
)
def test_absurd_options(fields, words):
    with pytest.raises(InputError, match=words):
        edgewise.Trainer(net()[0], loss="cross_entropy", **{"batch_size": 8, **fields}).estimate(
            rows(8)
        )


def test_data_that_is_none():
    t = trainer()
    for data, words in (
        ({}, "rows"),
        ({"x": np.zeros((3, 6), "f4"), "labels": np.zeros(4, int)}, "same first"),
        ({"x": np.zeros((3, 6), "f4"), "labels": np.zeros(3, int)}, "no batch"),
        (5, "no data"),
        (["a"], "no data"),
    ):
        with pytest.raises(InputError, match=words):
            t.fit(data, progress=False)
    with pytest.raises(InputError, match="not said what"):
        edgewise.Trainer(net()[0])
    with pytest.raises(InputError, match="no such file"):
        edgewise.Trainer("/no/such/folder")


def test_cyclic_graph():
    g = onnx.load_from_string(net()[0])
    g.graph.node.append(h.make_node("Add", ["p", "y"], ["q"]))
    g.graph.node.append(h.make_node("Add", ["q", "y"], ["p"]))
    g.graph.output.append(h.make_tensor_value_info("p", 1, ["n", 4]))
    with pytest.raises(ModelError):
        edgewise.Trainer(
            g.SerializeToString(), loss=losses.MSELoss(output="p"), batch_size=8
        ).estimate(rows(8, kind="numbers"))


# ---- language models ----
def test_texts():
    """Texts become rows of tokens, one token shared; padding does not count; every token is learned
    from once per epoch.
    """
    stream = list(range(10, 50))
    made = token_rows([stream], 16)
    targets = [t for ids, labels in made for t in labels[1:] if t != -100]
    assert targets == stream[1:] and all(len(ids) == len(labels) == 16 for ids, labels in made)
    assert token_rows([[1, 2], [3]], 8, end=0)[0] == (
        [1, 2, 0, 3, 0, 0, 0, 0],
        [1, 2, 0, 3, 0, -100, -100, -100],
    )
    batches = TokenRows(made, 2, seed=1)
    assert sum(batches.tokens(i, 0) for i in range(len(batches))) == len(stream) - 1
    seen = sorted(
        int(t)
        for i in range(len(batches))
        for row in np.asarray(batches.get(i, 0)["labels"])
        for t in row[1:]
        if t != -100
    )
    assert seen == sorted(stream[1:])
    with pytest.raises(InputError, match="too few"):
        token_rows([[1]], 8)


def test_evaluation_of_texts():
    """The mean over tokens, whatever batch they fall into: transformers' loss of the whole."""
    t = edgewise.Trainer(
        llama.base("q4"), adapters=LoraConfig(r=2), batch_size=2, sequence_length=16
    )
    stream = np.random.default_rng(0).integers(3, 256, 40).tolist()
    model, total, count = llama.pytorch(), 0.0, 0
    for ids, labels in token_rows([stream], 16):
        out = model(torch.tensor([ids])).logits[0]
        kept = [(i, x) for i, x in enumerate(labels[1:]) if x != -100]
        total += torch.nn.functional.cross_entropy(
            out[[i for i, _ in kept]], torch.tensor([x for _, x in kept]), reduction="sum"
        ).item()
        count += len(kept)
    assert t.evaluate([stream]) == pytest.approx(total / count, rel=1e-5)
    t.free()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress(monkeypatch):
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    trainer().fit(rows(), epochs=2, evaluation=rows(8), callbacks=[lambda p: None])
    lines = out.getvalue().split("\r")
    assert (
        len(lines) == 9
        and lines[-1].startswith("#" * 24 + " 8/8 loss ")
        and "evaluation" in lines[-1]
        and "rows/s" in lines[-1]
        and lines[-1].endswith("\n")
    )
    assert lines[1].startswith("###" + "." * 21 + " 1/8")
    quiet = io.StringIO()
    monkeypatch.setattr(sys, "stderr", quiet)
    trainer().fit(rows())
    assert quiet.getvalue() == ""


def test_half_precision_models_learn_in_float32(tmp_path):
    """All parameters of a float16 file: small updates count, and generation uses the weights as
    they are trained.
    """
    path = tmp_path / "model.onnx"
    path.write_bytes(llama.base("fp16"))
    t = edgewise.Trainer(
        path, batch_size=2, sequence_length=16, optimizer="SGD", learning_rate=1e-3
    )
    t.step(llama.batch())
    lm = t.language_model()
    s = lm.open()
    got = np.array(lm.logits(lm.forward(s, [5, 9, 77])))
    import onnxruntime

    from .test_lora import run_ort

    want = run_ort(onnxruntime.InferenceSession(t.export()), [5, 9, 77])
    assert np.abs(got - want).max() <= 3e-3 * np.abs(want).max()
    t.free()


def test_command(tmp_path, capsys):
    from edgewise.cli import main

    folder = os.path.join(os.path.dirname(__file__), "..", "..", "web", "demo", "model")
    (tmp_path / "text.txt").write_text("The wolf ran. " * 60)
    code = main(
        [
            "train",
            folder,
            str(tmp_path / "text.txt"),
            "--lora",
            "--batch-size",
            "2",
            "--sequence-length",
            "32",
            "--steps",
            "3",
            "--adapter",
            str(tmp_path / "a"),
        ]
    )
    out = capsys.readouterr()
    assert code == 0 and "loss" in out.out and (tmp_path / "a" / "adapter_config.json").exists(), (
        out
    )
    assert main(["train", str(tmp_path / "nothing"), str(tmp_path / "text.txt")]) == 1


def test_damaged_files(tmp_path):
    """Checkpoints and adapters with bytes changed at random: taken, or refused in words, and then
    nothing has changed.
    """
    rng = np.random.default_rng(0)
    t = edgewise.Trainer(
        llama.base("q4"),
        adapters=LoraConfig(r=2, target_modules=["q_proj"]),
        batch_size=2,
        sequence_length=16,
    )
    t.step(llama.batch())
    path = tmp_path / "run"
    t.save(path)
    t.save_adapter(tmp_path / "adapter")
    files = [
        (path, t.resume, path),
        (tmp_path / "adapter" / "adapter_model.safetensors", t.load_adapter, tmp_path / "adapter"),
        (tmp_path / "adapter" / "adapter_config.json", t.load_adapter, tmp_path / "adapter"),
    ]
    taken = 0
    for file, load, where in files:
        good = file.read_bytes()
        header = min(len(good), 3000)
        for _ in range(60):
            bad = bytearray(good)
            for _ in range(rng.integers(1, 4)):
                at = int(rng.integers(0, header))
                if rng.random() < 0.3:
                    del bad[at : at + int(rng.integers(1, 9))]
                else:
                    bad[at] = int(rng.integers(0, 256))
            file.write_bytes(bad)
            before = (
                {n: t.session.read(n) for n in t.program.states},
                t.epoch,
                t.cursor,
                t.session.runs,
            )
            try:
                load(where)
                taken += 1
            except EdgewiseError:
                assert before == (
                    {n: t.session.read(n) for n in t.program.states},
                    t.epoch,
                    t.cursor,
                    t.session.runs,
                )
        file.write_bytes(good)
    assert taken < 120
    t.resume(path).load_adapter(tmp_path / "adapter")
    assert np.isfinite(t.step(llama.batch()))
    t.free()


def test_a_run_goes_on_as_it_was_made(tmp_path):
    """What would make another run of it is told by name, and may be allowed by name."""
    path = tmp_path / "run.safetensors"
    t = trainer()
    t.fit(rows(), progress=False)
    t.save(path)
    for change in (
        {"learning_rate": 0.5},
        {"batch_size": 2},
        {"gradient_accumulation_steps": 2},
        {"schedule": "linear"},
        {"warmup_steps": 3},
        {"seed": 5},
    ):
        other = trainer(**change)
        name = {"learning_rate": "optimizer.lr", "gradient_accumulation_steps": "accumulation"}.get(
            *change, *change
        )
        with pytest.raises(InputError, match=name):
            other.resume(path)
        other.free()
    t.free()


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": -1.0},
        {"learning_rate": float("nan")},
        {"max_grad_norm": -1},
        {"warmup_steps": -4},
        {"seed": "x"},
        {"groups": [{}]},
        {"adapters": {"rank": 8}},
        {"loss": "foo"},
    ],
)
def test_numbers_that_make_no_sense(change):
    with pytest.raises(EdgewiseError):
        trainer(**change)


def test_mostly_quantized_models_want_adapters():
    from pathlib import Path

    import edgewise

    folder = Path(__file__).parents[1] / "zoo" / "models" / "q4_llama"
    with pytest.raises(InputError, match="quantized"):
        edgewise.Trainer(folder / "model.onnx")

"""Trainer.fit: the loop, evaluation, progress, and models of every kind."""

import io
import os
import sys

import edgewise
import numpy as np
import pytest
import torch
from edgewise.engine.native import NativeEngine
from edgewise.errors import Aborted, InputError
from edgewise.host.training.data import TokenRows
from edgewise.logic.training.data import token_rows
from edgewise.training.peft import LoraConfig

from .. import llama
from .models import net, rows, tensors, trainer


# ---- the loop ----
def test_fit_as_by_hand():
    """`fit` is `step` on the batches of ArrayRows, in the order that the seed gives."""
    from edgewise.host.training.data import ArrayRows

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


def test_running_statistics_wait_for_the_loss():
    """A batch that fails in the loss has not moved BatchNormalization's statistics either."""
    from edgewise.training.losses import CrossEntropyLoss
    from edgewise.training.program import Program
    from edgewise.training.session import TrainingSession

    from ..zoo import ZooCase, cases

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

    from ..adapters.models import run_ort

    want = run_ort(onnxruntime.InferenceSession(t.export()), [5, 9, 77])
    assert np.abs(got - want).max() <= 3e-3 * np.abs(want).max()
    t.free()


def test_command(tmp_path, capsys):
    from edgewise.cli import main

    folder = os.path.join(os.path.dirname(__file__), "..", "..", "..", "web", "demo", "model")
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


def test_the_best_result_at_the_end(tmp_path):
    """`load_best_model_at_end` leaves the weights of the best evaluation, also in a run that was
    stopped, saved and gone on with; without it they are the last ones.
    """
    data, held_out = rows(32), rows(16, seed=9)
    path = tmp_path / "run.safetensors"
    options = {"epochs": 50, "evaluation": held_out, "evaluate_every": 2, "progress": False}
    best = {"early_stopping_patience": 3, "load_best_model_at_end": True}

    def trained(t):
        return {n: t.session.read(n) for n, s in t.program.states.items() if s.kind == "parameter"}

    last = trainer(learning_rate=0.1)
    seen = {}
    plain = last.fit(
        data,
        **options,
        early_stopping=3,
        callbacks=[lambda p: seen.setdefault(p.step, trained(last)) and None],
    )
    one = trainer(learning_rate=0.1)
    history = one.fit(data, **options, **best)
    assert history.losses == plain.losses and history.evaluations == plain.evaluations
    loss = min(x for _, x in history.evaluations)
    assert (history.best_step, loss) in history.evaluations
    assert trained(one) == seen[history.best_step] != trained(last)
    assert one.evaluate(held_out) == loss
    for stop in (3, history.best_step + 3):
        first = trainer(learning_rate=0.1)
        first.fit(data, **options, **best, callbacks=[lambda p, stop=stop: p.step < stop])
        first.save(path)
        second = trainer(learning_rate=0.1).resume(path)
        rest = second.fit(data, **options, **best)
        assert rest.losses == history.losses[stop:] and rest.best_step == history.best_step
        assert trained(second) == trained(one)
        first.free(), second.free()
    with pytest.raises(InputError, match="load_best_model_at_end: there is no evaluation data"):
        one.fit(data, load_best_model_at_end=True)
    with pytest.raises(InputError, match="early_stopping_patience: there is no evaluation data"):
        one.fit(data, early_stopping=2)
    with pytest.raises(InputError, match="it is 2, and early_stopping, another name of it, is 1"):
        one.fit(data, evaluation=held_out, early_stopping=1, early_stopping_patience=2)
    one.save(path)  # what was put back is not kept twice
    assert b"best/" not in path.read_bytes()
    again = trainer(learning_rate=0.1).resume(path)
    rest = again.fit(data, **options, **best)
    assert rest.best_step == history.best_step and trained(again) == trained(one)
    again.free(), one.free(), last.free()


def test_the_best_result_has_a_copy():
    """A run whose first part kept no copies takes the best of those that it has."""
    values = iter([1.0, 2.0, 3.0, 2.5])
    t = trainer(learning_rate=0.1)
    t.evaluate = lambda rows: next(values)
    options = {"max_steps": 8, "evaluation": rows(16, seed=9), "evaluate_every": 2}
    t.fit(rows(32), **options, progress=False, callbacks=[lambda p: p.step < 4])
    history = t.fit(rows(32), **options, progress=False, load_best_model_at_end=True)
    assert history.evaluations == [(6, 3.0), (8, 2.5)] and history.best_step == 8
    t.free()


def test_averages_of_weights(tmp_path):
    """`ema_decay` gives the averages of torch.optim.swa_utils at the end of a run, and evaluations
    are of them; updates and losses stay as they are, also in a run that goes on.
    """
    data, held_out = rows(32), rows(16, seed=9)
    options = {"epochs": 2, "evaluation": held_out, "evaluate_every": 3, "progress": False}

    def trained(t):
        return {n: t.session.read(n) for n, s in t.program.states.items() if s.kind == "parameter"}

    plain, seen = trainer(learning_rate=0.1), []
    losses = plain.fit(data, **options, callbacks=[lambda p: seen.append(trained(plain))]).losses
    module = net()[1]
    averaged = torch.optim.swa_utils.AveragedModel(
        module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8)
    )
    x, y = tensors(held_out)
    want = []
    for weights in seen:
        with torch.no_grad():
            for n, p in module.named_parameters():
                p.copy_(torch.tensor(np.frombuffer(weights[n], "f4").reshape(p.shape)))
            averaged.update_parameters(module)
            want.append(torch.nn.functional.cross_entropy(averaged(x), y).item())
    t = trainer(learning_rate=0.1, ema_decay=0.8)
    history = t.fit(data, **options)
    assert history.losses == losses
    assert [s for s, _ in history.evaluations] == [3, 6, 8]
    for step, loss in history.evaluations:
        assert loss == pytest.approx(want[step - 1], rel=1e-5)
    for n, p in averaged.module.named_parameters():
        assert np.array(t.session.get(n)) == pytest.approx(p.detach().numpy(), rel=1e-5, abs=1e-6)
    first = trainer(learning_rate=0.1, ema_decay=0.8)
    first.fit(data, **options, callbacks=[lambda p: p.step < 4])
    assert trained(first) == seen[3]
    first.save(tmp_path / "run.safetensors")
    second = trainer(learning_rate=0.1, ema_decay=0.8).resume(tmp_path / "run.safetensors")
    assert second.fit(data, **options).losses == losses[4:]
    assert trained(second) == trained(t) != trained(plain)
    best = trainer(learning_rate=0.1, ema_decay=0.8)
    made = best.fit(data, **options, load_best_model_at_end=True)
    loss = dict(made.evaluations)[made.best_step]
    assert best.evaluate(held_out) == loss == min(x for _, x in history.evaluations)
    with pytest.raises(InputError, match="ema_decay was None, is 0.8"):
        plain.save(tmp_path / "plain.safetensors")
        trainer(learning_rate=0.1, ema_decay=0.8).resume(tmp_path / "plain.safetensors")
    with pytest.raises(InputError, match="ema_decay was 0.8, is None"):
        trainer(learning_rate=0.1).resume(tmp_path / "run.safetensors")
    with pytest.raises(InputError, match="ema_decay: it is 1"):
        trainer(ema_decay=1)
    for one in (plain, t, first, second, best):
        one.free()

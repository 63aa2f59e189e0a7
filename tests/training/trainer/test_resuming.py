"""Trainer: runs that are saved and resumed, and files that do not fit."""

import json

import edgewise
import numpy as np
import pytest
from edgewise.errors import EdgewiseError, EngineError, InputError, ModelError
from edgewise.host.training.trainer.checkpoint import save_checkpoint
from edgewise.training.peft import LoraConfig
from edgewise.training.safetensors import load_safetensors, save_safetensors

from .. import llama
from .models import net, rows, trainer


@pytest.mark.parametrize("accumulate", [1, 2])
def test_save_and_resume(tmp_path, accumulate, engine):
    """Stopped after any update and resumed in a new trainer: the same losses and parameters, bit
    for bit; also the random numbers of dropout continue.
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
    refused(good.replace(b"edgewise-checkpoint-3", b"edgewise-checkpoint-9"), ModelError)
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
    with pytest.raises(EdgewiseError):
        t.save(tmp_path / "no" / "folder" / "x")
    t.free(), other.free()


@pytest.mark.parametrize("version", [1, 2])
def test_checkpoints_of_earlier_versions(tmp_path, version):
    """Their field `begun` is `first_update` now, and version 1 has no digest."""
    path = tmp_path / "run.safetensors"
    t = trainer()
    t.fit(rows(), progress=False)
    t.save(path)
    tensors, metadata = load_safetensors(str(path))
    states = {n: (x.dtype, x.shape, x.bytes()) for n, x in tensors.items()}
    run = json.loads(metadata["edgewise"])
    del run["first_update"], run["sha256"]
    run |= {"format": f"edgewise-checkpoint-{version}", "begun": 2}
    if version == 1:
        save_safetensors(states, path, {"edgewise": json.dumps(run)})
    else:
        save_checkpoint(states, run, path)
    other = trainer().resume(path)
    assert np.array_equal(other.session.get("0.weight"), t.session.get("0.weight"))
    assert (other.first_update, other.session.step) == (2, t.session.step)
    t.free(), other.free()


def test_nan_leaves_the_checkpoint(tmp_path):
    path = tmp_path / "run"
    t = trainer("mse", optimizer="SGD", learning_rate=1e30)
    with pytest.raises(EngineError):
        t.fit(rows(kind="numbers"), epochs=9, progress=False, checkpoint=path, checkpoint_every=1)
    back = trainer("mse", optimizer="SGD").resume(path, changed=["learning_rate"])
    assert back.session.step <= 3
    t.free(), back.free()


def test_damaged_files(tmp_path):
    """Checkpoints and adapters with random changes of bytes are loaded, or refused with an error,
    and then nothing has changed.
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
    """Options that would change the run are refused by name, and can be allowed by name."""
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

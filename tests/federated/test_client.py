"""The native client with a Trainer: rounds made again, FedProx, settings, wrong servers."""

import pytest

pytest.importorskip("websockets")
pytest.importorskip("flwr")

import hashlib
import json
import math
from pathlib import Path

import numpy as np
from edgewise import LoraConfig, Trainer
from edgewise.compiler.training.safetensors import load_safetensors, save_safetensors
from edgewise.errors import Aborted, InputError, StorageError
from edgewise.extras.federated.client import FederatedClient
from edgewise.extras.federated.client_secure import clipped
from edgewise.extras.federated.client_state import ClientState
from edgewise.extras.federated.codec import norm_of
from edgewise.extras.federated.local_training import LocalTraining
from edgewise.extras.federated.rounds import rate_of
from edgewise.extras.federated.run_folder import RunFolder
from edgewise.extras.federated.settings import Settings
from edgewise.locks import locked
from edgewise.logic.federated.requests import Finished, Secrets

from .toys import SCHEMA, Toy, random_values

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "web/demo/model"
TEXT = (ROOT / "LICENSE").read_text()


@pytest.fixture(scope="module")
def training():
    trainer = Trainer(
        MODEL, adapters=LoraConfig(r=4), batch_size=2, sequence_length=32, learning_rate=2e-3
    )
    one = LocalTraining(trainer, [TEXT[:6000]])
    yield one
    one.close()


def trained(training, weights, number=1, **config):
    return training.train(weights, {"local-steps": 3, **config}, 0, number, lambda: False)


def distance(a, b):
    return norm_of({n: a[n] - b[n] for n in a})


def test_a_round_made_again_gives_the_same_bits(training):
    weights = training.weights()
    first, other = trained(training, weights), trained(training, weights, number=2)
    again = trained(training, weights)
    assert all(np.array_equal(first.values[n], again.values[n]) for n in weights)
    assert distance(first.values, other.values) > 0  # another order of the rows
    assert first.steps == 3 and first.examples == len(training.rows) * 2
    assert first.metrics["loss"] > 0


def test_the_proximal_term_keeps_weights_near(training):
    weights = training.weights()
    free, near = trained(training, weights), trained(training, weights, **{"proximal-mu": 500.0})
    assert 0 < distance(near.values, weights) < 0.7 * distance(free.values, weights)


def test_a_server_sets_the_learning_rate(training):
    weights = training.weights()
    still = trained(training, weights, **{"learning-rate": 0.0})
    assert distance(still.values, weights) == 0


@pytest.mark.parametrize(
    "config", [{"local-steps": -1}, {"local-steps": 0}, {"learning-rate": "x"}]
)
def test_wrong_settings_are_declined(training, config):
    with pytest.raises(InputError, match="positive number|at least 1"):
        trained(training, training.weights(), **config)


def test_training_ends_at_the_deadline(training):
    with pytest.raises(Aborted):
        training.train(training.weights(), {}, 0, 1, lambda: True)


def test_the_loss_of_weights(training):
    weights = training.weights()
    better = trained(training, weights, **{"local-steps": 12}).values
    held = [TEXT[6000:9000]]
    assert training.evaluate(better, held) < training.evaluate(weights, held)


def test_the_clip_is_of_all_that_leaves():
    """What earlier updates have rounded away is a part of it."""
    changes, left = {"w": np.float32([1, 0])}, {"w": np.float32([2, 4])}
    sent, more = clipped(changes, 1.0, left)
    assert not more and np.allclose(sent["w"], [0.6, 0.8])
    sent, more = clipped(changes, 9.0, left)
    assert not more and np.allclose(sent["w"], [3, 4])
    assert clipped(changes, math.inf, left) == (changes, left)


def test_a_server_that_is_not_there():
    client = FederatedClient("ws://127.0.0.1:9", Toy(0), attempts=1)
    with pytest.raises(InputError, match="federate serve"):
        client.run()
    for url in ("http://127.0.0.1:9", "ws:///rounds", "127.0.0.1:9"):
        with pytest.raises(InputError, match="Give ws://"):
            FederatedClient(url, Toy(0)).run()


def test_a_folder_is_for_one_process(tmp_path):
    client = FederatedClient("ws://127.0.0.1:1", Toy(0), folder=str(tmp_path), attempts=0)
    run = RunFolder(tmp_path)
    with locked(tmp_path / "lock"), pytest.raises(StorageError, match="another process takes part"):
        client.run()
    with run.lock(), run.lock("rounds"), pytest.raises(StorageError, match="serves the run"):
        run.lock().__enter__()
    other = ClientState(str(tmp_path), SCHEMA)
    other.spent["group"] = 1.0  # by a process that was there when this one began
    other.save()
    with pytest.raises(InputError):
        client.run()
    assert client.state.spent == {"group": 1.0}


def test_a_damaged_state_is_not_used(tmp_path):
    values = random_values(0)
    state = ClientState(str(tmp_path), SCHEMA)
    state.have = "base"
    state.receive(values)
    update = Finished("r 1 base", b"update", hashlib.sha256(b"update").hexdigest(), 1, 1, {}, None)
    state.finished = update
    state.next(random_values(1), {"r": b"moments"})
    state.accepted()
    state.save()
    path = tmp_path / "client.safetensors"
    whole = path.read_bytes()
    for part, said in (
        (b"moments", "the optimizer, training begins with a new one"),
        (b"update", "the last update"),
        (values["dense"].tobytes(), "the weights"),
        (random_values(1)["dense"].tobytes(), "what updates have rounded away"),
    ):
        assert whole.count(part) == 1
        path.write_bytes(whole.replace(part, part[:-1] + bytes([part[-1] ^ 1])))
        with pytest.warns(UserWarning, match=f"client is damaged .not used: {said}"):
            found = ClientState(str(tmp_path), SCHEMA)
        assert found.kept == ({} if part == b"moments" else {"r": b"moments"})
        assert found.finished == (None if part == b"update" else update)
        assert (found.have is None) == (said == "the weights")
        assert ("dense" in found.left) == ("rounded" not in said)
    names = (b'"values/dense":{', b'"vblues/dense":{', "the weights")
    for old, new, said in (
        names,
        (b'"have', b'"hbve', "anew"),
        (b'steps\\": 1', b'steps\\": 2', "anew"),
    ):
        assert whole.count(old) == 1
        path.write_bytes(whole.replace(old, new))
        with pytest.warns(UserWarning, match=said):
            assert ClientState(str(tmp_path), SCHEMA).have is None
    path.write_bytes(whole[:-1])
    with pytest.warns(UserWarning, match="begins anew"):
        assert ClientState(str(tmp_path), SCHEMA).token is None
    assert path.stat().st_mode & 0o77 == 0


def test_a_state_of_an_older_version(tmp_path):
    """The key of an update was a list."""
    state = ClientState(str(tmp_path), SCHEMA)
    own = Secrets(bytes(range(32)), {"roster": "x"})
    state.finished = Finished("r 1 base context", b"numbers", "", 1, 0, {}, own)
    state.save()
    path = tmp_path / "client.safetensors"
    assert ClientState(str(tmp_path), SCHEMA).finished == state.finished
    tensors, metadata = load_safetensors(path.read_bytes())
    record = json.loads(metadata["client"])
    record["finished"]["key"] = ["r", 1, "base", "context"]
    text = json.dumps(record)
    metadata = {"client": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    given = {n: (t.dtype, tuple(t.shape), t.bytes()) for n, t in tensors.items()}
    path.write_bytes(save_safetensors(given, None, metadata))
    assert ClientState(str(tmp_path), SCHEMA).finished == state.finished


def test_the_learning_rate_of_a_round():
    fields = {"learning_rate": 0.02, "rounds": 5}
    assert rate_of(Settings(**fields), 3) == 0.02 and rate_of(Settings(), 3) is None
    rates = [rate_of(Settings(schedule="cosine", **fields), n) for n in range(1, 6)]
    assert rates == pytest.approx([0.02, 0.017364, 0.011, 0.004636, 0.002], abs=1e-6)
    # transformers' get_wsd_schedule(optimizer, num_warmup_steps=0, num_decay_steps=4,
    # num_training_steps=10, min_lr_ratio=0.05, decay_type="linear")
    expected = [0.02] * 7 + [0.01525, 0.0105, 0.00575, 0.001]
    cooldown = Settings(schedule="cooldown", learning_rate=0.02, rounds=11)
    rates = [rate_of(cooldown, n) for n in range(1, 13)]
    assert rates == pytest.approx([*expected, 0.001])
    assert rate_of(Settings(schedule="cooldown", learning_rate=0.02, rounds=1), 1) == 0.02
    with pytest.raises(InputError, match="needs the learning rate"):
        Settings(schedule="cosine")

"""Flower's strategies over the hub: exact means, momentum, dropouts, attacks, killed servers."""

import pytest

pytest.importorskip("websockets")
pytest.importorskip("flwr")

import numpy as np
from edgewise.errors import InputError, ModelError
from edgewise.extras.federated.codec import norm_of
from edgewise.extras.federated.grid import Changed
from edgewise.extras.federated.rounds import run_rounds
from edgewise.extras.federated.run_folder import RunFolder
from edgewise.extras.federated.settings import Settings
from edgewise.training.safetensors import save_safetensors
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower

from .serving import WEIGHTS, Server, identity  # noqa: F401 (a fixture)
from .toys import Running, Toy, random_values, wait_for

pytestmark = pytest.mark.usefixtures("identity")


def run(folder, toys, **fields):
    """A run with toys. Returns the last weights and the log."""
    server = Server(folder, clients=len(toys), **fields)
    return finish(server, toys)


def finish(server, toys, folder=None):
    """Plays a server's rounds with toys. Returns the last weights and the log."""
    clients = [Running(server.url, toy, folder=folder and str(folder / str(toy.k))) for toy in toys]
    server.start(len(toys))
    out = server.end()
    for client in clients:
        client.end()
    return out


def mean_of_round(weights, toys, number):
    """The weighted mean in float64 of what toys add to float32 weights."""
    total = sum(10 * (t.k + 1) for t in toys)
    out = {}
    for n, w in weights.items():
        started = w.astype(np.float32)
        deltas = [(started + t.change(number)[n]) - started for t in toys]
        out[n] = w + sum(10 * (t.k + 1) * d.astype(float) for t, d in zip(toys, deltas)) / total
    return out


def as_float32(weights):
    return {n: np.asarray(w, np.float32) for n, w in weights.items()}


def ulps(a, b):
    """The largest distance in units of the last place of float32."""
    a, b = as_float32(a), as_float32(b)
    return max(float((np.abs(a[n] - b[n]) / np.spacing(np.abs(a[n]))).max()) for n in a)


@pytest.mark.parametrize("seed", range(3))
def test_the_mean_is_exact(tmp_path, seed):
    toys = [Toy(10 * seed + k, seconds=0.02 * ((k + seed) % 3)) for k in range(8)]
    server = Server(tmp_path / "run", clients=8, rounds=5)
    _, log = finish(server, toys)
    for number in range(1, 6):
        expected = mean_of_round(server.states[number - 1], toys, number)
        assert ulps(server.states[number], expected) <= 1
    assert [(line["round"], line["participants"]) for line in log] == [(n, 8) for n in range(1, 6)]


def test_momentum_is_that_of_flower(tmp_path):
    """The same weights as Flower's FedAvgM makes of the means of the rounds."""
    toys = [Toy(k) for k in range(3)]
    server = Server(tmp_path / "run", clients=3, rounds=4, strategy="fedavgm", momentum=0.7)
    finish(server, toys)
    theirs = flower.FedAvgM(server_momentum=0.7)
    theirs.current_arrays = record_of(WEIGHTS)
    for number in range(1, 5):
        mean = record_of(mean_of_round(server.states[number - 1], toys, number))
        content = RecordDict({"arrays": mean, "metrics": MetricRecord({"num-examples": 1})})
        arrays, _ = theirs.aggregate_train(number, [Message(content, 1, "train")])
        expected = {n: array.numpy() for n, array in arrays.items()}
        assert ulps(server.states[number], expected) <= 1


def record_of(weights):
    return ArrayRecord({n: Array(np.asarray(w, np.float64)) for n, w in weights.items()})


@pytest.mark.parametrize("codec", ["float32", "int4"])
def test_b_alone_changes(tmp_path, codec):
    """The others keep their bits, at the server and at clients that got changes of B."""
    toys = [Toy(k) for k in range(3)]
    server = Server(tmp_path / "run", clients=3, rounds=2, part="B", codec=codec)
    given = {}
    clients = [Running(server.url, t, on_weights=given.update) for t in toys]
    server.start(3)
    arrays, _ = server.end()
    for client in clients:
        client.end()
    b = "m.lora_B.weight"
    for name, before in WEIGHTS.items():
        same = np.array_equal(arrays[name], before) and np.array_equal(given[name], before)
        assert same == (name != b)
    if codec == "float32":
        expected = mean_of_round(mean_of_round(WEIGHTS, toys, 1), toys, 2)
        assert ulps({b: arrays[b]}, {b: expected[b]}) <= 1


def test_a_lossy_codec_stays_close(tmp_path):
    """Rounding is carried over to the next update, on both ways."""
    toys = [Toy(k) for k in range(3)]
    exact, _ = run(tmp_path / "exact", toys, rounds=6)
    for codec, most in (("float16", 1e-3), ("int8", 0.02), ("int4", 0.25)):
        arrays, _ = run(tmp_path / codec, toys, rounds=6, codec=codec)
        error = norm_of({n: (arrays[n] - exact[n]).astype(np.float32) for n in exact})
        moved = norm_of({n: (exact[n] - WEIGHTS[n]).astype(np.float32) for n in exact})
        assert error < most * moved


@pytest.mark.parametrize("codec", ["float32", "int4"])
def test_clients_get_the_last_weights(tmp_path, codec):
    """All have the same bits, and those of the run's folder but for the rounding of its codec."""
    toys, got = [Toy(k) for k in range(3)], []
    server = Server(tmp_path / "run", clients=3, rounds=2, codec=codec)
    clients = [Running(server.url, toy, on_weights=got.append) for toy in toys]
    server.start(3)
    arrays, _ = server.end()
    for client in clients:
        client.end()
    assert len(got) == 3 and RunFolder(tmp_path / "run").ended
    for n in arrays:
        assert all(np.array_equal(weights[n], got[0][n]) for weights in got)
        step = np.abs(server.states[2][n] - server.states[1][n]).max() / 7
        assert np.abs(got[0][n] - arrays[n]).max() <= (step if codec == "int4" else 0) + 1e-6


class Vanishing(Toy):
    """Leaves in the given round, while it trains."""

    def __init__(self, k, number):
        super().__init__(k)
        self.number, self.running = number, None

    def train(self, weights, config, seed, number, stop):
        if number == self.number:
            wait_for(lambda: self.running)
            self.running.client.leave()
        return super().train(weights, config, seed, number, stop)


def test_the_mean_is_of_those_who_replied(tmp_path):
    toys = [Toy(0), Toy(1), Vanishing(2, 2)]
    server = Server(tmp_path / "run", clients=2, rounds=3, grace=1.0, fraction=1.0)
    clients = [Running(server.url, toy) for toy in toys]
    toys[2].running = clients[2]
    server.start(3)
    _, log = server.end()
    assert [(line["participants"], line["refused"]) for line in log] == [(3, 0), (2, 1), (2, 0)]
    assert "has left" in next(iter(log[1]["errors"].values()))
    for number, there in ((1, toys), (2, toys[:2]), (3, toys[:2])):
        expected = mean_of_round(server.states[number - 1], there, number)
        assert ulps(server.states[number], expected) <= 1
    for client in clients[:2]:
        client.end()


def test_a_round_with_too_few_updates_does_not_count(tmp_path):
    """The weights stay as they are, and the next round counts again."""

    class Once(Toy):
        def train(self, weights, config, seed, number, stop):
            if number == 1:
                raise InputError("not this time", "test")
            return super().train(weights, config, seed, number, stop)

    toys = [Toy(0), Once(1), Once(2)]
    server = Server(tmp_path / "run", clients=3, rounds=2, least=2, codec="int4")
    _, log = finish(server, toys)
    assert [(line["participants"], line["refused"]) for line in log] == [(0, 3), (3, 0)]
    reasons = sorted(log[0]["errors"].values(), key=len)
    assert "has 1 updates that could count, the strategy needs 2" in reasons[-1]
    assert reasons[0] == "the client declined: training failed"  # not the text of its error
    assert all(np.array_equal(server.states[1][n], WEIGHTS[n]) for n in WEIGHTS)


@pytest.mark.parametrize(
    "strategy, fields",
    {
        "krum": {"malicious": 1},
        "multi-krum": {"malicious": 1},
        "median": {},
        "trimmed-mean": {},
        "fedavg": {"clip": 5.0},
        "fedprox": {},
        "fedavgm": {},
        "fedadam": {},
    }.items(),
)
def test_hostile_updates_do_not_move_the_weights(tmp_path, strategy, fields):
    """One of six clients sends a thousandfold update: it is refused or without effect."""
    toys = [Toy(k, scale=0.1) for k in range(5)]
    evil = Toy(5, scale=100.0)
    arrays, log = run(tmp_path / "run", [*toys, evil], rounds=2, strategy=strategy, **fields)
    moved = max(float(np.abs(arrays[n] - WEIGHTS[n]).max()) for n in arrays)
    assert 0 < moved < 1.0
    assert [line["refused"] for line in log] == [1, 1]


@pytest.mark.parametrize("strategy", ["krum", "multi-krum", "median", "trimmed-mean"])
def test_flipped_signs_do_not_move_the_weights(tmp_path, strategy):
    """An update of the same norm, in the opposite direction, does not pass robust strategies."""

    class Same(Toy):
        def change(self, number):
            common = random_values(number, scale=0.1)
            own = random_values(100 * self.k, scale=0.01)
            return {n: (-x if self.k == 4 else x) + own[n] for n, x in common.items()}

    toys = [Same(k) for k in range(5)]
    fields = {"malicious": 1} if "krum" in strategy else {}
    arrays, _ = run(tmp_path / "run", toys, rounds=1, strategy=strategy, **fields)
    for n in arrays:
        common = random_values(1, scale=0.1)[n]
        assert float(np.abs(arrays[n] - WEIGHTS[n] - common).max()) < 0.06


KILLED = [("fedavg", "float32"), ("fedavgm", "int4"), ("fedadam", "int4")]


@pytest.mark.parametrize("strategy, codec", KILLED)
def test_a_run_goes_on_after_a_kill(tmp_path, strategy, codec):
    """A run that ended after two of four rounds ends with the bits of one that did not."""
    toys = [Toy(k) for k in range(3)]
    fields = {"strategy": strategy, "codec": codec}
    whole, _ = run(tmp_path / "whole", toys, rounds=4, run="same", **fields)
    kept = tmp_path / "clients"
    finish(Server(tmp_path / "cut", clients=3, rounds=2, run="same", **fields), toys, kept)
    path = tmp_path / "cut" / "run.json"
    path.write_text(path.read_text().replace('"rounds": 2', '"rounds": 4'))
    finish(Server(tmp_path / "cut"), toys, kept)
    state = RunFolder(tmp_path / "cut").state()
    assert state.number == 4
    assert all(np.array_equal(state.arrays[n], whole[n]) for n in whole)


def test_settings_are_checked(tmp_path):
    with pytest.raises(InputError, match="krum"):
        Settings(strategy="average")
    with pytest.raises(InputError, match="needs 5"):
        Settings(strategy="krum", malicious=1, clients=3)
    with pytest.raises(InputError, match="needs 5"):
        Settings(strategy="trimmed-mean", clients=4)
    with pytest.raises(InputError, match="needs 3"):
        Settings(clients=2, least=3)
    with pytest.raises(InputError, match="port: 65536 cannot be used"):
        Settings(port=65536)
    assert [Settings(clients=n).needed for n in (1, 2, 9)] == [1, 2, 2]
    for name in ("deadline", "stage", "clip", "mu", "learning_rate"):  # no message can say it
        with pytest.raises(InputError, match="inf cannot be used"):
            Settings(**{name: float("inf")})
    RunFolder(tmp_path).create(Settings(), WEIGHTS)
    with pytest.raises(InputError, match="a run already"):
        RunFolder(tmp_path).create(Settings(), WEIGHTS)
    with pytest.raises(InputError, match="there is no run"):
        RunFolder(tmp_path / "none").settings()
    path = tmp_path / "run.json"
    whole = path.read_text()
    for old, new in (('"rounds": 10', '"rounds": "10"'), ('"rounds"', '"round"'), ("{", "[")):
        assert old in whole
        path.write_text(whole.replace(old, new))
        with pytest.raises(ModelError, match=r"not the settings of a run|invalid JSON"):
            RunFolder(tmp_path).settings()
    save_safetensors({}, tmp_path / "state.safetensors", {"round": "1e9"})
    for read in (RunFolder(tmp_path).state_number, RunFolder(tmp_path).state):
        with pytest.raises(ModelError, match="not the state of a run"):
            read()


def test_files_of_killed_processes(tmp_path):
    """What was not finished is removed when the rounds go on; nothing else is."""
    folder = RunFolder(tmp_path)
    folder.create(Settings(), WEIGHTS)
    folder.spend(1, ended=True)
    folder.end()
    (tmp_path / "adapter").mkdir()
    kept = ["notes.json.part", "7.part", "film.mp4.12.part", "adapter/x.safetensors.1.part.bin"]
    left = ["state.safetensors.17.part", "run.json.281474976710655.part"]
    left += ["adapter/adapter_model.safetensors.5.part"]
    for name in kept + left:
        (tmp_path / name).write_bytes(b"half")
    run_rounds(str(tmp_path))
    assert all((tmp_path / name).exists() for name in [*kept, "run.json"])
    assert not any((tmp_path / name).exists() for name in left)


def test_lines_of_killed_processes(tmp_path):
    """Half a line is replaced, a line that was written twice counts once."""
    folder = RunFolder(tmp_path)
    for text in ('{"round": 1, "loss": 1}\n{"round"', '{"round": 2, "loss": 1}\nx\n[1]\n{"rou'):
        with open(tmp_path / "rounds.jsonl", "a") as file:
            file.write(text)
        folder.log({"round": 2, "loss": 2})
    assert folder.lines() == [{"round": 1, "loss": 1}, {"round": 2, "loss": 2}]


def test_a_line_follows_its_state(tmp_path):
    """Who reads the line of a round finds the round's weights in the folder."""
    server = Server(tmp_path / "run", clients=2, rounds=2)
    states, log = [], server.folder.log

    def noted(line):
        states.append((line["round"], server.folder.state_number()))
        log(line)

    server.folder.log = noted
    finish(server, [Toy(0), Toy(1)])
    assert states == [(1, 1), (2, 2)]


def test_weights_that_are_added_when_they_are_read():
    """As Flower's own arrays, also those without a dimension."""
    for shape in ((2, 3), (0, 4), ()):
        before, change = np.full(shape, 0.1), np.full(shape, 0.2, np.float32)
        own = Changed(before, change)
        flowers = Array(np.asarray(before + change))
        assert (own.dtype, own.shape, own.stype) == (flowers.dtype, flowers.shape, flowers.stype)
        assert own.data == flowers.data and np.array_equal(own.numpy(), flowers.numpy())

"""Sites: nodes of Flower, each with a hub of its own. The ClientApp runs in the test's process."""

import pytest

pytest.importorskip("websockets")
pytest.importorskip("flwr")

import json
from types import SimpleNamespace

import numpy as np
from edgewise.errors import EngineError, InputError
from edgewise.extras.federated.app.edgewise_rounds.client_app import app
from edgewise.extras.federated.codec import Schema
from edgewise.extras.federated.hub import Hub, HubOptions
from edgewise.extras.federated.rounds import play_sites
from edgewise.extras.federated.run_folder import RunFolder
from edgewise.extras.federated.settings import Settings
from edgewise.extras.federated.site import Site, ask
from flwr.app import Array, ArrayRecord, Error, Message
from flwr.serverapp import Grid

from .serving import WEIGHTS, identity  # noqa: F401 (a fixture)
from .test_flower import mean_of_round, ulps
from .toys import PATIENCE, SCHEMA, Running, Toy, wait_for

pytestmark = pytest.mark.usefixtures("identity")


class Nodes(Grid):
    """Flower's nodes without Flower's processes: each calls the ClientApp. A node may `spoil` its
    replies.
    """

    run = None

    def __init__(self, sites, spoil=None):
        self.sites, self.spoil = sites, spoil or {}

    def set_run(self, run): ...

    def create_message(self, *given, **named): ...

    def push_messages(self, messages): ...

    def pull_messages(self, message_ids): ...

    def get_node_ids(self):
        return list(self.sites)

    def send_and_receive(self, messages, *, timeout=None):
        return [self._reply(m) for m in messages]

    def _reply(self, message):
        node = message.metadata.dst_node_id
        context = SimpleNamespace(node_config={"site": self.sites[node]}, run_config={})
        try:
            reply = app(message, context)
        except EngineError as e:
            return Message(Error(1, str(e)), reply_to=message)
        if node in self.spoil and reply.content.array_records:
            self.spoil[node](reply.content)
        return reply


class Two:
    """Two sites with clients."""

    def __init__(self, folder, toys):
        self.hubs = [Hub(SCHEMA, "float32", HubOptions(port=0)).start() for _ in toys]
        paths = [str(folder / f"{k}.socket") for k in range(len(toys))]
        self.sites = [Site(h, p, len(t)) for h, p, t in zip(self.hubs, paths, toys)]
        self.paths = dict(enumerate(paths, 1))
        self.last = []
        self.clients = [
            Running(f"ws://127.0.0.1:{hub.port}", toy, on_weights=self.last.append)
            for hub, own in zip(self.hubs, toys)
            for toy in own
        ]

    def play(self, folder, grid, **fields):
        folder = RunFolder(folder)
        folder.create(Settings(sites=True, deadline=PATIENCE, **fields), WEIGHTS)
        schema = Schema.of({n: x.shape for n, x in WEIGHTS.items()})
        play_sites(grid, folder, folder.settings(), folder.state(), schema)
        with open(folder._file("rounds.jsonl")) as file:
            return folder.state().arrays, [json.loads(line) for line in file]

    def end(self):
        for client in self.clients:
            client.end()
        for part in (*self.sites, *self.hubs):
            part.close() if isinstance(part, Site) else part.stop()


@pytest.fixture
def two(tmp_path):
    own = Two(tmp_path, [[Toy(0), Toy(1), Toy(2)], [Toy(3), Toy(4)]])
    yield own
    own.end()


def test_the_mean_over_sites_is_that_over_all_tabs(two, tmp_path):
    arrays, log = two.play(tmp_path / "run", Nodes(two.paths), rounds=1, clients=2)
    toys = [Toy(k) for k in range(5)]
    assert ulps(arrays, mean_of_round(WEIGHTS, toys, 1)) <= 1
    assert [(x["participants"], x["tabs"], x["refused"]) for x in log] == [(2, 5, 0)]
    wait_for(lambda: len(two.last) == 5)  # all tabs of all sites have the last weights
    for weights in two.last:
        assert all(np.array_equal(weights[n], np.float32(arrays[n])) for n in arrays)


def nan(content):
    name = next(iter(WEIGHTS))
    content["arrays"][name] = Array(content["arrays"][name].numpy() * np.nan)


def narrow(content):
    content["arrays"] = ArrayRecord({n: Array(x.numpy()[:1]) for n, x in content["arrays"].items()})


def heavy(content):
    content["metrics"]["num-examples"] = 1e12


def far(content):
    arrays = content["arrays"].items()
    content["arrays"] = ArrayRecord({n: Array(x.numpy() + 1e6) for n, x in arrays})


def broken(content):
    array = content["arrays"][next(iter(WEIGHTS))]
    array.data = array.data[:40]


def more(content):
    content["metrics"]["loss"] = [float("nan")]
    content["metrics"]["participants"] = float("nan")


def test_metrics_of_a_site_end_no_round(two, tmp_path):
    """Flower wants the same metrics of all; a site may report others, or nonsense."""
    grid = Nodes(two.paths, {2: more})
    _, log = two.play(tmp_path / "run", grid, rounds=1, clients=2)
    assert [(x["participants"], x["tabs"]) for x in log] == [(2, 3)]
    assert log[0]["loss"] is None or log[0]["loss"] == log[0]["loss"]


@pytest.mark.parametrize("spoil", [nan, narrow, heavy, far, broken])
def test_a_site_with_a_wrong_reply_does_not_count(two, tmp_path, spoil):
    grid = Nodes(two.paths, {2: spoil})
    arrays, log = two.play(tmp_path / "run", grid, rounds=1, clients=2, least=1, clip=100.0)
    assert [(x["participants"], x["refused"]) for x in log] == [(1, 1)]
    assert ulps(arrays, mean_of_round(WEIGHTS, [Toy(k) for k in range(3)], 1)) <= 1


def test_a_round_with_too_few_sites_does_not_count(two, tmp_path):
    """A robust strategy would follow the only reply that is left."""
    grid = Nodes(two.paths, {2: nan})
    fields = {"rounds": 1, "clients": 2, "strategy": "median"}
    arrays, log = two.play(tmp_path / "run", grid, **fields)
    assert [(x["participants"], x["refused"]) for x in log] == [(0, 2)]
    assert "1 updates that could count, the strategy needs 2" in log[0]["errors"]["1"]
    assert all(np.array_equal(arrays[n], WEIGHTS[n]) for n in WEIGHTS)


def test_requests_to_a_site(two, tmp_path):
    request = {"run": "r", "round": 1, "seconds": PATIENCE, "config": {}, "seed": 0}
    with pytest.raises(InputError, match="federate site"):
        ask(str(tmp_path / "none"), request, WEIGHTS)
    with pytest.raises(EngineError, match="other parameters"):
        ask(two.paths[1], request, {"x": np.zeros(3)})
    with pytest.raises(EngineError, match="cannot be read"):
        ask(two.paths[1], {"run": "r"}, WEIGHTS)
    two.sites[1].least = 3
    with pytest.raises(EngineError, match="fewer than 3"):
        ask(two.paths[2], {**request, "seconds": 0.1}, WEIGHTS)
    told, arrays = ask(two.paths[1], request, WEIGHTS)
    assert (told["participants"], told["refused"]) == (3, []) and set(arrays) == set(WEIGHTS)

"""Rounds over the hub without Flower: exactness, lost connections, hostile clients."""

import pytest

pytest.importorskip("websockets")

import dataclasses
import hashlib

import numpy as np
from edgewise.extras.federated.broadcast import Broadcast
from edgewise.extras.federated.client import SETTINGS
from edgewise.extras.federated.client_state import ClientState
from edgewise.extras.federated.codec import FORMAT, base_of, norm_of
from edgewise.extras.federated.hub import Hub, HubOptions
from edgewise.extras.federated.protocol import Refusal
from edgewise.extras.federated.sessions import Task
from edgewise.extras.federated.verify import Rules, Verified, far_from_others
from edgewise.logic.federated.requests import Finished, Secrets
from edgewise.logic.federated.tasks import CHUNK
from edgewise.training.safetensors import save_safetensors
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from .raw import Raw
from .toys import BIG, PATIENCE, SCHEMA, Running, Toy, random_values, wait_for

NO_CLIP = Rules()


def ask(hub, base, number=1, nodes=None, codec="float32", seconds=PATIENCE, rules=NO_CLIP):
    """Gives a task to all nodes. Returns {node: future}."""
    nodes = hub.nodes() if nodes is None else nodes
    task = Task("run", number, base, codec, {}, 7, seconds, len(nodes), rules)
    return {node: hub.assign(node, task) for node in nodes}


def base_of_round(values, number=1, codec="float32"):
    return Broadcast(SCHEMA, codec, "run").next(values, number)


def test_updates_arrive_exactly(hub):
    clients = [Running(hub.url, Toy(k), name=f"toy {k}") for k in range(3)]
    wait_for(lambda: len(hub.nodes()) == 3)
    weights = random_values(0)
    futures = ask(hub, base_of_round(weights))
    for node, future in futures.items():
        update = future.result(PATIENCE)
        k = int(hub.sessions[node].name.split()[1])
        expected = {n: (w + Toy(k).change(1)[n]) - w for n, w in weights.items()}
        assert all(np.array_equal(update.delta[n], expected[n]) for n in expected)
        assert (update.examples, update.metrics) == (10 * (k + 1), {"loss": 1.0})
    wait_for(lambda: len(hub.nodes()) == 3)
    for client in clients:
        client.end()
    wait_for(lambda: not hub.nodes())


def one_task(hub, schema=SCHEMA, seconds=PATIENCE, rules=NO_CLIP, codec="float32", **hello):
    """A raw client with a task: (client, task, future)."""
    client = Raw(hub.url, schema, **hello)
    (node,) = wait_for(hub.nodes)
    base = Broadcast(schema, codec, "run").next(random_values(0, schema), 1)
    future = ask(hub, base, nodes=[node], seconds=seconds, rules=rules, codec=codec)[node]
    return client, client.receive("task"), future


def refusal(future):
    with pytest.raises(Refusal) as caught:
        future.result(PATIENCE)
    return caught.value


def changed(name, change):
    """A difference with one parameter changed."""
    values = random_values(1)
    values[name] = change(values[name].copy())
    return values


def with_number(x):
    def change(values):
        values.reshape(-1)[3] = x
        return values

    return change


def raw_file(tensors, task, **metadata):
    fields = {
        "format": FORMAT,
        "kind": "delta",
        "schema": SCHEMA.sha256,
        "codec": task["codec"],
        "base": task["base"],
        "run": task["run"],
        "round": str(task["round"]),
    }
    return save_safetensors(tensors, None, {**fields, **metadata})


def stored(values):
    return {n: (1, x.shape, x.tobytes()) for n, x in values.items()}


VALUES = random_values(1)
HOSTILE = {
    "NaN": ("finite", lambda t: raw_file(stored(changed("dense", with_number(np.nan))), t)),
    "infinity": ("finite", lambda t: raw_file(stored(changed("dense", with_number(-np.inf))), t)),
    "a shape": ("shape", lambda t: raw_file(stored(changed("dense", lambda x: x.T.copy())), t)),
    "one number": ("shape", lambda t: raw_file(stored(changed("dense", lambda x: x[:1, :1])), t)),
    "a missing name": (
        "names",
        lambda t: raw_file(stored({n: x for n, x in VALUES.items() if n != "dense"}), t),
    ),
    "a new name": ("names", lambda t: raw_file(stored({**VALUES, "more": VALUES["dense"]}), t)),
    "float64": (
        "shape",
        lambda t: raw_file({**stored(VALUES), "m.lora_B.weight": (11, (5, 2), bytes(80))}, t),
    ),
    "1e9 times": (
        "update-norm",
        lambda t: raw_file(stored({n: x * np.float32(1e9) for n, x in VALUES.items()}), t),
    ),
    "a norm that overflows": (
        "update-norm",
        lambda t: raw_file(stored({n: x * np.float32(1e38) for n, x in VALUES.items()}), t),
    ),
    "the wrong base": ("metadata", lambda t: raw_file(stored(VALUES), t, base="0" * 64)),
    "another round's file": ("metadata", lambda t: raw_file(stored(VALUES), t, round="0")),
    "another format": ("metadata", lambda t: raw_file(stored(VALUES), t, format="x")),
    "no safetensors": ("file", lambda t: b"x" * 100),
    "a header of 2^60 bytes": ("file", lambda t: (1 << 60).to_bytes(8, "little") + b"{}" * 50),
    "nested JSON": ("file", lambda t: (4000).to_bytes(8, "little") + b"[" * 4000),
    "a truncated file": ("file", lambda t: raw_file(stored(VALUES), t)[:-4]),
    "overlapping tensors": (
        "file",
        lambda t: raw_file(stored(VALUES), t).replace(b"[600,696]", b"[500,596]"),
    ),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_hostile_updates_are_refused(hub, attack):
    code, make = HOSTILE[attack]
    client, task, future = one_task(hub, rules=Rules(clip=100.0))
    assert client.upload(task, make(task))["code"] == code
    assert refusal(future).code == code
    wait_for(hub.nodes)  # it stays, and may be asked again
    client.close()


@pytest.mark.parametrize(
    "code, fields",
    {
        "size": {"bytes": 1 << 40},
        "stale": {"round": 9},
        "codec": {"codec": "int4"},
        "examples": {"examples": 0},
        "hash": {"sha256": "0" * 64},
    }.items(),
)
def test_wrong_announcements_are_refused(hub, code, fields):
    # an update of another round does not end the task
    client, task, future = one_task(hub, seconds=1.0 if code == "stale" else PATIENCE)
    answer = client.upload(task, client.file(task, VALUES), **fields)
    assert (answer["kind"], answer["code"]) == ("rejected", code)
    assert refusal(future).code == ("deadline" if code == "stale" else code)
    client.close()


@pytest.mark.parametrize("examples", [-1, 1.5, "many", None, True, 1e30])
def test_examples_are_a_positive_integer(hub, examples):
    client, task, future = one_task(hub)
    client.announce(task, client.file(task, VALUES), examples=examples)
    assert client.receive("refused")["code"] == "field"
    answer = client.upload(task, client.file(task, VALUES), examples=10**12)
    assert answer["kind"] == "accepted"
    assert future.result(PATIENCE).examples == Rules().examples  # capped
    client.close()


def test_long_updates_are_clipped(hub):
    client, task, future = one_task(hub, rules=Rules(clip=norm_of(VALUES) / 4))
    client.upload(task, client.file(task, VALUES))
    update = future.result(PATIENCE)
    assert update.norm == pytest.approx(norm_of(VALUES))
    assert norm_of(update.delta) == pytest.approx(norm_of(VALUES) / 4, rel=1e-6)
    client.close()


def test_updates_far_from_the_others_are_refused():
    updates = {k: Verified({}, 1, norm, {}, "") for k, norm in enumerate([1.0, 1.1, 0.9, 9.0])}
    assert [(k, r.code) for k, r in far_from_others(updates).items()] == [(3, "update-norm")]
    assert not far_from_others({0: updates[0], 3: updates[3]})


def test_an_update_counts_once(hub):
    client, task, future = one_task(hub)
    data = client.file(task, VALUES)
    first = client.upload(task, data)
    assert first == client.upload(task, data)
    assert first["receipt"] == hub.receipt("run", 1, hashlib.sha256(data).hexdigest())
    assert future.result(PATIENCE).sha256 == first["sha256"]
    other = client.upload(task, client.file(task, random_values(2)))
    assert (other["kind"], other["code"]) == ("rejected", "stale")
    client.close()


@pytest.mark.parametrize("big", [{"grace": 1.0}], indirect=True)
@pytest.mark.parametrize("phase", ["before", "download", "training", "upload"])
def test_a_client_that_vanishes_ends_its_task(big, phase):
    client, task, future = one_task(big, BIG)
    if phase == "download":
        client.send("fetch", run="run", round=1, offset=0)
        assert len(client.socket.recv(PATIENCE)) == CHUNK
    if phase == "training":
        client.send("progress", run="run", round=1, step=1, steps=2)
    if phase == "upload":
        data = client.file(task, random_values(1, BIG))
        client.announce(task, data)
        client.receive("ack")
        client.socket.send(data[:CHUNK])
        client.receive("ack")
    client.close()
    assert refusal(future).code == "gone"
    assert not big.sessions


@pytest.mark.parametrize("phase", ["before", "download", "upload", "after"])
def test_a_client_comes_back(big, phase):
    client, task, future = one_task(big, BIG)
    data = client.file(task, random_values(1, BIG))
    file = b""
    if phase == "download":
        client.send("fetch", run="run", round=1, offset=0)
        file = client.socket.recv(PATIENCE)
    if phase == "upload":
        client.announce(task, data)
        client.receive("ack")
        client.socket.send(data[:CHUNK])
        assert client.receive("ack")["offset"] == CHUNK
    if phase == "after":
        assert client.upload(task, data)["kind"] == "accepted"
    client.close()
    client = Raw(big.url, BIG, resume=client.first["token"])
    assert client.first["token"] in big._tokens and len(big.sessions) == 1
    if phase != "after":
        again = client.receive("task")
        assert {**again, "deadline": 0} == {**task, "deadline": 0}
    if phase == "download":
        client.send("fetch", run="run", round=1, offset=len(file))
        while len(file) < task["file"]["bytes"]:
            file += client.socket.recv(PATIENCE)
        assert hashlib.sha256(file).hexdigest() == task["file"]["sha256"]
    if phase == "upload":
        client.announce(task, data)
        assert client.receive("ack")["offset"] == CHUNK
        client.socket.send(data[CHUNK : 2 * CHUNK])
        client.receive("ack")
    assert client.upload(task, data)["kind"] == "accepted"
    assert np.array_equal(future.result(PATIENCE).delta["dense"], random_values(1, BIG)["dense"])
    client.close()


def test_a_second_connection_takes_over(hub):
    client, task, future = one_task(hub)
    other = Raw(hub.url, SCHEMA, resume=client.first["token"])
    with pytest.raises(ConnectionClosed):
        client.receive()
        client.receive()
    assert other.upload(other.receive("task"), client.file(task, VALUES))["kind"] == "accepted"
    assert future.result(PATIENCE)
    other.close()


@pytest.mark.parametrize("big", [{"grace": 1.0, "stall": 1.0}], indirect=True)
def test_slow_uploads_end(big):
    """A connection that sends nothing within `stall` seconds of an upload is closed."""
    client, task, future = one_task(big, BIG)
    client.announce(task, client.file(task, random_values(1, BIG)))
    client.receive("ack")
    with pytest.raises(ConnectionClosed):
        client.receive()
    assert refusal(future).code == "gone"


def test_chunks_have_their_size(big):
    """Many tiny chunks are refused: each of them costs an answer."""
    client, task, future = one_task(big, BIG)
    data = client.file(task, random_values(1, BIG))
    client.announce(task, data)
    client.receive("ack")
    client.socket.send(data[:10])
    assert client.receive()["code"] == "chunk"
    assert refusal(future).code == "chunk"
    client.close()


@pytest.mark.parametrize(
    "code, fields",
    {
        "protocol": {"protocols": [7]},
        "schema": {"schema": "0" * 64},
        "codec": {"codecs": ["float16"]},
        "field": {"protocols": "1"},
    }.items(),
)
def test_clients_that_cannot_take_part_are_turned_away(hub, code, fields):
    client = Raw(hub.url, SCHEMA, hello=False)
    client.hello(**fields)
    assert (client.first["kind"], client.first["code"]) == ("refused", code)
    with pytest.raises(ConnectionClosed):
        client.receive()


def test_tickets_and_number_of_clients():
    options = HubOptions(port=0, tickets=frozenset({"mine", "more"}), clients=1)
    with Hub(SCHEMA, "float32", options) as hub:
        url = f"ws://127.0.0.1:{hub.port}"
        assert Raw(url, SCHEMA).first["code"] == "ticket"
        assert Raw(url, SCHEMA, ticket="other").first["code"] == "ticket"
        mine = Raw(url, SCHEMA, ticket="mine")
        assert mine.first["kind"] == "welcome"
        again = Raw(url, SCHEMA, ticket="mine").first
        assert (again["code"], "another client uses" in again["reason"]) == ("ticket", True)
        assert Raw(url, SCHEMA, ticket="more").first["code"] == "full"
        mine.close()


@pytest.mark.parametrize(
    "frame, code",
    [
        ("{", "message"),
        ("[1]", "message"),
        ('{"kind": 1}', "message"),
        ("[" * 60000, "message"),
        ('{"kind": "shout"}', "kind"),
        ('{"kind": "fetch"}', "field"),
        (b"bytes", "order"),
    ],
)
def test_wrong_messages_are_refused_by_name(hub, frame, code):
    client = Raw(hub.url, SCHEMA)
    client.socket.send(frame)
    assert client.receive("refused")["code"] == code
    client.send("state", available=False)
    wait_for(lambda: not hub.nodes())
    with pytest.raises(ConnectionClosed):  # already while it sends, if the hub is quick
        for _ in range(8):
            client.socket.send(frame)
        while True:
            client.receive()


def test_a_connection_must_say_hello():
    with Hub(SCHEMA, "float32", HubOptions(port=0, greeting=0.3)) as hub:
        # before or after the handshake, whichever takes longer than it may
        with pytest.raises((ConnectionClosed, ConnectionError, InvalidHandshake)):
            Raw(f"ws://127.0.0.1:{hub.port}", SCHEMA, hello=False).receive()
        assert not hub.sessions


def test_a_client_declines_small_cohorts(hub):
    client = Running(hub.url, Toy(0), minimum_cohort=2)
    wait_for(hub.nodes)
    (future,) = ask(hub, base_of_round(random_values(0))).values()
    assert refusal(future).code == "declined"
    client.end()


def test_a_killed_client_sends_the_same_bytes(hub, tmp_path):
    """A client that ends between training and sending goes on from its folder, without training."""
    first = Running(hub.url, Toy(0), folder=str(tmp_path))
    wait_for(hub.nodes)
    (future,) = ask(hub, base_of_round(random_values(0))).values()
    sent = future.result(PATIENCE)
    first.end()
    toy = Toy(0)
    second = Running(hub.url, toy, folder=str(tmp_path))
    wait_for(hub.nodes)
    (future,) = ask(hub, base_of_round(random_values(0))).values()
    assert future.result(PATIENCE).sha256 == sent.sha256
    assert not toy.calls
    second.end()


def test_what_training_keeps_is_that_of_the_last_update_that_counted(hub, tmp_path):
    """It survives the client; refused updates and audits leave it."""

    class Keeping(Toy):
        settings, seen = SETTINGS, []

        def train(self, weights, config, seed, number, stop):
            self.seen.append(config["kept"])
            made = super().train(weights, config, seed, number, stop)
            if number == 3:  # refused
                made.values["dense"][0] = 1e9
            return dataclasses.replace(made, kept=b"" if config["audit"] else bytes([number]))

    audit, rules = {"texts": ["a"], "batch": 1, "sequence": 1}, Rules(100.0)
    for number in range(1, 6):
        client = Running(hub.url, Keeping(0), folder=str(tmp_path))
        (node,) = wait_for(hub.nodes)
        base = base_of_round(random_values(number), number)
        task = Task("run", number, base, "float32", {"keep-optimizer": 1}, 0, PATIENCE, 1, rules)
        task = dataclasses.replace(task, audit=audit if number == 2 else None)
        outcome = hub.assign(node, task)
        counts = outcome.exception(PATIENCE) is None
        assert counts == (number != 3)
        hub.announce([node], lambda _: {"run": "run", "round": number, "counted": counts})
        wait_for(lambda: client.client.rounds)  # it has read the answer before
        client.end()
        wait_for(lambda: not hub.nodes())  # the next task must not go to a connection that ends
    assert Keeping.seen == [b"", b"\1", b"\1", b"\1", b"\4"]


def test_a_client_that_was_away_learns_that_its_masked_update_counted(hub, tmp_path):
    away = Raw(hub.url, SCHEMA)
    (node,) = wait_for(hub.nodes)
    away.close()
    wait_for(lambda: not hub.nodes())
    for number, counted in ((4, True), (5, False)):
        hub.announce([node], lambda n, m=number, c=counted: {"run": "r", "round": m, "counted": c})
    assert "counted" not in away.first
    state = ClientState(str(tmp_path), SCHEMA)
    state.token = away.first["token"]
    own = Secrets(bytes(32), {})
    state.finished = Finished("r 4 base context", b"", "", 1, 1, {}, own)
    state.next({}, {"r": b"kept"})
    state.save()
    client = Running(hub.url, Toy(0), folder=str(tmp_path))
    wait_for(lambda: client.client.state.kept)
    client.end()
    assert ClientState(str(tmp_path), SCHEMA).kept == {"r": b"kept"}


def test_clients_that_have_the_last_weights_fetch_differences(hub):
    hub.codec = "int4"
    client = Running(hub.url, Toy(0))
    broadcast, weights, sizes = Broadcast(SCHEMA, "int4", "run"), random_values(0), []
    for number in (1, 2, 3):
        wait_for(hub.nodes)
        base = broadcast.next(weights, number)
        (future,) = ask(hub, base, number, codec="int4").values()
        update = future.result(PATIENCE)
        assert base_of(client.client.state.values, SCHEMA) == base.sha256
        weights = {n: weights[n] + update.delta[n] for n in weights}
        sizes.append(client.client.received_bytes)
    assert sizes[1] - sizes[0] == sizes[2] - sizes[1] == len(base.delta.data) < len(base.whole.data)
    client.end()


def test_idle_clients_cost_little():
    """Memory of a hub with 200 sessions; 1,000 fit into 300 MB."""
    before = resident()
    with Hub(SCHEMA, "float32", HubOptions(port=0)) as hub:
        url = f"ws://127.0.0.1:{hub.port}"
        clients = [Raw(url, SCHEMA) for _ in range(200)]
        wait_for(lambda: len(hub.nodes()) == 200)
        # both sides of each connection are in this process
        assert (resident() - before) / 200 < 300e6 / 1000
        for client in clients:
            client.close()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

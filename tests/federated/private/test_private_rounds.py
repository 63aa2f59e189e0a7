"""Rounds with secure aggregation and differential privacy, over the hub and Flower's strategies."""

import pytest

pytest.importorskip("websockets")
pytest.importorskip("flwr")

import dataclasses
import hashlib
import json
import random

import numpy as np
from edgewise.errors import InputError
from edgewise.extras.federated.client_secure import ClientTerms, Secure
from edgewise.extras.federated.codec import norm_of
from edgewise.extras.federated.run_folder import RunFolder
from edgewise.extras.federated.secure import privacy as mechanism
from edgewise.extras.federated.secure.plan import masked
from edgewise.extras.federated.settings import Settings
from edgewise.federated.secure.identity import encoded
from edgewise.logic.federated.budget import epsilon_of

from ..serving import WEIGHTS, Server
from ..serving import identity as flower  # noqa: F401 (a fixture)
from ..toys import PATIENCE, Running, Toy, wait_for
from .secure_toys import AUTHORITY, identity

pytestmark = pytest.mark.usefixtures("flower")

SECURE = {"secure": True, "codec": "int8", "clip": 30.0, "stage": PATIENCE}
TERMS = ClientTerms(3, "required", AUTHORITY.public)


def play(folder, toys, terms=TERMS, kept=None, **fields):
    """Plays a run. Returns the server, the last weights, the log and the clients."""
    server = Server(folder, clients=len(toys), **fields)
    declined = []
    clients = [
        Running(
            server.url,
            toy,
            terms=terms,
            identity=identity(f"user-{toy.k}"),
            ticket=f"t{toy.k}" if "tickets" in fields else None,
            on_decline=declined.append,
            folder=kept and str(kept / str(toy.k)),
        )
        for toy in toys
    ]
    server.clients = clients
    server.declined = declined
    server.start(len(toys))
    arrays, log = server.end()
    for client in clients:
        client.end()
    return server, arrays, log


def mean_error(server, toys, number):
    """The distance of a round's change from the mean of toys' changes, relative to it."""
    before, after = server.states[number - 1], server.states[number]
    mean = {n: sum(t.change(number)[n] for t in toys) / len(toys) for n in before}
    moved = {n: (after[n] - before[n]).astype(np.float32) for n in before}
    return norm_of({n: moved[n] - mean[n] for n in mean}) / norm_of(mean)


def test_secure_rounds_are_the_mean(tmp_path):
    toys = [Toy(k) for k in range(5)]
    authority = encoded(AUTHORITY.public)
    server, _, log = play(tmp_path / "run", toys, rounds=2, authority=authority, **SECURE)
    assert [(line["participants"], line["groups"]) for line in log] == [(5, [5])] * 2
    for number in (1, 2):
        assert mean_error(server, toys, number) < 0.1  # rounding to 8 bits of the clip
    assert not server.declined and log[0]["loss"] is None
    assert len(set(log[0]["digests"])) == 5


def test_groups_are_clients_of_robust_strategies(tmp_path):
    """Three groups of three; the median of sums is not moved by one thousandfold client, whose
    update is clipped.
    """
    toys = [Toy(k, scale=0.1) for k in range(8)]
    evil = Toy(8, scale=1000.0)
    fields = {**SECURE, "clip": 3.0, "group": 3, "strategy": "median"}
    server, arrays, log = play(tmp_path / "run", [*toys, evil], rounds=1, **fields)
    assert log[0]["groups"] == [3, 3, 3] and log[0]["participants"] == 9
    assert max(float(np.abs(arrays[n] - WEIGHTS[n]).max()) for n in arrays) < 1.0


class Leaving(Toy):
    """Leaves when its update is made."""

    running = None

    def train(self, *args):
        wait_for(lambda: self.running)
        trained = super().train(*args)
        self.running.client.leave()
        return trained


def test_a_client_that_leaves_is_not_in_the_sum(tmp_path):
    toys = [Toy(k) for k in range(4)]
    gone = Leaving(4)
    server = Server(tmp_path / "run", clients=5, rounds=1, grace=0.5, **SECURE)
    clients = [Running(server.url, t, identity=identity(f"u{t.k}"), terms=TERMS) for t in toys]
    gone.running = Running(server.url, gone, identity=identity("u9"), terms=TERMS)
    server.start(5)
    _, log = server.end()
    for client in clients:
        client.end()
    assert (log[0]["participants"], log[0]["refused"]) == (4, 1)
    assert mean_error(server, toys, 1) < 0.1


def test_a_member_that_sends_noise_is_left_out(tmp_path, monkeypatch):
    """Of two groups one loses its sum, until elimination has found who makes it so."""
    begin = Secure.__init__

    def lying(member, identity, *rest):
        begin(member, identity, *rest)
        if identity.certificate.subject == "user-4":
            member.answers["sum"] = lambda r: random.Random(3).randbytes(len(masked(r)))

    monkeypatch.setattr(Secure, "__init__", lying)
    fields = {**SECURE, "group": 3, "rounds": 4, "authority": encoded(AUTHORITY.public)}
    fields["tickets"] = [f"t{k}" for k in range(6)]
    server, _, log = play(tmp_path / "run", [Toy(k) for k in range(6)], **fields)
    lost = [
        sum("the norm of the group's mean" in e for e in line["errors"].values()) for line in log
    ]
    assert lost[0] == lost[1] == 3 and lost[3] == 0
    assert [line["participants"] for line in log[:2]] == [3, 3]  # the round went on
    assert (log[3]["left_out"], log[3]["participants"], log[3]["groups"]) == (1, 5, [5])
    assert [e for e in log[3]["errors"].values() if "groups with it have lost" in e]
    # a server that is resumed knows it
    found = server.folder.barred()
    assert list(found) == [hashlib.sha256(b"t4").hexdigest()]
    folder = RunFolder(tmp_path / "resumed")
    folder.create(dataclasses.replace(server.settings, rounds=1), WEIGHTS)
    folder.bar(found)
    _, _, (line,) = play(folder.path, [Toy(k) for k in range(6)], **fields)
    assert (line["left_out"], line["participants"], line["groups"]) == (1, 5, [5])


def test_connections_that_are_lost_in_every_stage(tmp_path):
    """A client loses its connection after each of its messages, comes back and goes on."""
    toys = [Toy(k) for k in range(4)]
    server = Server(tmp_path / "run", clients=4, rounds=1, **SECURE)
    clients = [Running(server.url, t, identity=identity(f"u{t.k}"), terms=TERMS) for t in toys]
    said = clients[0].client
    send, seen = said._send, []

    def cut(kind, **fields):
        send(kind, **fields)
        if kind in ("keys", "shares", "update", "consent", "unmask") and kind not in seen:
            seen.append(kind)
            said._socket.close()

    said._send = cut
    server.start(4)
    _, log = server.end()
    for client in clients:
        client.end()
    # the others' shares may be enough before it can give its own
    assert seen[:4] == ["keys", "shares", "update", "consent"]
    assert (log[0]["participants"], log[0]["refused"]) == (4, 0)
    assert toys[0].calls == 1 and mean_error(server, toys, 1) < 0.1


@pytest.mark.parametrize(
    "terms, fields, match",
    [
        (ClientTerms(1, "required", AUTHORITY.public), {"codec": "int8"}, "secure aggregation"),
        (ClientTerms(1, "required", b"\1" * 32), SECURE, "authority has not signed"),
        (ClientTerms(9), SECURE, "the terms say 9"),
        (ClientTerms(maximum_epsilon=5.0), SECURE, "noise of the clients"),
        (
            ClientTerms(maximum_epsilon=5.0),
            {"clip": 3.0, "noise": 9.0, "codec": "int8"},
            "noise of the clients",
        ),
        (
            ClientTerms(maximum_epsilon=0.3),
            {**SECURE, "noise": 1.0, "noise_by": "clients"},
            "would spend epsilon 4.88",
        ),
        (
            ClientTerms(maximum_epsilon=0.3, noise_by="server"),
            {"clip": 3.0, "noise": 1.0, "codec": "int8"},
            "terms allow 0.3",
        ),
    ],
)
def test_terms_are_the_clients_own(tmp_path, terms, fields, match):
    """Nobody trains, and nothing is sent, if the terms are not met."""
    toys = [Toy(k) for k in range(3)]
    fields = {"grace": 0.5, **fields}
    server, arrays, log = play(tmp_path / "run", toys, terms, rounds=1, **fields)
    assert len(server.declined) == 3 and all(match in reason for reason in server.declined)
    assert all(c.client.sent_bytes == 0 for c in server.clients)
    assert log[0]["participants"] == 0


def test_terms_that_nothing_can_meet():
    with pytest.raises(InputError, match="who certifies"):
        ClientTerms(secure_aggregation="required")


def test_noise_of_clients_is_in_the_sum(tmp_path):
    """Noise of the clients, with a ledger of what they spent."""
    toys = [Toy(k, scale=0.0) for k in range(4)]
    fields = {**SECURE, "clip": 1.0, "noise": 2.0, "noise_by": "clients"}
    terms = ClientTerms(3, "required", AUTHORITY.public, 8.0)
    server, arrays, log = play(tmp_path / "run", toys, terms, rounds=2, **fields)
    assert [line["participants"] for line in log] == [4, 4] and not server.declined
    moved = np.concatenate([(server.states[1][n] - WEIGHTS[n]).ravel() for n in WEIGHTS])
    # 2.0 in the sum of three at least, hence of four 2.0 * (4 / 3)^0.5, over four clients
    assert 0.8 < moved.std() / (2.0 * (4 / 3) ** 0.5 / 4) < 1.2
    assert sorted(server.clients[0].client.state.spent.values()) == [2.0, 2.0]


def test_a_draw_of_groups_does_not_count_for_epsilon():
    """Who is drawn decides whether a group has enough members: what is in the sum of others."""
    fields = {"clients": 8, "clip": 1.0, "noise": 1.5, "fraction": 0.5}
    alone, groups = (Settings(secure=secure, **fields).privacy for secure in (False, True))
    assert groups.spent(2) == epsilon_of([1.5, 1.5], groups.delta) > alone.spent(2) + 1


def test_noise_of_the_server(tmp_path):
    """Updates of zeros: what moves the weights is the noise, for the clients that were expected."""
    toys = [Toy(k, scale=0.0) for k in range(3)]
    fields = {"codec": "int8", "clip": 2.0, "noise": 1.5, "fraction": 0.5}
    terms = ClientTerms(maximum_epsilon=50.0, noise_by="server")
    server, arrays, log = play(tmp_path / "run", toys, terms, rounds=2, **fields)
    for number in (1, 2):
        before, after = server.states[number - 1], server.states[number]
        moved = np.concatenate([(after[n] - before[n]).ravel() for n in before])
        assert 0.8 < moved.std() / (1.5 * 2.0 / 1.5) < 1.2
    spent = [line["privacy"]["epsilon"] for line in log]
    assert spent == sorted(spent) and log[0]["privacy"]["rate"] == 0.5
    assert sum(line["participants"] for line in log) == sum(t.calls for t in toys)
    assert server.folder.budget() == (2, False)


def test_an_update_moves_the_sum_by_the_clip_at_most(tmp_path, monkeypatch):
    """An adversarial pair of runs: with and without a client of a thousandfold update."""
    monkeypatch.setattr(mechanism, "gaussian", lambda count, sigma: np.zeros(count))
    fields = {"codec": "float32", "clip": 2.0, "noise": 1.0, "run": "same"}
    sums = []
    for scale in (0.0, 1000.0):
        toys = [Toy(k) for k in range(2)] + [Toy(2, scale=scale)]
        _, arrays, log = play(tmp_path / str(scale), toys, ClientTerms(), rounds=1, **fields)
        sums.append({n: 3 * (arrays[n] - WEIGHTS[n]) for n in arrays})
    distance = np.sqrt(sum(((sums[0][n] - sums[1][n]) ** 2).sum() for n in WEIGHTS))
    assert distance == pytest.approx(2.0, abs=1e-5) and distance <= 2.0 * (1 + 1e-6)


def test_a_run_ends_before_it_spends_more(tmp_path):
    """Also when rounds were begun by processes that were killed."""
    toys = [Toy(k) for k in range(2)]
    fields = {"codec": "int8", "clip": 2.0, "noise": 1.0, "run": "same"}
    one, two, three = (mechanism.Privacy(1.0, 2.0, 1.0, 1e-5, None).spent(n) for n in (1, 2, 3))
    budget = {**fields, "epsilon": (two + three) / 2}
    server, _, log = play(tmp_path / "run", toys, ClientTerms(), rounds=9, **budget)
    assert len(log) == 2 and server.folder.budget() == (2, True)
    assert log[0]["privacy"]["epsilon"] == one and log[1]["privacy"]["epsilon"] == two
    folder = RunFolder(tmp_path / "other")
    folder.create(Settings(rounds=9, clients=2, port=0, **budget), WEIGHTS)
    folder.spend(1)
    server, _, log = play(tmp_path / "other", toys, ClientTerms())
    assert len(log) == 1 and server.folder.budget() == (2, True)
    assert json.loads((tmp_path / "other/run.json").read_text())["epsilon"] == budget["epsilon"]


def test_epsilon_of_drawn_clients():
    """dp-accounting's, within the bounds of prv-accountant 0.2. That of others is computed exactly:
    test_secure.py compares it with dp-accounting.
    """
    accountant = pytest.importorskip("dp_accounting.pld").PLDAccountant()
    import dp_accounting

    spent = mechanism.Privacy(0.6, 1.0, 0.01, 1e-5, None).spent(200)
    assert 4.439 < spent < 4.479
    event = dp_accounting.GaussianDpEvent(0.6)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, event), 200)
    assert spent == accountant.get_epsilon(1e-5)


def test_settings_of_private_rounds_are_checked():
    for fields, match in (
        ({"secure": True, "clip": 1.0, "codec": "float32", "clients": 3}, "int8 or int4"),
        ({"secure": True, "clients": 3}, "maximum norm"),
        ({"secure": True, "clip": 1.0, "clients": 2}, "at least 3"),
        ({"noise": 1.0}, "maximum norm"),
        ({"noise": 1.0, "clip": 1.0, "strategy": "median"}, "not the mean"),
        ({"noise": 1.0, "clip": 1.0, "noise_by": "clients"}, "secure sums alone"),
        ({"epsilon": 1.0}, "needs noise"),
        ({"noise": 0.01, "clip": 1.0, "fraction": 0.5}, "at least 0.1"),
        ({"secure": True, "clip": 1.0, "clients": 16, "strategy": "krum"}, "needs 3 groups"),
        ({"authority": "x"}, "certifies"),
    ):
        with pytest.raises(InputError, match=match):
            Settings(**fields)

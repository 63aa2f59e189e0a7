"""Audits: the server makes the update of public texts itself."""

import pytest

pytest.importorskip("websockets")
pytest.importorskip("flwr")

from pathlib import Path

import numpy as np
from edgewise import LoraConfig, Trainer
from edgewise.errors import InputError
from edgewise.extras.federated.audit import Auditor
from edgewise.extras.federated.broadcast import Broadcast
from edgewise.extras.federated.client import Trained
from edgewise.extras.federated.client_secure import ClientTerms
from edgewise.extras.federated.hub import Hub, HubOptions
from edgewise.extras.federated.local_training import LocalTraining
from edgewise.extras.federated.protocol import Refusal
from edgewise.extras.federated.sessions import Task
from edgewise.extras.federated.settings import Settings
from edgewise.logic.federated.terms import check_fields

from .serving import Server, identity  # noqa: F401 (a fixture)
from .toys import PATIENCE, SCHEMA, Running, Toy, random_values, wait_for

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "web/demo/model"
LORA = LoraConfig(r=2, lora_alpha=4, lora_dropout=0.1, target_modules=["q_proj"])
TEXT = (ROOT / "LICENSE").read_text()
SIZES = {"batch_size": 1, "sequence_length": 16}


def local(text, **options):
    trainer = Trainer(MODEL, adapters=LORA, **{**SIZES, "learning_rate": 1e-2, **options})
    return LocalTraining(trainer, None if text is None else [text])


class Liar:
    """Sends noise of the size of an update, and says that it has trained."""

    def __init__(self, honest):
        self.honest, self.schema, self.settings = honest, honest.schema, honest.settings

    def train(self, weights, *given):
        rng = np.random.default_rng(1)
        values = {
            n: x + np.float32(0.005) * rng.standard_normal(x.shape) for n, x in weights.items()
        }
        return Trained(values, 1, 2, {})


@pytest.mark.usefixtures("identity")
def test_who_sends_noise_is_shut_out(tmp_path):
    """All clients are audited: the honest one sends the server's bytes, the other one is shut out
    for the rest of the run. One that demands sums of groups takes part: the texts are public.
    """
    honest = local("The text of a visitor, which is nobody's business. " * 9)
    first = honest.weights()
    lora = LORA.to_dict()
    audit = {"model": str(MODEL), "trainer": {**SIZES, "learning_rate": 1e-2, "lora": lora}}
    audit |= {"texts": [TEXT[:3000]], "share": 1.0, "tolerance": 0.2}
    fields = {"rounds": 2, "clients": 2, "least": 1, "steps": 3, "codec": "int4", "audit": audit}
    tickets = ["good", "bad"]
    server = Server(tmp_path / "run", first, tickets=tickets, deadline=PATIENCE, **fields)
    assert not server.hub.barred
    terms = ClientTerms(secure_aggregation="required", authority=bytes(32))
    good = Running(server.url, honest, ticket="good", name="good", terms=terms)
    good.client.state.left = {n: np.float32(0.3) + 0 * x for n, x in first.items()}
    bad = Running(server.url, Liar(honest), ticket="bad", name="bad")
    wait_for(lambda: len(server.hub.nodes()) == 2)
    server.thread.start()
    wait_for(lambda: isinstance(bad.error, Refusal))
    assert "differs from the server's" in str(bad.error)
    again = Running(server.url, Liar(honest), ticket="bad")
    wait_for(lambda: again.error is not None)
    assert "differs from the server's" in str(again.error)
    # the second round waits for two clients: another one comes
    server.hub.options = server.hub.options.__class__(
        **{**vars(server.hub.options), "tickets": None}
    )
    third = Running(server.url, Liar(honest))
    _, log = server.end()
    names = [{line["names"][n]: x for n, x in line["audited"].items()} for line in log]
    assert [line["participants"] for line in log] == [0, 0]
    assert [found["good"] for found in names] == [0.0, 0.0] and names[0]["bad"] > 1
    assert (good.client.state.left[min(first)] == np.float32(0.3)).all()
    for one in (good, third):
        one.end()
    resumed = Server(tmp_path / "run")  # with the tickets, and another process's memory
    resumed.thread.start()
    wait_for(lambda: resumed.hub.barred)
    late = Running(resumed.url, Liar(honest), ticket="bad")
    wait_for(lambda: late.error is not None)
    assert "differs from the server's" in str(late.error)
    resumed.end()
    honest.close()


def test_clients_that_were_shut_out_take_no_place():
    """Without tickets anybody can come again and again: the hub keeps nothing of them."""
    with Hub(SCHEMA, "int8", HubOptions(port=0, clients=1, grace=1.0)) as hub:
        running = Running(f"ws://127.0.0.1:{hub.port}", Toy(0))
        (node,) = wait_for(hub.nodes)
        hub.shut_out(node, Refusal("audit", "it lies"))
        late = hub.assign(node, task_of(1))  # by a strategy that has not seen it yet
        assert late.exception(PATIENCE).code == "gone"
        wait_for(lambda: running.error is not None)
        assert "it lies" in str(running.error)
        wait_for(lambda: not hub.sessions)
        assert not hub._tokens and not hub.barred


def test_who_leaves_after_a_lie_does_not_come_back():
    options = HubOptions(port=0, tickets=frozenset({"own", "other"}))
    with Hub(SCHEMA, "int8", options) as hub:
        url = f"ws://127.0.0.1:{hub.port}"
        running = Running(url, Toy(0), ticket="own")
        (node,) = wait_for(hub.nodes)
        tickets = hub.tickets([node, 99])
        running.end()
        wait_for(lambda: not hub.sessions)
        again, other = Running(url, Toy(0), ticket="own"), Running(url, Toy(0), ticket="other")
        wait_for(lambda: len(hub.nodes()) == 2)
        hub.shut_out(node, Refusal("audit", "it lies"), tickets[node])
        wait_for(lambda: again.error is not None)
        assert "it lies" in str(again.error) and other.error is None
        other.end()


def task_of(number):
    weights = random_values(0)
    return Task("run", number, Broadcast(SCHEMA, "int8", "run").next(weights, 1), "int8", {}, 1,
                9.0, 1)  # fmt: skip


def test_a_resumed_run_audits_the_same_clients_on_the_same_texts():
    """Else clients would differ from those of a run without a kill. Other texts in a round are
    another update: one that was made for the first ones would look like a lie.
    """
    training = local(None)
    first, again, other = (
        Auditor(training, [TEXT, TEXT[::-1]], 0.5, 0.2, bytes([k]) * 32) for k in (1, 1, 2)
    )
    clients = {node: f"ticket {node}" for node in range(64)}
    draws = [a.drawn(task_of(n), clients) for a, n in ((first, 1), (again, 1), (first, 2))]
    assert draws[0] == draws[1] != draws[2] and 10 < len(draws[0]) < 54
    assert other.drawn(task_of(1), clients) != draws[0]
    for auditor in (first, again, other):
        auditor._make = lambda task: None
    tasks = [a.audit(task_of(n)) for a, n in ((first, 1), (again, 1), (first, 2), (other, 1))]
    texts = [task.audit["texts"][0] for task in tasks]
    assert texts[0] == texts[1] and len(set(texts)) == 3
    assert all(task.config == {"learning-rate": 1e-2} for task in tasks)
    messages = [task.message(None, 9.0) for task in tasks]
    audits = [message["audit"] for message in messages]
    assert audits[0] == audits[1] != audits[3]
    with pytest.raises(InputError, match="'audit' is missing or wrong"):
        check_fields({**messages[0], "audit": {}}, True)
    training.close()


def test_audits_and_their_settings():
    auditor = Auditor(local(None), [TEXT, "short"], 0.5, 0.2)
    clients = dict.fromkeys(range(1))
    drawn = sum(len(auditor.drawn(task_of(n), clients)) for n in range(400))
    assert 120 < drawn < 280 and auditor.texts == [TEXT]
    assert auditor.objection(0.2) is None and auditor.objection(0.3).code == "audit"
    with pytest.raises(InputError, match="has 200 characters"):
        Auditor(auditor.training, ["short"], 0.5, 0.2)
    config = {"local-steps": 1, "audit": {"texts": [TEXT], "batch": 2, "sequence": 16}}
    weights = auditor.training.weights()
    with pytest.raises(InputError, match="batches of 2 x 16 tokens, this client trains 1 x 16"):
        auditor.training.train(weights, config, 0, 1, lambda: False)
    with pytest.raises(InputError, match="it has no texts"):
        auditor.training.train(weights, {"audit": {"texts": "x"}}, 0, 1, lambda: False)
    auditor.close()
    good = {"share": 0.1, "tolerance": 0.2}
    wrongs = [("share", 0), ("share", 1.1), ("tolerance", 1.0), ("tolerance", float("nan"))]
    for name, wrong in wrongs:
        with pytest.raises(InputError, match=f"audit-{name}"):
            Settings(audit={**good, name: wrong})
    with pytest.raises(InputError, match="audits need updates that this server sees"):
        Settings(secure=True, clip=1.0, clients=20, audit={"share": 1})

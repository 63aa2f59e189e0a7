"""Audits: the server makes the update of public texts itself."""

import pytest

pytest.importorskip("websockets")
pytest.importorskip("flwr")

from pathlib import Path

import numpy as np
from edgewise import LoraConfig, Trainer
from edgewise.errors import InputError
from edgewise.federated.audit import Auditor
from edgewise.federated.client import Trained
from edgewise.federated.client_secure import ClientTerms
from edgewise.federated.local_training import LocalTraining
from edgewise.federated.protocol import Refusal
from edgewise.federated.settings import Settings

from .serving import Server, identity  # noqa: F401 (a fixture)
from .toys import Running, wait_for

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
    honest, auditor = local("The text of a visitor, which is nobody's business. " * 9), local(None)
    first = honest.weights()
    lora = LORA.to_dict()
    audit = {"model": str(MODEL), "trainer": {**SIZES, "learning_rate": 1e-2, "lora": lora}}
    audit |= {"texts": [TEXT[:3000]], "share": 1.0, "tolerance": 0.2}
    fields = {"rounds": 2, "clients": 2, "least": 1, "steps": 3, "codec": "int4", "audit": audit}
    tickets = ["good", "bad"]
    server = Server(tmp_path / "run", first, tickets=tickets, deadline=60.0, **fields)
    terms = ClientTerms(secure_aggregation="required", authority=bytes(32))
    good = Running(server.url, honest, ticket="good", name="good", terms=terms)
    good.client.state.left = {n: np.float32(0.3) + 0 * x for n, x in first.items()}
    bad = Running(server.url, Liar(honest), ticket="bad", name="bad")
    wait_for(lambda: len(server.hub.nodes()) == 2)
    server.thread.start()
    wait_for(lambda: isinstance(bad.error, Refusal), 60)
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
    auditor.close()
    honest.close()


def test_audits_and_their_settings():
    auditor = Auditor(local(None), [TEXT, "short"], 0.5, 0.2)
    drawn = sum(len(auditor.drawn(range(100))) for _ in range(20))
    assert 800 < drawn < 1200 and auditor.texts == [TEXT]
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
    with pytest.raises(InputError, match="audits need updates that this server sees"):
        Settings(secure=True, clip=1.0, clients=20, audit={"share": 1})

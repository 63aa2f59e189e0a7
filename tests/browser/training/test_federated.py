"""Federated rounds with three tabs of one Chromium: exact means, a killed tab, ledgers, terms."""

import socket

import numpy as np
import pytest

from tests.federated import environment  # noqa: F401

from ..conftest import MODEL
from .harness import BATCH, SEQUENCE, TEXT

pytest.importorskip("websockets")
pytest.importorskip("flwr")

from tests.federated.serving import Server, identity  # noqa: F401 (a fixture)
from tests.federated.toys import PATIENCE, SHAPES, wait_for

LORA = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1}

JOIN = """
    const fed = await import("/federated.js");
    const p = await ew.pipeline("text-generation", "/files/trainable.edge", { flavour: "simd128" });
    const seen = { results: [], declined: [] };
    window.client = await fed.FederatedClient.join(arg.url, {
      trainer: fed.textTrainer(p, ew.Trainer),
      data: arg.text,
      name: arg.name,
      label: arg.name,
      terms: arg.terms,
      onRound: (r) => seen.results.push(r),
      onProgress: (e) => `${e.round} ${e.phase} ${e.done}` === arg.kill && location.reload(),
      onDecline: (reason) => seen.declined.push(reason),
    });
    Object.assign(window, { pipe: p, seen });
    return true;
"""

END = """
    await window.client.done;
    const ledger = await window.client.ledger();
    const active = window.pipe.adapters.map((a) => [a.name, a.active]);
    return { ledger, active, ...window.seen };
"""


def first_weights():
    """The first values of the adapters, by Python's trainer."""
    from edgewise.extras.federated.local_training import LocalTraining
    from edgewise.training import LoraConfig, Trainer

    config = LoraConfig(target_modules="all-linear", **LORA)
    trainer = Trainer(MODEL, adapters=config, batch_size=BATCH, sequence_length=SEQUENCE)
    training = LocalTraining(trainer, None)
    weights = training.weights()
    training.close()
    return weights


def check_means(server):
    """The weights of each round are the mean of the updates that counted, to 1 ulp of float32
    (where differences cancel out, of float64).
    """
    for number, outcomes in server.outcomes.items():
        updates = [o.result() for o in outcomes if o.exception() is None]
        total = sum(u.examples for u in updates)
        for n, before in server.states[number - 1].items():
            mean = sum(u.examples * u.delta[n].astype(np.float64) for u in updates) / total
            expected = np.float32(before + mean)
            error = np.abs(np.float32(server.states[number][n]) - expected)
            size = sum(np.abs(u.delta[n].astype(np.float64)) for u in updates)
            assert (error <= np.spacing(np.abs(expected)) + 2.0**-50 * size).all()


def test_three_tabs_learn_together(visit, server, trainable, tmp_path, identity):  # noqa: F811
    lora = {"peft_type": "LORA", "target_modules": "all-linear", **LORA}
    fields = {"codec": "int4", "rounds": 3, "clients": 3, "steps": 6, "deadline": PATIENCE}
    fields["keep_optimizer"] = True
    rounds = Server(tmp_path / "run", first_weights(), lora=lora, **fields)
    third = len(TEXT) // 3
    tabs = [visit(server) for _ in range(3)]
    args = [
        {"url": rounds.url, "text": TEXT[k * third :][: 2 * third], "name": f"tab {k}"}
        for k in range(3)
    ]
    args[2]["kill"] = "2 train 3"
    for tab, arg in zip(tabs, args):
        assert tab.run(JOIN, arg) is True
    twice = tabs[0].run(JOIN, args[1])
    assert "another tab takes part" in twice["error"]["what"]
    rounds.start(3)
    # the third tab reloads its page while it trains in the second round
    tabs[2].page.wait_for_function("() => !window.seen", polling=50)
    tabs[2].start()
    del args[2]["kill"]
    assert tabs[2].run(JOIN, args[2]) is True
    wait_for(lambda: not rounds.thread.is_alive())
    _, log = rounds.end()
    assert [(line["participants"], line["refused"]) for line in log] == [(3, 0)] * 3
    assert log[2]["loss"] < log[0]["loss"]
    check_means(rounds)
    ends = [tab.run(END) for tab in tabs]
    assert [e["results"][-1]["counted"] for e in ends] == [True] * 3
    assert [r["round"] for r in ends[2]["results"]] == [2, 3]
    assert ["federated", True] in ends[0]["active"]
    # one origin has one ledger: every update, once, and all that is above the header is counted
    ledger = ends[0]["ledger"]
    assert sorted(e["sha256"] for e in ledger) == sorted(d for line in log for d in line["digests"])
    most = rounds.schema.most_bytes("int4")
    assert len(ledger) == 9 and all(0 < e["bytes"] <= most and e["norm"] > 0 for e in ledger)


def test_a_tab_enforces_its_terms(visit, server, trainable, tmp_path, identity):  # noqa: F811
    """It declines to send an update of its own data, and passes an audit with public texts: what
    WebAssembly computes is the native engine's update, up to rounding.
    """
    lora = {"peft_type": "LORA", "target_modules": "all-linear", **LORA}
    trainer = {"lora": lora, "batch_size": BATCH, "sequence_length": SEQUENCE}
    audit = {"model": str(MODEL), "trainer": trainer, "texts": [TEXT], "share": 1.0}
    fields = {"clients": 1, "least": 1, "steps": 6, "deadline": PATIENCE, "lora": lora}
    fields |= {"rounds": 1, "codec": "int4", "learning_rate": 5e-3}
    audited = Server(
        tmp_path / "audited", first_weights(), audit={**audit, "tolerance": 0.2}, **fields
    )
    rounds = Server(tmp_path / "run", first_weights(), **fields)
    tab = visit(server)
    terms = {"secureAggregation": "required", "authority": "A" * 43}
    for one in (audited, rounds):
        arg = {"url": one.url, "text": "A secret. " * 50, "name": "strict", "terms": terms}
        assert tab.run(JOIN, arg) is True
        one.start(1)
        _, (line,) = one.end()
        end = tab.run(END)
        assert line["participants"] == 0
        if one is audited:
            (difference,) = line["audited"].values()
            assert 0 <= difference < 0.02 and not end["declined"]
        else:
            (reason,) = end["declined"]
            assert "require secure aggregation" in reason
            assert list(line["errors"].values()) == ["the client declined: terms"]
        assert len(end["ledger"]) == 1  # that of the audit
    arg = {**arg, "url": "ws://127.0.0.1:9"}
    assert "cannot be reached" in tab.run(JOIN, arg)["error"]["what"]


SECURE = """
    const fed = await import("/federated.js");
    const counted = [];
    const ledgers = arg.names.map(async (name) => {
      let weights;
      const train = async () => {
        const values = new Map([...weights].map(([n, x]) => [n, x.map((v) => v + 0.01)]));
        return { values, examples: 1, steps: 1, metrics: {} };
      };
      const round = Promise.withResolvers();
      const client = await fed.FederatedClient.join(arg.url, {
        trainer: { shapes: async () => arg.shapes, load: async (w) => void (weights = w), train },
        data: null,
        name,
        terms: { secureAggregation: "required", authority: arg.authority, minimumCohort: 3 },
        certify: (key) => window.certify(key, name),
        onRound: (r) => counted.push(r.counted) && round.resolve(),
        onDecline: (reason) => round.reject(new Error(reason)),
      });
      await round.promise;
      return (await client.ledger()).map((e) => [e.codec, e.members]);
    });
    return { ledgers: await Promise.all(ledgers), counted };
"""


def test_a_secure_sum_in_a_browser(visit, server, tmp_path, identity):  # noqa: F811
    """Keys that cannot be extracted, certified, kept, and used by Chromium's WebCrypto."""
    from edgewise.federated.secure.identity import Authority, decoded, encoded

    authority = Authority(bytes(range(32)))
    fields = {"secure": True, "codec": "int8", "clip": 1.0, "rounds": 1, "clients": 3}
    rounds = Server(tmp_path / "run", authority=encoded(authority.public), **fields)
    tab = visit(server, alone=True)
    tab.page.expose_function(
        "certify", lambda key, name: authority.certify(decoded(key, 32, ""), name).fields
    )
    rounds.thread.start()  # Flower waits for the clients
    shapes = [[name, list(shape)] for name, shape in SHAPES.items()]
    arg = {"url": rounds.url, "authority": encoded(authority.public), "shapes": shapes}
    end = tab.run(SECURE, {**arg, "names": ["a", "b", "c"]})
    assert end == {"ledgers": [[["masked", 3]] * 3] * 3, "counted": [True] * 3}
    rounds.end()
    moved = np.concatenate([(rounds.states[1][n] - rounds.states[0][n]).ravel() for n in SHAPES])
    assert abs(moved.mean() - 0.01) < 0.003 and moved.std() < 0.02


def test_the_room(visit, server, trainable, tmp_path, identity):  # noqa: F811
    """Three frames of the demo's room learn together, one reloads, and all write the same. They
    leave a hub that does not answer at once, and for good.
    """
    lora = {"peft_type": "LORA", "target_modules": "all-linear", **LORA}
    fields = {"codec": "int4", "rounds": 2, "clients": 3, "steps": 2, "deadline": PATIENCE}
    page = visit(server).page
    page.goto(
        f"{server}/demo/together.html?model=/files/trainable.edge&threads=1&hub=ws://127.0.0.1:9"
    )
    page.wait_for_selector("#begin:not([disabled])")
    page.focus("#hub")
    page.keyboard.press("Enter")  # there is no hub: the room says how to start one
    page.wait_for_selector("#no-hub:not([hidden])")
    assert "make hub" in page.inner_text("#no-hub")
    page.click("#stop")
    page.wait_for_function("document.body.dataset.phases === 'left,left,left'")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        page.fill("#hub", f"ws://127.0.0.1:{silent.getsockname()[1]}")
        page.click("#begin")
        page.wait_for_function("document.body.dataset.phases === 'waiting,waiting,waiting'")
        page.click("#stop")
        page.wait_for_function("document.body.dataset.phases === 'left,left,left'")
    page.wait_for_timeout(500)  # for the attempts to fail, now that nothing listens
    assert page.evaluate("document.body.dataset.phases") == "left,left,left"
    rounds = Server(tmp_path / "run", first_weights(), lora=lora, **fields)
    page.fill("#hub", rounds.url)
    page.wait_for_selector("#begin:not([disabled])")
    page.evaluate("""() => {
        window.trained = false;
        new MutationObserver(() => (trained ||= document.body.dataset.phases.includes("train")))
          .observe(document.body, { attributes: true });
    }""")
    page.click("#begin")
    rounds.start(3)
    page.wait_for_function("trained", polling=20)
    page.frame_locator("iframe").nth(1).locator("body").evaluate("() => location.reload()")
    _, log = rounds.end()
    page.wait_for_function("document.body.dataset.phases === 'ended,ended,ended'")
    assert [(line["participants"], line["refused"]) for line in log] == [(3, 0)] * 2
    page.wait_for_function("document.getElementById('verdict').textContent.includes('the same')")
    texts = [page.frame_locator("iframe").nth(k).locator("#after").inner_text() for k in range(3)]
    assert texts[0] and len(set(texts)) == 1
    page.click("#look")
    page.wait_for_function("document.body.dataset.looks === '1'")
    assert "int4" in page.inner_text("#seen-words") and page.inner_text("#alone")
    assert page.locator("#chart rect").count() == 12 and not page.is_visible("#error")

"""The client of federated rounds on both forms, against servers that a test plays."""

import dataclasses
import hashlib
import math
from types import SimpleNamespace

import pytest
from edgewise.errors import Aborted, EdgewiseError, InputError
from edgewise.host.drive import drive
from edgewise.logic.federated.client import Options
from edgewise.logic.federated.members import Own
from edgewise.logic.federated.requests import Finished, Secrets, State, TakePart, Told
from edgewise.logic.federated.tasks import CHUNK, Refusal
from edgewise.logic.federated.terms import Terms

from .forms import both, module

SHAPES = [("a.lora_A.weight", [8, 5000]), ("a.lora_B.weight", [5000, 8])]
WEIGHTS = bytes(range(256)) * 1250  # 320,000: two parts
BASE = "b" * 64
NAMES = {"run": "r", "round": 1, "base": BASE}
FILE = {"kind": "weights", "bytes": len(WEIGHTS), "sha256": hashlib.sha256(WEIGHTS).hexdigest()}
TASK = {
    "kind": "task",
    **NAMES,
    "codec": "int8",
    "config": {"local-steps": 2},
    "seed": 7,
    "cohort": 4,
    "deadline": 10.0,
    "file": FILE,
}
PARTS = [WEIGHTS[:CHUNK], WEIGHTS[CHUNK:]]
UPDATE = bytes(5 * CHUNK + 9)
SHA = hashlib.sha256(UPDATE).hexdigest()
WELCOME = {"kind": "welcome", "token": "t"}
BYE = {"kind": "bye"}
TERMS = Terms(1, False, None, None, False, math.inf, 1e9)


class Gone(Exception):
    """The connection is lost."""


class Host:
    """A client's host. Its answers are what a test has set; `frames` is what the server says."""

    def __init__(self, form, frames, terms=TERMS, settings=("audit", "part"), **state):
        given = {"token": None, "have": None, "finished": None, "summed": {}, **state}
        options = Options("ws://x", "s" * 64, SHAPES, settings, terms, 15.0)
        self.client = module(form, "federated.client").Client(State(**given), options)
        self.group = module(form, "federated.group")
        self.frames, self.time = list(frames), 0.0
        self.sent, self.done, self.told = [], [], []
        self.update, self.base = UPDATE, BASE
        self.raises = {}  # by the kind of a request

    def talk(self, frames=()):
        """A connection; `frames` are more that the server says."""
        self.frames += frames
        try:
            drive(self.client.talk(), self.answer)
            return "bye"
        except Gone:
            return "gone"

    def answer(self, request):
        given = request if isinstance(request, dict) else vars(request)
        r = SimpleNamespace(**given)
        if r.kind in self.raises:
            raise self.raises[r.kind]
        return getattr(self, f"on_{r.kind}", lambda _: self.done.append(r.kind))(r)

    def on_hello(self, _):
        return {"engine": "test"}

    def on_send(self, r):
        self.sent.append({"kind": r.name, **{n: v for n, v in r.fields.items() if v is not None}})

    def on_send_part(self, r):
        self.sent.append((r.begin, r.end))

    def on_receive(self, r):
        if not self.frames:
            raise Gone
        frame = self.frames.pop(0)
        if frame is None:
            self.time = r.end
        return frame

    def on_now(self, _):
        return self.time

    def on_silent(self, _):
        raise Gone

    def on_allowed(self, r):
        return ""

    def on_sent_today(self, r):
        return 0

    def on_digest(self, r):
        return hashlib.sha256(b"".join(r.parts)).digest()

    def on_fingerprint(self, r):
        return hashlib.sha256(repr(r.value).encode()).hexdigest()

    def on_unpack(self, r):
        assert b"".join(r.parts) == WEIGHTS
        self.metadata = dict(r.metadata)
        return self.base

    def on_train(self, r):
        self.trained = r
        self.done.append("train")
        return Told(3, 2, {"loss": 0.5})

    def on_write_update(self, r):
        told = r.told if isinstance(r.told, dict) else vars(r.told)
        fields = (told["examples"], told["steps"], told["metrics"])
        sha256 = hashlib.sha256(self.update).hexdigest()
        return Finished(r.key, self.update, sha256, *fields, None)

    def on_announce(self, r):
        self.done.append("announce")

    def on_progress(self, r):
        pass

    def on_store(self, _):
        pass

    def on_expect(self, _):
        pass

    def on_result(self, r):
        self.told.append(r.message)

    def on_declined(self, r):
        self.told.append("declined")

    def kinds(self):
        return [m["kind"] if isinstance(m, dict) else m for m in self.sent]


def ack(offset, sha256=SHA):
    return {"kind": "ack", "sha256": sha256, "offset": offset}


ACCEPTED = {"kind": "accepted", "sha256": SHA}
RESULT = {"kind": "result", "run": "r", "round": 1, "counted": True}


@both
def test_a_round(form):
    host = Host(form, [WELCOME, TASK, *PARTS, ack(0), ack(CHUNK), ack(5 * CHUNK), ACCEPTED, BYE])
    assert host.talk() == "bye"
    hello, fetch, update = host.sent[0], host.sent[1], host.sent[2]
    assert hello["protocols"] == [1] and hello["schema"] == "s" * 64 and "resume" not in hello
    assert fetch == {"kind": "fetch", "run": "r", "round": 1, "offset": 0}
    told = {"examples": 3, "steps": 2, "metrics": {"loss": 0.5}}
    names = {"kind": "update", "run": "r", "round": 1, "sha256": SHA, "bytes": len(UPDATE)}
    assert update == {**names, "codec": "int8", **told}
    size = len(UPDATE)  # at most four parts are on their way
    assert host.sent[3:] == [(0, 4 * CHUNK), (4 * CHUNK, 5 * CHUNK), (5 * CHUNK, size)]
    assert host.done == ["welcome", "keep", "train", "announce", "counted"]
    assert host.metadata == {"kind": "weights", "base": BASE, "run": "r"}
    trained = host.trained
    assert (trained.run, trained.number, trained.seed, trained.end) == ("r", 1, 7, 10.0)
    assert trained.texts is None and dict(trained.config)["local-steps"] == 2


@both
def test_a_connection_that_is_lost(form):
    """A download and an upload go on from where they were; an answer that was lost is repeated."""
    host = Host(form, [WELCOME, TASK, PARTS[0]])
    assert host.talk() == "gone"
    assert host.talk([{**WELCOME, "token": "u"}, TASK, PARTS[1], ack(0)]) == "gone"
    assert host.sent[2]["resume"] == "t"
    assert host.sent[3] == {"kind": "fetch", "run": "r", "round": 1, "offset": CHUNK}
    host.sent.clear()
    again = {**TASK, "file": None}
    assert host.talk([WELCOME, again, ack(3 * CHUNK)]) == "gone"
    assert host.kinds() == ["hello", "update", (3 * CHUNK, len(UPDATE))]
    assert host.sent[0]["resume"] == "u" and host.sent[0]["have"] == BASE
    assert host.done.count("train") == 1 and "counted" not in host.done
    host.talk([{**WELCOME, "accepted": ["0", SHA]}, BYE])
    assert host.done.count("counted") == 1


@both
def test_messages_in_another_order(form):
    """Messages of other things come in the middle of a download and of an upload."""
    other = [RESULT, {"kind": "news"}, ack(0, "0" * 64), {"kind": "result", "round": "1"}]
    late = {"kind": "result", "run": "r", "round": 0, "counted": False}
    frames = [WELCOME, PARTS[0], *other, TASK, *other, PARTS[0], late, PARTS[1], *other, ack(0)]
    host = Host(form, [*frames, *other, ACCEPTED, RESULT, BYE])
    assert host.talk() == "bye"
    assert [m["round"] for m in host.told] == [1, 1, 0, 1, 1, 1]
    assert host.kinds()[:3] == ["hello", "fetch", "update"]
    assert host.done.count("counted") == 1


@both
@pytest.mark.parametrize("phase", ["fetch", "send"])
@pytest.mark.parametrize("answer", ["task", "bye", "stale", "late"])
def test_a_task_that_ends_early(form, phase, answer):
    """The server gives another task, or ends; or the deadline passes. Nothing is declined."""
    frames = [TASK, PARTS[0]] if phase == "fetch" else [TASK, *PARTS, ack(0)]
    second = {**TASK, "round": 2}
    ends = {"task": [second], "bye": [BYE], "late": [None, second]}
    ends["stale"] = [{"kind": "refused", "code": "stale", "reason": "x"}, second]
    host = Host(form, [WELCOME, *frames, *ends[answer]])
    assert host.talk() == ("bye" if answer == "bye" else "gone")
    assert "decline" not in host.kinds() and not host.told
    if answer != "bye":
        last = host.sent[-1]
        assert last["round"] == 2 and last["kind"] == {"fetch": "fetch", "send": "update"}[phase]
        assert last.get("offset", CHUNK) == CHUNK


@both
def test_two_clients_at_once(form):
    """Each has its own task, download and update."""
    other = {**TASK, "run": "q", "round": 5}
    hosts = [Host(form, []), Host(form, [])]
    hosts[1].update = bytes(9)
    sha = hashlib.sha256(bytes(9)).hexdigest()
    hosts[0].frames = [WELCOME, TASK, *PARTS, ack(0), ACCEPTED, BYE]
    hosts[1].frames = [WELCOME, other, *PARTS, ack(0, sha), {**ACCEPTED, "sha256": sha}, BYE]
    steps = [h.client.talk() for h in hosts]
    waiting = [next(s) for s in steps]
    while any(waiting):
        for k in (0, 1):
            if waiting[k]:
                try:
                    waiting[k] = steps[k].send(hosts[k].answer(waiting[k]))
                except StopIteration:
                    waiting[k] = None
    assert [h.kinds() for h in hosts] == [
        ["hello", "fetch", "update", (0, 4 * CHUNK)],
        ["hello", "fetch", "update", (0, 9)],
    ]
    for host, (run, number) in zip(hosts, (("r", 1), ("q", 5))):
        assert (host.sent[2]["run"], host.sent[2]["round"]) == (run, number)
        assert host.done.count("counted") == 1 and host.done.count("train") == 1


@both
@pytest.mark.parametrize(
    "field, value",
    [
        *((name, None) for name in (*NAMES, "codec", "config", "seed", "cohort", "deadline")),
        *(("deadline", "x"), ("deadline", -1), ("deadline", math.nan), ("deadline", 1e300)),
        *(("cohort", "9"), ("privacy", 3), ("codec", []), ("codec", "int2"), ("round", 1.5)),
        *(("round", -1), ("round", math.inf), ("round", True), ("config", []), ("seed", 0.5)),
        *(("secure", 3), ("secure", {"version": 1}), ("part", 1), ("audit", {}), ("audit", [])),
        *(("file", None), ("file", {**FILE, "bytes": 0}), ("file", {**FILE, "bytes": 1e12})),
        *(("file", {**FILE, "kind": "delta", "codec": {}}), ("file", {**FILE, "kind": "x"})),
        ("file", {**FILE, "kind": "delta", "codec": "int8", "bytes": 9}),  # of what is not here
    ],
)
def test_tasks_that_are_none_are_declined(form, field, value):
    """Whatever a server sends: the client says that it cannot, and goes on."""
    host = Host(form, [WELCOME, {**TASK, field: value}, {"kind": "weights"}, BYE])
    assert host.talk() == "bye"
    assert host.kinds() == ["hello", "decline"] and host.told == ["declined"] * 2
    assert host.sent[1]["reason"] == "training failed"
    assert "fetch" not in host.kinds()


@both
@pytest.mark.parametrize("offset", [-1, 0.5, "x", None, len(UPDATE) + 1, 1e300])
def test_offsets_that_do_not_exist(form, offset):
    host = Host(form, [WELCOME, TASK, *PARTS, ack(offset), BYE])
    assert host.talk() == "bye"
    assert host.kinds() == ["hello", "fetch", "update", "decline"]


@both
def test_an_offset_does_not_go_back(form):
    host = Host(form, [WELCOME, TASK, *PARTS, ack(CHUNK), ack(0), BYE])
    host.talk()
    assert host.kinds()[-2:] == [(CHUNK, 5 * CHUNK), "decline"]


@both
@pytest.mark.parametrize("wrong", [b"", b"x", WEIGHTS[: CHUNK - 1], bytes(CHUNK)])
def test_wrong_parts_of_weights(form, wrong):
    """Parts of another size end the download; other bytes have another SHA-256."""
    host = Host(form, [WELCOME, TASK, wrong, PARTS[1], BYE])
    assert host.talk() == "bye"
    assert host.kinds() == ["hello", "fetch", "decline"] and "keep" not in host.done


@both
def test_other_weights_than_the_task_names(form):
    host = Host(form, [WELCOME, TASK, *PARTS, BYE])
    host.base = "c" * 64
    host.talk()
    assert host.kinds()[-1] == "decline" and "keep" not in host.done


@both
def test_servers_that_refuse(form):
    refused = {"kind": "refused", "code": "ticket", "reason": "no ticket"}
    with pytest.raises(InputError, match="ws://x: no ticket. The server says: ticket."):
        Host(form, [refused]).talk()
    host = Host(form, [WELCOME, TASK, {**refused, "reason": 3}, BYE])
    assert host.talk() == "bye" and host.kinds()[-1] == "decline"
    assert Host(form, [None]).talk() == "gone"  # the host gives a silent server up
    assert issubclass(Refusal, InputError)


@both
@pytest.mark.parametrize(
    "error, long, reason",
    [
        (EdgewiseError("a secret text"), False, "training failed"),
        (InputError("a secret text", "data"), False, "training failed"),
        (InputError("x", "terms"), False, "terms"),
        (Aborted("too late"), False, None),  # the server knows
        (Aborted("too late"), True, "too long"),
    ],
)
def test_texts_of_errors_are_not_told(form, error, long, reason):
    terms = dataclasses.replace(TERMS, max_seconds=5.0 if long else 100.0)
    host = Host(form, [WELCOME, TASK, *PARTS, BYE], terms)
    host.raises["train"] = error
    assert host.talk() == "bye"
    declined = {"kind": "decline", "run": "r", "round": 1, "reason": reason}
    assert host.sent[2:] == ([] if reason is None else [declined])


@both
def test_conditions_of_the_host(form):
    """A task that cannot begin now is declined; one that was begun is finished, but not sent."""
    host = Host(form, [WELCOME, TASK, BYE])
    host.on_allowed = lambda r: "not now" if r.what == "begin" else ""
    host.talk()
    assert host.kinds() == ["hello", "decline"] and host.sent[1]["reason"] == "when"
    host = Host(form, [WELCOME, TASK, *PARTS, {**TASK, "file": None}, BYE])
    allowed = iter(["", "metered", ""])
    host.on_allowed = lambda r: next(allowed)
    host.talk()
    assert host.kinds() == ["hello", "fetch", "decline", "update"]
    assert host.done.count("train") == 1


@both
def test_the_weights_after_the_last_round(form):
    frames = [WELCOME, {"kind": "weights", **NAMES, "file": FILE}, *PARTS, BYE]
    host = Host(form, frames)
    assert host.talk() == "bye"
    assert host.sent[-1] == {"kind": "have", "base": BASE}
    assert host.done == ["welcome", "keep", "last"]
    host.talk([WELCOME, {"kind": "weights", **NAMES, "file": FILE}, *PARTS, BYE])
    assert host.kinds()[-2:] == ["hello", "have"]  # it has them


@both
def test_audits(form):
    """They are of their own texts, and another audit is another update."""
    one, two = ({"texts": [text], "batch": 1, "sequence": 8} for text in ("one", "two"))
    host = Host(
        form, [WELCOME, {**TASK, "audit": one}, *PARTS, {"kind": "rejected", "sha256": SHA}]
    )
    host.frames += [{**TASK, "audit": one}, ACCEPTED, {**TASK, "audit": two}, ACCEPTED]
    host.frames += [{**TASK, "audit": {"texts": [3]}}, {**TASK, "audit": {"texts": []}}, BYE]
    assert host.talk() == "bye"
    assert host.done.count("train") == 2 and host.trained.texts == ["two"]
    assert host.kinds()[2:] == ["update"] * 3 + ["decline"] * 2


@both
def test_settings_that_a_trainer_does_not_apply(form):
    config = {**TASK, "config": {"proximal-mu": 0.1}}
    third = {**TASK, "round": 2, "part": "A"}
    hidden = {**TASK, "config": {"audit": {"texts": ["x"]}, "part": "B"}}
    host = Host(form, [WELCOME, config, *PARTS, hidden, ACCEPTED, third, BYE])
    assert host.talk() == "bye"
    assert host.kinds() == ["hello", "fetch", "decline", "update", "decline"]
    assert dict(host.trained.config) == {"audit": None, "part": None}


@both
@pytest.mark.parametrize(
    "terms, sent, size, expected",
    [
        ({}, 0, 10**12, ""),
        ({"minimum_cohort": 4}, 0, 0, ""),
        ({"minimum_cohort": 5}, 0, 0, "for 4 clients, the terms say 5"),
        ({"required": True}, 0, 0, "secure aggregation, which the task does not have"),
        ({"max_epsilon": 1e9}, 0, 0, "noise of the clients, which the task does not have"),
        ({"max_epsilon": 4.0, "trusts_server": True}, 0, 0, ""),
        (
            {"max_epsilon": 3.9, "trusts_server": True},
            0,
            0,
            "spends epsilon 4, the terms allow 3.9",
        ),
        ({"max_bytes": 100}, 60, 40, ""),
        ({"max_bytes": 100}, 60, 41, "100 bytes a day"),
    ],
)
def test_terms(form, terms, sent, size, expected):
    """What a server says about its rounds meets no terms, unless they trust it."""
    objection = module(form, "federated.terms").objection
    task = {**TASK, "privacy": {"epsilon": 4}, "secureAggregation": True}
    found = objection(dataclasses.replace(TERMS, **terms), task, sent, size)
    assert found.endswith(expected) and bool(found) == bool(expected)


@both
def test_terms_of_secure_sums(form):
    objection = module(form, "federated.terms").objection
    secure = {**TASK, "secure": {"noise": 0}}
    epsilon = dataclasses.replace(TERMS, max_epsilon=9.0)
    assert objection(dataclasses.replace(TERMS, required=True), secure, 0, 0) == ""
    for noise in (0, None, "2", True, -1):
        text = objection(epsilon, {**TASK, "secure": {"noise": noise}}, 0, 0)
        assert text.endswith("noise of the clients, which the task does not have")
    assert objection(epsilon, {**TASK, "secure": {"noise": 2}}, 0, 0) == ""
    trusting = dataclasses.replace(epsilon, trusts_server=True)
    for claimed in (None, "1", math.nan, -1, 9.1):
        told = objection(trusting, {**TASK, "privacy": {"epsilon": claimed}}, 0, 0)
        assert told.startswith("the task spends epsilon")
    audit = {**TASK, "audit": {"texts": ["x"]}}  # nothing of the client's data is sent
    assert objection(dataclasses.replace(TERMS, required=True), audit, 0, 0) == ""
    terms = dataclasses.replace(TERMS, max_bytes=10)
    host = Host(form, [WELCOME, TASK, *PARTS, BYE], terms)
    assert host.talk() == "bye" and host.sent[-1]["reason"] == "terms"


@both
def test_settings_of_local_training(form):
    terms = module(form, "federated.terms")
    config = {"rate": 0.5, "zero": 0, "text": "x", "flag": True, "minus": -1, "far": math.inf}
    assert [terms.number_of(config, n, 3.0) for n in ("rate", "zero", "none")] == [0.5, 0, 3]
    for name in ("text", "flag", "minus", "far"):
        with pytest.raises(InputError, match=f"config '{name}': it is .*positive number"):
            terms.number_of(config, name, 3.0)
    assert [terms.steps_of(c, 10) for c in ({}, {"local-steps": 2.0})] == [10, 2]
    with pytest.raises(InputError, match="at least 1"):
        terms.steps_of({"local-steps": 0}, 10)
    audit = {"batch": 2, "sequence": 32}
    terms.check_audit(audit, 2, 32)
    for wrong in ({}, {**audit, "batch": 1}, {**audit, "sequence": "32"}):
        with pytest.raises(InputError, match="it is for batches of"):
            terms.check_audit(wrong, 2, 32)


@both
def test_updates_that_count(form):
    counts = module(form, "federated.client").counts
    plain = Finished("r 4 base", b"", "s", 1, 1, {}, None)
    masked = dataclasses.replace(plain, secure=Secrets(bytes(32), {}))
    result = {"kind": "result", "run": "r", "round": 4, "counted": True}
    accepted = {"kind": "accepted", "sha256": "s"}
    for finished, message, expected in [
        (plain, accepted, True),
        (plain, {**accepted, "sha256": "t"}, False),
        (plain, result, False),
        (masked, accepted, False),
        (masked, result, True),
        (masked, {**result, "counted": False}, False),
        (masked, {**result, "round": 3}, False),
        (masked, {**result, "run": ""}, False),
        (masked, {**result, "kind": "task"}, False),
        (None, result, False),
    ]:
        assert counts(message, finished) == expected
    for finished, fields, expected in [
        (plain, {"accepted": ["t", "s"]}, 1),
        (plain, {"accepted": "s", "counted": ["r", 4]}, 0),
        (masked, {"accepted": ["s"], "counted": None}, 0),
        (masked, {"accepted": ["s"], "counted": ["r", 3]}, 0),
        (masked, {"counted": ["r", 4]}, 1),
        (masked, {"counted": ["r", 4, 5]}, 0),
    ]:
        host = Host(form, [{**WELCOME, **fields}, BYE], finished=finished)
        host.talk()
        assert host.done.count("counted") == expected


# ---- groups ----
PLAN = {"version": 1, "group": "0" * 32, "size": 4, "clip": 1.0, "noise": 1.0, "stage": 30}
SECURE = {**TASK, "secure": PLAN}


class Grouped(Host):
    """The host of a client that takes part in groups; `spent` is {context: noise}."""

    def __init__(self, form, **fields):
        terms = dataclasses.replace(TERMS, max_epsilon=8.0)
        super().__init__(form, [], terms, **fields)
        self.spent = {}

    def enter(self, task, noise=0.0):
        """Takes part up to the message `keys`, and sends an update then."""
        with pytest.raises(Gone):
            drive(self.group.take_part(self.client, TakePart(task, 1.0, 2.0)), self.answer)

    def on_digest(self, r):
        found = super().on_digest(r)
        if b"context\0" in b"".join(r.parts):
            self.context = found
        return found

    def on_spent(self, r):
        return [noise for context, noise in self.spent.items() if context != r.context]

    def on_identify(self, _):
        return Own(bytes(32), None)

    def on_integers(self, r):
        return Finished(r.key, bytes(16), "", 1, 0, {}, Secrets(bytes(32), {}))

    def on_derive(self, r):
        return hashlib.sha256(r.secret + r.info).digest()

    def on_public_key(self, r):
        return r.secret

    def on_sign(self, r):
        return bytes(64)

    def on_store(self, _):
        pass


@both
def test_a_hub_that_gives_names_and_plans_twice(form):
    """Each plan is an update and an expense of its own, whatever the hub names its group."""
    host = Grouped(form)
    host.enter(SECURE)
    host.enter(SECURE)  # after a kill: the same update
    assert host.done.count("train") == 1 and host.kinds() == ["keys", "keys"]
    host.spent[host.context] = 1.0
    host.enter(SECURE)  # its own expense is not counted twice
    host.enter({**SECURE, "codec": "int4"})  # numbers of int8 exceed its norm
    assert host.done.count("train") == 2
    for number in (1, 2, 3):
        host.spent[bytes([number])] = 1.0
    with pytest.raises(InputError, match="would spend epsilon .*, the terms allow 8"):
        host.enter({**SECURE, "round": 2})


@both
def test_a_client_is_in_one_sum_of_a_round(form):
    for summed, agreed, refused in [
        ({}, {}, False),
        ({"r": 0}, {}, False),
        ({"r": 1}, {}, True),
        ({"r": 2}, {}, True),
        ({"q": 9}, {}, False),
        ({"r": 1}, {"survivors": "0,1,2"}, False),  # in this one
    ]:
        host = Grouped(form, summed=summed)
        host.on_integers = lambda r, known=agreed: Finished(
            r.key, bytes(16), "", 1, 0, {}, Secrets(bytes(32), known)
        )
        if refused:
            with pytest.raises(InputError, match="another sum of the round, or of a later one"):
                host.enter(SECURE)
        else:
            host.enter(SECURE)


@both
def test_groups_that_are_too_small(form):
    host = Grouped(form)
    host.client = module(form, "federated.client").Client(
        State(None, None, None, {}),
        Options("ws://x", "s", SHAPES, (), dataclasses.replace(TERMS, minimum_cohort=5), 15.0),
    )
    with pytest.raises(InputError, match="the group has 4 members, the terms say 5"):
        host.enter(SECURE)


@both
def test_a_task_of_a_group_that_was_begun(form):
    """It goes on, also if the client takes no new tasks now."""
    own = Secrets(bytes(32), {})
    for key, begun in (("r 1 " + BASE + " context", True), ("r 2 " + BASE + " context", False)):
        finished = Finished(key, bytes(16), "", 1, 0, {}, own)
        host = Host(form, [WELCOME, SECURE, BYE], have=BASE, finished=finished)
        host.on_allowed = lambda r: "not now"
        host.talk()
        assert ("take_part" in host.done) == begun == ("decline" not in host.kinds())

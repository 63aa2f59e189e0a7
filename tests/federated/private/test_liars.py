"""Members and hubs that lie, beyond single messages: what they do must not reach the others."""

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("websockets")

import dataclasses
import secrets

import numpy as np
from coroutines import run
from edgewise.errors import InputError
from edgewise.extras.federated.protocol import Refusal
from edgewise.extras.federated.secure.crypto import agree, digest, made, public_key, split
from edgewise.extras.federated.secure.group import Group, Lied
from edgewise.extras.federated.secure.plan import Entry, Plan, Roster
from edgewise.extras.federated.secure.suspects import Suspects
from edgewise.federated.secure.identity import Identity
from edgewise.logic.federated.members import fields_of, statement_of
from edgewise.logic.federated.plan import threshold

from .secure_toys import AUTHORITY, SIZE, Member, Room, identity, members_of, plan_of, wide


def test_a_liar_in_the_first_place_of_a_large_group_does_no_harm():
    """Far more subsets of shares exist than are tried."""
    plan = plan_of(40)
    group = Group(plan, wide(SIZE), [], 1.0, 1.0, lambda *_: None)
    keys = [Entry(*(bytes([i]) * 32 for _ in range(5)), None) for i in range(40)]
    secret, t = bytes(range(32)), threshold(40)
    keys[5] = dataclasses.replace(keys[5], commitment=digest("commitment", secret))
    group.roster = Roster.of(keys, plan)
    shares = dict(enumerate(split(secret, bytes(i % 251 for i in range(32 * (t - 1))), t, 40)))
    shares[0] = bytes(32)
    assert group._secret(5, shares, own=True) == secret
    with pytest.raises(InputError, match="do not fit"):
        group._secret(5, {j: shares[j] for j in range(t)}, own=True)


@pytest.mark.parametrize("stage", [None, "update"])
def test_noise_in_place_of_an_update_is_noticed(stage):
    """The sum of a group is no longer than its members' clips: noise fills the whole ring."""

    async def work():
        plan = plan_of(5)
        room = Room(plan, members_of(plan), bound=500.0)
        honest = room.answer

        def lying(node, at):
            given = honest(node, at)
            random = np.random.default_rng(3)
            return random.bytes(len(given)) if (node, at) == (2, stage) else given

        room.answer = lying
        return await room.play()

    if stage is None:
        assert len(run(work()).members) == 5
    else:
        with pytest.raises(Refusal, match="the norm of the group's mean is"):
            run(work())


def test_a_client_that_is_there_twice_does_not_end_the_group():
    """A second key of a user, or the same key, is refused by itself."""

    async def work():
        plan = plan_of(5)
        members = members_of(plan)
        members[4] = Member(plan, identity("user-0"), b"\1" * 32, members[4].numbers, 500.0)
        room = Room(plan, members)
        for node in range(4):
            room.say(node, "keys")
        for entry, same in ((members[4].keys(), "user"), (members[1].keys(), "identity")):
            with pytest.raises(Refusal, match=f"the same {same}"):
                room.group.receive(4, "keys", entry)
        room.group.leave(4, Refusal("declined", "x"))
        return len(room.sent[0]["roster"]["members"])

    assert run(work()) == 4


def test_a_certificate_that_expires_within_the_round_is_refused():
    """Members check it later: it would end the group for all."""

    async def work():
        plan = plan_of(3)
        own = identity("user-0")
        soon = Identity(own._key.private_bytes_raw(), AUTHORITY.certify(own.public, "user-0", 10))
        members = [Member(plan, soon, b"\1" * 32, np.zeros(SIZE, np.int16), 1.0)]
        room = Room(plan, [*members, *members_of(plan)[1:]])
        with pytest.raises(Refusal, match="expires before the round ends"):
            room.say(0, "keys")

    run(work())


@pytest.mark.parametrize("name", ["channel", "mask"])
def test_keys_that_give_no_secret_are_refused(name):
    """A point of low order as a key would stop every other member."""
    plan = plan_of(3)
    member, own = members_of(plan)[0], identity("evil")
    fields = {n: getattr(member.entry, n) for n in ("channel", "mask", "commitment")}
    fields[name] = bytes([1, *bytes(31)])
    signature = own.sign(made(statement_of(plan.context, **fields)))
    entry = Entry(own.public, **fields, signature=signature, certificate=own.certificate)
    with pytest.raises(InputError, match="gives no secret"):
        Entry.of(fields_of(entry), plan.context)


@pytest.mark.parametrize("name", ["channel", "mask"])
@pytest.mark.parametrize("more", [1 << 255, (1 << 255) - 19])
def test_a_key_has_one_text(name, more):
    """With bit 255, or with the prime added, a text is another member's key (RFC 7748, 5)."""
    private = secrets.token_bytes(32)
    public = int.from_bytes(public_key(private), "little") if more >> 255 else 9
    twin = (public + more).to_bytes(32, "little")
    assert agree(private, twin) == agree(private, public.to_bytes(32, "little"))
    plan = plan_of(3)
    member, own = members_of(plan)[0], identity("evil")
    fields = {n: getattr(member.entry, n) for n in ("channel", "mask", "commitment")}
    fields[name] = twin
    signature = own.sign(made(statement_of(plan.context, **fields)))
    entry = Entry(own.public, **fields, signature=signature, certificate=own.certificate)
    with pytest.raises(InputError, match="is not canonical"):
        Entry.of(fields_of(entry), plan.context)


@pytest.mark.parametrize("noise", [1e-200, 1e308])
def test_noise_that_cannot_be_computed_is_no_plan(noise):
    task = {"run": "r", "round": 1, "base": "b" * 64, "codec": "int8"}
    secure = {"version": 1, "group": "0" * 32, "size": 3, "clip": 1.0, "stage": 1, "noise": noise}
    with pytest.raises(InputError, match="cannot be used"):
        Plan.of({**task, "secure": secure})


def test_a_hub_that_gives_members_settings_of_their_own():
    """It would know what all but one send: nothing, after training with a learning rate of 0, or
    the update of an audit's texts. What members train with is in what they sign.
    """
    config = {"learning-rate": 0.1, "local-steps": 5}
    task = {"run": "r", "round": 1, "base": "b" * 64, "codec": "int8", "seed": 1, "config": config}
    task["secure"] = {"version": 1, "group": "0" * 32, "size": 3, "clip": 1.0, "stage": 1}
    others = [{}, {"seed": 2}, {"part": "B"}, {"config": {**config, "learning-rate": 0.0}}]
    others += [{"config": {**config, "proximal-mu": 1e30}}]
    assert len({Plan.of({**task, **other}).context for other in others}) == 5
    wrong = [{"x": "1"}, {"audit": {"texts": []}}, {"x": True}, {"a b": 1}, {"x": float("nan")}]
    for other in ({"audit": {"texts": ["public"]}}, *({"config": x} for x in wrong)):
        with pytest.raises(InputError, match="cannot be those of a secure sum"):
            Plan.of({**task, **other})


@pytest.mark.parametrize("clients, groups", [(18, 3), (6, 2)])
@pytest.mark.parametrize("behaves, rounds, found", [(0.0, 3, {"3"}), (0.5, 8, {"3", None})])
def test_elimination_finds_one_liar_and_nobody_else(clients, groups, behaves, rounds, found):
    """It always lies, or in half of the rounds: then it may never be found."""
    for seed in range(50):
        random, suspects = np.random.default_rng(seed), Suspects()
        for _ in range(rounds):
            nodes = suspects.order({n: str(n) for n in range(clients)})
            drawn = [[str(n) for n in nodes[k::groups]] for k in range(groups)]
            lost = [members for members in drawn if "3" in members and random.random() >= behaves]
            suspects.learn([members for members in drawn if members not in lost], lost)
        assert set(suspects.out) <= {"3"} and next(iter(suspects.out), None) in found


def test_one_liar_has_nobody_else_left_out():
    """It lies in groups with one client, and behaves while that one is away."""
    for seed in range(50):
        random, suspects = np.random.default_rng(seed), Suspects()
        for _ in range(20):
            here = [n for n in range(18) if n != 5 or random.random() < 0.7]
            nodes = suspects.order({n: str(n) for n in here})
            drawn = [[str(n) for n in nodes[k::3]] for k in range(3)]
            lost = [members for members in drawn if {"3", "5"} <= set(members)]
            suspects.learn([members for members in drawn if members not in lost], lost)
        assert set(suspects.out) <= {"3"}


@pytest.mark.parametrize(
    "size, attempts, gone, known",
    [
        (7, 21, {}, [2]),
        (7, 20, {}, range(7)),
        (7, 21, {0: "unmask"}, range(7)),
        (3, 21, {}, range(3)),
    ],
)
def test_who_seals_wrong_shares_is_named(size, attempts, gone, known, monkeypatch):
    """If all members have opened theirs and all subsets were tried; else one of them may have
    opened wrong ones.
    """
    monkeypatch.setattr("edgewise.extras.federated.secure.group.ATTEMPTS", attempts)

    async def work():
        plan = plan_of(size)
        members = members_of(plan)
        honest, own = members[2].answers["split"], members[2].logic.self_seed

        def lying(request):  # shares of another secret than the committed one
            if request.secret == own:
                request.secret = bytes(32)
            return honest(request)

        members[2].answers["split"] = lying
        return await Room(plan, members).play(gone)

    with pytest.raises(Lied, match="the shares of client 2's secret") as raised:
        run(work())
    assert raised.value.members == list(known)

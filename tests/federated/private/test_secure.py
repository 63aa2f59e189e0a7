"""Secure aggregation: sums are exact whoever vanishes, and members refuse hubs that lie."""

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("websockets")

import asyncio
import copy
import itertools
import time

import numpy as np
from coroutines import run
from edgewise.errors import InputError
from edgewise.extras.federated.protocol import Refusal
from edgewise.extras.federated.secure.crypto import join, split
from edgewise.extras.federated.secure.group import STAGES
from edgewise.extras.federated.secure.noise import discrete_gaussian, gaussian
from edgewise.extras.federated.secure.quantize import Lattice
from edgewise.federated.secure.identity import Authority, Certificate, Identity, encoded
from edgewise.logic.federated.budget import epsilon_of
from edgewise.logic.federated.lattice import grid_of
from edgewise.logic.federated.plan import threshold

from tests.logic.forms import both

from .secure_toys import AUTHORITY, Member, Room, identity, members_of, plan_of, total_of


def played(size, gone=None, form="python", **fields):
    async def work():
        plan = plan_of(size, **fields)
        members = members_of(plan, form=form)
        return members, await Room(plan, members).play(gone)

    return run(work())


SIZES = [(3, "int8"), (18, "int4"), (19, "int4"), (40, "int8")]


@both
@pytest.mark.parametrize("size, codec", SIZES)
def test_the_sum_is_exact(size, codec, form):
    """At all sizes of the ring: 8 bits for few members with 4 bits, else 16."""
    members, done = played(size, codec=codec, form=form)
    assert done.members == list(range(size)) and not done.lost
    assert np.array_equal(done.total, total_of(members, range(size)))
    assert members[0].plan.bits(size) == (8 if size == 18 else 16)


@pytest.mark.slow("test_the_sum_is_exact")
@pytest.mark.parametrize("size", [*range(3, 20), 64])
def test_the_sum_is_exact_for_more_sizes(size):
    """And without as many members as the threshold leaves, drawn at random."""
    rng = np.random.default_rng(size)
    away = rng.permutation(size)[: rng.integers(0, size - threshold(size) + 1)]
    members, done = played(size, {int(n): STAGES[rng.integers(1, 5)] for n in away})
    assert set(range(size)) - set(map(int, away)) <= set(done.members)
    assert np.array_equal(done.total, total_of(members, done.members))


@pytest.mark.parametrize("stage", STAGES)
def test_clients_vanish_in_every_stage(stage):
    """Who vanishes before its update has arrived is not in the sum; later ones are."""
    gone = {2: stage, 5: stage}
    members, done = played(9, gone)
    counted = [n for n in range(9) if n not in gone or STAGES.index(stage) > 2]
    assert done.members == counted
    assert np.array_equal(done.total, total_of(members, counted))
    assert set(done.lost) == set(range(9)) - set(counted)


def test_any_set_of_clients_may_vanish():
    """All sets of up to the number that the threshold leaves, at stages drawn at random."""
    size = 5
    rng = np.random.default_rng(1)
    sets = [
        s for k in range(size - threshold(size) + 1) for s in itertools.combinations(range(size), k)
    ]
    for gone in sets:
        at = {n: STAGES[rng.integers(1, 5)] for n in gone}
        members, done = played(size, at)
        assert np.array_equal(done.total, total_of(members, done.members)), at


def test_too_many_vanish():
    with pytest.raises(Refusal, match="5 clients are left in the stage 'update', 7 are needed"):
        played(9, dict.fromkeys(range(4), "update"))


def test_a_stage_ends_in_time():
    async def work():
        plan = plan_of(4)
        room = Room(plan, members_of(plan), seconds=0.05)
        for node in (0, 1, 2):
            room.say(node, "keys")
        while not room.sent[0]:
            await asyncio.sleep(0.01)
        return len(room.sent[0]["roster"]["members"])

    assert run(work()) == 3


@both
def test_a_killed_client_says_the_same_again(form):
    """With the same seed all answers are the same, and the hub repeats its own."""

    async def work():
        plan = plan_of(4)
        members = members_of(plan, form=form)
        room = Room(plan, members)
        await room.play(until="consent")
        first = [room.answer(0, stage) for stage in STAGES[:4]]
        second = [room.answer(0, stage) for stage in STAGES[:4]]
        assert first == second
        sent = copy.deepcopy(room.sent[0])
        for stage in STAGES[:3]:
            room.sent[0].clear()
            room.sent[0].update(sent)
            room.say(0, stage)
            assert room.sent[0] == sent
        wrong = {**first[1], "sealed": [*first[1]["sealed"][1:], first[1]["sealed"][0]]}
        with pytest.raises(Refusal):
            room.group.receive(0, "shares", wrong)

    run(work())


# ---- hubs that lie ----
def refused(form, stage, change, match, kind, size=6, node=0):
    """The member refuses a changed message."""

    async def work():
        plan = plan_of(size)
        members = members_of(plan, form=form)
        room = Room(plan, members)
        await room.play(until=stage)
        room.sent[node][kind] = change(copy.deepcopy(room.sent[node][kind]), room)
        with pytest.raises(InputError, match=match):
            room.answer(node, stage)

    run(work())


def rosters(change):
    def changed(message, room):
        members = message["members"]
        own = next(
            i
            for i, m in enumerate(members)
            if m["identity"] == encoded(room.members[0].entry.identity)
        )
        other = (own + 1) % len(members)
        found = change(members, other, room)
        return {"members": found if found is not None else members}

    return changed


def _tampered(members, other, room):
    members[other]["mask"] = members[(other + 1) % 6]["mask"]


def _of_another_round(members, other, room):
    stranger = members_of(plan_of(6, number=2))[0]
    members[other] = stranger.keys()
    members.sort(key=lambda m: _raw(m))


def _raw(member):
    from edgewise.federated.secure.identity import decoded

    return decoded(member["identity"], 32, "")


def _invented(members, other, room):
    """The hub's own member, certified by the hub."""
    own = Authority(b"\7" * 32)
    made = Member(room.plan, identity("x", own), b"\1" * 32, np.zeros(1), 1.0)
    members[other] = made.keys()
    members.sort(key=_raw)


def _uncertified(members, other, room):
    made = Member(room.plan, Identity.new(), b"\1" * 32, np.zeros(1), 1.0)
    members[other] = made.keys()
    members.sort(key=_raw)


def _one_user_twice(members, other, room):
    entry = room.members[0].identity
    twin = identity(entry.certificate.subject)
    made = Member(room.plan, twin, b"\1" * 32, np.zeros(1), 1.0)
    members[other] = made.keys()
    members.sort(key=_raw)


def _without_me(members, other, room):
    own = encoded(room.members[0].entry.identity)
    return [m for m in members if m["identity"] != own]


LIES = {
    "a changed key": (_tampered, "not signed"),
    "a member of another round": (_of_another_round, "not signed by its identity, for this round"),
    "a member of the hub": (_invented, "authority has not signed"),
    "a member without a certificate": (_uncertified, "no certificate"),
    "one user twice": (_one_user_twice, "a user is two of its members"),
    "without the client": (_without_me, "this member is not in it"),
    "a member twice": (lambda m, o, r: [*m[:-1], m[-2]], "same identity"),
    "another order": (lambda m, o, r: m[::-1], "not in order"),
    "too many": (lambda m, o, r: m + m, "12 members"),
    "too few": (lambda m, o, r: m[:2], "2 members"),
}


@both
@pytest.mark.parametrize("lie", LIES)
def test_false_rosters_are_refused(lie, form):
    change, match = LIES[lie]
    refused(form, "shares", rosters(change), match, "roster")


@both
def test_a_second_roster_is_refused(form):
    """The hub shows another group to a client that has answered."""

    async def work():
        plan = plan_of(5)
        members = members_of(plan, form=form)
        room = Room(plan, members)
        await room.play(until="update")
        fewer = {"members": room.sent[0]["roster"]["members"]}
        gone = next(
            i
            for i, m in enumerate(fewer["members"])
            if m["identity"] != encoded(members[0].entry.identity)
        )
        del fewer["members"][gone]
        with pytest.raises(InputError, match="another message 'roster'"):
            members[0].shares(fewer)

    run(work())


@both
def test_both_shares_of_a_client_are_not_given(form):
    """The hub says first that all survived, then that one did not: it would open both secrets."""

    async def work():
        plan = plan_of(6)
        members = members_of(plan, form=form)
        room = Room(plan, members)
        await room.play(until="unmask")
        own = room.group.index[0]
        alive = room.sent[0]["survivors"]["survivors"]
        fewer = [i for i in alive if i != (own + 1) % 6]
        with pytest.raises(InputError, match="another message 'survivors'"):
            members[0].consent({"survivors": fewer})
        opened = room.answer(0, "unmask")["shares"]
        assert sorted(map(int, opened)) == alive and all(len(s) == 43 for s in opened.values())

    run(work())


def _forged(message, room):
    """Signatures of other lists, in the place of those of members."""
    key = next(iter(message["consents"]))
    other = Identity.new()
    message["consents"][key] = encoded(other.sign(b"x"))
    return message


@pytest.mark.parametrize(
    "stage, kind, change, match",
    [
        ("consent", "survivors", lambda m, r: {"survivors": m["survivors"][:3]}, "5 are needed"),
        ("consent", "survivors", lambda m, r: {"survivors": m["survivors"] * 2}, "not in order"),
        ("consent", "survivors", lambda m, r: {"survivors": [0, 1, 2, 3, 4, 6]}, "list of members"),
        (
            "consent",
            "survivors",
            lambda m, r: {"survivors": [i for i in range(6) if i != r.group.index[0]]},
            "cannot be",
        ),
        ("unmask", "consents", _forged, "signed something else"),
        (
            "unmask",
            "consents",
            lambda m, r: {"consents": dict(list(m["consents"].items())[:4])},
            "4 members have signed",
        ),
        ("update", "sealed", lambda m, r: {**m, "senders": m["senders"][:4]}, "5 are needed"),
        ("update", "sealed", lambda m, r: {**m, "sealed": m["sealed"][:5]}, "not for this member"),
    ],
)
@both
def test_false_messages_are_refused(stage, kind, change, match, form):
    refused(form, stage, change, match, kind)


@both
def test_the_terms_count_members(form):
    async def work():
        plan = plan_of(6)
        members = members_of(plan, least=6, form=form)
        room = Room(plan, members)
        room.group.leave(5, Refusal("gone", "x"))
        for node in range(5):
            room.say(node, "keys")
        with pytest.raises(InputError, match="5 members, this client takes part from 6"):
            room.answer(0, "shares")

    run(work())


# ---- members that lie ----
def test_wrong_shares_of_a_member_do_no_harm():
    """Shares that do not fit are found by commitments and public keys; others are tried."""

    async def work():
        plan = plan_of(7)
        members = members_of(plan)
        room = Room(plan, members)
        await room.play({6: "update"}, until="unmask")
        bad = room.answer(0, "unmask")
        bad["shares"] = {i: encoded(bytes(32)) for i in bad["shares"]}
        room.group.receive(0, "unmask", bad)
        for node in range(1, 6):
            if not room.group.done:
                room.say(node, "unmask")
        done = await asyncio.wrap_future(room.group.outcome)
        assert np.array_equal(done.total, total_of(members, range(6)))

    run(work())


def test_the_hub_refuses_keys_without_certificates():
    async def work():
        plan = plan_of(3)
        members = members_of(plan)
        room = Room(plan, members)
        stranger = Member(plan, Identity.new(), b"\1" * 32, np.zeros(1), 1.0)
        with pytest.raises(Refusal, match="no certificate"):
            room.group.receive(0, "keys", stranger.keys())
        with pytest.raises(Refusal, match="stage 'keys'"):
            room.group.receive(0, "consent", {"signature": "x"})

    run(work())


def test_certificates_expire_and_name_one_key():
    key = Identity.new()
    made = AUTHORITY.certify(key.public, "a", seconds=60)
    assert Certificate.of(made.fields) == made
    made.check(AUTHORITY.public)
    with pytest.raises(InputError, match="expired"):
        made.check(AUTHORITY.public, time.time() + 61)
    with pytest.raises(InputError, match="has not signed"):
        Certificate.of({**made.fields, "subject": "b"}).check(AUTHORITY.public)
    with pytest.raises(InputError, match="for another key"):
        Identity(bytes(32), made)


# ---- what the hub sees, and numbers ----
def test_a_masked_update_is_uniform():
    """Chi-square over all values of bytes, of an update of zeros."""

    async def work():
        plan = plan_of(3)
        members = members_of(plan)
        for member in members:
            member.numbers = np.zeros(100_000, np.int16)
        room = Room(plan, members, size=100_000)
        await room.play(until="update")
        return room.answer(0, "update")

    counts = np.bincount(np.frombuffer(run(work()), np.uint8), minlength=256)
    expected = 200_000 / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * (2 * 255) ** 0.5


def test_shares_are_those_of_another_implementation():
    """PyCryptodome, which comes with Flower, joins our shares."""
    shamir = pytest.importorskip("Crypto.Protocol.SecretSharing").Shamir
    secret, random = bytes(range(100, 132)), bytes(range(96))
    shares = split(secret, random, 4, 7)
    for some in list(itertools.combinations(range(7), 4))[::6]:
        assert join({i: shares[i] for i in some}) == secret
        for h in (0, 16):
            own = [(i + 1, shares[i][h : h + 16]) for i in some]
            assert shamir.combine(own) == secret[h : h + 16]


@pytest.mark.parametrize("count", [1, 20, 5000, 33000])
@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_the_norm_of_integers_is_bounded(count, codec):
    """Also of updates that no rotation spreads; rotations keep norms and can be undone."""
    rng = np.random.default_rng(count)
    lattice = Lattice.of(grid_of(count, codec, 2.0), b"\2" * 32)
    x = rng.standard_normal(count)
    assert np.allclose(lattice.unrotate(lattice.rotate(x)), x)
    assert np.isclose(np.linalg.norm(lattice.rotate(x)), np.linalg.norm(x))
    spike = np.zeros(count)
    spike[0] = 1
    for y in (x, spike, np.ones(count), rng.standard_normal(count) ** 9):
        q = lattice.round(lattice.rotate(y * (2.0 / np.linalg.norm(y)))).astype(np.int64)
        assert q @ q <= lattice.bound**2 and abs(q).max() <= lattice.levels


def test_a_rotation_is_the_hadamard_matrix():
    hadamard = pytest.importorskip("scipy.linalg").hadamard
    lattice = Lattice.of(grid_of(200, "int8", 1.0), b"\2" * 32)
    x = np.random.default_rng(0).standard_normal(lattice.size)
    expected = hadamard(lattice.block) @ x.reshape(lattice.block, -1) / lattice.block**0.5
    assert np.allclose(lattice._mix(x), expected.reshape(-1))


def test_noise_has_its_distribution():
    """Kolmogorov and Smirnov's distance, and the variance of discrete noise."""
    stats = pytest.importorskip("scipy.stats")
    assert stats.kstest(gaussian(50_000, 3.0) / 3.0, "norm").pvalue > 1e-6
    for sigma in (0.7, 40.0):
        k = discrete_gaussian(50_000, sigma, b"\3" * 32)
        x = np.arange(-400, 401)
        weights = np.exp(-x * x / (2 * sigma**2))
        variance = (weights * x * x).sum() / weights.sum()
        assert (
            abs(k.astype(float).var() / variance - 1) < 0.05 and abs(k.mean()) < 0.02 * sigma + 0.02
        )


@both
def test_members_add_noise_together(form):
    """The noise of a sum is at least what the plan says."""

    async def work():
        plan = plan_of(4, noise=1.0)
        members = members_of(plan, form=form)
        for member in members:
            member.numbers = np.zeros(20_000, np.int16)
        done = await Room(plan, members, size=20_000).play({3: "update"})
        return done.total.std()

    assert 0.97 < run(work()) / 500.0 < 1.03  # of three, the threshold of four


def test_epsilon_of_a_client_is_that_of_dp_accounting():
    pld = pytest.importorskip("dp_accounting.pld")
    import dp_accounting

    for noises in ([1.0], [0.8, 3.0]):
        accountant = pld.PLDAccountant()
        for noise in noises:
            accountant.compose(dp_accounting.GaussianDpEvent(noise))
        assert abs(epsilon_of(noises) - accountant.get_epsilon(1e-6)) < 2e-3
    assert epsilon_of([]) == 0 and epsilon_of([1e-3]) == float("inf")

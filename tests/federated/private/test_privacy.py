"""What runs spend: beside accountants that we did not write, and an attacker who measures it."""

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
pytest.importorskip("scipy")

import itertools
import json
import math
from types import SimpleNamespace

import dp_accounting
import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from edgewise.cli import main, parse
from edgewise.extras.commands.federate_private import client_terms
from edgewise.extras.federated.codec import Schema
from edgewise.extras.federated.secure.noise import discrete_gaussian
from edgewise.extras.federated.secure.privacy import Privacy
from edgewise.federated.secure.identity import Authority, Certificate, Identity, encoded
from edgewise.logic.federated.budget import epsilon_of
from scipy import stats

DELTA = 1e-3
TRIALS = 100_000


def schedules(count, seed, longest):
    """Noise, rate, rounds before and after the server was killed, delta."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        noise = math.exp(rng.uniform(math.log(0.7), math.log(4)))
        rate = math.exp(rng.uniform(math.log(0.005), math.log(0.5)))
        yield noise, rate, *map(int, rng.integers(1, longest, 2)), 10 ** rng.uniform(-7, -4)


def check_schedules(count, seed, longest):
    prv = pytest.importorskip("prv_accountant")
    for noise, rate, first, rest, delta in schedules(count, seed, longest):
        rounds = first + rest
        spent = Privacy(noise, 1.0, rate, delta, None).spent(rounds)
        once = pld.from_gaussian_mechanism(noise, sampling_prob=rate)
        whole = once.self_compose(first).compose(once.self_compose(rest))
        assert abs(spent - whole.get_epsilon_for_delta(delta)) < 1e-6
        drawn = prv.PoissonSubsampledGaussianMechanism(
            noise_multiplier=noise, sampling_probability=rate
        )
        low, _, high = prv.PRVAccountant(
            prvs=drawn, max_self_compositions=rounds, eps_error=0.05, delta_error=delta / 1000
        ).compute_epsilon(delta=delta, num_self_compositions=rounds)
        assert low <= spent <= high
        # without a draw, of the server's noise and the clients'
        exact = dp_accounting.get_epsilon_gaussian(noise / rounds**0.5, delta)
        for by, amplified in (("clients", True), ("server", False)):
            full = Privacy(noise, 1.0, rate, delta, None, by, amplified).spent(rounds)
            assert abs(full - exact) < 1e-6
        assert abs(epsilon_of([noise] * first + [2 * noise] * rest, delta) - uneven(
            noise, first, rest, delta
        )) < 1e-6  # fmt: skip


def uneven(noise, first, rest, delta):
    """The epsilon of rounds, the last ones with twice the noise."""
    sigma = (first / noise**2 + rest / (2 * noise) ** 2) ** -0.5
    return dp_accounting.get_epsilon_gaussian(sigma, delta)


def test_epsilon_of_some_schedules():
    check_schedules(3, 0, 15)


@pytest.mark.slow("test_epsilon_of_some_schedules")
def test_epsilon_of_fifty_schedules():
    check_schedules(50, 1, 15)


# ---- an attacker who knows all but whether one client takes part


def shown(there, away, delta=DELTA):
    """The epsilon that an attacker's scores prove, with one chance in a million of being wrong:
    that of the threshold that is best on half of the trials, for the other half.
    """
    half = len(there) // 2
    best = []
    for sign in (1, -1):
        a, b = sign * there, sign * away
        levels = np.quantile(b[:half], 1 - np.geomspace(2e-4, 0.5, 20))
        level = max(levels, key=lambda t: proven(a[:half] > t, b[:half] > t, delta))
        best.append(proven(a[half:] > level, b[half:] > level, delta))
    return max(best)


def proven(hits, alarms, delta, wrong=2.5e-7):
    """The same of one threshold, by Clopper and Pearson's bounds of both shares."""
    n, found, false = len(hits), int(hits.sum()), int(alarms.sum())
    low = stats.beta.ppf(wrong, found, n - found + 1) if found else 0.0
    high = stats.beta.ppf(1 - wrong, false + 1, n - false)
    return math.log(max(low - delta, 1e-9) / high)


def scores(privacy, rounds, present):
    """An attacker's score of each trial: the logarithm of the likelihood ratio over the rounds'
    releases. A client is in a round by the server's own draw, and sends the clip in one direction.
    """
    from edgewise.extras.federated.private_grid import PrivateGrid

    schema = Schema.of({"trials": (TRIALS, 2)})
    grid = SimpleNamespace(_central=privacy, population=TRIALS)
    total = np.zeros(TRIALS)
    for _ in range(rounds):
        sums = np.zeros((TRIALS, 2))
        if present:
            sums[PrivateGrid._draw(grid, list(range(TRIALS)))] = privacy.clip / 2**0.5
        seen = privacy.release({"trials": sums}, schema, 7.0)["trials"] * 7.0
        x = seen.sum(1) / 2**0.5 / privacy.clip
        ratio = np.exp((x - 0.5) / privacy.noise**2)
        total += np.log1p(privacy.rate * (ratio - 1))
    return total


@pytest.mark.parametrize("noise, rate, rounds", [(1.0, 1.0, 1), (2.0, 1.0, 4), (1.0, 0.5, 3)])
def test_an_attacker_shows_less_than_epsilon(noise, rate, rounds):
    """And more than half of it; with half the noise that is accounted for, he shows more."""
    pytest.importorskip("flwr")
    privacy = Privacy(noise, 3.0, rate, DELTA, None)
    spent = privacy.spent(rounds)
    found = shown(*(scores(privacy, rounds, present) for present in (True, False)))
    assert 0.5 * spent < found < spent
    weak = Privacy(noise / 2, 3.0, rate, DELTA, None)
    assert shown(*(scores(weak, rounds, present) for present in (True, False))) > spent


def test_an_attacker_on_the_noise_of_clients():
    """The same of integers, as members of secure sums add them."""
    noise, clip = 1.0, 40
    found = []
    for sigma in (noise * clip, noise * clip / 2):
        there, away = (discrete_gaussian(TRIALS, sigma) + shift for shift in (clip, 0))
        found.append(shown(there, away))
    spent = epsilon_of([noise], DELTA)
    assert 0.5 * spent < found[0] < spent < found[1]


def test_the_command_line_takes_a_key_that_begins_like_an_option(tmp_path, capsys):
    authority = Authority.load(tmp_path / "authority.key")
    keys = (Identity(k.to_bytes(32, "big")).public for k in itertools.count())
    key = next(encoded(k) for k in keys if encoded(k)[0] == "-")
    path = str(tmp_path / "authority.key")
    assert not main(["federate", "certify", path, key, "--subject", "a"])
    made = Certificate.of(json.loads(capsys.readouterr().out))
    made.check(authority.public)
    assert encoded(made.identity) == key
    join = parse(["federate", "join", "ws://a", "model", "texts", "--authority", key])
    assert client_terms(join).authority == made.identity
    # a ticket may look like a key, and stays as it is
    command = ["federate", "join", "ws://a", "model", "--ticket", key, "texts", f" {key}"[:9]]
    assert (parse(command).ticket, parse(command).data) == (key, ["texts", f" {key}"[:9]])
    for days in ("nan", "0", "-1", "1e300"):
        assert main(["federate", "certify", path, key, "--subject", "a", "--days", days])
        assert "it would be valid for" in capsys.readouterr().err

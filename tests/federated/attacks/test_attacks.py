"""A fifth of the clients attack; `make goals GOALS=attacks` has all strategies and attacks."""

import pytest

pytest.importorskip("websockets")
pytest.importorskip("flwr")

from ..serving import identity  # noqa: F401 (a fixture)
from .experiment import ROBUST, clients_of, played

pytestmark = pytest.mark.usefixtures("identity")


def test_a_backdoor_does_not_pass_multi_krum(tmp_path):
    """It does pass the mean."""
    fields = {**ROBUST["multi-krum"], "rounds": 8}
    clean, _, _ = played(tmp_path / "clean", clients_of(None), **fields)
    loss, success, log = played(tmp_path / "attacked", clients_of("backdoor"), **fields)
    assert loss <= 1.05 * clean and success < 0.05
    assert all(line["participants"] + line["refused"] == 20 for line in log)
    _, success, _ = played(tmp_path / "mean", clients_of("backdoor"), rounds=4, uniform=True)
    assert success > 0.5


def test_a_label_flip_does_not_move_multi_krum(tmp_path):
    fields = {**ROBUST["multi-krum"], "rounds": 8}
    loss, _, _ = played(tmp_path / "attacked", clients_of("label flip"), **fields)
    clean, _, _ = played(tmp_path / "clean", clients_of(None), **fields)
    assert loss <= 1.05 * clean

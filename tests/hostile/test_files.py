"""Damaged files: packages, adapters, safetensors and checkpoints, in Python and in the
page's code.
"""

from base64 import b64decode

import pytest
from tiers import slow_unless

from .fuzz_files import SANITIZED, files_campaign
from .page.page_reader import CHECKPOINT, framed


@pytest.mark.parametrize(
    "plain", slow_unless(lambda plain: not plain, [False, True]), ids=["sanitized", "plain"]
)
def test_damaged_files_do_no_harm(plain):
    """A short run of `make fuzz` in child processes; `python tests/hostile/fuzz_files.py` runs any
    number of cases.
    """
    if not plain and not SANITIZED.exists():
        pytest.skip("not built: make sanitize")
    counts, findings = files_campaign(250, seed=20 + plain, plain=plain)
    assert not findings, "\n".join(findings[:5])
    assert (
        counts["package PackageError"] > 50
        and counts["package ran"] > 5
        and counts["checkpoints ran"] > 10
    ), counts


def test_damaged_training_artifacts_do_no_harm():
    """Both hosts raise an error, or train with the same losses."""
    counts, findings = files_campaign(200, seed=30, of="artifacts", plain=True)
    assert not findings, "\n".join(findings[:5])
    assert counts["artifacts ran"] > 40 and counts["artifacts ModelError"] > 60, counts


def test_a_whole_checkpoint_and_adapter(page):
    """The files that the campaigns damage are valid before."""
    side, kept = (b64decode(x) for x in page.ask(CHECKPOINT, framed())["ok"])
    assert page.ask(CHECKPOINT, framed(side, side, kept))["ok"] == {
        "listed": 1,
        "step": 3,
        "tensors": 2,
        "kept": 1,
        "files": 2,
    }

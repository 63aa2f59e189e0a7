"""Tests in several processes: what each sends of a test, and what happens when one ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import Places, _only_news

ROOT = Path(__file__).parents[1]
END = "import os\n\n\ndef test_end():\n    os._exit(3)\n"
CONFTEST = "import time\nfrom processes import pytest_xdist_make_scheduler\n"
# The end of a process is noticed a moment after it: here after all that it has sent was read.
NOTICED_LATE = """
from xdist.workermanage import WorkerController

WorkerController.shutting_down = property(lambda self: self._shutdown_sent)


def pytest_runtest_logreport(report):
    time.sleep(0.2 if hasattr(report, "node") else 0)
"""


@pytest.mark.parametrize("late", ("", NOTICED_LATE), ids=("at_once", "late"))
def test_the_tests_of_a_process_that_ends_are_run_in_another(tmp_path, late):
    """Once each, those after it, too; the one that has ended it is not run again. The
    end of a process may be noticed after the next test was sent to it.
    """
    pytest.importorskip("xdist")
    (tmp_path / "conftest.py").write_text(CONFTEST + late)
    for name in "abcdef":
        text = END if name == "c" else "def test_one():\n    pass\n"
        (tmp_path / f"test_{name}.py").write_text(text)
    paths = os.pathsep.join(map(str, (ROOT / "tests", ROOT / "python")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", tmp_path],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        text=True,
        timeout=550,
    )
    assert "1 failed, 5 passed" in done.stdout, done.stdout[-2000:]
    assert "crashed while running 'test_c.py::test_end'" in done.stdout


def sent(*reports):
    """The reports that are sent of (when, outcome, titles of what was written)."""
    found = []
    send = _only_news(lambda name, **what: found.append((name, what["data"]["when"])))
    send("logstart", nodeid="x", location=())
    for when, outcome, *titles in reports:
        sections = [(title, "text") for title in titles]
        send("testreport", data={"when": when, "outcome": outcome, "sections": sections})
    send("logfinish", nodeid="x", location=())
    assert {name for name, _ in found} <= {"testreport"}
    return [when for _, when in found]


def test_one_report_of_a_test_that_passed():
    """Whatever failed, was skipped, or was written in a teardown is sent."""
    out = "Captured stdout "
    passed = [("setup", "passed", out + "setup"), ("call", "passed", out + "setup")]
    assert sent(*passed, ("teardown", "passed", out + "setup", out + "call")) == ["call"]
    assert sent(*passed, ("teardown", "failed")) == ["call", "teardown"]
    assert sent(*passed, ("teardown", "passed", out + "teardown")) == ["call", "teardown"]
    for outcome in ("failed", "skipped"):  # an expected failure is a skipped one
        assert sent(("setup", outcome), ("teardown", "passed")) == ["setup"]
        assert sent(passed[0], ("call", outcome), ("teardown", "passed")) == ["call"]


def test_places():
    names = ["b", "a", "c"]
    assert [Places(names).index(name) for name in names] == [0, 1, 2]
    assert Places(names) == names

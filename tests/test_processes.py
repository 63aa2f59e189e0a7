"""Tests go on in another process when one has ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
END = "import os\n\n\ndef test_end():\n    os._exit(3)\n"


def test_the_tests_of_a_process_that_ends_are_run_in_another(tmp_path):
    """Once each, those behind it, too; the one that has ended it is not run again."""
    pytest.importorskip("xdist")
    (tmp_path / "conftest.py").write_text("from processes import pytest_xdist_make_scheduler\n")
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
        timeout=120,
    )
    assert "1 failed, 5 passed" in done.stdout, done.stdout[-2000:]
    assert "crashed while running 'test_c.py::test_end'" in done.stdout

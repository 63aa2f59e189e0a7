"""The native libraries for several levels of instruction sets: each that this processor can run
computes what the references do, in a process of its own.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import edgewise.host.engine.native as native
import pytest

from engines.node_engine import ROOT

FOLDER = Path(native.__file__).parent
LOWEST = next(FOLDER.glob("libedgewise.*"))
LEVELS = sorted(FOLDER.glob("libedgewise-v*"))


def level_of_processor():
    ask = getattr(ctypes.CDLL(str(LOWEST)), "ew_cpu_level", None)
    return ask() if ask else 1


def runnable():
    """(library, whether as without VNNI) that this processor can run."""
    level = level_of_processor()
    libraries = [p for p in LEVELS if int(p.stem.rpartition("-v")[2]) <= level]
    yield from ((p, False) for p in [LOWEST, *libraries])
    if level >= 4:
        yield LEVELS[-1], True


@pytest.mark.parametrize(
    "library, without_vnni",
    [pytest.param(*x, id=x[0].stem + x[1] * "-without-vnni") for x in runnable()],
)
def test_each_flavour(library, without_vnni):
    more = {"EDGEWISE_LIBRARY": str(library), "EDGEWISE_WITHOUT_VNNI": "1" * without_vnni}
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--strict-markers"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/engines/sample.py"],
        cwd=ROOT,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_the_best_flavour_is_taken(monkeypatch):
    """That of the highest level which the processor has."""
    monkeypatch.delenv("EDGEWISE_LIBRARY", raising=False)
    want = list(runnable())[-1][0]
    assert Path(native.library_path()) == want

"""A sample of what each engine computes, on the native library that EDGEWISE_LIBRARY names:
test_flavours.py runs it in a process for each. EDGEWISE_WITHOUT_VNNI: as on a processor without it.
"""

import ctypes
import os
import subprocess
from pathlib import Path

import edgewise
import pytest
from edgewise.engine.native import NativeEngine, library_path
from ops.harness import all_cases
from references import PRODUCTS


def hide_features(library: ctypes.CDLL) -> None:
    """Makes __builtin_cpu_supports of a library tell that the processor has no extensions."""
    table = subprocess.run(
        ["nm", "-S", library_path()], capture_output=True, text=True, check=True
    ).stdout
    places = {row[-1]: row for row in map(str.split, table.splitlines()) if len(row) == 4}
    (at, size), (known, _) = (
        (int(x, 16) for x in places[name][:2]) for name in ("__cpu_features2", "ew_cpu_level")
    )
    loaded = ctypes.cast(library.ew_cpu_level, ctypes.c_void_p).value
    assert loaded is not None
    assert any(ctypes.string_at(loaded - known + at, size)), "no features: nothing to hide"
    ctypes.memset(loaded - known + at, 0, size)


@pytest.fixture(scope="module")
def native():
    engine = NativeEngine(threads=2)
    assert engine.flavour.endswith(Path(library_path()).stem.removeprefix("libedgewise"))
    if os.environ.get("EDGEWISE_WITHOUT_VNNI"):
        hide_features(engine.library)
    return engine


def sample():
    """The first case of each operator, and all products of bytes."""
    chosen, seen = [], set()
    for name, case in all_cases():
        if case.name in PRODUCTS or case.name == "MatMulNBits" or case.name not in seen:
            chosen.append(pytest.param(case, id=name))
        seen.add(case.name)
    return chosen


@pytest.mark.parametrize("case", sample())
def test_op(case, native):
    model, feeds = case.model()
    session = edgewise.InferenceSession(model.SerializeToString(), engine=native)
    got = session.run(None, feeds)
    session.free()
    differences = {name: case.differences(got, y) for name, y in case.references.items()}
    assert differences and not any(differences.values()), differences

"""The GPUs that tests run on: that of the machine, or one in software (tests/gpu/setup.sh)."""

import ctypes
import functools
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from edgewise.errors import EngineError
from edgewise.host.webgpu import WebGPUEngine
from edgewise.logic.gpu.pace import Pace

FOLDER = Path(__file__).parents[2] / ".build/gpu"
LIBRARIES = {"wgpudawn": "Tint", "wgpu": "naga"}  # name: its compiler of WGSL


def prepare():
    """Lets this process find what is in .build/gpu."""
    if str(FOLDER / "python") not in sys.path:
        sys.path.append(str(FOLDER / "python"))
    driver = str(FOLDER / "lavapipe.json")
    # A process that one of ours has started inherits this name, but not the libraries.
    if os.environ.get("VK_DRIVER_FILES", driver) != driver or not Path(driver).exists():
        return
    os.environ["VK_DRIVER_FILES"] = os.environ["VK_ICD_FILENAMES"] = driver
    libraries = FOLDER / "vulkan/usr/lib" / f"{os.uname().machine}-linux-gnu"
    # A library that is loaded is found by its name, so no search path has to be set.
    rest = [*sorted(libraries.glob("*.so.*")), libraries / "libvulkan_lvp.so"]
    if _loads(rest[-1]):  # the machine has all that it needs
        rest = [libraries / "libvulkan.so.1"]
    while loaded := [p for p in rest if _loads(p)]:
        rest = [p for p in rest if p not in loaded]


def _loads(path):
    try:
        ctypes.CDLL(str(path))
        return True
    except OSError:
        return False


@functools.cache
def opened(library="wgpudawn", serial=False):
    """A WebGPUEngine of this process, or why there is none. serial: see there; by default the
    shaders are those of GPUs that are none in software.
    """
    prepare()
    try:
        return WebGPUEngine(threads=1, library=library, serial=serial)
    except EngineError as e:
        return str(e)


def gpu(library="wgpudawn", serial=False):
    """A WebGPUEngine of this process; skips the test where there is none."""
    found = opened(library, serial)
    if isinstance(found, str):
        pytest.skip(found)
    return found


class Steady(Pace):
    """Gives so many operations at once, whatever time they take; more where a dispatch would have
    more pieces than `most`. pieces: of launches so far.
    """

    def __init__(self, bound, most):
        super().__init__(False)
        self.bound, self.most, self.pieces = bound, most, 0

    def piece(self, count, start, work):
        self.pieces += 1
        return min(max(super().piece(count, start, work), -(-count // self.most)), count - start)

    def done(self, now):
        self.given = 0


@contextmanager
def at_once(engine, bound, most=1 << 30):
    """Gives a GPU so many operations at once: launches with more run in pieces, at most `most`."""
    before, engine.pace = engine.pace, Steady(bound, most)
    try:
        yield engine.pace
    finally:
        engine.pace = before

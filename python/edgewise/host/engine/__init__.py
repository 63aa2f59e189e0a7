"""Engines: the C core as a native library (CPython) or a WebAssembly instance (Pyodide).

An `Engine` calls C functions and reaches the C side's memory by address. Sessions use its `Device`
(`engine.device`): buffers, and plans that run on them. Sizes are in bytes; address 0 means none.

Errors: OutOfMemory where memory runs out, PlanError where the C side rejects a plan, EngineError or
InputError (an index is out of range) where a run fails.

Several threads may share an engine: its `lock` is held while a plan is loaded or run, so that plans
run one after the other.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from ...compiler import sums
from ...errors import InputError
from .base import Engine, LoadedPlan
from .device import Buffer, Device
from .locks import Owner, locked
from .stopping import LONG, Ends

if TYPE_CHECKING:
    from .browser import BrowserEngine
    from .native import NativeEngine

_default: NativeEngine | BrowserEngine | None = None
_opening = threading.Lock()


def default_engine() -> NativeEngine | BrowserEngine:
    """The engine of this process, opened on first use.

    It has a thread per core natively, and one in a page. Threads may share it, and child processes
    may use it after a fork.
    """
    global _default
    if _default is None or _default.lost:
        with _opening:
            if _default is None or _default.lost:
                _default = open_engine()
    return _default


sums.compute_with(lambda: default_engine().device)


def _in_child() -> None:
    global _opening
    _opening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def open_engine(threads: int | None = None) -> NativeEngine | BrowserEngine:
    """Opens an engine.

    Args:
        threads: maximum number of threads that compute at once, 1 to 64; by default one per core.
            Always 1 in Pyodide.

    Raises:
        InputError: `threads` is not a positive integer.
    """
    if threads is not None and (type(threads) is not int or threads < 1):
        raise InputError(
            f"{threads!r} is not a positive integer",
            "threads",
            "Say how many threads may work at once, or leave it out.",
        )
    if sys.platform == "emscripten":
        from .browser import BrowserEngine

        return BrowserEngine()
    from .native import NativeEngine

    return NativeEngine(threads and min(threads, 64))


__all__ = [
    "LONG",
    "Buffer",
    "Device",
    "Ends",
    "Engine",
    "LoadedPlan",
    "Owner",
    "default_engine",
    "locked",
    "open_engine",
]

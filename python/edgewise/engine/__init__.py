"""Engines: the C core as a native library (CPython) or as a WebAssembly instance (Pyodide), behind
one interface.

    alloc(nbytes) -> address        zeroed, 64-byte aligned
    free(address)
    write(address, data)            bytes-like
    read(address, nbytes) -> bytes
    copy(source, target, nbytes)
    load_tensor(tensor) -> address  weights: from their Source into engine memory, not through
    Python objects load(plan) -> LoadedPlan        bind(slot, address, nbytes), register(i, value),
    init(), run(), profile(), free() call(name, *numbers) -> int     any exported C function lock
    held by whoever loads or runs a plan; sessions of several threads may share an engine: their
    plans run one after the other

Addresses are ints, 0 is none; sizes are bytes. What does not fit raises OutOfMemory, a plan that
the C side refuses PlanError, what fails in a run EngineError or (an index out of range) InputError.
"""

from __future__ import annotations

import os
import sys
import threading

from ..errors import InputError
from .base import Engine, LoadedPlan, Place
from .locks import Owner, locked
from .stopping import LONG, Ends

_default, _opening = None, threading.Lock()


def default_engine():
    """The engine of this process: made on first use; threads as many as cores natively, 1 in a
    page. It may be used from several threads, and in child processes after a fork.
    """
    global _default
    if _default is None or _default.lost:
        with _opening:
            if _default is None or _default.lost:
                _default = open_engine()
    return _default


def _in_child():
    global _opening
    _opening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def open_engine(threads=None):
    """A new engine. threads: how many may work at once (default: the cores of the machine; at most
    64; 1 in Pyodide). Raises InputError where it is no whole number from 1 on.
    """
    if threads is not None and (type(threads) is not int or threads < 1):
        raise InputError(
            f"{threads!r} is no whole number from 1 on",
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
    "Ends",
    "Engine",
    "LoadedPlan",
    "Owner",
    "Place",
    "default_engine",
    "locked",
    "open_engine",
]

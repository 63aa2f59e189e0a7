"""Engines: the C core as a native library (CPython) or as a WebAssembly instance (Pyodide), behind one interface.

    alloc(nbytes) -> address        zeroed, 64-byte aligned
    free(address)
    write(address, data)            bytes-like
    read(address, nbytes) -> bytes
    copy(source, target, nbytes)
    load_tensor(tensor) -> address  weights: from their Source into engine memory, not through Python objects
    load(plan) -> LoadedPlan        bind(slot, address, nbytes), register(i, value), init(), run(), profile(), free()
    call(name, *numbers) -> int     any exported C function

Addresses are ints, 0 is none; sizes are bytes. What does not fit raises OutOfMemory, a plan that the C side refuses PlanError, what fails in a run EngineError or
(an index out of range) InputError.
"""
from __future__ import annotations

import sys

from ..errors import InputError
from .base import Engine, LoadedPlan, Place

_default = None


def default_engine():
    """The engine of this process: made on first use; threads as many as cores natively, 1 in a page."""
    global _default
    if _default is None:
        _default = open_engine()
    return _default


def open_engine(threads=None):
    """A new engine. threads: how many may work at once (default: the cores of the machine; at most 64; 1 in Pyodide). Raises InputError where it is no whole number from 1 on."""
    if threads is not None and (type(threads) is not int or threads < 1):
        raise InputError(f"{threads!r} is no whole number from 1 on", "threads", "Say how many threads may work at once, or leave it out.")
    if sys.platform == "emscripten":
        from .browser import BrowserEngine
        return BrowserEngine()
    from .native import NativeEngine
    return NativeEngine(threads and min(threads, 64))


__all__ = ["Engine", "LoadedPlan", "Place", "default_engine", "open_engine"]

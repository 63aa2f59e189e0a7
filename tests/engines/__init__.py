"""The engines that tests run on."""

import os

from edgewise.engine.native import NativeEngine
from tiers import ALL

from .node_engine import NodeEngine

ENGINES = {
    "native": lambda: NativeEngine(threads=2),
    "wasm-simd128": lambda: NodeEngine("simd128"),
    "wasm-relaxed-threads": lambda: NodeEngine("relaxed-threads"),
}
if only := os.environ.get("EDGEWISE_ENGINES"):  # names, with commas
    ENGINES = {name: ENGINES[name] for name in only.split(",")}
_opened = {}


def open_engine(name):
    """One engine per name and test run; opened again after a trap has ended it."""
    engine = _opened.get(name)
    if engine is None or isinstance(engine, NodeEngine) and engine.process.poll() is not None:
        engine = _opened[name] = ENGINES[name]()
    return engine


def quick_engines(number):
    """Names of the engines on which a case of this number runs: the native one and, in turn, one of
    those in Node; all of them in `make test-all`.
    """
    native, *others = ENGINES
    return list(ENGINES) if ALL or not others else [native, others[number % len(others)]]


def close_engines():
    for engine in _opened.values():
        if isinstance(engine, NodeEngine):
            engine.close()
    _opened.clear()

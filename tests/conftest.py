"""What all tests share: the engines."""
import pytest
from engines.node_engine import NodeEngine

from edgewise.engine.native import NativeEngine

ENGINES = {"native": lambda: NativeEngine(threads=2), "wasm-simd128": lambda: NodeEngine("simd128"), "wasm-relaxed-threads": lambda: NodeEngine("relaxed-threads")}
_opened = {}


def open_engine(name):
    """One engine per name and test run; opened again after a trap has ended it."""
    engine = _opened.get(name)
    if engine is None or getattr(engine, "process", True) is None or isinstance(engine, NodeEngine) and engine.process.poll() is not None:
        engine = _opened[name] = ENGINES[name]()
    return engine


@pytest.fixture(params=list(ENGINES))
def engine(request):
    """Each engine in turn: native, wasm with simd128, wasm with relaxed SIMD and two threads (both wasm ones in Node)."""
    return open_engine(request.param)


@pytest.fixture(scope="session", autouse=True)
def _close_engines():
    yield
    for engine in _opened.values():
        if isinstance(engine, NodeEngine):
            engine.close()
    _opened.clear()

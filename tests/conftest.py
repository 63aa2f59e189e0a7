"""What all tests share: the engines."""
import pytest
from engines import ENGINES, close_engines, open_engine


@pytest.fixture(params=list(ENGINES))
def engine(request):
    """Each engine in turn: native, wasm with simd128, wasm with relaxed SIMD and two threads (both wasm ones in Node)."""
    return open_engine(request.param)


@pytest.fixture(scope="session", autouse=True)
def _close_engines():
    yield
    close_engines()

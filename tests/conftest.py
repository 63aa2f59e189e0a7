"""What all tests share: the engines, and the one Playwright that a process can have."""

import pytest
from engines import ENGINES, close_engines, open_engine


@pytest.fixture(params=list(ENGINES))
def engine(request):
    """Each engine: native, wasm with simd128, wasm with relaxed SIMD and two threads (both wasm
    ones in Node).
    """
    return open_engine(request.param)


@pytest.fixture(scope="session", autouse=True)
def _close_engines():
    yield
    close_engines()


@pytest.fixture(scope="session")
def playwright():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as one:
        yield one

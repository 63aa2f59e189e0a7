"""What all tests share: the engines, the one Playwright that a process can have, and how tests are
distributed to processes.
"""

import functools
import gc
import os
import random
import sys
from pathlib import Path

# Test processes share the processors: threads of a reference would only wait for each other, and
# OpenMP waits in a loop. Libraries read this when they are imported, child processes inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import numpy as np
import onnxruntime
import pytest
from engines import ENGINES, close_engines, open_engine
from processes import pytest_sessionstart, pytest_xdist_make_scheduler  # noqa: F401
from references import use_exact_products
from tiers import drop_slow, take_turns

# The same examples in each run, however long they take.
hypothesis.settings.register_profile("same", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("same")


def _use_one_thread(create):
    """onnxruntime.InferenceSession.__init__ with one thread unless a test asks for more, for the
    reason above.
    """

    @functools.wraps(create)
    def wrapped(self, model, sess_options=None, *args, **kwargs):
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        options.intra_op_num_threads = options.intra_op_num_threads or 1
        create(self, model, options, *args, **kwargs)

    return wrapped


onnxruntime.InferenceSession.__init__ = use_exact_products(
    _use_one_thread(onnxruntime.InferenceSession.__init__)
)

# Files that take long, and folders of such files: the longest begin first, so that no process is
# left with one at the end.
LONG = (
    "browser/test_waiting.py",
    "browser/webgpu",
    "zoo/test_cache.py",
    "onnx_suite",
    "browser/inference",
    "browser/test_units.py",
    "generation/test_generate.py",
    "browsers",
    "examples",
    "browser",
    "bundlers",
    "engines",
    "training",
    "core",
    "ops",
    "fuzz",
    "notebook",
    "hostile",
    "session",
    "zoo",
)


@pytest.fixture(params=list(ENGINES))
def engine(request):
    """Each engine: native, wasm with simd128, wasm with relaxed SIMD and two threads (both wasm
    ones in Node); in `make test` the native one and, in turn, one of the others.
    """
    return open_engine(request.param)


@pytest.fixture(autouse=True)
def _same_numbers():
    """Each test draws the same random numbers in each run, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _close_engines():
    yield
    close_engines()


# Milliseconds in which what a test waits for must happen: on a loaded machine it takes long.
PATIENCE = 300_000


def _patient(make, **options):
    """A method of Playwright that makes a context or a page, which then waits that long by default
    instead of 30 seconds.
    """

    @functools.wraps(make)
    def wrapped(self, *args, **kwargs):
        made = make(self, *args, **{**options, **kwargs})
        if hasattr(made, "set_default_timeout"):
            made.set_default_timeout(PATIENCE)
        return made

    return wrapped


@pytest.fixture(scope="session")
def playwright():
    from playwright.sync_api import Browser, BrowserType, expect, sync_playwright

    Browser.new_context = _patient(Browser.new_context)
    Browser.new_page = _patient(Browser.new_page)
    for name in ("launch", "launch_persistent_context"):
        setattr(BrowserType, name, _patient(getattr(BrowserType, name), timeout=PATIENCE))
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as one:
        yield one


def pytest_collection_modifyitems(config, items):
    """Leaves slow tests to `make test-all`. Sorts LONG files to the front; tests of one file keep
    their order.
    """
    take_turns(items, "engine", [name for name in ENGINES if name != "native"])
    drop_slow(config, items)
    order = {Path(__file__).parent / name: i for i, name in enumerate(LONG)}

    @functools.cache
    def rank(path):
        return min(order.get(p, len(LONG)) for p in (path, *path.parents))

    items.sort(key=lambda item: rank(item.path))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Modules and tests are not garbage: the collector would look for some among them in vain."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish():
    """Modules and tests live as long as the process: the garbage collector need not visit them."""
    gc.collect()
    gc.freeze()

"""Chromium with a GPU in software (SwiftShader), and packages for it."""

import io

import pytest
from edgewise.compiler.targets import target_named
from edgewise.host.session.open import open_package

from ..chromium import CHROMIUM, FLAGS, GPU_FLAGS
from ..conftest import MODEL, Visit

# In a worker: takes its GPU away at the call of so many from now on that make commands.
LOSE = """(left) => {
    const { prototype } = GPUDevice;
    const encode = prototype.createCommandEncoder;
    prototype.createCommandEncoder = function (...all) {
      if (--left === 0) this.destroy(); // as when the driver is restarted
      return encode.apply(this, all);
    };
    globalThis.left = () => left;
}"""


def lose(visit, left=1):
    """As LOSE, in the workers of a page that have one thread: others answer no `evaluate`."""
    workers = list(visit.page.workers)
    for worker in workers:
        worker.evaluate(LOSE, left)
    return lambda: min(worker.evaluate("() => globalThis.left()") for worker in workers)


@pytest.fixture(scope="session")
def gpu_files(files):
    """The folder of the servers, with the demo's model for a GPU."""
    out = io.BytesIO()
    open_package(MODEL, target=target_named("webgpu")).write(out)
    (files / "gpu.edge").write_bytes(out.getvalue())
    return files


@pytest.fixture(scope="session")
def gpu_browser(built, playwright):
    chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *GPU_FLAGS])
    yield chromium
    chromium.close()


@pytest.fixture
def gpu_visit(gpu_browser, server, gpu_files):
    """A page with a GPU."""
    context = gpu_browser.new_context()
    one = Visit(context, server + "/files/blank.html").start()
    yield one
    one.close()
    context.close()

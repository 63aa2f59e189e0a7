"""Many calls of a session and of a decoder on a GPU leave nothing behind: GPUBuffers, bind groups,
programs, and memory of the page and its workers.
"""

import pytest

from tests.tiers import ALL

from ..chromium import CHROMIUM, FLAGS, GPU_FLAGS
from ..conftest import Visit
from .test_sessions import sessions  # noqa: F401

CALLS = 10_000 if ALL else 1000
# In a worker: counts what is made from now on, less what is destroyed; dispatches return at once.
COUNT = """() => {
    if (!globalThis.GPUDevice) return;
    globalThis.made = {};
    const count = (name) => {
      const make = GPUDevice.prototype[name];
      made[name] = 0;
      GPUDevice.prototype[name] = function (given) {
        made[name]++;
        const it = make.call(this, given);
        const destroy = it.destroy;
        if (destroy)
          it.destroy = () => {
            made[name]--;
            destroy.call(it);
          };
        return it;
      };
    };
    for (const name of ["createBuffer", "createBindGroup", "createBindGroupLayout",
      "createPipelineLayout", "createShaderModule", "createComputePipeline",
      "createComputePipelineAsync", "createQuerySet"]) count(name);
    const { prototype } = GPUComputePassEncoder;
    const dispatch = prototype.dispatchWorkgroups;
    globalThis.dispatches = 0;
    prototype.dispatchWorkgroups = function () {
      globalThis.dispatches++;
      dispatch.call(this, 0);
    };
}"""
MEMORY = "return (await performance.measureUserAgentSpecificMemory()).bytes;"
SESSION = """
    window.s ??= await ew.InferenceSession.create("/files/plain-gpu.edge",
      { device: "webgpu", threads: 1 });
    const x = new ew.Tensor("float32", new Float32Array(432).fill(0.5), [1, 3, 12, 12]);
    const ids = new ew.Tensor("int64", new BigInt64Array(2), [2]);
    for (let i = 0; i < arg; i++) await s.run({ x, ids });
    return s.device.name;
"""
TOKENS = 50
DECODER = """
    window.p ??= await ew.pipeline("text-generation", "/files/gpu.edge",
      { device: "webgpu", threads: 1 });
    const options = { max_new_tokens: 50, min_new_tokens: 50, do_sample: false };
    for (let i = 0; i < arg; i++) await p(`Once ${"upon a time ".repeat(i % 3)}`, options);
    return p.info.device.name;
"""
LEFT = 400_000  # bytes that a page may hold for a while, as what was not yet compiled


@pytest.fixture(scope="module")
def eager(playwright, built, server, gpu_files):
    """A page whose memory is measured at once, with a GPU."""
    flags = [*FLAGS, *GPU_FLAGS, "--enable-blink-features=ForceEagerMeasureMemory"]
    chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
    context = chromium.new_context()
    one = Visit(context, server + "/files/blank.html").start()
    yield one
    one.close()
    chromium.close()


@pytest.mark.parametrize("what", ["session", "decoder"])
def test_nothing_grows(eager, sessions, what):  # noqa: F811
    script, calls = {"session": (SESSION, CALLS), "decoder": (DECODER, CALLS // TOKENS)}[what]
    before = set(eager.page.workers)
    assert eager.run(script, calls // 10) == "webgpu"
    workers = [worker for worker in eager.page.workers if worker not in before]
    for worker in workers:
        worker.evaluate(COUNT)
    assert eager.run(script, calls // 2) == "webgpu"
    memory = eager.run(MEMORY)
    counts = [worker.evaluate("() => ({ ...globalThis.made })") for worker in workers]
    assert eager.run(script, calls) == "webgpu"
    grown = eager.run(MEMORY) - memory
    after = [worker.evaluate("() => ({ ...globalThis.made })") for worker in workers]
    assert after == counts, (counts, after)
    assert max(worker.evaluate("() => globalThis.dispatches ?? 0") for worker in workers) > calls
    assert grown < LEFT, grown

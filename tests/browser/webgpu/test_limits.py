"""An adapter that lies about its limits ends in one error in words, or in WebAssembly; runs make no
buffers.
"""

import pytest

from ..loading import error
from .test_barriers import HARDWARE
from .test_sessions import sessions  # noqa: F401

# before the worker asks for the adapter
LIES = """
const { limits } = Object.getOwnPropertyDescriptors(GPUAdapter.prototype);
const lie = (found) => new Proxy(found, {
  get: (of, name) => (LIMITS.includes(name) ? 64 * of[name] : of[name]),
});
Object.defineProperty(GPUAdapter.prototype, "limits", {
  get() { return lie(limits.get.call(this)); },
});
"""
# nothing is refused before it is used
SILENT = """
const ask = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = function ({ requiredLimits, ...rest }) {
  return ask.call(this, rest);
};
const { limits: own } = Object.getOwnPropertyDescriptors(GPUDevice.prototype);
Object.defineProperty(GPUDevice.prototype, "limits", {
  get() { return lie(own.get.call(this)); },
});
"""
SESSION = """
    const s = await ew.InferenceSession.create("/files/plain-gpu.edge", { ...arg, threads: 1 });
    const x = new ew.Tensor("float32", new Float32Array(432).fill(0.5), [1, 3, 12, 12]);
    const ids = new ew.Tensor("int64", new BigInt64Array(2), [2]);
    let y;
    for (let i = 0; i < (arg.runs ?? 1); i++) ({ y } = await s.run({ x, ids }));
    return { y: Array.from(y.data), device: s.device };
"""
# In a worker: how many buffers are made from now on.
COUNT = """() => {
    const { prototype } = GPUDevice;
    const make = prototype.createBuffer;
    globalThis.made = 0;
    prototype.createBuffer = function (given) {
      globalThis.made++;
      return make.call(this, given);
    };
}"""
RUNS = 300


def before_the_worker(visit, text, script="worker.js"):
    def change(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=text + answer.text())

    visit.page.route(f"**/{script}", change)


@pytest.mark.parametrize(
    "limits", [["maxBufferSize"], ["maxStorageBuffersPerShaderStage"]], ids=lambda x: x[0]
)
def test_limits_that_the_device_does_not_have(gpu_visit, sessions, limits):  # noqa: F811
    before_the_worker(gpu_visit, f"const LIMITS = {limits};{LIES}{HARDWARE}")
    e = error(gpu_visit.run(SESSION, {"device": "webgpu"}), "EngineError")
    assert "the GPU gives no device" in e["what"] and "'wasm'" in e["remedy"]
    got = gpu_visit.run(SESSION, {"executionProviders": ["webgpu", "wasm"]})
    assert got["device"]["name"] == "wasm" and "gives no device" in got["device"]["why"]


def test_limits_that_are_found_out_later(gpu_visit, sessions):  # noqa: F811
    expected = gpu_visit.run(SESSION, {"device": "wasm"})["y"]
    limits = ["maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage"]
    before_the_worker(gpu_visit, f"const LIMITS = {limits};{LIES}{SILENT}")
    got = gpu_visit.run(SESSION, {"device": "webgpu"})
    if "error" in got:
        e = error(got, "EngineError")
        assert "GPU" in e["what"] and e["remedy"]
    else:  # what it claims was not needed
        assert got["y"] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_runs_make_no_buffers(gpu_visit, sessions):  # noqa: F811
    keep = SESSION.replace("const s =", "const s = globalThis.kept ??=")
    gpu_visit.run(keep, {"device": "webgpu"})
    for worker in list(gpu_visit.page.workers):
        worker.evaluate(COUNT)
    gpu_visit.run(keep, {"device": "webgpu", "runs": RUNS})
    made = [worker.evaluate("() => globalThis.made") for worker in gpu_visit.page.workers]
    assert max(made) <= 2, made  # for reads, of another size than before

"""A GPU that computes wrongly is refused before it is used; the result of the test is kept."""

import pytest

from .test_limits import SESSION
from .test_sessions import sessions  # noqa: F401

BROKEN = """
const make = GPUDevice.prototype.createShaderModule;
GPUDevice.prototype.createShaderModule = function (given) {
  return make.call(this, { ...given, code: given.code.replaceAll("sqrt(", "abs(") });
};
"""
OPEN = """
    const p = await ew.pipeline("text-generation", "/files/gpu.edge", { device: arg, threads: 1 });
    await p.dispose();
    return p.info.device;
"""
KEPT = """
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle("edgewise").catch(() => undefined);
    const gpu = await folder?.getDirectoryHandle("gpu").catch(() => undefined);
    const names = [];
    for await (const name of gpu?.keys() ?? []) names.push(name);
    return names;
"""


def breaks(route):
    route.fulfill(
        response=(found := route.fetch()), body=BROKEN + found.text(), headers=found.headers
    )


def test_a_gpu_that_computes_wrongly_is_refused(gpu_visit):
    gpu_visit.page.route("**/worker-webgpu.js", breaks)
    got = gpu_visit.run(OPEN, "webgpu")
    assert "computes wrongly: RMSNormalization by " in got["error"]["what"], got
    assert gpu_visit.run(OPEN, "wasm")["name"] == "wasm"
    assert gpu_visit.run(KEPT) == []


def test_the_result_is_kept(gpu_visit):
    assert gpu_visit.run(OPEN, "webgpu")["name"] == "webgpu"
    assert len(gpu_visit.run(KEPT)) == 1
    assert gpu_visit.run(OPEN, "webgpu")["name"] == "webgpu"


def test_steps_of_a_kernel_that_is_wrong_run_in_webassembly(gpu_visit, sessions):  # noqa: F811
    expected = gpu_visit.run(SESSION, {"device": "wasm"})["y"]
    lowest = BROKEN.replace('.replaceAll("sqrt(", "abs(")', '.replace(/v ?> ?s ?[|][|]/, "v<s||")')

    def breaks_pools(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=lowest + answer.text())

    gpu_visit.page.route("**/worker-webgpu.js", breaks_pools)
    for _ in range(2):  # also by the result that was kept
        got = gpu_visit.run(SESSION, {"device": "webgpu"})
        assert got["device"]["name"] == "webgpu"
        assert "computes it wrongly (MaxPool by " in got["device"]["gpu"]["onWasm"]["pool"]
        assert "conv" not in got["device"]["gpu"]["onWasm"]
        assert got["y"] == pytest.approx(expected, rel=1e-4, abs=1e-5)

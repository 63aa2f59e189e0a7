"""A GPU that computes wrongly is refused before it is used; the result of the test is kept."""

import pytest
from edgewise.compiler.compile import compile_inference
from edgewise.compiler.targets import target_named
from edgewise.onnx import BytesSource

from tests.gpu.test_self_test import joined

from .test_barriers import HARDWARE
from .test_limits import SESSION, before_the_worker
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


def test_a_gpu_that_computes_wrongly_is_refused(gpu_visit):
    before_the_worker(gpu_visit, BROKEN, "worker-webgpu.js")
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

    before_the_worker(gpu_visit, lowest, "worker-webgpu.js")
    for _ in range(2):  # also by the result that was kept
        got = gpu_visit.run(SESSION, {"device": "webgpu"})
        assert got["device"]["name"] == "webgpu"
        assert "computes it wrongly (MaxPool by " in got["device"]["gpu"]["onWasm"]["pool"]
        assert "conv" not in got["device"]["gpu"]["onWasm"]
        assert got["y"] == pytest.approx(expected, rel=1e-4, abs=1e-5)


HEADS = """
    const s = await ew.InferenceSession.create("/files/joined.edge", { ...arg, threads: 1 });
    const x = new ew.Tensor("float32", Float32Array.from({ length: 64 }, (_, i) => i / 7), [1, 64]);
    const { y } = await s.run({ x });
    const { device } = s;
    await s.release();
    return { y: Array.from(y.data), device };
"""


def test_steps_that_share_a_dispatch_wrongly_run_alone(gpu_visit, gpu_files):
    """As those of a GPU in hardware. All kernels are computed rightly."""
    source = {"model.onnx": BytesSource(joined(), "model.onnx")}
    compile_inference(source, [{}], target=target_named("webgpu")).save(
        str(gpu_files / "joined.edge")
    )
    said = []
    gpu_visit.page.on("console", lambda message: said.append(message.text))
    want = gpu_visit.run(HEADS, {"device": "wasm"})["y"]
    change = '.replaceAll("return before_value(i);", "return before_value(i) * 1.01;")'
    lie = BROKEN.replace('.replaceAll("sqrt(", "abs(")', change)
    before_the_worker(gpu_visit, HARDWARE)

    before_the_worker(gpu_visit, lie, "worker-webgpu.js")
    for _ in range(2):  # also by the result that was kept
        got = gpu_visit.run(HEADS, {"device": "webgpu"})
        assert got["device"]["name"] == "webgpu" and got["device"]["gpu"]["onWasm"] == {}
        assert got["y"] == pytest.approx(want, rel=1e-3)
    assert len([text for text in said if "GPU: norm before gemm" in text]) == 2, said

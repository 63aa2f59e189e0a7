"""`auto` measures a model's plans on both devices, remembers the choice, and moves to a GPU."""

import re

import numpy as np
import pytest
from edgewise.compiler.compile import compile_inference
from edgewise.compiler.targets import target_named
from edgewise.onnx import BytesSource
from onnx import TensorProto, helper, numpy_helper

from ..training.conftest import artifacts  # noqa: F401
from .test_barriers import HARDWARE

WEIGHT = np.random.default_rng(8).standard_normal((384, 384)).astype(np.float32)
X = np.random.default_rng(9).standard_normal((128, 384)).astype(np.float32)

# What was kept, after `arg` changed both times of all models.
KEPT = """
    const root = await navigator.storage.getDirectory();
    const folder = await (await root.getDirectoryHandle("edgewise")).getDirectoryHandle("gpu");
    const file = await folder.getFileHandle("auto.json");
    const kept = JSON.parse(await (await file.getFile()).text());
    for (const found of Object.values(kept.found)) Object.assign(found, arg);
    const out = await file.createWritable();
    await out.write(JSON.stringify(kept));
    await out.close();
    return Object.values(kept.found);
"""
FORGET = """
    const root = await navigator.storage.getDirectory();
    await (await root.getDirectoryHandle("edgewise")).removeEntry("plans", { recursive: true });
"""
GPU_WINS = {"gpu": 1, "wasm": 1000, "until": 1e15}
# a GPU in software, on a machine under load, may not answer in time
SLOW = re.compile("take .* on the GPU, .* in WebAssembly|no measurement within")
RUN = """
    const device = await (async (s) => {
      const x = new ew.Tensor("float32", Float32Array.from(arg.x), [128, 384]);
      const all = [];
      for (let i = 0; i < arg.runs; i++) {
        const { y } = await s.run({ x });
        all.push([Array.from(y.data.subarray(0, 384)), s.device]);
      }
      await s.release();
      return all;
    })(await ew.InferenceSession.create(arg.model, { ...arg.options, threads: 1 }));
    return device;
"""


@pytest.fixture(scope="module")
def products(gpu_files):
    """/files/products.onnx: products that take more than a millisecond; also as packages."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"])]
    nodes += [helper.make_node("Tanh", ["a"], ["t"]), helper.make_node("MatMul", ["t", "w"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, list(X.shape))],
        [value("y", TensorProto.FLOAT, list(X.shape))],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    (gpu_files / "products.onnx").write_bytes(data)
    for name, target in (("products-gpu.edge", "webgpu"), ("products-cpu.edge", "cpu")):
        source = {"products.onnx": BytesSource(data, "products.onnx")}
        made = compile_inference(source, [{}], target=target_named(target))
        with (gpu_files / name).open("wb") as out:
            made.write(out)
    return np.tanh(X @ WEIGHT) @ WEIGHT


@pytest.fixture
def hardware(gpu_visit):
    """A page that takes its GPU for one that is none in software."""

    def before_the_worker(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=HARDWARE + answer.text())

    gpu_visit.page.route("**/worker.js", before_the_worker)
    return gpu_visit


def run(visit, model, runs=1, **options):
    arg = {"model": f"/files/{model}", "x": X.ravel().tolist(), "runs": runs, "options": options}
    return visit.run(RUN, arg)


@pytest.mark.parametrize("options", [{"device": "auto"}, {"executionProviders": ["auto"]}])
def test_a_package_runs_on_the_faster_device(hardware, products, options):
    [[y, device]] = run(hardware, "products-gpu.edge", **options)
    assert device["name"] == "wasm" and SLOW.search(device["why"]), device
    np.testing.assert_allclose(y, products[0], rtol=1e-3, atol=1e-3)
    [kept] = hardware.run(KEPT, GPU_WINS)
    assert kept["until"] > 0
    [[y, device]] = run(hardware, "products-gpu.edge", **options)
    assert device["name"] == "webgpu"
    assert device["why"] == "runs of its plans take 1 ms on the GPU, 1000 ms in WebAssembly"
    np.testing.assert_allclose(y, products[0], rtol=1e-3, atol=1e-3)
    [[_, device]] = run(hardware, "products-cpu.edge", **options)
    assert device["name"] == "wasm" and "no plans for a GPU" in device["why"]


def test_a_graph_that_is_compiled_moves_to_the_gpu(hardware, products):
    stored = {"device": "auto", "cache_files": True}
    [_, [y, device], _] = run(hardware, "products.onnx", 3, **stored)
    assert device["name"] == "wasm" and SLOW.search(device["why"]), device
    np.testing.assert_allclose(y, products[0], rtol=1e-3, atol=1e-3)
    hardware.run(KEPT, GPU_WINS)
    [[_, device]] = run(hardware, "products.onnx", **stored)  # its plans are, too
    assert device["name"] == "webgpu"
    # where they have to be compiled, the first run decides
    hardware.run(FORGET)
    found = run(hardware, "products.onnx", 3, **stored)
    assert found[-1][1]["name"] == "webgpu", found[-1][1]
    for y, _ in found:
        np.testing.assert_allclose(y, products[0], rtol=1e-3, atol=1e-3)
    # not where the model would be downloaded again
    hardware.run(FORGET)
    found = run(hardware, "products.onnx", 3, device="auto", cache_files=False)
    assert found[-1][1]["name"] == "wasm" and "downloaded again" in found[-1][1]["why"]


def test_another_adapter_is_measured_anew(hardware, products):
    run(hardware, "products-gpu.edge", device="auto")
    hardware.run(KEPT, GPU_WINS)
    hardware.run(KEPT.replace("Object.assign(found, arg)", "kept.of = 'another adapter'"), GPU_WINS)
    [[_, device]] = run(hardware, "products-gpu.edge", device="auto")
    assert device["name"] == "wasm" and SLOW.search(device["why"]), device
    assert "1000 ms" not in device["why"]


def test_a_gpu_in_software_is_not_measured(gpu_visit, products):
    for model in ("products-gpu.edge", "products.onnx"):
        [[_, device]] = run(gpu_visit, model, device="auto")
        assert device["name"] == "wasm" and "not found a GPU" in device["why"], device

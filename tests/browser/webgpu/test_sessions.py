"""InferenceSession on a page's GPU."""

import numpy as np
import onnxruntime
import pytest
from edgewise.compiler.compile import compile_inference
from edgewise.compiler.targets import target_named
from edgewise.onnx import BytesSource
from onnx import TensorProto, helper, numpy_helper

from ..loading import error
from .conftest import lose

SHAPES = {"x": [1, 3, 12, 12], "ids": [2]}


def model(wide):
    """A convolution, a product and a table of rows; `wide`: and a step in float64."""
    r = np.random.default_rng(1)
    weights = {"k": (4, 3, 3, 3), "b": (4,), "m": (144, 5), "table": (6, 8)}
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "k", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"]),
        node("MatMul", ["f", "m"], ["y"]),
        node("Gather", ["table", "ids"], ["rows"]),
    ]
    if wide:
        nodes += [
            node("Cast", ["f"], ["d"], to=TensorProto.DOUBLE),
            node("ReduceSum", ["d"], ["s"], keepdims=0),
            node("Cast", ["s"], ["sum"], to=TensorProto.FLOAT),
        ]
    value, F = helper.make_tensor_value_info, TensorProto.FLOAT
    outputs = [value("y", F, [1, 5]), value("rows", F, [2, 8])]
    outputs += [value("sum", F, [])] if wide else []
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", F, SHAPES["x"]), value("ids", TensorProto.INT64, SHAPES["ids"])],
        outputs,
        [
            numpy_helper.from_array(r.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


BYTES_X = np.random.default_rng(4).integers(0, 256, (3, 42)).astype("u1")
BYTES = """
    const s = await ew.InferenceSession.create("/files/bytes-gpu.edge", { device: arg.device });
    const x = new ew.Tensor("uint8", Uint8Array.from(arg.x), [3, 42]);
    const { y } = await s.run({ x });
    const { device } = s;
    await s.release();
    return { y: Array.from(y.data), device };
"""


def bytes_model():
    """A product with constant weights of bytes."""
    r = np.random.default_rng(3)
    weights = {"w": r.integers(-128, 128, (42, 37)).astype("i1")}
    weights |= {"xz": np.array(7, "u1"), "wz": np.array(-3, "i1")}
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "xz", "wz"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [3, 42])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [3, 37])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


FACTORS = np.random.default_rng(5).standard_normal(8192).astype(np.float32)
LONG = """
    const options = { device: "webgpu", threads: 1, cache_files: false };
    options.preferredOutputLocation = { stays: "cpu-pinned" };
    window.s = await ew.InferenceSession.create("/files/long-gpu.edge", options);
    const x = new ew.Tensor("float32", Float32Array.from(arg), [arg.length]);
    const { y, stays } = await s.run({ x });
    Object.assign(window, { x, y, stays });
    for (let i = 0; i < 2; i++) await s.run({ x: y }); // its engine keeps a copy
"""
AFTER = """
    const found = await s.run({ x: y });
    const data = Array.from(found.y.data);
    const { device } = s;
    return { data, device, stays: Array.from(await found.stays.getData()) };
"""


def long_model():
    """A product of enough numbers that an engine keeps a copy of what is fed more than once."""
    value, F = helper.make_tensor_value_info, TensorProto.FLOAT
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"]), helper.make_node("Neg", ["x"], ["stays"])]
    shape = list(FACTORS.shape)
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", F, shape)],
        [value("y", F, shape), value("stays", F, shape)],
        [numpy_helper.from_array(FACTORS, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


@pytest.fixture(scope="module")
def sessions(gpu_files):
    """/files/wide.onnx, and packages of both models."""
    models = {"plain": model(False), "wide": model(True), "bytes": bytes_model()}
    for name, data in (models | {"long": long_model()}).items():
        (gpu_files / f"{name}.onnx").write_bytes(data)
        source = {"model.onnx": BytesSource(data, "model.onnx")}
        package = compile_inference(source, [{}], target=target_named("webgpu"))
        package.save(str(gpu_files / f"{name}-gpu.edge"))
    return gpu_files


RUN = """
    const x = Float32Array.from(arg.x);
    const feeds = (ids) => ({
      x: new ew.Tensor("float32", Float32Array.from(arg.x), [1, 3, 12, 12]),
      ids: new ew.Tensor("int64", ids, [2]),
    });
    const s = await ew.InferenceSession.create(arg.model, arg.options);
    window.session = s;
    const numbers = async (ids = [4n, 1n]) => {
      const out = await s.run(feeds(ids));
      return Object.fromEntries(Object.entries(out).map(([n, t]) => [n, Array.from(t.data)]));
    };
    const first = await numbers();
    const wrong = await numbers([0n, 6n]).catch((e) => [e.name, e.what]);
    const second = await numbers();
    const { device } = s;
"""
PINNED = """
    const options = { ...arg.options, preferredOutputLocation: "cpu-pinned" };
    const s = await ew.InferenceSession.create(arg.model, options);
    const x = new ew.Tensor("float32", Float32Array.from(arg.x), [1, 3, 12, 12]);
    const run = (ids) => s.run({ x, ids: new ew.Tensor("int64", ids, [2]) });
    const wrong = await run([7n, 0n]).catch((e) => e.name);
    const { rows } = await run([4n, 1n]);
    const where = rows.location;
    const data = Array.from(await rows.getData());
    await s.release();
    return { wrong, where, rows: data };
"""
MAPS = """() => {
    const map = globalThis.GPUBuffer?.prototype.mapAsync;
    if (!map) return;
    globalThis.maps = 0;
    GPUBuffer.prototype.mapAsync = function (...all) {
      globalThis.maps++;
      return map.apply(this, all);
    };
}"""


def expected(x, wide):
    session = onnxruntime.InferenceSession(model(wide))
    ids = np.array([4, 1], np.int64)
    out = session.run(None, {"x": x, "ids": ids})
    return {o.name: y.ravel() for o, y in zip(session.get_outputs(), out)}


def check(got, x, wide):
    assert "error" not in got, got
    for run in (got["first"], got["second"]):
        for name, y in expected(x, wide).items():
            np.testing.assert_allclose(run[name], y, 1e-5, 1e-5)
    assert got["wrong"][0] == "InputError" and "6" in got["wrong"][1], got["wrong"]


def test_a_session(gpu_visit, sessions):
    x = np.random.default_rng(2).standard_normal(SHAPES["x"]).astype(np.float32)
    arg = {"x": x.ravel().tolist(), "options": {"device": "webgpu", "threads": 1}}
    end = "await s.release(); return {first, wrong, second, device};"

    # a package; nothing but the GPU computes, and a run waits for it once
    arg["model"] = "/files/plain-gpu.edge"
    stay = "window.numbers = numbers; return {first, wrong, second, device};"
    got = gpu_visit.run(RUN + stay, arg)
    check(got, x, False)
    assert got["device"]["name"] == "webgpu" and got["device"]["gpu"]["onWasm"] == {}
    workers = gpu_visit.page.workers
    for worker in workers:
        worker.evaluate(MAPS)
    gpu_visit.run("await numbers()")
    assert sum(worker.evaluate("() => globalThis.maps ?? 0") for worker in workers) == 1
    gpu_visit.run("await session.release()")

    # outputs that stay there: the error is known although nothing is read
    got = gpu_visit.run(PINNED, arg)
    assert got["wrong"] == "InputError" and got["where"] == "cpu-pinned", got
    np.testing.assert_allclose(got["rows"], expected(x, False)["rows"])
    assert gpu_visit.asked("worker-webgpu-images.js")
    assert not gpu_visit.asked("worker-webgpu-training.js")

    # compiled in the page, twice: steps in float64 run in WebAssembly, which is said
    for model_ in ("/files/wide.onnx", "/files/wide.onnx", "/files/wide-gpu.edge"):
        got = gpu_visit.run(RUN + end, arg | {"model": model_})
        check(got, x, True)
        assert "cast" in got["device"]["gpu"]["onWasm"]
    asked = len(gpu_visit.asked("pyodide.asm.wasm"))
    assert asked <= 1, "the second visit has the plans"

    # products of bytes: sums of integers are exact
    got, want = (
        gpu_visit.run(BYTES, {"x": BYTES_X.ravel().tolist(), "device": device})
        for device in ("webgpu", "wasm")
    )
    assert "error" not in got, got
    assert got["device"]["gpu"]["onWasm"] == {}
    (exact,) = onnxruntime.InferenceSession(bytes_model()).run(None, {"x": BYTES_X})
    assert got["y"] == want["y"] == exact.ravel().tolist()
    assert gpu_visit.asked("worker-webgpu-bytes.js")


def test_a_lost_gpu(gpu_visit, sessions):
    """A session is opened again: on a new GPU, then in WebAssembly."""
    x = np.random.default_rng(6).standard_normal(FACTORS.shape).astype(np.float32)
    assert gpu_visit.run(LONG, x.tolist()) is None
    y = x * FACTORS
    for name in ("webgpu", "wasm"):
        left = lose(gpu_visit)
        got = gpu_visit.run(AFTER)
        assert "error" not in got, got["error"]["message"]
        assert left() <= 0 and got["device"]["name"] == name
        assert np.array_equal(np.array(got["data"], np.float32), y * FACTORS)
        assert np.array_equal(np.array(got["stays"], np.float32), -y)
        for use in ("await s.run({ x: stays })", "await stays.getData()"):
            assert "on a GPU that was lost" in error(gpu_visit.run(use), "EngineError")["what"]
    assert "the GPU was lost" in got["device"]["why"]
    gpu_visit.run("await s.release()")


def test_a_session_that_cannot_be_opened_again(gpu_visit, sessions):
    """The next run tries it once more."""
    assert gpu_visit.run(LONG, [1.0] * len(FACTORS)) is None
    lose(gpu_visit)
    workers = list(gpu_visit.page.workers)
    for worker in workers:
        worker.evaluate(
            """() => {
                const { fetch } = globalThis;
                globalThis.fetch = async () => new Response("", { status: 404 });
                globalThis.restore = () => (globalThis.fetch = fetch);
            }"""
        )
    e = error(gpu_visit.run(AFTER), "EngineError")
    assert "could not be opened again" in e["what"] and "Run the session again" in e["remedy"]
    for worker in workers:
        worker.evaluate("() => void globalThis.restore()")
    got = gpu_visit.run(AFTER)
    assert "error" not in got, got["error"]["message"]
    assert np.array_equal(np.array(got["data"], np.float32), FACTORS * FACTORS)
    assert got["device"]["name"] == "webgpu"
    gpu_visit.run("await s.release()")


def test_where_there_is_no_gpu(visit, server, sessions):
    """It is an error, or said."""
    one = visit(server)
    create = "const s = await ew.InferenceSession.create('/files/plain-gpu.edge', arg);"
    end = "const {device} = s; await s.release(); return device"
    e = error(one.run(create + end, {"device": "webgpu"}), "EngineError")
    assert "GPU" in e["what"] and "'wasm'" in e["remedy"]
    device = one.run(create + end, {"executionProviders": ["webgpu", "wasm"]})
    assert device["name"] == "wasm" and "GPU" in device["why"]
    inline = {"executionProviders": ["webgpu", "wasm"], "proxy": False}
    assert "own thread" in one.run(create + end, inline)["why"]

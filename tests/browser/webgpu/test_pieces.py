"""Launches that run in pieces on a page's GPU, with a wait for each: the same bits as in one
dispatch.
"""

import re

import numpy as np
import onnx
import pytest
from edgewise.compiler.compile import compile_inference
from edgewise.compiler.targets import target_named
from edgewise.onnx import BytesSource
from onnx import helper, numpy_helper

from ..conftest import greedy
from ..training.harness import TEXT
from .test_limits import SESSION
from .test_sessions import sessions  # noqa: F401
from .test_training import TUNE, trainable  # noqa: F401

# The bound at first, and no other one: each wait seems to take as long as it should.
STEADY = """
const now = performance.now.bind(performance);
let later = 0;
performance.now = () => now() + later;
const done = GPUQueue.prototype.onSubmittedWorkDone;
globalThis.waits = 0;
GPUQueue.prototype.onSubmittedWorkDone = async function () {
  globalThis.waits++;
  await done.call(this);
  later += 50;
};
"""


@pytest.fixture
def in_pieces(gpu_visit):
    """Has workers that are made from now on give their GPU so many operations at once."""

    def begin(bound):
        def change(route):
            answer = route.fetch()
            body, found = re.subn(r"\b5e8\b", str(bound), answer.text())
            assert found == 1
            route.fulfill(response=answer, body=STEADY + body)

        gpu_visit.page.route("**/worker-webgpu.js", change)

    return begin


def test_a_session(gpu_visit, sessions, in_pieces):  # noqa: F811
    keep = SESSION.replace("const s =", "const s = globalThis.kept =")
    whole = gpu_visit.run(keep, {"device": "webgpu"})
    before = set(gpu_visit.page.workers)
    in_pieces(1)
    pieces = gpu_visit.run(keep, {"device": "webgpu", "runs": 2})
    assert "error" not in pieces, pieces["error"]
    assert pieces["y"] == whole["y"] and pieces["device"]["gpu"]["onWasm"] == {}
    new = [worker for worker in gpu_visit.page.workers if worker not in before]
    assert max(worker.evaluate("() => globalThis.waits ?? 0") for worker in new) > 20


def operators():
    """A model with a node of each of many operators, on an input of 1 x 4 x 18 x 20 or of 72 x 20;
    and the names of the results.
    """
    r, node = np.random.default_rng(6), helper.make_node
    shapes = {"k": (8, 4, 3, 3), "t": (4, 6, 3, 3), "s": (4,), "w": (20, 70), "n": (20,)}
    shapes |= {"lw": (1, 24, 20), "lr": (1, 24, 6), "c": (72, 20)}
    held = {name: r.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    held |= {"v": np.abs(held["s"]) + 1, "one": np.array([1]), "five": np.array([5])}
    held |= {"i": r.integers(0, 72, (9,)), "e": r.integers(0, 72, (5, 20)), "ax": np.array(1)}
    held |= {"j": r.permutation(72)[:6, None], "u": r.standard_normal((6, 20)).astype("f4")}
    held |= {"by": np.array([1, 1, 1.5, 2], "f4"), "pad": np.array([1, 2, 0, 1])}
    held |= {"flat": np.array([72, 20]), "long": np.array([18, 4, 20])}
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Reshape", ["x", "flat"], ["m"]),
        node("Reshape", ["x", "long"], ["l"]),
        node("Conv", ["x", "k"], ["conv"], **window),
        node("ConvTranspose", ["x", "t"], ["transposed"], strides=[2, 2]),
        node("MaxPool", ["x"], ["most"], strides=[2, 2], **window),
        node("AveragePool", ["x"], ["mean"], strides=[2, 2], **window),
        node("BatchNormalization", ["x", "s", "s", "s", "v"], ["batch"]),
        node("Resize", ["x", "", "by"], ["resized"], mode="linear"),
        node("MatMul", ["m", "w"], ["product"]),
        node("LayerNormalization", ["m", "n", "n"], ["norm"]),
        node("Softmax", ["m"], ["soft"]),
        node("Gelu", ["m"], ["gelu"]),
        node("ReduceSum", ["m", "one"], ["sum"], keepdims=0),
        node("ReduceMax", ["m", "one"], ["highest"], keepdims=0),
        node("TopK", ["m", "five"], ["top", "places"]),
        node("ArgMax", ["m"], ["place"], axis=1),
        node("CumSum", ["m", "ax"], ["so far"]),
        node("Transpose", ["l"], ["turned"], perm=[2, 0, 1]),
        node("Concat", ["m", "c"], ["both"], axis=1),
        node("Gather", ["m", "i"], ["rows"]),
        node("GatherElements", ["m", "e"], ["elements"], axis=0),
        node("ScatterND", ["m", "j", "u"], ["scattered"]),
        node("Pad", ["m", "pad"], ["padded"]),
        node("Greater", ["m", "c"], ["more"]),
        node("Where", ["more", "m", "c"], ["chosen"]),
        node("Trilu", ["m"], ["upper"]),
        node("LSTM", ["l", "lw", "lr"], ["recurrent"], hidden_size=6),
    ]
    results = [name for one in nodes for name in one.output if name not in ("m", "l")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, [1, 4, 18, 20])],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made).SerializeToString(), results


OPERATORS = """
    const s = await ew.InferenceSession.create("/files/operators.edge",
      { device: "webgpu", threads: 1 });
    const data = Float32Array.from({ length: 1440 }, (_, i) => Math.sin(i * i));
    const found = await s.run({ x: new ew.Tensor("float32", data, [1, 4, 18, 20]) });
    const { onWasm } = s.device.gpu;
    const bits = ({ data: { buffer, byteOffset, byteLength } }) =>
      Array.from(new Uint8Array(buffer, byteOffset, byteLength)).join();
    await s.release();
    return { onWasm, bits: Object.entries(found).map(([name, y]) => [name, bits(y)]) };
"""


def test_operators(gpu_visit, gpu_files, in_pieces):
    data, results = operators()
    source = {"model.onnx": BytesSource(data, "model.onnx")}
    compile_inference(source, [{}], target=target_named("webgpu")).save(
        str(gpu_files / "operators.edge")
    )
    whole = gpu_visit.run(OPERATORS)
    assert "error" not in whole, whole["error"]
    in_pieces(1)
    pieces = gpu_visit.run(OPERATORS)
    assert "error" not in pieces, pieces["error"]
    assert whole["onWasm"] == pieces["onWasm"] == {}
    assert [name for name, _ in whole["bits"]] == results
    differ = [name for (name, a), (_, b) in zip(whole["bits"], pieces["bits"]) if a != b]
    assert not differ


def test_tokens(gpu_visit, in_pieces):
    whole = greedy(gpu_visit, "/files/gpu.edge", {"device": "webgpu"})
    in_pieces(20_000)
    pieces = greedy(gpu_visit, "/files/gpu.edge", {"device": "webgpu"})
    assert pieces["ids"] == whole["ids"] and pieces["info"]["device"]["name"] == "webgpu"


def test_training(gpu_visit, in_pieces, trainable):  # noqa: F811
    whole = gpu_visit.run(TUNE, {"text": TEXT, "device": "webgpu"})
    in_pieces(50_000)
    pieces = gpu_visit.run(
        TUNE.replace("name: device", "name: 'p'"), {"text": TEXT, "device": "webgpu"}
    )
    assert "error" not in pieces, pieces["error"]["message"]
    assert pieces["info"]["device"]["name"] == "webgpu"
    for what in ("losses", "evaluations", "texts"):
        assert pieces[what] == whole[what], what

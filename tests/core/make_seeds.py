"""Compile models to plans and packages, as seeds for the fuzzers.

Usage: PYTHONPATH=python python tests/core/make_seeds.py FOLDER
"""

from __future__ import annotations

import pathlib
import struct
import sys

import numpy as np
from edgewise.compiler.compile import compile_inference
from edgewise.compiler.plan import compile_graph
from edgewise.compiler.training.package import compile_training_package
from edgewise.host.session.decoder import open_package
from edgewise.logic.manifest.package import plans_of
from edgewise.onnx import BytesSource, FileSource, read_model
from edgewise.package import Package
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGEST = 60_000  # bytes of a plan
LARGEST_PACKAGE = 1 << 20  # bytes of a package, as common/fuzz.h: MAX_PACKED
KINDS = ("weight", "computed", "cache", "state", "input", "output")  # as fuzz_package.c


def graph_model(
    nodes: list,
    inputs: dict[str, list[int]],
    weights: dict[str, np.ndarray],
    types: dict[str, int] | None = None,
) -> bytes:
    """Build an ONNX model; the outputs of its last node are the graph's outputs."""
    types = types or {}
    values = [
        helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), s)
        for n, s in inputs.items()
    ]
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in nodes[-1].output if n
    ]
    graph = helper.make_graph(
        nodes, "seed", values, outputs, [numpy_helper.from_array(w, n) for n, w in weights.items()]
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)],
        ir_version=9,
    )
    return model.SerializeToString()


def graph_plan(model: bytes) -> bytes:
    """Compiles a model with inputs of fixed shapes."""
    graph = read_model(BytesSource(model))
    shapes = {i.name: i.shape for i in graph.input_names()}
    return compile_graph(graph, shapes, jumps=True)[0].data


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def small_bytes(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) * 37 % 255 - 127).astype(np.int8)


def loops() -> bytes:
    """A scan, whose body has a loop with an If in it."""
    n, value = helper.make_node, helper.make_tensor_value_info
    floats, integer, truth = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

    def body(nodes: list, inputs: list, outputs: list) -> object:
        values = [[value(name, kind, shape) for name, kind, shape in x] for x in (inputs, outputs)]
        return helper.make_graph(nodes, "body", *values)

    branches = {
        "then_branch": body([n("Tanh", ["a"], ["b"])], [], [("b", floats, [3])]),
        "else_branch": body([n("Add", ["a", "w"], ["d"])], [], [("d", floats, [3])]),
    }
    loop = body(
        [
            n("ReduceSum", ["a"], ["total"], keepdims=0),
            n("Less", ["total", "one"], ["go_on"]),
            n("If", ["go_on"], ["next"], **branches),
        ],
        [("i", integer, []), ("go", truth, []), ("a", floats, [3])],
        [("go_on", truth, []), ("next", floats, [3])],
    )
    scan = body(
        [
            n("Add", ["state", "row"], ["start"]),
            n("Loop", ["trips", "", "start"], ["end"], body=loop),
            n("Neg", ["end"], ["out"]),
        ],
        [("state", floats, [3]), ("row", floats, [3])],
        [("end", floats, [3]), ("out", floats, [3])],
    )
    return graph_model(
        [n("Scan", ["s", "x"], ["y", "z"], body=scan, num_scan_inputs=1)],
        {"s": [3], "x": [4, 3], "w": [3], "one": [], "trips": []},
        {},
        {"trips": integer},
    )


# long: a table of graphs
def graphs() -> dict[str, bytes]:
    """Models with steps that language models do not have: convolutions, pooling, quantized
    and recurrent layers, data-dependent shapes.
    """
    n = helper.make_node
    return {
        "loops": loops(),
        "cnn": graph_model(
            [
                n("Conv", ["x", "w"], ["c"], pads=[1] * 4),
                n("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
                n("Conv", ["p", "d"], ["e"], group=8, strides=[2, 2]),
                n("AveragePool", ["e"], ["a"], kernel_shape=[3, 3], pads=[1] * 4),
                n("ConvTranspose", ["a", "t"], ["u"], strides=[2, 2]),
                n("Resize", ["u", "", "s"], ["r"], mode="linear"),
                n("ReduceMean", ["r"], ["y"]),
            ],
            {"x": [2, 3, 18, 18]},
            {
                "w": weights(8, 3, 3, 3),
                "d": weights(8, 1, 3, 3),
                "t": weights(8, 4, 3, 3),
                "s": np.float32([1, 1, 1.5, 2]),
            },
        ),
        "integer": graph_model(
            [
                n("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
                n("ConvInteger", ["q", "w", "qz"], ["c"], pads=[1] * 4),
                n("Cast", ["c"], ["f"], to=1),
                n("Mul", ["f", "qs"], ["y"]),
            ],
            {"x": [1, 4, 9, 9]},
            {"w": np.resize(np.arange(256, dtype=np.uint8), (8, 4, 3, 3))},
        ),
        "recurrent": graph_model(
            [
                n("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=6),
                n("GRU", ["x", "v", "q"], ["", "g"], hidden_size=6),
                n("Add", ["h", "g"], ["y"]),
            ],
            {"x": [5, 3, 4]},
            {
                "w": weights(1, 24, 4),
                "r": weights(1, 24, 6),
                "v": weights(1, 18, 4),
                "q": weights(1, 18, 6),
            },
        ),
        "recurrent_bytes": graph_model(
            [
                n(
                    "DynamicQuantizeLSTM",
                    ["x", "w", "r", "", "", "", "", "", "s", "z", "s", "z"],
                    ["y"],
                    domain="com.microsoft",
                    hidden_size=6,
                )
            ],
            {"x": [5, 3, 4]},
            {
                "w": small_bytes(1, 4, 24),
                "r": small_bytes(1, 6, 24),
                "s": np.float32([0.02]),
                "z": np.int8([0]),
            },
        ),
        "choices": graph_model(
            [
                n("TopK", ["x", "k"], ["v", "i"]),
                n("GatherElements", ["x", "i"], ["e"]),
                n("ArgMax", ["e"], ["m"]),
                n("ScatterElements", ["x", "i", "e"], ["s"], axis=1),
                n("CumSum", ["s", "one"], ["c"]),
                n("Trilu", ["c"], ["t"]),
                n("Where", ["b", "t", "x"], ["y"]),
            ],
            {"x": [4, 16], "b": [4, 16]},
            {"k": np.int64([5]), "one": np.int64(1)},
            {"b": TensorProto.BOOL},
        ),
    }


def packed(package: Package) -> bytes:
    """The plans of a package and the memory that their slots name, for fuzz_package.c.

    Layout, little-endian: 8 bytes "EDGEPACK"; u32 number of names, u32 number of plans, u64 bytes
    of the weights; for each name u32 kind (index into KINDS), u32 0, u64 bytes, u64 offset in the
    weights; for each plan u32 bytes, u32 number of slots, u32 name of each slot, the plan; the
    weights.
    """
    weights, offsets = bytearray(), {}
    for w in package.manifest["weights"]:
        offsets[w["name"]] = len(weights)
        weights += package.source(w["file"]).read(w["offset"], w["bytes"])
        weights += bytes(-len(weights) % 64)
    names: dict[str, list[int]] = {}
    plans = b""
    count = 0
    for file, slots in plans_of(package.manifest):
        for s in slots:
            entry = names.setdefault(
                s["name"], [KINDS.index(s["kind"]), 0, 0, offsets.get(s["name"], 0)]
            )
            entry[2] = max(entry[2], s["bytes"])
        data = bytes(package.file(file))
        index = list(names)
        plans += struct.pack("<II", len(data), len(slots))
        plans += struct.pack(f"<{len(slots)}I", *(index.index(s["name"]) for s in slots)) + data
        count += 1
    head = b"EDGEPACK" + struct.pack("<IIQ", len(names), count, len(weights))
    return head + b"".join(struct.pack("<IIQQ", *n) for n in names.values()) + plans + weights


def packages() -> dict[str, bytes]:
    """Packages of each task: several small models, a decoder, a training program."""
    llama = ROOT / "tests" / "zoo" / "models" / "q4_llama" / "model.onnx"
    training = {"name": "lora", "batch": 1, "sequence": 4, "lora": {"r": 2, "lora_alpha": 4}}
    out = {
        name: compile_inference({"model.onnx": BytesSource(model)})
        for name, model in graphs().items()
    }
    n = helper.make_node
    layer = n("MatMul", ["x", "w"], ["m"]), n("Add", ["m", "b"], ["a"]), n("Relu", ["a"], ["y"])
    out["layer"] = compile_inference(
        {
            "model.onnx": BytesSource(
                graph_model(list(layer), {"x": ["n", 4]}, {"w": weights(4, 8), "b": weights(8)})
            )
        },
        ({"n": 1}, {"n": 3}),
    )
    out["decoder"] = open_package(llama, capacity=24)
    out["training"] = compile_training_package(
        {"model.onnx": FileSource(llama)}, [training], capacity=8, chunks=(1, 4)
    )
    return {name: packed(package) for name, package in out.items()}


def make(folder: pathlib.Path) -> int:
    """Write all seeds to `folder` and return their number."""
    folder.mkdir(parents=True, exist_ok=True)
    plans = {name: graph_plan(model) for name, model in graphs().items()}
    for model in sorted((ROOT / "tests" / "zoo" / "models").glob("*/*.onnx")):
        try:
            package = open_package(model.parent)
        except Exception as e:  # not a language model
            print(f"{model.parent.name}: {e}")
            continue
        plans.update(
            {
                f"{model.parent.name}_{name.replace('/', '_')}": bytes(package.file(name))
                for name in package.blobs
                if name.startswith("plan/")
            }
        )
    plans = {name: data for name, data in plans.items() if len(data) <= LARGEST}
    for name, data in plans.items():
        (folder / f"{name}.plan").write_bytes(data)
    kept = {name: data for name, data in packages().items() if len(data) <= LARGEST_PACKAGE}
    for name, data in kept.items():
        (folder / f"{name}.packed").write_bytes(data)
    return len(plans) + len(kept)


if __name__ == "__main__":
    print(make(pathlib.Path(sys.argv[1])), "plans and packages in", sys.argv[1])

"""warm.py   Runs before the snapshot is taken: compiles a small model, so that what Python keeps of
a first compilation (compiled rules of contracts, formulas, the kernels' table) is in the snapshot.
"""

import json
from typing import Any

import edgewise.host.session.inference_calls as calls
from edgewise.page import run

FLOAT, INT64 = 1, 7


def field(number: int, value: int | str | bytes) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(x: int) -> bytes:
    """A number of protobuf."""
    return bytes([x]) if x < 128 else bytes([x & 127 | 128]) + varint(x >> 7)


def node(op: str, inputs: str, output: str, **attributes: int | list[int]) -> bytes:
    """A NodeProto. inputs: names, separated by spaces."""
    parts = [field(1, name) for name in inputs.split()] + [field(2, output), field(4, op)]
    for name, value in attributes.items():
        many = isinstance(value, list)
        kept = b"".join(field(8, x) for x in value) if isinstance(value, list) else field(3, value)
        parts.append(field(5, field(1, name) + kept + field(20, 7 if many else 2)))
    return b"".join(parts)


def weight(name: str, *shape: int) -> bytes:
    """A TensorProto of float32 zeros."""
    count = 1
    for d in shape:
        count *= d
    dims = b"".join(field(1, d) for d in shape)
    return dims + field(2, FLOAT) + field(8, name) + field(9, bytes(4 * count))


def numbers(name: str, *values: int) -> bytes:
    """A TensorProto of int64 values."""
    data = b"".join(x.to_bytes(8, "little", signed=True) for x in values)
    return field(1, len(values)) + field(2, INT64) + field(8, name) + field(9, data)


def value(name: str, dtype: int, *shape: int) -> bytes:
    """A ValueInfoProto."""
    dims = b"".join(field(1, field(1, d)) for d in shape)
    return field(1, name) + field(2, field(1, field(1, dtype) + field(2, dims)))


# A convolution with batch normalization, and a layer of a transformer.
NODES = [
    node("Conv", "image kernel", "c", pads=[1, 1, 1, 1]),
    node("BatchNormalization", "c scale shift mean variance", "b"),
    node("Relu", "b", "r"),
    node("GlobalAveragePool", "r", "pooled"),
    node("Flatten", "pooled", "flat"),
    node("Gemm", "flat dense offset", "probable"),
    node("Gather", "table ids", "e"),
    node("LayerNormalization", "e gain gain", "n"),
    node("MatMul", "n square", "q"),
    node("Reshape", "q heads", "split"),
    node("Transpose", "split", "turned", perm=[0, 2, 1, 3]),
    node("Transpose", "split", "keys", perm=[0, 2, 3, 1]),
    node("MatMul", "turned keys", "scores"),
    node("Softmax", "scores", "weights"),
    node("MatMul", "weights turned", "mixed"),
    node("Transpose", "mixed", "back", perm=[0, 2, 1, 3]),
    node("Reshape", "back joined", "all"),
    node("Add", "all e", "sum"),
    node("Sigmoid", "sum", "gate"),
    node("Mul", "sum gate", "y"),
]
WEIGHTS = [
    weight("kernel", 4, 3, 3, 3),
    *(weight(name, 4) for name in ("scale", "shift", "mean", "variance")),
    *(weight("dense", 4, 4), weight("offset", 4)),
    *(weight("table", 16, 8), weight("gain", 8), weight("square", 8, 8)),
    *(numbers("heads", 1, -1, 2, 4), numbers("joined", 1, -1, 8)),
]
INPUTS = {"image": (FLOAT, [1, 3, 8, 8]), "ids": (INT64, [1, 4])}
OUTPUTS = {"probable": (FLOAT, [1, 4]), "y": (FLOAT, [1, 4, 8])}
GRAPH = b"".join(
    [
        *(field(1, n) for n in NODES),
        field(2, "warm"),
        *(field(5, w) for w in WEIGHTS),
        *(field(11, value(n, dtype, *shape)) for n, (dtype, shape) in INPUTS.items()),
        *(field(12, value(n, dtype, *shape)) for n, (dtype, shape) in OUTPUTS.items()),
    ]
)
MODEL = field(1, 8) + field(8, field(2, 17)) + field(7, GRAPH)


class File:
    """A file of a page, as edgewise.page's JsSource reads it."""

    size = len(MODEL)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file."""
        return MODEL[offset : offset + size]

    def exponents(self, offset: int, size: int) -> list[int]:
        """No weights are looked at."""
        return []


def ask(files: dict[str, File], **options: Any) -> dict[str, Any]:
    """The answer to a call of a page's InferenceSession."""
    answer = run(files, json.dumps({"of": "inference", **options}))
    if len(answer) != 2:
        raise RuntimeError(f"the sample was not compiled: {answer}")
    return dict(json.loads(answer[0]))


def warm() -> None:
    """Compiles the model, and forgets it."""
    ask({"warm.onnx": File()}, call="open", model_file="warm.onnx")
    program = ask({}, call="program", origin={"outputs": list(OUTPUTS)})
    names = {FLOAT: "float32", INT64: "int64"}
    for unit in program["units"]:
        fed = {n: [names[INPUTS[n][0]], INPUTS[n][1]] for n in unit["inputs"]}
        more = {"program": program["program"], "part": unit["part"], "values": fed, "done": []}
        ask({}, call="part", run=1, file="plan/0", fixed=False, **more)
    calls._models.clear()


warm()

"""The single operators of case `ops`: as ONNX models with several in a chain, as data from which
other libraries build the same chain, and in PyTorch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto

from .models import Graph


@dataclass
class Op:
    """An operator in a chain.

    Args:
        kind: name of the operator in page/tf-ops.js and page/jax-ops.js.
        shape: of its input and output.
        chain: number of operators in series. Each has its own weights, so that they do not stay in
            a cache if they would not in a model.
        flops, dots: minimum number of operations of one operator.
        bytes: of its weights, or of its input and output.
    """

    kind: str
    shape: list[int]
    chain: int
    flops: float = 0
    bytes: float = 0
    dots: float = 0
    more: dict = field(default_factory=dict)


def _product(m, n, chain):
    return Op("matmul", [m, n], chain, flops=2 * m * n * n, bytes=4 * n * n)


def _nbits(m, n, chain, level):
    dots = (
        {"dots": 2 * m * n * n} if level == 4 else {"flops": 2 * m * n * n} if m > 1 else {}
    )  # a GEMV with float32 activations is bound by reading its weights, not by arithmetic
    return Op("nbits", [m, n], chain, bytes=n * n * 5 / 8, more={"level": level}, **dots)


def _rows(kind, rows, n):
    return Op(kind, [rows, n], 4, bytes=8 * rows * n)


OPS = {
    "MatMul 512×512×512": _product(512, 512, 4),
    "MatMul 1024×1024×1024": _product(1024, 1024, 2),
    "GEMV 2048×2048": _product(1, 2048, 8),
    "4-bit GEMV 2048×2048": _nbits(1, 2048, 8, 0),
    "4-bit GEMV, accuracy_level 4": _nbits(1, 2048, 8, 4),
    "4-bit 128×2048×2048": _nbits(128, 2048, 2, 0),
    "4-bit 128×2048×2048, accuracy_level 4": _nbits(128, 2048, 2, 4),
    "Conv 3×3, 64→64, 56×56": Op(
        "conv", [1, 64, 56, 56], 4, flops=2 * 9 * 64 * 64 * 56 * 56, more={"size": 3, "groups": 1}
    ),
    "Conv 1×1, 256→256, 28×28": Op(
        "conv", [1, 256, 28, 28], 4, flops=2 * 256 * 256 * 28 * 28, more={"size": 1, "groups": 1}
    ),
    "Conv 3×3 depthwise, 144, 56×56": Op(
        "conv",
        [1, 144, 56, 56],
        4,
        flops=2 * 9 * 144 * 56 * 56,
        bytes=8 * 144 * 56 * 56,
        more={"size": 3, "groups": 144},
    ),
    "Attention, 12 heads, 256×256×64": Op(
        "attention", [12, 256, 64], 2, flops=4 * 12 * 256 * 256 * 64
    ),
    "Softmax 1024×1024": _rows("softmax", 1024, 1024),
    "LayerNorm 1024×768": _rows("layernorm", 1024, 768),
    "Gelu 1024×768": _rows("gelu", 1024, 768),
    "Transpose 1024×12×64": Op("transpose", [1024, 12, 64], 4, bytes=8 * 1024 * 12 * 64),
}


# long: a table of operators
def build(name):
    """Returns (the ONNX model x -> y, [arrays of weights] for each operator of the chain)."""
    op, g, x, links = OPS[name], Graph(1), "x", []
    n = op.shape[-1]
    for i in range(op.chain):
        out, arrays = "y" if i == op.chain - 1 else None, []

        def weight(array):
            arrays.append(array)
            return g.array(f"W{i}.{len(arrays)}", array)

        def normal(*shape, scale, add=0.0):
            return weight(
                np.float32(add) + g.random.standard_normal(shape, np.float32) * np.float32(scale)
            )

        if op.kind == "matmul":
            x = g.op("MatMul", x, normal(n, n, scale=n**-0.5), out=out)
        elif op.kind == "nbits":
            quants, scales = (
                weight(g.random.integers(0, 256, (n, n // 32, 16), np.uint8)),
                weight(g.random.uniform(0.004, 0.006, n * n // 32).astype(np.float32)),
            )
            x = g.op(
                "MatMulNBits",
                x,
                quants,
                scales,
                out=out,
                domain="com.microsoft",
                K=n,
                N=n,
                bits=4,
                block_size=32,
                accuracy_level=op.more["level"],
            )
        elif op.kind == "conv":
            channels, size, groups = op.shape[1], op.more["size"], op.more["groups"]
            w = normal(
                channels,
                channels // groups,
                size,
                size,
                scale=(channels // groups * size * size) ** -0.5,
            )
            x = g.op(
                "Conv", x, w, out=out, kernel_shape=[size, size], pads=[size // 2] * 4, group=groups
            )
        elif op.kind == "attention":
            heads, tokens, dim = op.shape
            keys, values = (
                normal(heads, dim, tokens, scale=1.0),
                normal(heads, tokens, dim, scale=1.0),
            )
            scores = g.op("Mul", g.op("MatMul", x, keys), dim**-0.5)
            x = g.op("MatMul", g.op("Softmax", scores, axis=-1), values, out=out)
        elif op.kind == "softmax":
            x = g.op("Softmax", x, axis=-1, out=out)
        elif op.kind == "layernorm":
            x = g.op(
                "LayerNormalization",
                x,
                normal(n, scale=0.1, add=1.0),
                normal(n, scale=0.1),
                axis=-1,
                epsilon=1e-5,
                out=out,
            )
        elif op.kind == "gelu":
            x = g.op("Gelu", x, out=out)
        elif (
            op.kind == "transpose"
            # the same data viewed in the original shape, so that the next transpose moves it again
        ):
            x = g.op("Reshape", g.op("Transpose", x, perm=[1, 0, 2]), op.shape, out=out)
        links.append(arrays)
    return (
        g.model(
            [("x", TensorProto.FLOAT, op.shape)], [("y", TensorProto.FLOAT, op.shape)], opset=20
        ),
        links,
    )


def write(name, target):
    """Writes TARGET.onnx, TARGET.links (the weights) and TARGET.links.json (kind, shape, and the
    offset of each weight).
    """
    model, links = build(name)
    target.with_suffix(".onnx").write_bytes(model.SerializeToString())
    data, where = bytearray(), []
    for arrays in links:
        where.append([])
        for a in arrays:
            where[-1].append({"shape": list(a.shape), "at": len(data), "count": a.size})
            data += a.tobytes()
    op = OPS[name]
    target.with_suffix(".links").write_bytes(data if op.kind != "nbits" else b"")
    target.with_suffix(".links.json").write_text(
        json.dumps({"kind": op.kind, "shape": op.shape, "links": where, **op.more})
    )
    return model, links


def torch_run(name, links, x):
    """Returns a function that runs the chain in PyTorch with one thread."""
    import torch
    import torch.nn.functional as F

    op = OPS[name]
    links = [[torch.from_numpy(a) for a in arrays] for arrays in links]
    step = {
        "matmul": lambda x, w: x @ w,
        "conv": lambda x, w: F.conv2d(x, w, padding=op.more["size"] // 2, groups=op.more["groups"]),
        "attention": lambda x, k, v: F.scaled_dot_product_attention(
            x[None], k.transpose(1, 2)[None], v[None]
        )[0],
        "softmax": lambda x: torch.softmax(x, -1),
        "layernorm": lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5),
        "gelu": F.gelu,
        "transpose": lambda x: x.transpose(0, 1).reshape(op.shape),
    }[op.kind]

    def run():
        torch.set_num_threads(1)
        with torch.inference_mode():
            y = torch.from_numpy(x.copy())
            for weights in links:
                y = step(y, *weights)
        return y.numpy()

    return run


def numbers(shape):
    """The input of all contenders, as in page/rpc.js."""
    return (np.arange(np.prod(shape)) * 7919 % 1000 / 1000 - 0.5).astype(np.float32).reshape(shape)

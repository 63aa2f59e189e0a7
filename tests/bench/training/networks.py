"""The networks of case `train`."""

from __future__ import annotations

import numpy as np

from ..models import F32, I64, Graph


def mlp(dims, seed=0):
    """Linear layers with ReLU between them: x [batch, dims[0]] to y [batch, dims[-1]]."""
    g = Graph(seed)
    x = "x"
    for i, (rows, columns) in enumerate(zip(dims, dims[1:])):
        last = i == len(dims) - 2
        x = g.op(
            "Gemm",
            x,
            g.weight(f"w{i}", rows, columns),
            g.array(f"b{i}", np.zeros(columns, np.float32)),
            out="y" if last else None,
        )
        if not last:
            x = g.op("Relu", x)
    return g.model([("x", F32, ["batch", dims[0]])], [("y", F32, ["batch", dims[-1]])], opset=15)


# long: a graph, node by node
def gpt(layers, width, heads, inner, vocab, batch, sequence, rank=0, seed=0):
    """A causal transformer for training: RMSNorm, attention and SwiGLU in primitive operators of
    opset 15.

    Maps ids [batch, sequence] to y [batch * sequence, vocab].

    Args:
        rank: of the LoRA matrices of every linear layer in the blocks, which are part of the graph;
            0: none. All other weights are independent of it.
    """
    g, adapters = Graph(seed), np.random.default_rng(seed + 1)
    two, epsilon, low, scale = (
        g.array(n, np.array(v, np.float32))
        for n, v in (
            ("two", 2),
            ("epsilon", 1e-5),
            ("low", -1e9),
            ("scale", (width // heads) ** -0.5),
        )
    )
    split, join = (
        g.array("split", np.array([batch, sequence, heads, width // heads], np.int64)),
        g.array("join", np.array([batch, sequence, width], np.int64)),
    )
    mask = g.array("mask", np.tril(np.ones((1, 1, sequence, sequence), bool)))

    def norm(x, name):
        root = g.op(
            "Sqrt", g.op("Add", g.op("ReduceMean", g.op("Pow", x, two), axes=[-1]), epsilon)
        )
        return g.op("Mul", g.op("Div", x, root), g.array(name, np.ones(width, np.float32)))

    def linear(x, name, rows, columns):
        y = g.op("MatMul", x, g.weight(name, rows, columns))
        if not rank:
            return y
        a = g.array(
            name + ".lora_A",
            (adapters.standard_normal((rows, rank)) * rows**-0.5).astype(np.float32),
        )
        b = g.array(name + ".lora_B", np.zeros((rank, columns), np.float32))
        return g.op("Add", y, g.op("MatMul", g.op("MatMul", x, a), b))

    x = g.op("Gather", g.weight("embedding", vocab, width, scale=vocab**-0.5), "ids")
    for i in range(layers):
        g.scope, p = f"/layers.{i}", f"layers.{i}."
        h = norm(x, p + "norm1")
        q, k, v = (
            g.op(
                "Transpose",
                g.op("Reshape", linear(h, p + n, width, width), split),
                perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3],
            )
            for n in "qkv"
        )
        scores = g.op(
            "Softmax", g.op("Where", mask, g.op("Mul", g.op("MatMul", q, k), scale), low), axis=-1
        )
        h = g.op("Reshape", g.op("Transpose", g.op("MatMul", scores, v), perm=[0, 2, 1, 3]), join)
        x = g.op("Add", x, linear(h, p + "o", width, width))
        h = norm(x, p + "norm2")
        gate = linear(h, p + "gate", width, inner)
        h = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), linear(h, p + "up", width, inner))
        x = g.op("Add", x, linear(h, p + "down", inner, width))
    g.scope = ""
    y = g.op("MatMul", norm(x, "norm"), g.weight("head", width, vocab))
    g.op("Reshape", y, g.array("rows", np.array([batch * sequence, vocab], np.int64)), out="y")
    return g.model(
        [("ids", I64, [batch, sequence])], [("y", F32, [batch * sequence, vocab])], opset=15
    )


# name: (function, its arguments); inputs: page/batch.js
TRAINING = {
    "mlp": (mlp, {"dims": [784, 512, 512, 10]}),
    "gpt4": (
        gpt,
        {
            "layers": 4,
            "width": 96,
            "heads": 4,
            "inner": 256,
            "vocab": 256,
            "batch": 16,
            "sequence": 64,
        },
    ),
    "gpt6": (
        gpt,
        {
            "layers": 6,
            "width": 192,
            "heads": 6,
            "inner": 512,
            "vocab": 1024,
            "batch": 8,
            "sequence": 128,
        },
    ),
    "gpt6-lora": (
        gpt,
        {
            "layers": 6,
            "width": 192,
            "heads": 6,
            "inner": 512,
            "vocab": 1024,
            "batch": 8,
            "sequence": 128,
            "rank": 8,
        },
    ),
}


# name: (function, its arguments, title), small enough for a GPU in software: case `webgpu`
ON_GPU = {
    "mlp": (*TRAINING["mlp"], "MLP 784-512-512-10, batch 64"),
    **{
        name: (
            gpt,
            {
                "layers": 2,
                "width": 64,
                "heads": 2,
                "inner": 192,
                "vocab": 256,
                "batch": 4,
                "sequence": 32,
                **more,
            },
            f"GPT, 2 layers of 64, 4 x 32 tokens{title}",
        )
        for name, more, title in (("gpt2", {}, ""), ("gpt2-lora", {"rank": 8}, ", LoRA r = 8"))
    },
}
NETWORKS = {**TRAINING, **{name: one[:2] for name, one in ON_GPU.items()}}

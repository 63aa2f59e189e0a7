"""Models built for the benchmark: random weights, and graphs in the form of torch's TorchScript
exporter (optimum).
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

SMOLLM2 = {
    "layers": 30,
    "width": 576,
    "heads": 9,
    "kv_heads": 3,
    "head_dim": 64,
    "inner": 1536,
    "vocab": 49152,
    "theta": 100000.0,
    "epsilon": 1e-5,
}


I64, F32, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL


class Graph:
    """Adds nodes with generated names; each method returns the name of its output."""

    def __init__(self, seed=0):
        self.nodes, self.initializers = [], []
        self.random = np.random.default_rng(seed)
        self.scope = ""

    def op(self, kind, *inputs, out=None, **attributes):
        name = f"{self.scope}/{kind}_{len(self.nodes)}"
        out = out or name + "_output_0"
        inputs = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        self.nodes.append(helper.make_node(kind, inputs, [out], name, **attributes))
        return out

    def constant(self, value):
        """Adds a Python number as exporters do: a Constant node for each use."""
        array = np.asarray(
            value,
            (
                np.float32
                if isinstance(
                    np.asarray(value).flat[0].item() if np.asarray(value).size else 0, float
                )
                else np.int64
            ),
        )
        name = f"{self.scope}/Constant_{len(self.nodes)}_output_0"
        self.nodes.append(
            helper.make_node(
                "Constant", [], [name], name[:-9], value=numpy_helper.from_array(array)
            )
        )
        return name

    def weight(self, name, *shape, scale=None):
        array = self.random.standard_normal(shape, np.float32)
        array *= shape[0] ** -0.5 if scale is None else scale
        return self.array(name, array)

    def array(self, name, array):
        self.initializers.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def size(self, x, axis):
        return self.op("Gather", self.op("Shape", x), axis, axis=0)

    def dims(self, *parts):
        """A shape of Python numbers and of scalars that the graph computes."""
        return self.op(
            "Concat",
            *(self.op("Unsqueeze", p, [0]) if isinstance(p, str) else [p] for p in parts),
            axis=0,
        )

    def expand(self, x, *parts):
        """Tensor.expand: -1 keeps a dimension."""
        shape = self.op("Reshape", self.dims(*parts), [-1], allowzero=0)
        ones = self.op(
            "ConstantOfShape",
            self.op("Shape", shape),
            value=numpy_helper.from_array(np.ones(1, np.int64)),
        )
        return self.op(
            "Expand",
            x,
            self.op("Where", self.op("Equal", shape, self.op("Mul", ones, -1)), ones, shape),
        )

    def model(self, inputs, outputs, opset=18, **more):
        infos = [
            [helper.make_tensor_value_info(n, t, s) for n, t, s in side]
            for side in (inputs, outputs)
        ]
        graph = helper.make_graph(self.nodes, "main_graph", *infos, self.initializers)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)],
            ir_version=8,
            producer_name="edgewise-bench",
            **more,
        )


class CachedAttention:
    """GroupQueryAttention as onnxruntime-genai's model builder writes it: it rotates queries and
    keys, and writes its cache.

    Attributes:
        pasts, presents: (name, type, shape) of the caches.
    """

    def __init__(self, g, heads, kv_heads, head_dim, theta, positions):
        self.g, self.heads, self.kv_heads, self.head_dim = g, heads, kv_heads, head_dim
        counted = g.op("ReduceSum", "attention_mask", [1], keepdims=0)
        self.seen = g.op("Cast", g.op("Sub", counted, [1]), to=TensorProto.INT32)
        size = g.op("Gather", g.op("Shape", "attention_mask"), 1, axis=0)
        self.total = g.op("Cast", size, to=TensorProto.INT32)
        turns = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
        angles = np.outer(np.arange(positions), turns)
        self.cos = g.array("cos_cache", np.cos(angles).astype(np.float32))
        self.sin = g.array("sin_cache", np.sin(angles).astype(np.float32))
        self.pasts, self.presents = [], []

    def layer(self, i, qkv):
        """The attention of layer i; qkv: its queries, keys and values in one tensor."""
        for kind in ("key", "value"):
            shape = ["batch_size", self.kv_heads]
            past = [*shape, "past_sequence_length", self.head_dim]
            present = [*shape, "total_sequence_length", self.head_dim]
            self.pasts.append((f"past_key_values.{i}.{kind}", F32, past))
            self.presents.append((f"present.{i}.{kind}", F32, present))
        y = self.g.op(
            *("GroupQueryAttention", qkv, "", "", self.pasts[-2][0], self.pasts[-1][0]),
            *(self.seen, self.total, self.cos, self.sin),
            domain="com.microsoft",
            num_heads=self.heads,
            kv_num_heads=self.kv_heads,
            scale=self.head_dim**-0.5,
            do_rotary=1,
            rotary_interleaved=0,
        )
        self.g.nodes[-1].output.extend([self.presents[-2][0], self.presents[-1][0]])
        return y


# long: a graph, node by node
def language_model(
    layers,
    width,
    heads,
    kv_heads,
    head_dim,
    inner,
    vocab,
    theta,
    epsilon,
    last_only=False,
    head=False,
    seed=0,
):
    """A Llama with past_key_values.

    Args:
        last_only: compute the logits of the last position only, as a later graph optimization
            would.
        head: add the transposed embedding as the weight of the last product, in the form that
            quantizers recognise.
    """
    g = Graph(seed)

    def rms_norm(x, name):
        x = g.op("Cast", x, to=F32)
        mean = g.op("ReduceMean", g.op("Pow", x, 2.0), [-1], keepdims=1)
        x = g.op("Mul", x, g.op("Div", 1.0, g.op("Sqrt", g.op("Add", mean, epsilon))))
        return g.op(
            "Mul",
            g.array(name, 1 + 0.1 * g.random.standard_normal(width, np.float32)),
            g.op("Cast", x, to=F32),
        )

    def rotate(x, cos, sin):
        half = g.op("Unsqueeze", g.op("Cast", g.op("Div", g.size(x, 3), 2), to=I64), [0])
        low, high = (
            g.op("Slice", x, [0], half, [3], [1]),
            g.op("Slice", x, half, [2**63 - 1], [3], [1]),
        )
        turned = g.op("Concat", g.op("Neg", high), low, axis=-1)
        return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))

    def repeat_heads(x):
        batch, kv, seq, dim = (g.size(x, i) for i in range(4))
        x = g.expand(g.op("Unsqueeze", x, [2]), batch, kv, heads // kv_heads, seq, dim)
        return g.op(
            "Reshape", x, g.dims(batch, g.op("Mul", kv, heads // kv_heads), seq, dim), allowzero=0
        )

    g.scope = "/model"
    embedding = g.weight("model.embed_tokens.weight", vocab, width, scale=width**-0.5)
    x = g.op("Gather", embedding, "input_ids")
    past, tokens = g.size("past_key_values.0.key", 2), g.size(x, 1)
    places = g.op("Range", past, g.op("Add", past, tokens), 1)
    total = g.op("Add", past, g.size(places, 0))
    row = g.op("Unsqueeze", g.op("Unsqueeze", g.op("Unsqueeze", places, [0]), [1]), [3])
    column = g.op(
        "Unsqueeze", g.op("Unsqueeze", g.op("Unsqueeze", g.op("Range", 0, total, 1), [0]), [1]), [2]
    )
    causal = g.op("LessOrEqual", column, row)
    padding = g.op(
        "Cast", g.op("Unsqueeze", g.op("Unsqueeze", "attention_mask", [1]), [2]), to=BOOL
    )
    mask = g.expand(g.op("And", causal, padding), g.size(x, 0), -1, tokens, total)

    g.scope = "/model/rotary_emb"
    frequencies = g.array(
        "model.rotary_emb.inv_freq",
        (theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)).astype(np.float32)[
            None, :, None
        ],
    )
    angles = g.op(
        "MatMul",
        g.expand(frequencies, g.size("position_ids", 0), -1, 1),
        g.op("Cast", g.op("Unsqueeze", "position_ids", [1]), to=F32),
    )
    angles = g.op("Transpose", angles, perm=[0, 2, 1])
    angles = g.op("Concat", angles, angles, axis=-1)
    cos, sin = (g.op("Unsqueeze", g.op("Mul", g.op(f, angles), 1.0), [1]) for f in ("Cos", "Sin"))

    pasts, presents = [], []
    for i in range(layers):
        g.scope = f"/model/layers.{i}"
        name = f"model.layers.{i}."
        h = rms_norm(x, name + "input_layernorm.weight")
        batch, seq = g.size(h, 0), g.size(h, 1)

        def split(part, n):
            y = g.op(
                "MatMul", h, g.weight(f"{name}self_attn.{part}_proj.weight", width, n * head_dim)
            )
            return g.op(
                "Transpose",
                g.op("Reshape", y, g.dims(batch, seq, -1, head_dim), allowzero=0),
                perm=[0, 2, 1, 3],
            )

        q, k, v = (
            rotate(split("q", heads), cos, sin),
            rotate(split("k", kv_heads), cos, sin),
            split("v", kv_heads),
        )
        joined = []
        for kind, new in (("key", k), ("value", v)):
            pasts.append(
                (
                    f"past_key_values.{i}.{kind}",
                    F32,
                    ["batch_size", kv_heads, "past_sequence_length", head_dim],
                )
            )
            presents.append(
                (
                    f"present.{i}.{kind}",
                    F32,
                    ["batch_size", kv_heads, "past_sequence_length + sequence_length", head_dim],
                )
            )
            joined.append(g.op("Concat", pasts[-1][0], new, out=presents[-1][0], axis=-2))
        k, v = map(repeat_heads, joined)
        seen = g.op("Slice", mask, [0], g.op("Unsqueeze", g.size(k, 2), [0]), [3], [1])
        scale = head_dim**-0.25
        scores = g.op(
            "MatMul",
            g.op("Mul", q, scale),
            g.op("Mul", g.op("Transpose", k, perm=[0, 1, 3, 2]), scale),
        )
        scores = g.op(
            "Softmax", g.op("Add", scores, g.op("Where", seen, [0.0], [-np.inf])), axis=-1
        )
        scores = g.op("Where", g.op("IsNaN", scores), [0.0], scores)
        y = g.op("Transpose", g.op("MatMul", scores, v), perm=[0, 2, 1, 3])
        y = g.op("Reshape", y, g.dims(batch, seq, -1), allowzero=0)
        x = g.op(
            "Add", x, g.op("MatMul", y, g.weight(name + "self_attn.o_proj.weight", width, width))
        )
        h = rms_norm(x, name + "post_attention_layernorm.weight")
        gate = g.op("MatMul", h, g.weight(name + "mlp.gate_proj.weight", width, inner))
        gate = g.op("Mul", gate, g.op("Sigmoid", gate))
        h = g.op(
            "Mul", gate, g.op("MatMul", h, g.weight(name + "mlp.up_proj.weight", width, inner))
        )
        x = g.op("Add", x, g.op("MatMul", h, g.weight(name + "mlp.down_proj.weight", inner, width)))
    g.scope = "/model/norm"
    x = rms_norm(x, "model.norm.weight")
    g.scope = "/lm_head"
    if last_only:
        x = g.op("Slice", x, [-1], [2**63 - 1], [1], [1])
    if head:
        table = numpy_helper.to_array(next(t for t in g.initializers if t.name == embedding))
        g.op("MatMul", x, g.array("lm_head.weight", table.T), out="logits")
    else:
        g.op("MatMul", x, g.op("Transpose", embedding, perm=[1, 0]), out="logits")
    inputs = [
        ("input_ids", I64, ["batch_size", "sequence_length"]),
        ("attention_mask", I64, ["batch_size", "past_sequence_length + sequence_length"]),
        ("position_ids", I64, ["batch_size", "sequence_length"]),
    ]
    return g.model(
        inputs + pasts,
        [("logits", F32, ["batch_size", 1 if last_only else "sequence_length", vocab])] + presents,
    )


# long: a graph, node by node
def genai_model(
    layers,
    width,
    heads,
    kv_heads,
    head_dim,
    inner,
    vocab,
    theta,
    epsilon,
    last_only=False,
    positions=2048,
    seed=0,
):
    """The same model with the same weights in the form of onnxruntime-genai's model builder: fused
    norms, one product for q, k and v, and GroupQueryAttention that rotates and writes its cache.
    """
    g = Graph(seed)
    norm = {"axis": -1, "epsilon": epsilon, "stash_type": 1}

    def norm_weight(name):
        return g.array(name, 1 + 0.1 * g.random.standard_normal(width, np.float32))

    g.scope = "/model"
    embedding = g.weight("model.embed_tokens.weight", vocab, width, scale=width**-0.5)
    x = g.op("Gather", embedding, "input_ids")
    attention = CachedAttention(g, heads, kv_heads, head_dim, theta, positions)
    add = None

    def skip_norm(x, add, name):
        """Returns (the residual stream after the addition, its norm)."""
        scale = norm_weight(name)
        if add is None:
            return x, g.op("SimplifiedLayerNormalization", x, scale, **norm)
        h, total = (
            g.op(
                "SkipSimplifiedLayerNormalization",
                x,
                add,
                scale,
                domain="com.microsoft",
                epsilon=epsilon,
            ),
            f"{g.scope}/sum_{len(g.nodes)}",
        )
        g.nodes[-1].output.extend(["", "", total])
        return total, h

    for i in range(layers):
        g.scope = f"/model/layers.{i}"
        name = f"model.layers.{i}."
        x, h = skip_norm(x, add, name + "input_layernorm.weight")
        q, k, v = (
            g.random.standard_normal((width, n * head_dim), np.float32) * width**-0.5
            for n in (heads, kv_heads, kv_heads)
        )
        qkv = g.op(
            "MatMul", h, g.array(name + "attn.qkv_proj.weight", np.concatenate([q, k, v], 1))
        )
        y = attention.layer(i, qkv)
        x, h = skip_norm(
            x,
            g.op("MatMul", y, g.weight(name + "self_attn.o_proj.weight", width, width)),
            name + "post_attention_layernorm.weight",
        )
        gate = g.op("MatMul", h, g.weight(name + "mlp.gate_proj.weight", width, inner))
        h = g.op(
            "Mul",
            g.op("Mul", gate, g.op("Sigmoid", gate)),
            g.op("MatMul", h, g.weight(name + "mlp.up_proj.weight", width, inner)),
        )
        add = g.op("MatMul", h, g.weight(name + "mlp.down_proj.weight", inner, width))
    g.scope = "/lm_head"
    _, x = skip_norm(x, add, "model.norm.weight")
    if last_only:
        x = g.op("Slice", x, [-1], [2**63 - 1], [1], [1])
    table = numpy_helper.to_array(next(t for t in g.initializers if t.name == embedding))
    g.op("MatMul", x, g.array("lm_head.weight", table.T), out="logits")
    inputs = [
        ("input_ids", I64, ["batch_size", "sequence_length"]),
        ("attention_mask", I64, ["batch_size", "total_sequence_length"]),
    ]
    return g.model(
        inputs + attention.pasts,
        [("logits", F32, ["batch_size", 1 if last_only else "sequence_length", vocab])]
        + attention.presents,
    )


def in_4_bits(model, accuracy_level=0):
    """Replaces each MatMul by an initializer with MatMulNBits, symmetric in blocks of 32.

    Quantized by onnxruntime's native code; the Python tool around it requires another package.
    """
    from onnxruntime.capi._pybind_state import quantize_matmul_4bits

    weights = {i.name: i for i in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            continue
        name = node.input[1]
        w = numpy_helper.to_array(weights.pop(name))
        rows, columns = w.shape
        blocks = -(-rows // 32)
        packed, scales, zeros = (
            np.zeros((columns, blocks, 16), np.uint8),
            np.zeros((columns, blocks), np.float32),
            np.zeros((columns, -(-blocks // 2)), np.uint8),
        )
        quantize_matmul_4bits(
            packed,
            np.ascontiguousarray(np.pad(w, ((0, blocks * 32 - rows), (0, 0)))),
            scales,
            zeros,
            32,
            columns,
            rows,
            True,
        )
        for suffix, array in (("_Q4", packed), ("_scales", scales)):
            weights[name + suffix] = numpy_helper.from_array(array, name + suffix)
        node.CopyFrom(
            helper.make_node(
                "MatMulNBits",
                [node.input[0], name + "_Q4", name + "_scales"],
                node.output,
                node.name,
                domain="com.microsoft",
                K=rows,
                N=columns,
                bits=4,
                block_size=32,
                accuracy_level=accuracy_level,
            )
        )
    del model.graph.initializer[:]
    model.graph.initializer.extend(weights.values())
    return model

"""Keys and values kept as halves, where heads are narrow, odd, and wider than a panel, and where
nothing recognises what the model does with them: the numbers of the same graph in onnxruntime.
"""

import numpy as np
import onnxruntime
import pytest
from edgewise.compiler.compile import compile_package
from edgewise.onnx import BytesSource
from edgewise.session.decoder import DecoderModel
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HEADS, GROUPS, TOKENS = 40, 4, 2, 23


def decoder(dim, v_dim, wide):
    """An embedding and one layer of attention. wide: the first token's key is also an output, which
    is not an attention.
    """
    rng = np.random.default_rng(dim)
    weights = {
        n: (rng.standard_normal(s) / np.sqrt(s[0])).astype("f4")
        for n, s in {
            "wte": (VOCABULARY, 32),
            "wq": (32, HEADS * dim),
            "wk": (32, GROUPS * dim),
            "wv": (32, GROUPS * v_dim),
            "wo": (HEADS * v_dim, VOCABULARY),
        }.items()
    }
    weights["wte"] *= 6
    node = helper.make_node
    nodes = [
        node("Gather", ["wte", "input_ids"], ["x"]),
        *(node("MatMul", ["x", "w" + n], [n]) for n in "qkv"),
        node(
            "Attention",
            ["q", "k", "v", "", "past_key_values.0.key", "past_key_values.0.value"],
            ["y", "present.0.key", "present.0.value"],
            q_num_heads=HEADS,
            kv_num_heads=GROUPS,
            is_causal=1,
        ),
        node("MatMul", ["y", "wo"], ["plain" if wide else "logits"]),
    ]
    if wide:
        weights["zero"] = np.array(0)
        nodes += [
            node("Gather", ["present.0.key", "zero"], ["first"], axis=2),
            node("Abs", ["first"], ["size"]),
            node("ReduceMax", ["size"], ["largest"], keepdims=0),
            node("Mul", ["plain", "largest"], ["logits"]),
        ]
    value = helper.make_tensor_value_info
    caches = [("key", dim), ("value", v_dim)]
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            value("input_ids", TensorProto.INT64, [1, "sequence"]),
            *(
                value(f"past_key_values.0.{n}", TensorProto.FLOAT, [1, GROUPS, "past", d])
                for n, d in caches
            ),
        ],
        [
            value("logits", TensorProto.FLOAT, [1, "sequence", VOCABULARY]),
            *(
                value(f"present.0.{n}", TensorProto.FLOAT, [1, GROUPS, "total", d])
                for n, d in caches
            ),
        ],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10
    ).SerializeToString()


@pytest.mark.parametrize(
    "dim,v_dim,wide",
    [
        (5, 5, False),
        (16, 24, False),
        (64, 64, False),
        (64, 64, True),
        (80, 77, False),
        (300, 270, False),
    ],
)
def test_heads_of_any_width(engine, dim, v_dim, wide):
    data = decoder(dim, v_dim, wide)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    ids = [int(i) for i in np.random.default_rng(1).integers(0, VOCABULARY, TOKENS)]
    past = {
        f"past_key_values.0.{n}": np.zeros((1, GROUPS, 0, d), "f4")
        for n, d in (("key", dim), ("value", v_dim))
    }
    rows = []
    for i in ids:
        out = session.run(
            ["logits", "present.0.key", "present.0.value"], {"input_ids": [[i]], **past}
        )
        rows, past = [*rows, out[0][0, 0]], dict(zip(past, out[1:]))
    for cache_dtype, tolerance in (("float32", 1e-5), ("float16", 2e-3)):
        lm = DecoderModel(
            compile_package(
                {"m.onnx": BytesSource(data, "m.onnx")},
                capacity=32,
                chunks=(1, 16),
                cache_dtype=cache_dtype,
            ),
            engine=engine,
        )
        one, many = lm.open(), lm.open()
        for at, i in enumerate(ids):
            got = np.asarray(lm.logits(lm.forward(one, [i])))
            assert np.abs(got - rows[at]).max() <= tolerance * np.abs(rows[at]).max(), (
                cache_dtype,
                at,
            )
        got = np.asarray(lm.logits(lm.forward(many, ids)))
        assert np.abs(got - rows[-1]).max() <= tolerance * np.abs(rows[-1]).max(), cache_dtype
        lm.free()

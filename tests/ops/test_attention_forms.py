"""Forms of attention that onnxruntime's CPU build does not compute, against those that it does."""

import edgewise
import numpy as np
from engines import open_engine
from onnx import helper

MS = "com.microsoft"
R = np.random.default_rng(5)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def run(op, feeds, outputs=1, **attrs):
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(feeds)]
    fed = {n: x for n, x in zip(names, feeds) if n}
    graph = helper.make_graph(
        [helper.make_node(op, names, [f"y{i}" for i in range(outputs)], domain=MS, **attrs)],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in fed.items()
        ],
        [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)],
        ir_version=10,
    )
    return edgewise.InferenceSession(model.SerializeToString(), engine=open_engine("native")).run(
        None, fed
    )


def test_a_mask_of_all_places():
    """[batch, 1, positions, positions] to the mask [batch, queries, keys] of the positions of the
    queries and keys.
    """
    x, w, bias, past, mask = (
        f(2, 5, 12),
        f(12, 48),
        f(48),
        f(2, 2, 4, 3, 4),
        R.integers(0, 2, (2, 1, 10, 10), dtype=np.int32),
    )
    for got, wanted in zip(
        run("Attention", [x, w, bias, mask, past], 2, num_heads=4),
        run("Attention", [x, w, bias, mask[:, 0, 3:8, :8].copy(), past], 2, num_heads=4),
    ):
        np.testing.assert_array_equal(got, wanted)


def test_packed_queries_keys_values():
    q, k, v = f(2, 5, 4, 8), f(2, 5, 4, 8), f(2, 5, 4, 8)
    flat, bias = [x.reshape(2, 5, 32) for x in (q, k, v)], f(96)
    for more in ([], [bias]):
        (wanted,) = run("MultiHeadAttention", [*flat, *more], num_heads=4)
        for packed in ([np.stack([q, k, v], 3), None, None], [flat[0], np.stack([k, v], 3), None]):
            np.testing.assert_allclose(
                run("MultiHeadAttention", [*packed, *more], num_heads=4)[0], wanted, rtol=1e-6
            )
    one = [x[:, :1].copy() for x in flat]
    room = [None, None, f(2, 4, 8, 8), f(2, 4, 8, 8), np.array([3], np.int32)]
    apart = run(
        "DecoderMaskedMultiHeadAttention",
        [*one, *room],
        3,
        num_heads=4,
        past_present_share_buffer=1,
    )
    for got, wanted in zip(
        run(
            "DecoderMaskedMultiHeadAttention",
            [np.concatenate(one, 2), None, None, *room],
            3,
            num_heads=4,
            past_present_share_buffer=1,
        ),
        apart,
    ):
        np.testing.assert_array_equal(got, wanted)

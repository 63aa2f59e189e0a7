"""Forms of attention that onnxruntime's CPU build does not compute, against those that it does."""

import edgewise
import numpy as np
import pytest
from engines import ENGINES, open_engine
from onnx import helper

MS = "com.microsoft"
R = np.random.default_rng(5)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def run(op, feeds, outputs=1, engine="native", **attrs):
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
    return edgewise.InferenceSession(model.SerializeToString(), engine=open_engine(engine)).run(
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


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n, window", [(60, -1), (60, 7), (150, -1), (150, 20), (300, 130)])
def test_blocks_of_queries_and_keys(engine, n, window):
    """Several blocks of queries, of both sizes, which begin and end within blocks of keys and cross
    from one head to the next, against float64.
    """
    heads, shared, dim = 4, 2, 20
    q, k, v = f(1, n, heads * dim), f(1, n, shared * dim), f(1, n, shared * dim)
    at = np.arange(n)
    seen = (at <= at[:, None]) & ((window < 0) | (at > at[:, None] - window))
    split = [x.reshape(n, -1, dim).transpose(1, 0, 2).astype(np.float64) for x in (q, k, v)]
    keys, values = (np.repeat(x, heads // shared, 0) for x in split[1:])
    scores = np.where(seen, split[0] @ keys.transpose(0, 2, 1) / dim**0.5, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = (weights / weights.sum(-1, keepdims=True) @ values).transpose(1, 0, 2)
    feeds = [q, k, v, None, None, np.full(1, n - 1, np.int32), np.array(n, np.int32)]
    attrs = {"num_heads": heads, "kv_num_heads": shared, "local_window_size": window}
    got = run("GroupQueryAttention", feeds, 3, engine=engine, **attrs)[0]
    np.testing.assert_allclose(got, want.reshape(1, n, -1), rtol=1e-5, atol=1e-6)

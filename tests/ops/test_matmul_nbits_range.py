"""MatMulNBits where activations are very small, infinite or NaN, against the definition in
float64.
"""

import edgewise
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

K, N, BLOCK = 128, 24, 32
KINDS = ["normal", "tiny blocks", "inf", "-inf", "nan", "all inf", "largest"]


def session(
    bits: int,
    level: int,
    zeros: bool,
    k: int = K,
    n: int = N,
    block: int = BLOCK,
    kind: type = np.float32,
) -> tuple[edgewise.InferenceSession, np.ndarray]:
    """A session, and the weights that it stands for in float64 [k, n]. kind: of the scales."""
    rng = np.random.default_rng(bits)
    packed = rng.integers(0, 256, (n, k // block, block * bits // 8), dtype=np.uint8)
    scales = rng.uniform(0.5, 2, (n, k // block)).astype(kind)
    points = rng.integers(0, 256, (n, (k // block * bits + 7) // 8), dtype=np.uint8)
    fields = (
        np.stack([packed >> i & (1 << bits) - 1 for i in range(0, 8, bits)], -1)
        .reshape(n, k // block, block)
        .astype(np.float64)
    )
    zero = (
        np.stack([points >> i & (1 << bits) - 1 for i in range(0, 8, bits)], -1).reshape(n, -1)[
            :, : k // block, None
        ]
        if zeros
        else 1 << bits - 1
    )
    weights = ((fields - zero) * scales[:, :, None]).reshape(n, k).T
    inputs = [
        numpy_helper.from_array(packed, "b"),
        numpy_helper.from_array(scales.ravel(), "s"),
    ] + ([numpy_helper.from_array(points.ravel(), "z")] if zeros else [])
    node = helper.make_node(
        "MatMulNBits",
        ["x", "b", "wide", *(["z"] if zeros else [])],
        ["y"],
        domain="com.microsoft",
        K=k,
        N=n,
        bits=bits,
        block_size=block,
        accuracy_level=level,
    )
    widen = helper.make_node("Cast", ["s"], ["wide"], to=TensorProto.FLOAT)
    graph = helper.make_graph(
        [widen, node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", n])],
        inputs,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)],
        ir_version=9,
    )
    return edgewise.InferenceSession(model.SerializeToString()), weights


def check(
    got: np.ndarray, x: np.ndarray, weights: np.ndarray, level: int, block: int = BLOCK
) -> None:
    """As accurate as sums of rounded products can be: relative to the sum of magnitudes of a
    block's largest number times its weights.
    """
    with np.errstate(all="ignore"):
        want = x.astype(np.float64) @ weights
        most = np.repeat(np.abs(x.reshape(len(x), -1, block)).max(-1), block, -1).astype(np.float64)
        bound = (
            most @ np.abs(weights) * (0.5 / 127 if level == 4 else 2.0**-22)
            + 2.0**-149 * (1 + np.abs(weights).sum(0)) * 2
        )
        beyond = ~np.isfinite(want) | (np.abs(want) > np.finfo(np.float32).max)
        wrong = ~(np.abs(got - want) <= bound) & ~beyond
    assert not np.isfinite(got[beyond]).any()
    assert not wrong.any(), (got[wrong][:4], want[wrong][:4], bound[wrong][:4])


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rows_of_any_size(bits, level, zeros):
    s, weights = session(bits, level, zeros)
    rng = np.random.default_rng(1)
    for m in (1, 5, 40):
        for exponent in (
            0,
            -60,
            -70,
            -80,
            -81,
            -95,
            -100,
            -105,
            -110,
            -116,
            -119,
            -122,
            -126,
            -130,
            -140,
            -145,
            -148,
        ):
            x = np.ldexp(rng.standard_normal((m, K)), exponent).astype(np.float32)
            check(s.run(None, {"x": x})[0], x, weights, level)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_unusual_numbers(kind, bits, level):
    s, weights = session(bits, level, False)
    rng = np.random.default_rng(2)
    for m in (1, 40):
        x = rng.standard_normal((m, K)).astype(np.float32)
        if kind == "tiny blocks":
            x[0, :BLOCK] *= 1e-38
            x[-1, -BLOCK:] = 1e-44
        elif kind == "largest":
            x[0, 3], x[-1, 100] = 1e36, -1e36  # times 2 * 255, within float32
        elif kind == "all inf":
            x[:] = np.inf
        elif kind != "normal":
            x[0, 5] = x[-1, -1] = float(kind)
        check(s.run(None, {"x": x})[0], x, weights, level)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_few_rows_have_the_bits_of_one(bits, level, zeros):
    """Tokens that are read ahead are checked together, and are those of runs of one."""
    s, _ = session(bits, level, zeros)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((8, K)).astype(np.float32) * np.ldexp(1, rng.integers(-9, 9, (8, 1)))
    x[6, :BLOCK] = 1e-30  # a block that is too small for digits
    alone = np.concatenate([s.run(None, {"x": x[i : i + 1].astype("f")})[0] for i in range(8)])
    for first, end in [(0, 2), (0, 3), (1, 5), (0, 6), (0, 8)]:
        [got] = s.run(None, {"x": x[first:end].astype(np.float32)})
        np.testing.assert_array_equal(got, alone[first:end])


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("k", "n", "block"),
    [
        *[(32, 4, 32), (96, 21, 32), (160, 70, 32), (448, 66, 64), (384, 131, 128)],
        (1024, 8203, 32),  # several tasks for each of two threads
    ],
)
def test_blocks_that_fill_no_vector(k, n, block, kind, zeros):
    """Numbers of blocks and columns that are no multiples of those that a kernel takes at once."""
    s, weights = session(4, 4, zeros, k, n, block, kind)
    x = np.random.default_rng(4).standard_normal((21, k)).astype(np.float32)
    for m in (1, 3, 7, 8, 21):
        [got] = s.run(None, {"x": x[:m]})
        check(got, x[:m], weights, 4, block)
        if m <= 8:
            alone = [s.run(None, {"x": x[i : i + 1]})[0] for i in range(m)]
            np.testing.assert_array_equal(got, np.concatenate(alone))

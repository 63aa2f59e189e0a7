"""Tests that the loader rejects parameters whose products wrap and work without a bound.

Kernels rely on these checks.
"""

import edgewise
import numpy as np
import pytest
from edgewise.errors import ModelError
from onnx import TensorProto, helper, numpy_helper
from raw_plan import OK, PARAM, SLOT0, Raw, plan, step

WRAPS = [1 << 21, 1 << 21, 1 << 22]  # their product is 2^64
ONE, SIZE, FLOATS = [1, 1, 1], 4096, 131072 + 65536 + 131072
WINDOW = {
    "batch": 1,
    "groups": 1,
    "m": 1,
    "c": 1,
    "x_batch": 64,
    "x_size": [1, 1, 64],
    "y_size": ONE,
    "taps": [1, 1, 2],
    "stride": ONE,
    "dilation": ONE,
    "pad": [0, 0, 0],
}
SLOTS = [(SIZE, True)] * 3 + [(4 * FLOATS, True)]  # x, y, w, scratch
X, Y, W, SCRATCH = ((SLOT0 + i, 0) for i in range(4))
BYTES = {
    "items": 1,
    "n": 1,
    "channels": 16,
    "a_row": 1,
    "y_row": 1,
    "a_type": 2,
    "b_type": 2,
    "y_type": 6,
    "low": 0,
    "high": 255,
    "scratch_bytes": 4096,
    "x_size": ONE,
    "type": 2,
    "planes": 1,
}
KERNELS_OF_WINDOWS = {
    "conv": ({}, [X, W, None, None, Y, SCRATCH]),
    "conv_transpose": ({}, [Y, W, None, X, SCRATCH]),
    "conv_weight_grad": ({}, [X, Y, W, SCRATCH]),
    "pool": ({"planes": 1}, [X, Y, None]),
    "pool_grad": ({"planes": 1}, [X, Y, W]),
    "integer_max_pool": (BYTES, [X, Y]),
    "integer_product": (BYTES, [X, W] + [None] * 8 + [Y, SCRATCH]),
    "integer_depthwise": (BYTES, [X, W] + [None] * 6 + [Y, SCRATCH]),
}


@pytest.fixture
def raw():
    e = Raw()
    yield e
    e.close()


@pytest.mark.parametrize("name", ["stride", "dilation"])
@pytest.mark.parametrize("kernel", KERNELS_OF_WINDOWS)
def test_products_of_strides_do_not_wrap(raw, kernel, name):
    """A product of strides of 2^64 is 0 in 64 bits and was once accepted as small.

    convolution.c then wrote 2^22 floats into an array of 64.
    """
    more, operands = KERNELS_OF_WINDOWS[kernel]
    assert raw.load(plan([step(kernel, WINDOW | more, operands)], SLOTS))[0] == OK
    assert raw.load(
        plan([step(kernel, WINDOW | more | {name: [1, 1, 2**31 - 4096]}, operands)], SLOTS)
    )[0] in (OK, 6)
    assert (
        raw.load(plan([step(kernel, WINDOW | more | {name: WRAPS}, operands)], SLOTS))[0] == PARAM
    )
    assert (
        raw.load(plan([step(kernel, WINDOW | more | {name: [1, 2, 1 << 30]}, operands)], SLOTS))[0]
        == PARAM
    )


def model(op: str, **attributes) -> bytes:
    pool = op.endswith("Pool")
    weights = [] if pool else [numpy_helper.from_array(np.float32([[[[[2, 3]]]]]), "w")]
    node = helper.make_node(
        op,
        ["x"] if pool else ["x", "w"],
        ["y"],
        **({"kernel_shape": [1, 1, 2]} if pool else {}),
        **attributes,
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, "d", "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()


@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool", "LpPool"])
def test_a_model_with_strides_whose_product_wraps(op):
    """With one position per dimension, strides of any size are valid."""
    import onnxruntime

    data, x = model(op, strides=WRAPS), np.arange(64, dtype=np.float32).reshape(1, 1, 1, 1, 64)
    want = onnxruntime.InferenceSession(data).run(None, {"x": x})[0]
    got = edgewise.InferenceSession(data).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
def test_a_model_with_dilations_whose_product_wraps(op):
    data, x = (
        model(op, dilations=WRAPS[::-1]),
        np.arange(64, dtype=np.float32).reshape(1, 1, 1, 1, 64),
    )
    with pytest.raises(ModelError, match="does not fit"):
        edgewise.InferenceSession(data).run(None, {"x": x})


def test_a_model_whose_strides_are_too_large_together():
    """With two positions per dimension the product is checked, and the error names the node."""
    large = [1 << 21, 1 << 21, 1 << 21]
    data = model("Conv", strides=large, pads=[0, 0, 0, *large])
    with pytest.raises(ModelError, match="product"):
        edgewise.InferenceSession(data).run(None, {"x": np.ones((1, 1, 1, 1, 64), np.float32)})


FILL = {"size": 1, "dims": [1, 1, 1, 1, 16, 16], "ys": [0, 0, 0, 0, 16, 1]}
GEMM = {
    "batch0": 1,
    "batch1": 1,
    "m": 4,
    "n": 4,
    "k": 4,
    "a_row": 4,
    "a_col": 1,
    "b_row": 4,
    "b_col": 1,
    "y_row": 4,
    "b_type": 1,
    "alpha": 1.0,
}
ATTENTION = {
    "batch": 2,
    "heads": 2,
    "kv_heads": 2,
    "q_len": 2,
    "kv_len": 2,
    "head_dim": 4,
    "v_dim": 4,
    "kv_type": 1,
    "mask_type": 1,
    "k_s": 4,
    "v_s": 4,
    "y_b": 16,
    "y_h": 4,
    "y_s": 8,
}
ROPE = {
    "batch": 2,
    "heads": 2,
    "seq": 2,
    "head_dim": 4,
    "rotary_dim": 4,
    "c_rows": 2,
    "c_s": 2,
    "y_b": 16,
    "y_h": 4,
    "y_s": 8,
}
NBITS = {
    "m": 2,
    "n": 8,
    "k": 32,
    "bits": 4,
    "block": 16,
    "scale_type": 1,
    "zero_type": 2,
    "a_row": 32,
    "y_row": 8,
}
PRODUCT = {
    "batch": 1,
    "items": 2,
    "n": 4,
    "c": 4,
    "x_size": [1, 1, 2],
    "y_size": [1, 1, 2],
    "taps": ONE,
    "stride": ONE,
    "dilation": ONE,
    "a_item": 8,
    "a_row": 4,
    "y_item": 8,
    "y_row": 4,
    "column_item": 4,
    "a_type": 2,
    "b_type": 2,
    "y_type": 6,
    "high": 255,
    "scratch_bytes": 4096,
}
TWO = [1, 1, 1, 1, 2, 8]
PLAIN = [0, 0, 0, 0, 8, 1]
# kernel: valid parameters, operands, and changes of the parameters that would write elements of the
# output more than once or make the work unbounded
UNBOUNDED = {
    "fill": (
        FILL,
        [X],
        [
            {"ys": [0] * 6},
            {"ys": [0, 0, 0, 0, 0, 1]},
            {"ys": [0, 0, 0, 0, 1, 1]},
            {"ys": [0, 0, 0, 0, 15, 1]},
            {"ys": [0, 0, 0, 0, -8, 1]},
            {"dims": [1024, 1024, 1024, 255, 1, 1], "ys": [0] * 6},
        ],
    ),
    "copy": ({"size": 1, "dims": TWO, "xs": [0] * 6, "ys": PLAIN}, [X, Y], [{"ys": [0] * 6}]),
    "cast": (
        {"x_type": 2, "y_type": 2, "dims": TWO, "xs": [0] * 6, "ys": PLAIN},
        [X, Y],
        [{"ys": [0] * 6}],
    ),
    "unary": ({"type": 1, "dims": TWO, "xs": [0] * 6, "ys": PLAIN}, [X, Y], [{"ys": [0] * 6}]),
    "binary": (
        {"type": 1, "dims": TWO, "as": [0] * 6, "bs": [0] * 6, "ys": PLAIN},
        [X, X, Y],
        [{"ys": [0] * 6}],
    ),
    "where": (
        {"size": 4, "dims": TWO, "cs": [0] * 6, "as": [0] * 6, "bs": [0] * 6, "ys": PLAIN},
        [X, X, X, Y],
        [{"ys": [0] * 6}],
    ),
    "unary_grad": (
        {"dims": TWO, "dys": [0] * 6, "xs": [0] * 6, "dxs": PLAIN},
        [X, X, Y],
        [{"dxs": [0] * 6}],
    ),
    "gather": (
        {"size": 4, "index_type": 6, "outer": 2, "count": 2, "rows": 2, "inner": 2, "y_outer": 4},
        [X, Y, W],
        [{"y_outer": 3}, {"y_outer": 0, "outer": 2**31 - 1}],
    ),
    "trilu": (
        {"size": 4, "batch": 2, "rows": 2, "cols": 2, "x_row": 2, "y_row": 2, "y_batch": 4},
        [X, Y],
        [{"y_row": 1}, {"y_batch": 0}, {"y_batch": 3}],
    ),
    "reduce": (
        {"type": 1, "outer": 2, "n": 2, "inner": 2, "x_n": 1, "y_outer": 2},
        [X, Y],
        [{"y_outer": 1}, {"x_n": 0, "n": 2**31 - 1}],
    ),
    "cumsum": ({"type": 1, "outer": 2, "n": 2, "inner": 2, "y_outer": 4}, [X, Y], [{"y_outer": 3}]),
    "gemm": (
        GEMM,
        [X, Y, None, None, W, None],
        [
            {"y_row": 3},
            {"y_row": 0, "a_row": 0, "m": 2**31 - 1},
            {"batch0": 2, "y0": 4},
            {"a_col": 0, "b_row": 0, "k": 2**31 - 1},
        ],
    ),
    "attention": (
        ATTENTION,
        [X, X, X, None, None, None, Y],
        [{"y_s": 4}, {"y_b": 0}, {"k_s": 0, "v_s": 0, "kv_len": 2**31 - 1}],
    ),
    "rope": (ROPE, [X, X, X, None, Y], [{"y_s": 0}, {"y_h": 3}]),
    "matmul_nbits": (
        NBITS,
        [X, X, X, None, None, None, Y, None],
        [{"y_row": 7}, {"y_row": 0, "a_row": 0, "m": 2**30}],
    ),
    "product": (
        {"type": 7, "dims": [1] * 6, "k": 2, "a_k": 1},
        [X, X, Y],
        [{"a_k": 0, "k": 2**31 - 1}],
    ),
    "integer_product": (
        PRODUCT,
        [X, X] + [None] * 8 + [Y, SCRATCH],
        [{"y_row": 3}, {"y_item": 4}, {"low": 2**31 - 1}, {"high": -(2**31)}],
    ),
    "cross_entropy": (
        {"rows": 2, "classes": 4, "x_row": 4, "label_type": 6},
        [X, X, None, Y, W, SCRATCH],
        [{"x_row": 0}],
    ),
}


@pytest.mark.parametrize("kernel", UNBOUNDED)
def test_work_is_bounded_by_memory(raw, kernel):
    """Outputs address each element once, and summed dimensions take memory.

    Otherwise a plan of a few hundred bytes could run for years.
    """
    params, operands, changes = UNBOUNDED[kernel]
    code, _ = raw.load(plan([step(kernel, params, operands)], SLOTS))
    assert code == OK, raw.error().detail
    for change in changes:
        assert raw.load(plan([step(kernel, params | change, operands)], SLOTS))[0] == PARAM, change


@pytest.mark.parametrize("kernel", ["pool", "pool_grad", "integer_max_pool"])
def test_a_window_far_larger_than_what_it_moves_over(raw, kernel):
    """Taps outside of the input take no time: 2^30 of them, of which 64 are inside, for each of 512
    positions.
    """
    sizes = {"taps": [1, 1, 1 << 30], "pad": [0, 0, 1 << 29], "y_size": [1, 1, 512]}
    more, operands = KERNELS_OF_WINDOWS[kernel]
    code, handle = raw.load(
        plan(
            [step(kernel, WINDOW | more | sizes | {"channels": 2, "op": 1, "batch": 1}, operands)],
            SLOTS,
        )
    )
    assert code == OK
    arrays = [np.ones(size // 4, np.float32) for size, _ in SLOTS]
    for i, a in enumerate(arrays):
        assert raw.bind(handle, i, a.ctypes.data, a.nbytes) == OK
    assert raw.run(handle) == OK
    if kernel == "pool":
        assert (arrays[1][:512] == 1).all()

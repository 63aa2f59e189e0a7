"""Parameters whose products wrap, work that nothing bounds: what the loader must refuse, since kernels rely on it."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgewise
from edgewise.errors import ModelError

from raw_plan import OK, PARAM, SLOT0, Raw, plan, step

WRAPS = [1 << 21, 1 << 21, 1 << 22]  # whose product is 2^64
ONE, SIZE, FLOATS = [1, 1, 1], 4096, 131072 + 65536 + 131072
WINDOW = {"batch": 1, "groups": 1, "m": 1, "c": 1, "x_batch": 64, "x_size": [1, 1, 64], "y_size": ONE, "taps": [1, 1, 2], "stride": ONE, "dilation": ONE, "pad": [0, 0, 0]}
SLOTS = [(SIZE, True)] * 3 + [(4 * FLOATS, True)]  # x, y, w, scratch
X, Y, W, SCRATCH = ((SLOT0 + i, 0) for i in range(4))
BYTES = {"items": 1, "n": 1, "channels": 16, "a_row": 1, "y_row": 1, "a_type": 2, "b_type": 2, "y_type": 6, "low": 0, "high": 255, "scratch_bytes": 4096, "x_size": ONE, "type": 2, "planes": 1}
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
    """A product of strides of 2^64 is 0 in 64 bits: it passed for a small one, and convolution.c wrote 2^22 numbers into an array of 64."""
    more, operands = KERNELS_OF_WINDOWS[kernel]
    assert raw.load(plan([step(kernel, WINDOW | more, operands)], SLOTS))[0] == OK
    assert raw.load(plan([step(kernel, WINDOW | more | {name: [1, 1, 2**31 - 1]}, operands)], SLOTS))[0] in (OK, 6)
    assert raw.load(plan([step(kernel, WINDOW | more | {name: WRAPS}, operands)], SLOTS))[0] == PARAM
    assert raw.load(plan([step(kernel, WINDOW | more | {name: [1, 2, 1 << 30]}, operands)], SLOTS))[0] == PARAM


def model(op: str, **attributes) -> bytes:
    pool = op.endswith("Pool")
    weights = [] if pool else [numpy_helper.from_array(np.float32([[[[[2, 3]]]]]), "w")]
    node = helper.make_node(op, ["x"] if pool else ["x", "w"], ["y"], **({"kernel_shape": [1, 1, 2]} if pool else {}), **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, "d", "h", "w"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool", "LpPool"])
def test_a_model_with_strides_whose_product_wraps(op):
    """One position per dimension: the strides do not matter, whatever they are."""
    import onnxruntime
    data, x = model(op, strides=WRAPS), np.arange(64, dtype=np.float32).reshape(1, 1, 1, 1, 64)
    want = onnxruntime.InferenceSession(data).run(None, {"x": x})[0]
    got = edgewise.InferenceSession(data).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
def test_a_model_with_dilations_whose_product_wraps(op):
    data, x = model(op, dilations=WRAPS[::-1]), np.arange(64, dtype=np.float32).reshape(1, 1, 1, 1, 64)
    with pytest.raises(ModelError, match="does not fit"):
        edgewise.InferenceSession(data).run(None, {"x": x})


def test_a_model_whose_strides_are_too_large_together():
    """Two positions in each dimension, through pads: the product counts, and the error names the node."""
    large = [1 << 21, 1 << 21, 1 << 21]
    data = model("Conv", strides=large, pads=[0, 0, 0, *large])
    with pytest.raises(ModelError, match="product"):
        edgewise.InferenceSession(data).run(None, {"x": np.ones((1, 1, 1, 1, 64), np.float32)})

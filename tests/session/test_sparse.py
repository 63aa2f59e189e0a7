"""Sparse tensors in files are read as dense ones."""

import edgewise
import numpy as np
import pytest
from edgewise.errors import EdgewiseError
from onnx import helper, numpy_helper


def sparse(name, values, places, dims):
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.asarray(values), name),
        numpy_helper.from_array(np.asarray(places, np.int64), name + "_indices"),
        dims,
    )


def session(tensor, as_constant):
    nodes = [helper.make_node("Constant", [], ["c"], sparse_value=tensor)] if as_constant else []
    dtype = tensor.values.data_type
    graph = helper.make_graph(
        [
            *nodes,
            helper.make_node("Add", ["x", tensor.values.name if not as_constant else "c"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", dtype, [])],
        [helper.make_tensor_value_info("y", dtype, None)],
    )
    if not as_constant:
        graph.sparse_initializer.append(tensor)
    return edgewise.InferenceSession(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8
        ).SerializeToString()
    )


@pytest.mark.parametrize("as_constant", [True, False])
@pytest.mark.parametrize(
    "values, places, dims",
    [
        (np.array([1, 2, 3], np.float32), [1, 5, 11], [3, 4]),
        (np.array([1, 2, 3], np.int64), [[0, 1], [1, 1], [2, 3]], [3, 4]),
        (np.array([7], np.float64), [[199, 29]], [200, 30]),
        (np.array([], np.float32), np.zeros((0, 2)), [2, 2]),
    ],
)
def test_read(values, places, dims, as_constant):
    dense = np.zeros(dims, values.dtype)
    if len(values):
        places = np.asarray(places)
        dense.ravel()[places if places.ndim == 1 else np.ravel_multi_index(places.T, dims)] = values
    (y,) = session(sparse("s", values, places, dims), as_constant).run(
        None, {"x": np.zeros([], values.dtype)}
    )
    assert y.dtype == values.dtype and np.array_equal(y, dense)


@pytest.mark.parametrize(
    "places, dims",
    [
        ([1, 5, 12], [3, 4]),
        ([[0, 1], [1, 1], [2, 4]], [3, 4]),
        ([-1, 5, 11], [3, 4]),
        ([0, 1], [3, 4]),
        ([0, 1, 2], [1 << 20, 1 << 20]),
        ([0, 1, 2], [-3, -4]),
    ],
)
def test_refused(places, dims):
    with pytest.raises(EdgewiseError, match="sparse tensor"):
        session(sparse("s", np.array([1, 2, 3], np.float32), places, dims), True)

"""Errors name a node that the model has, with its operator there: not one that it was decomposed
into or fused with.
"""

import re

import edgewise
import numpy as np
import pytest
from edgewise.errors import EdgewiseError
from onnx import helper

LONG = np.array([2, 9], np.int64)  # longer than the sequence
FAR = np.array([0, 99], np.int64)
X = np.zeros((3, 2, 4), np.float32)
# (operator, inputs, attributes): refused in a run, because of a value
BROKEN = {
    "ReverseSequence": ([X, LONG], {}),
    "Scatter": ([X[:2, 0, 0], FAR, X[:2, 0, 0]], {"opset": 10}),
    "ScatterElements": ([X[:2, 0, 0], FAR, X[:2, 0, 0]], {}),
    "GatherND": ([X, FAR.reshape(2, 1)], {}),
    "Gather": ([X[:, 0], FAR], {}),
    "NegativeLogLikelihoodLoss": ([X[:2, 0], FAR], {}),
    "com.microsoft.EmbedLayerNormalization": (
        [FAR.astype(np.int32).reshape(1, 2), None, X[0], X[0], None, X[0, 0], X[0, 0]],
        {},
    ),
    "com.microsoft.GatherND": ([X, FAR.reshape(2, 1).astype(np.int32)], {}),
}


def model(op, inputs, opset=21, name=""):
    """The node between two others, and what is fed to it."""
    domain, _, op = op.rpartition(".")
    names = ["" if x is None else f"in{i}" for i, x in enumerate(inputs)]
    nodes = [
        helper.make_node("Identity", ["in0"], ["first"], "before"),
        helper.make_node(op, ["first", *names[1:]], ["out"], name, domain=domain),
        helper.make_node("Identity", ["out"], ["y"], "after"),
    ]
    feeds = {n: x for n, x in zip(names, inputs) if x is not None}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in feeds.items()
    ]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds


@pytest.mark.parametrize("name", ["", "user's node"])
@pytest.mark.parametrize("op", BROKEN)
def test_a_value(op, name):
    inputs, options = BROKEN[op]
    made, feeds = model(op, inputs, name=name, **options)
    with pytest.raises(EdgewiseError) as e:
        edgewise.InferenceSession(made.SerializeToString()).run(None, feeds)
    assert e.value.where == f"node '{name or 'out'}' ({op})"
    assert not re.search(r"'[^']*~\d", str(e.value))

"""RelativePositionBias against transformers' T5."""

import edgewise
import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from transformers.models.t5.modeling_t5 import T5Attention


@pytest.mark.parametrize("buckets, longest", [(32, 128), (8, 20), (64, 256), (320, 800)])
@pytest.mark.parametrize("both", [0, 1])
def test_buckets(buckets, longest, both):
    """Several lengths in one session. Without `is_bidirectional` keys behind their query, which a
    causal mask hides, have their own buckets in onnxruntime's operator.
    """
    inputs = [
        helper.make_tensor_value_info("table", TensorProto.FLOAT, [buckets, 2]),
        helper.make_tensor_value_info("n", TensorProto.INT64, []),
    ]
    node = helper.make_node(
        "RelativePositionBias",
        ["table", "n", "n"],
        ["y"],
        domain="com.microsoft",
        max_distance=longest,
        is_bidirectional=both,
    )
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = edgewise.InferenceSession(model.SerializeToString())
    rows = np.random.default_rng(0).standard_normal((2, buckets)).astype(np.float32)
    for n in (70, 71, 300, 5, 70):
        distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        place = T5Attention._relative_position_bucket(
            distance, bidirectional=bool(both), num_buckets=buckets, max_distance=longest
        )
        [y] = session.run(None, {"table": rows.reshape(buckets, 2), "n": np.array(n)})
        seen = np.ones((n, n), bool) if both else np.tril(np.ones((n, n), bool))
        np.testing.assert_array_equal(y[0][:, seen], rows[:, place.numpy()][:, seen])
    session.free()

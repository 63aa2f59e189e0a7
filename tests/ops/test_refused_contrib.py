"""Attributes and shapes of com.microsoft's operators that do not fit: an error in words, which
names the node.
"""

import numpy as np
import pytest
from edgewise import InferenceSession
from edgewise.errors import ModelError, UnsupportedOp
from onnx import helper, numpy_helper

from .harness import all_cases

FIRST = {}
for _id, _case in all_cases():
    FIRST.setdefault(_case.name, []).append(_case)

# (operator, which of its cases, changes of attributes, changes of inputs, words of the error)
REFUSED = [
    ("VarlenCausalConvWithState", 0, {"activation": "gelu"}, {}, "activation 'gelu'"),
    ("VarlenCausalConvWithState", 0, {"dilation": 0}, {}, "dilation of 0"),
    (
        "VarlenCausalConvWithState",
        0,
        {"state_update_capacity": 9},
        {},
        "state_update_capacity is 9",
    ),
    ("VarlenCausalConvWithState", 0, {}, {4: np.zeros((3, 5, 9), "f")}, "initial_state"),
    ("VarlenCausalConvWithState", 0, {}, {2: np.zeros((2, 2), "i")}, "cumulative lengths"),
    ("MatMulBlockQuantizedFp8Weight", 0, {"block_size": 0}, {}, "block_size is 0"),
    ("MatMulBlockQuantizedFp8Weight", 0, {"block_size": 64}, {}, "b_scale"),
    ("MatMulBlockQuantizedFp4Weight", 0, {"block_size": 24}, {}, "blocks of 24"),
    ("MatMulBlockQuantizedFp4Weight", 0, {"block_size": -1}, {}, "block_size is -1"),
    ("MatMulBlockQuantizedFp4Weight", 0, {}, {3: np.zeros(2, "f")}, "weight_scale_2"),
    ("PagedAttention", 0, {"num_heads": 3}, {}, "does not divide into 3"),
    ("PagedAttention", 0, {"kv_cache_layout": "RING"}, {}, "'RING'"),
    ("PagedAttention", 0, {"kv_cache_layout": "LATENT"}, {}, "LATENT"),
    ("PagedAttention", 0, {"do_rotary": 1}, {}, "cos_cache"),
    ("PagedAttention", 0, {"k_quant_type": "PER_TENSOR"}, {}, "input 3"),
    ("PagedAttention", 0, {}, {7: np.zeros((2, 3), "i")}, "block_table"),
    ("PagedAttention", 2, {"rotary_offset": 16}, {}, "rotation of 8 elements from 16"),
    ("PagedAttention", 6, {"k_quant_type": "PER_ROW"}, {}, "PER_ROW"),
    ("PagedAttention", 6, {"k_cache_dtype": "int4"}, {}, "4 bits"),
    ("SparseAttention", 0, {"sparse_block_size": 8}, {}, "block mask"),
    ("SparseAttention", 0, {"num_heads": 0}, {}, "does not divide into 0"),
    ("SparseAttention", 0, {"do_rotary": 1}, {}, "cos_cache"),
    ("SparseAttention", 0, {}, {8: np.zeros(3, "i")}, "key_total_sequence_lengths"),
    ("BranchwiseRMSNorm", 2, {"num_branches": 5}, {}, "5 branches"),
    ("BranchwiseRMSNorm", 2, {"num_branches": -4}, {}, "branches"),
    ("HyperConnectionPreMix", 0, {}, {1: np.zeros((2, 4), "f")}, "factors"),
    ("HyperConnectionPostMix", 0, {}, {1: np.zeros((2, 3, 7), "f")}, "block_output"),
    ("EngramGate", 0, {}, {2: np.zeros((2, 3, 7), "f")}, "value"),
    ("NGramHashMapping", 0, {"max_ngram_size": 1}, {}, "n-grams of 1 tokens"),
    ("NGramHashMapping", 0, {"n_head_per_ngram": 3}, {}, "vocab_sizes"),
    ("QEmbedLayerNormalization", 0, {}, {8: np.zeros(3, "f")}, "one number each"),
    ("QEmbedLayerNormalization", 0, {}, {9: None}, "inputs 3, 9 and 14"),
    ("MulInteger", 0, {}, {1: np.zeros(3, "B")}, "one number"),
    ("MulInteger", 0, {}, {2: np.zeros((4, 1), "b")}, "zero point"),
    ("ReduceSumInteger", 0, {"axes": [7]}, {}, "axis 7"),
    ("BiasDropout", 0, {}, {1: np.zeros(4, "f")}, "bias"),
    ("IsAllFinite", 0, {"isinf_only": 1, "isnan_only": 1}, {}, "are both 1"),
    ("GemmaRotaryEmbedding", 0, {}, {2: np.zeros((2, 4, 3, 7), "f")}, "q_rot"),
]


@pytest.mark.parametrize("name, number, attributes, inputs, words", REFUSED)
def test_refused(name, number, attributes, inputs, words):
    model, feeds = FIRST[name][number].model("constant")
    (node,) = model.graph.node
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(k, v) for k, v in attributes.items())])
    for i, x in inputs.items():
        if x is None:
            node.input[i] = ""
        else:
            node.input[i] = f"changed{i}"
            model.graph.initializer.append(numpy_helper.from_array(x, node.input[i]))
    with pytest.raises((ModelError, UnsupportedOp)) as caught:
        session = InferenceSession(model.SerializeToString())
        try:
            session.run(None, feeds)
        finally:
            session.free()
    assert words in str(caught.value)
    assert "the_node" in caught.value.where

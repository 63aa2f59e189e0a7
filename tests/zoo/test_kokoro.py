"""Kokoro-82M in int8: its quantized LSTMs, with the weights of a real model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise import InferenceSession

MODEL = Path(os.environ.get("EDGEWISE_REAL", "/nowhere")) / "kokoro-82m" / "model_int8.onnx"
pytestmark = pytest.mark.skipif(not MODEL.exists(), reason="EDGEWISE_REAL has no Kokoro")


def test_each_quantized_lstm_equals_onnxruntime():
    """Each layer gets the same input in both. (The whole model does not give the same sound: its
    dynamic quantization turns a difference in the last bit into one of a level, and durations are
    rounded.)
    """
    model = onnx.load(MODEL)
    weights = {w.name: w for w in model.graph.initializer}
    layers = [n for n in model.graph.node if n.op_type == "DynamicQuantizeLSTM"]
    assert len(layers) == 6
    rng = np.random.default_rng(0)
    for node in layers:
        width = weights[node.input[1]].dims[1]
        shape = [9, 1, width]
        float_type = onnx.TensorProto.FLOAT
        outputs = [onnx.helper.make_tensor_value_info(o, float_type, None) for o in node.output]
        x = onnx.helper.make_tensor_value_info("x", float_type, shape)
        own = dict.fromkeys(i for i in node.input if i in weights)
        state = [
            onnx.helper.make_tensor(i, float_type, [2, 1, 256], np.zeros(512))
            for i in dict.fromkeys(node.input[5:7])
            if i and i not in weights
        ]
        node.input[0], node.input[4] = "x", ""
        graph = onnx.helper.make_graph(
            [node], "layer", [x], outputs, [*(weights[i] for i in own), *state]
        )
        single = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=9)
        feeds = {"x": rng.standard_normal(shape).astype(np.float32)}
        data = single.SerializeToString()
        expected = onnxruntime.InferenceSession(data).run(None, feeds)
        found = InferenceSession(data).run(None, feeds)
        for ours, theirs in zip(found, expected, strict=True):
            assert np.abs(ours - theirs).max() < 1e-4

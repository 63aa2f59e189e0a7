"""Weights of the files of an encoder-decoder model that have the same names."""

import numpy as np
import onnx
from edgewise.compiler.compile.seq2seq_files import read_graphs
from edgewise.onnx import BytesSource
from onnx import TensorProto, helper, numpy_helper


def file(number, output):
    """(a model with one weight, `w`, in external data, that data)"""
    w = numpy_helper.from_array(np.full((4, 4), number, np.float32), "w")
    onnx.external_data_helper.set_external_data(w, location=f"{number}.bin")
    data = w.raw_data
    w.ClearField("raw_data")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in ("x", output))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], [output])], "g", [x], [y], [w]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return BytesSource(model.SerializeToString(), f"{number}.onnx", {f"{number}.bin": data})


def test_weights_in_external_data_have_names_of_their_own():
    files = {
        "encoder_model.onnx": file(1, "hidden"),
        "decoder_model.onnx": file(2, "logits"),
        "decoder_with_past_model.onnx": file(3, "logits"),
    }
    read = read_graphs(files, None, None)
    tensors = [g.constants["w"] for g in (read.encoder, read.first, read.step)]
    assert len({t.name for t in tensors}) == 3
    for i, t in enumerate(tensors, 1):
        assert (np.frombuffer(t.bytes(), np.float32) == i).all()

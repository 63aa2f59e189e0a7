"""Models, and ways to run artifacts, that the tests of artifacts share."""

import numpy as np
import onnx
import onnxruntime as ort
import torch
from edgewise.extras.onnxruntime_training import artifacts
from edgewise.extras.onnxruntime_training.artifact_files.metadata import TrainingInfo
from edgewise.extras.onnxruntime_training.artifact_files.odtc import read_checkpoint
from edgewise.onnx import FileSource, read_model
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from ..zoo import cases

CASES = sorted(cases().values())


LOSS = {
    "ce": artifacts.LossType.CrossEntropyLoss,
    "mse": artifacts.LossType.MSELoss,
    "bce": artifacts.LossType.BCEWithLogitsLoss,
}


rng = np.random.default_rng(0)


def array(t):
    return np.frombuffer(t.bytes(), {1: "f4", 7: "i8"}[t.dtype]).reshape(t.shape)


def info_of(path):
    return TrainingInfo.of(read_model(FileSource(path)))


def run(model, feeds):
    data = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def linear(scores=("n", 3), weight="fc.weight", opset=17, **more):
    """y = x W + b."""
    graph = h.make_graph(
        [h.make_node("Gemm", ["x", weight, "fc.bias"], ["y"], transB=1)],
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, ["n", 4])],
        [h.make_tensor_value_info("y", T.FLOAT, list(scores))],
        [
            numpy_helper.from_array(rng.normal(size=(3, 4)).astype("f4"), weight),
            numpy_helper.from_array(rng.normal(size=3).astype("f4"), "fc.bias"),
        ],
        **more,
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=8)


def identity(shape, opset=17, kind=T.FLOAT):
    graph = h.make_graph(
        [h.make_node("Identity", ["x"], ["y"])],
        "g",
        [h.make_tensor_value_info("x", kind, shape)],
        [h.make_tensor_value_info("y", kind, shape)],
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=8)


F = torch.nn.functional


def generate(
    model,
    directory,
    requires_grad=("fc.weight", "fc.bias"),
    loss=artifacts.LossType.MSELoss,
    **kwargs,
):
    artifacts.generate_artifacts(
        model, list(requires_grad), loss=loss, artifact_directory=directory, **kwargs
    )
    return info_of(directory / "training_model.onnx"), read_checkpoint(directory / "checkpoint")

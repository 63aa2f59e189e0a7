"""Toy models for the pages of bundlers: one of a picture, one of a sound."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from edgewise.host.session.open import folder_files
from edgewise.task_package import compile_task
from onnx import TensorProto, helper, numpy_helper, save

Shape = list[str | int]


def _save(
    folder: Path,
    nodes: list[tuple[str, list[str], str]],
    shapes: dict[str, Shape],
    constant: object,
) -> None:
    """A model from its first shape to its last; `c` is the constant."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    made = [helper.make_node(op, inputs, [output]) for op, inputs, output in nodes]
    constants = [numpy_helper.from_array(np.asarray(constant, "f4"), "c")]
    graph = helper.make_graph(made, "toy", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 17)]
    folder.mkdir()
    save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "model.onnx")


def make(folder: Path) -> None:
    """picture.edge names the brightest of three colours, sound.edge halves a sound."""
    picture, sound = folder / "picture", folder / "sound"
    nodes = [("GlobalAveragePool", ["pixel_values"], "mean"), ("Flatten", ["mean"], "flat")]
    nodes += [("MatMul", ["flat", "c"], "logits")]
    shapes: dict[str, Shape] = {"pixel_values": ["batch", 3, 8, 8], "logits": ["batch", 3]}
    _save(picture, nodes, shapes, np.eye(3))
    names = {"0": "red", "1": "green", "2": "blue"}
    (picture / "config.json").write_text(json.dumps({"model_type": "vit", "id2label": names}))
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}}
    (picture / "preprocessor_config.json").write_text(json.dumps(settings))
    _save(sound, [("Mul", ["x", "c"], "y")], {"x": [1, 1, "n"], "y": [1, 1, "n"]}, 0.5)
    for model, task in ((picture, "image-classification"), (sound, "audio-to-audio")):
        compile_task(folder_files(str(model))[0], task).save(f"{model}.edge")

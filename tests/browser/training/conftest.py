"""Packages for the tests of training in pages."""

import io
import warnings

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.conformance.vectors import vectors

from ..conftest import MODEL
from .harness import BATCH, SEQUENCE

TEMPLATE = vectors("training_chats")["templates"]["marked"]


@pytest.fixture(scope="session")
def trainable(files):
    """The demo's model with LoRA as /files/trainable.edge, with dropout, so that seeds have an
    effect, and with a chat template.
    """
    from edgewise.compiler.onnx import as_source
    from edgewise.compiler.training.package import compile_training_package
    from edgewise.host.session.open import folder_files

    package = compile_training_package(
        {**folder_files(MODEL)[0], "chat_template.jinja": as_source(TEMPLATE.encode())},
        [
            {
                "name": "lora",
                "batch": BATCH,
                "sequence": SEQUENCE,
                "lora": {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1},
            }
        ],
    )
    (files / "model-in-parts").mkdir(exist_ok=True)
    out = io.BytesIO()
    package.write(out)
    (files / "trainable.edge").write_bytes(out.getvalue())
    return package


@pytest.fixture(scope="module")
def artifacts(files):
    from edgewise.extras.onnxruntime_training import artifacts, onnxblock

    r = np.random.default_rng(0)
    weights = {"w1": (6, 16), "b1": (16,), "w2": (16, 4), "b2": (4,)}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["p"]),
        helper.make_node("Add", ["p", "b1"], ["q"]),
        helper.make_node("Relu", ["q"], ["h"]),
        helper.make_node("MatMul", ["h", "w2"], ["s"]),
        helper.make_node("Add", ["s", "b2"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 4])],
        [
            numpy_helper.from_array(r.standard_normal(shape).astype(np.float32) * 0.3, name)
            for name, shape in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        artifacts.generate_artifacts(
            model,
            ["w1", "b1", "w2"],
            ["b2"],
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=onnxblock.optim.AdamW(),
            artifact_directory=files / "artifacts",
        )
    sizes = [8, 8, 3, 8, 3, 8]
    return {
        "x": [r.standard_normal((n, 6)).astype(np.float32).round(3).tolist() for n in sizes],
        "y": [r.integers(0, 4, n).tolist() for n in sizes],
    }

"""Training steps, updates and resets in any order (tests/conformance/training_updates.json):
PyTorch's losses. Pages run the same in tests/browser/training/test_session.py.
"""

import numpy as np
import pytest
from conformance.vectors import vectors
from edgewise.errors import InputError
from edgewise.training.api import CheckpointState, Module, Optimizer

from .updates import losses_of_torch, write_artifacts

DATA = vectors("training_updates")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("updates")
    write_artifacts(DATA, path)
    return path


def open_module(folder):
    module = Module(
        folder / "training_model.onnx",
        CheckpointState.load_checkpoint(folder / "checkpoint"),
        folder / "eval_model.onnx",
    )
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    optimizer.set_learning_rate(DATA["rate"])
    return module, optimizer


@pytest.mark.parametrize("row", DATA["sequences"], ids=lambda row: row["name"])
def test_sequence(folder, row):
    module, optimizer = open_module(folder)
    losses = []
    for step in row["steps"]:
        kind, _, i = step.partition(" ")
        if kind == "reset":
            module.lazy_reset_grad()
        elif kind == "update":
            optimizer.step()
        else:
            module.train(kind == "train")
            losses.append(
                float(module(np.array(DATA["x"][int(i)], "f4"), np.array(DATA["y"][int(i)])))
            )
    np.testing.assert_allclose(losses, row["losses"], rtol=1e-4)


def test_an_update_needs_a_training_step(folder):
    module, optimizer = open_module(folder)
    with pytest.raises(InputError, match="no gradients"):
        optimizer.step()
    module.eval()
    module(np.array(DATA["x"][0], "f4"), np.array(DATA["y"][0]))
    with pytest.raises(InputError, match="no gradients"):
        optimizer.step()


def test_the_vectors_are_torchs():
    pytest.importorskip("torch")
    assert losses_of_torch(DATA) == {row["name"]: row["losses"] for row in DATA["sequences"]}

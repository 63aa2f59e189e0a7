"""Edgewise's artifacts, trained with edgewise.training.api: PyTorch's losses with ONNX Runtime's
AdamW rule.
"""

import json
import warnings

import numpy as np
import pytest
from edgewise.extras.onnxruntime_training import artifacts, onnxblock
from edgewise.training.api import CheckpointState, Module, Optimizer

from .graphs import CASES, LOSS


@pytest.mark.parametrize(
    "case", [c for c in CASES if "dropout" not in c.name], ids=lambda p: p.name
)
def test_trajectory(case, tmp_path):
    """Twenty steps, in two halves with a checkpoint between them; then the evaluation model."""
    spec = json.loads((case / "spec.json").read_text())
    optim = onnxblock.optim
    optimizer = (
        optim.SGD()
        if spec["optimizer"] == "sgd"
        else optim.AdamW(
            weight_decay=spec["adamw"]["weight_decay"],
            clip_grad=optim.ClipGradNorm(0.2) if "clipnorm" in case.name else None,
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a weight without a name
        artifacts.generate_artifacts(
            str(case / "forward.onnx"),
            spec["requires_grad"],
            loss=LOSS[spec["loss"]],
            optimizer=optimizer,
            artifact_directory=tmp_path,
            batch_norm=spec["train_mode_batchnorm"],
        )
    with np.load(case / "data.npz") as z:
        batch = [z[k] for k in z.files]
    losses, path = [], tmp_path / "checkpoint"
    for _half in range(2):
        state = CheckpointState.load_checkpoint(path)
        module = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
        optimizer = Optimizer(tmp_path / "optimizer_model.onnx", module)
        optimizer.set_learning_rate(spec["lr"])
        for _ in range(10):
            losses.append(float(module(*batch)))
            optimizer.step()
            module.lazy_reset_grad()
        path = tmp_path / "half"
        CheckpointState.save_checkpoint(state, path, include_optimizer_state=True)
    with np.load(case / "torch.npz") as z:
        np.testing.assert_allclose(losses, z["loss_hf"], rtol=1e-4, atol=1e-6)
        for name in spec["requires_grad"]:
            if np.abs(z["grad0/" + name]).max() < 1e-6:
                # a bias in front of a norm has no gradient but rounding, which Adam makes steps of
                continue
            assert np.abs(state.parameters[name].data - z["final/" + name]).max() <= 1e-4 * max(
                1, np.abs(z["final/" + name]).max()
            )
        last = float(z["final_loss_hf"])
    module.eval()
    if not spec["train_mode_batchnorm"]:
        assert float(module(*batch)) == pytest.approx(last, rel=1e-4)

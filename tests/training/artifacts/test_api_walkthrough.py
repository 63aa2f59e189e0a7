"""ONNX Runtime Training's public examples with the import changed, against what 1.19.2 gave
(data/walkthrough).
"""

import inspect
import json
from pathlib import Path

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.errors import InputError
from edgewise.extras.onnxruntime_training import api, artifacts
from edgewise.logic.training.schedules import factor
from edgewise.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

DATA = Path(__file__).parents[1] / "data" / "walkthrough"
RECORDED = json.loads((DATA / "recorded.json").read_text())


@pytest.fixture(scope="module")
def data():
    with np.load(DATA / "data.npz") as z:
        return {n: z[n] for n in z.files}


@pytest.fixture
def folder(tmp_path):
    """The offline phase of the walk-through."""
    model = onnx.load(DATA / "mnist.onnx")
    requires_grad = [param.name for param in model.graph.initializer]
    artifacts.generate_artifacts(
        model,
        optimizer=artifacts.OptimType.AdamW,
        loss=artifacts.LossType.CrossEntropyLoss,
        requires_grad=requires_grad,
        artifact_directory=str(tmp_path),
    )
    assert {p.name for p in tmp_path.iterdir()} >= {
        "training_model.onnx",
        "eval_model.onnx",
        "optimizer_model.onnx",
        "checkpoint",
    }
    return tmp_path


def test_device_phase(folder, data, tmp_path):
    """Training loop with a schedule, evaluation, export, checkpoint: the numbers of ONNX Runtime at
    every step.
    """
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    model = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    optimizer = Optimizer(folder / "optimizer_model.onnx", model)
    losses, evaluations = [], []
    for _ in range(3):
        model.train()
        for i in range(0, 64, 8):
            optimizer.set_learning_rate(
                RECORDED["rates"][len(losses)]
            )  # those that its LinearLRScheduler gave, see test_schedule
            loss = model(data["x"][i : i + 8], data["y"][i : i + 8])
            losses.append(float(loss))
            optimizer.step()
            model.lazy_reset_grad()
        model.eval()
        evaluations.append(float(model(data["x"][:32], data["y"][:32])))
    np.testing.assert_allclose(losses, RECORDED["losses"], rtol=1e-4)
    np.testing.assert_allclose(evaluations, RECORDED["evals"], rtol=1e-4)
    assert [model.get_parameters_size(True), model.get_parameters_size(False)] == RECORDED["sizes"]
    assert [list(model.train().input_names()), list(model.eval().input_names())] == [
        RECORDED["names"]["train"][0],
        RECORDED["names"]["eval"][0],
    ] and len(model.output_names()) == 1
    model.export_model_for_inferencing(folder / "inference.onnx", ["output"])
    for run in (
        onnxruntime.InferenceSession(folder / "inference.onnx"),
        edgewise.InferenceSession(folder / "inference.onnx"),
    ):
        np.testing.assert_allclose(
            run.run(None, {"input": data["x"][:2]})[0], RECORDED["inference"], rtol=1e-3, atol=1e-4
        )
    # the next session resumes from the checkpoint, optimizer state included
    CheckpointState.save_checkpoint(state, folder / "after", include_optimizer_state=True)
    model.train()
    want = []
    optimizer.set_learning_rate(1e-3)
    for i in range(0, 64, 8):
        want.append(float(model(data["x"][i : i + 8], data["y"][i : i + 8])))
        optimizer.step()
        model.lazy_reset_grad()
    again = CheckpointState.load_checkpoint(folder / "after")
    model = Module(folder / "training_model.onnx", again, folder / "eval_model.onnx")
    optimizer = Optimizer(folder / "optimizer_model.onnx", model)
    optimizer.set_learning_rate(1e-3)
    got = []
    for i in range(0, 64, 8):
        got.append(float(model(data["x"][i : i + 8], data["y"][i : i + 8])))
        optimizer.step()
        model.lazy_reset_grad()
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_numbers_of_numpy(folder):
    api.module.set_seed(np.int64(3))
    assert type(api.module._seed) is int and api.module._seed == 3
    api.module.set_seed(0)
    for wrong in (2.5, "3", None):
        with pytest.raises(InputError, match="seed"):
            api.module.set_seed(wrong)
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    model = Module(folder / "training_model.onnx", state)
    optimizer = Optimizer(folder / "optimizer_model.onnx", model)
    LinearLRScheduler(optimizer, np.int64(0), np.int32(24), np.float32(0.5))
    assert type(optimizer.get_learning_rate()) is float and optimizer.get_learning_rate() == 0.5
    for wrong, words in ((np.nan, "not a finite"), (10**400, "not a finite"), ("4", "a number")):
        with pytest.raises(InputError, match=f"warmup_step_count: .*{words}"):
            LinearLRScheduler(optimizer, wrong, 24, 0.5)


def test_schedule(folder, data):
    """LinearLRScheduler as documented: transformers' linear schedule.

    1.19.2 takes warmup_step_count and total_step_count for each other.
    """
    model = Module(
        folder / "training_model.onnx", CheckpointState.load_checkpoint(folder / "checkpoint")
    )
    optimizer = Optimizer(folder / "optimizer_model.onnx", model)
    scheduler, rates = LinearLRScheduler(optimizer, 4, 24, 5e-3), []
    for _ in range(24):
        rates.append(optimizer.get_learning_rate())
        model(data["x"][:8], data["y"][:8])
        optimizer.step()
        scheduler.step()
        model.lazy_reset_grad()
    np.testing.assert_allclose(
        rates, [5e-3 * factor("linear", i, 24, 4) for i in range(24)], rtol=1e-6
    )
    np.testing.assert_allclose(RECORDED["rates"], [5e-3 * i / 24 for i in range(24)], rtol=1e-6)


def test_federated_averaging(folder, data):
    """Three clients train on their own rows; the server averages flat buffers; what goes over the
    wire is a difference.
    """

    def client():
        state = CheckpointState.load_checkpoint(folder / "checkpoint")
        return Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")

    server, losses = client(), []
    for _ in range(3):
        before = server.get_contiguous_parameters(trainable_only=True)
        deltas = []
        for c in range(3):
            model = client()
            optimizer = Optimizer(folder / "optimizer_model.onnx", model)
            optimizer.set_learning_rate(1e-2)
            model.copy_buffer_to_parameters(before, trainable_only=True)
            model.train()
            for i in range(c * 16, c * 16 + 16, 8):
                model(data["x"][i : i + 8], data["y"][i : i + 8])
                optimizer.step()
                model.lazy_reset_grad()
            deltas.append(
                model.get_contiguous_parameters(trainable_only=True).numpy() - before.numpy()
            )
        server.copy_buffer_to_parameters(before.numpy() + np.mean(deltas, 0), trainable_only=True)
        server.eval()
        losses.append(float(server(data["x"], data["y"])))
    np.testing.assert_allclose(losses, RECORDED["federated"], rtol=1e-4)
    assert before.shape() == [1810] and before.numpy().dtype == np.float32
    for wrong in (np.zeros(1809, "f4"), np.zeros(1810, "f8"), "parameters"):
        with pytest.raises(edgewise.EdgewiseError):
            server.copy_buffer_to_parameters(wrong)


def test_parameters_and_properties(folder, data):
    """What the documentation shows of a checkpoint's parameters, and the difference of two
    checkpoints by name.
    """
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    model = Module(folder / "training_model.onnx", state)
    assert (
        "fc1.weight" in state.parameters
        and "fc9" not in state.parameters
        and {n for n, _ in state.parameters} == {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}
    )
    p = state.parameters["fc1.weight"]
    before = np.array(p.data)
    assert (
        p.name == "fc1.weight"
        and p.requires_grad
        and p.grad.shape == before.shape == (24, 64)
        and not p.grad.any()
    )
    model(data["x"][:8], data["y"][:8])
    assert p.grad.shape == (24, 64) and np.abs(p.grad).max() > 0
    Optimizer(folder / "optimizer_model.onnx", model).step()
    assert np.abs(state.parameters["fc1.weight"].data - before).max() > 0
    p.data = before
    assert np.array_equal(state.parameters["fc1.weight"].data, before)
    state.properties["epoch"], state.properties["best"], state.properties["note"] = 3, 0.25, "half"
    CheckpointState.save_checkpoint(state, folder / "kept")
    back = CheckpointState.load_checkpoint(folder / "kept")
    assert dict(back.properties) == {"epoch": 3, "best": 0.25, "note": "half"} and np.array_equal(
        back.parameters["fc1.weight"].data, before
    )
    with pytest.raises(KeyError):
        state.parameters["none"]


@pytest.mark.parametrize("name", [n for n in RECORDED["signatures"] if n != "generate_artifacts"])
def test_signatures(name):
    """The same methods, parameters, order and defaults; further parameters may follow."""
    mine = getattr(api, name)
    for method, parameters in RECORDED["signatures"][name].items():
        if name == "CheckpointState" and method == "__init__":
            continue  # its argument is an object of their C++ side
        if parameters == "property":
            assert method in ("parameters", "properties")
            continue
        have = list(inspect.signature(getattr(mine, method)).parameters.values())
        for (theirs, default, kind), p in zip(parameters, have, strict=len(have) < len(parameters)):
            assert (
                p.name == theirs
                and str(p.kind) == kind
                and (None if p.default is p.empty else p.default) == default
            ), (method, theirs, p)
        assert all(p.default is not p.empty for p in have[len(parameters) :])


def test_generate_artifacts_signature():
    have = list(inspect.signature(artifacts.generate_artifacts).parameters.values())
    for theirs, default, _ in RECORDED["signatures"]["generate_artifacts"]:
        p = next((p for p in have if p.name == theirs), None)
        if theirs == "extra_options" or p is None:
            assert (
                any(p.kind is p.VAR_KEYWORD or p.name == theirs for p in have)
                or theirs == "extra_options"
            ), theirs
            continue
        assert (None if p.default is p.empty else p.default) == default, theirs
    assert [p.name for p in have[:2]] == ["model", "requires_grad"]


def test_calls_that_are_wrong(folder, data):
    """The session stays usable."""
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    model = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    optimizer = Optimizer(folder / "optimizer_model.onnx", model)
    with pytest.raises(edgewise.EdgewiseError, match="no gradients yet"):
        optimizer.step()
    want = float(model(data["x"][:8], data["y"][:8]))
    model.lazy_reset_grad()
    before = model.get_contiguous_parameters().numpy()
    for wrong in (
        (data["x"][:8, :60], data["y"][:8]),
        (data["x"][:8], data["y"][:8] + 10),
        (data["x"][:8], data["y"][:8].astype("f4")),
        (data["x"][:8],),
        (data["x"][:8], data["y"][:5]),
    ):
        with pytest.raises(edgewise.EdgewiseError):
            model(*wrong)
    assert (
        np.array_equal(model.get_contiguous_parameters().numpy(), before)
        and float(model(data["x"][:8], data["y"][:8])) == want
    )
    with pytest.raises(edgewise.EdgewiseError):
        CheckpointState.load_checkpoint(DATA / "mnist.onnx")
    with pytest.raises(edgewise.EdgewiseError):
        Module(DATA / "data.npz", CheckpointState.load_checkpoint(folder / "checkpoint"))

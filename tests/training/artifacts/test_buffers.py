"""Parameters as one buffer, as servers of federated learning send them: with frozen parameters, for
modules of nominal checkpoints, and gradients before the first step. PyTorch computes the model.
"""

import edgewise
import numpy as np
import pytest
import torch
from edgewise.errors import InputError
from edgewise.extras.onnxruntime_training import artifacts
from edgewise.training.api import CheckpointState, Module, Optimizer, OrtValue
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(0)
SHAPES = {"w1": (4, 5), "b1": (5,), "w2": (5, 3), "b2": (3,)}
VALUES = {n: RNG.standard_normal(s).astype("f4") for n, s in SHAPES.items()}
TRAINED, FROZEN = ["w2", "b2"], ["w1", "b1"]
X, Y = RNG.standard_normal((6, 4)).astype("f4"), np.array([0, 2, 1, 1, 0, 2])


@pytest.fixture(scope="module", params=["SGD", "AdamW"])
def folder(request, tmp_path_factory):
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["a"]),
            helper.make_node("Relu", ["a"], ["r"]),
            helper.make_node("Gemm", ["r", "w2", "b2"], ["logits"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(v, n) for n, v in VALUES.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    path = tmp_path_factory.mktemp(request.param)
    artifacts.generate_artifacts(
        model,
        requires_grad=TRAINED,
        frozen_params=FROZEN,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType[request.param],
        artifact_directory=path,
        nominal_checkpoint=True,
    )
    return path


def load(folder, checkpoint="checkpoint"):
    state = CheckpointState.load_checkpoint(folder / checkpoint)
    module = Module(folder / "training_model.onnx", state)
    return state, module, Optimizer(folder / "optimizer_model.onnx", module)


def expected(values):
    """The loss and the gradients, by PyTorch."""
    p = {n: torch.tensor(v, requires_grad=n in TRAINED) for n, v in values.items()}
    hidden = torch.relu(torch.tensor(X) @ p["w1"] + p["b1"])
    loss = torch.nn.functional.cross_entropy(hidden @ p["w2"] + p["b2"], torch.tensor(Y))
    loss.backward()
    return float(loss.detach()), {n: p[n].grad.numpy() for n in TRAINED}


def train(module, optimizer, steps):
    losses = []
    for _ in range(steps):
        losses.append(float(module(X, Y)))
        optimizer.step()
        module.lazy_reset_grad()
    return losses


def test_gradients_before_the_first_step(folder):
    state, module, optimizer = load(folder)
    for name in TRAINED:
        grad = state.parameters[name].grad
        assert grad.shape == SHAPES[name] and grad.dtype == np.float32 and not grad.any()
    assert all(state.parameters[n].grad is None for n in FROZEN)
    assert CheckpointState.load_checkpoint(folder / "checkpoint").parameters["w2"].grad is None
    loss, grads = expected(VALUES)
    assert float(module(X, Y)) == pytest.approx(loss, rel=1e-5)
    for name in TRAINED:
        np.testing.assert_allclose(state.parameters[name].grad, grads[name], rtol=1e-4, atol=1e-6)


def test_the_buffer_of_before(folder):
    """Frozen parameters are in the buffer; writing what they are already changes nothing."""
    state, module, optimizer = load(folder)
    before = module.get_contiguous_parameters(trainable_only=False)
    assert isinstance(before, edgewise.OrtValue) and before.shape() == [20 + 5 + 15 + 3]
    first = train(module, optimizer, 2)
    module.copy_buffer_to_parameters(before, trainable_only=False)
    after = module.get_contiguous_parameters(trainable_only=False)
    assert np.array_equal(after.numpy(), before.numpy())
    assert float(module(X, Y)) == first[0]


def test_other_values_of_frozen_parameters(folder, tmp_path):
    """They are used from then on, and the moments of the optimizer stay: as in a module of a
    checkpoint that is saved and loaded in between.
    """
    state, module, optimizer = load(folder)
    train(module, optimizer, 3)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    other = {n: VALUES[n] * 2 + 1 for n in FROZEN}
    for name in FROZEN:
        state.parameters[name].data = other[name]
    current = {n: np.asarray(state.parameters[n].data) for n in SHAPES}
    assert all(np.array_equal(current[n], other[n]) for n in FROZEN)
    losses = train(module, optimizer, 3)
    assert losses[0] == pytest.approx(expected(current)[0], rel=1e-5)

    again = CheckpointState.load_checkpoint(tmp_path / "saved")
    for name in FROZEN:
        again.parameters[name].data = other[name]
    fresh = Module(folder / "training_model.onnx", again)
    assert train(fresh, Optimizer(folder / "optimizer_model.onnx", fresh), 3) == losses
    for name in TRAINED:
        assert np.array_equal(state.parameters[name].data, again.parameters[name].data)
    assert optimizer.steps == 6


def test_frozen_parameters_between_a_gradient_and_its_step(folder):
    """Accumulated gradients stay those of the values that they were computed with."""
    state, module, optimizer = load(folder)
    module(X, Y)
    grads = {n: np.asarray(state.parameters[n].grad) for n in TRAINED}
    state.parameters["b1"].data = VALUES["b1"] - 1
    assert all(np.array_equal(state.parameters[n].grad, grads[n]) for n in TRAINED)
    optimizer.step()


def test_plans_are_compiled_once_for_all_frozen_parameters(folder, monkeypatch):
    """And a module whose plans cannot be compiled keeps what it has learnt."""
    state, module, optimizer = load(folder)
    train(module, optimizer, 2)
    learnt = {n: np.asarray(state.parameters[n].data) for n in TRAINED}
    made, make = [], Module._make

    def count(self, *args):
        made.append(args)
        if len(made) == 1:
            raise MemoryError
        return make(self, *args)

    monkeypatch.setattr(Module, "_make", count)
    buffer = np.asarray(module.get_contiguous_parameters(trainable_only=False).numpy())
    module.copy_buffer_to_parameters(buffer * 2, trainable_only=False)
    module.copy_buffer_to_parameters(np.concatenate([learnt[n].ravel() for n in TRAINED]))
    with pytest.raises(MemoryError):
        module(X, Y)
    assert all(np.array_equal(state.parameters[n].data, learnt[n]) for n in TRAINED)
    current = {n: np.asarray(state.parameters[n].data) for n in SHAPES}
    assert all(np.array_equal(current[n], VALUES[n] * 2) for n in FROZEN)
    assert float(module(X, Y)) == pytest.approx(expected(current)[0], rel=1e-5)
    module(X, Y)
    assert len(made) == 2


def test_nominal_checkpoint(folder):
    """A client that gets its parameters from a server as a buffer."""
    state, module, optimizer = load(folder, "nominal_checkpoint")
    assert module.get_parameters_size(trainable_only=False) == 43
    for read in (
        lambda: module(X, Y),
        lambda: module.get_contiguous_parameters(),
        lambda: state.parameters["w2"].data,
        lambda: CheckpointState.save_checkpoint(state, folder / "none"),
    ):
        with pytest.raises(InputError, match="nominal"):
            read()
    _, server, other = load(folder)
    buffer = server.get_contiguous_parameters(trainable_only=False)
    values = OrtValue.ortvalue_from_numpy(buffer.numpy())
    module.copy_buffer_to_parameters(values, trainable_only=False)
    assert train(module, optimizer, 3) == train(server, other, 3)


def test_shapes_of_a_nominal_checkpoint(folder):
    """Those of the model, once there is a module."""
    state, _, _ = load(folder, "nominal_checkpoint")
    with pytest.raises(InputError, match=r"float32\[4, 5\] is expected"):
        state.parameters["w1"].data = np.ones((3, 3), "f4")


def test_ort_values_as_batches(folder):
    _, module, _ = load(folder)
    batch = [OrtValue.ortvalue_from_numpy(a) for a in (X, Y)]
    loss = module(*batch)
    assert isinstance(loss, OrtValue) and loss and loss.shape() == []
    assert float(loss.numpy()) == pytest.approx(expected(VALUES)[0], rel=1e-5)
    assert isinstance(module(X, Y), np.ndarray | np.generic)


def test_nominal_checkpoint_and_the_trained_parameters_alone(folder):
    state, module, _ = load(folder, "nominal_checkpoint")
    module.copy_buffer_to_parameters(np.zeros(18, "f4"), trainable_only=True)
    with pytest.raises(InputError, match="2 parameters have no values"):
        module(X, Y)
    for name in FROZEN:
        state.parameters[name].data = VALUES[name]
    assert float(module(X, Y)) == pytest.approx(np.log(3), rel=1e-5)

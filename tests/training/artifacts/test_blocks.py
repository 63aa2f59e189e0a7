"""onnxblock: losses and other blocks against PyTorch."""

import subprocess
import sys
from pathlib import Path

import edgewise
import numpy as np
import pytest
import torch
from edgewise.errors import EdgewiseError, InputError
from edgewise.extras.onnxruntime_training import onnxblock
from onnx import TensorProto as T
from onnx import helper as h

from .graphs import F, identity, linear, rng, run


class Forward(onnxblock.ForwardBlock):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def build(self, *names):
        return self.block(*names)


def forward(model, block, *names):
    with onnxblock.base(model):
        f = Forward(block)
        f(*(names or [o.name for o in model.graph.output]))
    return f.to_model_proto()


X, TARGET = rng.normal(size=(5, 3)).astype("f4") * 3, rng.uniform(size=(5, 3)).astype("f4")


W, P = rng.uniform(0.5, 2, size=3).astype("f4"), rng.uniform(0.5, 2, size=3).astype("f4")


@pytest.mark.parametrize("opset", [11, 13, 15, 18, 21])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "make, theirs",
    [
        (lambda r: onnxblock.loss.MSELoss(r), lambda x, t, r: F.mse_loss(x, t, reduction=r)),
        (
            lambda r: onnxblock.loss.L1Loss(reduction=r),
            lambda x, t, r: F.l1_loss(x, t, reduction=r),
        ),
        (
            lambda r: onnxblock.loss.BCEWithLogitsLoss(reduction=r),
            lambda x, t, r: F.binary_cross_entropy_with_logits(x, t, reduction=r),
        ),
        (
            lambda r: onnxblock.loss.BCEWithLogitsLoss(W, r, P),
            lambda x, t, r: F.binary_cross_entropy_with_logits(
                x, t, torch.tensor(W), reduction=r, pos_weight=torch.tensor(P)
            ),
        ),
    ],
    ids=["mse", "l1", "bce", "bce_weighted"],
)
def test_losses(make, theirs, reduction, opset):
    (got,) = run(forward(identity(["n", 3], opset), make(reduction)), {"x": X, "target": TARGET})
    np.testing.assert_allclose(
        got, theirs(torch.tensor(X), torch.tensor(TARGET), reduction).numpy(), rtol=2e-6, atol=1e-6
    )


def test_binary_cross_entropy_does_not_overflow():
    x, t = np.array([[200, -200, 200, -200, 0]], "f4"), np.array([[1, 0, 0, 1, 0.5]], "f4")
    (got,) = run(
        forward(identity([1, 5]), onnxblock.loss.BCEWithLogitsLoss(reduction="none")),
        {"x": x, "target": t},
    )
    np.testing.assert_allclose(got, [[0, 0, 200, 200, np.log(2)]], rtol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "kwargs",
    [{}, {"weight": W}, {"weight": list(map(float, W)), "ignore_index": -100}, {"ignore_index": 1}],
    ids=["plain", "weight", "weight_ignore", "ignore"],
)
def test_cross_entropy(kwargs, reduction):
    labels = np.array([0, 2, 1, 1, 0])
    if kwargs.get("ignore_index") == -100:
        labels[1] = -100
    (got,) = run(
        forward(identity(["n", 3]), onnxblock.loss.CrossEntropyLoss(reduction=reduction, **kwargs)),
        {"x": X, "labels": labels},
    )
    want = F.cross_entropy(
        torch.tensor(X),
        torch.tensor(labels),
        None if "weight" not in kwargs else torch.tensor(W),
        reduction=reduction,
        ignore_index=kwargs.get("ignore_index", -100),
    )
    np.testing.assert_allclose(got, want.numpy(), rtol=2e-6)


def test_cross_entropy_of_sequences_and_of_pictures():
    x, labels = rng.normal(size=(2, 5, 3)).astype("f4"), rng.integers(0, 3, (2, 5))
    want = F.cross_entropy(torch.tensor(x).reshape(-1, 3), torch.tensor(labels).reshape(-1))
    model = forward(identity(["n", "length", 3]), onnxblock.loss.CrossEntropyLoss())
    assert [
        [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]
        for i in model.graph.input
    ] == [["n", "length", 3], ["n", "length"]]
    np.testing.assert_allclose(run(model, {"x": x, "labels": labels})[0], want, rtol=2e-6)
    picture, labels = rng.normal(size=(2, 3, 4, 5)).astype("f4"), rng.integers(0, 3, (2, 4, 5))
    base = identity([2, 3, 4, 5])
    base.graph.input.append(h.make_tensor_value_info("mask", T.INT64, [2, 4, 5]))
    (got,) = run(
        forward(base, onnxblock.loss.CrossEntropyLoss(), "y", "mask"),
        {"x": picture, "mask": labels},
    )
    np.testing.assert_allclose(
        got, F.cross_entropy(torch.tensor(picture), torch.tensor(labels)), rtol=2e-6
    )
    artifacts_opset11 = linear(opset=11)
    with pytest.raises(InputError, match="operator set 11"):
        forward(artifacts_opset11, onnxblock.loss.CrossEntropyLoss())


# long: a table of blocks
def test_blocks(tmp_path):
    b = onnxblock.blocks

    class All(onnxblock.ForwardBlock):
        def build(self, x):
            y = b.Add()(b.Sub()(b.Mul()(b.Div()(x, b.Constant(2.0)()), x), b.Neg()(x)), b.Abs()(x))
            y = b.Log()(b.Sigmoid()(b.Pow(2.0)(y)))
            z = b.Linear(3, 2)(b.Clip(-0.5, 0.5)(y))
            return (
                y,
                b.ReduceMean()(z),
                b.ReduceSum(keepdims=False)(z),
                b.Cast(T.INT64)(x),
                b.Linear(3, 1, bias=False, alpha=0.5)(x),
                b.Clip(clip_max=1)(x),
                b.PassThrough()(x)[0],
            )

    with onnxblock.base(identity(["n", 3])) as handle:
        f = All()
        f("y")
        assert handle.has_path is False and len(handle.model.graph.output) == 7
    y, mean, total, cast, scaled, clipped, same = run(f.to_model_proto(), {"x": X})
    np.testing.assert_allclose(
        y, np.log(1 / (1 + np.exp(-((X / 2 * X + X + abs(X)) ** 2)))), rtol=1e-4, atol=1e-6
    )
    assert (
        mean.shape == (1, 1)
        and total.shape == ()
        and total == pytest.approx(mean[0, 0] * 10, rel=1e-4)
        and np.array_equal(cast, X.astype("i8"))
        and scaled.shape == (5, 1)
    )
    assert np.array_equal(clipped, np.minimum(X, 1)) and np.array_equal(same, X)
    m = forward(
        identity([2], kind=T.INT64), b.LabelEncoder(keys_int64s=[1, 2], values_int64s=[10, 20])
    )
    assert run(m, {"x": np.array([2, 1])})[0].tolist() == [20, 10]
    with onnxblock.base(identity(["n", 3])) as handle:
        assert (
            b.InputLike("x")("z") == "z"
            and handle.model.graph.input[1].type == handle.model.graph.input[0].type
            and b.InputLike("y")() == handle.model.graph.input[2].name
        )
        with pytest.raises(LookupError, match="'q' is not a graph input"):
            b.InputLike("q")()
        b.ReduceAllL2()("x", "y")
    with onnxblock.empty_base() as handle:
        handle.model.graph.input.append(h.make_tensor_value_info("x", T.FLOAT, [1]))
        b.SequenceConstruct()("x", "x")
        with (
            pytest.raises(RuntimeError, match="another model is open"),
            onnxblock.base(identity([1])),
        ):
            pass
    for wrong in (
        lambda: b.Add()("a", "b"),
        lambda: Forward(b.Neg()).to_model_proto(),
        lambda: onnxblock.loss.MSELoss("max"),
        lambda: onnxblock.base(None).__enter__(),
        lambda: onnxblock.save_checkpoint(None, "x"),
    ):
        with pytest.raises(RuntimeError) as e:
            wrong()
        assert isinstance(e.value, InputError) and e.value.remedy


def test_without_the_onnx_package():
    """The modules can be imported; using them raises an error that names the missing package."""
    script = """
import sys
sys.modules["onnx"] = None
from edgewise.errors import InputError
from edgewise.training import artifacts, onnxblock
from edgewise.extras.onnxruntime_training.artifact_files.metadata import read_optimizer_model
try:
    artifacts.generate_artifacts("model.onnx")
except InputError as e:
    print(e)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(Path(edgewise.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert "pip install onnx" in done.stdout, done.stderr
    assert issubclass(InputError, EdgewiseError)

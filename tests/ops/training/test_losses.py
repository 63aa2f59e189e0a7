"""Cross entropy against PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from edgewise.compiler.bind.autodiff import add_gradients
from edgewise.compiler.declare.dtypes import FLOAT
from edgewise.errors import InputError

from ..gradients.compare import check, f
from ..gradients.model import gradients, node_model
from .steps import close, run

# ---- losses ----
LOSSES = [
    ((6, 5), {}),
    ((40, 300), {}),
    ((3, 4, 5), {}),
    ((2, 7, 3, 2), {}),
    ((6, 5), {"weight": True}),
    ((6, 5, 4), {"weight": True, "ignore_index": 2}),
    ((30, 11), {"ignore_index": -100}),
    ((3, 4099), {}),
]


def _labels(shape, ignore, dtype):
    y = np.random.default_rng(0).integers(0, shape[1], (shape[0], *shape[2:])).astype(dtype)
    if ignore is not None:
        y.flat[::3] = ignore
    return y


@pytest.mark.parametrize("shape, options", LOSSES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_cross_entropy(engine, shape, options, reduction, dtype):
    ignore = options.get("ignore_index")
    y, weight = (
        _labels(shape, ignore, dtype),
        (np.abs(f(shape[1])) + 0.1 if options.get("weight") else None),
    )
    attrs = {"reduction": reduction} | ({"ignore_index": ignore} if ignore is not None else {})
    torch_attrs = {
        "weight": None if weight is None else torch.tensor(weight),
        "reduction": reduction,
    } | ({"ignore_index": ignore} if ignore is not None else {})
    extra, fixed = ([weight], (2,)) if weight is not None else ([], ())
    check(
        engine,
        "SoftmaxCrossEntropyLoss",
        [f(*shape) * 2, y, *extra],
        lambda x, *_: F.cross_entropy(x, torch.tensor(y).long(), **torch_attrs),
        fixed=fixed,
        **attrs,
    )
    check(
        engine,
        "NegativeLogLikelihoodLoss",
        [f(*shape), y, *extra],
        lambda x, *_: F.nll_loss(x, torch.tensor(y).long(), **torch_attrs),
        fixed=fixed,
        **attrs,
    )


def test_log_probabilities(engine):
    """The gradient also flows through SoftmaxCrossEntropyLoss' second output."""
    x, y = f(6, 5, 2), _labels((6, 5, 2), None, "int64")
    model, feeds = node_model("SoftmaxCrossEntropyLoss", [x, y], outputs=2)
    seeds = {"y0": np.float32(2), "y1": f(6, 5, 2)}
    _, got, _, _ = gradients(model, feeds, engine, seeds=seeds)
    t = torch.tensor(x, requires_grad=True)
    close(
        got["x0"],
        torch.autograd.grad(
            2 * F.cross_entropy(t, torch.tensor(y))
            + (torch.log_softmax(t, 1) * torch.tensor(seeds["y1"])).sum(),
            t,
        )[0],
    )


def smoothed(engine, x, y, weight=None, **attrs):
    """(loss, gradient in x) of the op CrossEntropy."""
    feeds = {"x": x, "y": y} | ({"w": weight} if weight is not None else {})

    def build(g, x, y, w=None):
        loss = g.op("CrossEntropy", x, y, w, domain="edgewise", **attrs)
        seed = g.constant(FLOAT, loss.shape, [0.5] * int(np.prod(loss.shape)))
        return {"loss": loss, "dx": add_gradients(g.bound, [(loss, seed)], [x])[0]}

    (out,) = run(engine, build, feeds)
    return out["loss"], out["dx"]


@pytest.mark.parametrize(
    "shape, ignore, weighted",
    [((6, 5), None, False), ((9, 67), -100, False), ((9, 67), 3, True), ((4, 5, 3), -1, True)],
    ids=str,
)
@pytest.mark.parametrize("smoothing", [0.1, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_label_smoothing(engine, shape, ignore, weighted, smoothing, reduction):
    x, y, weight = (
        f(*shape) * 2,
        _labels(shape, ignore, "int64"),
        np.abs(f(shape[1])) + 0.1 if weighted else None,
    )
    attrs = {"label_smoothing": smoothing, "reduction": reduction} | (
        {"ignore_index": ignore} if ignore is not None else {}
    )
    t = torch.tensor(x, requires_grad=True)
    loss = F.cross_entropy(
        t, torch.tensor(y), weight=None if weight is None else torch.tensor(weight), **attrs
    )
    got, dx = smoothed(engine, x, y, weight, **attrs)
    close(got, loss)
    close(dx, torch.autograd.grad(0.5 * loss.sum(), t)[0])


@pytest.mark.parametrize("label, ignore", [(5, None), (-1, None), (-100, 3), (2**40, -100)])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_labels_out_of_range(engine, label, ignore, reduction):
    with pytest.raises(InputError, match=f"out of range .{label}"):
        smoothed(
            engine,
            f(3, 5),
            np.array([0, label, 1]),
            reduction=reduction,
            **({"ignore_index": ignore} if ignore is not None else {}),
        )


@pytest.mark.parametrize("ignore", [-100, 7, 2])
def test_ignored_rows(engine, ignore):
    """What stands in a row that is ignored does not matter; where all are, the mean is NaN, as
    PyTorch's, and the gradient still zero.
    """
    x, y = f(4, 5), np.array([ignore, 1, ignore, 0])
    x[0] = np.nan
    loss, dx = smoothed(engine, x, y, ignore_index=ignore, reduction="mean")
    t = torch.tensor(x[[1, 3]], requires_grad=True)
    want = F.cross_entropy(t, torch.tensor([1, 0]))
    close(loss, want)
    close(dx[[1, 3]], torch.autograd.grad(0.5 * want, t)[0])
    assert not dx[[0, 2]].any()
    loss, dx = smoothed(engine, x, np.full(4, ignore), ignore_index=ignore, reduction="mean")
    assert np.isnan(loss) and not dx.any()

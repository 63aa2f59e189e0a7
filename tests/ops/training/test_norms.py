"""Normalizations and softmax, forward and backward, against PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from edgewise.errors import UnsupportedOp

from ..gradients.compare import check, f
from ..gradients.model import gradients, node_model
from .steps import close

MS = "com.microsoft"


T = torch.as_tensor


# ---- norms ----
def rms_norm(x, scale, epsilon, width=1):
    return x * torch.rsqrt((x * x).mean(tuple(range(-width, 0)), keepdim=True) + epsilon) * scale


@pytest.mark.parametrize(
    "shape, axis",
    [
        ((3, 64), -1),
        ((2, 5, 37), -1),
        ((2, 3, 4, 5), 2),
        ((1, 1), -1),
        ((200, 300), -1),
        ((2000, 24), -1),
    ],
    ids=str,
)
@pytest.mark.parametrize("fixed", [(), (1,), (1, 2), (0,), (0, 1)], ids=str)
def test_layer_norm(engine, shape, axis, fixed):
    inputs = [f(*shape) * 2 + 1, f(*shape[axis:]), f(*shape[axis:])]
    check(
        engine,
        "LayerNormalization",
        inputs,
        lambda x, s, b: F.layer_norm(T(x), s.shape, T(s), T(b), 1e-3),
        fixed=fixed,
        axis=axis,
        epsilon=1e-3,
    )


@pytest.mark.parametrize(
    "shape, axis", [((3, 64), -1), ((2, 5, 37), -1), ((2, 3, 4, 5), 2), ((200, 300), -1)], ids=str
)
@pytest.mark.parametrize("fixed", [(), (1,), (0,)], ids=str)
@pytest.mark.parametrize(
    "op, opset", [("RMSNormalization", 23), ("SimplifiedLayerNormalization", 21)]
)
def test_rms_norm(engine, op, opset, shape, axis, fixed):
    inputs = [f(*shape) * 2, f(*shape[axis:])]
    check(
        engine,
        op,
        inputs,
        lambda x, s: rms_norm(T(x), T(s), 1e-3, s.ndim),
        fixed=fixed,
        axis=axis,
        epsilon=1e-3,
        opset=opset,
    )


@pytest.mark.parametrize(
    "shape, skip",
    [((2, 3, 64), (2, 3, 64)), ((2, 3, 37), (3, 37)), ((2, 3, 24), (1, 3, 24))],
    ids=str,
)
@pytest.mark.parametrize("rms", [0, 1])
@pytest.mark.parametrize("with_bias", [0, 1])
def test_skip_norm(engine, shape, skip, rms, with_bias):
    width = shape[-1:]
    inputs = [
        f(*shape),
        f(*skip),
        f(*width),
        *([] if rms else [f(*width)]),
        *([f(*width)] if with_bias else []),
    ]

    def reference(x, skip, scale, *rest):
        rest = list(rest)
        total = x + skip + (rest.pop() if with_bias else 0)
        return (
            rms_norm(total, scale, 1e-3)
            if rms
            else F.layer_norm(total, width, scale, rest[0], 1e-3)
        ), total

    name = "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization"
    check(engine, name, inputs, lambda *g: reference(*g)[0], domain=MS, epsilon=1e-3)
    model, feeds = node_model(name, inputs, MS, outputs=4, epsilon=1e-3)
    del model.graph.output[1:3]
    model.graph.node[0].output[1] = model.graph.node[0].output[2] = ""
    given = [torch.tensor(x, requires_grad=True) for x in inputs]
    y, total = reference(*given)
    for wanted in (("y0", "y3"), ("y3",)):  # the sum alone too
        seeds = {k: f(*shape) for k in wanted}
        _, got, _, _ = gradients(model, feeds, engine, seeds=seeds)
        expected = torch.autograd.grad(
            [{"y0": y, "y3": total}[k] for k in wanted],
            given,
            [torch.tensor(d) for d in seeds.values()],
            retain_graph=True,
            allow_unused=True,
        )
        for (_k, g), e in zip(got.items(), expected):
            if e is not None:
                close(g, e)


def test_layer_norm_statistics(engine):
    x, scale, bias = f(2, 3, 40) * 3 + 1, f(40), f(40)
    model, feeds = node_model("LayerNormalization", [x, scale, bias], outputs=3, opset=17)
    out, got, _, _ = gradients(model, feeds, engine, seeds={"y0": f(2, 3, 40)})
    close(out["y1"], x.mean(-1, keepdims=True))
    close(out["y2"], 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5))
    with pytest.raises(UnsupportedOp, match="mean and deviation"):
        gradients(model, feeds, engine, seeds={"y1": f(2, 3, 1)})


# ---- softmax ----
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 37), (1, 1), (5,), (4, 1000)], ids=str)
@pytest.mark.parametrize(
    "op, reference", [("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)]
)
def test_softmax(engine, shape, op, reference):
    for axis in range(len(shape)):
        check(engine, op, [f(*shape) * 3], lambda x: reference(x, axis), axis=axis)
    if len(shape) == 3:
        check(
            engine,
            op,
            [f(*shape)],
            lambda x: reference(x.reshape(shape[0], -1), 1).reshape(shape),
            axis=1,
            opset=11,
        )

"""Scales and shifts of channels, into a convolution's weights."""

import numpy as np
import pytest
from edgewise.compiler.passes import fold_scaling

from .graphs import Graph, fused


def convolution(g, x, kind, bias, channels=6):
    w = g.weight(channels, 4, 3, 3) if kind == "Conv" else g.weight(4, channels, 3, 3)
    return getattr(g, kind)(x, w, *([g.weight(channels)] if bias else []), pads=[1, 1, 1, 1])


def normalized(g, y, channels=6, **attrs):
    return g.BatchNormalization(
        y,
        g.weight(channels),
        g.weight(channels),
        g.weight(channels),
        g.constant(g.random.uniform(0.5, 2, channels).astype(np.float32)),
        **attrs,
    )


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("opset", [9, 17])
def test_batch_normalization(kind, bias, opset):
    g = Graph(opset)
    g.output(g.Relu(normalized(g, convolution(g, g.input(2, 4, 9, 8), kind, bias), epsilon=1e-3)))
    fused(g, [fold_scaling], gone=["BatchNormalization"], **{kind: 1, "Relu": 1})


@pytest.mark.parametrize("bias", [False, True])
def test_mul_and_add(bias):
    g = Graph()
    y = convolution(g, g.input(2, 4, 9, 8), "Conv", bias)
    g.output(g.Add(g.weight(6, 1, 1), g.Mul(y, g.weight(1, 6, 1, 1))))
    fused(g, [fold_scaling], Conv=1)


def test_grouped():
    g = Graph()
    g.output(normalized(g, g.Conv(g.input(1, 6, 7, 7), g.weight(6, 1, 3, 3), group=6)))
    fused(g, [fold_scaling], gone=["BatchNormalization"])


def test_what_is_not_folded():
    """A result with other readers, weights that are inputs, numbers that are not per channel."""
    g = Graph()
    y = convolution(g, g.input(2, 4, 6, 6), "Conv", True)
    g.output(normalized(g, y), y)
    z = g.Conv(g.input(2, 4, 6, 6), g.input(6, 4, 3, 3))
    g.output(
        normalized(g, z), g.Mul(convolution(g, g.input(1, 4, 6, 6), "Conv", False), g.weight(6, 6))
    )
    fused(g, [fold_scaling], BatchNormalization=2, Mul=1)

"""LayerNorm and RMSNorm as exporters spell them."""

import numpy as np
import pytest
from edgewise.compiler.passes import common_subexpressions, fuse_normalization, fuse_residual_norm
from onnx import TensorProto

from .graphs import Graph, check, fused, untouched

NORM = [common_subexpressions, fuse_normalization]
PARTS = ("Sqrt", "ReduceMean", "Sub", "Reciprocal", "Div")


def inverse(g, x, sd, how):
    return {
        "div": lambda: g.Div(x, sd),
        "reciprocal": lambda: g.Mul(x, g.Reciprocal(sd)),
        "one over": lambda: g.Mul(g.Div(1.0, sd), x),
    }[how]()


def layer_norm(
    g,
    x,
    square="pow",
    divide="div",
    twice=False,
    swapped=False,
    bias=True,
    scale=True,
    axis=-1,
    epsilon=1e-5,
    width=16,
    power=2.0,
):
    d = g.Sub(x, g.mean(x, axis))
    e = g.Sub(x, g.mean(x, axis)) if twice else d
    v = g.mean(g.Pow(e, power) if square == "pow" else g.Mul(e, e), axis)
    y = inverse(g, d, g.Sqrt(g.Add(epsilon, v) if swapped else g.Add(v, epsilon)), divide)
    if scale:
        y = g.Mul(g.weight(width), y) if swapped else g.Mul(y, g.weight(width))
    if bias:
        y = g.Add(g.weight(width), y) if swapped else g.Add(y, g.weight(width))
    return y


@pytest.mark.parametrize("opset", [14, 17, 18])
@pytest.mark.parametrize("square", ["pow", "mul"])
@pytest.mark.parametrize("divide", ["div", "reciprocal", "one over"])
@pytest.mark.parametrize("twice, swapped", [(False, False), (True, False), (False, True)])
def test_layer_norm(opset, square, divide, twice, swapped):
    g = Graph(opset)
    g.output(layer_norm(g, g.input(2, 5, 16), square, divide, twice, swapped))
    fused(g, NORM, PARTS, LayerNormalization=1, Mul=0, Add=0)


def test_layer_norm_without_bias():
    g = Graph()
    g.output(layer_norm(g, g.input(2, 5, 16), bias=False))
    fused(g, NORM, PARTS, LayerNormalization=1)


@pytest.mark.parametrize("rms", [False, True])
def test_norms_of_float64(rms):
    """They stay as they are: the kernel takes float32 alone."""
    g = Graph(17)
    x = g.input(2, 3, 16, dtype=np.float64)
    d = x if rms else g.Sub(x, g.mean(x))
    v = g.mean(g.Mul(d, d))
    y = g.Div(d, g.Sqrt(g.Add(v, np.array(1e-5))))
    g.output(g.Cast(y, to=TensorProto.FLOAT))
    untouched(g, NORM, "LayerNormalization", "RMSNormalization")


def test_layer_norm_at_an_axis_counted_from_the_front():
    g = Graph()
    g.output(layer_norm(g, g.input(2, 5, 16), axis=2))
    fused(g, NORM, PARTS, LayerNormalization=1)


@pytest.mark.parametrize("opset", [14, 18])
@pytest.mark.parametrize("square", ["pow", "mul"])
@pytest.mark.parametrize("divide", ["div", "reciprocal", "one over"])
@pytest.mark.parametrize("scale", ["left", "right", ""])
def test_rms_norm(opset, square, divide, scale):
    g = Graph(opset)
    x = g.input(2, 5, 16)
    y = inverse(
        g, x, g.Sqrt(g.Add(g.mean(g.Pow(x, 2.0) if square == "pow" else g.Mul(x, x)), 1e-6)), divide
    )
    g.output(g.Mul(g.weight(16), y) if scale == "left" else g.Mul(y, g.weight(16)) if scale else y)
    fused(g, NORM, PARTS, RMSNormalization=1, Mul=0)


def test_gemma_scales_by_one_plus_weight():
    g = Graph()
    x = g.input(2, 5, 16)
    y = g.Mul(x, g.Reciprocal(g.Sqrt(g.Add(g.mean(g.Pow(x, 2.0)), 1e-6))))
    g.output(g.Mul(y, g.Add(1.0, g.weight(16))))
    fused(g, NORM, ("Sqrt",), RMSNormalization=1)


@pytest.mark.parametrize("kwargs", [{"axis": 1, "width": 16}, {"power": 3.0}])
def test_not_a_layer_norm(kwargs):
    g = Graph()
    g.output(
        layer_norm(
            g,
            g.input(
                value=np.random.default_rng(3).uniform(1, 2, (2, 5, 16)).astype(np.float32)
                ** np.arange(16, dtype=np.float32)
            ),
            **kwargs,
        )
    )
    untouched(g, NORM, "LayerNormalization")


def test_variance_of_something_else():
    g = Graph()
    x, z = g.input(2, 5, 16), g.input(2, 5, 16)
    d = g.Sub(x, g.mean(z))
    g.output(g.Mul(g.Div(d, g.Sqrt(g.Add(g.mean(g.Mul(d, d)), 1e-5))), g.weight(16)))
    untouched(g, NORM, "LayerNormalization")  # an RMSNorm of the difference it is


def test_without_keepdims():
    g = Graph(18)
    x = g.input(5, 5, 5)
    g.output(
        g.Mul(g.Div(x, g.Sqrt(g.Add(g.mean(g.Mul(x, x), keepdims=0), 1e-5))), g.weight(5))
    )  # broadcasts along the wrong axis, as written
    untouched(g, NORM, "RMSNormalization")


def test_two_axes():
    g = Graph()
    x = g.input(2, 5, 16)
    g.output(
        g.Mul(g.Div(x, g.Sqrt(g.Add(g.ReduceMean(g.Mul(x, x), axes=[1, 2]), 1e-5))), g.weight(16))
    )
    untouched(g, NORM, "RMSNormalization")


def test_square_of_two_different_values():
    g = Graph()
    x, z = g.input(2, 5, 16), g.input(2, 5, 16)
    x, z = g.Abs(x), g.Abs(z)
    g.output(g.Mul(g.Div(x, g.Sqrt(g.Add(g.mean(g.Mul(x, z)), 1e-5))), g.weight(16)))
    untouched(g, NORM, "RMSNormalization")


def test_epsilon_that_is_not_one_number():
    g = Graph()
    x = g.input(2, 5, 16)
    g.output(
        g.Mul(
            g.Div(x, g.Sqrt(g.Add(g.mean(g.Mul(x, x)), np.full((5, 1), 0.1, np.float32)))),
            g.weight(16),
        )
    )
    untouched(g, NORM, "RMSNormalization")


@pytest.mark.parametrize("shape", [(1,), (5, 1), (1, 16), (5, 16)])
def test_scale_of_another_shape(shape):
    """The norm may be recognised, but the scale must stay a separate product."""
    g = Graph()
    x = g.input(2, 5, 16)
    g.output(g.Mul(g.Div(x, g.Sqrt(g.Add(g.mean(g.Mul(x, x)), 1e-5))), g.weight(*shape)))
    fused(g, NORM, Mul=1)


def test_scale_that_is_fed():
    g = Graph()
    x = g.input(2, 5, 16)
    g.output(g.Mul(g.Div(x, g.Sqrt(g.Add(g.mean(g.Mul(x, x)), 1e-5))), g.input(16)))
    fused(g, NORM, Mul=1)


@pytest.mark.parametrize("which", ["normalised", "deviation", "variance", "centred", "scaled"])
def test_inner_value_that_is_an_output(which):
    g = Graph()
    x = g.input(2, 5, 16)
    d = g.Sub(x, g.mean(x))
    v = g.mean(g.Pow(d, 2.0))
    s = g.Sqrt(g.Add(v, 1e-5))
    n = g.Div(d, s)
    m = g.Mul(n, g.weight(16))
    g.output(
        g.Add(m, g.weight(16)),
        {"normalised": n, "deviation": s, "variance": v, "centred": d, "scaled": m}[which],
    )
    fused(g, NORM)


def test_layer_norm_without_scale():
    g = Graph()
    g.output(layer_norm(g, g.input(2, 5, 16), scale=False, bias=False))
    fused(g, NORM, PARTS, LayerNormalization=1)


def test_two_norms_of_one_value():
    """As GPT-NeoX has: normalised once, scaled twice."""
    g = Graph()
    x = g.input(2, 5, 16)
    g.output(layer_norm(g, x), layer_norm(g, x))
    fused(g, NORM, PARTS, LayerNormalization=1, Mul=2, Add=2)


def test_residual():
    g = Graph()
    x, z = g.input(2, 5, 16), g.input(2, 5, 16)
    s = g.Add(x, z)
    g.output(g.Add(s, layer_norm(g, s)))
    fused(g, NORM + [fuse_residual_norm], **{"ms.SkipLayerNormalization": 1, "Add": 1})


def test_residual_of_known_numbers():
    """Rows of a table, twice, at positions that are known: no node is left to fuse with."""
    g = Graph(17)
    x = g.Gather(g.weight(9, 16), g.Range(np.array(0), np.array(3), np.array(1)), axis=0)
    scale = g.Cast(g.constant(np.ones(16, np.float16)), to=TensorProto.FLOAT)
    y = g.LayerNormalization(g.Add(x, x), scale, axis=-1)
    g.output(g.Add(g.input(3, 16), y))
    check(g, [fuse_residual_norm])


def test_residual_of_rms_norm():
    g = Graph(23)
    s = g.Add(g.input(2, 5, 16), g.input(2, 5, 16))
    g.output(s, g.RMSNormalization(s, g.weight(16), axis=-1))
    fused(g, NORM + [fuse_residual_norm], **{"ms.SkipSimplifiedLayerNormalization": 1, "Add": 0})


def test_residual_that_broadcasts():
    g = Graph()
    s = g.Add(g.input(2, 5, 16), g.input(5, 16))
    g.output(s, g.LayerNormalization(s, g.weight(16), g.weight(16), axis=-1))
    fused(g, [fuse_residual_norm], Add=1)


def test_residual_normalised_along_other_axes():
    g = Graph()
    s = g.Add(g.input(2, 5, 16), g.input(2, 5, 16))
    g.output(g.LayerNormalization(s, g.weight(5, 16), g.weight(5, 16), axis=1))
    fused(g, [fuse_residual_norm], Add=1, LayerNormalization=1)


def test_residual_with_two_norms():
    g = Graph()
    s = g.Add(g.input(2, 5, 16), g.input(2, 5, 16))
    g.output(
        g.LayerNormalization(s, g.weight(16), g.weight(16)),
        g.LayerNormalization(s, g.weight(16), g.weight(16)),
        s,
    )
    fused(g, [fuse_residual_norm], LayerNormalization=1, Add=0)


def test_residual_whose_scale_is_computed_from_it():
    g = Graph()
    s = g.Add(g.input(1, 16), g.input(1, 16))
    g.output(g.LayerNormalization(s, g.Reshape(g.Sigmoid(s), [16]), g.weight(16)))
    fused(g, [fuse_residual_norm], Add=1)

"""GELU, SiLU and gated forms as exporters spell them."""

import math

import pytest
from edgewise.compiler.passes import common_subexpressions, fuse_activations

from .graphs import Graph, fused, untouched

PASS = [common_subexpressions, fuse_activations]
ROOT = math.sqrt(2 / math.pi)

INNER_ERF = {
    "div": lambda g, x: g.Div(x, math.sqrt(2)),
    "mul": lambda g, x: g.Mul(x, math.sqrt(0.5)),
    "mul left": lambda g, x: g.Mul(math.sqrt(0.5), x),
}
INNER_TANH = {
    "pow": lambda g, x: g.Mul(ROOT, g.Add(x, g.Mul(0.044715, g.Pow(x, 3.0)))),
    "cube": lambda g, x: g.Mul(g.Add(x, g.Mul(g.Mul(g.Mul(x, x), x), 0.044715)), ROOT),
    "bloom": lambda g, x: g.Mul(g.Mul(x, ROOT), g.Add(g.Mul(g.Mul(0.044715, x), x), 1.0)),
    "factored": lambda g, x: g.Mul(x, g.Add(ROOT, g.Mul(g.Mul(x, x), ROOT * 0.044715))),
}
OUTER = {
    "x(1+f), then 0.5": lambda g, x, f: g.Mul(g.Mul(x, g.Add(f, 1.0)), 0.5),
    "0.5x, then (1+f)": lambda g, x, f: g.Mul(g.Mul(x, 0.5), g.Add(f, 1.0)),
    "0.5(1+f), then x": lambda g, x, f: g.Mul(x, g.Mul(0.5, g.Add(1.0, f))),
    "(1+f)0.5x": lambda g, x, f: g.Mul(g.Add(1.0, f), g.Mul(0.5, x)),
}


@pytest.mark.parametrize("inner", INNER_ERF)
@pytest.mark.parametrize("outer", OUTER)
def test_gelu(inner, outer):
    g = Graph(14)
    x = g.input(2, 5, 16)
    g.output(OUTER[outer](g, x, g.Erf(INNER_ERF[inner](g, x))))
    fused(g, PASS, ("Erf", "Mul", "Add", "Div"), Gelu=1)


@pytest.mark.parametrize("inner", INNER_TANH)
@pytest.mark.parametrize("outer", OUTER)
def test_gelu_tanh(inner, outer):
    g = Graph(14)
    x = g.input(2, 5, 16)
    g.output(OUTER[outer](g, x, g.Tanh(INNER_TANH[inner](g, x))))
    fused(g, PASS, ("Tanh", "Mul", "Add"), Gelu=1)


@pytest.mark.parametrize(
    "root, one, half, f",
    [
        (0.7, 1.0, 0.5, "Erf"),
        (math.sqrt(0.5), 2.0, 0.5, "Erf"),
        (math.sqrt(0.5), 1.0, 0.4, "Erf"),
        (math.sqrt(0.5), 1.0, 0.5, "Tanh"),
    ],
)
def test_other_numbers(root, one, half, f):
    g = Graph()
    x = g.input(2, 5, 16)
    g.output(g.Mul(g.Mul(x, g.Add(getattr(g, f)(g.Mul(x, root)), one)), half))
    untouched(g, PASS, "Gelu")


@pytest.mark.parametrize("a, b", [(0.05, ROOT), (0.044715, 0.9)])
def test_other_numbers_of_tanh(a, b):
    g = Graph()
    x = g.input(2, 5, 16)
    g.output(g.Mul(g.Mul(x, g.Add(g.Tanh(g.Mul(b, g.Add(x, g.Mul(a, g.Pow(x, 3.0))))), 1.0)), 0.5))
    untouched(g, PASS, "Gelu")


def test_gelu_of_one_times_another():
    g = Graph()
    x, z = g.input(2, 5, 16), g.input(2, 5, 16)
    g.output(g.Mul(g.Mul(z, g.Add(g.Erf(g.Div(x, math.sqrt(2))), 1.0)), 0.5))
    untouched(g, PASS, "Gelu", "GeluMul")


def test_constant_in_a_vector():
    g = Graph()
    x = g.input(2, 5, 4)
    g.output(g.Mul(g.Mul(x, g.Add(g.Erf(g.Div(x, math.sqrt(2))), 1.0)), g.weight(4)))
    untouched(g, PASS, "Gelu")


@pytest.mark.parametrize("which", ["f", "plus", "half"])
def test_inner_value_that_is_an_output(which):
    g = Graph()
    x = g.input(2, 5, 16)
    f = g.Erf(g.Div(x, math.sqrt(2)))
    plus = g.Add(f, 1.0)
    half = g.Mul(x, plus)
    g.output(g.Mul(half, 0.5), {"f": f, "plus": plus, "half": half}[which])
    untouched(g, PASS, "Gelu")


@pytest.mark.parametrize("swapped", [False, True])
def test_silu(swapped):
    g = Graph()
    x = g.input(2, 5, 16)
    s = g.Sigmoid(x)
    g.output(g.Mul(s, x) if swapped else g.Mul(x, s))
    fused(g, PASS, ("Sigmoid", "Mul"), SiLU=1)


def test_quick_gelu():
    g = Graph()
    x = g.input(2, 5, 16)
    g.output(g.Mul(x, g.Sigmoid(g.Mul(x, 1.702))))
    fused(g, PASS, ("Sigmoid", "Mul"), **{"ms.QuickGelu": 1})


def test_sigmoid_of_something_else():
    g = Graph()
    x, z = g.input(2, 5, 16), g.input(2, 5, 16)
    g.output(
        g.Mul(z, g.Sigmoid(x)), g.Mul(x, g.Sigmoid(g.Add(x, 1.0))), g.Mul(z, g.Sigmoid(g.Mul(z, z)))
    )
    untouched(g, PASS, "SiLU", "ms.QuickGelu", "SiLUMul")


def test_sigmoid_that_is_an_output():
    g = Graph()
    x = g.input(2, 5, 16)
    s = g.Sigmoid(x)
    g.output(g.Mul(x, s), s)
    untouched(g, PASS, "SiLU")


def test_sigmoid_of_a_row_times_a_matrix():
    g = Graph()
    x = g.input(1, 16)
    g.output(g.Mul(g.Expand(x, [5, 16]), g.Sigmoid(x)))
    fused(g, PASS)


@pytest.mark.parametrize(
    "gate, name",
    [
        (lambda g, x: g.Mul(x, g.Sigmoid(x)), "SiLUMul"),
        (lambda g, x: g.Mul(0.5, g.Mul(x, g.Add(1.0, g.Erf(g.Div(x, math.sqrt(2)))))), "GeluMul"),
        (
            lambda g, x: OUTER["0.5x, then (1+f)"](g, x, g.Tanh(INNER_TANH["pow"](g, x))),
            "GeluTanhMul",
        ),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_gated(gate, name, swapped):
    g = Graph()
    x, up = g.input(2, 5, 16), g.input(2, 5, 16)
    a = gate(g, x)
    g.output(g.Mul(up, a) if swapped else g.Mul(a, up))
    fused(g, PASS, ("Sigmoid", "Erf", "Tanh", "Mul"), **{name: 1})


def test_gate_that_broadcasts():
    g = Graph()
    x, up = g.input(2, 5, 16), g.input(5, 1)
    g.output(g.Mul(g.Mul(x, g.Sigmoid(x)), up))
    untouched(g, PASS, "SiLUMul")


def test_gate_that_is_used_twice():
    g = Graph()
    x, up = g.input(2, 5, 16), g.input(2, 5, 16)
    a = g.Mul(x, g.Sigmoid(x))
    g.output(g.Mul(a, up), a)
    untouched(g, PASS, "SiLUMul")


def test_gate_times_itself():
    g = Graph()
    x = g.input(2, 5, 16)
    a = g.Mul(x, g.Sigmoid(x))
    g.output(g.Mul(a, a))
    untouched(g, PASS, "SiLUMul")


def test_quick_gelu_is_not_the_gate_of_silu():
    g = Graph()
    x, up = g.input(2, 5, 16), g.input(2, 5, 16)
    g.output(g.Mul(g.Mul(x, g.Sigmoid(g.Mul(x, 1.702))), up))
    untouched(g, PASS, "SiLUMul")


SIX = {
    "clip": lambda g, x: g.Clip(g.Add(x, 3.0), 0.0, 6.0),
    "clip, 3 first": lambda g, x: g.Clip(g.Add(3.0, x), 0.0, 6.0),
    "max and min": lambda g, x: g.Min(6.0, g.Max(g.Add(x, 3.0), 0.0)),
}
HARD = {
    "x six / 6": lambda g, x, six: g.Div(g.Mul(x, six), 6.0),
    "six x * 1/6": lambda g, x, six: g.Mul(1 / 6, g.Mul(six, x)),
    "x (six / 6)": lambda g, x, six: g.Mul(x, g.Div(six, 6.0)),
    "(six * 1/6) x": lambda g, x, six: g.Mul(g.Mul(six, 1 / 6), x),
}


@pytest.mark.parametrize("six", SIX)
@pytest.mark.parametrize("outer", HARD)
def test_hard_swish(six, outer):
    """As PaddlePaddle and older PyTorch exporters write it."""
    g = Graph()
    x = g.input(2, 5, 16)
    scaled = g.Mul(x, 4.0)
    g.output(HARD[outer](g, scaled, SIX[six](g, scaled)))
    fused(g, PASS, ("MinOf2", "MaxOf2", "Add", "Div"), HardSwish=1)


def test_hard_swish_by_hard_sigmoid():
    g = Graph()
    x = g.input(2, 5, 16)
    g.output(g.Mul(x, g.HardSigmoid(x, alpha=1 / 6, beta=0.5)))
    fused(g, PASS, ("HardSigmoid", "Mul"), HardSwish=1)


@pytest.mark.parametrize("change", ["shift", "limit", "factor", "other", "kept", "divided"])
def test_no_hard_swish(change):
    g = Graph()
    x, z = g.input(2, 5, 16), g.input(2, 5, 16)
    six = g.Clip(
        g.Add(x, 2.0 if change == "shift" else 3.0), 0.0, 5.0 if change == "limit" else 6.0
    )
    product = g.Div(x, six) if change == "divided" else g.Mul(z if change == "other" else x, six)
    g.output(
        g.Div(product, 7.0 if change == "factor" else 6.0), *([product] if change == "kept" else [])
    )
    untouched(g, PASS, "HardSwish")


@pytest.mark.parametrize("alpha, beta", [(0.2, 0.5), (1 / 6, 0.4)])
def test_other_hard_sigmoids(alpha, beta):
    g = Graph()
    x = g.input(2, 5, 16)
    g.output(g.Mul(x, g.HardSigmoid(x, alpha=alpha, beta=beta)))
    untouched(g, PASS, "HardSwish")

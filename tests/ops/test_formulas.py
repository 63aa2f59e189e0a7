"""Elementwise formulas: derivatives beside differences, errors, and what is printed."""

import ast
import math
import sys
from pathlib import Path

import pytest
from edgewise.compiler.declare.formula import (
    FUNCTIONS,
    NotDifferentiable,
    derivative,
    expression,
    on_numbers,
    slope_of,
    slope_with,
    substitute,
)
from edgewise.compiler.ops.elementwise.formulas import BINARY, SLOPES, UNARY, slope_formula

sys.path.append(str(Path(__file__).parents[2] / "core" / "generate"))
import formulas as printers

POINTS = (-4.3, -2.2, -0.8, -0.31, 0.27, 0.45, 0.83, 1.7, 3.4, 5.1)
NEAR = 1e-5


def difference(f, at, i):
    """The derivative of f with respect to argument i, numerically; None where it is not defined."""
    before, after = list(at), list(at)
    before[i] -= NEAR
    after[i] += NEAR
    slope = (f(*after) - f(*before)) / (2 * NEAR)
    return slope if math.isfinite(slope) else None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_functions(name):
    """What a function says of its derivative, or what follows from its formula."""
    function = FUNCTIONS[name]
    call = expression(f"{name}({', '.join(function.arguments)})")
    f, compared = on_numbers(ast.unparse(call), function.arguments), 0
    for i, operand in enumerate(function.arguments):
        try:
            slope = derivative(call, operand)
        except NotDifferentiable:
            assert name in ("is_nan", "is_inf", "power", "modulo", "fmod")
            return
        for first in POINTS:
            others = {"clamp": (-1.05, 2.6)}.get(name, (0.6, -1.9))
            at = (first, *others)[: len(function.arguments)]
            want = difference(f, at, i)
            if want is not None:
                got = on_numbers(ast.unparse(slope), function.arguments)(*at)
                assert got == pytest.approx(want, rel=1e-6, abs=1e-7), (operand, at)
                compared += 1
    assert compared >= 3


def expanded(row):
    """The gradient of a row of UNARY, without calls of slope_<name>."""

    class Slopes(ast.NodeTransformer):
        def visit_Call(self, call):
            name = call.func.id
            if not name.startswith("slope_"):
                return call
            named = dict(zip(("g", "v", "alpha", "beta"), call.args))
            if (known := name.removeprefix("slope_")) in SLOPES:
                return substitute(expression(slope_formula(known)), named)
            return ast.BinOp(named["g"], ast.Mult(), derivative(expression(row.formula), "v"))

    return ast.unparse(Slopes().visit(ast.parse(row.gradient(), mode="eval").body))


@pytest.mark.parametrize("code", [c for c, row in UNARY.items() if row.formula])
def test_gradients_of_operators(code):
    row = UNARY[code]
    values = next(iter(row.operators().values()), None) or {"alpha": 0.7, "beta": 1.3}
    f = on_numbers(row.formula, ("v", *values))
    try:
        slope = on_numbers(expanded(row), ("g", "v", "y", *values))
    except NotDifferentiable:
        assert code in ("is_nan", "is_inf")
        return
    compared = 0
    for v in POINTS:
        want = difference(f, (v, *values.values()), 0)
        if want is not None:
            got = slope(2.0, v, f(v, *values.values()), *values.values())
            assert got == pytest.approx(2 * want, rel=1e-6, abs=1e-7), v
            compared += 1
    assert compared >= 3


@pytest.mark.parametrize("code", ["add", "sub", "mul", "div", "min", "max", "prelu", "silu_mul"])
def test_gradients_of_two_operands(code):
    row = BINARY[code]
    f = on_numbers(row.formula, ("u", "v"))
    for i, operand in enumerate("uv"):
        slope = on_numbers(slope_with(row.formula, operand), ("g", "u", "v"))
        for u in POINTS:
            for v in (-1.9, 0.6, 2.3):
                want = 2 * difference(f, (u, v), i)
                assert slope(2.0, u, v) == pytest.approx(want, rel=1e-6, abs=1e-7), (u, v)


def test_a_derivative_uses_the_result_where_that_suffices():
    assert slope_of("exp(v)") == "g * y"
    assert slope_of("sin(v)") == "g * cos(v)"
    assert slope_of("v * exp(v)") == "g * (exp(v) + v * exp(v))"


@pytest.mark.parametrize(
    "text, said",
    [
        ("expp(v)", r"'expp\(v\)' calls no function of a formula; these exist: min\(u, v\), "),
        ("exp(v, 2)", "calls no function"),
        ("w = 1; w += 2; w * v", "expected NAME = EXPRESSION"),
        ("w = v * 2", "does not end in an expression"),
    ],
)
def test_errors_name_the_formula(text, said):
    with pytest.raises(SyntaxError, match=said):
        on_numbers(text, ("v",))


# Each is right in one order of operations alone.
ORDERS = (
    "u - (v - 3)",
    "u - v - 3",
    "u / (v / 3)",
    "u / (v * 3)",
    "u * (v + 3) * -2",
    "-(u + v)",
    "-u * v - -3",
    "(u + v) * (u - v) / (u * v)",
    "u - (v + (u - 2))",
)


@pytest.mark.parametrize("text", ORDERS)
def test_printed_operations_keep_their_order(text):
    for printer in (printers.Double(), printers.Each(), printers.Vector(), printers.Wgsl()):
        printed = printer.text(expression(text))
        assert printed.count("(") <= text.count("(") + 1
        for u, v in ((1.7, -0.3), (-2.5, 4.25)):
            got = eval(printed.replace("f", ""), {}, {"u": u, "v": v})
            assert got == pytest.approx(eval(text, {}, {"u": u, "v": v}), rel=1e-6)


def test_printed_conditions():
    """WGSL refuses `a && b || c` without parentheses, and compilers of C warn."""
    node = expression("u if 0 < v < 1 or is_nan(u) else 2")
    assert printers.Double().text(node) == "(0.0 < v && v < 1.0) || (u != u) ? u : 2.0"
    assert printers.Wgsl().text(node) == "select(2f, u, (0f < v && v < 1f) || is_nan(u))"
    assert printers.Vector().text(node).replace("((u != u))", "(u != u)") == (
        "vf_select((((vf_splat(0.0f) < v) & (v < vf_splat(1.0f)))) | (u != u), u, vf_splat(2.0f))"
    )

"""Elementwise operators of one operand, and their gradients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, DOUBLE, FLOAT, FLOATS, INTEGERS, wrap
from ...declare.op import MS, OPS, Op, fail, like, product, takes, unsupported
from ...declare.symbolic import Sym
from ...errors import MissingGradient
from ..product.contracts import ACTIVATION
from .contracts import SLOPE, UNARY

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Folded,
        Gradients,
        Graph,
        Inferred,
        InputGradients,
        Shape,
        Value,
        View,
    )

    _Slope = Callable[[Gradients, Value, Value], Value | None]
    _SlopeRule = Callable[[BoundNode, Gradients, Value], Value | None]


def emit_unary(
    builder: Builder,
    node: BoundNode,
    op: str,
    x: View | None = None,
    alpha: float = 0.0,
    beta: float = 0.0,
    dtype: int | None = None,
) -> None:
    """Adds a call of the kernel "unary" that computes the output of a node.

    Args:
        op: The operation, a name of UNARY.
        x: The operand, by default input 0.
        alpha, beta: Parameters of the operation.
        dtype: Its element type, by default that of input 0.
    """
    v = node.inputs[0]
    x = builder.view(v) if x is None else x
    y = builder.out(node.outputs[0])
    builder.nd(
        "unary",
        y.shape,
        {"x": x, "y": y},
        {"xs": "x", "ys": "y"},
        op=UNARY[op],
        type=dtype or v.dtype,
        alpha=alpha,
        beta=beta,
    )


def _round_even(x: float) -> float:
    return float(round(x)) if math.isfinite(x) else x


def guard(f: Callable[..., float], at_domain_error: float) -> Callable[..., float]:
    """f with a result instead of an exception where its arguments are outside of its domain."""

    def g(*x: float) -> float:
        try:
            return f(*x)
        except (ValueError, OverflowError, ZeroDivisionError):
            return at_domain_error

    return g


NAN, INF = float("nan"), float("inf")
# The operations that small constants are folded with.
_PY: dict[str, Callable[..., Any]] = {
    "neg": lambda x: -x,
    "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0) if x == x else x,
    "floor": lambda x: float(math.floor(x)) if math.isfinite(x) else x,
    "ceil": lambda x: float(math.ceil(x)) if math.isfinite(x) else x,
    "round": _round_even,
    "sqrt": guard(math.sqrt, NAN),
    "reciprocal": lambda x: 1 / x if x else math.copysign(INF, x),
    "exp": guard(math.exp, INF),
    "log": lambda x: math.log(x) if x > 0 else (-INF if x == 0 else NAN),
    "sin": guard(math.sin, NAN),
    "cos": guard(math.cos, NAN),
    "tanh": math.tanh,
    "erf": math.erf,
    "not": lambda x: not x,
    "is_nan": lambda x: x != x,
    "relu": lambda x: 0 if x < 0 else x,
    "sigmoid": lambda x: 0.0 if x < -700 else 1 / (1 + math.exp(-x)),
}


def _declare_unary(
    name: str,
    op: str,
    domain: str = "",
    *,
    integers: bool = False,
    alpha: tuple[str, float] | None = None,
    beta: tuple[str, float] | None = None,
) -> None:
    """Declares an elementwise operator.

    Args:
        op: The kernel's operation, a name of UNARY.
        integers: Whether it also takes integers.
        alpha: The name and the default of the attribute that the kernel takes as `alpha`.
        beta: The same for `beta`.
    """
    o = Op(name, domain)

    @o.infer
    def op_infer(node: BoundNode) -> Inferred:
        v = node.inputs[0]
        if v.dtype not in FLOATS and not (integers and v.dtype in INTEGERS):
            fail(node, f"{name} does not take the element type of its input {v}")
        return [like(node, 0, BOOL if op in ("is_nan", "is_inf") else None)]

    @o.lower
    def op_lower(node: BoundNode, builder: Builder) -> None:
        emit_unary(
            builder,
            node,
            op,
            alpha=node.attr(*alpha) if alpha else 0.0,
            beta=node.attr(*beta) if beta else 0.0,
        )

    if op in _PY:

        @o.fold
        def op_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
            f, dt = _PY[op], outs[0][0]
            return [
                [wrap(dt, f(x)) if not isinstance(x, Sym) else f(x) for x in node.inputs[0].numbers]
            ]


# ONNX's operators without attributes, and the operation of the kernel that computes each.
FLOAT_OPS = {
    "Sqrt": "sqrt",
    "Reciprocal": "reciprocal",
    "Exp": "exp",
    "Log": "log",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Tanh": "tanh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Erf": "erf",
    "Sigmoid": "sigmoid",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "HardSwish": "hard_swish",
    "Mish": "mish",
    "IsNaN": "is_nan",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
}
# Those that also take integers.
NUMBER_OPS = {"Neg": "neg", "Abs": "abs", "Sign": "sign", "Relu": "relu"}
# Those with attributes: (domain, name): (operation, attributes as alpha and beta with defaults).
PARAMETRIC_OPS: dict[tuple[str, str], tuple[str, tuple[tuple[str, float], ...]]] = {
    ("", "LeakyRelu"): ("leaky_relu", (("alpha", 0.01),)),
    ("", "Elu"): ("elu", (("alpha", 1.0),)),
    ("", "Celu"): ("celu", (("alpha", 1.0),)),
    ("", "Selu"): (
        "selu",
        (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
    ),
    ("", "HardSigmoid"): ("hard_sigmoid", (("alpha", 0.2), ("beta", 0.5))),
    ("", "ThresholdedRelu"): ("thresholded_relu", (("alpha", 1.0),)),
    ("", "Swish"): ("quick_gelu", (("alpha", 1.0),)),
    (MS, "QuickGelu"): ("quick_gelu", (("alpha", 1.702),)),
}
for _name, _op in FLOAT_OPS.items():
    _declare_unary(_name, _op)
for _name, _op in NUMBER_OPS.items():
    _declare_unary(_name, _op, integers=True)
for (_domain, _name), (_op, _attributes) in PARAMETRIC_OPS.items():
    _declare_unary(
        _name,
        _op,
        _domain,
        alpha=_attributes[0],
        beta=_attributes[1] if len(_attributes) > 1 else None,
    )
_declare_unary("SiLU", "silu", "edgewise")  # made by passes/activations.py
_declare_unary("Gelu", "gelu", MS)

# Inputs: dy, and x or y. Output: dy times the derivative `slope`, in one pass over memory. Where
# the derivative follows from the output y, it is computed from y: the input need not be kept, and
# the activation can still become an epilogue of the product before it.
unary_grad = Op("UnaryGrad", "edgewise")


@unary_grad.infer
def unary_grad_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 1)
    return [like(node, 0)]


@unary_grad.lower
def unary_grad_lower(node: BoundNode, builder: Builder) -> None:
    dx, dy, x, name, alpha = (
        builder.out(node.outputs[0]),
        builder.view(node.inputs[0]),
        builder.view(node.inputs[1]),
        node.attrs["slope"],
        node.attr("alpha", 0.0),
    )
    if name in SLOPE:
        builder.nd(
            "unary_grad",
            dx.shape,
            {"dy": dy, "x": x, "dx": dx},
            {"dys": "dy", "xs": "x", "dxs": "dx"},
            op=SLOPE[name],
            alpha=alpha,
            beta=node.attr("beta", 0.0),
        )
    else:  # an activation that products and gates have, too
        builder.emit(
            "gated_grad",
            {"dy": builder.contiguous(dy), "a": builder.contiguous(x), "da": dx},
            n=product(dx.shape),
            activation=ACTIVATION[name],
            alpha=alpha,
        )


@unary_grad.grad
def unary_grad_grad(node: BoundNode, gradients: Gradients, ddx: Value) -> InputGradients:
    """Second derivatives of Relu, Sigmoid, Tanh and their relatives."""
    dy, y = node.inputs
    slope, second = node.attrs["slope"], None
    if gradients.wants(1) and slope != "step":
        if slope not in ("sigmoid", "tanh"):
            raise MissingGradient(
                f"the second derivative of {slope} is not implemented",
                node.where,
                "Use other activations in a model that is differentiated twice.",
            )
        second = gradients.mul(
            gradients.mul(ddx, dy),
            (
                gradients.scale(y, -2.0)
                if slope == "tanh"
                else gradients.sub(gradients.number(1.0), gradients.scale(y, 2.0))
            ),
        )
    return [
        (
            gradients.op("UnaryGrad", ddx, y, domain="edgewise", **node.attrs)
            if gradients.wants(0)
            else None
        ),
        second,
    ]


def slope(
    graph: Graph, dy: Value, x: Value, name: str, alpha: float = 0.0, beta: float = 0.0
) -> Value:
    """dy times the derivative `name`, a name of SLOPE or ACTIVATION, at x."""
    return graph.op("UnaryGrad", dy, x, domain="edgewise", slope=name, alpha=alpha, beta=beta)


def scaled(graph: Gradients, v: Value, factor: float) -> Value:
    """v times a Python number."""
    return v if factor == 1 else graph.mul(v, graph.constant(v.dtype, [], [float(factor)]))


def plus(graph: Gradients, v: Value, number: float) -> Value:
    """v plus a Python number."""
    return graph.add(v, graph.constant(v.dtype, [], [float(number)]))


def _root(graph: Graph, v: Value) -> Value:
    return graph.op("Sqrt", v)


def _leaky_relu(node: BoundNode, g: Gradients, dy: Value) -> Value:
    """From the output, which has the sign of the input unless alpha is negative."""
    alpha = node.attr("alpha", 0.01)
    return slope(g, dy, node.outputs[0] if alpha >= 0 else node.inputs[0], "step", alpha)


def _selu(node: BoundNode, g: Gradients, dy: Value) -> Value:
    return slope(
        g,
        scaled(g, dy, node.attr("gamma", 1.05070102214813232421875)),
        node.inputs[0],
        "elu",
        node.attr("alpha", 1.67326319217681884765625),
        1.0,
    )


def _hard_sigmoid(node: BoundNode, graph: Gradients, dy: Value) -> Value:
    y = node.outputs[0]
    inside = graph.op(
        "And",
        graph.op("Greater", y, graph.constant(y.dtype, [], [0.0])),
        graph.op("Less", y, graph.constant(y.dtype, [], [1.0])),
    )
    return where_or_zero(graph, inside, scaled(graph, dy, node.attr("alpha", 0.2)))


def where_or_zero(graph: Graph, condition: Value, v: Value, other: Value | None = None) -> Value:
    """v where the condition holds, else `other`, by default 0."""
    return graph.op(
        "Where", condition, v, graph.constant(v.dtype, [], [0.0]) if other is None else other
    )


def _of_x(f: _Slope) -> _SlopeRule:
    """A rule from f(gradients, dy, x)."""
    return lambda n, g, dy: f(g, dy, n.inputs[0])


def _of_y(f: _Slope) -> _SlopeRule:
    """A rule from f(gradients, dy, y)."""
    return lambda n, g, dy: f(g, dy, n.outputs[0])


# The gradient of each operator: rule(node, gradients, dy).
_SLOPES: dict[str, _SlopeRule] = {
    "Neg": _of_x(lambda g, dy, x: g.neg(dy)),
    "Abs": _of_x(lambda g, dy, x: g.mul(dy, g.op("Sign", x))),
    "Sqrt": _of_y(lambda g, dy, y: g.div(scaled(g, dy, 0.5), y)),
    "Reciprocal": _of_y(lambda g, dy, y: g.neg(g.mul(dy, g.mul(y, y)))),
    "Exp": _of_y(lambda g, dy, y: g.mul(dy, y)),
    "Log": _of_x(lambda g, dy, x: g.div(dy, x)),
    "Sin": _of_x(lambda g, dy, x: g.mul(dy, g.op("Cos", x))),
    "Cos": _of_x(lambda g, dy, x: g.neg(g.mul(dy, g.op("Sin", x)))),
    "Tan": _of_y(lambda g, dy, y: g.mul(dy, plus(g, g.mul(y, y), 1))),
    "Asin": _of_x(lambda g, dy, x: g.div(dy, _root(g, plus(g, g.neg(g.mul(x, x)), 1)))),
    "Acos": _of_x(lambda g, dy, x: g.neg(g.div(dy, _root(g, plus(g, g.neg(g.mul(x, x)), 1))))),
    "Atan": _of_x(lambda g, dy, x: g.div(dy, plus(g, g.mul(x, x), 1))),
    "Sinh": _of_x(lambda g, dy, x: g.mul(dy, g.op("Cosh", x))),
    "Cosh": _of_x(lambda g, dy, x: g.mul(dy, g.op("Sinh", x))),
    "Asinh": _of_x(lambda g, dy, x: g.div(dy, _root(g, plus(g, g.mul(x, x), 1)))),
    "Acosh": _of_x(lambda g, dy, x: g.div(dy, _root(g, plus(g, g.mul(x, x), -1)))),
    "Atanh": _of_x(lambda g, dy, x: g.div(dy, plus(g, g.neg(g.mul(x, x)), 1))),
    "Erf": _of_x(
        lambda g, dy, x: g.mul(
            scaled(g, dy, 2 / math.sqrt(math.pi)), g.op("Exp", g.neg(g.mul(x, x)))
        )
    ),
    "Softplus": _of_x(lambda g, dy, x: g.mul(dy, g.op("Sigmoid", x))),
    "Sigmoid": _of_y(lambda g, dy, y: slope(g, dy, y, "sigmoid")),
    "Tanh": _of_y(lambda g, dy, y: slope(g, dy, y, "tanh")),
    "Softsign": _of_y(lambda g, dy, y: slope(g, dy, y, "softsign")),
    "Relu": _of_y(lambda g, dy, y: slope(g, dy, y, "step")),
    "LeakyRelu": _leaky_relu,
    "ThresholdedRelu": lambda n, g, dy: slope(
        g, dy, n.inputs[0], "step", 0.0, n.attr("alpha", 1.0)
    ),
    "Elu": lambda n, g, dy: slope(g, dy, n.inputs[0], "elu", n.attr("alpha", 1.0), 1.0),
    "Celu": lambda n, g, dy: slope(g, dy, n.inputs[0], "elu", 1.0, 1.0 / n.attr("alpha", 1.0)),
    "Selu": _selu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _of_x(lambda g, dy, x: slope(g, dy, x, "hard_swish")),
    "Mish": _of_x(lambda g, dy, x: slope(g, dy, x, "mish")),
    "SiLU": _of_x(lambda g, dy, x: slope(g, dy, x, "quick_gelu", 1.0)),
    "Swish": lambda n, g, dy: slope(g, dy, n.inputs[0], "quick_gelu", n.attr("alpha", 1.0)),
    "QuickGelu": lambda n, g, dy: slope(g, dy, n.inputs[0], "quick_gelu", n.attr("alpha", 1.702)),
    "Gelu": lambda n, g, dy: slope(
        g, dy, n.inputs[0], "gelu_tanh" if n.attr("approximate", "none") == "tanh" else "gelu"
    ),
    **dict.fromkeys(("Sign", "Floor", "Ceil", "Round"), lambda n, g, dy: None),
}

gelu = Op("Gelu")
for _name, _rule in _SLOPES.items():
    for _domain in ("", MS, "edgewise"):
        if (_domain, _name) in OPS:
            OPS[_domain, _name].grad(lambda n, g, dy, rule=_rule: [rule(n, g, dy)])


@gelu.infer
def gelu_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT, DOUBLE), 0)
    return [like(node, 0)]


@gelu.lower
def gelu_lower(node: BoundNode, builder: Builder) -> None:
    emit_unary(builder, node, "gelu_tanh" if node.attr("approximate", "none") == "tanh" else "gelu")


fast_gelu = Op("FastGelu", MS, parameters=(1,))


@fast_gelu.decompose
def fast_gelu_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    x = graph.op("Add", node.inputs[0], node.inputs[1]) if node.has(1) else node.inputs[0]
    return [graph.op("Gelu", x, approximate="tanh")]


bias_gelu = Op("BiasGelu", MS, parameters=(1,))


@bias_gelu.decompose
def bias_gelu_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    return [graph.op("Gelu", graph.op("Add", node.inputs[0], node.inputs[1]))]


swiglu = Op("SwiGLU")


@swiglu.decompose
def swiglu_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    a, b = node.inputs
    if a.shape != b.shape:
        fail(node, f"its inputs {a} and {b} have different shapes")
    return [graph.op("Mul", graph.op("Swish", a, alpha=node.attr("alpha", 1.0)), b)]


not_ = Op("Not")


@not_.infer
def not_infer(node: BoundNode) -> Inferred:
    if node.inputs[0].dtype != BOOL:
        fail(node, f"its input is {node.inputs[0]}; bools are expected")
    return [like(node, 0)]


@not_.lower
def not_lower(node: BoundNode, builder: Builder) -> None:
    emit_unary(builder, node, "not")


@not_.fold
def not_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    return [[not x for x in node.inputs[0].numbers]]


shrink = Op("Shrink")


@shrink.decompose
def shrink_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    x, lambd, bias = node.inputs[0], node.attr("lambd", 0.5), node.attr("bias", 0.0)
    if x.dtype not in FLOATS:
        unsupported(node, f"Shrink of {x}")
    low, high, b = (graph.constant(x.dtype, [], [v]) for v in (-lambd, lambd, bias))
    inner = where_or_zero(graph, graph.op("Greater", x, high), graph.op("Sub", x, b))
    return [graph.op("Where", graph.op("Less", x, low), graph.op("Add", x, b), inner)]

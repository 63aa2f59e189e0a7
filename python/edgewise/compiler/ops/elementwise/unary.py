"""Elementwise operators of one operand, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....errors import MissingGradient
from ...declare.dtypes import BOOL, DOUBLE, FLOAT, FLOATS, INTEGERS, wrap
from ...declare.formula import derivative, expression, is_condition, on_numbers, value_of
from ...declare.op import MS, Op, fail, like, product, takes, unsupported
from ...declare.symbolic import Sym
from ..product.contracts import ACTIVATION
from .contracts import SLOPE, UNARY
from .formulas import UNARY as UNARY_FORMULAS
from .formulas import Unary, slope_formula
from .nodes import add_formula, gradient_of, where_or_zero
from .quotients import rounded_quotient

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Folded,
        Gradients,
        Inferred,
        InputGradients,
        Shape,
        Value,
        View,
    )


ROUNDED = {"ceil": "up", "floor": "down"}
"""Which way operators round."""


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


def _declare_unary(row: Unary, name: str, domain: str, attributes: Mapping[str, float]) -> None:
    """Declares an elementwise operator.

    Args:
        row: What it computes.
        attributes: Its attributes and their defaults, which the kernel takes as alpha and beta.
    """
    o, test = Op(name, domain), is_condition(expression(row.formula))

    @o.infer
    def op_infer(node: BoundNode) -> Inferred:
        v = node.inputs[0]
        if v.dtype not in FLOATS and not (row.integers and v.dtype in INTEGERS):
            fail(node, f"{name} does not take the element type of its input {v}")
        return [like(node, 0, BOOL if test else None)]

    def values(node: BoundNode) -> dict[str, float]:
        return {key: node.attr(key, default) for key, default in attributes.items()}

    @o.lower
    def op_lower(node: BoundNode, builder: Builder) -> None:
        alpha, beta = (*values(node).values(), 0.0, 0.0)[:2]
        emit_unary(builder, node, row.code, alpha=alpha, beta=beta)

    rounds = ROUNDED.get(row.code)
    o.folds_without_numbers = rounds is not None

    @o.fold
    def op_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
        numbers = node.inputs[0].numbers
        if rounds and (numbers is None or any(isinstance(x, Sym) for x in numbers)):
            found = rounded_quotient(node.inputs[0], rounds == "up")
            return None if found is None else [[found]]
        if not row.integers and any(isinstance(x, Sym) for x in numbers):
            return None
        f = on_numbers(row.formula, ("v", *attributes))
        out = [f(x, *values(node).values()) for x in numbers]
        return [[x if isinstance(x, Sym) else wrap(outs[0][0], x) for x in out]]

    if test:
        return

    @o.grad
    def op_grad(node: BoundNode, g: Gradients, dy: Value) -> InputGradients:
        named = {"g": dy, "v": node.inputs[0], "y": node.outputs[0], **values(node)}
        return [add_formula(g, gradient_of(node, row.gradient), named)]


for _row in UNARY_FORMULAS.values():
    for _operator, _attributes in _row.operators().items():
        _domain, _, _name = _operator.rpartition(".")
        _declare_unary(_row, _name, _domain, _attributes)

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
    """From the formula of the derivative, which is linear in dy."""
    dy, x = node.inputs
    name, second = node.attrs["slope"], None
    if gradients.wants(1):
        if name not in SLOPE:
            raise MissingGradient(
                f"the second derivative of {name} is not implemented",
                node.where,
                "Use other activations in a model that is differentiated twice.",
            )
        formula = derivative(expression(slope_formula(name)), "v")
        if value_of(formula) != 0:
            parameters = {key: node.attr(key, 0.0) for key in ("alpha", "beta")}
            product = {"g": gradients.mul(ddx, dy), "v": x, **parameters}
            second = add_formula(gradients, formula, product)
    return [
        (
            gradients.op("UnaryGrad", ddx, x, domain="edgewise", **node.attrs)
            if gradients.wants(0)
            else None
        ),
        second,
    ]


gelu = Op("Gelu")


@gelu.infer
def gelu_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT, DOUBLE), 0)
    return [like(node, 0)]


def _kind_of_gelu(node: BoundNode) -> str:
    return "gelu_tanh" if node.attr("approximate", "none") == "tanh" else "gelu"


@gelu.lower
def gelu_lower(node: BoundNode, builder: Builder) -> None:
    emit_unary(builder, node, _kind_of_gelu(node))


@gelu.grad
def gelu_grad(node: BoundNode, g: Gradients, dy: Value) -> InputGradients:
    gradient = gradient_of(node, UNARY_FORMULAS[_kind_of_gelu(node)].gradient)
    return [add_formula(g, gradient, {"g": dy, "v": node.inputs[0]})]


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

"""Elementwise operators of two operands that broadcast, and operators composed of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, DOUBLE, FLOATS, INTEGERS, wrap
from ...declare.formula import expression, is_condition, on_numbers, slope_with
from ...declare.op import OPS, Op, broadcast, fail, read_as, unsupported
from ...declare.symbolic import Sym
from .contracts import BINARY
from .formulas import BINARY as BINARY_FORMULAS
from .formulas import Binary
from .nodes import add_formula, gradient_of, plus, scaled, where_or_zero

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Dim,
        Folded,
        Gradients,
        Inferred,
        InputGradients,
        Shape,
        Value,
        View,
    )


def emit_binary(builder: Builder, op: str, a: View, c: View, y: View, dtype: int) -> None:
    """Adds a call of the kernel "binary": y = op(a, c), broadcast to the shape of y.

    Args:
        op: The operation, a name of BINARY.
        dtype: The element type of the operands.
    """
    builder.nd(
        "binary",
        y.shape,
        {"a": a.broadcast(y.shape), "b": c.broadcast(y.shape), "y": y},
        {"as": "a", "bs": "b", "ys": "y"},
        op=BINARY[op],
        type=dtype,
    )


def _check_same(node: BoundNode) -> None:
    a, c = node.inputs[0], node.inputs[1]
    if a.dtype != c.dtype:
        fail(node, f"its inputs {a} and {c} have different element types")


def _int_div(a: Dim, c: Dim) -> Dim:
    if isinstance(a, Sym) and a.registers is not None and type(c) is int and c > 0 <= a.min:
        return a.registers.floor(a, c)
    if isinstance(a, Sym) or isinstance(c, Sym):
        return a // c
    return 0 if c == 0 else (abs(a) // abs(c)) * (1 if (a < 0) == (c < 0) else -1)


def _int_fmod(a: Any, c: Any) -> Any:
    return a - _int_div(a, c) * c if c else 0


def _int_pow(a: Any, c: Any) -> Any:
    if isinstance(a, Sym) or isinstance(c, Sym):
        return a**c
    if c < 0:  # as in the kernel: only the inverses of 1 and -1 are integers
        return a ** -(c % 2) if a in (1, -1) else 0
    return pow(a, c, 1 << 64) if c > 64 else a**c  # `wrap` reduces it to the type


# What small constants of integers and bools are folded with, where formulas have no rule for them.
INTEGER_FOLDS: dict[str, Callable[..., Any]] = {
    "div": _int_div,
    "mod": lambda a, c: a % c if c else 0,
    "fmod": _int_fmod,
    "pow": _int_pow,
    "and": lambda a, c: a and c,
    "or": lambda a, c: a or c,
    "xor": lambda a, c: a != c,
}
COMPARISONS = [
    code
    for code, row in BINARY_FORMULAS.items()
    if row.formula and is_condition(expression(row.formula))
]
LOGICAL = ("and", "or", "xor")


def fold_binary(op: str, node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    """Computes a binary operation of small constants."""
    dt, shape = outs[0]
    integer = None if node.inputs[0].dtype in FLOATS else INTEGER_FOLDS.get(op)
    f = integer or on_numbers(BINARY_FORMULAS[op].formula, ("u", "v"))
    pairs = zip(read_as(node.inputs[0], shape), read_as(node.inputs[1], shape))
    out = []
    for a, c in pairs:
        r = f(a, c)
        out.append(r if isinstance(r, Sym) else wrap(dt, r))
    return [out]


def _derived(row: Binary, node: BoundNode, graph: Gradients, dy: Value) -> InputGradients:
    """The gradients of a formula; some operators have rules of their own below."""
    named: dict[str, Value | float] = {"g": dy, "u": node.inputs[0], "v": node.inputs[1]}
    out: list[Value | None] = []
    for i, operand in enumerate("uv"):
        found = None
        if graph.wants(i):
            formula = gradient_of(node, partial(slope_with, row.formula, operand))
            found = add_formula(graph, formula, named)
        out.append(None if found is None else graph.sum_to(found, node.inputs[i].shape))
    return out


def declare_binary(name: str, op: str, domain: str = "") -> Op:
    """Declares a binary operator; op: the kernel's operation, a name of BINARY."""
    o = Op(name, domain)

    @o.infer
    def op_infer(node: BoundNode) -> Inferred:
        _check_same(node)
        # before opset 7: where the dimensions of the second operand begin
        axis = node.attrs.get("axis")
        if axis is not None and (
            type(axis) is not int
            or axis % max(node.inputs[0].rank, 1) + node.inputs[1].rank != node.inputs[0].rank
        ):
            unsupported(
                node,
                f"broadcasting along axis {axis}, which opset 7 removed",
                "Export the model again with a newer opset.",
            )
        if (
            op in ("and", "or", "xor")
            and node.inputs[0].dtype != BOOL
            or node.inputs[0].dtype == BOOL
            and op not in ("and", "or", "xor", "equal")
        ):
            fail(node, f"{name} does not take the element type of its input {node.inputs[0]}")
        shape = broadcast(node, node.inputs[0].shape, node.inputs[1].shape)
        if op == "prelu" and shape != node.inputs[0].shape:
            fail(node, f"its slope {node.inputs[1]} does not broadcast to {node.inputs[0]}")
        return [(BOOL if op in COMPARISONS else node.inputs[0].dtype, shape)]

    @o.lower
    def op_lower(node: BoundNode, builder: Builder) -> None:
        kind = op
        if op == "mod" and node.attr("fmod", 0):
            kind = "fmod"
        emit_binary(
            builder,
            kind,
            builder.view(node.inputs[0]),
            builder.view(node.inputs[1]),
            builder.out(node.outputs[0]),
            node.inputs[0].dtype,
        )

    if op in INTEGER_FOLDS or BINARY_FORMULAS[op].formula:

        @o.fold
        def op_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
            return fold_binary("fmod" if op == "mod" and node.attr("fmod", 0) else op, node, outs)

    if BINARY_FORMULAS[op].formula and op not in COMPARISONS:
        o.grad(partial(_derived, BINARY_FORMULAS[op]))
    return o


for _row in BINARY_FORMULAS.values():
    if _row.op:
        _domain, _, _name = _row.op.rpartition(".")
        declare_binary(_name, _row.code, _domain)

OPS["", "PRelu"].parameters = (1,)


@OPS["", "PRelu"].decompose
def p_relu_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Before opset 7, a vector of slopes is along the channels instead of the last dimension."""
    x, w = node.inputs
    if node.opset >= 7 or w.rank != 1 or x.rank < 3 or w.shape[0] == 1:
        return None
    return [graph.op("PRelu", x, graph.reshape(w, [w.shape[0]] + [1] * (x.rank - 2)))]


def _grad_add(node: BoundNode, graph: Gradients, dy: Value) -> InputGradients:
    return [
        graph.sum_to(dy, v.shape) if graph.wants(i) else None for i, v in enumerate(node.inputs)
    ]


def _grad_sub(node: BoundNode, graph: Gradients, dy: Value) -> InputGradients:
    a, c = node.inputs
    return [
        graph.sum_to(dy, a.shape) if graph.wants(0) else None,
        graph.neg(graph.sum_to(dy, c.shape)) if graph.wants(1) else None,
    ]


def _grad_mul(node: BoundNode, graph: Gradients, dy: Value) -> InputGradients:
    a, c = node.inputs
    if a is c:
        return [scaled(graph, graph.mul(dy, a), 2), None]
    return [
        graph.sum_to(graph.mul(dy, c), a.shape) if graph.wants(0) else None,
        graph.sum_to(graph.mul(dy, a), c.shape) if graph.wants(1) else None,
    ]


def _grad_div(node: BoundNode, graph: Gradients, dy: Value) -> InputGradients:
    a, c = node.inputs
    da = graph.div(dy, c)
    return [
        graph.sum_to(da, a.shape) if graph.wants(0) else None,
        (
            graph.neg(graph.sum_to(graph.mul(da, node.outputs[0]), c.shape))
            if graph.wants(1)
            else None
        ),
    ]


def _grad_mod(node: BoundNode, graph: Gradients, dy: Value) -> InputGradients:
    a, c = node.inputs
    dc = None
    if graph.wants(1):
        q = graph.div(a, c)
        whole = (
            graph.mul(graph.op("Sign", q), graph.op("Floor", graph.op("Abs", q)))
            if node.attr("fmod", 0)
            else graph.op("Floor", q)
        )
        dc = graph.neg(graph.sum_to(graph.mul(dy, whole), c.shape))
    return [graph.sum_to(dy, a.shape) if graph.wants(0) else None, dc]


def _grad_pow(node: BoundNode, graph: Gradients, dy: Value) -> InputGradients:
    """As in PyTorch, the gradient of the base is 0 where the exponent is 0, and the gradient of the
    exponent is 0 where the base is 0 and the exponent is not negative.
    """
    a, e = node.inputs
    zero, da, de, p = graph.constant(a.dtype, [], [0.0]), None, None, e.scalar()
    if graph.wants(0) and p is not None:
        da = (
            graph.sum_to(
                graph.mul(
                    scaled(graph, dy, p), graph.op("Pow", a, graph.constant(a.dtype, [], [p - 1.0]))
                ),
                a.shape,
            )
            if p
            else None
        )
    elif graph.wants(0):
        da = graph.sum_to(
            where_or_zero(
                graph,
                graph.op("Equal", e, zero),
                zero,
                graph.mul(dy, graph.mul(e, graph.op("Pow", a, plus(graph, e, -1)))),
            ),
            a.shape,
        )
    if graph.wants(1):
        nothing = graph.op("And", graph.op("Equal", a, zero), graph.op("GreaterOrEqual", e, zero))
        de = graph.sum_to(
            where_or_zero(
                graph, nothing, zero, graph.mul(dy, graph.mul(node.outputs[0], graph.op("Log", a)))
            ),
            e.shape,
        )
    return [da, de]


def _grad_extreme(less: str) -> Callable[..., InputGradients]:
    """The gradient rule of the smaller ("Less") or larger ("Greater") of two.

    Equal elements get half of it each, as in PyTorch's minimum and maximum; with the attribute
    ties="first" the first operand gets all of it, as in PyTorch's clamp.
    """

    def rule(node: BoundNode, graph: Gradients, dy: Value) -> InputGradients:
        def part(v: Value, other: Value, at_tie: float) -> Value:
            nothing = graph.constant(dy.dtype, [], [0.0])
            if at_tie == 0.5:
                nothing = where_or_zero(graph, graph.op("Equal", v, other), scaled(graph, dy, 0.5))
            return graph.sum_to(
                where_or_zero(
                    graph,
                    graph.op(less + ("OrEqual" if at_tie == 1 else ""), v, other),
                    dy,
                    nothing,
                ),
                v.shape,
            )

        first = node.attr("ties", "") == "first"
        a, c = node.inputs
        return [
            part(a, c, 1 if first else 0.5) if graph.wants(0) else None,
            part(c, a, 0 if first else 0.5) if graph.wants(1) else None,
        ]

    return rule


def _grad_prelu(node: BoundNode, graph: Gradients, dy: Value) -> InputGradients:
    x, w = node.inputs
    positive = graph.op("Greater", x, graph.constant(x.dtype, [], [0.0]))
    return [
        where_or_zero(graph, positive, dy, graph.mul(dy, w)) if graph.wants(0) else None,
        (
            graph.sum_to(
                where_or_zero(
                    graph, positive, graph.constant(x.dtype, [], [0.0]), graph.mul(dy, x)
                ),
                w.shape,
            )
            if graph.wants(1)
            else None
        ),
    ]


for _key, _rule in {
    ("", "Add"): _grad_add,
    ("", "Sub"): _grad_sub,
    ("", "Mul"): _grad_mul,
    ("", "Div"): _grad_div,
    ("", "Mod"): _grad_mod,
    ("", "PRelu"): _grad_prelu,
    ("edgewise", "PowSame"): _grad_pow,
    ("edgewise", "MinOf2"): _grad_extreme("Less"),
    ("edgewise", "MaxOf2"): _grad_extreme("Greater"),
}.items():
    OPS[_key].grad(_rule)

pow_ = Op("Pow")


@pow_.decompose
def pow_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    x, e = node.inputs[:2]
    if (
        e.scalar() is not None
        and not isinstance(e.scalar(), Sym)
        and e.rank <= x.rank
        and x.dtype in FLOATS
    ):
        p = e.scalar()
        if p == 2:
            return [graph.op("Mul", x, x)]
        if p == 1:
            return [x]
        if p == 0.5:
            return [graph.op("Sqrt", x)]
        if p == 3:
            return [graph.op("Mul", graph.op("Mul", x, x), x)]
    if x.dtype in INTEGERS and e.dtype in FLOATS:  # computed in float64, converted back
        return [
            graph.op(
                "Cast",
                graph.op(
                    "PowSame",
                    graph.op("Cast", x, to=DOUBLE),
                    graph.op("Cast", e, to=DOUBLE),
                    domain="edgewise",
                ),
                to=x.dtype,
            )
        ]
    return [
        graph.op(
            "PowSame",
            x,
            e if e.dtype == x.dtype else graph.op("Cast", e, to=x.dtype),
            domain="edgewise",
        )
    ]


def _variadic(name: str, op: str, domain: str = "", mean: bool = False) -> None:
    """Declares an operator of any number of operands, by a binary one.

    Args:
        op, domain: The binary operator.
        mean: Whether the result is divided by the number of operands.
    """
    o = Op(name)

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> Decomposed:
        if not node.inputs:
            fail(node, "it has no input")
        out = node.inputs[0]
        for v in node.inputs[1:]:
            out = graph.op(op, out, v, domain=domain)
        return [
            (
                graph.op(
                    "Div",
                    out,
                    graph.constant(
                        out.dtype,
                        [],
                        [float(len(node.inputs)) if out.dtype in FLOATS else len(node.inputs)],
                    ),
                )
                if mean and len(node.inputs) > 1
                else out
            )
        ]


_variadic("Min", "MinOf2", "edgewise")
_variadic("Max", "MaxOf2", "edgewise")
_variadic("Sum", "Add")
_variadic("Mean", "Add", mean=True)

clip = Op("Clip")


@clip.decompose
def clip_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    x = node.inputs[0]
    if node.opset < 11:
        low = (
            graph.constant(x.dtype, [], [node.attr("min")])
            if node.attr("min") is not None
            else None
        )
        high = (
            graph.constant(x.dtype, [], [node.attr("max")])
            if node.attr("max") is not None
            else None
        )
    else:
        low, high = node.input(1), node.input(2)
        for i, bound in ((1, low), (2, high)):
            if bound is not None and any(d != 1 for d in bound.shape):
                fail(node, f"its input {i} is {bound}; a single number is expected")
    if low is not None:
        x = graph.op("MaxOf2", x, low, domain="edgewise", ties="first")
    if high is not None:
        x = graph.op("MinOf2", x, high, domain="edgewise", ties="first")
    return [x]

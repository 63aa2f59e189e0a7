"""Formulas as nodes of graphs, for gradients of elementwise operators."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ....errors import MissingGradient
from ...declare.dtypes import FLOAT
from ...declare.formula import (
    NotDifferentiable,
    derivative,
    divide,
    expression,
    function_of,
    inlined,
    multiply,
    on_numbers,
    substitute,
)
from .formulas import SLOPES, UNARY, slope_formula

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Gradients, Graph, Value

_COMPARISONS: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("Less", operator.lt),
    ast.LtE: ("LessOrEqual", operator.le),
    ast.Gt: ("Greater", operator.gt),
    ast.GtE: ("GreaterOrEqual", operator.ge),
    ast.Eq: ("Equal", operator.eq),
}
_NUMBERS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: divide,
}


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


def where_or_zero(graph: Graph, condition: Value, v: Value, other: Value | None = None) -> Value:
    """v where the condition holds, else `other`, by default 0."""
    return graph.op(
        "Where", condition, v, graph.constant(v.dtype, [], [0.0]) if other is None else other
    )


def gradient_of(node: BoundNode, formula: Callable[[], str]) -> ast.expr:
    """A formula that is derived when a gradient is asked for: importing the package need not."""
    try:
        return expression(formula())
    except NotDifferentiable as e:
        raise MissingGradient(
            f"the gradient of {node.op} is not known: {e} has no derivative",
            node.where,
            "Train without this node, or declare the derivative in its formula.",
        ) from e


def add_formula(
    graph: Gradients, node: ast.expr, values: Mapping[str, Value | float]
) -> Value | None:
    """Adds the nodes that compute an expression; None where it is 0.

    Args:
        values: Its operands, at least one, and its parameters, as numbers.
    """
    dtype = next(v.dtype for v in values.values() if not isinstance(v, (int, float)))
    result = _Nodes(graph, dtype, values).of(node)
    if not isinstance(result, (int, float)):
        return result
    if result == 0:
        return None
    raise NotDifferentiable(f"{ast.unparse(node)} is a number")


class _Nodes:
    """Adds expressions to a graph, each part of them once. A result is a Value, or a number (or a
    bool) where it depends on parameters alone.
    """

    def __init__(self, graph: Gradients, dtype: int, values: Mapping[str, Value | float]) -> None:
        self.graph, self.dtype, self.values = graph, dtype, values
        self.known: dict[str, Any] = {}

    def of(self, node: ast.expr) -> Any:
        key = ast.dump(node)
        if key not in self.known:
            self.known[key] = getattr(self, "_" + type(node).__name__.lower())(node)
        return self.known[key]

    def value(self, x: Any) -> Value:
        """A number as a Value; a Value as it is."""
        known = isinstance(x, (int, float))
        return self.graph.constant(self.dtype, [], [float(x)]) if known else x

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        return self.values[node.id]

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        v, negated = self.of(node.operand), isinstance(node.op, ast.USub)
        if isinstance(v, (int, float)):
            return -v if negated else not v
        return self.graph.neg(v) if negated else self.graph.op("Not", v)

    def _binop(self, node: ast.BinOp) -> Any:
        a, b, graph, op = self.of(node.left), self.of(node.right), self.graph, type(node.op)
        constant = [isinstance(x, (int, float)) for x in (a, b)]
        if all(constant):
            return _NUMBERS[op](a, b)
        if op is ast.Add and any(constant):
            return plus(graph, *((b, a) if constant[0] else (a, b)))
        if op is ast.Mult and any(constant):
            return scaled(graph, *((b, a) if constant[0] else (a, b)))
        if op is ast.Sub and constant[1]:
            return plus(graph, a, -b)
        add = {ast.Add: graph.add, ast.Sub: graph.sub, ast.Mult: graph.mul, ast.Div: graph.div}
        return add[op](self.value(a), self.value(b))

    def _compare(self, node: ast.Compare) -> Any:
        result, left = None, self.of(node.left)
        for op, side in zip(node.ops, node.comparators):
            right, (name, on_numbers) = self.of(side), _COMPARISONS[type(op)]
            if isinstance(left, (int, float)) and isinstance(right, (int, float)):
                part: Any = on_numbers(left, right)
            else:
                part = self.graph.op(name, self.value(left), self.value(right))
            result, left = part if result is None else self._both("And", result, part), right
        return result

    def _both(self, op: str, a: Any, b: Any) -> Any:
        for one, other in ((a, b), (b, a)):
            if isinstance(one, bool):
                return other if one == (op == "And") else one
        return self.graph.op(op, a, b)

    def _boolop(self, node: ast.BoolOp) -> Any:
        result, *others = (self.of(v) for v in node.values)
        for other in others:
            result = self._both("And" if isinstance(node.op, ast.And) else "Or", result, other)
        return result

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.of(node.test)
        if isinstance(test, bool):
            return self.of(node.body if test else node.orelse)
        yes, no = self.value(self.of(node.body)), self.value(self.of(node.orelse))
        return where_or_zero(self.graph, test, yes, no)

    def _call(self, node: ast.Call) -> Any:
        name = getattr(node.func, "id", "")
        if name.startswith("slope_"):
            return self._slope(name.removeprefix("slope_"), node)
        function, arguments = function_of(node), [self.of(a) for a in node.args]
        if all(isinstance(x, (int, float)) for x in arguments):
            f = on_numbers(
                ast.unparse(node.func) + f"({function.operands.replace(' ', ', ')})",
                function.arguments,
            )
            return f(*arguments)
        if function.node:
            domain, _, op = function.node.rpartition(".")
            return self.graph.op(op, *map(self.value, arguments), domain=domain)
        if not function.formula:
            raise NotDifferentiable(f"no operator computes {function.name}")
        return self.of(inlined(node))

    def _slope(self, name: str, node: ast.Call) -> Any:
        """slope_<name>(g, x, alpha, beta): a step of its own, or its formula for doubles."""
        dy, x, *parameters = (self.of(a) for a in node.args)
        if self.dtype == FLOAT:
            return slope(self.graph, dy, x, name, *parameters)
        named = dict(zip(("g", "v", "alpha", "beta"), node.args))
        if name in SLOPES:
            formula = expression(slope_formula(name))
        else:
            formula = multiply(ast.Name("g"), derivative(expression(UNARY[name].formula), "v"))
        return self.of(substitute(formula, named))

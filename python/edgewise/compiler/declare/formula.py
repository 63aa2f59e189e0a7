"""Formulas of elementwise functions: a contract states one as text, and it is written nowhere else.

A formula is an expression of Python over operands and parameters. It has numbers, + - * /,
comparisons (also chained), `and`, `or`, `not`, `a if condition else b`, and calls of functions
(`Function`). That of a Function may name intermediate results first:

    e = exp(min(v, 20)); w = e * (e + 2); v * (w / (w + 2))

core/generate/formulas.py prints formulas in C (vectors of floats, floats, doubles) and in WGSL.
Here they are evaluated, which folds constants, and differentiated; ops/elementwise/nodes.py adds
them to graphs.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .symbolic import decide_equal


@dataclass
class Function:
    """A function that formulas call.

    Where a language has no function of its own, it is printed from the formula. In C and WGSL a
    function is a name, or an expression with {0}, {1}, {2} in place of its arguments.

    Attributes:
        name: Its name in formulas.
        formula: What it computes; "": the languages define it.
        operands: Names of its operands.
        vector, each, double: In C: on vectors of floats (core/vector_math.h), on a float, on a
            double. "": it does not exist, unless there is a formula; without a formula, `double` is
            by default the function of this name in libm.
        wgsl: In WGSL. "": steps that need it run in C, unless there is a formula.
        number: In Python, on numbers; None: by the formula, or else the function of this name in
            `math`, and NaN outside of its domain.
        slope: Its derivatives with respect to each operand, separated by ";"; "": by the formula.
        node: The operator that computes it in a graph, with its domain if it has one; "": by the
            formula.
    """

    name: str
    formula: str = ""
    operands: str = "v"
    vector: str = ""
    each: str = ""
    double: str = ""
    wgsl: str = ""
    number: Callable[..., Any] | None = None
    slope: str = ""
    node: str = ""

    def __post_init__(self) -> None:
        FUNCTIONS[self.name] = self
        if not self.formula:
            self.double = self.double or self.name
            self.number = self.number or guard(getattr(math, self.name), NAN)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of its operands."""
        return tuple(self.operands.split())

    @property
    def slopes(self) -> list[str]:
        """Its derivative with respect to each operand."""
        return [text.strip() for text in self.slope.split(";") if text]


FUNCTIONS: dict[str, Function] = {}


class NotDifferentiable(Exception):
    """A formula calls a function that has no derivative."""


@cache
def parsed(text: str) -> tuple[tuple[tuple[str, ast.expr], ...], ast.expr]:
    """(intermediate results by name, the result) of a formula. Raises SyntaxError."""
    *before, last = ast.parse(text).body
    named = []
    for line in before:
        if not isinstance(line, ast.Assign) or not isinstance(line.targets[0], ast.Name):
            raise SyntaxError(
                f"in the formula {text!r}: expected NAME = EXPRESSION before the last"
            )
        named.append((line.targets[0].id, line.value))
    if not isinstance(last, ast.Expr):
        raise SyntaxError(f"the formula {text!r} does not end in an expression")
    return tuple(named), last.value


@cache
def expression(text: str) -> ast.expr:
    """A formula as one expression, without names of intermediate results."""
    named, result = parsed(text)
    values: dict[str, ast.expr] = {}
    for name, value in named:
        values[name] = substitute(value, values)
    return substitute(result, values)


def substitute(node: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
    """The expression with other expressions in place of names."""

    class Substitution(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return values.get(name.id, name)

        def visit_Call(self, call: ast.Call) -> ast.expr:
            return ast.Call(call.func, [self.visit(a) for a in call.args], [])

    return Substitution().visit(_copy(node)) if values else node


def _copy(node: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body


def inlined(call: ast.Call) -> ast.expr:
    """The formula of the function that is called, with its arguments."""
    function = function_of(call)
    return substitute(expression(function.formula), dict(zip(function.arguments, call.args)))


def function_of(call: ast.Call) -> Function:
    """The function that is called. Raises SyntaxError where there is none."""
    name = getattr(call.func, "id", "")
    if name not in FUNCTIONS or len(call.args) != len(FUNCTIONS[name].arguments):
        raise SyntaxError(
            f"{ast.unparse(call)!r} calls no function of a formula; these exist: "
            + ", ".join(f"{f.name}({', '.join(f.arguments)})" for f in FUNCTIONS.values())
        )
    return FUNCTIONS[name]


def same(a: ast.expr, b: ast.expr) -> bool:
    """Whether two expressions are written alike."""
    return ast.dump(a) == ast.dump(b)


def operands_of(text: str) -> set[str]:
    """The operands and parameters in a formula."""
    return names(expression(text))


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A formula with other names of operands and parameters."""
    values = {name: ast.Name(other, ast.Load()) for name, other in names.items()}
    return ast.unparse(substitute(expression(text), values))


def names(node: ast.expr) -> set[str]:
    """The operands and parameters in an expression."""
    called = {id(x.func) for x in ast.walk(node) if isinstance(x, ast.Call)}
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and id(x) not in called}


def is_condition(node: ast.expr) -> bool:
    """Whether an expression is true or false."""
    tests = isinstance(node, ast.Call) and function_of(node).name in ("is_nan", "is_inf")
    return tests or isinstance(node, (ast.Compare, ast.BoolOp))


# ---- numbers


def guard(f: Callable[..., float], at_domain_error: float) -> Callable[..., float]:
    """f with a result instead of an exception where its arguments are outside of its domain."""

    def g(*x: float) -> float:
        try:
            return f(*x)
        except (ValueError, OverflowError, ZeroDivisionError):
            return at_domain_error

    return g


NAN, INF = math.nan, math.inf


def divide(a: float, b: float) -> float:
    """a / b, by zero as floats are divided."""
    if b:
        return a / b
    return NAN if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1, b)


class _Numbers(ast.NodeTransformer):
    """Division and equality by the functions above: numbers may be 0 or Syms."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node
        return ast.Call(ast.Name("divide", ast.Load()), [node.left, node.right], [])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) > 1 or not isinstance(node.ops[0], ast.Eq):
            return node
        arguments = [node.left, node.comparators[0]]
        return ast.Call(ast.Name("decide_equal", ast.Load()), arguments, [])


@cache
def on_numbers(text: str, operands: tuple[str, ...]) -> Callable[..., Any]:
    """A formula as a function of Python numbers. operands: names of its arguments, in order."""
    node = _Numbers().visit(_copy(expression(text)))
    scope: dict[str, Any] = {"divide": divide, "decide_equal": decide_equal}
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") not in scope:
            function = function_of(call)
            scope[function.name] = function.number or on_numbers(
                function.formula, function.arguments
            )
    arguments = ast.arguments([], [ast.arg(name) for name in operands], None, [], [], None, [])
    code = ast.Expression(ast.Lambda(arguments, node))
    f: Callable[..., Any] = eval(compile(ast.fix_missing_locations(code), text, "eval"), scope)
    return f


# ---- derivatives


def number(value: float) -> ast.expr:
    """A number as an expression."""
    return ast.UnaryOp(ast.USub(), number(-value)) if value < 0 else ast.Constant(value)


def value_of(node: ast.expr) -> float | None:
    """The number that an expression is, without operands and parameters; else None."""
    try:
        return None if names(node) else float(on_numbers(ast.unparse(node), ())())
    except SyntaxError:
        return None


def add(a: ast.expr, b: ast.expr) -> ast.expr:
    """a + b, without zeros."""
    if value_of(a) == 0:
        return b
    return a if value_of(b) == 0 else ast.BinOp(a, ast.Add(), b)


def negate(a: ast.expr) -> ast.expr:
    """-a."""
    if (value := value_of(a)) is not None:
        return number(-value)
    return a.operand if isinstance(a, ast.UnaryOp) else ast.UnaryOp(ast.USub(), a)


def multiply(a: ast.expr, b: ast.expr) -> ast.expr:
    """a * b, without zeros and ones; a zero in one of two cases stays one, whatever a is."""
    values = value_of(a), value_of(b)
    if 0 in values:
        return number(0)
    if values[0] == 1 or values[1] == 1:
        return b if values[0] == 1 else a
    if values[0] == -1 or values[1] == -1:
        return negate(b if values[0] == -1 else a)
    if isinstance(b, ast.IfExp) and 0 in (value_of(b.body), value_of(b.orelse)):
        return ast.IfExp(b.test, multiply(a, b.body), multiply(a, b.orelse))
    if isinstance(b, ast.UnaryOp) and isinstance(b.op, ast.USub):
        return negate(multiply(a, b.operand))
    if isinstance(b, ast.BinOp) and isinstance(b.op, ast.Div) and value_of(b.left) is not None:
        return ast.BinOp(multiply(a, b.left), ast.Div(), b.right)  # a * (1 / c) is a / c
    return ast.BinOp(a, ast.Mult(), b)


def derivative(node: ast.expr, name: str) -> ast.expr:
    """The derivative of an expression with respect to an operand or parameter.

    Where the expression jumps or bends, it is that of one side. Raises NotDifferentiable.
    """
    if name not in names(node):
        return number(0)
    if isinstance(node, ast.Name):
        return number(1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return negate(derivative(node.operand, name))
    if isinstance(node, ast.IfExp):
        yes, no = derivative(node.body, name), derivative(node.orelse, name)
        return yes if same(yes, no) else ast.IfExp(node.test, yes, no)
    if isinstance(node, ast.BinOp):
        a, b = node.left, node.right
        da, db = derivative(a, name), derivative(b, name)
        if isinstance(node.op, ast.Add):
            return add(da, db)
        if isinstance(node.op, ast.Sub):
            return add(da, negate(db))
        if isinstance(node.op, ast.Mult):
            return add(multiply(b, da), multiply(a, db))
        if isinstance(node.op, ast.Div):
            over = ast.BinOp(number(1), ast.Div(), b)
            return multiply(add(da, negate(multiply(node, db))), over)
    if isinstance(node, ast.Call):
        return _derivative_of_call(node, name)
    raise NotDifferentiable(ast.unparse(node))


def _derivative_of_call(call: ast.Call, name: str) -> ast.expr:
    function = function_of(call)
    if not function.slopes:
        if not function.formula:
            raise NotDifferentiable(function.name)
        return derivative(inlined(call), name)
    arguments, total = dict(zip(function.arguments, call.args)), number(0)
    for slope, argument in zip(function.slopes, call.args):
        inner = derivative(argument, name)
        if value_of(inner) != 0:
            total = add(total, multiply(inner, substitute(expression(slope), arguments)))
    return total


@cache
def slope_with(formula: str, operand: str) -> str:
    """The gradient of a formula with respect to an operand, over that of its result, g."""
    slope = multiply(ast.Name("g", ast.Load()), derivative(expression(formula), operand))
    return ast.unparse(slope)


@cache
def slope_of(formula: str) -> str:
    """The gradient of a formula of v: over g and v, or g and the result y where that suffices, so
    that the operand need not be kept.
    """
    result, slope = expression(formula), expression(slope_with(formula, "v"))

    class Results(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            if isinstance(node, ast.expr) and same(node, result):
                return ast.Name("y", ast.Load())
            return self.generic_visit(node)

    of_result = Results().visit(_copy(slope))
    return ast.unparse(slope if "v" in names(of_result) else of_result)

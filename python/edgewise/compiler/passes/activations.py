"""Recognises GELU, SiLU, HardSwish and their gated forms, spelled out in elementary ops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..ir import BoundNode, Value
from .rewrite import Rewriter, near, number, other

if TYPE_CHECKING:
    from ..bind import BoundGraph


def fuse_activations(bound: BoundGraph) -> None:
    """Formulas with Tanh and Erf become Gelu, x sigmoid(x) SiLU, x sigmoid(a x) QuickGelu, and
    x clip(x + 3, 0, 6) / 6 HardSwish. Then activation(a) * b becomes SiLUMul, GeluMul or
    GeluTanhMul.
    """
    r = Rewriter(bound)
    for n in r.nodes("Tanh", "Erf"):
        _gelu(r, n)
    for n in r.nodes("Sigmoid"):
        _silu(r, n)
    for n in r.nodes("MinOf2", "HardSigmoid"):
        _hard_swish(r, n)
    r.done()
    r = Rewriter(bound)
    for n in r.nodes("SiLU", "Gelu", "QuickGelu"):
        _gated(r, n)
    r.done()


def polynomial(v: Value, x: Value, depth: int = 8) -> dict[int, float] | None:
    """v as a polynomial in x: {power: coefficient}; None where it is none."""
    if v is x:
        return {1: 1.0}
    c = number(v)
    if c is not None:
        return {0: c}
    n = v.producer
    if n is None or depth == 0 or n.op not in ("Mul", "Add", "Div"):
        return None
    a, b = (polynomial(i, x, depth - 1) for i in n.inputs[:2])
    if a is None or b is None:
        return None
    if n.op == "Add":
        return {p: a.get(p, 0) + b.get(p, 0) for p in a.keys() | b.keys()}
    if n.op == "Div":
        return {p: k / b[0] for p, k in a.items()} if list(b) == [0] and b[0] else None
    out: dict[int, float] = {}
    for p, k in a.items():
        for q, m in b.items():
            out[p + q] = out.get(p + q, 0) + k * m
    return out


def _gelu(r: Rewriter, node: BoundNode) -> None:
    """0.5 x (1 + f(u(x))), in any order of the factors."""
    plus = r.only_user(node.outputs[0])
    if plus is None or plus.op != "Add" or number(other(plus, node.outputs[0])) != 1.0:
        return
    current, factor, x = plus, 1.0, None
    for _ in range(3):
        user = r.only_user(current.outputs[0])
        if user is None or user.op != "Mul":
            break
        o = other(user, current.outputs[0])
        c = number(o)
        if c is not None:
            factor *= c
        elif x is None:
            x = o
            m = o.producer
            if m is not None and m.op == "Mul" and any(number(i) == 0.5 for i in m.inputs):
                i = 0 if number(m.inputs[0]) is None else 1
                x, factor = m.inputs[i], factor * 0.5
        else:
            break
        current = user
        if x is not None and near(factor, 0.5):
            break
    if x is None or not near(factor, 0.5) or list(x.shape) != list(current.outputs[0].shape):
        return
    u = polynomial(node.inputs[0], x)
    if u is None:
        return
    u = {p: k for p, k in u.items() if k}
    if node.op == "Erf" and list(u) == [1] and near(u[1], math.sqrt(0.5)):
        r.become(current, "Gelu", "", [x], approximate="none")
    elif (
        node.op == "Tanh"
        and sorted(u) == [1, 3]
        and near(u[1], math.sqrt(2 / math.pi))
        and near(u[3], math.sqrt(2 / math.pi) * 0.044715)
    ):
        r.become(current, "Gelu", "", [x], approximate="tanh")


def _silu(r: Rewriter, node: BoundNode) -> None:
    x = node.inputs[0]
    user = r.only_user(node.outputs[0])
    if user is None or user.op != "Mul":
        return
    o = other(user, node.outputs[0])
    if o is x:
        r.become(user, "SiLU", "edgewise", [x])
        return
    u = polynomial(x, o)
    if u is not None and list(u) == [1]:
        r.become(user, "QuickGelu", "com.microsoft", [o], alpha=u[1])


def _hard_swish(r: Rewriter, node: BoundNode) -> None:
    """x min(max(x + 3, 0), 6) / 6 with the factor before or after the product, or
    x hardsigmoid(x) with slope 1/6.
    """
    x, factor, multiplied = None, 1.0, False
    if node.op == "HardSigmoid":
        if near(node.attr("alpha", 0.2), 1 / 6) and near(node.attr("beta", 0.5), 0.5):
            x = node.inputs[0]
    else:
        x, factor = (
            _operand(_operand(_operand(node.outputs[0], "MinOf2", 6.0), "MaxOf2", 0.0), "Add", 3.0),
            6.0,
        )
    current = node
    for _ in range(2):
        user = r.only_user(current.outputs[0]) if x is not None else None
        if user is None or user.op not in ("Mul", "Div"):
            return
        o = other(user, current.outputs[0])
        c = number(o)
        if c and (user.op == "Mul" or user.inputs[1] is o):
            factor = factor * c if user.op == "Mul" else factor / c
        elif o is x and user.op == "Mul" and not multiplied:
            multiplied = True
        else:
            return
        current = user
        if multiplied and near(factor, 1.0):
            r.become(current, "HardSwish", "", [x])
            return


def _operand(v: Value | None, op: str, c: float) -> Value | None:
    """x, where v is op(x, c) or op(c, x) with a number c; else None."""
    n = v.producer if v is not None else None
    if n is None or n.op != op:
        return None
    return next((n.inputs[1 - i] for i in (0, 1) if number(n.inputs[i]) == c), None)


def _gated(r: Rewriter, node: BoundNode) -> None:
    """activation(a) * b becomes one node."""
    y = node.outputs[0]
    user = r.only_user(y)
    if user is None or user.op != "Mul" or user.inputs[0] is user.inputs[1]:
        return
    b = other(user, y)
    if list(b.shape) != list(y.shape) or (
        node.op == "QuickGelu" and node.attr("alpha", 1.702) != 1.0
    ):
        return
    name = (
        "SiLUMul"
        if node.op in ("SiLU", "QuickGelu")
        else ("GeluTanhMul" if node.attr("approximate", "none") == "tanh" else "GeluMul")
    )
    r.become(user, name, "edgewise", [node.inputs[0], b])

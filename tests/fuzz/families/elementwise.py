"""Elementwise operators, comparisons, integers and choices."""

from __future__ import annotations

import numpy as np
from onnx import helper

# operator: (attributes, size of the result or None for that of the input)
UNARY = {
    "Relu": ({}, None), "Tanh": ({}, 1.0), "Sigmoid": ({}, 1.0), "Neg": ({}, None),
    "Abs": ({}, None), "Erf": ({}, 1.0), "LeakyRelu": ({"alpha": 0.2}, None),
    "Elu": ({"alpha": 1.0}, None), "Softplus": ({}, None), "HardSigmoid": ({}, 1.0),
    "HardSwish": ({}, None), "Sin": ({}, 1.0), "Cos": ({}, 1.0), "Floor": ({}, None),
    "Softsign": ({}, 1.0), "Selu": ({}, None), "ThresholdedRelu": ({"alpha": 0.3}, None),
    "Identity": ({}, None), "Sign": ({}, 1.0),
}  # fmt: skip


def unary(g):
    op = g.rng.choice([k for k in UNARY if k != "HardSwish" or g.opset >= 14])
    x = g.pick()
    attrs, size = UNARY[op]
    return x and g.node(op, [x], x.dims, size=size, **attrs)


def guarded(g):
    """Operators that need a positive or a small argument."""
    x = g.pick(lambda v: v.size < 50)
    if not x:
        return None
    how = g.rng.randrange(5)
    if how == 0:  # exp
        y = g.node("Clip", [x, -3.0, 2.0], x.dims, size=3.0, keep=False)
        return g.node("Exp", [y], x.dims, size=8.0)
    y = g.node("Abs", [x], x.dims, keep=False)
    y = g.node("Add", [y, 0.5], x.dims, keep=False)
    if how == 1:
        return g.node("Log", [y], x.dims, size=3.0)
    if how == 2:
        return g.node("Sqrt", [y], x.dims)
    if how == 3:
        return g.node("Reciprocal", [y], x.dims, size=2.0)
    return g.node("Pow", [y, g.number(g.rng.choice((0.5, 2.0, 1.5)))], x.dims, size=20.0)


def activation(g):
    """Decomposed activations, which passes recognise."""
    x = g.pick(lambda v: v.size < 20)
    if not x:
        return None
    how = g.rng.randrange(4)
    if how == 0:  # SiLU
        y = g.node("Sigmoid", [x], x.dims, size=1.0, keep=False)
        return g.node("Mul", [x, y], x.dims, size=x.size)
    if how == 1:  # GELU
        y = g.node("Div", [x, g.number(2**0.5)], x.dims, keep=False)
        y = g.node("Erf", [y], x.dims, size=1.0, keep=False)
        y = g.node("Add", [y, 1.0], x.dims, keep=False)
        y = g.node("Mul", [x, y], x.dims, size=x.size, keep=False)
        return g.node("Mul", [y, 0.5], x.dims)
    if how == 2:  # GELU by tanh
        y = g.node("Pow", [x, 3.0], x.dims, size=20.0, keep=False)
        y = g.node("Mul", [y, 0.044715], x.dims, keep=False)
        y = g.node("Add", [x, y], x.dims, keep=False)
        y = g.node("Mul", [y, 0.7978845608], x.dims, keep=False)
        y = g.node("Tanh", [y], x.dims, size=1.0, keep=False)
        y = g.node("Add", [y, 1.0], x.dims, keep=False)
        y = g.node("Mul", [x, y], x.dims, size=x.size, keep=False)
        return g.node("Mul", [y, 0.5], x.dims)
    y = g.node("Softplus", [x], x.dims, keep=False)  # Mish
    y = g.node("Tanh", [y], x.dims, size=1.0, keep=False)
    return g.node("Mul", [x, y], x.dims, size=x.size)


def partner(g, x):
    """A value that can be broadcast with x, or a constant."""
    y = g.pick(lambda v: v is not x and (d := g.broadcast(x.dims, v.dims)) and g.fits(d))
    if y and g.rng.random() < 0.75:
        return y
    dims = x.dims[g.rng.randint(0, x.rank) :]
    shape = [d[0] if g.is_fixed(d) and g.rng.random() < 0.8 else 1 for d in dims]
    return g.weight(*shape)


def binary(g):
    x = g.pick()
    if not x:
        return None
    y = partner(g, x)
    if g.rng.random() < 0.5:
        x, y = y, x
    dims = g.broadcast(x.dims, y.dims)
    op = g.rng.choice(("Add", "Add", "Sub", "Mul", "Mul", "Max", "Min", "Div", "PRelu", "Where"))
    if op == "Div":
        y = g.node("Abs", [y], y.dims, keep=False)
        y = g.node("Add", [y, 0.5], y.dims, keep=False)
        return g.node(op, [x, y], dims, size=2 * x.size)
    if op == "PRelu":
        if g.broadcast(x.dims, y.dims) != x.dims:
            return None
        y = g.weight(*[d[0] if g.is_fixed(d) else 1 for d in x.dims[-1:]])
        return g.node(op, [x, y], x.dims)
    if op == "Where":
        c = g.node("Greater", [x, y], dims, "?")
        return g.node(op, [c, x, y], dims, "f", size=max(x.size, y.size))
    size = {"Mul": x.size * y.size, "Max": max(x.size, y.size)}.get(op, x.size + y.size)
    return g.node(op, [x, y], dims, size=size)


def residual(g):
    """x + f(x), where f ends with an activation: several nodes that use one value."""
    x = g.pick(lambda v: v.rank >= 2)
    if not x:
        return None
    y = g.node(g.rng.choice(("Tanh", "Relu", "Sigmoid")), [x], x.dims, keep=False)
    y = g.node("Mul", [y, g.weight(*[d[0] if g.is_fixed(d) else 1 for d in x.dims[-1:]])], x.dims)
    return g.node("Add", [x, y], x.dims, size=x.size + 3)


def variadic(g):
    x = g.pick()
    y = g.pick(lambda v: v.dims == x.dims) if x else None
    z = y and g.pick(lambda v: v.dims == x.dims)
    if not z:
        return None
    op = g.rng.choice(("Sum", "Mean", "Max", "Min"))
    return g.node(op, [x, y, z], x.dims, size=x.size + y.size + z.size)


def logic(g):
    """Booleans, and what they choose."""
    x = g.pick()
    if not x:
        return None
    y = partner(g, x)
    dims = g.broadcast(x.dims, y.dims)
    op = g.rng.choice(("Greater", "Less", "GreaterOrEqual", "LessOrEqual"))
    a = g.node(op, [x, y], dims, "?")
    b = g.pick(lambda v: v is not a and g.broadcast(dims, v.dims) == dims, "?")
    if b:
        a = g.node(g.rng.choice(("And", "Or", "Xor")), [a, b], dims, "?")
    if g.rng.random() < 0.3:
        a = g.node("Not", [a], dims, "?")
    if g.rng.random() < 0.3:
        return g.node("Cast", [a], dims, "f", size=1.0, to=floats(g))
    return g.node("Where", [a, x, g.rng.choice((-1e4, 0.0, y))], dims, "f", size=x.size)


def floats(g):
    """The ONNX number of the graph's type of floats."""
    return helper.np_dtype_to_tensor_dtype(g.floats)


def integers(g):
    """Arithmetic of int64 or int32 tensors, and back to floats."""
    dtype = g.rng.choice(("i8", "i8", "i4"))
    x = g.pick(lambda v: v.rank > 0 and v.size < 100, dtype)
    if not x:
        y = g.pick(lambda v: v.size < 50)
        if not y:
            return None
        y = g.node("Mul", [y, 4.0], y.dims, keep=False)
        y = g.node("Round", [y], y.dims, keep=False)
        x = g.node("Cast", [y], y.dims, dtype, to=7 if dtype == "i8" else 6)
    kind = g.type_of(dtype)
    op = g.rng.choice(("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Abs", "Neg", "Equal"))
    if op in ("Abs", "Neg"):
        y = g.node(op, [x], x.dims)
    elif op == "Equal":
        other = g.const(np.array(g.rng.randint(-2, 2), kind))
        y = g.node(op, [x, other], x.dims, "?")
        return g.node("Cast", [y], x.dims, "f", size=1.0, to=floats(g))
    else:
        other = g.const(np.array(g.rng.choice((2, 3, 5)), kind))
        y = g.node(op, [x, other], x.dims, size=x.size * 5)
    if g.rng.random() < 0.6:
        return g.node("Cast", [y], y.dims, "f", size=100.0, to=floats(g))
    return y


def calm(g):
    """Keeps numbers small."""
    x = g.pick(lambda v: v.size > 12)
    if not x:
        return None
    if g.rng.random() < 0.5:
        return g.node("Tanh", [x], x.dims, size=1.0)
    return g.node("Mul", [x, g.number(3.0 / x.size)], x.dims, size=3.0)


FAMILIES = {
    "unary": (5, unary), "guarded": (2, guarded), "activation": (3, activation),
    "binary": (9, binary), "residual": (2, residual), "variadic": (2, variadic),
    "logic": (3, logic), "integers": (3, integers), "calm": (3, calm),
}  # fmt: skip

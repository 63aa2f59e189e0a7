"""If, Loop and Scan with small bodies, which use values of the graph around them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from ..graph import body

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


def branch(g):
    """If: chosen by a length's parity, or by the data."""
    x = g.pick(lambda v: v.rank >= 1 and min(map(min, v.dims)) > 0)
    if not x:
        return None
    if g.rng.random() < 0.6:
        d = g.rng.choice(x.dims)
        number = g.length(d)
        if number is None:
            return None
        odd = g.node("Mod", [g.scalar(number), g.const(np.array(2))], (), "i8", keep=False)
        condition = g.node("Equal", [odd, g.const(np.array(1))], (), "?", keep=False)
    else:
        zero = g.node("ReduceMax", [x], (), keep=False, keepdims=0)
        condition = g.node("Greater", [zero, g.number(g.rng.choice((0.5, 1.0, 2.0)))], (), "?")
    w = g.weight(*[d[0] if g.is_fixed(d) else 1 for d in x.dims[-1:]])
    g.used.add(w.name)
    bodies = {}
    for name, ops in (("then_branch", ("Tanh", "Mul")), ("else_branch", ("Neg", "Add"))):
        inner, out = g.fresh("inner"), g.fresh("branch")
        nodes = [
            helper.make_node(ops[0], [x.name], [inner]),
            helper.make_node(ops[1], [inner, w.name], [out]),
        ]
        bodies[name] = body(name, nodes, [], [(out, g.floats, None)])
    return g.node("If", [condition], x.dims, "f", size=x.size + 3, **bodies)


def loop(g):
    """Loop over a constant or a length: one carried value, and one that is collected."""
    x = g.pick(lambda v: v.rank in (1, 2) and 0 < min(map(min, v.dims)) and v.size < 20)
    if not x:
        return None
    d = g.rng.choice([g.fixed(2), *[d for v in g.values for d in v.dims if max(d) < 12]])
    number = g.length(d)
    if number is None or not g.fits((d, *x.dims)):
        return None
    w = g.weight(*[k[0] if g.is_fixed(k) else 1 for k in x.dims[-1:]], scale=0.3)
    g.used.add(w.name)
    i, go, h, went, t, y, s = (g.fresh(k) for k in ("i", "go", "h", "went", "t", "y", "s"))
    nodes = [
        helper.make_node("Identity", [go], [went]),
        helper.make_node("Mul", [h, w.name], [t]),
        helper.make_node("Tanh", [t], [y]),
        helper.make_node("Add", [y, x.name], [s]),
    ]
    inner = body(
        "body",
        nodes,
        [(i, np.int64, []), (go, np.bool_, []), (h, g.floats, None)],
        [(went, np.bool_, []), (y, g.floats, None), (s, g.floats, None)],
    )
    true = g.const(np.array(True))
    inputs = [g.scalar(number), true if g.rng.random() < 0.5 else None, x]
    outs = g.many("Loop", inputs, [x.dims, (d, *x.dims)], ["f", "f"], x.size + 3, body=inner)
    return outs[0]


def scan(g):
    """Scan over a length."""
    x = g.pick(lambda v: v.rank == 2 and g.is_fixed(v.dims[1]) and min(v.dims[0]) > 0)
    if not x or x.dims[1][0] == 0:
        return None
    c = x.dims[1][0]
    start = g.weight(c)
    h, e, s, y, z = (g.fresh(k) for k in "hesyz")
    nodes = [
        helper.make_node("Add", [h, e], [s]),
        helper.make_node("Tanh", [s], [y]),
        helper.make_node("Identity", [y], [z]),
    ]
    shape = [c]
    inner = body(
        "body",
        nodes,
        [(h, g.floats, shape), (e, g.floats, shape)],
        [(y, g.floats, shape), (z, g.floats, shape)],
    )
    outs = g.many(
        "Scan", [start, x], [(g.fixed(c),), x.dims], size=1.0, body=inner, num_scan_inputs=1
    )
    return outs[1]


FAMILIES = {"branch": (1.5, branch), "loop": (1.5, loop), "scan": (1, scan)}

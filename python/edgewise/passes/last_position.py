"""Logits only where they are wanted: the slice of one position moves up through everything that works row by row."""
from __future__ import annotations

from ..ir import BoundNode, Value
from ..ops import OPS

_ROWWISE = {"Cast", "Tanh", "Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "SiLU", "Gelu", "QuickGelu", "Neg"}
_BINARY = {"Add", "Sub", "Mul", "Div", "SiLUMul", "GeluMul", "GeluTanhMul"}
_PRODUCTS = {"MatMul", "MatMulNBits", "MatMulBnb4"}


def keep_position(bound, name, axis, register):
    """Output `name` keeps only position `register` (a Sym) of `axis`; the axis stays, with length 1.

    The slice moves up past a node only where nothing else needs the node's other rows: what is computed for all positions anyway is sliced, not computed again."""
    value = bound.outputs[name]
    users = bound.users()
    wanted, moved = {id(value): axis}, set()
    for n in reversed(bound.nodes):
        v = n.outputs[0]
        if v is None or id(v) not in wanted or any(o is not None for o in n.outputs[1:]) or not all(u is None or id(u) in moved for u in users.get(id(v), ())):
            continue
        rows = _row_inputs(n, wanted[id(v)])
        if rows is None:
            continue
        moved.add(id(n))
        for i, a in rows.items():
            wanted[id(n.inputs[i])] = a
    added = []
    bound.outputs[name] = _at(value, axis, register, added, {}, moved)
    bound.nodes += added
    return bound.prune()


def _row_inputs(n, axis):
    """{input number: axis} of the inputs whose rows a node works on one by one along the output's axis; None when it is not such a node."""
    v = n.outputs[0]
    last = v.rank - 1
    if v.constant:
        return None
    if n.op in _ROWWISE and axis != last and n.attr("axis", -1) in (-1, last):
        return {0: axis}
    if n.op in _PRODUCTS and axis != last and n.inputs[0].rank == v.rank and n.inputs[1].fixed and (n.op != "MatMul" or n.inputs[1].rank == 2):
        return {0: axis}
    if n.op == "Gemm" and axis == 0 and not n.attr("transA", 0) and (len(n.inputs) < 3 or n.inputs[2] is None or n.inputs[2].rank < 2):
        return {0: 0}
    if n.op in _BINARY:
        return {i: axis - v.rank + x.rank for i, x in enumerate(n.inputs) if x.rank >= v.rank - axis and x.shape[axis - v.rank] != 1}
    if n.op == "Reshape":
        x = n.inputs[0]
        if x.rank == 2 and v.rank == 3 and axis == 1 and v.shape[0] == 1 and x.shape == v.shape[1:]:
            return {0: 0}
        if x.rank == 3 and v.rank == 2 and axis == 0 and x.shape[0] == 1 and x.shape[1:] == v.shape:
            return {0: 1}
    return None


def _at(v, axis, register, added, done, moved):
    if id(v) in done:
        return done[id(v)]
    n = v.producer
    shape = list(v.shape)
    shape[axis] = 1
    out = Value(v.name + "@last", v.dtype, shape)
    if n is not None and id(n) in moved:
        rows = _row_inputs(n, axis)
        inputs = [_at(x, rows[i], register, added, done, moved) if i in rows else x for i, x in enumerate(n.inputs)]
        attrs = dict(n.attrs)
        if n.op == "Reshape":
            inputs, attrs = [inputs[0], Value("shape", 7, [len(shape)], numbers=shape)], {"allowzero": 1}
        node = BoundNode(n.op, n.domain, n.name, inputs, [out], attrs, n.opset, n.decl)
    else:
        numbers = [Value("slice", 7, [1], numbers=[x]) for x in (register, register + 1, axis)]
        node = BoundNode("Slice", "", "", [v, *numbers], [out], {}, 23, OPS[("", "Slice")])
    out.producer = node
    added.append(node)
    done[id(v)] = out
    return out

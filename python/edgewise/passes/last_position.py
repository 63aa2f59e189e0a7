"""Logits only where they are wanted: the slice of one position moves up through everything that
works row by row, attention's queries among it.
"""

from __future__ import annotations

from ..declare.symbolic import Sym, product
from ..ir import BoundNode, Value
from ..ops import OPS, declared

_ROWWISE = {
    "Cast",
    "Tanh",
    "Softmax",
    "LogSoftmax",
    "LayerNormalization",
    "RMSNormalization",
    "SimplifiedLayerNormalization",
    "SiLU",
    "Gelu",
    "QuickGelu",
    "Neg",
}
_BINARY = {
    "Add",
    "Sub",
    "Mul",
    "Div",
    "SiLUMul",
    "GeluMul",
    "GeluTanhMul",
    "SkipSimplifiedLayerNormalization",
    "SkipLayerNormalization",
}
_PRODUCTS = {name for name, weight in declared("weight").items() if weight.by_rows}


def keep_position(bound, name, axis, register):
    """Output `name` keeps only position `register` (a Sym) of `axis`; the axis stays, with length
    1.

    The slice moves up past a node only where nothing else needs the node's other rows: what is
    computed for all positions anyway is sliced, not computed again.
    """
    value = bound.outputs[name]
    users = bound.users()
    wanted, moved = {id(value): axis}, set()

    def row_alone(v):
        return id(v) in wanted and all(u is None or id(u) in moved for u in users.get(id(v), ()))

    for n in reversed(bound.nodes):
        outs = [v for v in n.outputs if v is not None and (users.get(id(v)) or v is value)]
        if not outs or not all(map(row_alone, outs)) or len({wanted[id(v)] for v in outs}) > 1:
            continue
        rows = _row_inputs(n, wanted[id(outs[0])])
        if rows is None or any(wanted.get(id(n.inputs[i]), a) != a for i, a in rows.items()):
            continue
        moved.add(id(n))
        for i, a in rows.items():
            wanted[id(n.inputs[i])] = a
    added = []
    bound.outputs[name] = _at(value, axis, register, added, {}, moved)
    bound.nodes += added
    return bound.prune()


def _row_inputs(node, axis):
    """{input number: axis} of the inputs whose rows a node works on one by one along the outputs'
    axis; None when it is not such a node.
    """
    v = next(o for o in node.outputs if o is not None)
    last, x = v.rank - 1, node.inputs[0] if node.inputs else None
    if v.constant or any(o is not None and o.rank != v.rank for o in node.outputs):
        return None
    if (
        node.op in _ROWWISE
        and axis != last
        and node.attr("axis", -1) in (-1, last)
        and all(o is None for o in node.outputs[1:])
    ):
        return {0: axis}
    if (
        node.op in _PRODUCTS
        and axis != last
        and x.rank == v.rank
        and node.inputs[1].fixed
        and (node.op != "MatMul" or node.inputs[1].rank == 2)
    ):
        return {0: axis}
    if (
        node.op == "QuantizedMatMul" and axis != last
    ):  # a's scale and zero point are those of all rows
        return {0: axis, 1: axis}
    if (
        node.op == "Gemm"
        and axis == 0
        and not node.attr("transA", 0)
        and (len(node.inputs) < 3 or node.inputs[2] is None or node.inputs[2].rank < 2)
    ):
        return {0: 0}
    if (
        node.op in _BINARY
        and (axis != last or "Norm" not in node.op)
        and all(o is None for o in node.outputs[1:3])
    ):
        return {
            i: axis - v.rank + x.rank
            for i, x in enumerate(node.inputs)
            if x is not None and x.rank >= v.rank - axis and x.shape[axis - v.rank] != 1
        }
    if node.op == "Transpose":
        return {0: node.attr("perm")[axis]} if node.attr("perm") else None
    if node.op == "Rope":  # x [batch, heads, rows, dim], tables [batch or 1, rows, dim / 2]
        return (
            {i: a for i, a in enumerate((2, 1, 1)) if node.inputs[i].shape[a] != 1}
            if axis == 2
            else None
        )
    if node.op == "Attention" and node.domain == "edgewise":
        causal = node.attr("causal", 0)
        if (
            axis != (1 if node.attr("merged", 0) else 2)
            or causal
            and isinstance(node.attrs.get("past", 0), Sym)
        ):
            return None
        return {
            0: 2,
            **{
                i: m.rank - 2
                for i, m in enumerate(node.inputs)
                if i > 2 and m.rank > 1 and m.shape[-2] != 1
            },
        }
    if node.op == "Reshape" and not any(
        isinstance(d, Sym) for d in (*x.shape, *v.shape)
    ):  # where the rows stay a dimension of their own
        before = product(v.shape[:axis])
        return next(
            (
                {0: a}
                for a in range(x.rank)
                if x.shape[a] == v.shape[axis] and product(x.shape[:a]) == before
            ),
            None,
        )
    return None


def _at(v, axis, register, added, done, moved):
    if id(v) in done:
        return done[id(v)]
    n = v.producer

    def one(o):
        return Value(o.name + "@last", o.dtype, [*o.shape[:axis], 1, *o.shape[axis + 1 :]])

    if n is not None and id(n) in moved:
        rows = _row_inputs(n, axis)
        inputs = [
            _at(x, rows[i], register, added, done, moved) if i in rows else x
            for i, x in enumerate(n.inputs)
        ]
        outs, attrs = [None if o is None else one(o) for o in n.outputs], dict(n.attrs)
        if n.op == "Reshape":
            shape = outs[0].shape
            inputs, attrs = (
                [inputs[0], Value("shape", 7, [len(shape)], numbers=shape)],
                {"allowzero": 1},
            )
        if n.op == "Attention" and n.attr("causal", 0):
            attrs["past"] = n.attrs.get("past", 0) + register
        node = BoundNode(n.op, n.domain, n.name, inputs, outs, attrs, n.opset, n.decl)
    else:
        outs = [one(v)]
        numbers = [Value("slice", 7, [1], numbers=[x]) for x in (register, register + 1, axis)]
        node = BoundNode("Slice", "", "", [v, *numbers], outs, {}, 23, OPS[("", "Slice")])
    for old, new in zip(n.outputs if node.op != "Slice" else [v], outs):
        if new is not None:
            new.producer, done[id(old)] = node, new
    added.append(node)
    return done[id(v)]

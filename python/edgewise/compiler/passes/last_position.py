"""Logits of some positions only: the slice of those positions moves up through all nodes that work
on each row alone, attention's queries among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..declare.dtypes import INT64
from ..declare.op import Dim
from ..declare.symbolic import Sym, product
from ..ir import BoundNode, Value
from ..ops import OPS, declared

if TYPE_CHECKING:
    from ..bind import BoundGraph

# {input number: axis} of the inputs whose rows a node works on one by one; None: it does not.
Rows = dict[int, int] | None

# Ops that work on each row (the last axis) alone.
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
# Ops that work on corresponding rows of several inputs.
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


def keep_position(
    bound: BoundGraph, name: str, axis: int, register: Any, count: Dim = 1
) -> BoundGraph:
    """Reduces an axis of an output to one position, or to several; the axis stays.

    The slice moves up past a node only where nothing else needs the node's other rows: what is
    computed for all positions anyway is sliced, not computed again.

    Args:
        bound: the graph.
        name: of the output.
        axis: of the output.
        register: the position, a Sym or an int; the first of several.
        count: of positions, 1 or a Sym.

    Returns:
        bound

    Raises:
        NotStatic: a node cannot compute a number of positions that depends on a register.
    """
    value = bound.outputs[name]
    users = bound.users()
    wanted, moved = {id(value): axis}, set[int]()

    def row_alone(v: Value) -> bool:
        return id(v) in wanted and all(u is None or id(u) in moved for u in users.get(id(v), ()))

    for n in reversed(bound.nodes):
        outs = [v for v in n.outputs if v is not None and (users.get(id(v)) or v is value)]
        if isinstance(count, Sym) and n.op in _RULES:
            continue  # whose rows have other axes, or lengths of the past
        if not outs or not all(map(row_alone, outs)) or len({wanted[id(v)] for v in outs}) > 1:
            continue
        rows = _row_inputs(n, wanted[id(outs[0])])
        if rows is None or any(wanted.get(id(n.inputs[i]), a) != a for i, a in rows.items()):
            continue
        moved.add(id(n))
        for i, a in rows.items():
            wanted[id(n.inputs[i])] = a
    sliced = _Slicer(bound, register, moved, count)
    bound.outputs[name] = sliced.at(value, axis)
    bound.nodes += sliced.nodes
    return bound.prune()


# ---- which nodes work on rows
def _row_inputs(node: BoundNode, axis: int) -> Rows:
    """The inputs whose rows a node works on one by one along an axis of its outputs."""
    v = next(o for o in node.outputs if o is not None)
    if v.constant or any(o is not None and o.rank != v.rank for o in node.outputs):
        return None
    for rule in (_elementwise_rows, _product_rows, _binary_rows):
        rows = rule(node, axis, v)
        if rows is not None:
            return rows
    if node.op == "Transpose":
        return {0: node.attr("perm")[axis]} if node.attr("perm") else None
    other = _RULES.get(node.op)
    return other(node, axis, v) if other is not None else None


def _elementwise_rows(node: BoundNode, axis: int, v: Value) -> Rows:
    alone = (
        node.op in _ROWWISE
        and axis != v.rank - 1
        and node.attr("axis", -1) in (-1, v.rank - 1)
        and all(o is None for o in node.outputs[1:])
    )
    return {0: axis} if alone else None


def _product_rows(node: BoundNode, axis: int, v: Value) -> Rows:
    last = v.rank - 1
    if (
        node.op in _PRODUCTS
        and axis != last
        and node.inputs[0].rank == v.rank
        and node.inputs[1].fixed
        and (node.op != "MatMul" or node.inputs[1].rank == 2)
    ):
        return {0: axis}
    if node.op == "QuantizedMatMul" and axis != last:
        return {0: axis, 1: axis}  # a scale and a zero point belong to all rows
    c = node.input(2)
    if node.op == "Gemm" and axis == 0 and not node.attr("transA", 0) and (c is None or c.rank < 2):
        return {0: 0}
    return None


def _binary_rows(node: BoundNode, axis: int, v: Value) -> Rows:
    if (
        node.op not in _BINARY
        or axis == v.rank - 1
        and "Norm" in node.op
        or any(o is not None for o in node.outputs[1:3])
    ):
        return None
    return {
        i: axis - v.rank + x.rank
        for i, x in enumerate(node.inputs)
        if x is not None and x.rank >= v.rank - axis and x.shape[axis - v.rank] != 1
    }


def _rope_rows(node: BoundNode, axis: int, v: Value) -> Rows:
    """x [batch, heads, rows, dim], tables [batch or 1, rows, dim / 2]"""
    if axis != 2:
        return None
    return {i: a for i, a in enumerate((2, 1, 1)) if node.inputs[i].shape[a] != 1}


def _attention_rows(node: BoundNode, axis: int, v: Value) -> Rows:
    if node.domain != "edgewise":
        return None
    past_is_register = isinstance(node.attrs.get("past", 0), Sym)
    if axis != (1 if node.attr("merged", 0) else 2) or node.attr("causal", 0) and past_is_register:
        return None
    masks = {
        i: m.rank - 2
        for i, m in enumerate(node.inputs)
        if i > 2 and m.rank > 1 and m.shape[-2] != 1
    }
    return {0: 2, **masks}


def _reshape_rows(node: BoundNode, axis: int, v: Value) -> Rows:
    """Rows that stay a dimension of their own."""
    x = node.inputs[0]
    if any(isinstance(d, Sym) for d in (*x.shape, *v.shape)):
        return None
    before = product(v.shape[:axis])
    for a in range(x.rank):
        if x.shape[a] == v.shape[axis] and product(x.shape[:a]) == before:
            return {0: a}
    return None


_RULES: Mapping[str, Callable[[BoundNode, int, Value], Rows]] = {
    "Rope": _rope_rows,
    "Attention": _attention_rows,
    "Reshape": _reshape_rows,
}


# ---- the nodes for these positions
class _Slicer:
    """Makes the nodes that compute some positions.

    Args:
        bound: the graph.
        register: the first position.
        moved: ids of the nodes that the slice moves past.
        count: of positions.

    Attributes:
        nodes: the new nodes, in order.
    """

    def __init__(self, bound: BoundGraph, register: Any, moved: set[int], count: Dim) -> None:
        self.nodes: list[BoundNode] = []
        self._bound, self._register, self._moved, self._count = bound, register, moved, count
        self._done: dict[int, Value] = {}

    def at(self, v: Value, axis: int) -> Value:
        """The positions of a value."""
        if id(v) not in self._done:
            n = v.producer
            if n is not None and id(n) in self._moved:
                self._again(n, axis)
            else:
                self._slice(v, axis)
        return self._done[id(v)]

    def _again(self, n: BoundNode, axis: int) -> None:
        """Adds a node for the positions."""
        rows = _row_inputs(n, axis) or {}
        inputs = [self.at(x, rows[i]) if i in rows else x for i, x in enumerate(n.inputs)]
        outs, attrs = [None if o is None else self._some(o, axis) for o in n.outputs], dict(n.attrs)
        if n.op == "Reshape" and outs[0] is not None:
            shape = outs[0].shape
            inputs = [inputs[0], Value("shape", INT64, [len(shape)], numbers=shape)]
            attrs = {"allowzero": 1}
        if n.op == "Attention" and n.attr("causal", 0):
            attrs["past"] = n.attrs.get("past", 0) + self._register
        node = BoundNode(
            n.op, n.domain, n.name, inputs, list(outs), attrs, n.opset, n.decl, "", n.origin
        )
        self._add(node, n.outputs)

    def _slice(self, v: Value, axis: int) -> None:
        if isinstance(self._count, Sym):
            self._done[id(v)] = self._gather(v, axis, self._count)
            return
        ends = (self._register, self._register + 1, axis)
        numbers = [Value("slice", INT64, [1], numbers=[x]) for x in ends]
        decl = OPS[("", "Slice")]
        outs = [self._some(v, axis)]
        self._add(BoundNode("Slice", "", "", [v, *numbers], outs, {}, 23, decl), [v])

    def _gather(self, v: Value, axis: int, count: Sym) -> Value:
        """The positions of a value, by their numbers: a slice with a register at either end could
        be longer than the value, as far as a plan knows.
        """
        op = self._bound.binder.op

        def number(x: Any, *shape: int) -> Value:
            return Value("position", INT64, list(shape), numbers=[x])

        first = self._register
        every = op("Range", number(first), number(first + count.max), number(1))
        every = op("Min", every, number(v.shape[axis] - 1))
        rows = op("Gather", v, every, axis=axis)
        return op("Slice", rows, number(0, 1), number(count, 1), number(axis, 1))

    def _some(self, o: Value, axis: int) -> Value:
        shape = [*o.shape[:axis], self._count, *o.shape[axis + 1 :]]
        return Value(o.name + "@last", o.dtype, shape)

    def _add(self, node: BoundNode, old_outputs: list[Any]) -> None:
        for old, new in zip(old_outputs, node.outputs):
            if new is not None:
                new.producer, self._done[id(old)] = node, new
        self.nodes.append(node)

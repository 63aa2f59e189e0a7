"""Statically quantized graphs: ops between DequantizeLinear and QuantizeLinear compute on bytes.

Products become integer products, whose sums are rounded once, as in onnxruntime's optimizer. Ops
that only move elements, and maxima, work on bytes. Sums and products of two tensors are one step. A
chain of functions of one tensor becomes a table of 256 bytes, which the graph's own ops compute.
All other nodes stay. This pass runs once gradients are made, which need the float ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..declare.dtypes import FLOAT, INT8, INT32, RANGE, UINT8
from ..declare.op import one_number, same_shape
from ..declare.symbolic import product
from ..ir import BoundNode, Value
from ..ops.quantized.integer import BIAS
from .integer_bias import bias_of_sums, products
from .rewrite import Rewriter, number, other

if TYPE_CHECKING:
    from ..bind import BoundGraph

# Dequantized: q, scale, zero point or None, axis (None: one scale for all)
Quantized = tuple[Value, Value, Value | None, int | None]

# Ops that move elements of their first input.
_MOVES = frozenset(
    """
    Reshape Transpose Flatten Squeeze Unsqueeze MaxPool Slice Gather Expand Tile DepthToSpace
    SpaceToDepth Identity
    """.split()
)
_UNARY = frozenset(
    """
    Relu LeakyRelu Sigmoid Tanh HardSigmoid HardSwish Elu Gelu SiLU QuickGelu Erf Exp Sqrt Neg
    Abs Softplus Mish Celu Selu
    """.split()
)
# Functions of one tensor where the other is a number.
_BINARY = {"Add", "Sub", "Mul", "Div", "MaxOf2", "MinOf2", "Pow"}


def fuse_quantized(bound: BoundGraph) -> None:
    """DequantizeLinear, float ops and QuantizeLinear become IntegerConv, IntegerMatMul,
    IntegerBinary, ByteLookup, or the ops themselves on bytes: _ROUNDS, in this order.
    """
    if not any(
        n.op in ("DequantizeLinear", "QuantizeDequantize", "IntegerConv", "MatMulInteger")
        for n in bound.nodes
    ):
        return
    for rules in _ROUNDS:
        r = Rewriter(bound)
        for rule, ops in rules:
            for n in r.nodes(*ops):
                rule(r, n)
        r.done()


# ---- patterns
def _quantized(v: Value | None) -> Quantized | None:
    """(q, scale, zero or None, axis) where v is a dequantized tensor of bytes; axis None: one scale
    for all.
    """
    n = v.producer if v is not None else None
    if n is None or n.op != "DequantizeLinear" or n.attr("block_size", 0):
        return None
    q, scale, zero = [*n.inputs, None][:3]
    if (
        q.dtype not in (UINT8, INT8)
        or scale.dtype != FLOAT
        or scale.rank > 1
        or zero is not None
        and (zero.dtype != q.dtype or not same_shape(zero.shape, scale.shape))
    ):
        return None
    axis = n.attr("axis", 1)
    return q, scale, zero, None if one_number(scale.shape) else axis % q.rank


def _one(v: Value | None) -> tuple[Value, Value, Value | None] | None:
    """(q, scale, zero or None) with one scale for all, or None."""
    q = _quantized(v)
    return q[:3] if q is not None and q[3] is None else None


def _quantizes(node: BoundNode | None) -> bool:
    """Whether a node quantizes float32 to bytes with one scale for all."""
    return (
        node is not None
        and node.op == "QuantizeLinear"
        and node.domain == ""
        and node.outputs[0].dtype in (UINT8, INT8)
        and node.inputs[0].dtype == FLOAT
        and one_number(node.inputs[1].shape)
        and node.inputs[1].dtype == FLOAT
        and not node.attr("block_size", 0)
    )


def _same(a: Value | None, b: Value | None) -> bool:
    """Whether two scales or zero points are the same; an absent zero point is 0."""
    if a is b:
        return True
    numbers = [[0] if v is None else v.numbers for v in (a, b)]
    return numbers[0] is not None and numbers[0] == numbers[1]


def _replace(r: Rewriter, old: Value, new: Value) -> bool:
    """Lets all users of `old` read `new`; False where `old` is an output of the graph."""
    if any(v is old for v in r.bound.outputs.values()):
        return False
    users = r.users.pop(id(old), [])
    for u in filter(None, users):
        u.inputs = [new if v is old else v for v in u.inputs]
    r.users.setdefault(id(new), []).extend(users)
    return True


# ---- rules
def _forget(r: Rewriter, node: BoundNode) -> None:
    """Only gradients need the float input of a pair."""
    r.become(
        node,
        "DequantizeLinear",
        "",
        node.inputs[:3],
        axis=node.attr("axis", 1),
        block_size=node.attr("block_size", 0),
    )


def _move(r: Rewriter, node: BoundNode) -> None:
    """op(dequantize(q)) = dequantize(op(q))"""
    found = _one(node.inputs[0])
    if (
        found is None
        or len(node.outputs) != 1
        or any(v is node.outputs[0] for v in r.bound.outputs.values())
        or node.op == "Gather"
        and node.inputs[0].constant
        or node.op == "MaxPool"
        and not (found[1].scalar() or 0) > 0  # or the largest byte is the smallest number
    ):
        return
    q, scale, zero = found
    moved = r.insert(
        node,
        node.op,
        node.domain,
        [q, *node.inputs[1:]],
        q.dtype,
        node.outputs[0].shape,
        **node.attrs,
    )
    assert moved.producer is not None
    moved.producer.opset = node.opset
    r.become(node, "DequantizeLinear", "", [moved, scale, zero])


def _unchanged(r: Rewriter, node: BoundNode) -> None:
    """quantize(dequantize(q)) with the same scale and zero point is q."""
    found = _one(node.inputs[0]) if _quantizes(node) else None
    if (
        found is not None
        and found[0].dtype == node.outputs[0].dtype
        and _same(found[1], node.inputs[1])
        and _same(found[2], node.input(2))
    ):
        _replace(r, node.outputs[0], found[0])


def _step_of(x: float, scale: Value, zero: Value | None, dtype: int) -> int | None:
    """The byte that x becomes; None where scale or zero point are not known."""
    s, z = scale.scalar(), 0 if zero is None else zero.scalar()
    low, high = RANGE[dtype]
    return None if s is None or z is None or not s > 0 else max(low, min(high, round(x / s) + z))


def _bounds(r: Rewriter, v: Value) -> tuple[BoundNode, float | None, float | None] | None:
    """(the QuantizeLinear that reads v, perhaps after bounds, lower bound, upper bound); None
    where there is none.
    """
    low: float | None = None
    high: float | None = None
    while (n := r.only_user(v)) is not None:
        if _quantizes(n):
            return n, low, high
        bound = number(other(n, v)) if n.op in ("MaxOf2", "MinOf2") else None
        if list(n.outputs[0].shape) != list(v.shape):
            return None
        if n.op == "Relu" and (high is None or high >= 0):
            low = 0.0 if low is None else max(low, 0.0)
        elif n.op == "MaxOf2" and bound is not None and high is None:
            low = bound if low is None else max(low, bound)
        elif n.op == "MinOf2" and bound is not None:
            high = bound if high is None else min(high, bound)
        else:
            return None
        v = n.outputs[0]
    return None


def _limits(q: BoundNode, low: float | None, high: float | None) -> dict[str, int] | None:
    """{low, high} as bytes of QuantizeLinear q's output; None where they are not known."""
    out: dict[str, int] = {}
    dtype = q.outputs[0].dtype
    for name, x in (("low", low), ("high", high)):
        if x is not None:
            step = _step_of(x, q.inputs[1], q.input(2), dtype)
            if step is None:
                return None
            out[name] = step
    return out


def _mul(r: Rewriter, before: BoundNode, a: Value, b: Value, op: str = "Mul") -> Value:
    return r.insert(before, op, "", [a, b], FLOAT, a.shape if product(a.shape) > 1 else b.shape)


def _quantized_end(
    r: Rewriter, node: BoundNode, bias: Value | None, factors: list[float] | None
) -> tuple[BoundNode, dict[str, int], Value | None]:
    """(the last node that an integer product computes, its output type and limits, the bias of its
    sums), where the product is followed by bounds and QuantizeLinear. Without them, and where the
    bias has no place among the sums, the output is float32, to which any bias can be added.

    Args:
        bias: of the node.
        factors: scale of each column's sum, where it is known.
    """
    found = _bounds(r, node.outputs[0])
    limits = _limits(*found) if found is not None else None
    y_scale = found[0].inputs[1] if found is not None and limits is not None else None
    steps = bias_of_sums(bias, factors, y_scale) if bias is not None else None
    if found is None or limits is None or bias is not None and steps is None:
        return node, {"y_type": FLOAT}, steps
    return found[0], {"y_type": found[0].outputs[0].dtype, **limits}, steps


def _product(r: Rewriter, node: BoundNode) -> None:
    a, w = _one(node.inputs[0]), _quantized(node.inputs[1])
    if (
        a is None
        or w is None
        or node.attr("alpha", 1.0) != 1.0
        or node.attr("beta", 1.0) != 1.0
        or "activation" in node.attrs
        or node.has(3)
    ):
        return
    conv, gemm = node.op == "Conv", node.op == "Gemm"
    channel = 0 if conv or gemm and node.attr("transB", 0) else node.inputs[1].rank - 1
    bias, columns = (
        node.input(2) if conv or gemm else None,
        node.outputs[0].shape[1 if conv else -1],
    )
    if (
        min(node.inputs[0].rank, node.inputs[1].rank) < 2
        or w[3] not in (None, channel)
        or w[3] is not None
        and node.inputs[1].rank > 2
        and not conv
        or bias is not None
        and (list(bias.shape) != [columns] or not bias.constant)
        or conv
        and not w[0].constant
    ):
        return
    (xq, x_scale, x_zero), (wq, w_scale, w_zero, _) = a, w
    last, attrs, steps = _quantized_end(r, node, bias, products(x_scale, w_scale, columns))
    factor = _mul(r, last, x_scale, w_scale)
    if last is not node:
        factor = _mul(r, last, factor, last.inputs[1], "Div")
    if gemm:
        xq, wq = (
            r.transpose(last, v, [1, 0]) if node.attr(turn, 0) else v
            for v, turn in ((xq, "transA"), (wq, "transB"))
        )
    if conv:
        attrs = {**dict(node.attrs.items()), **attrs}
    r.become(
        last,
        "IntegerConv" if conv else "IntegerMatMul",
        "edgewise",
        [
            xq,
            x_zero,
            wq,
            w_zero,
            steps,
            None,
            factor,
            last.input(2) if last is not node else None,
            *([bias] if bias is not None and steps is None else []),
        ],
        **attrs,
    )


def _pair(r: Rewriter, node: BoundNode) -> None:
    """quantize(bounds(dequantize(a) op dequantize(b)))"""
    if not _quantizes(node):
        return
    v = node.inputs[0]
    while v.producer is not None and v.producer.op in ("Relu", "MaxOf2", "MinOf2") and r.single(v):
        v = (
            v.producer.inputs[0]
            if v.producer.op == "Relu" or number(v.producer.inputs[1]) is not None
            else v.producer.inputs[1]
        )
    m = v.producer
    if m is None or m.op not in ("Add", "Sub", "Mul") or not r.single(v):
        return
    a, b = _one(m.inputs[0]), _one(m.inputs[1])
    found = _bounds(r, v)
    if (
        a is None
        or b is None
        or list(a[0].shape) != list(b[0].shape)
        or found is None
        or found[0] is not node
        or (bounds := _limits(*found)) is None
    ):
        return
    r.become(
        node,
        "IntegerBinary",
        "edgewise",
        [*a, *b, node.inputs[1], node.input(2)],
        how=m.op,
        y_type=node.outputs[0].dtype,
        **bounds,
    )


def _table(r: Rewriter, node: BoundNode) -> None:
    """quantize(f(dequantize(q))) of an elementwise f becomes a table."""
    if not _quantizes(node) or node.outputs[0].constant:
        return
    chain, v = [], node.inputs[0]
    while _one(v) is None:
        m = v.producer
        if (
            m is None
            or not r.single(v)
            or len(m.outputs) != 1
            or m.outputs[0].dtype != FLOAT
            or "residual" in m.attrs
        ):
            return
        inner = [i for i in m.inputs if i is not None and number(i) is None]
        if (
            len(inner) != 1
            or not (m.op in _UNARY and len(m.inputs) == 1 or m.op in _BINARY and len(m.inputs) == 2)
            or list(inner[0].shape) != list(v.shape)
        ):
            return
        chain.append((m, inner[0]))
        v = inner[0]
    found = _one(v)
    assert found is not None
    q, scale, zero = found
    if q.constant or product(q.shape) < 256:
        return
    x = Value(
        "bytes",
        q.dtype,
        [256],
        numbers=list(range(256)) if q.dtype == UINT8 else [*range(128), *range(-128, 0)],
    )
    x = r.insert(node, "DequantizeLinear", "", [x, scale, zero], FLOAT, [256])
    for m, inner in reversed(chain):
        x = r.insert(
            node,
            m.op,
            m.domain,
            [x if i is inner else i for i in m.inputs],
            FLOAT,
            [256],
            **m.attrs,
        )
        assert x.producer is not None
        x.producer.opset = m.opset
    table = r.insert(
        node,
        "QuantizeLinear",
        "",
        [x, *node.inputs[1:]],
        node.outputs[0].dtype,
        [256],
        **node.attrs,
    )
    r.become(node, "ByteLookup", "edgewise", [q, table])


# ---- dynamically quantized products, spelled out
def _sums(r: Rewriter, node: BoundNode) -> None:
    """Cast(integer product) * scale"""
    m = node.inputs[0].producer
    if (
        m is None
        or m.op not in ("IntegerConv", "MatMulInteger")
        or m.outputs[0].dtype != INT32
        or not r.single(m.outputs[0])
        or node.outputs[0].dtype != FLOAT
    ):
        return
    last = r.only_user(node.outputs[0])
    if last is None or last.op != "Mul":
        return
    factor, y = other(last, node.outputs[0]), node.outputs[0]
    columns = y.shape[1] if m.op == "IntegerConv" else y.shape[-1]
    along = [columns] + [1] * (y.rank - 2 if m.op == "IntegerConv" else 0)
    if (
        factor is y
        or factor.dtype != FLOAT
        or list(last.outputs[0].shape) != list(y.shape)
        or not (one_number(factor.shape) or same_shape(factor.shape, along))
    ):
        return
    if m.op == "IntegerConv":
        if any(v is not None for v in m.inputs[4:]):
            return
        r.become(
            last,
            "IntegerConv",
            "edgewise",
            [*[*m.inputs, None, None][:4], None, None, factor],
            **{**m.attrs, "y_type": FLOAT},
        )
    elif min(v.rank for v in m.inputs[:2]) > 1:
        a, w, a_zero, w_zero = [*m.inputs, None, None][:4]
        r.become(
            last,
            "IntegerMatMul",
            "edgewise",
            [a, a_zero, w, w_zero, None, None, factor],
            y_type=FLOAT,
        )


def _channel_bias(r: Rewriter, node: BoundNode) -> None:
    """The bias of a convolution with float output, added after it as [1, channels, 1, ...]."""
    y = node.outputs[0]
    user = r.only_user(y)
    if y.dtype != FLOAT or user is None or user.op != "Add" or len(node.inputs) > BIAS:
        return
    b = other(user, y)
    depthwise = node.inputs[2].shape[1] == 1 and node.attr("group", 1) > 1
    if (
        not b.constant
        or depthwise
        or not same_shape(b.shape, [y.shape[1]] + [1] * (y.rank - 2))
        or list(user.outputs[0].shape) != list(y.shape)
    ):
        return
    bias = r.reshape(user, b, [y.shape[1]])
    r.become(
        user,
        "IntegerConv",
        "edgewise",
        [*node.inputs, *[None] * (BIAS - len(node.inputs)), bias],
        **node.attrs,
    )


# (rule, the ops it begins at); each round works on what the ones before it made.
_ROUNDS: list[list[tuple[Callable[[Rewriter, BoundNode], None], Iterable[str]]]] = [
    [(_forget, ["QuantizeDequantize"]), (_sums, ["Cast"])],
    [(_channel_bias, ["IntegerConv"])],
    [(_move, _MOVES)],
    [(_unchanged, ["QuantizeLinear"])],
    [(_product, ["Conv", "MatMul", "Gemm"]), (_pair, ["QuantizeLinear"])],
    [(_table, ["QuantizeLinear"])],
]

"""Weights of 8 bits that a graph dequantizes before a product with floats: the product reads the
bytes (MatMulNBits), a quarter of what the same weights take in float32.

`quantize_dynamic` writes the vocabulary's table so where the embedding shares it: a decoder's token
reads it all. This pass runs once gradients are made, and after passes/qdq.py, whose products
multiply bytes with bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..declare.dtypes import FLOAT, INT8, INT64, UINT8
from ..declare.op import MS
from ..declare.symbolic import product
from ..ir import BoundNode, Value
from .rewrite import Rewriter

if TYPE_CHECKING:
    from ..bind import BoundGraph

# Elements of a block, all of one scale. Fewer waste memory on scales; more do not save any.
_BLOCKS = (256, 128, 64, 32, 16)
# Columns that the kernel computes at once.
_COLUMNS = 4
# Elements from which a product of one row waits for its weights, which no cache holds as floats.
# With fewer, or with more rows, reading floats is faster than computing with bytes.
_LARGE = 1 << 23
_VIEWS = ("Transpose", "Identity")


def read_weight_bytes(bound: BoundGraph) -> None:
    """MatMul and Gemm of one row with a large dequantized constant of bytes become MatMulNBits with
    8 bits, where nothing else needs the constant in float32.
    """
    r = Rewriter(bound)
    if not any(n.op == "DequantizeLinear" for n in bound.nodes):
        return
    found = [(n, weight) for n in r.nodes("MatMul", "Gemm") if (weight := _Weight.of(n))]
    ready = {id(n) for n, _ in found}
    for n, weight in found:
        if all(_only_for(r, v, ready) for v in weight.floats):
            _rewrite(r, n, weight)
    r.done()


class _Weight:
    """A dequantized constant B [K, N] of a product.

    Attributes:
        q: its bytes, [N, K] or [K, N].
        by_column: whether q is [N, K].
        scale, zero: of one element, or of N; zero may be None.
        floats: the values of float32 between q and the product.
    """

    def __init__(self, q: Value, by_column: bool, scale: Value, zero: Value | None) -> None:
        self.q, self.by_column, self.scale, self.zero = q, by_column, scale, zero
        self.floats: list[Value] = []

    @staticmethod
    def of(node: BoundNode) -> _Weight | None:
        """The weight of a product; None where it is of another form."""
        a, b = node.inputs[:2]
        if a.dtype != FLOAT or a.rank < 2 or a.constant or b.rank != 2 or not _plain(node):
            return None
        if any(d != 1 for d in a.shape[:-1]) or product(b.shape) < _LARGE:
            return None
        turned = bool(node.attr("transB", 0))
        floats = [b]
        b, turned = _behind_transposes(b, turned, floats)
        n = b.producer
        if n is None or n.op != "DequantizeLinear" or n.attr("block_size", 0):
            return None
        q, scale, zero = [*n.inputs, None][:3]
        axis = n.attr("axis", 1) % 2
        columns = q.shape[0 if turned else 1]
        if scale.rank > 1 or scale.shape not in ([], [1], [columns]) or scale.dtype != FLOAT:
            return None
        if scale.shape == [columns] and axis != (0 if turned else 1):
            return None
        if zero is not None and (zero.dtype != q.dtype or list(zero.shape) != list(scale.shape)):
            return None
        q, turned = _behind_transposes(q, turned)
        if q.dtype not in (UINT8, INT8) or not all(
            v is None or v.constant for v in (q, scale, zero)
        ):
            return None
        weight = _Weight(q, turned, scale, zero)
        weight.floats = floats
        columns, k = q.shape if turned else reversed(q.shape)
        return weight if columns >= _COLUMNS and not k % _BLOCKS[-1] and k else None


def _plain(node: BoundNode) -> bool:
    """Whether a node is a product without factors, with a bias of one number for each column."""
    if node.op == "MatMul":
        return len(node.inputs) == 2 and not node.attrs
    c = node.input(2)
    return (
        not node.attr("transA", 0)
        and node.attr("alpha", 1.0) == 1.0
        and (c is None or node.attr("beta", 1.0) == 1.0)
        and (c is None or list(c.shape) == [node.outputs[0].shape[-1]] and c.dtype == FLOAT)
        and not set(node.attrs) - {"transA", "transB", "alpha", "beta"}
    )


def _behind_transposes(
    v: Value, turned: bool, passed: list[Value] | None = None
) -> tuple[Value, bool]:
    """(what a matrix is a view of, whether that is transposed); `passed` receives the values on
    the way, the last one included.
    """
    while v.producer is not None and v.rank == 2 and v.producer.op in _VIEWS:
        n = v.producer
        if n.op == "Transpose":
            turned ^= list(n.attr("perm", [1, 0])) == [1, 0]
        v = n.inputs[0]
        if passed is not None:
            passed.append(v)
    return v, turned


def _only_for(r: Rewriter, v: Value, ready: set[int]) -> bool:
    """Whether nothing but these products, and views that they read, uses a value."""
    return all(
        u is not None
        and (
            _only_for(r, u.outputs[0], ready)
            if u.op in _VIEWS
            else id(u) in ready and u.inputs[1] is v
        )
        for u in r.users.get(id(v), ())
    )


def _rewrite(r: Rewriter, node: BoundNode, weight: _Weight) -> None:
    q, zero = weight.q, weight.zero
    if not weight.by_column:
        q = r.transpose(node, q, [1, 0])
    columns, k = q.shape
    block = next(b for b in _BLOCKS if not k % b)
    signed = q.dtype == INT8
    default = 0 if signed else 128  # the zero point that MatMulNBits has without one
    if zero is not None and zero.numbers is not None and set(zero.numbers) == {default}:
        zero = None
    elif zero is None and not signed:
        zero = Value("zero", UINT8, [], numbers=[0])
    if signed:
        q = _unsigned(r, node, q)
        zero = _unsigned(r, node, zero) if zero is not None else None
    bias = node.input(2) if node.op == "Gemm" else None
    spread = [_spread(r, node, v, columns, k // block) for v in (weight.scale, zero)]
    r.become(
        node,
        "MatMulNBits",
        MS,
        [node.inputs[0], q, *spread, None, bias],
        K=k,
        N=columns,
        bits=8,
        block_size=block,
    )


def _unsigned(r: Rewriter, before: BoundNode, v: Value) -> Value:
    """Bytes of int8 plus 128, as uint8."""
    table = Value("table", UINT8, [256], numbers=[*range(128, 256), *range(128)])
    return r.insert(before, "ByteLookup", "edgewise", [v, table], UINT8, v.shape)


def _spread(
    r: Rewriter, before: BoundNode, v: Value | None, columns: int, blocks: int
) -> Value | None:
    """A number for all, or one for each column, as one for each block of each column."""
    if v is None:
        return None
    count = 1 if not v.rank else v.shape[0]
    shape = [columns, blocks]
    v = r.reshape(before, v, [count, 1])
    numbers = Value("shape", INT64, [2], numbers=shape)
    return r.insert(before, "Expand", "", [v, numbers], v.dtype, shape)

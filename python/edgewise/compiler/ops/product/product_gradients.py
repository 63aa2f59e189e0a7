"""Gradients of matrix products, as matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT
from ...declare.op import MS, product

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Gradients, Value


def gradient_product(
    graph: Gradients,
    a: Value,
    w: Value,
    transpose_a: bool = False,
    transpose_w: bool = False,
    alpha: float = 1.0,
) -> Value:
    """alpha * a @ w, with the last two dimensions of either exchanged: a view, not a copy."""
    if a.dtype != FLOAT:
        a, w = graph.swap(a) if transpose_a else a, graph.swap(w) if transpose_w else w
        y = graph.op("MatMul", a, w)
        return y if alpha == 1.0 else graph.mul(y, graph.constant(y.dtype, [], [alpha]))
    if transpose_a or transpose_w or alpha != 1.0:
        return graph.op(
            "FusedMatMul",
            a,
            w,
            domain=MS,
            transA=int(transpose_a),
            transB=int(transpose_w),
            alpha=float(alpha),
        )
    return graph.op("MatMul", a, w)


def product_gradients(
    node: BoundNode,
    graph: Gradients,
    dy: Value,
    transpose_a: bool = False,
    transpose_w: bool = False,
    alpha: float = 1.0,
) -> tuple[Value | None, Value | None]:
    """Gradients of a and w, the node's first inputs, where y = alpha * a' @ w'.

    a' and w' are transposed as in gradient_product; vectors and batches are those of MatMul. Each
    gradient is computed in the order in which it is stored, so that nothing is transposed
    afterwards. Where all batches share a weight, their rows form one product.
    """
    a, w = node.inputs[:2]
    vectors = a.rank == 1, w.rank == 1
    if any(vectors):
        lead = dy.shape[: dy.rank - 2 + sum(vectors)]
        rows = 1 if vectors[0] else dy.shape[len(lead)]
        columns = 1 if vectors[1] else dy.shape[-1]
        dy = graph.reshape(dy, lead + [rows, columns])
        a = graph.reshape(a, [1, *a.shape]) if vectors[0] else a
        w = graph.reshape(w, [*w.shape, 1]) if vectors[1] else w
    da = dw = None
    if graph.wants(0):
        da = (
            gradient_product(graph, w, dy, transpose_w, True, alpha)
            if transpose_a
            else gradient_product(graph, dy, w, False, not transpose_w, alpha)
        )
        da = graph.sum_to(da, node.inputs[0].shape)
    if graph.wants(1):
        if product(w.shape[:-2]) == 1 and (a.rank > 2 or w.rank > 2):
            a, transpose_a = graph.swap(a) if transpose_a else a, False
            a, dy = (graph.reshape(v, [product(v.shape[:-1]), v.shape[-1]]) for v in (a, dy))
        dw = (
            gradient_product(graph, dy, a, True, transpose_a, alpha)
            if transpose_w
            else gradient_product(graph, a, dy, not transpose_a, False, alpha)
        )
        dw = (
            graph.sum_to(dw, node.inputs[1].shape)
            if dw.rank > 2
            else graph.reshape(dw, node.inputs[1].shape)
        )
    return da, dw

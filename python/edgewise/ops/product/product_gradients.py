"""Gradients of matrix products, as matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT
from ...declare.op import MS, product

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Graph


def gradient_product(graph: Graph, a, w, turn_a=False, turn_w=False, alpha=1.0):
    """alpha * a @ w, each seen with its last two dimensions exchanged where its turn says so: a
    view, not a copy.
    """
    if a.dtype != FLOAT:
        a, w = graph.swap(a) if turn_a else a, graph.swap(w) if turn_w else w
        y = graph.op("MatMul", a, w)
        return y if alpha == 1.0 else graph.mul(y, graph.constant(y.dtype, [], [alpha]))
    if turn_a or turn_w or alpha != 1.0:
        return graph.op(
            "FusedMatMul",
            a,
            w,
            domain=MS,
            transA=int(turn_a),
            transB=int(turn_w),
            alpha=float(alpha),
        )
    return graph.op("MatMul", a, w)


def product_gradients(node: BoundNode, graph: Graph, dy, turn_a=False, turn_w=False, alpha=1.0):
    """Gradients of a and w where y = alpha * a' @ w', a' and w' as in gradient_product, vectors and
    broadcast batches as in MatMul.

    Each is computed the way round in which it lies in memory. A weight that all batches share meets
    their rows in one product.
    """
    a, w = node.inputs[:2]
    vectors = a.rank == 1, w.rank == 1
    if any(vectors):
        lead = dy.shape[: dy.rank - 2 + sum(vectors)]
        dy = graph.reshape(
            dy, lead + [1 if vectors[0] else dy.shape[len(lead)], 1 if vectors[1] else dy.shape[-1]]
        )
        a, w = (
            graph.reshape(a, [1, *a.shape]) if vectors[0] else a,
            (graph.reshape(w, [*w.shape, 1]) if vectors[1] else w),
        )
    da = dw = None
    if graph.wants(0):
        da = (
            gradient_product(graph, w, dy, turn_w, True, alpha)
            if turn_a
            else gradient_product(graph, dy, w, False, not turn_w, alpha)
        )
        da = graph.sum_to(da, node.inputs[0].shape)
    if graph.wants(1):
        if product(w.shape[:-2]) == 1 and (a.rank > 2 or w.rank > 2):
            a, turn_a = graph.swap(a) if turn_a else a, False
            a, dy = (graph.reshape(v, [product(v.shape[:-1]), v.shape[-1]]) for v in (a, dy))
        dw = (
            gradient_product(graph, dy, a, True, turn_a, alpha)
            if turn_w
            else gradient_product(graph, a, dy, not turn_a, False, alpha)
        )
        dw = (
            graph.sum_to(dw, node.inputs[1].shape)
            if dw.rank > 2
            else graph.reshape(dw, node.inputs[1].shape)
        )
    return da, dw

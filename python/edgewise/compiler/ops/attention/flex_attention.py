"""FlexAttention: attention with graphs, attributes of the node, that modify scores and
probabilities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, INT64
from ...declare.op import Op, fail, takes

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Decomposed, Dim, Value

flex_attention = Op("FlexAttention", "ai.onnx.preview")


@flex_attention.decompose
def flex_attention_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Scores are computed in the element type of Q, K and V, whatever softmax_precision is."""
    q, k, v = node.inputs
    takes(node, (FLOAT, DOUBLE), 0, 1, 2)
    if len({q.dtype, k.dtype, v.dtype}) != 1 or not q.rank == k.rank == v.rank == 4:
        fail(node, f"queries {q}, keys {k} and values {v} are incompatible")
    (batch, heads, q_len, dim), (_, kv, kv_len, _) = q.shape, k.shape
    if (
        kv < 1
        or heads % kv
        or k.shape != [batch, kv, kv_len, dim]
        or v.shape[:3] != [batch, kv, kv_len]
    ):
        fail(node, f"queries {q}, keys {k} and values {v} are incompatible")
    scale = dim**-0.5 if node.attr("scale") is None else node.attr("scale")
    modifies = any(node.attrs.get(name) is not None for name in ("score_mod", "prob_mod"))
    if not modifies and q.dtype == FLOAT:
        return [graph.op("Attention", q, k, v, scale=scale)]

    def of_shape(x: Value, *shape: Dim) -> Value:
        return graph.op("Reshape", x, graph.constant(INT64, [4], shape), allowzero=1)

    def modified(x: Value, name: str) -> Value:
        body = node.attrs.get(name)
        if body is None:
            return x
        outs = graph.body(body, node, x)
        if len(outs) != 1 or outs[0].dtype != x.dtype or outs[0].shape != x.shape:
            fail(
                node,
                f"its {name} turns {x} into {', '.join(map(str, outs))}; one tensor of the same"
                " shape and type is expected",
                "Export the model again.",
            )
        return outs[0]

    scores = graph.op(
        "MatMul",
        of_shape(q, batch, kv, heads // kv * q_len, dim),
        graph.op("Transpose", k, perm=[0, 1, 3, 2]),
    )
    scores = of_shape(
        graph.op("Mul", scores, graph.constant(q.dtype, [], [scale])), batch, heads, q_len, kv_len
    )
    p = modified(graph.op("Softmax", modified(scores, "score_mod")), "prob_mod")
    return [
        of_shape(
            graph.op("MatMul", of_shape(p, batch, kv, heads // kv * q_len, kv_len), v),
            batch,
            heads,
            q_len,
            v.shape[3],
        )
    ]

"""FlexAttention: attention whose scores and probabilities the model itself changes, by graphs that
are attributes of the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, INT64
from ...declare.op import Op, fail, takes

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Dim, Subgraph, Value

flex_attention = Op("FlexAttention", "ai.onnx.preview")


@flex_attention.decompose
def flex_attention_decompose(node: BoundNode, g: Binder) -> list[Value] | None:
    """Scores in float32 (float64 where Q, K and V are), whatever softmax_precision asks for."""
    q, k, v = node.inputs
    takes(node, (FLOAT, DOUBLE), 0, 1, 2)
    if len({q.dtype, k.dtype, v.dtype}) != 1 or not q.rank == k.rank == v.rank == 4:
        fail(node, f"queries {q}, keys {k} and values {v} do not fit together")
    (batch, heads, q_len, dim), (_, kv, kv_len, _) = q.shape, k.shape
    if (
        kv < 1
        or heads % kv
        or k.shape != [batch, kv, kv_len, dim]
        or v.shape[:3] != [batch, kv, kv_len]
    ):
        fail(node, f"queries {q}, keys {k} and values {v} do not fit together")
    scale = dim**-0.5 if node.attr("scale") is None else node.attr("scale")
    score_mod, prob_mod = node.attrs.get("score_mod"), node.attrs.get("prob_mod")
    if score_mod is None and prob_mod is None and q.dtype == FLOAT:
        return [g.op("Attention", q, k, v, scale=scale)]

    def of_shape(x: Value, *shape: Dim) -> Value:
        return g.op("Reshape", x, g.constant(INT64, [4], shape), allowzero=1)

    def changed(graph: Subgraph | None, x: Value, name: str) -> Value:
        if graph is None:
            return x
        outs = g.body(graph, node, x)
        if len(outs) != 1 or outs[0].dtype != x.dtype or outs[0].shape != x.shape:
            fail(
                node,
                f"its {name} makes {', '.join(map(str, outs))} of {x}; one tensor of the same shape"
                " and type is wanted",
                "Export the model again.",
            )
        return outs[0]

    scores = g.op(
        "MatMul",
        of_shape(q, batch, kv, heads // kv * q_len, dim),
        g.op("Transpose", k, perm=[0, 1, 3, 2]),
    )
    scores = of_shape(
        g.op("Mul", scores, g.constant(q.dtype, [], [scale])), batch, heads, q_len, kv_len
    )
    p = changed(prob_mod, g.op("Softmax", changed(score_mod, scores, "score_mod")), "prob_mod")
    return [
        of_shape(
            g.op("MatMul", of_shape(p, batch, kv, heads // kv * q_len, kv_len), v),
            batch,
            heads,
            q_len,
            v.shape[3],
        )
    ]

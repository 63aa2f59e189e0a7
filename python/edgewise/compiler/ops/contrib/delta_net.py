"""GatedDeltaNet: linear attention with its gates, over tokens of all rows one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT
from ...declare.op import MS, Op, fail, same_shape, takes, unsupported
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Dim, Value

SMALLEST = 1e-12  # added to the square of a norm, so that it is not 0

# Inputs: query, key, value, cu_seqlens, decay, beta, initial_state, a_log, dt_bias, capture_count,
# state_update_active.
delta_net = Op("GatedDeltaNet", MS)


@delta_net.decompose
def delta_net_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """com.microsoft's LinearAttention; states have their dimensions in the other order."""
    _, _, _, starts, decay, beta, state, *_ = [*node.inputs, *[None] * 11][:11]
    takes(node, (FLOAT,), 0, 1, 2, 4, 5, 6, 7, 8)
    if node.attr("state_update_capacity", 0) or node.wants(2):
        unsupported(node, "state_update, the transitions of single tokens")
    q, k, v = _separate(node, graph)
    batch, tokens = _rows(node, q, starts, state)
    heads, size = q.shape[-2:]
    kv, v_size = v.shape[-2:]
    if node.attr("qk_l2_norm", 0):
        q, k = _unit(graph, q), _unit(graph, k)
    rule = node.attr("update_rule", "gated_delta")
    decay = _decay(node, graph) if decay is not None and "gated" in rule else None
    if beta is not None and node.attr("beta_activation", "none") == "sigmoid":
        beta = graph.op("Sigmoid", beta)

    def flat(x: Value | None, width: Dim) -> Value | None:
        return graph.reshape(x, [batch, tokens, width]) if x is not None else None

    if state is not None:
        state = graph.op("Transpose", state, perm=[0, 1, 3, 2])
    y, last = graph.op(
        "LinearAttention",
        flat(q, heads * size),
        flat(k, heads * size),
        flat(v, kv * v_size),
        state,
        flat(decay, kv * size if decay is not None and decay.rank == q.rank else kv),
        flat(beta, kv) if "delta" in rule else None,
        domain=MS,
        outputs=2,
        update_rule=rule,
        q_num_heads=heads,
        kv_num_heads=kv,
        scale=node.attr("scale", 0.0),
    )
    y = graph.reshape(y, [*q.shape[:-2], max(heads, kv), v_size])
    return [y, graph.op("Transpose", last, perm=[0, 1, 3, 2])][: len(node.outputs)]


def _separate(node: BoundNode, graph: Binder) -> list[Value]:
    """Queries, keys and values [..., heads, size]: from one input, their sizes are the state's."""
    x, state = node.inputs[0], node.input(6)
    if node.has(1) and node.has(2):
        q, k, v = node.inputs[:3]
    else:
        if state is None or state.rank != 4:
            fail(node, f"its query holds keys and values, but its initial_state is {state}")
        kv, v_size, size = state.shape[1:]
        heads = (x.shape[-1] - kv * v_size) // (2 * size)
        at = [0, heads * size, 2 * heads * size, 2 * heads * size + kv * v_size]
        if heads < 1 or at[3] != x.shape[-1]:
            fail(node, f"its query {x} does not hold queries, keys and values for {state}")
        q, k, v = (
            graph.reshape(
                cut(graph, x, x.rank - 1, at[i], at[i + 1]), [*x.shape[:-1], count, width]
            )
            for i, (count, width) in enumerate(((heads, size), (heads, size), (kv, v_size)))
        )
    if q.rank not in (3, 4) or list(q.shape) != list(k.shape) or v.rank != q.rank:
        fail(node, f"its query {q}, key {k} and value {v} are incompatible")
    return [q, k, v]


def _rows(node: BoundNode, q: Value, starts: Value | None, state: Value | None) -> tuple[Dim, Dim]:
    """(rows of the batch, tokens of each)."""
    if q.rank == 4:
        return q.shape[0], q.shape[1]
    batch = starts.shape[0] - 1 if starts is not None else state.shape[0] if state else 0
    if starts is not None and batch != 1:
        unsupported(node, "rows of different lengths (cu_seqlens)", "Run each row alone.")
    if not batch or q.shape[0] % batch:
        fail(node, f"its tokens {q} do not divide into {batch} rows")
    return batch, q.shape[0] // batch


def _unit(graph: Binder, x: Value) -> Value:
    """x divided by its length along the last dimension."""
    square = graph.op("ReduceSum", graph.op("Mul", x, x), graph.ints([x.rank - 1]), keepdims=1)
    length = graph.op("Sqrt", graph.op("Add", square, graph.constant(FLOAT, [], [SMALLEST])))
    return graph.op("Div", x, length)


def _decay(node: BoundNode, graph: Binder) -> Value:
    """The logarithm of the decay."""
    decay, a_log, bias = node.inputs[4], node.input(7), node.input(8)
    if node.attr("gate_activation", "none") != "qwen":
        return decay
    heads = decay.shape[-1]
    if any(v is None or not same_shape(v.shape, [heads]) for v in (a_log, bias)):
        fail(node, f"its gate needs a_log and dt_bias of {heads} heads, not {a_log} and {bias}")
    gate = graph.op("Softplus", graph.op("Add", decay, bias))
    return graph.op("Mul", graph.op("Neg", graph.op("Exp", a_log)), gate)

"""Linear attention as products of matrices, from which its gradient follows.

A sequence is cut into chunks of at most CHUNK tokens. Within a chunk the state is unrolled, so that
all of it is products over all chunks at once; from chunk to chunk the state is carried. Memory is
linear in the length. (Yang et al., Parallelizing Linear Transformers with the Delta Rule over
Sequence Length, 2024; Gated Delta Networks, 2025.)

With a state S, a decay a, and u = v, or beta (v - k^T a S) by the delta rule, S becomes
a S + k u^T. Let g be the products of decays since the chunk began, and S the state there:

    u_t = beta_t (v_t - g_t k_t^T S - sum over j < t of (g_t / g_j) (k_t k_j) u_j)
    y_t = scale (g_t q_t^T S + sum over j <= t of (g_t / g_j) (q_t k_j) u_j)

so that u = T beta v - T (beta g k) S, where T is the inverse of a triangular matrix with ones on
its diagonal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, pack
from ...declare.op import Op
from ..product.gemm_kernel import emit_gemm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...declare.annotations import (
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
        View,
    )

CHUNK = 64
CHUNK_OF_ROWS = 16  # where each row of the state has its own decay: their ratios are stored
SMALLEST = 1e-30  # of a decay: below, the past is forgotten

# Input: x [..., n, n], of which the part below the diagonal counts. Output: the inverse of 1 + x.
_inverse = Op("UnitLowerInverse", "edgewise")


@_inverse.infer
def inverse_infer(node: BoundNode) -> Inferred:
    return [(FLOAT, list(node.inputs[0].shape))]


@_inverse.lower
def inverse_lower(node: BoundNode, builder: Builder) -> None:
    """Inverts blocks on the diagonal, each time two of them as one: with the inverses A and D of
    two blocks and B below the first, the inverse of both has -D B A below A.
    """
    x, y = builder.view(node.inputs[0]), builder.out(node.outputs[0])
    n = x.shape[-1]

    def square(numbers: Sequence[float]) -> View:
        return builder.const_bytes(pack(FLOAT, numbers), FLOAT, [n, n])

    diagonal = square([float(i == j) for i in range(n) for j in range(n)])
    if n == 1:
        builder.copy(diagonal.broadcast(x.shape), y)
        return
    below, size, last = builder.temp(FLOAT, x.shape), 1, None
    while size < n:
        mask = square(
            [
                float(i // (2 * size) == j // (2 * size) and i // size > j // size)
                for i in range(n)
                for j in range(n)
            ]
        )
        builder.emit_binary("mul", x, mask, below, FLOAT)
        whole = y if 2 * size >= n else builder.temp(FLOAT, x.shape)
        if last is None:
            builder.emit_binary("sub", diagonal, below, whole, FLOAT)
        else:
            half = builder.temp(FLOAT, x.shape)
            emit_gemm(builder, last, below, half)
            emit_gemm(builder, half, last, whole, residual=last, alpha=-1.0)
        last, size = whole, 2 * size


@_inverse.grad
def inverse_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    turned = gradients.swap(node.outputs[0])
    d = gradients.op("MatMul", gradients.op("MatMul", turned, dy), turned)
    return [gradients.mul(d, _triangle(gradients, d.shape[-1], -1.0, 0))]


def _triangle(graph: Gradients, n: int, number: float, diagonal: int) -> Value:
    """A matrix of a number below the diagonal, and on it if `diagonal` is 1; else zeros."""
    numbers = [number if j < i + diagonal else 0.0 for i in range(n) for j in range(n)]
    return graph.constant(FLOAT, [n, n], numbers)


class _Chunks:
    """Tensors of a sequence, cut into chunks.

    Attributes:
        batch, length: of the sequence.
        size, count: of the chunks.
        heads: of all tensors, after those that share one are repeated.
    """

    def __init__(self, graph: Gradients, q: Value, heads: int, by_row: bool) -> None:
        self.graph, self.heads = graph, heads
        self.batch, self.length = q.shape[:2]
        self.size, most = 1, CHUNK_OF_ROWS if by_row else CHUNK
        while self.size < min(self.length, most):
            self.size *= 2
        self.count = -(-self.length // self.size)

    def cut(self, x: Value, heads: int, rest: float = 0.0) -> Value:
        """[batch, length, heads * dim] as [batch, heads, chunks, size, dim].

        Args:
            heads: of x; each is repeated so that there are self.heads.
            rest: what fills the last chunk.
        """
        graph, dim = self.graph, x.shape[2] // heads
        missing = self.count * self.size - self.length
        if missing:
            ends = graph.ints([0, 0, 0, 0, missing, 0])
            x = graph.op("Pad", x, ends, graph.number(rest))
        x = graph.reshape(x, [self.batch, self.count, self.size, heads, dim])
        x = graph.transpose(x, [0, 3, 1, 2, 4])
        if heads == self.heads:
            return x
        shape = [self.batch, heads, 1, self.count, self.size, dim]
        wide = [*shape[:2], self.heads // heads, *shape[3:]]
        x = graph.op("Expand", graph.reshape(x, shape), graph.ints(wide))
        return graph.reshape(x, [self.batch, self.heads, *shape[3:]])

    def join(self, x: Value) -> Value:
        """[batch, heads, chunks, size, dim] as [batch, length, heads * dim]."""
        graph = self.graph
        x = graph.transpose(x, [0, 2, 3, 1, 4])
        x = graph.reshape(x, [self.batch, self.count * self.size, self.heads * x.shape[4]])
        if self.count * self.size == self.length:
            return x
        return graph.op("Slice", x, graph.ints([0]), graph.ints([self.length]), graph.ints([1]))

    def each(self, x: Value) -> list[Value]:
        """The chunks of x one by one, [batch, heads, 1, ...]."""
        if self.count == 1:
            return [x]
        graph = self.graph
        found: list[Value] = graph.op(
            "Split", x, graph.ints([1] * self.count), axis=2, outputs=self.count
        )
        return found


def chunked(
    graph: Gradients, inputs: Sequence[Value | None], heads: int, kv: int, scale: float
) -> list[Value]:
    """Linear attention in basic operations.

    Args:
        inputs: of the operator edgewise.LinearAttention.
        heads, kv, scale: its attributes.

    Returns:
        [y, state]
    """
    q, k, v, past, decay, beta = inputs
    assert q is not None and k is not None and v is not None
    by_row = decay is not None and decay.shape[2] > kv
    chunks = _Chunks(graph, q, max(heads, kv), by_row)
    dim, shared = q.shape[2] // heads, max(heads, kv) // kv
    q, k, v = chunks.cut(q, heads), chunks.cut(k, kv), chunks.cut(v, kv)
    q = graph.scale(q, scale)
    decays = _Decays(chunks, decay, kv)
    scores = decays.products(q, k, 1)
    values: Value = v
    known: Value | None = None
    if beta is not None:
        rates = chunks.cut(beta, beta.shape[2])
        below = graph.mul(decays.products(k, k, 0), rates)
        inverse = graph.op("UnitLowerInverse", below, domain="edgewise")
        values = graph.op("MatMul", inverse, graph.mul(v, rates))
        known = graph.op("MatMul", inverse, graph.mul(decays.since(k), rates))
    state = _first_state(graph, past, [chunks.batch, kv, dim, v.shape[4]], shared)
    states, added = [], []
    kept, ends = decays.until(k), decays.whole()
    for i, (u, w, key, whole) in enumerate(
        zip(
            chunks.each(values),
            chunks.each(known) if known is not None else [None] * chunks.count,
            chunks.each(graph.swap(kept)),
            chunks.each(ends) if ends is not None else [None] * chunks.count,
        )
    ):
        states.append(state)
        if w is not None and (i or past is not None):
            u = graph.sub(u, graph.op("MatMul", w, state))
        added.append(u)
        carried = graph.mul(state, whole) if whole is not None else state
        state = graph.add(carried, graph.op("MatMul", key, u))
    us, before = (graph.op("Concat", *x, axis=2) if len(x) > 1 else x[0] for x in (added, states))
    y = graph.add(graph.op("MatMul", decays.since(q), before), graph.op("MatMul", scores, us))
    shape = [chunks.batch, kv, shared, dim, v.shape[4]]
    last = graph.reshape(state, shape)
    if shared > 1:  # all are the same
        last = graph.op("Slice", last, graph.ints([0]), graph.ints([1]), graph.ints([2]))
    return [chunks.join(y), graph.reshape(last, [*shape[:2], *shape[3:]])]


def _first_state(graph: Gradients, past: Value | None, shape: Sequence[int], shared: int) -> Value:
    """The state before the first chunk, [batch, heads, 1, dim, v_dim]. shape: [batch, kv, dim,
    v_dim]; shared: how many heads have one.
    """
    batch, kv, dim, v_dim = shape
    if past is None:
        return graph.zeros([batch, kv * shared, 1, dim, v_dim])
    if shared > 1:
        past = graph.op(
            "Expand",
            graph.reshape(past, [batch, kv, 1, dim, v_dim]),
            graph.ints([batch, kv, shared, dim, v_dim]),
        )
    return graph.reshape(past, [batch, kv * shared, 1, dim, v_dim])


class _Decays:
    """What is left of the past within each chunk.

    Args:
        decay: the operator's input, or None: all of it.
        kv: heads of the state; each has a decay for all rows of its state, or for each of them.
    """

    def __init__(self, chunks: _Chunks, decay: Value | None, kv: int) -> None:
        self.graph = graph = chunks.graph
        self.size = chunks.size
        self.by_row = decay is not None and decay.shape[2] > kv
        self.logs: Value | None = None
        if decay is None:
            return
        logs = graph.op("Log", graph.op("Max", decay, graph.number(SMALLEST)))
        sums = _triangle(graph, self.size, 1.0, 1)
        self.logs = graph.op("MatMul", sums, chunks.cut(logs, kv))  # [..., size, 1 or dim]

    def since(self, x: Value) -> Value:
        """x [..., size, dim] times what is left of the state at the chunk's beginning."""
        if self.logs is None:
            return x
        return self.graph.mul(x, self.graph.op("Exp", self.logs))

    def _last(self) -> Value:
        graph, n = self.graph, self.size
        return graph.op("Slice", self.logs, graph.ints([n - 1]), graph.ints([n]), graph.ints([3]))

    def until(self, x: Value) -> Value:
        """x [..., size, dim] times what is left of it at the chunk's end."""
        if self.logs is None:
            return x
        left = self.graph.op("Exp", self.graph.sub(self._last(), self.logs))
        return self.graph.mul(x, left)

    def whole(self) -> Value | None:
        """What each chunk leaves of a state, [..., 1 or dim, 1]; None: all."""
        if self.logs is None:
            return None
        return self.graph.op("Exp", self.graph.swap(self._last()))

    def products(self, q: Value, k: Value, diagonal: int) -> Value:
        """Products of each row of q with the rows of k before it, times what is left of them.

        Args:
            diagonal: 1 to count the row itself, too.
        """
        graph, n = self.graph, self.size
        seen = _triangle(graph, n, 1.0, diagonal)
        if self.logs is None:
            return graph.mul(graph.op("MatMul", q, graph.swap(k)), seen)
        shape = list(self.logs.shape)
        rows = graph.reshape(self.logs, [*shape[:4], 1, shape[4]])
        columns = graph.reshape(self.logs, [*shape[:3], 1, *shape[3:]])
        hidden = graph.constant(
            FLOAT,
            [n, n, 1],
            [0.0 if j < i + diagonal else -float("inf") for i in range(n) for j in range(n)],
        )
        left = graph.op("Exp", graph.add(graph.sub(rows, columns), hidden))
        if not self.by_row:
            left = graph.reshape(left, [*shape[:4], n])
            return graph.mul(graph.op("MatMul", q, graph.swap(k)), left)
        wide = graph.mul(graph.reshape(q, [*q.shape[:4], 1, q.shape[4]]), left)
        wide = graph.mul(wide, graph.reshape(k, [*k.shape[:3], 1, *k.shape[3:]]))
        return graph.op("ReduceSum", wide, graph.ints([5]), keepdims=0)

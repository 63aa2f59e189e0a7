"""Mixtures of experts: each token goes through the k experts that its router scores highest
(onnxruntime's MoE and QMoE, as its CPU kernels compute).

Where a step has no more tokens times k than there are experts, those experts' weights are gathered
and nothing else is computed: decoding reads k experts, not all. A longer step computes every expert
for all its tokens, one after the other, and weighs them; what it does not need has weight 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, FLOAT16, UINT8
from ...declare.op import MS, Op, fail, product, takes, unsupported
from ...declare.packing import unpacked

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Graph, Value

ACTIVATIONS = {
    "relu": ("Relu", {}),
    "gelu": ("Gelu", {"approximate": "tanh"}),
    "silu": ("Swish", {}),
    "identity": (None, {}),
}


class _Graph:
    """Shorthands over the binder."""

    def __init__(self, n, graph: Graph):
        self.n, self.g, self.op = n, graph, graph.op

    def ints(self, *values):
        return self.g.ints(values)

    def number(self, x):
        return self.g.constant(FLOAT, [], [x])

    def reshaped(self, x, *shape):
        return self.g.reshape(x, shape)

    def cut(self, x, axis, start, end, step=1):
        return self.op(
            "Slice", x, self.ints(start), self.ints(end), self.ints(axis), self.ints(step)
        )

    def take(self, x, i):
        """x[i]."""
        return self.reshaped(self.cut(x, 0, i, i + 1), *x.shape[1:]) if x is not None else None


def _routed(m, scores, weights, k, normalize, over_all):
    """(experts [tokens, k], their weights [tokens, k]). over_all: a softmax over all experts, else
    over those chosen.
    """
    best, index = m.op("TopK", scores, m.ints(k), outputs=2)
    if weights is not None:
        chosen = m.op("GatherElements", weights, index, axis=1)
    elif over_all and not normalize:
        return index, m.op("GatherElements", m.op("Softmax", scores), index, axis=1)
    else:
        return index, m.op("Softmax", best)
    return index, m.op("Div", chosen, m.op("ReduceSum", chosen, m.ints(1))) if normalize else chosen


def _activated(m, h, gate):
    """h [tokens, width]; gate: the product with fc3, or None."""
    n = m.n
    name, fusion = n.attr("activation_type", "relu"), n.attr("swiglu_fusion", 0)
    if name != "swiglu":
        op, attrs = ACTIVATIONS[name]
        y = m.op(op, h, **attrs) if op else h
        return m.op("Mul", y, gate) if gate is not None else y
    if fusion:
        half = h.shape[1] // 2
        h, gate = (
            (m.cut(h, 1, i, 2 * half, 2) for i in (0, 1))
            if fusion == 1
            else (m.cut(h, 1, i * half, (i + 1) * half) for i in (0, 1))
        )
    limit, alpha, beta = (
        n.attr("swiglu_limit", float("inf")),
        n.attr("activation_alpha", 1.0),
        n.attr("activation_beta", 0.0),
    )
    if limit < float("inf"):
        h, gate = (
            m.op("Min", h, m.number(limit)),
            m.op("Clip", gate, m.number(-limit), m.number(limit)),
        )
    h = m.op("Mul", h, m.op("Sigmoid", m.op("Mul", h, m.number(alpha)) if alpha != 1 else h))
    return m.op("Mul", h, m.op("Add", gate, m.number(beta)) if beta else gate)


def _mixture(node: BoundNode, g, layers, over_all, weights=None):
    """layers: up to three (tensors [experts, ...] or None, ...), whose first is needed, and a
    function product(m, x, tensors of one expert): fc1, fc2, fc3.
    """
    m, (x, scores), k = _Graph(node, g), node.inputs[:2], node.attr("k", 1)
    takes(node, (FLOAT,), 0, 1)
    name, fusion, (first, second, third) = (
        node.attr("activation_type", "relu"),
        node.attr("swiglu_fusion", 0),
        layers,
    )
    if node.attr("use_sparse_mixer", 0):
        unsupported(node, "routing with a sparse mixer")
    if name not in (*ACTIVATIONS, "swiglu") or fusion not in (0, 1, 2):
        unsupported(node, f"the activation {name!r} with swiglu_fusion = {fusion}")
    if name == "swiglu" and (fusion == 0) != (third is not None):
        fail(
            node,
            "swiglu needs a third layer where its first two are not fused, and none where they are",
            "Export the model again.",
        )
    if x.rank not in (2, 3) or scores.rank != 2:
        fail(node, f"{x} and the scores {scores} do not fit together")
    tokens, hidden, experts = product(x.shape[:-1]), x.shape[-1], scores.shape[1]
    if (
        scores.shape[0] != tokens
        or not 1 <= k <= experts
        or any(
            v is not None and (v.rank < 1 or v.shape[0] != experts)
            for layer in layers
            if layer
            for v in layer[0]
        )
    ):
        fail(
            node,
            f"{tokens} tokens and {k} of {experts} experts do not fit {scores} and the experts'"
            " weights",
        )
    if weights is not None and list(weights.shape) != [tokens, experts]:
        fail(node, f"its router_weights are {weights}; [{tokens}, {experts}] is wanted")
    index, shares = _routed(
        m, scores, weights, k, node.attr("normalize_routing_weights", 0), over_all
    )
    rows = m.reshaped(x, tokens, hidden)

    def through(x, i, taken):
        outs = [
            None if layer is None else layer[1](m, x, [m.take(v, i) for v in tensors])
            for layer, tensors in ((first, taken[0]), (third, taken[2]))
        ]
        return second[1](m, _activated(m, *outs), [m.take(v, i) for v in taken[1]])

    if tokens * k <= experts:
        flat = m.reshaped(index, tokens * k)
        taken = [
            [m.op("Gather", v, flat) if v is not None else None for v in layer[0]] if layer else []
            for layer in layers
        ]
        outs = []
        for t in range(tokens):
            row = m.cut(rows, 0, t, t + 1)
            found = [through(row, t * k + j, taken) for j in range(k)]
            found = m.op("Concat", *found, axis=0) if k > 1 else found[0]
            outs.append(m.op("MatMul", m.cut(shares, 0, t, t + 1), found))
        y = outs[0] if tokens == 1 else m.op("Concat", *outs, axis=0) if outs else rows
    else:
        nothing = m.op("Expand", m.number(0.0), m.ints(tokens, experts))
        shares, y = m.op("ScatterElements", nothing, index, shares, axis=1), None
        for e in range(experts):
            part = m.op(
                "Mul",
                through(rows, e, [layer[0] if layer else [] for layer in layers]),
                m.cut(shares, 1, e, e + 1),
            )
            y = part if y is None else m.op("Add", y, part)
    return [m.reshaped(y, *x.shape)]


moe = Op(
    "MoE", MS, half=[2, 4, 6]
)  # input, router_probs, then fc1, fc2, fc3: weights [experts, out, in] and bias


@moe.decompose
def moe_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    def dense(m, x, tensors):
        w, bias = tensors
        y = m.op("MatMul", x, m.op("Transpose", w, perm=[1, 0]))
        return m.op("Add", y, bias) if bias is not None else y

    inputs = [*node.inputs, *[None] * 8][:8]
    takes(node, (FLOAT, FLOAT16), 2, 4, 6)
    takes(node, (FLOAT,), 3, 5, 7)
    width, fused = node.inputs[0].shape[-1], 2 if node.attr("swiglu_fusion", 0) else 1
    for i in (2, 4, 6):
        if inputs[i] is not None and (
            inputs[i].rank != 3
            or inputs[i].shape[1 if i == 4 else 2] != width
            or i != 2
            and inputs[i].shape[2 if i == 4 else 1] * fused != inputs[2].shape[1]
        ):
            fail(
                node,
                f"its experts' weights {inputs[2]}, {inputs[4]}, {inputs[6]} do not fit"
                f" {node.inputs[0]}",
            )
    return _mixture(
        node,
        graph,
        [((inputs[i], inputs[i + 1]), dense) if inputs[i] is not None else None for i in (2, 4, 6)],
        True,
    )


# input, router_probs, then fc1, fc2, fc3: weights, scales, bias; zero points of each;
# router_weights
qmoe = Op("QMoE", MS, half=[3, 6, 9])


def _quantized_layer(node: BoundNode, m, i, zero, bits):
    """A layer of _mixture whose weights are inputs i (weights [experts, out, in * bits / 8]), i + 1
    (scales) and i + 2 (bias), zero points input `zero`.
    """
    w, scales, bias, zeros = node.inputs[i], node.input(i + 1), node.input(i + 2), node.input(zero)
    if (
        bits not in (2, 4, 8)
        or w.dtype != UINT8
        or w.rank != 3
        or scales is None
        or scales.dtype not in (FLOAT, FLOAT16)
        or zeros is not None
        and zeros.dtype != UINT8
    ):
        unsupported(
            node, f"weights {w} of {bits} bits with the scales {scales} and zero points {zeros}"
        )
    experts, out, width = w.shape[0], w.shape[1], w.shape[2] * 8 // bits
    block = node.attr("block_size", 0)
    if block <= 0:  # one scale per column: as blocks that all have it
        block = width & -width
        if list(scales.shape) != [experts, out]:
            fail(node, f"its scales are {scales}; [{experts}, {out}] is wanted")
        if block < 16:
            unsupported(
                node, f"{width} inputs per expert, which 16 does not divide, without a block_size"
            )
        blocks = [experts, out, width // block]
        scales = m.op("Expand", m.op("Unsqueeze", scales, m.ints(2)), m.ints(*blocks))
        if zeros is not None:
            zeros = m.op(
                "Expand",
                m.op(
                    "Unsqueeze", m.op("Cast", unpacked(m.g, zeros, bits, out), to=FLOAT), m.ints(2)
                ),
                m.ints(*blocks),
            )
    elif (
        block < 16
        or block & block - 1
        or width % block
        or list(scales.shape) != [experts, out, width // block]
    ):
        fail(node, f"blocks of {block} do not fit {width} inputs with the scales {scales}")

    def product(m, x, tensors):
        w, scales, bias, zeros = tensors
        return m.op(
            "MatMulNBits",
            x,
            w,
            scales,
            zeros,
            None,
            bias,
            domain=MS,
            K=width,
            N=out,
            bits=bits,
            block_size=block,
        )

    return (w, scales, bias, zeros), product


@qmoe.decompose
def qmoe_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    takes(node, (FLOAT,), 4, 7, 10, 14)
    if node.attr("quant_type", "int") != "int" or any(
        node.has(i) for i in range(15, len(node.inputs))
    ):
        unsupported(node, f"weights of the kind {node.attr('quant_type', 'int')!r}")
    if node.attr("weights_prepacked", -1) > 0:
        unsupported(node, "weights that are packed for another runtime")
    bits, m = node.attr("expert_weight_bits", 4), _Graph(node, graph)
    layers = [
        (
            _quantized_layer(node, m, i, zero, node.attr(f"fc{zero - 10}_expert_weight_bits", bits))
            if node.has(i)
            else None
        )
        for i, zero in ((2, 11), (5, 12), (8, 13))
    ]
    return _mixture(node, graph, layers, False, node.input(14))

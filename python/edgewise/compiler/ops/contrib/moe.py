"""MoE and QMoE of com.microsoft: mixtures of experts, in which a router chooses k experts for each
token.

Each of the k choices of a token is a row of products that sort their rows by expert
(product/experts.py): an expert computes the tokens that chose it, and the weights of an expert that
no token chose are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, FLOAT16, UINT8
from ...declare.op import MS, Op, fail, product, takes, unsupported
from ...declare.packing import unpacked
from ..attention.attention_kernel import shaped
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

    Product = Callable[[Binder, Value, Value, int], Value]

ACTIVATIONS: dict[str, tuple[str | None, dict[str, str]]] = {
    "relu": ("Relu", {}),
    "gelu": ("Gelu", {"approximate": "tanh"}),
    "silu": ("Swish", {}),
    "identity": (None, {}),
}


def _number(graph: Binder, x: float) -> Value:
    return graph.constant(FLOAT, [], [x])


@dataclass(frozen=True)
class _Layer:
    """One linear layer of all experts.

    Attributes:
        tensors: its weights, bias and so on, [experts, ...] each; None where absent.
        product: (graph, x [rows, in], index [slots] of experts, slots per row) -> [slots, out].
    """

    tensors: list[Value | None]
    product: Product


# fc1, fc2, and fc3, which only some activations need
_Layers = tuple[_Layer, _Layer, _Layer | None]


def _checked_layers(node: BoundNode, *layers: _Layer | None) -> _Layers:
    """The layers. Raises ModelError where fc1 or fc2 is missing."""
    first, second, third = layers
    if first is None or second is None:
        fail(node, "it has no weights of fc1 or fc2", "Export the model again.")
    return first, second, third


def _activated(node: BoundNode, graph: Binder, h: Value, gate: Value | None) -> Value:
    """The activation of h [tokens, width], gated by the product with fc3 where there is one."""
    name, fusion = node.attr("activation_type", "relu"), node.attr("swiglu_fusion", 0)
    if name != "swiglu":
        op, attrs = ACTIVATIONS[name]
        y = graph.op(op, h, **attrs) if op else h
        return graph.op("Mul", y, gate) if gate is not None else y
    if fusion:
        half = h.shape[1] // 2
        h, gate = (
            (cut(graph, h, 1, i, 2 * half, 2) for i in (0, 1))
            if fusion == 1
            else (cut(graph, h, 1, i * half, (i + 1) * half) for i in (0, 1))
        )
    limit, alpha, beta = (
        node.attr("swiglu_limit", float("inf")),
        node.attr("activation_alpha", 1.0),
        node.attr("activation_beta", 0.0),
    )
    if limit < float("inf"):
        h = graph.op("Min", h, _number(graph, limit))
        gate = graph.op("Clip", gate, _number(graph, -limit), _number(graph, limit))
    steep = graph.op("Mul", h, _number(graph, alpha)) if alpha != 1 else h
    h = graph.op("Mul", h, graph.op("Sigmoid", steep))
    return graph.op("Mul", h, graph.op("Add", gate, _number(graph, beta)) if beta else gate)


def _routed(
    node: BoundNode, graph: Binder, scores: Value, weights: Value | None, over_all: bool
) -> tuple[Value, Value]:
    """The chosen experts and their weights, both [tokens, k].

    Args:
        scores: [tokens, experts]; the k highest choose.
        weights: [tokens, experts], or None: a softmax of the scores.
        over_all: whether that softmax is over all experts, not only over the chosen ones.
    """
    normalize = node.attr("normalize_routing_weights", 0)
    best, index = graph.op("TopK", scores, graph.ints([node.attr("k", 1)]), outputs=2)
    if weights is None:
        if over_all and not normalize:
            shares = graph.op("Softmax", scores)
            return index, graph.op("GatherElements", shares, index, axis=1)
        return index, graph.op("Softmax", best)
    chosen = graph.op("GatherElements", weights, index, axis=1)
    if normalize:
        chosen = graph.op("Div", chosen, graph.op("ReduceSum", chosen, graph.ints([1])))
    return index, chosen


def _check_mixture(node: BoundNode, layers: _Layers, weights: Value | None) -> None:
    """Raises ModelError or UnsupportedOp where inputs and attributes do not fit."""
    (x, scores), k = node.inputs[:2], node.attr("k", 1)
    takes(node, (FLOAT,), 0, 1)
    name, fusion = node.attr("activation_type", "relu"), node.attr("swiglu_fusion", 0)
    if node.attr("use_sparse_mixer", 0):
        unsupported(node, "routing with a sparse mixer")
    if name not in (*ACTIVATIONS, "swiglu") or fusion not in (0, 1, 2):
        unsupported(node, f"the activation {name!r} with swiglu_fusion = {fusion}")
    if name == "swiglu" and (fusion == 0) != (layers[2] is not None):
        fail(
            node,
            "swiglu needs a third layer if its first two are not fused, and none if they are",
            "Export the model again.",
        )
    if x.rank not in (2, 3) or scores.rank != 2:
        fail(node, f"{x} and the scores {scores} are incompatible")
    tokens, experts = product(x.shape[:-1]), scores.shape[1]
    if (
        scores.shape[0] != tokens
        or not 1 <= k <= experts
        or any(
            v is not None and (v.rank < 1 or v.shape[0] != experts)
            for layer in layers
            if layer is not None
            for v in layer.tensors
        )
    ):
        fail(
            node,
            f"{tokens} tokens and {k} of {experts} experts do not fit {scores} and the experts'"
            " weights",
        )
    if weights is not None and list(weights.shape) != [tokens, experts]:
        fail(node, f"its router_weights are {weights}; [{tokens}, {experts}] is expected")


def _mixture(
    node: BoundNode, graph: Binder, layers: _Layers, over_all: bool, weights: Value | None = None
) -> list[Value]:
    """The node's output. over_all, weights: as in _routed."""
    _check_mixture(node, layers, weights)
    x, scores = node.inputs[:2]
    index, shares = _routed(node, graph, scores, weights, over_all)
    tokens, k, width = product(x.shape[:-1]), node.attr("k", 1), x.shape[-1]
    rows, chosen = graph.reshape(x, [tokens, width]), graph.reshape(index, [tokens * k])
    first, second, third = layers
    h = first.product(graph, rows, chosen, k)
    gate = third.product(graph, rows, chosen, k) if third is not None else None
    made = second.product(graph, _activated(node, graph, h, gate), chosen, 1)
    if k == 1:
        mixed = graph.op("Mul", made, shares)
    else:
        shares = graph.reshape(shares, [tokens, 1, k])
        mixed = graph.op("MatMul", shares, graph.reshape(made, [tokens, k, width]))
    return [graph.reshape(mixed, x.shape)]


# Inputs: input, router_probs, then the weights [experts, out, in] and the bias of fc1, fc2, fc3.
moe = Op("MoE", MS, half=[2, 4, 6], parameters=(2, 3, 4, 5, 6, 7))


def _dense_layer(w: Value, bias: Value | None) -> _Layer:
    """A layer with weights [experts, out, in]."""

    def product_of(graph: Binder, x: Value, index: Value, each: int) -> Value:
        return graph.op("ExpertMatMul", x, w, index, bias, domain="edgewise", transB=1, each=each)

    return _Layer([w, bias], product_of)


@moe.decompose
def moe_decompose(node: BoundNode, graph: Binder) -> list[Value]:
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
        if inputs[i] is not None:
            shaped(node, i + 1, "bias", *inputs[i].shape[:2])
    first, second, third = (
        _dense_layer(inputs[i], inputs[i + 1]) if inputs[i] is not None else None for i in (2, 4, 6)
    )
    return _mixture(node, graph, _checked_layers(node, first, second, third), True)


# Inputs: input, router_probs; weights, scales and bias of fc1, fc2 and fc3; the zero points of
# each; router_weights.
qmoe = Op("QMoE", MS, half=[3, 6, 9], parameters=(4, 7, 10))


def _quantized_layer(node: BoundNode, graph: Binder, i: int, zero: int, bits: int) -> _Layer:
    """A layer with quantized weights.

    Args:
        i: the input of the weights, uint8 [experts, out, in * bits / 8]; the scales and the bias
            follow it.
        zero: the input of the zero points.
        bits: of a weight.
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
    shaped(node, i + 2, "bias", experts, out)
    block = node.attr("block_size", 0)
    if block <= 0:  # one scale per output: as blocks that share it
        block = width & -width
        shaped(node, i + 1, "scales", experts, out)
        shaped(node, zero, "zero points", experts, -(-out * bits // 8))
        if block < 16:
            unsupported(
                node, f"{width} inputs per expert, not a multiple of 16, without a block_size"
            )
        blocks = graph.ints([experts, out, width // block])
        scales = _repeated(graph, scales, blocks)
        if zeros is not None:
            zeros = graph.op("Cast", unpacked(graph, zeros, bits, out), to=FLOAT)
            zeros = _repeated(graph, zeros, blocks)
    elif (
        block < 16
        or block & block - 1
        or width % block
        or list(scales.shape) != [experts, out, width // block]
    ):
        fail(node, f"blocks of {block} do not fit {width} inputs with the scales {scales}")

    def product_of(graph: Binder, x: Value, index: Value, each: int) -> Value:
        return graph.op(
            "ExpertMatMulNBits",
            x,
            w,
            scales,
            zeros,
            index,
            bias,
            domain="edgewise",
            K=width,
            N=out,
            bits=bits,
            block_size=block,
            each=each,
        )

    return _Layer([w, scales, bias, zeros], product_of)


def _repeated(graph: Binder, v: Value, shape: Value) -> Value:
    """v [experts, out] repeated along a new last dimension."""
    return graph.op("Expand", graph.op("Unsqueeze", v, graph.ints([2])), shape)


@qmoe.decompose
def qmoe_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    takes(node, (FLOAT,), 4, 7, 10, 14)
    if node.attr("quant_type", "int") != "int" or any(
        node.has(i) for i in range(15, len(node.inputs))
    ):
        unsupported(node, f"weights of the kind {node.attr('quant_type', 'int')!r}")
    if node.attr("weights_prepacked", -1) > 0:
        unsupported(node, "weights that are packed for another runtime")
    bits = node.attr("expert_weight_bits", 4)
    layers: list[_Layer | None] = []
    for i, zero in ((2, 11), (5, 12), (8, 13)):
        of_layer = node.attr(f"fc{zero - 10}_expert_weight_bits", bits)
        layers.append(_quantized_layer(node, graph, i, zero, of_layer) if node.has(i) else None)
    return _mixture(node, graph, _checked_layers(node, *layers), False, node.input(14))

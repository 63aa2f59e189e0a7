"""Projections of one input by 4-bit weights, as onnxruntime fuses them with the norm before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.op import MS, Op, fail, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value


def _normalized(node: BoundNode, graph: Binder, wants_sum: bool) -> tuple[Value, list[Value]]:
    """(the input of the projections, [its sum with skip] if that is an output): inputs are x, skip
    and the scale of the norm; without a scale x itself.
    """
    x, skip, scale = node.inputs[:3]
    epsilon = node.attr("epsilon", 1e-5)
    if scale is None:
        if skip is not None:
            fail(node, "it adds skip, but norm_scale is missing", "Export the model again.")
        return x, []
    if skip is None:
        if wants_sum:
            fail(node, "its sum with skip is an output, but skip is missing")
        y = graph.op("SimplifiedLayerNormalization", x, scale, epsilon=epsilon)
        return y, []
    y, _, _, total = graph.op(
        "SkipSimplifiedLayerNormalization", x, skip, scale, domain=MS, outputs=4, epsilon=epsilon
    )
    return y, [total] if wants_sum else []


def _projected(node: BoundNode, graph: Binder, x: Value, at: int, columns: int) -> Value:
    """x times the weights, scales and bias that are the inputs from `at` on."""
    weights, scales, bias = [*node.inputs, None][at : at + 3]
    kept = {
        k: node.attrs[k] for k in ("K", "bits", "block_size", "accuracy_level") if k in node.attrs
    }
    return graph.op(
        "MatMulNBits", x, weights, scales, None, None, bias, domain=MS, N=columns, **kept
    )


qkv = Op("MatMulNBitsQkv", MS, half=[4, 7, 10])


@qkv.decompose
def qkv_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Queries, keys and values, and the sum of x and skip."""
    x, total = _normalized(node, graph, node.wants(3))
    widths = [node.attr(name) for name in ("Nq", "Nkv", "Nkv")]
    return [_projected(node, graph, x, 3 + 3 * i, w) for i, w in enumerate(widths)] + total


mlp = Op("MatMulNBitsMlp", MS, half=[4, 7])


@mlp.decompose
def mlp_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """activation(gate) * up, and the sum of x and skip."""
    name = node.attr("activation", "silu")
    if name not in ("silu", "swish"):
        unsupported(node, f"the activation {name!r}")
    x, total = _normalized(node, graph, node.wants(1))
    gate, up = (_projected(node, graph, x, at, node.attr("N")) for at in (3, 6))
    return [graph.op("Mul", graph.op("Mul", gate, graph.op("Sigmoid", gate)), up), *total]

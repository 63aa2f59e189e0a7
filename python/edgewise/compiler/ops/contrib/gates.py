"""Gates around linear attention and mixtures of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT
from ...declare.op import MS, Op, fail, takes
from ..attention.attention_kernel import shaped

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value


def _silu(graph: Binder, x: Value) -> Value:
    return graph.op("Mul", x, graph.op("Sigmoid", x))


gated_norm = Op("GatedRMSNorm", MS)


@gated_norm.decompose
def gated_norm_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """RMSNorm over groups of as many channels as the scale has, times the activated gate."""
    x, scale, gate = node.inputs
    takes(node, (FLOAT,), 0, 1, 2)
    shaped(node, 1, "scale", None)
    shaped(node, 2, "gate", *x.shape)
    name, width = node.attr("activation", "silu"), scale.shape[0]
    if name not in ("silu", "swish", "sigmoid") or not width or x.shape[-1] % width:
        fail(node, f"{x} in groups of {scale}, gated by {name!r}")
    y = graph.op(
        "SimplifiedLayerNormalization",
        graph.reshape(x, [*x.shape[:-1], x.shape[-1] // width, width]),
        scale,
        epsilon=node.attr("epsilon", 1e-5),
    )
    return [
        graph.op(
            "Mul",
            graph.reshape(y, x.shape),
            graph.op("Sigmoid", gate) if name == "sigmoid" else _silu(graph, gate),
        )
    ]


gated_add = Op("GatedAdd", MS)


@gated_add.decompose
def gated_add_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """x + y * gate."""
    return [graph.op("Add", node.inputs[0], graph.op("Mul", node.inputs[1], node.inputs[2]))]


attention_gate = Op("LinearAttentionGate", MS)


@attention_gate.decompose
def attention_gate_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The decay, scale * softplus(a + bias), and the update gate, sigmoid(b)."""
    a, bias, scale = node.inputs[:3]
    shaped(node, 1, "bias", a.shape[-1])
    shaped(node, 2, "scale", a.shape[-1])
    shaped(node, 3, "input b", *a.shape)
    outs = [graph.op("Mul", scale, graph.op("Softplus", graph.op("Add", a, bias)))]
    if node.wants(1) and not node.has(3):
        fail(node, "its second output needs the input b")
    return outs + ([graph.op("Sigmoid", node.inputs[3])] if node.wants(1) else [])


scaled_silu = Op("ScaledSiLU", MS)


@scaled_silu.decompose
def scaled_silu_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """silu(x * scale); the scale is input 1, or else the attribute alpha."""
    scale = (
        graph.reshape(node.inputs[1], [])
        if node.has(1)
        else graph.constant(FLOAT, [], [node.attr("alpha", 1.0)])
    )
    return [_silu(graph, graph.op("Mul", node.inputs[0], scale))]

"""Biases, norms and products that onnxruntime's optimizers fuse with their neighbours in encoders,
CNNs and diffusion models (onnxruntime/docs/ContribOperators.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.op import MS, Op, axis_of, fail, product, unsupported
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

# ---- biases ----
bias_add = Op("BiasAdd", MS, parameters=(1,))


@bias_add.decompose
def bias_add_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """x + bias + skip; x is [batch, positions, channels]."""
    return [graph.op("Add", graph.op("Add", node.inputs[0], node.inputs[1]), node.inputs[2])]


bias_split_gelu = Op("BiasSplitGelu", MS)


@bias_split_gelu.decompose
def bias_split_gelu_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The first half of x + bias times gelu of the second half."""
    x = graph.op("Add", node.inputs[0], node.inputs[1])
    half = x.shape[-1] // 2
    return [
        graph.op(
            "Mul",
            cut(graph, x, x.rank - 1, 0, half),
            graph.op("Gelu", cut(graph, x, x.rank - 1, half, 2 * half)),
        )
    ]


# ---- group norms with channels last ----
def _group_norm(node: BoundNode, graph: Binder, x: Value) -> Value:
    """GroupNormalization with the node's scale, bias and attributes; activation 1 is SiLU."""
    channels_last = node.attr("channels_last", 1)
    rank = x.rank
    if channels_last:
        x = graph.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    y = graph.op(
        "GroupNormalization",
        x,
        node.inputs[1],
        node.inputs[2],
        num_groups=node.attr("groups", 1),
        epsilon=node.attr("epsilon", 1e-5),
    )
    if node.attr("activation", 0):
        y = graph.op("Mul", y, graph.op("Sigmoid", y))
    return graph.op("Transpose", y, perm=[0, *range(2, rank), 1]) if channels_last else y


group_norm = Op("GroupNorm", MS, parameters=(1, 2))


@group_norm.decompose
def group_norm_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    return [_group_norm(node, graph, node.inputs[0])]


skip_group_norm = Op("SkipGroupNorm", MS)


@skip_group_norm.decompose
def skip_group_norm_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The norm of x + skip + bias, and that sum."""
    x, skip = node.inputs[0], node.inputs[3]
    if skip.rank == 2:
        skip = graph.op("Reshape", skip, graph.ints([skip.shape[0], 1, 1, skip.shape[1]]))
    total = graph.op("Add", x, skip)
    if node.has(4):
        total = graph.op("Add", total, node.inputs[4])
    return [_group_norm(node, graph, total), total][: len(node.outputs)]


# ---- products with an activation ----
_ACTIVATIONS = (
    "Relu",
    "LeakyRelu",
    "Sigmoid",
    "Tanh",
    "Elu",
    "HardSigmoid",
    "Selu",
    "Softplus",
    "Softsign",
    "ThresholdedRelu",
)

fused_gemm = Op("FusedGemm", MS, half=[1], parameters=(0, 1, 2))


@fused_gemm.decompose
def fused_gemm_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Gemm and an activation, which takes the attributes activation_alpha, _beta and _gamma."""
    name = node.attr("activation", "")
    if name and name not in _ACTIVATIONS:
        unsupported(node, f"the activation {name!r}")
    y = graph.op(
        "Gemm",
        *node.inputs,
        **{k: node.attrs[k] for k in ("alpha", "beta", "transA", "transB") if k in node.attrs},
    )
    return [_activated(node, graph, y, name) if name else y]


def _activated(node: BoundNode, graph: Binder, y: Value, name: str) -> Value:
    """The activation of this name, with the attributes activation_alpha, ... of the node."""
    parameters = {
        k: node.attrs["activation_" + k]
        for k in ("alpha", "beta", "gamma", "axis")
        if "activation_" + k in node.attrs
    }
    return graph.op(name, y, **parameters)


fused_matmul = Op("FusedMatMulActivation", MS, half=[1])


@fused_matmul.decompose
def fused_matmul_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """FusedMatMul and an activation."""
    name = node.attr("activation", "")
    if name not in (*_ACTIVATIONS, "Softmax", "LogSoftmax", "Hardmax"):
        unsupported(node, f"the activation {name!r}")
    kept = ("alpha", "transA", "transB", "transBatchA", "transBatchB")
    attrs = {k: node.attrs[k] for k in kept if k in node.attrs}
    return [
        _activated(node, graph, graph.op("FusedMatMul", *node.inputs, domain=MS, **attrs), name)
    ]


bias_softmax = Op("BiasSoftmax", MS)


@bias_softmax.decompose
def bias_softmax_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The softmax of data + bias over all dimensions from the axis on."""
    x = graph.op("Add", *node.inputs)
    if list(x.shape) != list(node.inputs[0].shape):
        fail(node, f"its bias {node.inputs[1]} does not broadcast to {node.inputs[0]}")
    axis = axis_of(node, node.attr("axis", 1), x.rank)
    rows = graph.reshape(x, [product(x.shape[:axis]), product(x.shape[axis:])])
    return [graph.reshape(graph.op("Softmax", rows, axis=1), [*x.shape])]


gemm_fast_gelu = Op("GemmFastGelu", MS)


@gemm_fast_gelu.decompose
def gemm_fast_gelu_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """FastGelu(a @ w + bias)."""
    y = graph.op("MatMul", *node.inputs[:2])
    return [graph.op("FastGelu", y, *node.inputs[2:3], domain=MS)]

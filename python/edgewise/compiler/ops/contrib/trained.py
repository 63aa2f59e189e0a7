"""Operators that onnxruntime's tools for training write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT32, INT64
from ...declare.op import MS, Op, fail, takes
from ..attention.attention_kernel import shaped

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

dropout = Op("BiasDropout", MS, parameters=(1,))


@dropout.decompose
def dropout_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Dropout(data + bias) + residual, and the mask."""
    x, bias, residual, ratio, training = [*node.inputs, *[None] * 3][:5]
    if list(bias.shape) not in (list(x.shape[-1:]), list(x.shape)):
        fail(node, f"its bias {bias} does not fit {x}")
    shaped(node, 2, "residual", *x.shape)
    seed = {"seed": node.attrs["seed"]} if "seed" in node.attrs else {}
    y, mask = graph.op("Dropout", graph.op("Add", x, bias), ratio, training, outputs=2, **seed)
    if residual is not None:
        y = graph.op("Add", y, residual)
    return [y, mask][: len(node.outputs)]


finite = Op("IsAllFinite", MS)


@finite.decompose
def finite_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Whether no element of any input is infinite or NaN, or one of both."""
    infinite, nan = node.attr("isinf_only", 0), node.attr("isnan_only", 0)
    if infinite and nan:
        fail(node, "isinf_only and isnan_only are both 1", "Export the model again.")
    total = graph.constant(INT64, [], [0])
    for x in node.inputs:
        for name in ["IsInf"] * (not nan) + ["IsNaN"] * (not infinite):
            found = graph.op("Cast", graph.reshape(graph.op(name, x), [-1]), to=INT64)
            found = graph.op("ReduceSum", found, graph.ints([0]), keepdims=0)
            total = graph.op("Add", total, found)
    return [graph.op("Equal", total, graph.constant(INT64, [], [0]))]


rotary = Op("GemmaRotaryEmbedding", MS)


@rotary.decompose
def rotary_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Queries and keys times the cosines, plus their turned halves times the sines."""
    takes(node, (FLOAT,), 0, 1, 2, 3, 4)
    angles, q, turned_q, k, turned_k = node.inputs
    if angles.rank != 3 or q.rank != 4:
        fail(node, f"its angles {angles} and query {q}; 3 and 4 dimensions are expected")
    batch, tokens, dim = angles.shape
    shaped(node, 1, "q", batch, None, tokens, dim)
    shaped(node, 2, "q_rot", *q.shape)
    shaped(node, 3, "k", batch, None, tokens, dim)
    shaped(node, 4, "k_rot", *k.shape)
    cos, sin = (
        graph.reshape(graph.op(name, angles), [batch, 1, tokens, dim]) for name in ("Cos", "Sin")
    )
    return [
        graph.op("Add", graph.op("Mul", x, cos), graph.op("Mul", turned, sin))
        for x, turned in ((q, turned_q), (k, turned_k))
    ][: len(node.outputs)]


embedding = Op("TorchEmbedding", MS, moves=True)


@embedding.decompose
def embedding_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Gather: its other inputs are for gradients."""
    takes(node, (INT64, INT32), 1)
    return [graph.op("Gather", *node.inputs[:2], axis=0)]

"""Hyper-connections, n-gram gates and norms of branches, as DeepSeek V4 has them: several residual
streams, mixed before and after each layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT
from ...declare.op import MS, Dim, Op, fail, product, takes
from ..attention.attention_kernel import shaped

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value


def _grouped(node: BoundNode, graph: Binder) -> Value:
    """Input 0 as [..., branches, width]."""
    x, branches = node.inputs[0], node.attr("num_branches", 0)
    if branches < 0 or x.rank < (1 if branches else 2):
        fail(node, f"its input {x} has no {branches or ''} branches", "Export the model again.")
    if not branches:
        return x
    if x.shape[-1] % branches:
        fail(node, f"its input {x} does not divide into {branches} branches")
    return graph.reshape(x, [*x.shape[:-1], branches, x.shape[-1] // branches])


def _gates(node: BoundNode, graph: Binder, i: int, shape: list[Dim]) -> Value:
    """Input i, factors of each branch or of each element, so that it broadcasts to the shape."""
    gate = node.inputs[i]
    if list(gate.shape) == shape[:-1]:
        return graph.reshape(gate, [*shape[:-1], 1])
    if list(gate.shape) in (shape, [*shape[:-1], 1]):
        return gate
    if list(gate.shape) == [*shape[:-2], product(shape[-2:])] and node.attr("num_branches", 0):
        return graph.reshape(gate, shape)
    fail(node, f"its factors {gate} do not fit streams of {shape}")


def _summed(graph: Binder, x: Value, axis: int) -> Value:
    return graph.op("ReduceSum", x, graph.ints([axis]), keepdims=0)


norm = Op("BranchwiseRMSNorm", MS, parameters=(1,))


@norm.decompose
def norm_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    takes(node, (FLOAT,), 0, 1)
    x, scale = _grouped(node, graph), node.input(1)
    branches, width = x.shape[-2:]
    one = graph.op("Expand", graph.constant(FLOAT, [1], [1.0]), graph.ints([width]))
    epsilon = node.attr("epsilon", 1e-5)
    y = graph.op("SimplifiedLayerNormalization", x, one, epsilon=epsilon)
    if scale is not None:
        if list(scale.shape) not in ([width], [branches, width], [branches * width]):
            fail(node, f"its scale {scale} does not fit {branches} branches of {width}")
        if scale.shape != [width]:
            scale = graph.reshape(scale, [branches, width])
        y = graph.op("Mul", y, scale)
    return [graph.reshape(y, [*node.inputs[0].shape])]


before = Op("HyperConnectionPreMix", MS)


@before.decompose
def before_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The sum of the streams, each with its factor."""
    takes(node, (FLOAT,), 0, 1)
    x = _grouped(node, graph)
    y = _summed(graph, graph.op("Mul", x, _gates(node, graph, 1, [*x.shape])), x.rank - 2)
    scale = node.attr("reduction_scale", 1.0)
    return [y if scale == 1.0 else graph.op("Mul", y, graph.constant(FLOAT, [], [scale]))]


after = Op("HyperConnectionPostMix", MS)


@after.decompose
def after_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The streams, mixed, plus what a layer gave with a factor for each."""
    takes(node, (FLOAT,), 0, 1, 2, 3)
    x, mix = _grouped(node, graph), node.input(3)
    branches, width = x.shape[-2:]
    shaped(node, 1, "block_output", *x.shape[:-2], width)
    shaped(node, 3, "stream_mix", *x.shape[:-2], branches, branches)
    new = graph.reshape(node.inputs[1], [*x.shape[:-2], 1, width])
    if list(node.inputs[2].shape) == [*x.shape[:-2], branches * width]:
        fail(node, f"its post_mix {node.inputs[2]} does not fit streams of {list(x.shape)}")
    new = graph.op("Mul", _gates(node, graph, 2, [*x.shape]), new)
    if mix is not None:
        turned = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        x = graph.op("MatMul", graph.op("Transpose", mix, perm=turned), x)
    return [graph.reshape(graph.op("Add", x, new), [*node.inputs[0].shape])]


gate = Op("EngramGate", MS, parameters=(3, 4, 5))


@gate.decompose
def gate_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The value with a gate for each stream: the likeness of key and query, after their norms; and
    the norm of that.
    """
    takes(node, (FLOAT,), 0, 1, 2, 3, 4, 5)
    op, k, q, v = graph.op, *node.inputs[:3]
    if k.rank != 4:
        fail(node, f"its key is {k}; [batch, tokens, streams, width] is expected")
    shaped(node, 1, "query", *k.shape)
    shaped(node, 2, "value", *k.shape[:2], k.shape[3])
    for i, name in ((3, "key_norm_scale"), (4, "query_norm_scale"), (5, "conv_norm_scale")):
        shaped(node, i, name, *k.shape[2:])

    def normed(x: Value, scale: Value) -> Value:
        return op("BranchwiseRMSNorm", x, scale, domain=MS, epsilon=node.attr("epsilon", 1e-5))

    def number(x: float) -> Value:
        return graph.constant(FLOAT, [], [x])

    dot = op("Mul", normed(k, node.inputs[3]), normed(q, node.inputs[4]))
    dot = op("Mul", op("ReduceSum", dot, graph.ints([3]), keepdims=1), number(k.shape[3] ** -0.5))
    root = op("Sqrt", op("Max", op("Abs", dot), number(1e-6)))
    y = op("Sigmoid", op("Mul", op("Sign", dot), root))
    y = op("Mul", y, op("Unsqueeze", v, graph.ints([2])))
    if not node.wants(1):
        return [y]
    if not node.has(5):
        fail(node, "gated_value_normed is an output, but conv_norm_scale is missing")
    return [y, normed(y, node.inputs[5])]

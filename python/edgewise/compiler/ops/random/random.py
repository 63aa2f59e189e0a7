"""Random numbers that follow from a seed: Dropout, the distributions, Bernoulli and Multinomial.

`seed` is an int64 [1] that the host chooses for each run, `stream` a number that no other node of
the plan has. Together with the index of an element they determine its random number, so that the
gradient computes a mask again instead of keeping it, and every machine draws the same numbers
(core/kernels/random/random.c).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...declare.dtypes import BFLOAT16, BOOL, DOUBLE, FLOAT, FLOAT16, INT32, INT64, pack, unpack
from ...declare.op import Op, fail, like, product, takes, unsupported
from ...declare.symbolic import Sym

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Gradients,
        Inferred,
        InputGradients,
        Value,
        View,
    )

# Inputs: x, seed. Attributes: ratio, stream. x / (1 - ratio), or 0 with probability `ratio`.
active = Op("Dropout", "edgewise")
# Input: seed. Attributes: shape, low, high, stream. Uniform in [low, high).
uniform = Op("RandomUniform", "edgewise")


@active.infer
def active_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0)
    takes(node, (INT64,), 1)
    if not 0.0 <= node.attr("ratio", 0.5) < 1.0:
        fail(node, f"its ratio is {node.attr('ratio')}", "Use a probability below 1.")
    return [like(node, 0)]


def _emit(
    builder: Builder,
    x: View | None,
    seed: View,
    y: View,
    stream: int,
    threshold: int = 0,
    scale: float = 1.0,
    offset: float = 0.0,
) -> None:
    builder.emit(
        "random",
        {"x": x, "seed": seed, "y": y},
        n=product(y.shape),
        stream=stream,
        threshold=threshold - (1 << 32) * (threshold >= 1 << 31),
        scale=scale,
        offset=offset,
    )


@active.lower
def active_lower(node: BoundNode, builder: Builder) -> None:
    ratio = float(node.attr("ratio", 0.5))
    _emit(
        builder,
        builder.contiguous(builder.view(node.inputs[0])),
        builder.view(node.inputs[1]),
        builder.out(node.outputs[0]),
        node.attr("stream", 0),
        min(round(ratio * (1 << 32)), (1 << 32) - 1),
        1.0 / (1.0 - ratio),
    )


@active.grad
def active_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return [gradients.op("Dropout", dy, node.inputs[1], domain="edgewise", **node.attrs), None]


@uniform.infer
def uniform_infer(node: BoundNode) -> Inferred:
    takes(node, (INT64,), 0)
    return [(FLOAT, node.attrs["shape"])]


@uniform.lower
def uniform_lower(node: BoundNode, builder: Builder) -> None:
    low = float(node.attr("low", 0.0))
    _emit(
        builder,
        None,
        builder.view(node.inputs[0]),
        builder.out(node.outputs[0]),
        node.attr("stream", 0),
        scale=float(node.attr("high", 1.0)) - low,
        offset=low,
    )


dropout = Op("Dropout")


@dropout.decompose
def dropout_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Dropout is active in graphs that are bound for training (the argument `training` of `bind`),
    unless training_mode is false, and in an InferenceSession where training_mode is true. Else its
    output is its input.
    """
    x, ratio = node.inputs[0], node.attr("ratio", 0.5)
    if node.has(1):
        ratio = float(node.need(1)[0])
    training = bool(node.need(2)[0]) if node.has(2) else None
    if ratio == 1.0 and training:  # every element would be 0 / 0
        fail(node, "its ratio is 1", "Use a probability below 1.")
    stream = (
        None if ratio == 0.0 or training is False else graph.random_stream(always=bool(training))
    )
    if stream is not None:
        seed, number = stream

        def drop(v: Value) -> Value:
            return graph.op(
                "Dropout", v, seed, domain="edgewise", ratio=float(ratio), stream=number
            )

        y = drop(x)
    else:
        y = x
    if not node.wants(1):
        return [y, None][: len(node.outputs)]
    dims = graph.constant(INT64, [x.rank], list(x.shape))
    ones = graph.op("Expand", graph.constant(FLOAT, [], [1.0]), dims)
    return [y, graph.op("Cast", drop(ones) if stream is not None else ones, to=BOOL)]


def _source(node: BoundNode, graph: Binder) -> tuple[Value, int]:
    """(seed, stream) of a distribution: the same in each run where the node has a seed."""
    chosen = node.attrs.get("seed")
    if chosen is not None:
        if type(chosen) not in (int, float):
            fail(node, f"its seed is {chosen!r}; a number is expected")
        # the bits of the float32, so that seeds that differ by little differ, too
        bits = unpack(INT32, pack(FLOAT, [float(chosen)]), 1)
        return graph.constant(INT64, [1], bits), 0
    stream = graph.random_stream(always=True)
    if stream is None:
        unsupported(
            node,
            "random numbers without a seed",
            "Set the attribute `seed`; only sessions choose one for each run.",
        )
    return stream


def _uniform(
    node: BoundNode, graph: Binder, shape: Sequence[int], low: float = 0.0, high: float = 1.0
) -> Value:
    if any(not isinstance(d, Sym) and (not isinstance(d, int) or d < 0) for d in shape):
        fail(node, f"its shape is {list(shape)}; non-negative sizes are expected")
    seed, stream = _source(node, graph)
    return graph.op(
        "RandomUniform",
        seed,
        domain="edgewise",
        shape=list(shape),
        low=float(low),
        high=float(high),
        stream=stream,
    )


def _normal(
    node: BoundNode, graph: Binder, shape: Sequence[int], mean: float, scale: float
) -> Value:
    """Normally distributed numbers of a shape (Box and Muller 1958)."""
    u, v = (
        graph.op("Squeeze", x, graph.constant(INT64, [1], [0]))
        for x in graph.op(
            "Split", _uniform(node, graph, [2, *shape]), axis=0, num_outputs=2, outputs=2
        )
    )
    radius = graph.op(
        "Sqrt",
        graph.op(
            "Mul",
            graph.op("Log", graph.op("Sub", graph.constant(FLOAT, [], [1.0]), u)),
            graph.constant(FLOAT, [], [-2.0 * scale * scale]),
        ),
    )
    if scale < 0:
        fail(node, f"its scale is {scale}; a non-negative number is expected")
    return graph.op(
        "Add",
        graph.op(
            "Mul",
            radius,
            graph.op("Cos", graph.op("Mul", v, graph.constant(FLOAT, [], [2 * math.pi]))),
        ),
        graph.constant(FLOAT, [], [mean]),
    )


def _declare_distribution(
    name: str, make: Callable[[BoundNode, Binder, Sequence[int]], Value], like_input: bool
) -> None:
    """Declares a distribution, of the attribute `dtype`.

    Args:
        make: make(node, graph, shape) adds nodes that compute float32 numbers of a shape.
        like_input: Whether shape and default element type are those of the input; else they are an
            attribute and float32.
    """
    o = Op(name, half=[0])

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> Decomposed:
        shape, to = (
            (node.inputs[0].shape, node.attr("dtype", node.inputs[0].dtype))
            if like_input
            else (node.attr("shape"), node.attr("dtype", FLOAT))
        )
        if to not in (FLOAT, DOUBLE, FLOAT16, BFLOAT16) or shape is None:
            fail(
                node,
                f"its dtype is {to} and its shape {shape}",
                "Use float32, float64, float16 or bfloat16, and give a shape.",
            )
        return [graph.op("Cast", make(node, graph, shape), to=to)]


def _uniform_of_node(node: BoundNode, graph: Binder, shape: Sequence[int]) -> Value:
    return _uniform(node, graph, shape, node.attr("low", 0.0), node.attr("high", 1.0))


def _normal_of_node(node: BoundNode, graph: Binder, shape: Sequence[int]) -> Value:
    return _normal(node, graph, shape, node.attr("mean", 0.0), node.attr("scale", 1.0))


_declare_distribution("RandomUniform", _uniform_of_node, like_input=False)
_declare_distribution("RandomUniformLike", _uniform_of_node, like_input=True)
_declare_distribution("RandomNormal", _normal_of_node, like_input=False)
_declare_distribution("RandomNormalLike", _normal_of_node, like_input=True)

bernoulli = Op("Bernoulli")


@bernoulli.decompose
def bernoulli_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """1 with probability x, else 0."""
    x = node.inputs[0]
    drawn = graph.op("Less", _uniform(node, graph, x.shape), graph.op("Cast", x, to=FLOAT))
    return [graph.op("Cast", drawn, to=node.attr("dtype", x.dtype))]


multinomial = Op("Multinomial")


@multinomial.decompose
def multinomial_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Draws classes by inverting the cumulative distribution; x [batch, classes] are unnormalized
    logarithms of the probabilities.
    """
    takes(node, (FLOAT, DOUBLE), 0)
    x, count, to = node.inputs[0], node.attr("sample_size", 1), node.attr("dtype", INT32)
    if x.rank != 2 or count < 1 or to not in (INT32, INT64) or x.shape[1] < 1:
        fail(
            node,
            f"its input is {x}, sample_size {count} and dtype {to}; [batch, classes], a positive"
            " number"
            " and int32 or int64 are expected",
        )
    # The class is the number of cumulative sums that do not exceed the random number. That of the
    # last class, 1 but for rounding, is left out.
    ends = graph.op(
        "CumSum",
        graph.op("Softmax", graph.op("Cast", x, to=FLOAT), axis=1),
        graph.constant(INT64, [], [1]),
    )
    ends = graph.op(
        "Slice", ends, *(graph.constant(INT64, [1], [i]) for i in (0, x.shape[1] - 1, 1))
    )
    drawn = _uniform(node, graph, [x.shape[0], count, 1])
    before = graph.op(
        "LessOrEqual", graph.op("Unsqueeze", ends, graph.constant(INT64, [1], [1])), drawn
    )
    return [
        graph.op(
            "Cast",
            graph.op(
                "ReduceSum",
                graph.op("Cast", before, to=FLOAT),
                graph.constant(INT64, [1], [2]),
                keepdims=0,
            ),
            to=to,
        )
    ]

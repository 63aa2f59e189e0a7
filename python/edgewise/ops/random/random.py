"""Random numbers that follow from a seed: Dropout, distributions, and what parameters begin as.

`seed` is an int64 [1] that the host chooses for each run, `stream` a number that no other node of
the plan has: together with an element's place they say its number, so that the backward part
recomputes a mask instead of keeping it, and every machine draws the same
(core/kernels/random/random.c).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...declare.dtypes import BFLOAT16, BOOL, DOUBLE, FLOAT, FLOAT16, INT32, INT64, pack, unpack
from ...declare.op import Op, fail, like, product, takes, unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

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

active = Op(
    "Dropout", "edgewise"
)  # (x, seed); ratio, stream: x / (1 - ratio), or 0 with probability `ratio`
uniform = Op(
    "RandomUniform", "edgewise"
)  # (seed); shape, low, high, stream: uniform in [low, high)


@active.infer
def active_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0)
    takes(node, (INT64,), 1)
    if not 0.0 <= node.attr("ratio", 0.5) < 1.0:
        fail(node, f"its ratio is {node.attr('ratio')}", "It is a probability below 1.")
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
    return [(FLOAT, node.attr("shape"))]


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
def dropout_decompose(node: BoundNode, builder: Binder) -> Decomposed:
    """Active where the graph is bound for training (`bind`'s `training`), unless the node says
    training_mode = false; and in an InferenceSession where it says training_mode = true. Else it
    passes its input on.
    """
    x, ratio = node.inputs[0], node.attr("ratio", 0.5)
    if node.has(1):
        ratio = float(node.need(1)[0])
    said = bool(node.need(2)[0]) if node.has(2) else None
    if ratio == 1.0 and said:  # as in PyTorch nothing is left, rather than 0 / 0
        fail(node, "its ratio is 1", "It is a probability below 1.")
    stream = None if ratio == 0.0 or said is False else builder.random_stream(always=bool(said))
    if stream is not None:
        seed, number = stream

        def drop(v: Value) -> Value:
            return builder.op(
                "Dropout", v, seed, domain="edgewise", ratio=float(ratio), stream=number
            )

        y = drop(x)
    else:
        y = x
    if not node.wants(1):
        return [y, None][: len(node.outputs)]
    dims = builder.constant(INT64, [x.rank], list(x.shape))
    ones = builder.op("Expand", builder.constant(FLOAT, [], [1.0]), dims)
    return [y, builder.op("Cast", drop(ones) if stream is not None else ones, to=BOOL)]


# Distributions: with a seed the same numbers in each run, without one others in each.


def _source(node: BoundNode, builder: Binder) -> tuple[Value, int]:
    """(seed, stream)."""
    said = node.attrs.get("seed")
    if said is not None:
        if type(said) not in (int, float):
            fail(node, f"its seed is {said!r}")
        return (
            builder.constant(INT64, [1], unpack(INT32, pack(FLOAT, [float(said)]), 1)),
            0,
        )  # the float's bits: seeds that differ a little are others, too
    stream = builder.random_stream(always=True)
    if stream is None:
        unsupported(
            node,
            "random numbers without a seed",
            "Give the node a `seed`; only sessions make one for each run.",
        )
    return stream


def _uniform(
    node: BoundNode, b: Binder, shape: Sequence[int], low: float = 0.0, high: float = 1.0
) -> Value:
    if any(not isinstance(d, int) or d < 0 for d in shape):
        fail(node, f"its shape is {list(shape)}")
    seed, stream = _source(node, b)
    return b.op(
        "RandomUniform",
        seed,
        domain="edgewise",
        shape=list(shape),
        low=float(low),
        high=float(high),
        stream=stream,
    )


def _normal(
    node: BoundNode, builder: Binder, shape: Sequence[int], mean: float, scale: float
) -> Value:
    """Box and Muller 1958."""
    u, v = (
        builder.op("Squeeze", x, builder.constant(INT64, [1], [0]))
        for x in builder.op(
            "Split", _uniform(node, builder, [2, *shape]), axis=0, num_outputs=2, outputs=2
        )
    )
    radius = builder.op(
        "Sqrt",
        builder.op(
            "Mul",
            builder.op("Log", builder.op("Sub", builder.constant(FLOAT, [], [1.0]), u)),
            builder.constant(FLOAT, [], [-2.0 * scale * scale]),
        ),
    )
    if scale < 0:
        fail(node, f"its scale is {scale}")
    return builder.op(
        "Add",
        builder.op(
            "Mul",
            radius,
            builder.op("Cos", builder.op("Mul", v, builder.constant(FLOAT, [], [2 * math.pi]))),
        ),
        builder.constant(FLOAT, [], [mean]),
    )


def _declare_distribution(name, make, like_input):
    """make(n, b, shape): float32 numbers.

    Of the type that `dtype` says, by default float32 or that of the input that also says the shape.
    """
    o = Op(name, half=[0])

    @o.decompose
    def op_decompose(node: BoundNode, b: Binder) -> Decomposed:
        shape, to = (
            (node.inputs[0].shape, node.attr("dtype", node.inputs[0].dtype))
            if like_input
            else (node.attr("shape"), node.attr("dtype", FLOAT))
        )
        if to not in (FLOAT, DOUBLE, FLOAT16, BFLOAT16) or shape is None:
            fail(
                node,
                f"its element type is {to}, its shape {shape}",
                "It makes float32, float64, float16 or bfloat16 numbers.",
            )
        return [b.op("Cast", make(node, b, shape), to=to)]

    return o


_declare_distribution(
    "RandomUniform",
    lambda n, b, shape: _uniform(n, b, shape, n.attr("low", 0.0), n.attr("high", 1.0)),
    False,
)
_declare_distribution(
    "RandomUniformLike",
    lambda n, b, shape: _uniform(n, b, shape, n.attr("low", 0.0), n.attr("high", 1.0)),
    True,
)
_declare_distribution(
    "RandomNormal",
    lambda n, b, shape: _normal(n, b, shape, n.attr("mean", 0.0), n.attr("scale", 1.0)),
    False,
)
_declare_distribution(
    "RandomNormalLike",
    lambda n, b, shape: _normal(n, b, shape, n.attr("mean", 0.0), n.attr("scale", 1.0)),
    True,
)

bernoulli = Op("Bernoulli")


@bernoulli.decompose
def bernoulli_decompose(node: BoundNode, b: Binder) -> Decomposed:
    """One with the probability that x says."""
    x = node.inputs[0]
    drawn = b.op("Less", _uniform(node, b, x.shape), b.op("Cast", x, to=FLOAT))
    return [b.op("Cast", drawn, to=node.attr("dtype", x.dtype))]


multinomial = Op("Multinomial")


@multinomial.decompose
def multinomial_decompose(node: BoundNode, builder: Binder) -> Decomposed:
    """x [batch, classes] are logarithms of what classes weigh; of each sample the class in whose
    share of their running sum a uniform number lies.
    """
    takes(node, (FLOAT, DOUBLE), 0)
    x, count, to = node.inputs[0], node.attr("sample_size", 1), node.attr("dtype", INT32)
    if x.rank != 2 or count < 1 or to not in (INT32, INT64) or x.shape[1] < 1:
        fail(node, f"{count} samples of {x} as element type {to}")
    # counted is how many classes end before the number; the last one has no end, whatever its sum
    # was rounded to
    ends = builder.op(
        "CumSum",
        builder.op("Softmax", builder.op("Cast", x, to=FLOAT), axis=1),
        builder.constant(INT64, [], [1]),
    )
    ends = builder.op(
        "Slice", ends, *(builder.constant(INT64, [1], [i]) for i in (0, x.shape[1] - 1, 1))
    )
    drawn = _uniform(node, builder, [x.shape[0], count, 1])
    before = builder.op(
        "LessOrEqual", builder.op("Unsqueeze", ends, builder.constant(INT64, [1], [1])), drawn
    )
    return [
        builder.op(
            "Cast",
            builder.op(
                "ReduceSum",
                builder.op("Cast", before, to=FLOAT),
                builder.constant(INT64, [1], [2]),
                keepdims=0,
            ),
            to=to,
        )
    ]

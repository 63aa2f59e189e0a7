"""Where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, size_of
from ...declare.op import Op, broadcast, fail, read_as

if TYPE_CHECKING:
    from ...declare.annotations import (
        BoundNode,
        Builder,
        Folded,
        Gradients,
        Inferred,
        InputGradients,
        Shape,
        Value,
    )

where = Op("Where", moves=True)


@where.infer
def where_infer(node: BoundNode) -> Inferred:
    c, x, y = node.inputs
    if c.dtype != BOOL or x.dtype != y.dtype:
        fail(
            node,
            f"its inputs are {c}, {x} and {y}; a bool condition and two tensors of one type are"
            " expected",
        )
    return [(x.dtype, broadcast(node, c.shape, x.shape, y.shape))]


@where.fold
def where_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    shape = outs[0][1]
    return [
        [
            a if c else d
            for c, a, d in zip(
                read_as(node.inputs[0], shape),
                read_as(node.inputs[1], shape),
                read_as(node.inputs[2], shape),
            )
        ]
    ]


@where.lower
def where_lower(node: BoundNode, builder: Builder) -> None:
    y = builder.out(node.outputs[0])
    c, a, d = (builder.view(v).broadcast(y.shape) for v in node.inputs)
    builder.nd(
        "where",
        y.shape,
        {"condition": c, "a": a, "b": d, "y": y},
        {"cs": "condition", "as": "a", "bs": "b", "ys": "y"},
        size=size_of(y.dtype),
    )


@where.grad
def where_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    c, x, y = node.inputs
    zero = gradients.constant(dy.dtype, [], [0.0])
    return [
        None,
        (
            gradients.sum_to(gradients.op("Where", c, dy, zero), x.shape)
            if gradients.wants(1)
            else None
        ),
        (
            gradients.sum_to(gradients.op("Where", c, zero, dy), y.shape)
            if gradients.wants(2)
            else None
        ),
    ]

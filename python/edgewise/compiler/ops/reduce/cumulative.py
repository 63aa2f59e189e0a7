"""CumSum and CumProd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, FLOATS, INT32, INT64, UINT32, UINT64
from ...declare.op import Op, axis_of, ints, like, product, takes
from ...declare.symbolic import NotStatic, Sym, extent

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Gradients,
        Inferred,
        InputGradients,
        Value,
    )

cumsum = Op("CumSum")


@cumsum.infer
def cumsum_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT, DOUBLE, INT32, INT64), 0)
    axis_of(node, ints(node, 1)[0], node.inputs[0].rank)
    return [like(node, 0)]


@cumsum.lower
def cumsum_lower(node: BoundNode, builder: Builder) -> None:
    x = node.inputs[0]
    axis = axis_of(node, ints(node, 1)[0], x.rank)
    xv, y = builder.contiguous(builder.view(x)), builder.out(node.outputs[0])
    outer, inner = product(x.shape[:axis]), product(x.shape[axis + 1 :])
    if isinstance(inner, Sym) or axis > 1 and isinstance(outer, Sym):
        raise NotStatic("CumSum along an axis in front of a length that depends on a register")
    step = extent(x.shape[axis]) * inner
    builder.emit(
        "cumsum",
        {"x": xv, "y": y},
        type=x.dtype,
        outer=outer,
        n=x.shape[axis],
        inner=inner,
        x_outer=step,
        y_outer=step,
        exclusive=node.attr("exclusive", 0),
        reverse=node.attr("reverse", 0),
    )


@cumsum.grad
def cumsum_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return [
        gradients.op(
            "CumSum",
            dy,
            node.inputs[1],
            exclusive=node.attr("exclusive", 0),
            reverse=1 - node.attr("reverse", 0),
        )
    ]


cumprod = Op("CumProd")


@cumprod.decompose
def cumprod_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Products over 1, 2, 4, ... elements (Hillis and Steele 1986), in log2(length) steps.

    Its gradient is exact where elements are zero, too.
    """
    x, reverse = node.inputs[0], node.attr("reverse", 0)
    takes(node, (FLOAT, DOUBLE, INT32, INT64, UINT32, UINT64), 0)
    axis = axis_of(node, int(ints(node, 1)[0]), x.rank)
    d, one = x.shape[axis], graph.constant(x.dtype, [], [1.0 if x.dtype in FLOATS else 1])
    if isinstance(d, Sym):
        raise NotStatic("CumProd over a length that depends on a register")

    def moved(v: Value, by: int) -> Value:
        """The element `by` positions before each one; 1 where there is none."""
        pads = [0] * (2 * x.rank)
        pads[axis + (x.rank if reverse else 0)], pads[axis + (0 if reverse else x.rank)] = by, -by
        return graph.op("Pad", v, graph.constant(INT64, [2 * x.rank], pads), one)

    y, by = moved(x, 1) if node.attr("exclusive", 0) and d else x, 1
    while by < d:
        y = graph.op("Mul", y, moved(y, by))
        by *= 2
    return [y]

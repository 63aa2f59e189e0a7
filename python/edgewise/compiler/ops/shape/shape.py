"""Operators that read a shape, change one without moving elements, or make a tensor of a shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, FLOAT16, INT64
from ...declare.op import Dim, Op, axis_of, broadcast, fail, ints, most, product, read_as
from ...declare.symbolic import NotStatic, Sym, registers_of

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Folded,
        Gradients,
        Inferred,
        InputGradients,
        Shape,
        Value,
    )

FAR = 1 << 62  # exporters write "to the end" as numbers of this size


identity = Op("Identity", half=[0])


@identity.infer
def identity_infer(node: BoundNode) -> Inferred:
    return [node.inputs[0]]


shape = Op("Shape", half=[0])


@shape.infer
def shape_infer(node: BoundNode) -> Inferred:
    return [(INT64, [len(_selected(node))])]


def _selected(node: BoundNode) -> list[Dim]:
    """The dimensions of the input from `start` to `end`."""
    dims = node.inputs[0].shape

    def clamp(i: int) -> int:
        return max(0, min(len(dims), i + len(dims) if i < 0 else i))

    return dims[clamp(node.attr("start", 0)) : clamp(node.attr("end", FAR))]


@shape.fold
def shape_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    return [list(_selected(node))]


shape.folds_without_numbers = True


size = Op("Size", half=[0])


@size.infer
def size_infer(node: BoundNode) -> Inferred:
    return [(INT64, [])]


@size.fold
def size_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    return [[product(node.inputs[0].shape)]]


size.folds_without_numbers = True


def _numbers_of(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    return [node.inputs[0].numbers]


def _same_layout(op: Op) -> None:
    """Declares the rules of an operator that changes nothing but the shape: a view, or a copy where
    strides cannot express the shape.
    """
    op.fold(_numbers_of)

    @op.lower
    def op_lower(node: BoundNode, builder: Builder) -> None:
        builder.alias(
            node.outputs[0], builder.reshaped(builder.stored(node.inputs[0]), node.outputs[0].shape)
        )

    @op.grad
    def op_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
        return [gradients.reshape(dy, node.inputs[0].shape)]


reshape = Op("Reshape", half=[0])


@reshape.infer
def reshape_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    wanted = ints(node, 1) if node.opset >= 5 else node.attr("shape", [])
    dims, free = [], None
    for i, d in enumerate(wanted):
        if not isinstance(d, Sym) and d == 0 and not node.attr("allowzero", 0):
            if i >= x.rank:
                fail(node, f"it copies dimension {i} of a tensor that has {x.rank}")
            d = x.shape[i]
        if not isinstance(d, Sym) and d == -1:
            if free is not None:
                fail(node, "two of its dimensions are -1")
            free, d = i, 1
        elif not isinstance(d, Sym) and d < -1:
            fail(node, f"dimension {d} is negative")
        dims.append(d)
    if free is not None:
        dims[free] = _free_dimension(node, x.shape, [d for i, d in enumerate(dims) if i != free])
    elif product_of(x.shape) != product_of(dims):
        fail(node, f"a tensor of shape {x.shape} cannot be reshaped to {dims}")
    if dims == x.shape:
        return [x]
    return [(x.dtype, dims)]


def product_of(dims: Shape) -> tuple[Dim, list[tuple[int, int]]]:
    """The number of elements as (factor, Syms), which can be compared for shapes with several
    dimensions that depend on registers.
    """
    if registers_of([dims]) is not None:
        return product(dims), []
    factor: int = 1
    syms: list[tuple[int, int]] = []
    for d in dims:
        if isinstance(d, Sym):
            syms.append((d.scale, d.add))
        else:
            factor *= d
    return factor, sorted(syms)


def _free_dimension(node: BoundNode, shape: Shape, others: Shape) -> Dim:
    """The dimension that -1 stands for, of a tensor of `shape` with these other dimensions."""
    left = list(shape)
    rest = []
    for d in others:
        if isinstance(d, Sym) and d in left:
            left.remove(d)
        else:
            rest.append(d)
    total, known = product(left), product(rest)
    if known == 0:
        return 0
    if isinstance(total, Sym) or isinstance(known, Sym):
        return total // known
    if total % known:
        fail(node, f"a tensor of shape {shape} cannot be reshaped to {others} and -1")
    return total // known


_same_layout(reshape)


flatten = Op("Flatten", half=[0])


@flatten.infer
def flatten_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    axis = axis_of(node, node.attr("axis", 1), x.rank, 1)
    return [(x.dtype, [product(x.shape[:axis]), product(x.shape[axis:])])]


_same_layout(flatten)


squeeze = Op("Squeeze", half=[0])


@squeeze.infer
def squeeze_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    axes = node.attr("axes") if node.opset < 13 else ints(node, 1)
    if axes is None:
        axes = [i for i, d in enumerate(x.shape) if d == 1]
    axes = {axis_of(node, a, x.rank) for a in axes}
    for a in axes:
        if not isinstance(x.shape[a], Sym) and x.shape[a] != 1:
            fail(node, f"dimension {a} of {x.shape} is not 1 and cannot be squeezed")
    return [(x.dtype, [d for i, d in enumerate(x.shape) if i not in axes])]


_same_layout(squeeze)


unsqueeze = Op("Unsqueeze", half=[0])


@unsqueeze.infer
def unsqueeze_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    axes = node.attr("axes") if node.opset < 13 else ints(node, 1)
    rank = x.rank + len(axes)
    axes = sorted(axis_of(node, a, rank) for a in axes)
    if len(set(axes)) != len(axes):
        fail(node, "it names an axis twice")
    dims = list(x.shape)
    for a in axes:
        dims.insert(a, 1)
    return [(x.dtype, dims)]


_same_layout(unsqueeze)


expand = Op("Expand", moves=True)


@expand.infer
def expand_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    dims = broadcast(node, x.shape, ints(node, 1))
    if dims == x.shape:
        return [x]
    return [(x.dtype, dims)]


@expand.fold
def expand_fold(node: BoundNode, outs: list[tuple[int, list[int]]]) -> Folded:
    return [read_as(node.inputs[0], outs[0][1])]


@expand.lower
def expand_lower(node: BoundNode, builder: Builder) -> None:
    builder.alias(node.outputs[0], builder.stored(node.inputs[0]).broadcast(node.outputs[0].shape))


@expand.grad
def expand_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return [gradients.sum_to(dy, node.inputs[0].shape)]


range_ = Op("Range")


@range_.infer
def range_infer(node: BoundNode) -> Inferred:
    (start,), (limit,), (delta,) = ints(node, 0), ints(node, 1), ints(node, 2)
    if delta == 0:
        fail(node, "its step is 0")
    span = limit - start
    if isinstance(span, Sym):
        count = span // delta
        if count.min < 0:
            raise NotStatic("a range that may be empty")
    elif isinstance(span, float):
        if not math.isfinite(span / delta):
            fail(node, "its bounds are not finite")
        count = max(0, math.ceil(span / delta))
    else:
        count = max(0, -(-span // delta))
    if most(count) >= 1 << 31:
        fail(node, f"a range of {count} elements")
    return [(node.inputs[0].dtype, [count])]


@range_.fold
def range_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    start, delta, count = node.inputs[0].numbers[0], node.inputs[2].numbers[0], outs[0][1][0]
    if isinstance(start, Sym) and count > 4:
        raise NotStatic("a long range from a register")
    return [[start + i * delta for i in range(count)]]


@range_.lower
def range_lower(node: BoundNode, builder: Builder) -> None:
    start, delta = node.inputs[0].numbers[0], node.inputs[2].numbers[0]
    builder.range(builder.out(node.outputs[0]), start, delta)


constant_of_shape = Op("ConstantOfShape")


@constant_of_shape.infer
def constant_of_shape_infer(node: BoundNode) -> Inferred:
    value, dims = node.attr("value"), ints(node, 0)
    if any(d < 0 for d in dims if not isinstance(d, Sym)):
        fail(node, f"shape {dims} has a negative dimension")
    dtype = value.dtype if value is not None else FLOAT
    return [(FLOAT if dtype == FLOAT16 else dtype, dims)]


def _filler(node: BoundNode) -> float:
    """The value of ConstantOfShape."""
    value = node.attr("value")
    return value.numbers()[0] if value is not None else 0.0


@constant_of_shape.fold
def constant_of_shape_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    return [[_filler(node)] * product(outs[0][1])]


@constant_of_shape.lower
def constant_of_shape_lower(node: BoundNode, builder: Builder) -> None:
    y = builder.scalar(node.outputs[0].dtype, _filler(node))
    builder.alias(node.outputs[0], y.broadcast(node.outputs[0].shape))


eye_like = Op("EyeLike", half=[0])


@eye_like.decompose
def eye_like_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Ones where column = row + k."""
    x, k = node.inputs[0], node.attr("k", 0)
    if x.rank != 2:
        fail(node, f"it takes a matrix, not {x}")
    rows, columns = (
        graph.op("Range", *(graph.constant(INT64, [], [i]) for i in (first, first + d, 1)))
        for first, d in ((k, x.shape[0]), (0, x.shape[1]))
    )
    return [
        graph.op(
            "Cast",
            graph.op(
                "Equal", graph.op("Unsqueeze", rows, graph.constant(INT64, [1], [1])), columns
            ),
            to=node.attr("dtype", x.dtype),
        )
    ]

"""Operators that move elements: Transpose, Slice, Tile, Trilu, ReverseSequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...declare.dtypes import INT64, size_of
from ...declare.op import Dim, Op, axis_of, fail, indices, ints, like, product, strides_of
from ...declare.registers import ceil_div
from ...declare.symbolic import NotStatic, Sym
from .shape import FAR

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
        View,
    )


transpose = Op("Transpose", half=[0], moves=True)


def _perm(node: BoundNode, rank: int) -> list[int]:
    return node.attr("perm", list(range(rank))[::-1])


@transpose.infer
def transpose_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    perm = _perm(node, x.rank)
    if sorted(perm) != list(range(x.rank)):
        fail(node, f"perm {perm} is not a permutation of {x.rank} dimensions")
    if perm == list(range(x.rank)):
        return [x]
    return [(x.dtype, [x.shape[p] for p in perm])]


@transpose.fold
def transpose_fold(node: BoundNode, outs: list[tuple[int, list[int]]]) -> Folded:
    x = node.inputs[0]
    perm = _perm(node, x.rank)
    s = strides_of(x.shape)
    return [[x.numbers[i] for i in indices(outs[0][1], [s[p] for p in perm])]]


@transpose.lower
def transpose_lower(node: BoundNode, builder: Builder) -> None:
    x = builder.narrow(node.inputs[0])
    builder.alias(node.outputs[0], x.transpose(_perm(node, len(x.shape))))


@transpose.grad
def transpose_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    perm = _perm(node, dy.rank)
    return [gradients.transpose(dy, [perm.index(i) for i in range(dy.rank)])]


slice_ = Op("Slice", half=[0], moves=True)


def _clip_index(i: Dim, low: int, high: Dim) -> Dim:
    """i clamped to [low, high]; a Sym is kept if its whole range is inside."""
    if not isinstance(i, Sym) and not isinstance(high, Sym):
        return max(low, min(high, i))
    if i == high:
        return i
    if not isinstance(i, Sym) and (i >= FAR // 2):
        return high
    if i < low:
        return low
    return high if i > high else i


def _from_front(i: Dim, size: Dim) -> Dim:
    """An index that counts from the end where it is negative, counted from the front.

    Raises:
        NotStatic: i is negative for a part of its range.
    """
    if not i < 0:
        return i
    return (i if isinstance(i, Sym) else max(i, -FAR)) + size


def slice_ranges(node: BoundNode) -> list[tuple[int, Dim, Dim, int]]:
    """(axis, start, length, step) of each sliced axis of a Slice."""
    x = node.inputs[0]
    if node.opset < 10:
        starts, ends, axes, steps = node.attr("starts"), node.attr("ends"), node.attr("axes"), None
    else:
        starts, ends, axes, steps = ints(node, 1), ints(node, 2), ints(node, 3), ints(node, 4)
    axes = list(range(len(starts))) if axes is None else [axis_of(node, a, x.rank) for a in axes]
    steps = [1] * len(axes) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or len(set(axes)) != len(axes):
        fail(
            node,
            f"its starts, ends, axes and steps do not match: {starts}, {ends}, {axes}, {steps}",
        )
    out = []
    for axis, start, end, step in zip(axes, starts, ends, steps):
        d = x.shape[axis]
        if step == 0:
            fail(node, "its step is 0")
        start, end = _from_front(start, d), _from_front(end, d)
        if step > 0:
            start, end = _clip_index(start, 0, d), _clip_index(end, 0, d)
            span = end - start
            length = span if step == 1 else ceil_div(span, step)
        else:
            start, end = _clip_index(start, -1, d - 1), _clip_index(end, -1, d - 1)
            span = start - end
            length = span if step == -1 else ceil_div(span, -step)
        if not isinstance(length, Sym):
            length = max(length, 0)
        elif length.min < 0:
            raise NotStatic("a slice that may be empty")
        out.append((axis, start, length, step))
    return out


@slice_.infer
def slice_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    dims = list(x.shape)
    ranges = slice_ranges(node)
    for axis, _start, length, _step in ranges:
        dims[axis] = length
    if dims == x.shape and all(step == 1 for *_, step in ranges):
        return [x]
    return [(x.dtype, dims)]


@slice_.fold
def slice_fold(node: BoundNode, outs: list[tuple[int, list[int]]]) -> Folded:
    x = node.inputs[0]
    s, offset = strides_of(x.shape), 0
    for axis, start, _length, step in slice_ranges(node):
        offset += start * s[axis] if outs[0][1][axis] else 0
        s[axis] *= step
    return [[x.numbers[i] for i in indices(outs[0][1], s, offset)]]


@slice_.lower
def slice_lower(node: BoundNode, builder: Builder) -> None:
    v = builder.stored(node.inputs[0])
    for axis, start, length, step in slice_ranges(node):
        v = v.slice(axis, start, length, step)
    builder.alias(node.outputs[0], v)


@slice_.grad
def slice_grad_rule(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return [
        slice_grad(
            gradients,
            dy,
            node.inputs[0].shape,
            [(axis, start, step) for axis, start, _, step in slice_ranges(node)],
        )
    ]


def slice_grad(
    graph: Gradients, dy: Value, shape: Shape, ranges: Sequence[tuple[int, Dim, int]]
) -> Value:
    """Zeros of a shape, with dy where a slice was. ranges: (axis, start, step) of the slice."""
    if list(dy.shape) == list(shape) and all(step == 1 for *_, step in ranges):
        return dy
    axes, starts, steps = zip(*ranges)
    return graph.op(
        "SliceGrad",
        dy,
        domain="edgewise",
        shape=list(shape),
        axes=list(axes),
        starts=list(starts),
        steps=list(steps),
    )


# The gradient of Slice: zeros of the attribute `shape`, with input dy at the slice that `axes`,
# `starts` and `steps` describe.
slice_gradient = Op("SliceGrad", "edgewise")


def _sliced(v: View, node: BoundNode, lengths: Shape) -> View:
    """The slice that a SliceGrad describes. lengths: of each dimension of the slice."""
    for axis, start, step in zip(node.attr("axes"), node.attr("starts"), node.attr("steps", [])):
        v = v.slice(axis, start, lengths[axis], step)
    return v


@slice_gradient.infer
def slice_gradient_infer(node: BoundNode) -> Inferred:
    return [(node.inputs[0].dtype, list(node.attr("shape")))]


@slice_gradient.lower
def slice_gradient_lower(node: BoundNode, builder: Builder) -> None:
    y = builder.out(node.outputs[0])
    builder.fill(y, 0.0)
    builder.copy(builder.view(node.inputs[0]), _sliced(y, node, node.inputs[0].shape))


@slice_gradient.grad
def slice_gradient_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    starts, steps = node.attr("starts"), node.attr("steps", [])
    lengths = [node.inputs[0].shape[a] for a in node.attr("axes")]
    ends = [s + k * step for s, k, step in zip(starts, lengths, steps)]
    return [
        gradients.op(
            "Slice",
            dy,
            gradients.ints(starts),
            gradients.ints([e if e >= 0 else -FAR for e in ends]),
            gradients.ints(node.attr("axes")),
            gradients.ints(steps),
        )
    ]


tile = Op("Tile", moves=True)


@tile.infer
def tile_infer(node: BoundNode) -> Inferred:
    x, repeats = node.inputs[0], ints(node, 1)
    if len(repeats) != x.rank or any(r < 0 for r in repeats):
        fail(node, f"repeats {repeats} do not fit a tensor of {x.rank} dimensions")
    if all(r == 1 for r in repeats):
        return [x]
    return [(x.dtype, [d * r for d, r in zip(x.shape, repeats)])]


@tile.lower
def tile_lower(node: BoundNode, builder: Builder) -> None:
    x, y = builder.view(node.inputs[0]), builder.out(node.outputs[0])
    wide = [d for pair in zip(ints(node, 1), x.shape) for d in pair]
    builder.copy(x.unsqueeze_each().broadcast(wide), builder.reshaped(y, wide))


@tile.grad
def tile_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    wide = [d for pair in zip(ints(node, 1), node.inputs[0].shape) for d in pair]
    return [
        gradients.op(
            "ReduceSum",
            gradients.reshape(dy, wide),
            gradients.ints(range(0, len(wide), 2)),
            keepdims=0,
        )
    ]


trilu = Op("Trilu", moves=True)


@trilu.infer
def trilu_infer(node: BoundNode) -> Inferred:
    if node.inputs[0].rank < 2:
        fail(node, "it takes matrices")
    return [like(node, 0)]


@trilu.lower
def trilu_lower(node: BoundNode, builder: Builder) -> None:
    x = node.inputs[0]
    k = ints(node, 1, [0])[0]
    xv, y = builder.contiguous(builder.view(x)), builder.out(node.outputs[0])
    batch = product(x.shape[:-2])
    if batch != 1 and any(isinstance(d, Sym) for d in x.shape[1:]):
        raise NotStatic("Trilu of several matrices with a register-dependent size")
    # Not a multiple of the stride of rows: that of a dimension of 1 may be anything.
    matrix = 0 if batch == 1 else product(x.shape[-2:])
    builder.emit(
        "trilu",
        {"x": xv, "y": y},
        size=size_of(x.dtype),
        batch=batch,
        rows=x.shape[-2],
        cols=x.shape[-1],
        k=k,
        upper=node.attr("upper", 1),
        x_row=xv.strides[-2],
        y_row=y.strides[-2],
        x_batch=matrix,
        y_batch=matrix,
    )


@trilu.grad
def trilu_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return [gradients.op("Trilu", dy, *node.inputs[1:2], upper=node.attr("upper", 1))]


reverse_sequence = Op("ReverseSequence")


@reverse_sequence.decompose
def reverse_sequence_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Element t of a sequence of length l is element l - 1 - t of the input if t < l, else element
    t.
    """
    x, lengths = node.inputs[0], node.inputs[1]
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)
    if (
        x.rank < 2
        or {time, batch} != {0, 1}
        or list(lengths.shape) != [x.shape[batch]]
        or lengths.dtype != INT64
    ):
        fail(node, f"lengths {lengths}, time_axis {time} and batch_axis {batch} do not fit {x}")
    steps = graph.op("Range", *(graph.constant(INT64, [], [i]) for i in (0, x.shape[time], 1)))
    steps, lengths = (
        graph.op("Unsqueeze", steps, graph.constant(INT64, [1], [batch])),
        graph.op("Unsqueeze", lengths, graph.constant(INT64, [1], [time])),
    )
    source = graph.op(
        "Where",
        graph.op("Less", steps, lengths),
        graph.op("Sub", graph.op("Sub", lengths, graph.constant(INT64, [], [1])), steps),
        steps,
    )
    flat = graph.op(
        "Reshape", x, graph.constant(INT64, [3], [*x.shape[:2], product(x.shape[2:])]), allowzero=1
    )
    source = graph.op(
        "Expand",
        graph.op("Unsqueeze", source, graph.constant(INT64, [1], [2])),
        graph.constant(INT64, [3], flat.shape),
    )
    return [
        graph.op(
            "Reshape",
            graph.op("GatherElements", flat, source, axis=time),
            graph.constant(INT64, [x.rank], x.shape),
            allowzero=1,
        )
    ]

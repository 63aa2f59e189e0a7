"""Concat and Split, and the forms of them in onnxruntime's training graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT64
from ...declare.op import MS, Op, axis_of, fail, indices, ints, product, strides_of

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

concat = Op("Concat", half=[], moves=True)


@concat.infer
def concat_infer(node: BoundNode) -> Inferred:
    first = node.inputs[0]
    axis = axis_of(node, node.attr("axis", 1), first.rank)
    total = 0
    for v in node.inputs:
        if (
            v.rank != first.rank
            or v.dtype != first.dtype
            or any(a != b for i, (a, b) in enumerate(zip(v.shape, first.shape)) if i != axis)
        ):
            fail(node, f"{v} does not fit {first} along axis {axis}")
        total = total + v.shape[axis]
    if len(node.inputs) == 1:
        return [first]
    filled = [v for v in node.inputs if v.shape[axis] != 0]
    if len(filled) == 1 and first.role != "cache":
        return [filled[0]]
    dims = list(first.shape)
    dims[axis] = total
    return [(first.dtype, dims)]


@concat.fold
def concat_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    first = node.inputs[0]
    axis = axis_of(node, node.attr("axis", 1), first.rank)
    outer = product(first.shape[:axis])
    out = []
    for o in range(outer):
        for v in node.inputs:
            step = len(v.numbers) // outer if outer else 0
            out += v.numbers[o * step : (o + 1) * step]
    return [out]


@concat.lower
def concat_lower(node: BoundNode, builder: Builder) -> None:
    axis = axis_of(node, node.attr("axis", 1), node.inputs[0].rank)
    at = 0
    if node.inputs[0].role == "cache":  # its buffer has room to append in place
        first = builder.stored(node.inputs[0], rows=True)
        parts, at = node.inputs[1:], first.shape[axis]
        y = first.extended(axis, sum((v.shape[axis] for v in parts), at))
        builder.alias(node.outputs[0], y)
    else:
        y, parts = builder.out(node.outputs[0]), node.inputs
    for v in parts:
        builder.store(builder.view(v), y.slice(axis, at, v.shape[axis]))
        at = at + v.shape[axis]


@concat.grad
def concat_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    axis, at, out = axis_of(node, node.attr("axis", 1), dy.rank), 0, []
    for i, v in enumerate(node.inputs):
        end = at + v.shape[axis]
        out.append(
            gradients.op(
                "Slice", dy, gradients.ints([at]), gradients.ints([end]), gradients.ints([axis])
            )
            if gradients.wants(i)
            else None
        )
        at = end
    return out


split = Op("Split", half=[0], moves=True)


def _split_sizes(node: BoundNode) -> tuple[int, list[int]]:
    """The axis, and the length of each output along it."""
    x = node.inputs[0]
    axis = axis_of(node, node.attr("axis", 0), x.rank)
    sizes = node.attr("split") if node.opset < 13 else ints(node, 1)
    d = x.shape[axis]
    if sizes is None:
        parts = node.attr("num_outputs") or len(node.outputs)
        if parts != len(node.outputs):
            fail(node, f"it splits into {parts} parts and has {len(node.outputs)} outputs")
        each = -(-d // parts)
        sizes = [min(each, max(0, d - i * each)) for i in range(parts)]
    if sum(sizes) != d or min(sizes, default=0) < 0 or len(sizes) < len(node.outputs):
        fail(node, f"sizes {sizes} do not split a dimension of {d} into {len(node.outputs)}")
    return axis, sizes


@split.infer
def split_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    axis, sizes = _split_sizes(node)
    return [(x.dtype, x.shape[:axis] + [s] + x.shape[axis + 1 :]) for s in sizes]


@split.fold
def split_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    x = node.inputs[0]
    axis, sizes = _split_sizes(node)
    s, at, out = strides_of(x.shape), 0, []
    for size_ in sizes:
        dims = x.shape[:axis] + [size_] + x.shape[axis + 1 :]
        out.append([x.numbers[i] for i in indices(dims, s, at * s[axis])])
        at += size_
    return out


@split.lower
def split_lower(node: BoundNode, builder: Builder) -> None:
    axis, sizes = _split_sizes(node)
    v, at = builder.stored(node.inputs[0]), 0
    for out, size_ in zip(node.outputs, sizes):
        if out is not None:
            builder.alias(out, v.slice(axis, at, size_))
        at += size_


@split.grad
def split_grad(node: BoundNode, gradients: Gradients, *dys: Value | None) -> InputGradients:
    axis, sizes = _split_sizes(node)
    dims = node.inputs[0].shape
    parts = [
        (
            dys[i]
            if i < len(dys) and dys[i] is not None
            else gradients.zeros(dims[:axis] + [size_] + dims[axis + 1 :])
        )
        for i, size_ in enumerate(sizes)
    ]
    return [gradients.op("Concat", *parts, axis=axis)]


# onnxruntime's training graphs: Concat with the lengths of its inputs as a second output, and Split
# with the lengths as an input.
concat_training = Op("ConcatTraining", MS)


@concat_training.decompose
def concat_training_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """The second output: the length of each input along the axis, int64."""
    axis = axis_of(node, node.attr("axis", 0), node.inputs[0].rank)
    y = graph.op("Concat", *node.inputs, axis=axis)
    return [y, graph.constant(INT64, [len(node.inputs)], [v.shape[axis] for v in node.inputs])][
        : len(node.outputs)
    ]


split_training = Op("SplitTraining", MS)


@split_training.decompose
def split_training_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    outs = graph.op("Split", *node.inputs[:2], outputs=len(node.outputs), axis=node.attr("axis", 0))
    return outs if isinstance(outs, list) else [outs]

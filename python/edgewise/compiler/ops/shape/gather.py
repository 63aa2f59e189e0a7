"""Gather, GatherElements and GatherND."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT32, INT64, size_of
from ...declare.op import (
    Dim,
    Op,
    Weight,
    axis_of,
    check_reach,
    fail,
    most,
    product,
    strides_of,
    unsupported,
)
from ...declare.symbolic import NotStatic, Sym
from .movement import slice_grad
from .scatter import REDUCTION

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
        View,
    )


gather = Op("Gather", half=[0], moves=True, weight=Weight(0, "embedding"), parameters=(0,))


def gathered_shape(node: BoundNode, axis: int) -> list[Dim]:
    x, i = node.inputs[0], node.inputs[1]
    return x.shape[:axis] + i.shape + x.shape[axis + 1 :]


@gather.infer
def gather_infer(node: BoundNode) -> Inferred:
    x, i = node.inputs[:2]
    if i.dtype not in (INT32, INT64):
        fail(node, f"its indices are {i}; int32 or int64 is expected")
    axis = axis_of(node, node.attr("axis", 0), x.rank)
    return [(x.dtype, gathered_shape(node, axis))]


@gather.fold
def gather_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    x, i = node.inputs[:2]
    axis = axis_of(node, node.attr("axis", 0), x.rank)
    rows, inner, outer = x.shape[axis], product(x.shape[axis + 1 :]), product(x.shape[:axis])
    out = []
    for o in range(outer):
        for k in i.numbers:
            if not -rows <= k < rows:
                fail(node, f"index {k} is outside a dimension of {rows}")
            at = (o * rows + k % rows) * inner
            out += x.numbers[at : at + inner]
    return [out]


@gather.lower
def gather_lower(node: BoundNode, builder: Builder) -> None:
    x, i = node.inputs[:2]
    axis = axis_of(node, node.attr("axis", 0), x.rank)
    k = i.scalar()
    # A constant index is a slice.
    if k is not None and (isinstance(k, Sym) or -most(x.shape[axis]) <= k):
        if not isinstance(k, Sym) and k < 0:
            k = x.shape[axis] + k
        check_reach(node, k, x.shape[axis])
        if isinstance(k, Sym) or isinstance(x.shape[axis], Sym) or k < x.shape[axis]:
            v = builder.view(x).slice(axis, k, 1)
            builder.alias(
                node.outputs[0],
                v.drop(axis) if i.rank == 0 else builder.reshaped(v, node.outputs[0].shape),
            )
            return
    stored = builder.narrow(x) if axis == 0 and not builder.init else builder.view(x)
    xv, iv, y = (
        builder.rows_from(stored, axis),
        builder.flat(builder.view(i)),
        builder.out(node.outputs[0])
        if stored.power is None
        else builder.temp(stored.dtype, node.outputs[0].shape),
    )
    inner, outer = product(x.shape[axis + 1 :]), product(x.shape[:axis])
    if isinstance(inner, Sym) or axis > 1 and isinstance(outer, Sym):
        raise NotStatic("Gather of rows with a register-dependent length")
    count = product(i.shape)
    rows = x.shape[axis]
    if rows == 0:
        fail(node, "it gathers from an empty dimension")
    builder.emit(
        "gather",
        {"x": xv, "index": iv, "y": y},
        size=size_of(stored.dtype),
        index_type=i.dtype,
        outer=outer,
        count=count,
        rows=rows,
        inner=inner,
        x_outer=_outer_stride(xv, axis),
        x_row=xv.strides[axis],
        y_outer=_outer_stride(y, axis),
    )
    if stored.power is not None:
        builder.alias(node.outputs[0], builder.undo_power(builder.cast(y, x.dtype), stored.power))


def _outer_stride(v: View, axis: int) -> Dim:
    """The stride of the dimensions before `axis` as one: that of the last one that is not 1, since
    dimensions of 1 have any stride.
    """
    return next((s for d, s in zip(v.shape[:axis][::-1], v.strides[:axis][::-1]) if d != 1), 0)


@gather.grad
def gather_grad_rule(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    x, i = node.inputs[:2]
    axis = axis_of(node, node.attr("axis", 0), x.rank)
    k = i.scalar()
    if k is not None:
        return [
            slice_grad(
                gradients,
                gradients.reshape(dy, x.shape[:axis] + [1] + x.shape[axis + 1 :]),
                x.shape,
                [(axis, k % x.shape[axis], 1)],
            )
        ]
    before, after = list(range(axis)), list(range(axis + i.rank, dy.rank))
    dy = gradients.transpose(dy, [*range(axis, axis + i.rank), *before, *after])
    # [rows, dimensions before the axis, dimensions after it]
    dx = gradients.op("GatherGrad", dy, i, domain="edgewise", rows=x.shape[axis])
    return [gradients.transpose(dx, [*range(1, axis + 1), 0, *range(axis + 1, x.rank)])]


# The gradient of Gather, float32 [rows, ...]: the sum of dy over each row of the index. Inputs: dy
# [*index.shape, ...], index. Summed in the order of the index, whatever the number of threads.
gather_grad = Op("GatherGrad", "edgewise")


@gather_grad.infer
def gather_grad_infer(node: BoundNode) -> Inferred:
    dy, i = node.inputs
    return [(FLOAT, [node.attr("rows", 0)] + dy.shape[i.rank :])]


@gather_grad.lower
def gather_grad_lower(node: BoundNode, builder: Builder) -> None:
    dy, i = node.inputs
    y = builder.out(node.outputs[0])
    builder.fill(y, 0.0)
    inner = product(dy.shape[i.rank :])
    builder.emit(
        "scatter_nd",
        {"index": builder.flat(builder.view(i)), "updates": builder.flat(builder.view(dy)), "y": y},
        size=4,
        type=FLOAT,
        index_type=i.dtype,
        reduction=REDUCTION["add"],
        count=product(i.shape),
        depth=1,
        inner=inner,
        sizes=[y.shape[0]] + [1] * 5,
        strides=[inner] + [0] * 5,
    )


@gather_grad.grad
def gather_grad_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return [gradients.op("Gather", dy, node.inputs[1], axis=0)]


gather_elements = Op("GatherElements", moves=True)


@gather_elements.infer
def gather_elements_infer(node: BoundNode) -> Inferred:
    x, i = node.inputs
    axis_of(node, node.attr("axis", 0), x.rank)
    if x.rank != i.rank or i.dtype not in (INT32, INT64):
        fail(node, f"its indices {i} do not fit {x}")
    return [(x.dtype, list(i.shape))]


@gather_elements.lower
def gather_elements_lower(node: BoundNode, builder: Builder) -> None:
    x, i = node.inputs
    axis = axis_of(node, node.attr("axis", 0), x.rank)
    if any(a > c for k, (a, c) in enumerate(zip(i.shape, x.shape)) if k != axis):
        fail(node, f"its indices {i} do not fit {x}")
    xv, iv, y = builder.view(x), builder.view(i), builder.out(node.outputs[0])
    builder.flat(y)
    if x.rank > 6:  # the dimensions before and after the axis become one each
        if any(a != c for k, (a, c) in enumerate(zip(i.shape, x.shape)) if k != axis):
            unsupported(
                node, "GatherElements of more than 6 dimensions with indices of another shape"
            )
        xv, iv = (
            builder.reshaped(
                v, [product(v.shape[:axis]), v.shape[axis], product(v.shape[axis + 1 :])]
            )
            for v in (xv, iv)
        )
        axis = 1
    if min(xv.strides) < 0 or min(iv.strides) < 0:
        xv, iv = builder.contiguous(xv), builder.contiguous(iv)
    pad = 6 - len(xv.shape)
    xs = list(xv.strides)
    xs[axis] = 0
    builder.emit(
        "gather_elements",
        {"x": xv, "index": iv, "y": y},
        size=size_of(x.dtype),
        index_type=i.dtype,
        dims=[1] * pad + list(iv.shape),
        rows=xv.shape[axis],
        x_axis=xv.strides[axis],
        xs=[0] * pad + xs,
        **{"is": [0] * pad + iv.strides},
    )


@gather_elements.grad
def gather_elements_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return [
        gradients.op(
            "ScatterElements",
            gradients.zeros(node.inputs[0].shape),
            node.inputs[1],
            dy,
            axis=node.attr("axis", 0),
            reduction="add",
        )
    ]


gather_nd = Op("GatherND", half=[0], moves=True)


@gather_nd.infer
def gather_nd_infer(node: BoundNode) -> Inferred:
    x, i = node.inputs
    batch = node.attr("batch_dims", 0)
    depth = i.shape[-1] if i.rank else 0
    if (
        not i.rank
        or batch < 0
        or isinstance(depth, Sym)
        or batch + depth > x.rank
        or batch >= i.rank
        or i.dtype != INT64
        or list(i.shape[:batch]) != list(x.shape[:batch])
    ):
        fail(node, f"its indices {i} do not fit {x}")
    if any(not isinstance(d, Sym) and d == 0 for d in x.shape[batch : batch + depth]) and product(
        [most(d) for d in i.shape[:-1]]
    ):
        fail(node, "it gathers from an empty dimension")
    return [(x.dtype, i.shape[:-1] + x.shape[batch + depth :])]


@gather_nd.fold
def gather_nd_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    x, i = node.inputs
    if node.attr("batch_dims", 0):
        raise NotStatic("batched")
    depth, s, out = i.shape[-1], strides_of(x.shape), []
    inner = product(x.shape[depth:])
    for k in range(0, len(i.numbers), depth):
        at = 0
        for d, j in enumerate(i.numbers[k : k + depth]):
            if isinstance(j, Sym) or not -x.shape[d] <= j < x.shape[d]:
                raise NotStatic("index")
            at += (j % x.shape[d]) * s[d]
        out += x.numbers[at : at + inner]
    return [out]


@gather_nd.lower
def gather_nd_lower(node: BoundNode, builder: Builder) -> None:
    x, i = node.inputs
    batch, depth = node.attr("batch_dims", 0), i.shape[-1]
    iv, y = builder.flat(builder.view(i)), builder.out(node.outputs[0])
    builder.flat(y)
    if depth > 6:
        unsupported(node, "GatherND with more than 6 index components")
    tail = x.shape[batch + depth :]
    xv = builder.view(x)
    if (
        not xv.plain_from(batch + depth)
        or min(xv.strides, default=0) < 0
        or (batch and not xv.plain_from(0))
    ):
        xv = builder.contiguous(xv)
    sizes, strides = list(x.shape[batch : batch + depth]), list(xv.strides[batch : batch + depth])
    batches = product(x.shape[:batch])
    builder.emit(
        "gather_nd",
        {"x": xv, "index": iv, "y": y},
        size=size_of(x.dtype),
        index_type=i.dtype,
        batch=batches,
        count=product(i.shape[batch:-1]),
        depth=depth,
        inner=product(tail),
        x_batch=product(x.shape[batch:]) if batch else 0,
        sizes=sizes + [1] * (6 - depth),
        strides=strides + [0] * (6 - depth),
    )


@gather_nd.grad
def gather_nd_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    x, i = node.inputs
    batch = node.attr("batch_dims", 0)
    if batch:  # an index begins with that of its batch
        count, shape = product(x.shape[:batch]), i.shape[batch:]
        row = gradients.reshape(
            gradients.op(
                "Range",
                gradients.constant(INT64, [], [0]),
                gradients.constant(INT64, [], [count]),
                gradients.constant(INT64, [], [1]),
            ),
            [count] + [1] * len(shape),
        )
        i = gradients.op(
            "Concat",
            gradients.op("Expand", row, gradients.ints([count, *shape[:-1], 1])),
            gradients.reshape(i, [count, *shape]),
            axis=-1,
        )
        dx = gradients.op(
            "ScatterND",
            gradients.zeros([count, *x.shape[batch:]]),
            i,
            gradients.reshape(dy, [count, *dy.shape[batch:]]),
            reduction="add",
        )
        return [gradients.reshape(dx, x.shape)]
    return [gradients.op("ScatterND", gradients.zeros(x.shape), i, dy, reduction="add")]

"""Gather and scatter: ops whose places come from data, and the kernels under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, INT8, INT32, INT64, UINT8, UINT64, size_of
from ...declare.op import (
    Op,
    Weight,
    axis_of,
    check_reach,
    fail,
    like,
    most,
    product,
    strides_of,
    takes,
    unsupported,
)
from ...declare.symbolic import NotStatic, Sym
from .movement import slice_grad
from .shape import product_of

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Folded,
        Gradients,
        Graph,
        Inferred,
        InputGradients,
        Shape,
        Value,
    )

REDUCTION = {"none": 0, "add": 1, "mul": 2, "min": 3, "max": 4}

gather = Op("Gather", half=[0], moves=True, weight=Weight(0, "embedding"), parameters=(0,))


def gathered_shape(node: BoundNode, axis):
    x, i = node.inputs[0], node.inputs[1]
    return x.shape[:axis] + i.shape + x.shape[axis + 1 :]


@gather.infer
def gather_infer(node: BoundNode) -> Inferred:
    x, i = node.inputs[:2]
    if i.dtype not in (INT32, INT64):
        fail(node, f"its indices have the type of {i}; int32 or int64 is wanted")
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
    if k is not None and (
        isinstance(k, Sym) or -most(x.shape[axis]) <= k
    ):  # a constant index is a slice
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
    xv, iv, y = (
        builder.rows_from(builder.view(x), axis),
        builder.flat(builder.view(i)),
        builder.out(node.outputs[0]),
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
        size=size_of(x.dtype),
        index_type=i.dtype,
        outer=outer,
        count=count,
        rows=rows,
        inner=inner,
        x_outer=xv.strides[axis - 1] if axis and outer != 1 else 0,
        x_row=xv.strides[axis],
        y_outer=y.strides[axis - 1] if axis and outer != 1 else 0,
    )


@gather.grad
def gather_grad_rule(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
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
    before, behind = list(range(axis)), list(range(axis + i.rank, dy.rank))
    dy = gradients.transpose(dy, [*range(axis, axis + i.rank), *before, *behind])
    dx = gradients.op(
        "GatherGrad", dy, i, domain="edgewise", rows=x.shape[axis]
    )  # [rows, what stands before the axis, what behind it]
    return [gradients.transpose(dx, [*range(1, axis + 1), 0, *range(axis + 1, x.rank)])]


# (dy [*index.shape, ...], index): float32 [rows, ...], where dy is added up at the rows it was
# gathered from; in the index's order, so that the result is the same whatever the threads.
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
def gather_grad_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
    return [gradients.op("Gather", dy, node.inputs[1], axis=0)]


one_hot = Op("OneHot")


@one_hot.decompose
def one_hot_decompose(node: BoundNode, builder: Binder) -> list[Value] | None:
    """Where(index == class, on, off); an index outside of [-depth, depth) is off everywhere."""
    i, values = node.inputs[0], node.inputs[2]
    (depth,) = node.need(1)
    depth, axis = int(depth), axis_of(node, node.attr("axis", -1), i.rank + 1)
    if depth < 0 or list(values.shape) != [2]:
        fail(node, f"a depth of {depth}, values {values}")
    unsigned, i = i.dtype == UINT64, builder.op("Cast", i, to=INT64)
    if not unsigned:  # of those the upper half looks negative here, which no class is
        i = builder.op(
            "Where",
            builder.op("Less", i, builder.constant(INT64, [], [0])),
            builder.op("Add", i, builder.constant(INT64, [], [depth])),
            i,
        )
    i = builder.op("Unsqueeze", i, builder.constant(INT64, [1], [axis]))
    classes = builder.op(
        "Reshape",
        builder.op("Range", *(builder.constant(INT64, [], [x]) for x in (0, depth, 1))),
        builder.constant(INT64, [i.rank - axis], [depth] + [1] * (i.rank - axis - 1)),
        allowzero=1,
    )
    off, on = (builder.op("Gather", values, builder.constant(INT64, [], [k])) for k in (0, 1))
    return [builder.op("Where", builder.op("Equal", i, classes), on, off)]


hardmax = Op("Hardmax")


@hardmax.decompose
def hardmax_decompose(node: BoundNode, builder: Binder) -> list[Value] | None:
    """One where the first maximum stands; up to opset 12 of all dimensions from the axis on, taken
    as one.
    """
    x, old = node.inputs[0], node.opset < 13
    axis = axis_of(node, node.attr("axis", 1 if old else -1), x.rank)
    flat = builder.op("Flatten", x, axis=axis) if old else x
    axis = 1 if old else axis
    d = flat.shape[axis]
    classes = builder.op(
        "Reshape",
        builder.op("Range", *(builder.constant(INT64, [], [i]) for i in (0, d, 1))),
        builder.constant(INT64, [flat.rank - axis], [d] + [1] * (flat.rank - axis - 1)),
        allowzero=1,
    )
    y = builder.op(
        "Cast", builder.op("Equal", builder.op("ArgMax", flat, axis=axis), classes), to=x.dtype
    )
    return [builder.op("Reshape", y, builder.constant(INT64, [x.rank], x.shape), allowzero=1)]


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
    if x.rank > 6:  # those before and behind the axis become one each
        if any(a != c for k, (a, c) in enumerate(zip(i.shape, x.shape)) if k != axis):
            unsupported(
                node, "GatherElements of more than 6 dimensions, of which the indices name a part"
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
def gather_elements_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
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
def gather_nd_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
    x, i = node.inputs
    batch = node.attr("batch_dims", 0)
    if batch:  # the place of an element begins with that of its batch
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


scatter_nd = Op("ScatterND", moves=True)


@scatter_nd.infer
def scatter_nd_infer(node: BoundNode) -> Inferred:
    x, i, u = node.inputs
    if (
        not i.rank
        or isinstance(i.shape[-1], Sym)
        or i.shape[-1] > x.rank
        or u.dtype != x.dtype
        or i.dtype != INT64
    ):
        fail(node, f"its indices {i} and updates {u} do not fit {x}")
    if product_of(u.shape) != product_of(i.shape[:-1] + x.shape[i.shape[-1] :]):
        fail(node, f"updates {u} do not fit indices {i} into {x}")
    if node.attr("reduction", "none") != "none":
        takes(node, (FLOAT, DOUBLE, INT32, INT64, UINT8, INT8), 0)
    if (
        node.attr("reduction", "none") == "none"
        and u.shape == x.shape
        and _names_every_element(i, x.shape)
    ):
        return [u]  # how TorchScript writes mask[:, :, :, :length] = updates
    return [like(node, 0)]


def _names_every_element(index, dims):
    """Whether an index tensor [*dims, rank] surely holds each element's own place: concat of
    expanded ranges.
    """
    if (
        index.rank != len(dims) + 1
        or index.shape[:-1] != list(dims)
        or index.shape[-1] != len(dims)
    ):
        return False
    if index.numbers is not None:
        return index.numbers == [k for place in _places(dims) for k in place]
    c = index.producer
    if c is None or c.op != "Concat" or len(c.inputs) != len(dims):
        return False
    return all(_counts_along(v, axis, dims) for axis, v in enumerate(c.inputs))


def _places(dims):
    out = [[]]
    for d in dims:
        out = [p + [i] for p in out for i in range(d)]
    return out


def _counts_along(v, axis, dims):
    """Whether v [*dims, 1] is 0, 1, 2, ... along one axis and the same along the others."""
    for _ in range(4):
        if v.producer is None or v.producer.op not in ("Unsqueeze", "Expand", "Reshape"):
            break
        if (
            v.producer.op == "Expand"
            or v.producer.op == "Unsqueeze"
            and v.producer.inputs[0].shape == list(dims)
        ):
            v = v.producer.inputs[0]
            continue
        break
    # v broadcasts to dims: its axes are the last ones
    shape = [1] * (len(dims) - v.rank) + list(v.shape)
    if (
        len(shape) != len(dims)
        or any(d != 1 for i, d in enumerate(shape) if i != axis)
        or shape[axis] != dims[axis]
    ):
        return False
    while (
        v.numbers is None
        and v.producer is not None
        and v.producer.op in ("Unsqueeze", "Reshape", "Identity")
    ):
        v = v.producer.inputs[0]
    if v.numbers is not None:
        return v.numbers == list(range(len(v.numbers)))
    n = v.producer
    return (
        n is not None
        and n.op == "Range"
        and n.inputs[0].numbers == [0]
        and n.inputs[2].numbers == [1]
    )


@scatter_nd.lower
def scatter_nd_lower(node: BoundNode, builder: Builder) -> None:
    x, i, u = node.inputs
    depth = i.shape[-1]
    y = builder.out(node.outputs[0])
    builder.copy(builder.view(x), y)
    reduction = node.attr("reduction", "none")
    if reduction not in REDUCTION or depth > 6:
        unsupported(node, f"reduction '{reduction}' with {depth} index components")
    tail = x.shape[depth:]
    if any(isinstance(d, Sym) for d in tail[1:]):
        raise NotStatic("ScatterND of rows with a register-dependent length")
    sizes, strides = list(x.shape[:depth]), list(y.strides[:depth])
    builder.emit(
        "scatter_nd",
        {"index": builder.flat(builder.view(i)), "updates": builder.flat(builder.view(u)), "y": y},
        size=size_of(x.dtype),
        type=x.dtype,
        index_type=i.dtype,
        reduction=REDUCTION[reduction],
        count=product(i.shape[:-1]),
        depth=depth,
        inner=product(tail),
        sizes=sizes + [1] * (6 - depth),
        strides=strides + [0] * (6 - depth),
    )


def _scatter_gradients(node: BoundNode, graph: Graph, dy, scatter, gather):
    """Gradients of data and updates. scatter(data, updates, reduction), gather(from): the op itself
    and its counterpart with the node's indices.

    Where a place is named twice without a reduction, ONNX leaves open which update stays; all of
    them get its gradient.
    """
    x, u, how = node.inputs[0], node.inputs[2], node.attr("reduction", "none")
    zero, one = graph.number(0.0), graph.number(1.0)
    if how == "none":
        return scatter(dy, graph.zeros(u.shape), "none") if graph.wants(0) else None, (
            gather(dy) if graph.wants(2) else None
        )
    if how == "add":
        return dy, gather(dy) if graph.wants(2) else None
    y = node.outputs[0]
    if how == "mul":
        dx = (
            graph.mul(dy, scatter(graph.op("Expand", one, graph.ints(x.shape)), u, "mul"))
            if graph.wants(0)
            else None
        )
        if not graph.wants(2):
            return dx, None
        # the product of all others: of those that are not zero, unless another one is
        is_zero = graph.op("Equal", u, zero)
        others, zeros = graph.op("Where", is_zero, one, u), graph.op("Cast", is_zero, to=FLOAT)
        count = graph.sub(gather(scatter(graph.zeros(x.shape), zeros, "add")), zeros)
        du = graph.div(gather(graph.mul(dy, scatter(x, others, "mul"))), others)
        return dx, graph.op("Where", graph.op("Equal", count, zero), du, zero)
    # min, max: all that hold the result share its gradient, as in torch.scatter_reduce
    mine = graph.op("Cast", graph.op("Equal", x, y), to=FLOAT)
    theirs = graph.op("Cast", graph.op("Equal", u, gather(y)), to=FLOAT)
    share = graph.div(dy, scatter(mine, theirs, "add"))
    return graph.mul(share, mine) if graph.wants(0) else None, (
        graph.mul(gather(share), theirs) if graph.wants(2) else None
    )


@scatter_nd.grad
def scatter_nd_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
    x, i, u = node.inputs
    dx, du = _scatter_gradients(
        node,
        gradients,
        dy,
        lambda data, updates, how: gradients.op("ScatterND", data, i, updates, reduction=how),
        lambda v: gradients.reshape(gradients.op("GatherND", v, i), u.shape),
    )
    return [dx, None, du]


scatter_elements = Op("ScatterElements", moves=True)


@scatter_elements.infer
def scatter_elements_infer(node: BoundNode) -> Inferred:
    x, i, u = node.inputs
    axis = axis_of(node, node.attr("axis", 0), x.rank)
    if (
        x.rank != i.rank
        or list(u.shape) != list(i.shape)
        or u.dtype != x.dtype
        or i.dtype not in (INT32, INT64)
        or any(a > c for k, (a, c) in enumerate(zip(i.shape, x.shape)) if k != axis)
    ):
        fail(node, f"its indices {i} and updates {u} do not fit {x}")
    if node.attr("reduction", "none") != "none":
        takes(node, (FLOAT, DOUBLE, INT32, INT64, UINT8, INT8), 0)
    if node.attr("reduction", "none") not in REDUCTION or x.rank > 6:
        unsupported(node, f"reduction '{node.attr('reduction', 'none')}' into {x}")
    return [like(node, 0)]


@scatter_elements.lower
def scatter_elements_lower(node: BoundNode, builder: Builder) -> None:
    x, i, u = node.inputs
    axis = axis_of(node, node.attr("axis", 0), x.rank)
    y, iv = builder.out(node.outputs[0]), builder.view(i)
    builder.copy(builder.view(x), y)
    if product(i.shape) and x.shape[axis] == 0:
        fail(node, "it scatters into an empty dimension")
    if min(iv.strides) < 0:
        iv = builder.contiguous(iv)
    pad, ys = 6 - x.rank, list(y.strides)
    ys[axis] = 0
    builder.emit(
        "scatter_elements",
        {"index": iv, "updates": builder.contiguous(builder.view(u)), "y": y},
        size=size_of(x.dtype),
        type=x.dtype,
        index_type=i.dtype,
        reduction=REDUCTION[node.attr("reduction", "none")],
        dims=[1] * pad + list(i.shape),
        rows=x.shape[axis],
        y_axis=y.strides[axis],
        ys=[0] * pad + ys,
        **{"is": [0] * pad + iv.strides},
    )


@scatter_elements.grad
def scatter_elements_grad(
    node: BoundNode, gradients: Gradients, dy: Value | None
) -> InputGradients:
    i, axis = node.inputs[1], node.attr("axis", 0)
    dx, du = _scatter_gradients(
        node,
        gradients,
        dy,
        lambda data, updates, how: gradients.op(
            "ScatterElements", data, i, updates, axis=axis, reduction=how
        ),
        lambda v: gradients.op("GatherElements", v, i, axis=axis),
    )
    return [dx, None, du]


scatter = Op("Scatter")  # its name up to opset 10


@scatter.decompose
def scatter_decompose(node: BoundNode, b: Binder) -> list[Value] | None:
    return [b.op("ScatterElements", *node.inputs, axis=node.attr("axis", 0))]

"""ScatterND and ScatterElements, with the gradients that both share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...declare.dtypes import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    size_of,
)
from ...declare.op import Op, axis_of, fail, like, product, takes, unsupported
from ...declare.symbolic import NotStatic, Sym

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Gradients,
        Inferred,
        InputGradients,
        Shape,
        Value,
    )


REDUCTION = {"none": 0, "add": 1, "mul": 2, "min": 3, "max": 4}


# Element types without a kernel that reduces, and those that reduce in their place.
_REDUCED_AS = {BOOL: INT32, INT16: INT32, UINT16: INT32, UINT32: INT64, UINT64: INT64}


def _reduced(node: BoundNode, graph: Binder) -> Decomposed:
    """The node in another element type, where its own has no kernel that reduces.

    The low bits of sums and products are the same in each type. 64 unsigned bits have no wider
    type: for min and max their highest bit is inverted, which is the order of signed numbers.
    """
    dtype, how = node.inputs[0].dtype, node.attr("reduction", "none")
    if how == "none" or dtype not in _REDUCED_AS or node.inputs[2].dtype != dtype:
        return None
    turned = dtype == UINT64 and how in ("min", "max")
    high = graph.constant(UINT64, [], [1 << 63])

    def turn(v: Value) -> Value:
        return graph.op("BitwiseXor", v, high) if turned else v

    x, updates = (graph.op("Cast", turn(node.inputs[i]), to=_REDUCED_AS[dtype]) for i in (0, 2))
    y = graph.op(node.op, x, node.inputs[1], updates, **node.attrs)
    return [turn(graph.op("Cast", y, to=dtype))]


scatter_nd = Op("ScatterND", moves=True)


@scatter_nd.decompose
def scatter_nd_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    return _of_rows(node, graph) or _reduced(node, graph)


def _of_rows(node: BoundNode, graph: Binder) -> Decomposed:
    """Rows that follow each other are put between those before and after, where the size of a row
    is known only in a run: `slice_scatter` of PyTorch, as torch.onnx.export writes it.
    """
    x, i, u = node.inputs
    rows = i.numbers
    if node.attr("reduction", "none") != "none" or rows is None or list(i.shape) != [len(rows), 1]:
        return None
    if not any(isinstance(d, Sym) for d in x.shape[2:]) or not rows:
        return None
    ends, least = x.shape[0], rows[0]
    if rows != list(range(least, least + len(rows))) or isinstance(ends, Sym):
        return None
    if least < 0 or rows[-1] >= ends or list(u.shape) != [len(rows), *x.shape[1:]]:
        return None

    def part(start: int, end: int) -> list[Value]:
        bounds = (graph.ints([n]) for n in (start, end, 0))
        return [graph.op("Slice", x, *bounds)] if start < end else []

    return [graph.op("Concat", *part(0, least), u, *part(rows[-1] + 1, ends), axis=0)]


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
    if list(u.shape) != list(i.shape[:-1]) + list(x.shape[i.shape[-1] :]):
        fail(node, f"updates {u} do not fit indices {i} into {x}")
    if node.attr("reduction", "none") != "none":
        takes(node, (FLOAT, DOUBLE, INT32, INT64, UINT8, INT8), 0)
    if (
        node.attr("reduction", "none") == "none"
        and u.shape == x.shape
        and _names_every_element(i, x.shape)
    ):
        return [u]  # as TorchScript exports mask[:, :, :, :length] = updates
    return [like(node, 0)]


def _names_every_element(index: Value, dims: Shape) -> bool:
    """Whether an index tensor [*dims, rank] is known to hold each element's own index: a Concat of
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


def _places(dims: Shape) -> list[list[int]]:
    """The index of each element, in row-major order."""
    out: list[list[int]] = [[]]
    for d in dims:
        out = [p + [i] for p in out for i in range(d)]
    return out


def _counts_along(v: Value, axis: int, dims: Shape) -> bool:
    """Whether v [*dims, 1] is 0, 1, 2, ... along one axis and constant along the others."""
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


def _scatter_gradients(
    node: BoundNode,
    graph: Gradients,
    dy: Value,
    scatter: Callable[[Value, Value, str], Value],
    gather: Callable[[Value], Value],
) -> tuple[Value | None, Value | None]:
    """Gradients of data and updates.

    If an element is updated twice without a reduction, ONNX does not define which update remains;
    all of them get its gradient.

    Args:
        scatter: (data, updates, reduction) -> the operator itself, with the node's indices.
        gather: the counterpart of scatter.
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
        # The product of all other factors: of those that are not zero, unless another one is zero.
        is_zero = graph.op("Equal", u, zero)
        others, zeros = graph.op("Where", is_zero, one, u), graph.op("Cast", is_zero, to=FLOAT)
        count = graph.sub(gather(scatter(graph.zeros(x.shape), zeros, "add")), zeros)
        du = graph.div(gather(graph.mul(dy, scatter(x, others, "mul"))), others)
        return dx, graph.op("Where", graph.op("Equal", count, zero), du, zero)
    # min, max: all elements equal to the result share its gradient, as in torch.scatter_reduce.
    mine = graph.op("Cast", graph.op("Equal", x, y), to=FLOAT)
    theirs = graph.op("Cast", graph.op("Equal", u, gather(y)), to=FLOAT)
    share = graph.div(dy, scatter(mine, theirs, "add"))
    return graph.mul(share, mine) if graph.wants(0) else None, (
        graph.mul(gather(share), theirs) if graph.wants(2) else None
    )


@scatter_nd.grad
def scatter_nd_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
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


@scatter_elements.decompose
def scatter_elements_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    return _reduced(node, graph)


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
def scatter_elements_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
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
def scatter_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    return [graph.op("ScatterElements", *node.inputs, axis=node.attr("axis", 0))]

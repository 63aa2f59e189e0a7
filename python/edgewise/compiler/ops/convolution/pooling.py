"""MaxPool, AveragePool and LpPool, their global forms and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT8, INT64, UINT8
from ...declare.op import Op, fail, product, takes
from ..quantized.integer_kernel import channels_last, out_channels_last
from .contracts import POOL
from .window import Window, window

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
        Operands,
        Value,
        View,
    )


def _window_of(node: BoundNode) -> Window:
    x = node.inputs[0]
    kernel = node.attr("kernel_shape", [])
    if x.rank < 3 or len(kernel) != x.rank - 2:
        fail(
            node,
            f"its input is {x} and its kernel_shape {kernel}; [batch, channels, ...] and a kernel"
            " size for each further dimension are expected",
        )
    return window(node, x.shape[2:], kernel, bool(node.attr("ceil_mode", 0)))


def _emit(
    builder: Builder,
    kernel: str,
    op: str,
    operands: Operands,
    win: Window,
    planes: int,
    include_pad: int = 0,
) -> None:
    builder.emit(
        kernel,
        operands,
        op=POOL[op],
        planes=planes,
        include_pad=include_pad,
        tail=[0] * (3 - len(win.tail)) + win.tail,
        **win.params(),
    )


max_pool = Op("MaxPool")


@max_pool.infer
def max_pool_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT, UINT8, INT8), 0)
    x = node.inputs[0]
    shape = list(x.shape[:2]) + _window_of(node).y
    return [(x.dtype, shape), (INT64, shape)][: len(node.outputs)]


@max_pool.lower
def max_pool_lower(node: BoundNode, builder: Builder) -> None:
    win = _window_of(node)
    if node.inputs[0].dtype != FLOAT and not node.wants(1) and product(node.outputs[0].shape):
        x, y = (
            channels_last(builder, builder.view(node.inputs[0])),
            out_channels_last(builder, node.outputs[0]),
        )
        builder.emit(
            "integer_max_pool",
            {"x": x, "y": y},
            batch=x.shape[0],
            channels=x.shape[-1],
            type=x.dtype,
            **win.params(),
        )
        return
    x, y = builder.contiguous(builder.view(node.inputs[0])), builder.out(node.outputs[0])
    index = builder.out(node.outputs[1]) if node.wants(1) else None
    if product(y.shape):
        found = y if y.dtype == FLOAT else builder.temp(FLOAT, y.shape)
        _emit(
            builder,
            "pool",
            "max",
            {"x": builder.cast(x, FLOAT), "y": found, "index": index},
            win,
            product(x.shape[:2]),
        )
        if found is not y:
            builder.cast_into(found, y)
        if index is not None and node.attr("storage_order", 0):
            _columns_first(builder, index, x.shape[2:])


def _columns_first(builder: Builder, index: View, dims: Sequence[int]) -> None:
    """Converts indices into planes of `dims`, in place, from row-major to column-major order
    (storage_order = 1).
    """

    def compute(op: str, v: View, number: View | int, into: View | None = None) -> View:
        into = builder.temp(INT64, v.shape) if into is None else into
        builder.emit_binary(
            op, v, builder.scalar(INT64, number) if isinstance(number, int) else number, into, INT64
        )
        return into

    rest = compute("mod", index, product(dims))
    compute("sub", index, rest, index)
    for i in range(len(dims) - 1, -1, -1):
        compute(
            "add", index, compute("mul", compute("mod", rest, dims[i]), product(dims[:i])), index
        )
        rest = compute("div", rest, dims[i])


@max_pool.grad
def max_pool_grad_rule(
    node: BoundNode, gradients: Gradients, dy: Value | None, *_: Value | None
) -> InputGradients:
    return [
        (
            gradients.op(
                "MaxPoolGrad", node.inputs[0], dy, domain="edgewise", **_window_of(node).attrs()
            )
            if dy is not None
            else None
        )
    ]


def _grad_window(node: BoundNode, x_size: list[int], dy: View) -> Window:
    pads, rank = node.attr("pads"), len(x_size)
    return Window(
        x_size,
        list(dy.shape[2:]),
        node.attr("kernel_shape", []),
        node.attr("strides", []),
        node.attr("dilations", []),
        pads[:rank],
        pads[rank:],
    )


# Inputs: x, dy. Output: dx.
max_pool_grad = Op("MaxPoolGrad", "edgewise")


@max_pool_grad.infer
def max_pool_grad_infer(node: BoundNode) -> Inferred:
    return [(FLOAT, list(node.inputs[0].shape))]


@max_pool_grad.lower
def max_pool_grad_lower(node: BoundNode, builder: Builder) -> None:
    x, dy, dx = (
        builder.contiguous(builder.view(node.inputs[0])),
        builder.contiguous(builder.view(node.inputs[1])),
        builder.out(node.outputs[0]),
    )
    if product(dx.shape):
        _emit(
            builder,
            "pool_grad",
            "max",
            {"x": x, "dy": dy, "dx": dx},
            _grad_window(node, list(x.shape[2:]), dy),
            product(x.shape[:2]),
        )


def _declare_average(name: str, op: str, domain: str = "") -> Op:
    """Declares a pool; op: "average" or "sum"."""
    o = Op(name, domain)

    @o.infer
    def op_infer(node: BoundNode) -> Inferred:
        takes(node, (FLOAT,), 0)
        return [(FLOAT, list(node.inputs[0].shape[:2]) + _window_of(node).y)]

    @o.lower
    def op_lower(node: BoundNode, builder: Builder) -> None:
        win, x, y = (
            _window_of(node),
            builder.contiguous(builder.view(node.inputs[0])),
            builder.out(node.outputs[0]),
        )
        if product(y.shape):
            _emit(
                builder,
                "pool",
                op,
                {"x": x, "y": y},
                win,
                product(x.shape[:2]),
                node.attr("count_include_pad", 0),
            )

    @o.grad
    def op_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
        return [
            gradients.op(
                "AveragePoolGrad",
                dy,
                domain="edgewise",
                average=int(op == "average"),
                count_include_pad=node.attr("count_include_pad", 0),
                ceil_mode=node.attr("ceil_mode", 0),
                shape=list(node.inputs[0].shape),
                **_window_of(node).attrs(),
            )
        ]

    return o


average_pool = _declare_average("AveragePool", "average")
sum_pool = _declare_average("SumPool", "sum", "edgewise")


# Input: dy. Output: dx of the attribute `shape`.
average_pool_grad = Op("AveragePoolGrad", "edgewise")


@average_pool_grad.infer
def average_pool_grad_infer(node: BoundNode) -> Inferred:
    return [(FLOAT, list(node.attr("shape")))]


@average_pool_grad.lower
def average_pool_grad_lower(node: BoundNode, builder: Builder) -> None:
    dy, dx = builder.contiguous(builder.view(node.inputs[0])), builder.out(node.outputs[0])
    if product(dx.shape):
        _emit(
            builder,
            "pool_grad",
            "average" if node.attr("average", 1) else "sum",
            {"dy": dy, "dx": dx},
            _grad_window(node, dx.shape[2:], dy),
            product(dx.shape[:2]),
            node.attr("count_include_pad", 0),
        )


@average_pool_grad.grad
def average_pool_grad_grad(node: BoundNode, gradients: Gradients, dx: Value) -> InputGradients:
    average = node.attr("average", 1)
    keep = ("kernel_shape", "strides", "dilations", "pads", "count_include_pad", "ceil_mode")
    return [
        gradients.op(
            "AveragePool" if average else "SumPool",
            dx,
            domain="" if average else "edgewise",
            **{k: node.attrs[k] for k in keep},
        )
    ]


def _norm(graph: Binder, x: Value, p: float, total: Callable[[Value], Value]) -> Value:
    """total(|x|^p)^(1/p); total: the sum over a window or over all elements."""
    if p == 1:
        return total(graph.op("Abs", x))
    if p == 2:
        return graph.op("Sqrt", total(graph.op("Mul", x, x)))
    return graph.op(
        "Pow",
        total(graph.op("Pow", graph.op("Abs", x), graph.constant(FLOAT, [], [float(p)]))),
        graph.constant(FLOAT, [], [1.0 / p]),
    )


def _p(node: BoundNode) -> float:
    p = node.attrs.get("p", 2)
    if type(p) not in (int, float) or p <= 0:
        fail(node, f"its p is {p}; a positive number is expected")
    return p


lp_pool = Op("LpPool")


@lp_pool.decompose
def lp_pool_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    takes(node, (FLOAT,), 0)
    attrs = {k: v for k, v in node.attrs.items() if k != "p"}
    return [
        _norm(
            graph,
            node.inputs[0],
            _p(node),
            lambda v: graph.op("SumPool", v, domain="edgewise", **attrs),
        )
    ]


def _declare_global(name: str, reduce: str | None) -> Op:
    """Declares a pool over all positions; reduce: the reduction that it is, or None for LpPool."""
    o = Op(name)

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> Decomposed:
        takes(node, (FLOAT,), 0)
        x = node.inputs[0]
        if x.rank < 3:
            fail(node, f"its input is {x}; [batch, channels, ...] is expected")
        axes = graph.constant(INT64, [x.rank - 2], list(range(2, x.rank)))
        if reduce is not None:
            return [graph.op(reduce, x, axes, keepdims=1)]
        return [_norm(graph, x, _p(node), lambda v: graph.op("ReduceSum", v, axes, keepdims=1))]

    return o


_declare_global("GlobalAveragePool", "ReduceMean")
_declare_global("GlobalMaxPool", "ReduceMax")
_declare_global("GlobalLpPool", None)

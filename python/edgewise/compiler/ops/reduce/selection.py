"""ArgMax, ArgMin and TopK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, INT8, INT32, INT64, UINT8, UINT64
from ...declare.op import Op, axis_of, fail, ints, product, takes

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

from .reduction import signed, unsigned


def _declare_arg(name: str, largest: int) -> None:
    """Declares ArgMax (largest 1) or ArgMin (0)."""
    o = Op(name)

    @o.infer
    def op_infer(node: BoundNode) -> Inferred:
        x = node.inputs[0]
        axis = axis_of(node, node.attr("axis", 0), x.rank)
        return [
            (
                INT64,
                [
                    1 if i == axis else d
                    for i, d in enumerate(x.shape)
                    if i != axis or node.attr("keepdims", 1)
                ],
            )
        ]

    @o.lower
    def op_lower(node: BoundNode, builder: Builder) -> None:
        x = node.inputs[0]
        axis = axis_of(node, node.attr("axis", 0), x.rank)
        builder.emit(
            "arg_reduce",
            {"x": builder.flat(builder.view(x)), "y": builder.out(node.outputs[0])},
            type=x.dtype,
            largest=largest,
            last=node.attr("select_last_index", 0),
            outer=product(x.shape[:axis]),
            n=x.shape[axis],
            inner=product(x.shape[axis + 1 :]),
        )


_declare_arg("ArgMax", 1)
_declare_arg("ArgMin", 0)

top_k = Op("TopK")


@top_k.decompose
def top_k_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """uint64 is computed as int64 in the same order."""
    if node.inputs[0].dtype != UINT64:
        return None
    values, *indices = graph.node(
        "TopK",
        "",
        node.name,
        [signed(graph, node.inputs[0]), *node.inputs[1:]],
        [o and graph.fresh(o.name) for o in node.outputs],
        node.attrs,
        node.opset,
    )
    return [values and unsigned(graph, values), *indices]


@top_k.infer
def top_k_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    axis = axis_of(node, node.attr("axis", -1), x.rank)
    takes(node, (FLOAT, DOUBLE, INT32, INT64, UINT8, INT8), 0)
    k = node.attr("k") if node.opset < 10 else ints(node, 1)[0]
    if not 0 <= k <= x.shape[axis]:
        fail(node, f"k = {k} does not fit a dimension of {x.shape[axis]} elements")
    dims = x.shape[:axis] + [k] + x.shape[axis + 1 :]
    return [(x.dtype, dims), (INT64, dims)]


@top_k.lower
def top_k_lower(node: BoundNode, builder: Builder) -> None:
    x = node.inputs[0]
    axis = axis_of(node, node.attr("axis", -1), x.rank)
    v = (
        builder.out(node.outputs[0])
        if node.wants(0)
        else builder.temp(x.dtype, node.outputs[1].shape)
    )
    i = builder.out(node.outputs[1]) if node.wants(1) else builder.temp(INT64, v.shape)
    builder.emit(
        "top_k",
        {"x": builder.flat(builder.view(x)), "values": v, "indices": i},
        type=x.dtype,
        outer=product(x.shape[:axis]),
        n=x.shape[axis],
        inner=product(x.shape[axis + 1 :]),
        k=v.shape[axis],
        largest=node.attr("largest", 1),
        sorted=node.attr("sorted", 1),
    )


@top_k.grad
def top_k_grad(
    node: BoundNode, gradients: Gradients, dy: Value | None, *_: Value | None
) -> InputGradients:
    x = node.inputs[0]
    return (
        [
            gradients.op(
                "ScatterElements",
                gradients.zeros(x.shape),
                gradients.output(1, INT64, node.outputs[0].shape),
                dy,
                axis=node.attr("axis", -1),
            )
        ]
        if dy is not None
        else []
    )

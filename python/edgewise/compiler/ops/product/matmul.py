"""MatMul, Gemm and their fused forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16, INT32, INT64
from ...declare.op import MS, Dim, Epilogue, Op, Weight, broadcast, fail, takes, unsupported
from .gemm_kernel import emit_gemm, matmul_shape
from .product_gradients import product_gradients

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
        View,
    )


def _lower_matmul(node: BoundNode, builder: Builder, a: View, w: View, alpha: float = 1.0) -> None:
    """The product of two views, vectors as in MatMul, with the node's epilogue."""
    y = builder.out(node.outputs[0])
    if len(a.shape) == 1:
        a, y = a.unsqueeze(0), y.unsqueeze(len(y.shape) - (1 if len(w.shape) > 1 else 0))
    if len(w.shape) == 1:
        w, y = w.unsqueeze(1), y.unsqueeze(len(y.shape))
    emit_gemm(
        builder,
        a,
        w,
        y,
        bias=builder.view(node.inputs[2]) if node.has(2) else None,
        residual=builder.view_like(node.inputs[3], y) if node.has(3) else None,
        alpha=alpha,
        activation=node.attr("activation", "none"),
    )


# Inputs 2 and 3, bias and residual, and the attribute `activation` come from passes/epilogue.py.
matmul = Op(
    "MatMul",
    half=[1],
    file_inputs=2,
    epilogue=Epilogue(bias=2, residual=3),
    weight=Weight(1, "linear", by_rows=True),
    parameters=(0, 1),
)


@matmul.decompose
def matmul_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Products of other types than float32 have a kernel of their own (product.py)."""
    return (
        [graph.op("Product", *node.inputs[:2], domain="edgewise")]
        if node.inputs[0].dtype in (DOUBLE, INT32, INT64)
        else None
    )


@matmul.infer
def matmul_infer(node: BoundNode) -> Inferred:
    a, w = node.inputs[:2]
    if a.dtype != w.dtype and w.dtype not in (FLOAT16, BFLOAT16):
        fail(node, f"{a} and {w} have different element types")
    if a.dtype != FLOAT:
        unsupported(node, f"a product of {a}")
    return [(a.dtype, matmul_shape(node, a.shape, w.shape))]


@matmul.lower
def matmul_lower(node: BoundNode, builder: Builder) -> None:
    _lower_matmul(node, builder, builder.view(node.inputs[0]), builder.narrow(node.inputs[1]))


@matmul.grad
def matmul_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return product_gradients(node, gradients, dy)


fused_matmul = Op(
    "FusedMatMul",
    MS,
    half=[1],
    file_inputs=2,
    epilogue=Epilogue(bias=2, residual=3),
    weight=Weight(1, "linear"),
    parameters=(0, 1),
)


def _transposed(v: View, node: BoundNode, name: str) -> View:
    """A matrix, transposed if the attribute `name` is set."""
    return (
        v.transpose(list(range(len(v.shape) - 2)) + [len(v.shape) - 1, len(v.shape) - 2])
        if node.attr(name, 0)
        else v
    )


def _transposed_shape(v: Value, node: BoundNode, name: str) -> list[Dim]:
    """The shape of a matrix, transposed if the attribute `name` is set."""
    return v.shape[:-2] + [v.shape[-1], v.shape[-2]] if node.attr(name, 0) else v.shape


@fused_matmul.decompose
def fused_matmul_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Transposes for transBatchA and transBatchB: the first dimension becomes the second last."""
    flags = [node.attr(name, 0) for name in ("transBatchA", "transBatchB")]
    if not any(flags):
        return None
    inputs = [
        (
            graph.op("Transpose", v, perm=[*range(1, v.rank - 1), 0, v.rank - 1])
            if flag and v.rank > 2
            else v
        )
        for v, flag in zip(node.inputs, flags)
    ]
    return [
        graph.op(
            "FusedMatMul",
            *inputs,
            domain=MS,
            **{k: v for k, v in node.attrs.items() if not k.startswith("transBatch")},
        )
    ]


@fused_matmul.infer
def fused_matmul_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0)
    takes(node, (FLOAT, FLOAT16, BFLOAT16), 1)
    a, w = node.inputs[:2]
    if a.dtype != FLOAT or w.dtype not in (FLOAT, FLOAT16, BFLOAT16):
        fail(node, f"it takes float tensors, not {a} and {w}")
    return [
        (
            a.dtype,
            matmul_shape(
                node, _transposed_shape(a, node, "transA"), _transposed_shape(w, node, "transB")
            ),
        )
    ]


@fused_matmul.lower
def fused_matmul_lower(node: BoundNode, builder: Builder) -> None:
    _lower_matmul(
        node,
        builder,
        _transposed(builder.view(node.inputs[0]), node, "transA"),
        _transposed(builder.narrow(node.inputs[1]), node, "transB"),
        node.attr("alpha", 1.0),
    )


@fused_matmul.grad
def fused_matmul_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return product_gradients(
        node,
        gradients,
        dy,
        bool(node.attr("transA", 0)) and node.inputs[0].rank > 1,
        bool(node.attr("transB", 0)) and node.inputs[1].rank > 1,
        node.attr("alpha", 1.0),
    )


transpose_matmul = Op("TransposeMatMul", MS, half=[1])  # an older name of FusedMatMul


@transpose_matmul.decompose
def transpose_matmul_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    return [graph.op("FusedMatMul", *node.inputs, domain=MS, **node.attrs)]


gemm = Op(
    "Gemm",
    half=[1],
    file_inputs=3,
    epilogue=Epilogue(bias=2, residual=3),
    weight=Weight(1, "linear"),
    parameters=(0, 1, 2),
)


@gemm.decompose
def gemm_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """The formula in other operators, for other types than float32."""
    a, w, c = node.inputs[0], node.inputs[1], node.input(2)
    if a.dtype not in (DOUBLE, INT32, INT64):
        return None
    if a.rank != 2 or w.rank != 2 or any(v is not None and v.dtype != a.dtype for v in (w, c)):
        fail(node, f"it takes matrices of one type, not {a}, {w} and {c}")

    def times(v: Value, factor: float) -> Value:
        if factor == 1:
            return v
        if a.dtype != DOUBLE and factor != int(factor):
            unsupported(node, f"integers times {factor}")
        return graph.op(
            "Mul", v, graph.constant(a.dtype, [], [factor if a.dtype == DOUBLE else int(factor)])
        )

    a, w = (
        graph.op("Transpose", v, perm=[1, 0]) if node.attr(name, 0) else v
        for v, name in ((a, "transA"), (w, "transB"))
    )
    y = times(graph.op("MatMul", a, w), node.attr("alpha", 1.0))
    if c is not None and broadcast(node, c.shape, y.shape) != y.shape:
        fail(node, f"C {c} does not broadcast to {y.shape}")
    return [y if c is None else graph.op("Add", y, times(c, node.attr("beta", 1.0)))]


@gemm.infer
def gemm_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 2)
    takes(node, (FLOAT, FLOAT16, BFLOAT16), 1)
    a, w = node.inputs[:2]
    if a.rank != 2 or w.rank != 2 or a.dtype != FLOAT:
        fail(node, f"it takes two float matrices, not {a} and {w}")
    shape = matmul_shape(
        node, _transposed_shape(a, node, "transA"), _transposed_shape(w, node, "transB")
    )
    if node.has(2) and broadcast(node, node.inputs[2].shape, shape) != shape:
        fail(node, f"C {node.inputs[2]} does not broadcast to {shape}")
    if node.has(2) and node.inputs[2].dtype != a.dtype or w.dtype not in (FLOAT, FLOAT16, BFLOAT16):
        fail(node, f"{a}, {w} and {node.input(2)} have different element types")
    return [(a.dtype, shape)]


@gemm.lower
def gemm_lower(node: BoundNode, builder: Builder) -> None:
    emit_gemm(
        builder,
        _transposed(builder.view(node.inputs[0]), node, "transA"),
        _transposed(builder.narrow(node.inputs[1]), node, "transB"),
        builder.out(node.outputs[0]),
        bias=builder.view(node.inputs[2]) if node.has(2) else None,
        residual=builder.view_like(node.inputs[3], node.outputs[0]) if node.has(3) else None,
        alpha=node.attr("alpha", 1.0),
        beta=node.attr("beta", 1.0),
        activation=node.attr("activation", "none"),
    )


@gemm.grad
def gemm_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    dc = (
        gradients.scale(gradients.sum_to(dy, node.inputs[2].shape), node.attr("beta", 1.0))
        if gradients.wants(2)
        else None
    )
    return [
        *product_gradients(
            node,
            gradients,
            dy,
            bool(node.attr("transA", 0)),
            bool(node.attr("transB", 0)),
            node.attr("alpha", 1.0),
        ),
        dc,
    ]

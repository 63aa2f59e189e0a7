"""Matrix products of float64 and integers, by a kernel without tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....errors import UnsupportedOp
from ...declare.dtypes import DOUBLE, INT32, INT64, NAME
from ...declare.kernel import MAX_DIMS
from ...declare.op import Op, takes
from ...declare.symbolic import Sym
from .gemm_kernel import matmul_shape
from .product_gradients import product_gradients

if TYPE_CHECKING:
    from ...declare.annotations import (
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
    )

TYPES = (DOUBLE, INT32, INT64)

multiplied = Op("Product", "edgewise")  # MatMul of these types


@multiplied.infer
def multiplied_infer(node: BoundNode) -> Inferred:
    takes(node, TYPES, 0)
    takes(node, (node.inputs[0].dtype,), 1)
    return [(node.inputs[0].dtype, matmul_shape(node, node.inputs[0].shape, node.inputs[1].shape))]


@multiplied.lower
def multiplied_lower(node: BoundNode, builder: Builder) -> None:
    a, w, y = (
        builder.view(node.inputs[0]),
        builder.view(node.inputs[1]),
        builder.out(node.outputs[0]),
    )
    a, w = (builder.contiguous(v) if min(v.strides) < 0 else v for v in (a, w))
    a = a.unsqueeze(0) if len(a.shape) == 1 else a
    w = w.unsqueeze(1) if len(w.shape) == 1 else w
    if not isinstance(a.shape[-1], Sym) and a.shape[-1] == 0:
        builder.fill(y, 0)
        return
    # The kernel's contract bounds its work by the memory of its operands.
    if a.shape[-1] != 1 and a.strides[-1] == w.strides[-2] == 0:
        a = builder.contiguous(a)
    batch = y.shape[: max(len(a.shape), len(w.shape)) - 2]
    a, w = (v.broadcast(batch + v.shape[-2:]) for v in (a, w))
    dims, (sa, sw) = builder.merge_dims(
        batch + [a.shape[-2], w.shape[-1]],
        [a.strides[:-1] + [0], w.strides[:-2] + [0, w.strides[-1]]],
    )
    if len(dims) > MAX_DIMS:
        raise UnsupportedOp(
            f"a product of {NAME[y.dtype]} over {len(dims)} dimensions that do not merge",
            node.where,
            "Report this model.",
        )
    pad = [0] * (MAX_DIMS - len(dims))
    builder.emit(
        "product",
        {"a": a, "b": w, "y": y},
        type=y.dtype,
        dims=[1] * len(pad) + dims,
        k=a.shape[-1],
        **{"as": pad + sa},
        bs=pad + sw,
        a_k=a.strides[-1],
        b_k=w.strides[-2],
    )


@multiplied.grad
def multiplied_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return product_gradients(node, gradients, dy)

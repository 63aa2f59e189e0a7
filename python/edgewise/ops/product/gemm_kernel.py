"""Shapes of matrix products, and calls of the kernel `gemm` on any layout of their operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, FLOAT16, INT8, UINT8
from ...declare.op import broadcast, fail, most, product
from ...declare.symbolic import Sym
from ...errors import UnsupportedOp
from .contracts import ACTIVATION

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Builder


def matmul_shape(node: BoundNode, a, b):
    if not a or not b:
        fail(node, "it wants tensors of at least one dimension")
    a2 = [1] + a if len(a) == 1 else a
    b2 = b + [1] if len(b) == 1 else b
    if a2[-1] != b2[-2]:
        fail(node, f"shapes {a} and {b} do not fit: {a2[-1]} columns meet {b2[-2]} rows")
    out = broadcast(node, a2[:-2], b2[:-2])
    return out + ([a2[-2]] if len(a) > 1 else []) + ([b2[-1]] if len(b) > 1 else [])


def emit_gemm(
    builder: Builder, a, w, y, bias=None, residual=None, alpha=1.0, beta=1.0, activation="none"
):
    """y = activation(alpha a @ w + beta bias) + residual. a [.., m, k], w [.., k, n], y [.., m, n]
    views with equal or broadcast batch dimensions.
    """
    if len(w.shape) == 2 or product(w.shape[:-2]) == 1:
        w = w.drop_leading(len(w.shape) - 2)
        if len(a.shape) > 2:  # one weight for all: batches are rows
            a, y = builder.as_rows(a, a.shape[-1]), builder.as_rows(y, y.shape[-1])
            residual = builder.as_rows(residual, y.shape[-1]) if residual is not None else None
    if not isinstance(a.shape[-1], Sym) and a.shape[-1] == 0:  # the sum of nothing
        a, w = (
            builder.scalar(FLOAT, 0.0).broadcast(s)
            for s in (a.shape[:-1] + [1], w.shape[:-2] + [1, w.shape[-1]])
        )
    batch = y.shape[:-2]
    a, w = (v.broadcast(batch + v.shape[-2:]) for v in (a, w))
    if min(a.strides) < 0 or (min(a.strides[-2:]) > 1 and a.shape[-1] != 1 and a.shape[-2] != 1):
        a = builder.contiguous(a)
    if min(w.strides) < 0 or (
        a.shape[-1] != 1 and a.strides[-1] == w.strides[-2] == 0
    ):  # the kernel wants its work to be bounded by memory
        w = builder.contiguous(w)
    dims, (sa, sw, sy) = builder.merge_dims(batch, [a.strides[:-2], w.strides[:-2], y.strides[:-2]])
    if (
        len(dims) > 2 and (isinstance(dims[0], Sym) or dims[0] > 64) and not (a.plain and w.plain)
    ):  # too many to unroll: laid out one behind the other, they are one loop
        return emit_gemm(
            builder,
            builder.contiguous(a),
            builder.contiguous(w),
            y,
            bias,
            residual,
            alpha,
            beta,
            activation,
        )
    if len(dims) > 2:  # more than two batch loops: unroll the outermost ones
        if isinstance(dims[0], Sym) or dims[0] > 4096:
            raise UnsupportedOp(
                f"a product over {len(dims)} batch dimensions {dims} that do not merge",
                builder.label.where if builder.label else "product",
                "Report this model.",
            )
        for i in range(dims[0]):
            part = [v.with_batch(dims[1:], s[1:], i * s[0]) for v, s in ((a, sa), (w, sw), (y, sy))]
            emit_gemm(
                builder,
                *part,
                bias=bias,
                residual=(
                    residual.with_batch(dims[1:], sy[1:], i * sy[0])
                    if residual is not None
                    else None
                ),
                alpha=alpha,
                beta=beta,
                activation=activation,
            )
        return
    pad = [0] * (2 - len(dims))
    dims, sa, sw, sy = [1] * len(pad) + dims, pad + sa, pad + sw, pad + sy
    bias_strides = [0, 0]
    if bias is not None:
        bias = bias.broadcast([y.shape[-2], y.shape[-1]])
        if min(bias.strides) < 0:
            bias = builder.contiguous(bias)
        bias_strides = bias.strides
    if w.dtype not in (FLOAT, FLOAT16, INT8, UINT8):
        w = builder.cast(w, FLOAT)
    builder.emit(
        "gemm",
        {"a": a, "b": w, "bias": bias, "residual": residual, "y": y},
        scratch=product_is_large(y.shape, w),
        batch0=dims[0],
        batch1=dims[1],
        m=y.shape[-2],
        n=y.shape[-1],
        k=a.shape[-1],
        a0=sa[0],
        a1=sa[1],
        a_row=a.strides[-2],
        a_col=a.strides[-1],
        b0=sw[0],
        b1=sw[1],
        b_row=w.strides[-2],
        b_col=w.strides[-1],
        y0=sy[0],
        y1=sy[1],
        y_row=y.strides[-2],
        bias_row=bias_strides[0],
        bias_col=bias_strides[1],
        b_type=w.dtype,
        activation=ACTIVATION[activation],
        alpha=alpha,
        beta=beta,
    )


def product_is_large(shape, w):
    """Whether a product of this shape wants scratch: to pack w, or, with one row, which is a stream
    over w, for sums of parts of large w's rows.
    """
    return (
        most(shape[-2]) > 1 or w.strides[-1] == 1 and most(w.shape[-2]) * most(w.shape[-1]) >= 65536
    )

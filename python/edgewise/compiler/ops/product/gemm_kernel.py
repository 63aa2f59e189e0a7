"""Shapes of matrix products, and calls of the kernel `gemm` on any layout of their operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....errors import UnsupportedOp
from ...declare.dtypes import FLOAT, FLOAT16, INT8, UINT8
from ...declare.op import Dim, Shape, broadcast, fail, most, product
from ...declare.symbolic import Sym
from .contracts import ACTIVATION

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Builder, View


def matmul_shape(node: BoundNode, a: list[Dim], b: list[Dim]) -> list[Dim]:
    """The shape of the product of tensors of shapes a and b, by MatMul's rules.

    Raises:
        ModelError: the shapes do not fit.
    """
    if not a or not b:
        fail(node, "it takes tensors of at least one dimension")
    a2: list[Dim] = [1, *a] if len(a) == 1 else a
    b2: list[Dim] = [*b, 1] if len(b) == 1 else b
    if a2[-1] != b2[-2]:
        fail(node, f"shapes {a} and {b} do not fit: {a2[-1]} columns times {b2[-2]} rows")
    out = broadcast(node, a2[:-2], b2[:-2])
    return out + ([a2[-2]] if len(a) > 1 else []) + ([b2[-1]] if len(b) > 1 else [])


@dataclass(frozen=True)
class _Formula:
    """activation(alpha * a @ w + beta * bias)."""

    bias: View | None
    alpha: float
    beta: float
    activation: str


def emit_gemm(
    builder: Builder,
    a: View,
    w: View,
    y: View,
    bias: View | None = None,
    residual: View | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    activation: str = "none",
) -> None:
    """Adds the steps of y = activation(alpha * a @ w + beta * bias) + residual.

    Args:
        a, w, y: [..., m, k], [..., k, n] and [..., m, n]; the batch dimensions are those of y or
            broadcast to them.
        bias: broadcasts to [m, n].
        residual: as y.
        activation: a name of the enumeration ACTIVATION.
    """
    if len(w.shape) == 2 or product(w.shape[:-2]) == 1:
        w = w.drop_leading(len(w.shape) - 2)
        if len(a.shape) > 2:  # one weight for all: a batch is more rows
            a, y = builder.as_rows(a, a.shape[-1]), builder.as_rows(y, y.shape[-1])
            residual = builder.as_rows(residual, y.shape[-1]) if residual is not None else None
    if not isinstance(a.shape[-1], Sym) and a.shape[-1] == 0:  # sums of no elements
        a, w = (
            builder.scalar(FLOAT, 0.0).broadcast(s)
            for s in (a.shape[:-1] + [1], w.shape[:-2] + [1, w.shape[-1]])
        )
    batch = y.shape[:-2]
    a, w = (v.broadcast(batch + v.shape[-2:]) for v in (a, w))
    # Without scratch the kernel cannot pack a single row, and would pack all of w instead.
    if a.shape[-1] != 1 and (a.strides[-1] != 1 if a.shape[-2] == 1 else min(a.strides[-2:]) > 1):
        a = builder.contiguous(a)
    elif any(stride < 0 for stride in a.strides):
        a = builder.contiguous(a)
    # The kernel's contract bounds its work by the memory of its operands.
    if min(w.strides) < 0 or (a.shape[-1] != 1 and a.strides[-1] == w.strides[-2] == 0):
        w = builder.contiguous(w)
    formula = _Formula(bias, alpha, beta, activation)
    _emit_batches(builder, a, w, y, residual, formula)


def _emit_batches(
    builder: Builder, a: View, w: View, y: View, residual: View | None, formula: _Formula
) -> None:
    """As emit_gemm, for operands with the batch dimensions of y. The kernel has two batch loops; if
    more remain after merging, the outermost one is unrolled.
    """
    views = (a, w, y)
    dims, strides = builder.merge_dims(y.shape[:-2], [v.strides[:-2] for v in views])
    if len(dims) <= 2:
        _emit_call(builder, a, w, y, residual, formula, dims, strides)
        return
    unrolled = not isinstance(dims[0], Sym)
    if (not unrolled or dims[0] > 64) and not (a.plain and w.plain):
        # Too many to unroll: contiguous operands have one loop.
        a, w = builder.contiguous(a), builder.contiguous(w)
        _emit_batches(builder, a, w, y, residual, formula)
        return
    if not unrolled or dims[0] > 4096:
        raise UnsupportedOp(
            f"a product over {len(dims)} batch dimensions {dims} that do not merge",
            builder.label.where if builder.label else "product",
            "Report this model.",
        )
    for i in range(dims[0]):
        part_a, part_w, part_y = (
            v.with_batch(dims[1:], s[1:], i * s[0]) for v, s in zip(views, strides)
        )
        of_y = strides[2]
        part_residual = (
            residual.with_batch(dims[1:], of_y[1:], i * of_y[0]) if residual is not None else None
        )
        emit_gemm(
            builder,
            part_a,
            part_w,
            part_y,
            formula.bias,
            part_residual,
            formula.alpha,
            formula.beta,
            formula.activation,
        )


def _emit_call(
    builder: Builder,
    a: View,
    w: View,
    y: View,
    residual: View | None,
    formula: _Formula,
    dims: list[Dim],
    strides: list[list[Dim]],
) -> None:
    """One call of the kernel. dims, strides: at most two batch dimensions, and the strides of a, w
    and y along them.
    """
    missing = 2 - len(dims)
    dims = [*[1] * missing, *dims]
    sa, sw, sy = ([*[0] * missing, *s] for s in strides)
    bias, bias_strides = formula.bias, [0, 0]
    if bias is not None:
        bias = bias.broadcast([y.shape[-2], y.shape[-1]])
        if min(bias.strides) < 0:
            bias = builder.contiguous(bias)
        bias_strides = bias.strides
    if w.dtype not in (FLOAT, FLOAT16, INT8, UINT8):
        w = builder.cast(w, FLOAT)
    power = w.power
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
        b_normal=int(power is not None),
        activation=ACTIVATION[formula.activation],
        alpha=formula.alpha * 2.0 ** -(power or 0),  # exact
        beta=formula.beta,
    )


def product_is_large(shape: Shape, w: View) -> bool:
    """Whether a product of this shape uses scratch: to pack w; or, for one row, which reads w once,
    to sum parts of a large w's rows separately.
    """
    return (
        most(shape[-2]) > 1 or w.strides[-1] == 1 and most(w.shape[-2]) * most(w.shape[-1]) >= 65536
    )

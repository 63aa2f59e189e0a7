"""Calls of the kernel `integer_product`: products of 8-bit integers, summed in int32.

Between integer operators images are stored with their channels last; the views have ONNX's order,
so that a reader that needs another order in memory copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...declare.dtypes import INT8, RANGE, UINT8
from ...declare.op import Dim, most, one_number, product, same_shape, unsupported
from ..product.contracts import ACTIVATION

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Builder, Value, View


def packed_bytes(n: int, k: int) -> int:
    """Bytes of one item of packed weights, with n columns and k rows."""
    return -(-n // 32) * 32 * (4 + -(-k // 4) * 4)


def packed_integers(
    builder: Builder,
    w: View,
    items: Dim,
    n: Dim,
    taps: Dim,
    c: Dim,
    item_stride: Dim,
    n_stride: Dim,
    tap_stride: Dim,
    c_stride: Dim,
) -> View:
    """Weights packed by the kernel pack_integer, whose parameters these are; a constant is packed
    once, in the init steps.
    """
    params = dict(
        items=items,
        n=n,
        taps=taps,
        c=c,
        type=w.dtype,
        item_stride=item_stride,
        n_stride=n_stride,
        tap_stride=tap_stride,
        c_stride=c_stride,
    )
    constant = builder.is_constant(w.buffer)
    key = "packed", w.buffer, w.offset, *params.values()
    if constant and key in builder.laid_out:
        return builder.laid_out[key]
    was, builder.init = builder.init, builder.init or constant
    t = builder.temp(UINT8, [most(items) * packed_bytes(most(n), most(taps) * most(c))])
    if constant:
        builder.laid_out[key] = t
    builder.emit("pack_integer", {"w": w, "y": t}, **params)
    builder.init = was
    return t


def count(v: View | None) -> Dim:
    """Number of elements; 0 where absent."""
    return 0 if v is None else product(v.shape)


@dataclass(frozen=True)
class Quantization:
    """Scales, zero points and ranges, as operands and parameters that all integer kernels share."""

    operands: dict[str, View | None]
    params: dict[str, Dim]

    @staticmethod
    def of(
        builder: Builder,
        a: Value,
        w: Value,
        y_type: int,
        a_zero: Value | None = None,
        b_zero: Value | None = None,
        sum_bias: Value | None = None,
        a_scale: Value | None = None,
        factor: Value | None = None,
        y_zero: Value | None = None,
        low: int | None = None,
        high: int | None = None,
    ) -> Quantization:
        """Of a product of a and w.

        Args:
            y_type: element type of the output: INT32, FLOAT, UINT8 or INT8.
            a_zero, b_zero: zero points of a and w.
            sum_bias: int32, added to the sums.
            a_scale, factor: factors of the sums.
            y_zero: zero point of an 8-bit output.
            low, high: range that an 8-bit output is clipped to; None: that of its type.
        """
        values = {
            "a_zero": a_zero,
            "b_zero": b_zero,
            "sum_bias": sum_bias,
            "a_scale": a_scale,
            "factor": factor,
            "y_zero": y_zero,
        }
        operands = {
            name: builder.contiguous(builder.view(v)) if v is not None else None
            for name, v in values.items()
        }
        smallest, largest = RANGE[y_type] if y_type in (UINT8, INT8) else (0, 0)
        params = dict(
            a_type=a.dtype,
            b_type=w.dtype,
            y_type=y_type,
            b_zeros=count(operands["b_zero"]),
            factors=count(operands["factor"]),
            low=max(smallest, smallest if low is None else low),
            high=min(largest, largest if high is None else high),
        )
        return Quantization(operands, params)

    def check(self, node: BoundNode, rows: Dim, columns: Dim, items: Dim) -> None:
        """Raises UnsupportedOp where zero points or factors are neither one number nor one for each
        row of a (of one item), or each column of w.
        """
        zero = self.operands["a_zero"]
        by_row = ([rows], [*zero.shape[:-1], 1]) if zero is not None and items == 1 else ()
        if not (
            self._along("a_zero", *by_row)
            and count(zero) in (0, 1, rows)
            and self._along("b_zero", [columns])
            and self._along("factor", [columns])
            and self._along("sum_bias", [columns])
        ):
            unsupported(
                node, "zero points or scales that are neither one nor one for each row or column"
            )

    def check_channels(self, node: BoundNode, channels: Dim, dims: int) -> None:
        """As check, of a convolution over so many dimensions: one number, or, but for the input's
        zero point, one for each channel.
        """
        each = ([channels], [channels] + [1] * dims, [channels] + [1] * (dims + 1))
        if not (
            self._along("a_zero")
            and self._along("b_zero", *each)
            and self._along("factor", *each)
            and self._along("sum_bias", [channels])
        ):
            unsupported(node, "zero points or scales that are neither one nor one for each channel")

    def _along(self, name: str, *shapes: Sequence[Dim]) -> bool:
        """Whether an operand is absent, has one element, or one of these shapes."""
        v = self.operands[name]
        return (
            v is None or one_number(v.shape) or any(same_shape(v.shape, shape) for shape in shapes)
        )


def scratch_bytes(builder: Builder, k: Dim) -> int:
    """Bytes of scratch for products that sum over k."""
    return max(builder.target.lowering.integer_scratch, 32 * -(-most(k) // 4))


_MATRIX = {  # a product as a convolution over one pixel
    "x_size": [1, 1, 1],
    "y_size": [1, 1, 1],
    "taps": [1, 1, 1],
    "stride": [1, 1, 1],
    "dilation": [1, 1, 1],
    "pad": [0, 0, 0],
}


def _empty_sums(
    builder: Builder, a: View, w: View, quantization: Quantization
) -> tuple[View, View, Quantization]:
    """Operands whose product is 0 everywhere, for one that sums over no elements."""
    zero_a, zero_w = (builder.const_bytes(bytes([0]), v.dtype, [1] * len(v.shape)) for v in (a, w))
    a = zero_a.broadcast(a.shape[:-1] + [1])
    w = zero_w.broadcast(w.shape[:-2] + [1, w.shape[-1]])
    operands = {**quantization.operands, "a_zero": None, "b_zero": None}
    return a, w, replace(quantization, operands=operands)


def _items(
    builder: Builder, a: View, w: View, y: View
) -> tuple[View, View, Dim, tuple[Dim, Dim, Dim]]:
    """(a, w, number of items, strides of a, y and w between items): a batch as one dimension.

    a and w are copied where they are not laid out as the kernel reads them. A w of two dimensions
    is shared by all items.
    """
    batch = y.shape[:-2]
    a = a.broadcast(batch + a.shape[-2:])
    if a.strides[-1] != 1 and w.shape[-2] != 1 or min(a.strides) < 0:
        a = builder.contiguous(a)
    shared = len(w.shape) == 2
    w = w if shared else w.broadcast(batch + w.shape[-2:])
    if min(w.strides) < 0:
        w = builder.contiguous(w)
    for _ in range(2):
        views = (a, y) if shared else (a, y, w)
        dims, strides = builder.merge_dims(batch, [v.strides[:-2] for v in views])
        if len(dims) <= 1:
            break
        a, w = builder.contiguous(a), w if shared else builder.contiguous(w)
    if not dims:
        return a, w, 1, (0, 0, 0)
    a_item, y_item, *w_item = (s[0] for s in strides)
    return a, w, dims[0], (a_item, y_item, w_item[0] if w_item else 0)


def emit_integer_product(
    node: BoundNode,
    builder: Builder,
    a: View,
    w: View,
    y: View,
    quantization: Quantization,
    bias: View | None = None,
    residual: View | None = None,
) -> None:
    """y = (a - a_zero) @ (w - b_zero), then factors, activation, bias and residual.

    Args:
        a, w, y: [..., m, k], [..., k, n] and [..., m, n], or vectors as in MatMul.
        bias, residual: of a float32 output.
    """
    if len(a.shape) == 1:
        a, y = a.unsqueeze(0), y.unsqueeze(len(y.shape) - (1 if len(w.shape) > 1 else 0))
    if len(w.shape) == 1:
        w, y = w.unsqueeze(1), y.unsqueeze(len(y.shape))
    if isinstance(w.shape[-2], int) and w.shape[-2] == 0:
        a, w, quantization = _empty_sums(builder, a, w, quantization)
    k, columns = w.shape[-2:]
    if product(w.shape[:-2]) == 1:  # one weight for all: a batch is more rows
        w = w.drop_leading(len(w.shape) - 2)
        a, y = builder.as_rows(a, k), builder.as_rows(y, columns)
        residual = builder.as_rows(residual, columns) if residual is not None else None
    m, shared = y.shape[-2], len(w.shape) == 2
    a, w, items, (a_item, y_item, w_item) = _items(builder, a, w, y)
    quantization.check(node, m, columns, items)
    n_stride, k_stride = w.strides[-1] if columns != 1 else 0, w.strides[-2] if k != 1 else 0
    packed = packed_integers(
        builder, w, 1 if shared else items, columns, 1, k, w_item, n_stride, 0, k_stride
    )
    builder.emit(
        "integer_product",
        {**quantization.operands, "a": a, "w": packed, "bias": bias, "residual": residual, "y": y},
        items=items,
        batch=m,
        n=columns,
        c=k,
        **_MATRIX,
        a_item=a_item,
        a_row=a.strides[-2] if m != 1 else k,
        w_each=int(not shared),
        y_item=y_item,
        y_row=y.strides[-2] if m != 1 else columns,
        column_item=0,
        a_zeros=count(quantization.operands["a_zero"]),
        activation=ACTIVATION[node.attr("activation", "none")],
        **quantization.params,
        scratch_bytes=scratch_bytes(builder, k),
    )


def channels_last(builder: Builder, v: View) -> View:
    """A view [batch, channels, ...] as [batch, ..., channels], laid out in this order."""
    return builder.contiguous(v.transpose([0, *range(2, len(v.shape)), 1]))


def out_channels_last(builder: Builder, value: Value) -> View:
    """A new buffer for an output [batch, channels, ...], as [batch, ..., channels]."""
    return builder.out_in_order(value, [0, *range(2, len(value.shape)), 1])

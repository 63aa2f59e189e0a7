"""DynamicQuantizeLSTM, the LSTM that onnxruntime's quantize_dynamic writes.

Weights are 8-bit integers. x is quantized as a whole, the hidden state before each step, over the
range of all rows of a batch in one direction, as in onnxruntime with one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT8, INT32, UINT8
from ...declare.op import MS, Op, fail, product, takes
from ..quantized.integer_kernel import packed_integers, scratch_bytes
from .parts import recurrent_parts
from .recurrent import table_view, without_steps

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Builder, Inferred, Value

quantized_lstm = Op("DynamicQuantizeLSTM", MS)
W_SCALE, W_ZERO, R_SCALE, R_ZERO = 8, 9, 10, 11  # inputs


def _check_quantization(node: BoundNode) -> None:
    """Raises ModelError where weights, scales or zero points do not fit."""
    if not all(node.has(i) for i in (0, 1, 2, W_SCALE, R_SCALE)):
        fail(node, "it has no input, weights or scales", "Quantize the model again.")
    takes(node, (FLOAT,), W_SCALE, R_SCALE)
    for i, zero in ((1, W_ZERO), (2, R_ZERO)):
        if node.has(zero) and node.inputs[zero].dtype != node.inputs[i].dtype:
            fail(
                node,
                f"its zero point {node.inputs[zero]} is not of the type of {node.inputs[i]}",
                "Quantize the model again.",
            )
    if node.attr("layout", 0):
        fail(node, "it has a layout", "This operator takes [steps, batch, features] only.")


def _check_shapes(node: BoundNode) -> None:
    """Raises ModelError where a scale or zero point is neither one number for each direction nor
    one for each column.
    """
    w = node.inputs[1]
    d, columns = w.shape[0], w.shape[2]
    for i in (W_SCALE, W_ZERO, R_SCALE, R_ZERO):
        v = node.input(i)
        if v is not None and list(v.shape) not in ([d], [d, columns]):
            fail(
                node,
                f"its input {i} is {v} instead of [{d}] or [{d}, {columns}]",
                "Quantize the model again.",
            )


def _each_column(graph: Binder, v: Value | None, d: int, columns: int) -> Value | None:
    """A scale or zero point, [directions] or [directions, columns], as one vector for the columns
    of all directions, or as one number if that is enough.
    """
    if v is None or list(v.shape) == [1]:
        return v
    if v.rank == 1:
        v = graph.op("Expand", graph.op("Reshape", v, graph.ints([d, 1])), graph.ints([d, columns]))
    return graph.op("Reshape", v, graph.ints([d * columns]))


def _without_padding(graph: Binder, x: Value, lengths: Value, shape: list[int]) -> Value:
    """x [steps, batch, width] in another shape, 0 after the end of the longest row: such steps
    must not widen the range that is quantized.
    """
    steps = graph.op(
        "Reshape",
        graph.op("Range", *(graph.constant(INT32, [], [k]) for k in (0, x.shape[0], 1))),
        graph.ints([x.shape[0], 1, 1]),
    )
    used = graph.op("Less", steps, graph.op("ReduceMax", lengths, keepdims=0))
    x = graph.op("Where", used, x, graph.constant(FLOAT, [], [0.0]))
    return graph.op("Reshape", x, graph.ints(shape))


def _quantized_product(node: BoundNode, graph: Binder, rows: Value, bias: Value | None) -> Value:
    """rows [steps * batch, width] times W, plus the bias."""
    x, w = node.inputs[:2]
    d, columns = w.shape[0], w.shape[2]
    _check_shapes(node)
    if node.has(4):
        rows = _without_padding(graph, x, node.inputs[4], rows.shape)
    both_directions = graph.op(
        "Reshape",
        w if d == 1 else graph.op("Transpose", w, perm=[1, 0, 2]),
        graph.ints([w.shape[1], d * columns]),
        allowzero=1,
    )
    a, scale, zero = graph.op("DynamicQuantizeLinear", rows, outputs=3)
    factor, w_zero = (_each_column(graph, node.input(i), d, columns) for i in (W_SCALE, W_ZERO))
    return graph.op(
        "QuantizedMatMul",
        rows,
        a,
        scale,
        zero,
        both_directions,
        factor,
        w_zero,
        *([bias] if bias is not None else []),
        domain="edgewise",
    )


@quantized_lstm.decompose
def quantized_lstm_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    _check_quantization(node)

    def quantized_product(rows: Value, bias: Value | None) -> Value:
        return _quantized_product(node, graph, rows, bias)

    (p, r, _inner_bias, *state), attrs = recurrent_parts(
        node, graph, 4, (UINT8, INT8), columns_last=True, product=quantized_product
    )
    y, h, c = graph.op(
        "RecurrentBytes",
        p,
        r,
        node.inputs[R_SCALE],
        node.input(R_ZERO),
        *state,
        domain="edgewise",
        outputs=3,
        **{k: attrs[k] for k in ("reverse", "coupled", "table")},
    )
    return [graph.op("Transpose", y, perm=[0, 2, 1, 3]), h, c][: len(node.outputs)]


# Inputs: products with W [steps, batch, directions * 4 * hidden], R [directions, hidden, 4 *
# hidden] in 8 bits, its scales, its zero points, initial h, initial c, lengths, peepholes.
# Outputs: y [steps, batch, directions, hidden], last h and last c [directions, batch, hidden].
recurrent_bytes = Op("RecurrentBytes", "edgewise")


@recurrent_bytes.infer
def recurrent_bytes_infer(node: BoundNode) -> Inferred:
    (t, b), (d, h) = node.inputs[0].shape[:2], node.inputs[1].shape[:2]
    return [(FLOAT, [t, b, d, h]), (FLOAT, [d, b, h]), (FLOAT, [d, b, h])]


@recurrent_bytes.lower
def recurrent_bytes_lower(node: BoundNode, builder: Builder) -> None:
    x, r = (
        builder.inner_contiguous(builder.view(node.inputs[0])),
        builder.contiguous(builder.view(node.inputs[1])),
    )
    (t, batch), (d, h, columns) = x.shape[:2], r.shape
    operands = {
        k: builder.contiguous(builder.view(node.inputs[i]))
        for i, k in enumerate(("factor", "r_zero", "h_first", "c_first", "lengths", "peepholes"), 2)
        if node.has(i)
    }
    for k, i in (("h_last", 1), ("c_last", 2)):
        v = node.outputs[i] if i < len(node.outputs) else None
        operands[k] = builder.out(v) if v is not None else builder.temp(FLOAT, [d, batch, h])
    y = node.outputs[0]
    y = builder.out(y) if y is not None else builder.temp(FLOAT, [t, batch, d, h])
    if without_steps(builder, t, operands):
        return
    builder.emit(
        "recurrent_bytes",
        {
            **operands,
            "x": x,
            "r": packed_integers(builder, r, d, columns, 1, h, h * columns, 1, 0, columns),
            "table": table_view(node, builder),
            "y": y,
            "g": builder.temp(FLOAT, [d, batch, columns]),
            "sums": builder.temp(FLOAT, [batch, columns]),
            "bytes": builder.temp(UINT8, [batch, h]),
        },
        t=t,
        b=batch,
        d=d,
        h=h,
        reverse=node.attrs["reverse"],
        coupled=node.attrs["coupled"],
        x_t=x.strides[0] if t > 1 else 0,
        x_b=x.strides[1] if batch > 1 else 0,
        r_type=r.dtype,
        factors=product(node.inputs[2].shape) // d,
        zeros=product(node.inputs[3].shape) // d if node.has(3) else 1,
        scratch_bytes=scratch_bytes(builder, h),
    )

"""DynamicQuantizeLSTM: what onnxruntime's quantize_dynamic makes of an LSTM.

Weights are bytes; x is quantized as a whole, the hidden state before each step.

As in onnxruntime (one thread of it) the range of a hidden state is that of all rows of a batch in
one direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT8, INT32, UINT8, pack
from ...declare.op import MS, Op, fail, product, takes
from ..quantized.integer import _pack, scratch_bytes
from .recurrent import recurrent_parts

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Builder, Graph, Inferred, Value

quantized_lstm = Op("DynamicQuantizeLSTM", MS)
W_SCALE, W_ZERO, R_SCALE, R_ZERO = 8, 9, 10, 11


def _of_columns(node: BoundNode, i, d, columns):
    """Whether a scale or zero point is one for each column, else one for each direction.

    Fails where it is neither.
    """
    v = node.input(i)
    if v is None or list(v.shape) == [d]:
        return False
    if list(v.shape) != [d, columns]:
        fail(
            node,
            f"its input {i} is {v} instead of [{d}] or [{d}, {columns}]",
            "Quantize the model again.",
        )
    return True


def _each_column(graph: Graph, v, d, columns):
    """A scale or zero point [directions] or [directions, columns] as one vector for the columns of
    both directions; as one number where that is enough.
    """
    if v is None or list(v.shape) == [1]:
        return v
    if v.rank == 1:
        v = graph.op("Expand", graph.op("Reshape", v, graph.ints([d, 1])), graph.ints([d, columns]))
    return graph.op("Reshape", v, graph.ints([d * columns]))


@quantized_lstm.decompose
def quantized_lstm_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    if not all(node.has(i) for i in (0, 1, 2, W_SCALE, R_SCALE)):
        fail(node, "it has no input, weights or scales", "Quantize the model again.")
    takes(node, (FLOAT,), W_SCALE, R_SCALE)
    x, w, r = node.inputs[:3]
    for i, zero in ((1, W_ZERO), (2, R_ZERO)):
        if node.has(zero) and node.inputs[zero].dtype != node.inputs[i].dtype:
            fail(
                node,
                f"its zero point {node.inputs[zero]} is not of the type of {node.inputs[i]}",
                "Quantize the model again.",
            )
    if node.attr("layout", 0):
        fail(node, "it has a layout", "This operator takes [steps, batch, features] only.")

    def quantized_product(rows, bias):
        d, columns = w.shape[0], w.shape[2]
        for i in (W_SCALE, W_ZERO, R_SCALE, R_ZERO):
            _of_columns(node, i, d, columns)
        if node.has(4):  # steps behind the longest row's end have no part in the range
            steps = graph.op(
                "Reshape",
                graph.op("Range", *(graph.constant(INT32, [], [k]) for k in (0, x.shape[0], 1))),
                graph.ints([x.shape[0], 1, 1]),
            )
            used = graph.op("Less", steps, graph.op("ReduceMax", node.inputs[4], keepdims=0))
            rows = graph.op(
                "Reshape",
                graph.op("Where", used, x, graph.constant(FLOAT, [], [0.0])),
                graph.ints(rows.shape),
            )
        together = graph.op(
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
            together,
            factor,
            w_zero,
            *([bias] if bias is not None else []),
            domain="edgewise",
        )

    (p, _, _, *state), attrs = recurrent_parts(
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


# (products [steps, batch, directions * 4 * hidden], R [directions, hidden, 4 * hidden] as bytes,
# its scales, its zero points, first h, first c, lengths, peepholes) -> (y [steps, batch,
# directions, hidden], last h, last c [directions, batch, hidden])
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
    builder.emit(
        "recurrent_bytes",
        {
            **operands,
            "x": x,
            "r": _pack(builder, r, d, columns, 1, h, h * columns, 1, 0, columns),
            "table": builder.const_bytes(
                pack(FLOAT, node.attrs["table"]), FLOAT, [len(node.attrs["table"])]
            ),
            "y": (
                builder.out(node.outputs[0])
                if node.outputs[0] is not None
                else builder.temp(FLOAT, [t, batch, d, h])
            ),
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
        scratch_bytes=scratch_bytes(h),
    )

"""Ops on quantized tensors (ONNX's QLinear*, ConvInteger, and onnxruntime's): what they compute,
between DequantizeLinear and QuantizeLinear.

Products stay integers up to their one rounding, as in onnxruntime: sums of bytes are exact in int32
(MatMulInteger) and, up to 2^24, in float32 (Conv).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT8, INT32, INT64, MINIFLOATS, UINT8
from ...declare.op import MS, Op, Weight, axis_of, fail, one_type, product, takes

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Graph, Value


def _zero(node: BoundNode, graph: Graph, i, like):
    """Zero point i, which is 0 where it is absent."""
    return node.inputs[i] if node.has(i) else graph.constant(node.inputs[like].dtype, [], [0])


def _real(node: BoundNode, graph: Graph, i):
    """Inputs i to i + 2, a tensor with scale and zero point, as float32."""
    takes(node, (UINT8, INT8), i)
    return graph.op(
        "DequantizeLinear", node.inputs[i], node.inputs[i + 1], _zero(node, graph, i + 2, i)
    )


def _quantized(node: BoundNode, graph: Graph, y, i, like=0):
    """float32 y by the scale and zero point that are inputs i and i + 1."""
    return graph.op("QuantizeLinear", y, node.inputs[i], _zero(node, graph, i + 1, like))


def _rounded(node: BoundNode, graph: Graph, sums, factor, i, like):
    """Sums times a factor, with zero point i."""
    return graph.op(
        "QuantizeLinear",
        graph.op("Mul", sums, factor),
        graph.constant(FLOAT, [], [1.0]),
        _zero(node, graph, i, like),
    )


def _factor(node: BoundNode, graph: Graph, a, b, y=None):
    """The product of two scales, over a third."""
    factor = graph.op("Mul", node.inputs[a], node.inputs[b])
    return graph.op("Div", factor, node.inputs[y]) if y is not None else factor


def _scalar(graph: Graph, v):
    """[1] or [] as []; others as they are."""
    return (
        graph.op("Reshape", v, graph.constant(INT64, [0], []))
        if v.rank and product(v.shape) == 1
        else v
    )


# ---- products ----
matmul = Op("QLinearMatMul", weight=Weight(3, quantized=True))


@matmul.decompose
def matmul_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    one_type(node, 0, 2)
    one_type(node, 3, 5)
    if (
        node.inputs[0].dtype in MINIFLOATS or node.inputs[3].dtype in MINIFLOATS
    ):  # of floats there are no integer sums
        a, w = (
            graph.op(
                "DequantizeLinear",
                *node.inputs[i : i + 3],
                axis=max(node.inputs[i].rank - 2, 0) if i == 0 else node.inputs[i].rank - 1,
            )
            for i in (0, 3)
        )
        y = graph.op("MatMul", a, w)
        return [
            graph.op("QuantizeLinear", y, node.inputs[6], node.inputs[7], axis=max(y.rank - 2, 0))
        ]
    if product(node.inputs[1].shape) == 1 and product(node.inputs[4].shape) in (
        1,
        node.inputs[3].shape[-1],
    ):
        return [
            graph.op(
                "IntegerMatMul",
                node.inputs[0],
                node.inputs[2],
                node.inputs[3],
                node.inputs[5],
                None,
                None,
                _factor(node, graph, 1, 4, 6),
                node.inputs[7],
                domain="edgewise",
                y_type=node.inputs[7].dtype,
            )
        ]
    sums = graph.op("MatMulInteger", node.inputs[0], node.inputs[3], node.inputs[2], node.inputs[5])
    return [
        _rounded(
            node,
            graph,
            graph.op("Cast", sums, to=FLOAT),
            _scalar(graph, _factor(node, graph, 1, 4, 6)),
            7,
            0,
        )
    ]


def _bytes(t, *shape, dtype="uint8"):
    return t.n(
        dtype, *shape, low=0 if dtype == "uint8" else -128, high=255 if dtype == "uint8" else 127
    )


def _zero_of(t, dtype: int):
    return t.const(
        t.n(dtype, low=100, high=150) if dtype == "uint8" else t.n(dtype, low=-10, high=10)
    )


gemm = Op(
    "QGemm",
    MS,
    # (a, scale, zero, b, scale, zero, int32 bias of scale a * b, (y's scale, zero)); without a
    # scale y is float32
)


@gemm.decompose
def gemm_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    one_type(node, 0, 2)
    one_type(node, 3, 5)
    a, b = (
        graph.op("Transpose", v, perm=[1, 0]) if node.attr(turn, 0) else v
        for v, turn in ((node.inputs[0], "transA"), (node.inputs[3], "transB"))
    )
    factor, alpha, bias, columns = (
        graph.op("Mul", node.inputs[1], node.inputs[4]),
        node.attr("alpha", 1.0),
        node.input(6),
        b.shape[1],
    )
    if alpha != 1.0:
        factor = graph.op("Mul", graph.constant(FLOAT, [], [alpha]), factor)
    if node.has(7):
        factor = graph.op("Div", factor, node.inputs[7])
    y_type = node.inputs[8].dtype if node.has(8) else node.inputs[0].dtype if node.has(7) else FLOAT
    if product(factor.shape) in (1, columns) and (bias is None or product(bias.shape) == columns):
        return [
            graph.op(
                "IntegerMatMul",
                a,
                node.inputs[2],
                b,
                node.inputs[5],
                bias,
                None,
                factor,
                node.input(8),
                domain="edgewise",
                y_type=y_type,
            )
        ]
    sums = graph.op("MatMulInteger", a, b, node.inputs[2], node.inputs[5])
    sums = graph.op("Cast", graph.op("Add", sums, bias) if bias is not None else sums, to=FLOAT)
    return [
        (
            _rounded(node, graph, sums, _scalar(graph, factor), 8, 0)
            if node.has(7)
            else graph.op("Mul", sums, _scalar(graph, factor))
        )
    ]


to_float = Op("MatMulIntegerToFloat", MS)  # (a, b, a's scale, b's scale, zeros, bias)


@to_float.decompose
def to_float_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    one_type(node, 0, 4)
    one_type(node, 1, 5)
    y = graph.op(
        "Mul",
        graph.op(
            "Cast",
            graph.op("MatMulInteger", *node.inputs[:2], *[*node.inputs, None, None][4:6]),
            to=FLOAT,
        ),
        _scalar(graph, _factor(node, graph, 2, 3)),
    )
    return [graph.op("Add", y, node.inputs[6]) if node.has(6) else y]


dynamic = Op("DynamicQuantizeMatMul", MS)  # (float32 a, b, b's scale, zero, bias)


@dynamic.decompose
def dynamic_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    a, scale, zero = graph.op("DynamicQuantizeLinear", node.inputs[0], outputs=3)
    y = graph.op(
        "Mul",
        graph.op(
            "Cast", graph.op("MatMulInteger", a, node.inputs[1], zero, node.input(3)), to=FLOAT
        ),
        _scalar(graph, graph.op("Mul", scale, node.inputs[2])),
    )
    return [graph.op("Add", y, node.inputs[4]) if node.has(4) else y]


# ---- convolutions ----
conv_integer = Op("ConvInteger", weight=Weight(1, quantized=True))


@conv_integer.decompose
def conv_integer_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    takes(node, (UINT8, INT8), 0, 1)
    one_type(node, 0, 2)
    one_type(node, 1, 3)
    return [
        graph.op(
            "IntegerConv",
            node.inputs[0],
            node.input(2),
            node.inputs[1],
            node.input(3),
            domain="edgewise",
            **node.attrs,
        )
    ]


conv = Op("QLinearConv", weight=Weight(3, quantized=True))


@conv.decompose
def conv_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    takes(node, (UINT8, INT8), 0, 3)
    one_type(node, 0, 2)
    one_type(node, 3, 5)
    takes(node, (INT32,), 8)
    return [
        graph.op(
            "IntegerConv",
            node.inputs[0],
            node.inputs[2],
            node.inputs[3],
            node.inputs[5],
            node.input(8),
            None,
            _factor(node, graph, 1, 4, 6),
            node.inputs[7],
            domain="edgewise",
            y_type=node.inputs[7].dtype,
            **node.attrs,
        )
    ]


# ---- everything else ----
def _pointwise(name, cases, compute, first=1):
    """An op on `first` quantized inputs, each with scale and zero point, before those of its
    output.
    """
    o = Op(name, MS)

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
        return [
            _quantized(
                node,
                graph,
                compute(node, graph, *(_real(node, graph, 3 * i) for i in range(first))),
                3 * first,
            )
        ]

    o.cases(cases)


# Output scales are such that no number lies half way between two: onnxruntime rounds those to even
# after it has added the zero point, ONNX before.
def _two_cases(t):
    def part(*shape, dtype="uint8", scale=2**-5):
        return _bytes(t, *shape, dtype=dtype), t.const(t.of("float32", scale)), _zero_of(t, dtype)

    for a, b in (((2, 3, 8), (2, 3, 8)), ((2, 3, 8), (8,)), ((2, 1, 8), (3, 1)), ((5,), ())):
        for dtype in ("uint8", "int8"):
            yield t(
                *part(*a, dtype=dtype),
                *part(*b, dtype=dtype, scale=2**-6),
                t.const(t.of("float32", 0.0613)),
                _zero_of(t, dtype),
            )


def _one_cases(*shapes, to=0.0173, **attrs):
    def cases(t):
        for shape in shapes:
            for dtype in ("uint8", "int8"):
                yield t(
                    _bytes(t, *shape, dtype=dtype),
                    t.const(t.of("float32", 2**-5)),
                    _zero_of(t, dtype),
                    t.const(t.of("float32", to)),
                    t.const(t.of(dtype, 3)),
                    fold=False,
                    **attrs,
                )

    return cases


def _softmax_cases(t):
    for dtype, zero, shape, axis, opset in (
        ("uint8", 3, (2, 37), -1, 13),
        ("int8", -100, (3, 4, 5), 1, 13),
        ("uint8", 0, (3, 4, 5), 1, 11),
    ):
        x, axes = (
            _bytes(t, *shape, dtype=dtype),
            (tuple(range(axis, len(shape))) if opset < 13 else axis),
        )
        e = 2.0 ** ((x.astype("float64") - x.max(axes, keepdims=True)) / 32 * 1.4426950408889634)
        y = (e / e.sum(axes, keepdims=True) / 0.00391 + zero).round()
        yield t(
            x,
            t.const(t.of("float32", 2**-5)),
            _zero_of(t, dtype),
            t.const(t.of("float32", 0.00391)),
            t.const(t.of(dtype, zero)),
            axis=axis,
            attributes={"opset": opset},
            fold=False,
            expect=[
                (
                    y.clip(0, 255).astype("uint8")
                    if dtype == "uint8"
                    else y.clip(-128, 127).astype("int8")
                )
            ],
            why="onnxruntime's integers round by 1 otherwise",
        )


def _softmax(node: BoundNode, graph: Graph, x):
    axis = node.attr("axis", -1)
    if node.attr("opset", 13) >= 13:
        return graph.op("Softmax", x, axis=axis)
    axis = axis_of(node, axis, x.rank)
    rows = graph.op(
        "Reshape", x, graph.ints([product(x.shape[:axis]), product(x.shape[axis:])]), allowzero=1
    )
    return graph.op(
        "Reshape", graph.op("Softmax", rows, axis=1), graph.ints([*x.shape]), allowzero=1
    )


def _channels_first(node: BoundNode, graph: Graph, x, compute):
    if not node.attr("channels_last", 0):
        return compute(x)
    y = compute(graph.op("Transpose", x, perm=[0, x.rank - 1, *range(1, x.rank - 1)]))
    return graph.op("Transpose", y, perm=[0, *range(2, x.rank), 1])


def _pool(node: BoundNode, graph: Graph, x):
    attrs = {k: v for k, v in node.attrs.items() if k != "channels_last"}
    return _channels_first(node, graph, x, lambda x: graph.op("AveragePool", x, **attrs))


_pointwise("QLinearAdd", _two_cases, lambda n, g, a, b: g.op("Add", a, b), 2)
_pointwise("QLinearMul", _two_cases, lambda n, g, a, b: g.op("Mul", a, b), 2)
_pointwise("QLinearSigmoid", _one_cases((2, 37), to=0.00391), lambda n, g, x: g.op("Sigmoid", x))
_pointwise(
    "QLinearLeakyRelu",
    _one_cases((2, 37), alpha=0.1),
    lambda n, g, x: g.op("LeakyRelu", x, alpha=n.attr("alpha", 0.01)),
)
_pointwise("QLinearSoftmax", _softmax_cases, _softmax)
_pointwise(
    "QLinearGlobalAveragePool",
    _one_cases((2, 3, 4, 5), (2, 3, 8), channels_last=0),
    lambda n, g, x: _channels_first(n, g, x, lambda x: g.op("GlobalAveragePool", x)),
)
_pointwise(
    "QLinearAveragePool", _one_cases((2, 3, 8, 8), kernel_shape=[2, 2], strides=[2, 2]), _pool
)

concat = Op("QLinearConcat", MS)  # (y's scale, zero, then tensors with scale and zero)


@concat.decompose
def concat_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    if len(node.inputs) % 3 != 2:
        fail(node, f"it has {len(node.inputs)} inputs")
    return [
        _quantized(
            node,
            graph,
            graph.op(
                "Concat",
                *(_real(node, graph, i) for i in range(2, len(node.inputs), 3)),
                axis=node.attr("axis", 0),
            ),
            0,
            2,
        )
    ]


attention = Op("QAttention", MS)  # Attention of onnxruntime with quantized input and weights


@attention.decompose
def attention_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = [*node.inputs, *[None] * 9][:9]
    takes(node, (UINT8, INT8), 0, 1)
    x = graph.op(
        "DequantizeLinear",
        x,
        _scalar(graph, x_scale),
        *([_scalar(graph, x_zero)] if x_zero is not None else []),
    )
    w = graph.op(
        "DequantizeLinear",
        w,
        _scalar(graph, w_scale),
        *([_scalar(graph, w_zero)] if w_zero is not None else []),
        axis=1,
    )
    y = graph.op(
        "Attention",
        x,
        w,
        bias,
        mask,
        past,
        domain=MS,
        outputs=2 if node.wants(1) else 1,
        **node.attrs,
    )
    return y if isinstance(y, list) else [y]

"""Ops on quantized tensors (ONNX's QLinear*, ConvInteger, and onnxruntime's): what they compute, between DequantizeLinear and QuantizeLinear.

Products stay integers up to their one rounding, as in onnxruntime: sums of bytes are exact in int32 (MatMulInteger) and, up to 2^24, in float32 (Conv).
"""
from __future__ import annotations

from .dtypes import FLOAT, INT8, INT32, INT64, UINT8, MINIFLOATS
from .op import MS, Op, axis_of, fail, one_type, product, takes


def _zero(n, g, i, like):
    """Zero point i, which is 0 where it is absent."""
    return n.inputs[i] if n.has(i) else g.constant(n.inputs[like].dtype, [], [0])


def _real(n, g, i):
    """Inputs i to i + 2, a tensor with scale and zero point, as float32."""
    takes(n, (UINT8, INT8), i)
    return g.op("DequantizeLinear", n.inputs[i], n.inputs[i + 1], _zero(n, g, i + 2, i))


def _quantized(n, g, y, i, like=0):
    """float32 y by the scale and zero point that are inputs i and i + 1."""
    return g.op("QuantizeLinear", y, n.inputs[i], _zero(n, g, i + 1, like))


def _rounded(n, g, sums, factor, i, like):
    """Sums times a factor, with zero point i."""
    return g.op("QuantizeLinear", g.op("Mul", sums, factor), g.constant(FLOAT, [], [1.0]), _zero(n, g, i, like))


def _factor(n, g, a, b, y=None):
    """The product of two scales, over a third."""
    factor = g.op("Mul", n.inputs[a], n.inputs[b])
    return g.op("Div", factor, n.inputs[y]) if y is not None else factor


def _scalar(g, v):
    """[1] or [] as []; others as they are."""
    return g.op("Reshape", v, g.constant(INT64, [0], [])) if v.rank and product(v.shape) == 1 else v


# ---- products ----
matmul = Op("QLinearMatMul")


@matmul.decompose
def _(n, g):
    one_type(n, 0, 2)
    one_type(n, 3, 5)
    if n.inputs[0].dtype in MINIFLOATS or n.inputs[3].dtype in MINIFLOATS:  # of floats there are no integer sums
        a, w = (g.op("DequantizeLinear", *n.inputs[i:i + 3], axis=max(n.inputs[i].rank - 2, 0) if i == 0 else n.inputs[i].rank - 1) for i in (0, 3))
        y = g.op("MatMul", a, w)
        return [g.op("QuantizeLinear", y, n.inputs[6], n.inputs[7], axis=max(y.rank - 2, 0))]
    if product(n.inputs[1].shape) == 1 and product(n.inputs[4].shape) in (1, n.inputs[3].shape[-1]):
        return [g.op("IntegerMatMul", n.inputs[0], n.inputs[2], n.inputs[3], n.inputs[5], None, None, _factor(n, g, 1, 4, 6), n.inputs[7], domain="edgewise", y_type=n.inputs[7].dtype)]
    sums = g.op("MatMulInteger", n.inputs[0], n.inputs[3], n.inputs[2], n.inputs[5])
    return [_rounded(n, g, g.op("Cast", sums, to=FLOAT), _scalar(g, _factor(n, g, 1, 4, 6)), 7, 0)]


def _bytes(t, *shape, dtype="uint8"):
    return t.n(dtype, *shape, low=0 if dtype == "uint8" else -128, high=255 if dtype == "uint8" else 127)


def _scale(t, *shape, low=0.01, high=0.03):
    return t.const(t.f(*shape, low=low, high=high))


def _zero_of(t, dtype):
    return t.const(t.n(dtype, low=100, high=150) if dtype == "uint8" else t.n(dtype, low=-10, high=10))


_ORT = {"trust": "ort", "why": "ONNX's reference rounds its scales in another order"}


@matmul.cases
def _(t):
    for a, b, kinds in (((3, 40), (40, 5), ("uint8", "uint8")), ((3, 40), (40, 5), ("uint8", "int8")), ((2, 3, 4), (2, 4, 5), ("int8", "int8")), ((2, 3, 4), (4, 5), ("uint8", "int8"))):
        x, w = kinds
        yield t(_bytes(t, *a, dtype=x), _scale(t), _zero_of(t, x), _bytes(t, *b, dtype=w), _scale(t), _zero_of(t, w), _scale(t, low=0.1, high=0.4), _zero_of(t, x), **_ORT)
    yield t(_bytes(t, 3, 40), _scale(t), _zero_of(t, "uint8"), t.const(_bytes(t, 40, 5, dtype="int8")), _scale(t, 5), t.const(t.n("int8", 5, low=0, high=0)), _scale(t, low=0.1, high=0.4), _zero_of(t, "uint8"), **_ORT)


gemm = Op("QGemm", MS)  # (a, scale, zero, b, scale, zero, int32 bias of scale a * b, (y's scale, zero)); without a scale y is float32


@gemm.decompose
def _(n, g):
    one_type(n, 0, 2)
    one_type(n, 3, 5)
    a, b = (g.op("Transpose", v, perm=[1, 0]) if n.attr(turn, 0) else v for v, turn in ((n.inputs[0], "transA"), (n.inputs[3], "transB")))
    factor, alpha, bias, columns = g.op("Mul", n.inputs[1], n.inputs[4]), n.attr("alpha", 1.0), n.input(6), b.shape[1]
    if alpha != 1.0:
        factor = g.op("Mul", g.constant(FLOAT, [], [alpha]), factor)
    if n.has(7):
        factor = g.op("Div", factor, n.inputs[7])
    y_type = n.inputs[8].dtype if n.has(8) else n.inputs[0].dtype if n.has(7) else FLOAT
    if product(factor.shape) in (1, columns) and (bias is None or product(bias.shape) == columns):
        return [g.op("IntegerMatMul", a, n.inputs[2], b, n.inputs[5], bias, None, factor, n.input(8), domain="edgewise", y_type=y_type)]
    sums = g.op("MatMulInteger", a, b, n.inputs[2], n.inputs[5])
    sums = g.op("Cast", g.op("Add", sums, bias) if bias is not None else sums, to=FLOAT)
    return [_rounded(n, g, sums, _scalar(g, factor), 8, 0) if n.has(7) else g.op("Mul", sums, _scalar(g, factor))]


@gemm.cases
def _(t):
    for turn in (0, 1):
        w = t.const(_bytes(t, *((5, 40) if turn else (40, 5)), dtype="int8"))
        inputs = [_bytes(t, 3, 40), _scale(t), _zero_of(t, "uint8"), w, _scale(t), _zero_of(t, "int8"), t.const(t.n("int32", 5, low=-9000, high=9000))]
        yield t(*inputs, _scale(t, low=0.1, high=0.4), _zero_of(t, "uint8"), transB=turn)
        yield t(*inputs, transB=turn, alpha=0.5)
        yield t(*inputs[:6], None, _scale(t, low=0.1, high=0.4), _zero_of(t, "uint8"), transB=turn)
    yield t(_bytes(t, 40, 3), _scale(t), _zero_of(t, "uint8"), t.const(_bytes(t, 40, 5, dtype="int8")), _scale(t, 5), t.const(t.n("int8", 5, low=0, high=0)), None, _scale(t, low=0.1, high=0.4), _zero_of(t, "uint8"), transA=1)


to_float = Op("MatMulIntegerToFloat", MS)  # (a, b, a's scale, b's scale, zeros, bias)


@to_float.decompose
def _(n, g):
    one_type(n, 0, 4)
    one_type(n, 1, 5)
    y = g.op("Mul", g.op("Cast", g.op("MatMulInteger", *n.inputs[:2], *[*n.inputs, None, None][4:6]), to=FLOAT), _scalar(g, _factor(n, g, 2, 3)))
    return [g.op("Add", y, n.inputs[6]) if n.has(6) else y]


@to_float.cases
def _(t):
    for more in ((), (_zero_of(t, "uint8"),), (_zero_of(t, "uint8"), _zero_of(t, "int8")), (_zero_of(t, "uint8"), _zero_of(t, "int8"), t.f(5))):
        yield t(_bytes(t, 3, 40), t.const(_bytes(t, 40, 5, dtype="int8")), _scale(t), _scale(t), *more, tol=1e-4)
    yield t(_bytes(t, 2, 3, 40), t.const(_bytes(t, 40, 5, dtype="int8")), _scale(t), _scale(t, 5), _zero_of(t, "uint8"), tol=1e-4)


dynamic = Op("DynamicQuantizeMatMul", MS)  # (float32 a, b, b's scale, zero, bias)


@dynamic.decompose
def _(n, g):
    a, scale, zero = g.op("DynamicQuantizeLinear", n.inputs[0], outputs=3)
    y = g.op("Mul", g.op("Cast", g.op("MatMulInteger", a, n.inputs[1], zero, n.input(3)), to=FLOAT), _scalar(g, g.op("Mul", scale, n.inputs[2])))
    return [g.op("Add", y, n.inputs[4]) if n.has(4) else y]


@dynamic.cases
def _(t):
    for more in ((), (_zero_of(t, "int8"),), (_zero_of(t, "int8"), t.f(5))):
        yield t(t.f(3, 40), t.const(_bytes(t, 40, 5, dtype="int8")), _scale(t), *more, tol=1e-4)
    yield t(t.f(2, 3, 40), t.const(_bytes(t, 40, 5, dtype="int8")), _scale(t, 5), tol=1e-4)


# ---- convolutions ----
conv_integer = Op("ConvInteger")


@conv_integer.decompose
def _(n, g):
    takes(n, (UINT8, INT8), 0, 1)
    one_type(n, 0, 2)
    one_type(n, 1, 3)
    return [g.op("IntegerConv", n.inputs[0], n.input(2), n.inputs[1], n.input(3), domain="edgewise", **n.attrs)]


conv = Op("QLinearConv")


@conv.decompose
def _(n, g):
    takes(n, (UINT8, INT8), 0, 3)
    one_type(n, 0, 2)
    one_type(n, 3, 5)
    takes(n, (INT32,), 8)
    return [g.op("IntegerConv", n.inputs[0], n.inputs[2], n.inputs[3], n.inputs[5], n.input(8), None, _factor(n, g, 1, 4, 6), n.inputs[7], domain="edgewise", y_type=n.inputs[7].dtype, **n.attrs)]


_CONVOLUTIONS = [((2, 3, 9), (4, 3, 3), {}), ((2, 4, 9, 8), (6, 4, 3, 3), {"pads": [1, 1, 1, 1]}), ((1, 6, 9, 8), (6, 1, 3, 3), {"group": 6, "strides": [2, 2]}), ((1, 8, 5, 5), (3, 8, 1, 1), {}),
                 ((2, 24, 9, 8), (24, 1, 3, 3), {"group": 24, "pads": [1, 1, 1, 1]}), ((1, 48, 7, 6), (48, 1, 5, 5), {"group": 48, "strides": [2, 2], "pads": [2, 1, 2, 2]}), ((1, 16, 11), (16, 1, 4), {"group": 16, "dilations": [2]})]


@conv_integer.cases
def _(t):
    for x, w, attrs in _CONVOLUTIONS:
        yield t(_bytes(t, *x), t.const(_bytes(t, *w)), **attrs)
        yield t(_bytes(t, *x), t.const(_bytes(t, *w)), _zero_of(t, "uint8"), _zero_of(t, "uint8"), **attrs)
        yield t(_bytes(t, *x), t.const(_bytes(t, *w, dtype="int8")), _zero_of(t, "uint8"), **attrs)


@conv.cases
def _(t):
    for x, w, attrs in _CONVOLUTIONS:
        for kind in ("uint8", "int8"):
            inputs = [_bytes(t, *x), _scale(t), _zero_of(t, "uint8"), t.const(_bytes(t, *w, dtype=kind)), _scale(t), _zero_of(t, kind), _scale(t, low=0.1, high=0.4), _zero_of(t, "uint8")]
            yield t(*inputs, **attrs, **_ORT)
            yield t(*inputs, t.const(t.n("int32", w[0], low=-9000, high=9000)), **attrs, **_ORT)
        inputs[4:6] = _scale(t, w[0]), t.const(t.n("int8", w[0], low=0, high=0))
        yield t(*inputs, **attrs, **_ORT)


# ---- everything else ----
def _pointwise(name, cases, compute, first=1):
    """An op on `first` quantized inputs, each with scale and zero point, before those of its output."""
    o = Op(name, MS)

    @o.decompose
    def _(n, g):
        return [_quantized(n, g, compute(n, g, *(_real(n, g, 3 * i) for i in range(first))), 3 * first)]
    o.cases(cases)


# Output scales are such that no number lies half way between two: onnxruntime rounds those to even after it has added the zero point, ONNX before.
def _two_cases(t):
    def part(*shape, dtype="uint8", scale=2**-5):
        return _bytes(t, *shape, dtype=dtype), t.const(t.of("float32", scale)), _zero_of(t, dtype)
    for a, b in (((2, 3, 8), (2, 3, 8)), ((2, 3, 8), (8,)), ((2, 1, 8), (3, 1)), ((5,), ())):
        for dtype in ("uint8", "int8"):
            yield t(*part(*a, dtype=dtype), *part(*b, dtype=dtype, scale=2**-6), t.const(t.of("float32", 0.0613)), _zero_of(t, dtype))


def _one_cases(*shapes, to=0.0173, **attrs):
    def cases(t):
        for shape in shapes:
            for dtype in ("uint8", "int8"):
                yield t(_bytes(t, *shape, dtype=dtype), t.const(t.of("float32", 2**-5)), _zero_of(t, dtype), t.const(t.of("float32", to)), t.const(t.of(dtype, 3)), fold=False, **attrs)
    return cases


def _softmax_cases(t):
    for dtype, zero, shape, axis, opset in (("uint8", 3, (2, 37), -1, 13), ("int8", -100, (3, 4, 5), 1, 13), ("uint8", 0, (3, 4, 5), 1, 11)):
        x, axes = _bytes(t, *shape, dtype=dtype), tuple(range(axis, len(shape))) if opset < 13 else axis
        e = 2.0 ** ((x.astype("float64") - x.max(axes, keepdims=True)) / 32 * 1.4426950408889634)
        y = (e / e.sum(axes, keepdims=True) / 0.00391 + zero).round()
        yield t(x, t.const(t.of("float32", 2**-5)), _zero_of(t, dtype), t.const(t.of("float32", 0.00391)), t.const(t.of(dtype, zero)), axis=axis, attributes={"opset": opset}, fold=False,
                expect=[y.clip(0, 255).astype("uint8") if dtype == "uint8" else y.clip(-128, 127).astype("int8")], why="onnxruntime's integers round by 1 otherwise")


def _softmax(n, g, x):
    axis = n.attr("axis", -1)
    if n.attr("opset", 13) >= 13:
        return g.op("Softmax", x, axis=axis)
    axis = axis_of(n, axis, x.rank)
    rows = g.op("Reshape", x, g.ints([product(x.shape[:axis]), product(x.shape[axis:])]), allowzero=1)
    return g.op("Reshape", g.op("Softmax", rows, axis=1), g.ints([*x.shape]), allowzero=1)


def _channels_first(n, g, x, compute):
    if not n.attr("channels_last", 0):
        return compute(x)
    y = compute(g.op("Transpose", x, perm=[0, x.rank - 1, *range(1, x.rank - 1)]))
    return g.op("Transpose", y, perm=[0, *range(2, x.rank), 1])


def _pool(n, g, x):
    attrs = {k: v for k, v in n.attrs.items() if k != "channels_last"}
    return _channels_first(n, g, x, lambda x: g.op("AveragePool", x, **attrs))


_pointwise("QLinearAdd", _two_cases, lambda n, g, a, b: g.op("Add", a, b), 2)
_pointwise("QLinearMul", _two_cases, lambda n, g, a, b: g.op("Mul", a, b), 2)
_pointwise("QLinearSigmoid", _one_cases((2, 37), to=0.00391), lambda n, g, x: g.op("Sigmoid", x))
_pointwise("QLinearLeakyRelu", _one_cases((2, 37), alpha=0.1), lambda n, g, x: g.op("LeakyRelu", x, alpha=n.attr("alpha", 0.01)))
_pointwise("QLinearSoftmax", _softmax_cases, _softmax)
_pointwise("QLinearGlobalAveragePool", _one_cases((2, 3, 4, 5), (2, 3, 8), channels_last=0), lambda n, g, x: _channels_first(n, g, x, lambda x: g.op("GlobalAveragePool", x)))
_pointwise("QLinearAveragePool", _one_cases((2, 3, 8, 8), kernel_shape=[2, 2], strides=[2, 2]), _pool)

concat = Op("QLinearConcat", MS)  # (y's scale, zero, then tensors with scale and zero)


@concat.decompose
def _(n, g):
    if len(n.inputs) % 3 != 2:
        fail(n, f"it has {len(n.inputs)} inputs")
    return [_quantized(n, g, g.op("Concat", *(_real(n, g, i) for i in range(2, len(n.inputs), 3)), axis=n.attr("axis", 0)), 0, 2)]


@concat.cases
def _(t):
    parts = [x for k in (3, 5) for x in (_bytes(t, 2, k), t.const(t.of("float32", 2**-k)), _zero_of(t, "uint8"))]
    yield t(t.const(t.of("float32", 0.0613)), _zero_of(t, "uint8"), *parts, axis=1)


attention = Op("QAttention", MS)  # Attention of onnxruntime with quantized input and weights


@attention.decompose
def _(n, g):
    x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = [*n.inputs, *[None] * 9][:9]
    takes(n, (UINT8, INT8), 0, 1)
    x = g.op("DequantizeLinear", x, _scalar(g, x_scale), *([_scalar(g, x_zero)] if x_zero is not None else []))
    w = g.op("DequantizeLinear", w, _scalar(g, w_scale), *([_scalar(g, w_zero)] if w_zero is not None else []), axis=1)
    y = g.op("Attention", x, w, bias, mask, past, domain=MS, outputs=2 if n.wants(1) else 1, **n.attrs)
    return y if isinstance(y, list) else [y]


@attention.cases
def _(t):
    inputs = [_bytes(t, 2, 5, 12), t.const(_bytes(t, 12, 48, dtype="int8")), t.const(t.f(48)), _scale(t), _scale(t)]
    yield t(*inputs, None, _zero_of(t, "uint8"), num_heads=4, tol=1e-4)
    yield t(*inputs, t.of("int32", [3, 5]), _zero_of(t, "uint8"), t.const(t.of("int8", 0)), num_heads=4, tol=1e-4)
    yield t(*inputs, None, _zero_of(t, "uint8"), num_heads=4, unidirectional=1, tol=1e-4)

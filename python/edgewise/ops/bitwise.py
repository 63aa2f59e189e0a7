"""Ops on the bits of integers, and IsInf, which asks for a pattern of bits of floats."""
from __future__ import annotations

from .dtypes import BOOL, INTEGERS, FLOATS, RANGE, wrap
from .binary import FOLDS, emit_binary, fold_binary
from .unary import emit_unary
from .op import Op, broadcast, fail, like, unsupported

FOLDS.update({"bit_and": lambda a, c: a & c, "bit_or": lambda a, c: a | c, "bit_xor": lambda a, c: a ^ c})
_TYPES = set(RANGE) & INTEGERS


def _declare(name, kind):
    """kind(n): the binary operation's name."""
    o = Op(name)

    @o.infer
    def _(n):
        a, c = n.inputs
        if a.dtype not in _TYPES or c.dtype != a.dtype:
            fail(n, f"it takes two integer tensors of one type, not {a} and {c}")
        return [(a.dtype, broadcast(n, a.shape, c.shape))]

    @o.lower
    def _(n, b):
        emit_binary(b, kind(n), b.view(n.inputs[0]), b.view(n.inputs[1]), b.out(n.outputs[0]), n.inputs[0].dtype)

    @o.fold
    def _(n, outs):
        return fold_binary(kind(n), n, outs)
    return o


for _name, _op in {"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor"}.items():
    _o = _declare(_name, lambda n, op=_op: op)

    @_o.cases
    def _(t):
        for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
            yield t(t.n(dtype, 3, 5), t.n(dtype, 3, 5))
        yield t(t.n("int32", 2, 3, 37), t.n("int32", 37))
        yield t(t.n("int64", 2, 1, 3), t.n("int64", 4, 1))
        yield t(t.n("int32", 0, 3), t.n("int32", 3))
        yield t(t.n("int32"), t.n("int32"))


def _direction(n):
    direction = n.attr("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        fail(n, f"its direction is '{direction}'", "It is LEFT or RIGHT.")
    return "shift_left" if direction == "LEFT" else "shift_right"


def _shift(left):
    def shift(a, c):
        if not 0 <= c < 64:
            return -1 if a < 0 and not left else 0
        return a << c if left else a >> c
    return shift


FOLDS.update({"shift_left": _shift(True), "shift_right": _shift(False)})
bit_shift = _declare("BitShift", _direction)  # of signed integers the right shift is arithmetic; what is shifted by more bits than there are, or by a negative number, keeps its sign alone


@bit_shift.cases
def _(t):
    signed = {"opset": 28, "trust": "onnx", "why": "onnxruntime does not know this opset"}
    for direction in ("LEFT", "RIGHT"):
        for dtype in ("uint8", "uint16", "uint32", "uint64"):
            only = {"trust": "onnx", "why": "onnxruntime has not all types"} if dtype == "uint16" else {}
            yield t(t.n(dtype, 3, 5), t.n(dtype, 3, 5, low=0, high=7), direction=direction, **only)
        for dtype in ("int8", "int16", "int32", "int64", "uint32", "uint8"):
            yield t(t.n(dtype, 3, 5), t.n(dtype, 3, 5, low=0, high=7), direction=direction, **signed)
            bits = 8 * t.n(dtype).itemsize
            x, y = t.of(dtype, [[1], [100], [0]]) if dtype[0] == "u" else t.of(dtype, [[-100], [100], [-1]]), t.of(dtype, [bits, bits + 5, bits - 1])
            yield t(x, y, direction=direction, **signed)
        yield t(t.of("int32", [-7, 7, -7]), t.of("int32", [-1, -40, 40]), direction=direction, **signed)
        yield t(t.n("uint32", 4, 1), t.n("uint32", 5, low=0, high=31), direction=direction)


bitwise_not = Op("BitwiseNot")


@bitwise_not.infer
def _(n):
    if n.inputs[0].dtype not in _TYPES:
        fail(n, f"it takes integers, not {n.inputs[0]}")
    return [like(n, 0)]


@bitwise_not.lower
def _(n, b):
    emit_unary(b, n, "bit_not")


@bitwise_not.fold
def _(n, outs):
    return [[wrap(outs[0][0], ~x) for x in n.inputs[0].numbers]]


@bitwise_not.cases
def _(t):
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        yield t(t.n(dtype, 3, 7))
    yield t(t.n("int32"))
    yield t(t.n("int64", 0, 2))


is_inf = Op("IsInf")
any_inf = Op("IsInf", "edgewise")  # of either sign


@any_inf.infer
def _(n):
    return [like(n, 0, BOOL)]


@any_inf.lower
def _(n, b):
    emit_unary(b, n, "is_inf")


@is_inf.decompose
def _(n, g):
    x, positive, negative = n.inputs[0], n.attr("detect_positive", 1), n.attr("detect_negative", 1)
    if x.dtype not in FLOATS:
        unsupported(n, f"{x} has no infinities")
    if positive and negative:
        return [g.op("IsInf", x, domain="edgewise")]
    if not positive and not negative:
        return [g.op("And", *[g.op("IsInf", x, domain="edgewise"), g.constant(BOOL, [], [False])])]
    return [g.op("Equal", x, g.constant(x.dtype, [], [float("inf" if positive else "-inf")]))]


@is_inf.cases
def _(t):
    values = [1.0, float("inf"), float("-inf"), float("nan"), -3.0, 0.0]
    for attrs in ({}, {"detect_positive": 0}, {"detect_negative": 0}, {"detect_positive": 0, "detect_negative": 0}):
        yield t(t.of("float32", values), **attrs)
        yield t(t.of("float64", values), opset=10, **attrs)
        yield t(t.of("float16", values), opset=20, **attrs)
    yield t(t.f(3, 4))
    yield t(t.f(0, 4))
    yield t(t.f())

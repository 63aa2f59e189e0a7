"""Elementwise ops with broadcasting: unary, binary, Where, Cast, and the kernels under them."""
from __future__ import annotations

from .kernel import Enum, Kernel, read, write

UNARY = Enum("unary", ["neg", "abs", "sign", "floor", "ceil", "round", "sqrt", "reciprocal", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan",
                       "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid", "relu", "leaky_relu", "elu", "selu", "celu", "softplus", "softsign",
                       "hard_sigmoid", "hard_swish", "mish", "gelu", "gelu_tanh", "quick_gelu", "silu", "thresholded_relu", "clip", "not", "bit_not",
                       "is_nan", "is_inf", "rsqrt", "square", "linear"])
BINARY = Enum("binary", ["add", "sub", "mul", "div", "mod", "fmod", "pow", "min", "max", "equal", "less", "less_equal", "greater", "greater_equal",
                         "and", "or", "xor", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right", "prelu", "silu_mul", "gelu_mul", "gelu_tanh_mul"])
SLOPE = Enum("slope", ["step", "sigmoid", "tanh", "softsign", "hard_swish", "elu", "gelu", "gelu_tanh", "quick_gelu", "mish"])

ND = {"dims": "i32[6]"}

Kernel("unary", {"op": "i32", "type": "i32", **ND, "xs": "i32[6]", "ys": "i32[6]", "alpha": "f32", "beta": "f32"},
       [read("x", "bytes_of(type)", "hi(dims, xs)", "lo(dims, xs)"),
        write("y", "1 if op in (42, 43) else bytes_of(type)", "hi(dims, ys)", "lo(dims, ys)", inplace=["x"])],
       require=["op >= 0", "op < 47"], empty=["dims"], variants={"op": "UNARY_OP", "type": "UNARY_TYPE"},
       doc="y = op(x). is_nan and is_inf write bool. alpha, beta: LeakyRelu/Elu/Celu/ThresholdedRelu alpha, Selu (alpha, gamma), HardSigmoid (alpha, beta), "
           "clip (min, max; for integer types too, as float bounds clamped to the type), quick_gelu alpha, linear alpha*x+beta. Types: float32, float64 for all; int32, int64 (and other ints) for "
           "neg abs sign clip relu square bit_not; bool for not. round is half to even.")

Kernel("unary_grad", {"op": "i32", **ND, "dys": "i32[6]", "xs": "i32[6]", "dxs": "i32[6]", "alpha": "f32", "beta": "f32"},
       [read("dy", 4, "hi(dims, dys)", "lo(dims, dys)"), read("x", 4, "hi(dims, xs)", "lo(dims, xs)"), write("dx", 4, "hi(dims, dxs)", "lo(dims, dxs)", inplace=["dy", "x"])],
       require=["op >= 0", "op < 10"], empty=["dims"],
       doc="dx = dy f'(x). step: 1 where x > beta, else alpha; elu: alpha e^(beta x) where x <= 0; quick_gelu: x sigmoid(alpha x). sigmoid, tanh and softsign: x is f's output.")

Kernel("binary", {"op": "i32", "type": "i32", **ND, "as": "i32[6]", "bs": "i32[6]", "ys": "i32[6]"},
       [read("a", "bytes_of(type)", "hi(dims, as)", "lo(dims, as)"), read("b", "bytes_of(type)", "hi(dims, bs)", "lo(dims, bs)"),
        write("y", "1 if op >= 9 and op <= 13 else bytes_of(type)", "hi(dims, ys)", "lo(dims, ys)", inplace=["a", "b"])],
       require=["op >= 0", "op < 26"], empty=["dims"], variants={"op": "BINARY_OP", "type": "BINARY_TYPE"},
       doc="y = a op b with broadcasting by zero strides. equal..greater_equal write bool; and/or/xor take bool. Integer division truncates; integer mod has the sign "
           "of the divisor, fmod that of the dividend; dividing an integer by zero gives 0. silu_mul: (a*sigmoid(a))*b, gelu_mul, gelu_tanh_mul alike.")

Kernel("where", {"size": "i32", **ND, "cs": "i32[6]", "as": "i32[6]", "bs": "i32[6]", "ys": "i32[6]"},
       [read("condition", 1, "hi(dims, cs)", "lo(dims, cs)"), read("a", "size", "hi(dims, as)", "lo(dims, as)"), read("b", "size", "hi(dims, bs)", "lo(dims, bs)"),
        write("y", "size", "hi(dims, ys)", "lo(dims, ys)", inplace=["a", "b"])],
       require=["size in (1, 2, 4, 8)"], empty=["dims"], variants={"size": "WHERE_SIZE"}, doc="y = condition ? a : b.")

Kernel("cast", {"x_type": "i32", "y_type": "i32", "mode": "i32", **ND, "xs": "i32[6]", "ys": "i32[6]"},
       [read("x", "bytes_of_any(x_type)", "hi(dims, xs)", "lo(dims, xs)"), write("y", "bytes_of_any(y_type)", "hi(dims, ys)", "lo(dims, ys)")], empty=["dims"], variants={"x_type": "CAST_FROM", "y_type": "CAST_TO"},
       doc="ONNX Cast between all number types. float to integer truncates, saturating (NaN gives 0; types of less than a byte keep the low bits of that); to bool: x != 0; "
           "to floats of 16 bits and fewer: round to nearest even. Types of less than a byte are unpacked here, the bits of each in a byte. mode, of floats of 8 bits: 1: what is too large "
           "does not saturate; 2: float8e8m0 rounds down, 4: to nearest, else up.")

Kernel("pack", {"bits": "i32", "n": "i32", "unpack": "i32"},
       [read("x", 1, "ceil_div(n * bits, 8) if unpack else n"), write("y", 1, "n if unpack else ceil_div(n * bits, 8)")],
       require=["bits in (2, 4, 6)"], empty=["n"], doc="n elements of less than a byte, from the low bits of a byte each to one behind the other, the low bits first; or back.")


# ---- ops ----------------------------------------------------------------------------------------------------------------------
import math

from .dtypes import BFLOAT16, BOOL, DOUBLE, FLOAT, FLOAT16, FLOATS, INTEGERS, MINIFLOATS, NAME, decode, encode, size_of, wrap
from ..errors import MissingGradient
from .op import MS, OPS, Op, broadcast, fail, like, read_as, takes, unsupported
from .symbolic import NotStatic, Sym, decide_equal


def emit_unary(b, n, op, x=None, alpha=0.0, beta=0.0, dtype=None):
    v = n.inputs[0]
    x = b.view(v) if x is None else x
    y = b.out(n.outputs[0])
    b.nd("unary", y.shape, {"x": x, "y": y}, {"xs": "x", "ys": "y"}, op=UNARY[op], type=dtype or v.dtype, alpha=alpha, beta=beta)


def emit_binary(b, op, a, c, y, dtype):
    b.nd("binary", y.shape, {"a": a.broadcast(y.shape), "b": c.broadcast(y.shape), "y": y}, {"as": "a", "bs": "b", "ys": "y"}, op=BINARY[op], type=dtype)


def _round_even(x):
    return float(round(x)) if math.isfinite(x) else x


def _guard(f, at_domain_error):
    def g(*x):
        try:
            return f(*x)
        except (ValueError, OverflowError, ZeroDivisionError):
            return at_domain_error
    return g


NAN, INF = float("nan"), float("inf")
_PY = {"neg": lambda x: -x, "abs": abs, "sign": lambda x: (x > 0) - (x < 0) if x == x else x, "floor": lambda x: float(math.floor(x)) if math.isfinite(x) else x, "ceil": lambda x: float(math.ceil(x)) if math.isfinite(x) else x, "round": _round_even,
       "sqrt": _guard(math.sqrt, NAN), "reciprocal": lambda x: 1 / x if x else math.copysign(INF, x), "exp": _guard(math.exp, INF), "log": lambda x: math.log(x) if x > 0 else (-INF if x == 0 else NAN),
       "sin": _guard(math.sin, NAN), "cos": _guard(math.cos, NAN), "tanh": math.tanh, "erf": math.erf, "not": lambda x: not x, "is_nan": lambda x: x != x,
       "relu": lambda x: 0 if x < 0 else x, "sigmoid": lambda x: 0.0 if x < -700 else 1 / (1 + math.exp(-x))}


_RANGE_OF = {"sqrt": (0, 50), "log": (1e-6, 50), "asin": (-1, 1), "acos": (-1, 1), "atanh": (-0.99, 0.99), "acosh": (1, 50), "tan": (-1.5, 1.5)}


def _unary_cases(op, ints=False, opset=21, attrs=()):
    def cases(t):
        low, high = _RANGE_OF.get(op, (-6, 6))
        for shape in ((), (1,), (3, 5), (2, 3, 37), (0, 4), (260,)):
            yield t(t.f(*shape, low=low, high=high), opset=opset)
        for dtype in ("float64", "float16"):
            other = {"same_as": ("", "Gelu")} if t.domain and op == "gelu" and dtype == "float64" else {}  # onnxruntime has no double one
            yield t(t.f(4, 9, low=low, high=high, dtype=dtype), opset=opset, **other)
        yield t(t.of("float32", [0.0, -0.0, INF, -INF, NAN, 0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 30, -30, 100, -100, 1e-30]), opset=opset)
        for dtype in ("int8", "int16", "int32", "int64") if ints else ():
            yield t(t.n(dtype, 3, 7), opset=opset)
        for a in attrs:
            yield t(t.f(3, 11, low=low, high=high), opset=opset, **a)
    return cases


def _declare_unary(name, op, ints=False, alpha=None, beta=None, domain="", opset=21):
    o = Op(name, domain)
    o.cases(_unary_cases(op, ints, opset, [{alpha[0]: 0.3}] + ([{alpha[0]: 0.7, beta[0]: 0.25}] if beta else []) if alpha else []))

    @o.infer
    def _(n):
        v = n.inputs[0]
        if v.dtype not in FLOATS and not (ints and v.dtype in INTEGERS):
            fail(n, f"the element type of its input is not one {name} takes")
        return [like(n, 0, BOOL if op in ("is_nan", "is_inf") else None)]

    @o.lower
    def _(n, b):
        emit_unary(b, n, op, alpha=n.attr(*alpha) if alpha else 0.0, beta=n.attr(*beta) if beta else 0.0)

    if op in _PY:
        @o.fold
        def _(n, outs):
            f, dt = _PY[op], outs[0][0]
            return [[wrap(dt, f(x)) if not isinstance(x, Sym) else f(x) for x in n.inputs[0].numbers]]
    return o


for _name, _op in {"Sqrt": "sqrt", "Reciprocal": "reciprocal", "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos",
                   "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf", "Sigmoid": "sigmoid",
                   "Softplus": "softplus", "Softsign": "softsign", "HardSwish": "hard_swish", "Mish": "mish", "IsNaN": "is_nan", "Floor": "floor", "Ceil": "ceil", "Round": "round"}.items():
    _declare_unary(_name, _op)
for _name, _op in {"Neg": "neg", "Abs": "abs", "Sign": "sign", "Relu": "relu"}.items():
    _declare_unary(_name, _op, ints=True)
_declare_unary("LeakyRelu", "leaky_relu", alpha=("alpha", 0.01))
_declare_unary("Elu", "elu", alpha=("alpha", 1.0))
_declare_unary("Celu", "celu", alpha=("alpha", 1.0))
_declare_unary("Selu", "selu", alpha=("alpha", 1.67326319217681884765625), beta=("gamma", 1.05070102214813232421875))
_declare_unary("HardSigmoid", "hard_sigmoid", alpha=("alpha", 0.2), beta=("beta", 0.5))
_declare_unary("ThresholdedRelu", "thresholded_relu", alpha=("alpha", 1.0))
_declare_unary("QuickGelu", "quick_gelu", alpha=("alpha", 1.702), domain=MS)
_declare_unary("SiLU", "silu", domain="edgewise")           # made by passes/activations.py
_declare_unary("Swish", "quick_gelu", alpha=("alpha", 1.0), opset=24)
_declare_unary("Gelu", "gelu", domain=MS)

# Slopes of one pass over memory. What can be told from the output is: the input need not be kept, and an activation can still be taken into the product before it.

unary_grad = Op("UnaryGrad", "edgewise")


@unary_grad.infer
def _(n):
    takes(n, (FLOAT,), 0, 1)
    return [like(n, 0)]


@unary_grad.lower
def _(n, b):
    dx = b.out(n.outputs[0])
    b.nd("unary_grad", dx.shape, {"dy": b.view(n.inputs[0]), "x": b.view(n.inputs[1]), "dx": dx}, {"dys": "dy", "xs": "x", "dxs": "dx"},
         op=SLOPE[n.attrs["slope"]], alpha=n.attr("alpha", 0.0), beta=n.attr("beta", 0.0))


@unary_grad.grad
def _(n, g, ddx):
    """The second derivatives that are simple."""
    dy, y = n.inputs
    slope, second = n.attrs["slope"], None
    if g.wants(1) and slope != "step":
        if slope not in ("sigmoid", "tanh"):
            raise MissingGradient(f"the second derivative of {slope} is not there", n.where, "Differentiate a model with other activations twice.")
        second = g.mul(g.mul(ddx, dy), g.scale(y, -2.0) if slope == "tanh" else g.sub(g.number(1.0), g.scale(y, 2.0)))
    return [g.op("UnaryGrad", ddx, y, domain="edgewise", **n.attrs) if g.wants(0) else None, second]


def slope(g, dy, x, name, alpha=0.0, beta=0.0):
    return g.op("UnaryGrad", dy, x, domain="edgewise", slope=name, alpha=alpha, beta=beta)


def scaled(g, v, factor):
    """v times a number, of v's type."""
    return v if factor == 1 else g.mul(v, g.constant(v.dtype, [], [float(factor)]))


def _plus(g, v, number):
    return g.add(v, g.constant(v.dtype, [], [float(number)]))


def _root(g, v):
    return g.op("Sqrt", v)


def _leaky_relu(n, g, dy):  # the output has the input's sign unless alpha turns it
    alpha = n.attr("alpha", 0.01)
    return slope(g, dy, n.outputs[0] if alpha >= 0 else n.inputs[0], "step", alpha)


def _selu(n, g, dy):
    return slope(g, scaled(g, dy, n.attr("gamma", 1.05070102214813232421875)), n.inputs[0], "elu", n.attr("alpha", 1.67326319217681884765625), 1.0)


def _hard_sigmoid(n, g, dy):
    y = n.outputs[0]
    inside = g.op("And", g.op("Greater", y, g.constant(y.dtype, [], [0.0])), g.op("Less", y, g.constant(y.dtype, [], [1.0])))
    return _where(g, inside, scaled(g, dy, n.attr("alpha", 0.2)))


def _where(g, condition, v, other=None):
    return g.op("Where", condition, v, g.constant(v.dtype, [], [0.0]) if other is None else other)


def _of_x(f):
    return lambda n, g, dy: f(g, dy, n.inputs[0])


def _of_y(f):
    return lambda n, g, dy: f(g, dy, n.outputs[0])


_SLOPES = {
    "Neg": _of_x(lambda g, dy, x: g.neg(dy)),
    "Abs": _of_x(lambda g, dy, x: g.mul(dy, g.op("Sign", x))),
    "Sqrt": _of_y(lambda g, dy, y: g.div(scaled(g, dy, 0.5), y)),
    "Reciprocal": _of_y(lambda g, dy, y: g.neg(g.mul(dy, g.mul(y, y)))),
    "Exp": _of_y(lambda g, dy, y: g.mul(dy, y)),
    "Log": _of_x(lambda g, dy, x: g.div(dy, x)),
    "Sin": _of_x(lambda g, dy, x: g.mul(dy, g.op("Cos", x))),
    "Cos": _of_x(lambda g, dy, x: g.neg(g.mul(dy, g.op("Sin", x)))),
    "Tan": _of_y(lambda g, dy, y: g.mul(dy, _plus(g, g.mul(y, y), 1))),
    "Asin": _of_x(lambda g, dy, x: g.div(dy, _root(g, _plus(g, g.neg(g.mul(x, x)), 1)))),
    "Acos": _of_x(lambda g, dy, x: g.neg(g.div(dy, _root(g, _plus(g, g.neg(g.mul(x, x)), 1))))),
    "Atan": _of_x(lambda g, dy, x: g.div(dy, _plus(g, g.mul(x, x), 1))),
    "Sinh": _of_x(lambda g, dy, x: g.mul(dy, g.op("Cosh", x))),
    "Cosh": _of_x(lambda g, dy, x: g.mul(dy, g.op("Sinh", x))),
    "Asinh": _of_x(lambda g, dy, x: g.div(dy, _root(g, _plus(g, g.mul(x, x), 1)))),
    "Acosh": _of_x(lambda g, dy, x: g.div(dy, _root(g, _plus(g, g.mul(x, x), -1)))),
    "Atanh": _of_x(lambda g, dy, x: g.div(dy, _plus(g, g.neg(g.mul(x, x)), 1))),
    "Erf": _of_x(lambda g, dy, x: g.mul(scaled(g, dy, 2 / math.sqrt(math.pi)), g.op("Exp", g.neg(g.mul(x, x))))),
    "Softplus": _of_x(lambda g, dy, x: g.mul(dy, g.op("Sigmoid", x))),
    "Sigmoid": _of_y(lambda g, dy, y: slope(g, dy, y, "sigmoid")),
    "Tanh": _of_y(lambda g, dy, y: slope(g, dy, y, "tanh")),
    "Softsign": _of_y(lambda g, dy, y: slope(g, dy, y, "softsign")),
    "Relu": _of_y(lambda g, dy, y: slope(g, dy, y, "step")),
    "LeakyRelu": _leaky_relu,
    "ThresholdedRelu": lambda n, g, dy: slope(g, dy, n.inputs[0], "step", 0.0, n.attr("alpha", 1.0)),
    "Elu": lambda n, g, dy: slope(g, dy, n.inputs[0], "elu", n.attr("alpha", 1.0), 1.0),
    "Celu": lambda n, g, dy: slope(g, dy, n.inputs[0], "elu", 1.0, 1.0 / n.attr("alpha", 1.0)),
    "Selu": _selu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _of_x(lambda g, dy, x: slope(g, dy, x, "hard_swish")),
    "Mish": _of_x(lambda g, dy, x: slope(g, dy, x, "mish")),
    "SiLU": _of_x(lambda g, dy, x: slope(g, dy, x, "quick_gelu", 1.0)),
    "Swish": lambda n, g, dy: slope(g, dy, n.inputs[0], "quick_gelu", n.attr("alpha", 1.0)),
    "QuickGelu": lambda n, g, dy: slope(g, dy, n.inputs[0], "quick_gelu", n.attr("alpha", 1.702)),
    "Gelu": lambda n, g, dy: slope(g, dy, n.inputs[0], "gelu_tanh" if n.attr("approximate", "none") == "tanh" else "gelu"),
    **dict.fromkeys(("Sign", "Floor", "Ceil", "Round"), lambda n, g, dy: None),
}

gelu = Op("Gelu")
for _name, _rule in _SLOPES.items():
    for _domain in ("", MS, "edgewise"):
        if (_domain, _name) in OPS:
            OPS[_domain, _name].grad(lambda n, g, dy, rule=_rule: [rule(n, g, dy)])


@gelu.infer
def _(n):
    takes(n, (FLOAT, DOUBLE), 0)
    return [like(n, 0)]


@gelu.lower
def _(n, b):
    emit_unary(b, n, "gelu_tanh" if n.attr("approximate", "none") == "tanh" else "gelu")


gelu.cases(_unary_cases("gelu", attrs=[{"approximate": "tanh"}, {"approximate": "none"}]))

fast_gelu = Op("FastGelu", MS)


@fast_gelu.decompose
def _(n, g):
    x = g.op("Add", n.inputs[0], n.inputs[1]) if n.has(1) else n.inputs[0]
    return [g.op("Gelu", x, approximate="tanh")]


@fast_gelu.cases
def _(t):
    yield t(t.f(2, 3, 37))
    yield t(t.f(2, 3, 37), t.f(37))


bias_gelu = Op("BiasGelu", MS)


@bias_gelu.decompose
def _(n, g):
    return [g.op("Gelu", g.op("Add", n.inputs[0], n.inputs[1]))]


@bias_gelu.cases
def _(t):
    yield t(t.f(2, 3, 37), t.f(37))


swiglu = Op("SwiGLU")


@swiglu.decompose
def _(n, g):
    a, b = n.inputs
    if a.shape != b.shape:
        fail(n, f"the gate {a} and {b} have different shapes")
    return [g.op("Mul", g.op("Swish", a, alpha=n.attr("alpha", 1.0)), b)]


@swiglu.cases
def _(t):
    only = {"opset": 28, "trust": "onnx", "why": "newer than onnxruntime"}
    yield t(t.f(2, 3, 37), t.f(2, 3, 37), **only)
    yield t(t.f(5), t.f(5), alpha=1.702, **only)
    yield t(t.f(3, 5, dtype="float16"), t.f(3, 5, dtype="float16"), **only)
    yield t(t.f(3, 5, dtype="float64"), t.f(3, 5, dtype="float64"), alpha=0.5, **only)


not_ = Op("Not")


@not_.infer
def _(n):
    if n.inputs[0].dtype != BOOL:
        fail(n, f"it wants bools, not {n.inputs[0]}")
    return [like(n, 0)]


@not_.lower
def _(n, b):
    emit_unary(b, n, "not")


@not_.fold
def _(n, outs):
    return [[not x for x in n.inputs[0].numbers]]


@not_.cases
def _(t):
    yield t(t.b(3, 37))
    yield t(t.b())
    yield t(t.b(0, 2))


def _check_same(n):
    a, c = n.inputs[0], n.inputs[1]
    if a.dtype != c.dtype:
        fail(n, f"its inputs have different element types ({a} and {c})")


def _int_div(a, c):
    if isinstance(a, Sym) or isinstance(c, Sym):
        return a // c
    return 0 if c == 0 else (abs(a) // abs(c)) * (1 if (a < 0) == (c < 0) else -1)


def _float_div(a, c):
    return a / c if c else (NAN if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1, c))


_float_mod = _guard(math.fmod, NAN)


def _pow(a, c):
    if isinstance(a, int) and isinstance(c, int) and not isinstance(a, Sym):
        if c < 0:  # as the kernel does: only 1 and -1 have a whole inverse
            return a ** -(c % 2) if a in (1, -1) else 0
        return pow(a, c, 1 << 64) if c > 64 else a ** c  # `wrap` takes what the type holds
    try:
        r = a ** c
        return NAN if isinstance(r, complex) else r
    except OverflowError:
        return INF
    except ZeroDivisionError:
        return INF


_PY2 = {"add": lambda a, c: a + c, "sub": lambda a, c: a - c, "mul": lambda a, c: a * c, "pow": _pow, "min": lambda a, c: c if c < a or c != c else a, "max": lambda a, c: c if c > a or c != c else a,
        "equal": decide_equal, "less": lambda a, c: a < c, "less_equal": lambda a, c: a <= c, "greater": lambda a, c: a > c, "greater_equal": lambda a, c: a >= c,
        "and": lambda a, c: a and c, "or": lambda a, c: a or c, "xor": lambda a, c: a != c,
        "mod": lambda a, c: a % c if c else 0, "fmod": lambda a, c: a - _int_div(a, c) * c if c and isinstance(a, int) else 0 if isinstance(a, int) else _float_mod(a, c)}
COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
LOGICAL = ("and", "or", "xor")


def _binary_cases(op):
    def cases(t):
        attrs = {"fmod": 1} if op == "mod" else {}
        for a, c in [((3, 4), (3, 4)), ((2, 3, 37), (37,)), ((2, 3, 4), (3, 1)), ((2, 2), ()), ((), ()), ((7,), (1,)), ((0, 3), (1, 3))] + ([] if op == "prelu" else [
                ((), (2, 2)), ((5, 1, 3), (1, 4, 1)), ((1, 3), (0, 3)), ((2, 1, 3, 1, 2, 1), (1, 2, 1, 3, 1, 2))]):
            yield t(t.b(*a), t.b(*c)) if op in LOGICAL else t(t.f(*a), t.f(*c), **attrs)
        if op in LOGICAL:
            return
        for dtype in ("float64", "float16"):
            yield t(t.f(4, 9, dtype=dtype), t.f(9, dtype=dtype), **attrs)
        special = [0.0, -0.0, INF, -INF, NAN, 1.0, -2.5]
        yield t(t.of("float32", special).reshape(7, 1), t.of("float32", special if op != "prelu" else [0.5]), **attrs)
        for dtype in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
            x, y = t.n(dtype, 3, 1, 8), t.n(dtype, 2, 1) if op != "prelu" else t.n(dtype, 8)
            if op == "prelu" and dtype[-1] in "86" and dtype != "int64":
                continue  # not in its type list
            if op in ("div", "mod"):
                y[y == 0] = 3
            yield t(x, y) if op != "div" or dtype[0] == "u" else t(x, y, trust="ort", why="integers are divided towards zero, as C does; the reference evaluator rounds down")
            if op == "mod":
                yield t(x, y, fmod=1)
        if op == "equal":
            yield t(t.b(3, 4), t.b(4))
    return cases


def _fold_binary(op, n, outs):
    dt, shape = outs[0]
    f = _PY2[op] if op != "div" else (_float_div if n.inputs[0].dtype in FLOATS else _int_div)
    pairs = zip(read_as(n.inputs[0], shape), read_as(n.inputs[1], shape))
    out = []
    for a, c in pairs:
        r = f(a, c)
        out.append(r if isinstance(r, Sym) else wrap(dt, r))
    return [out]


def _declare_binary(name, op, domain=""):
    o = Op(name, domain)

    @o.infer
    def _(n):
        _check_same(n)
        axis = n.attrs.get("axis")  # of opsets before 7: where the second operand's dimensions begin
        if axis is not None and (type(axis) is not int or axis % max(n.inputs[0].rank, 1) + n.inputs[1].rank != n.inputs[0].rank):
            unsupported(n, f"broadcasting along axis {axis}, as opsets before 7 had it", "Export the model again with a newer opset.")
        if op in ("and", "or", "xor") and n.inputs[0].dtype != BOOL or n.inputs[0].dtype == BOOL and op not in ("and", "or", "xor", "equal"):
            fail(n, f"it does not take {n.inputs[0]}")
        shape = broadcast(n, n.inputs[0].shape, n.inputs[1].shape)
        if op == "prelu" and shape != n.inputs[0].shape:
            fail(n, f"its slope {n.inputs[1]} does not broadcast to {n.inputs[0]}")
        return [(BOOL if op in COMPARISONS else n.inputs[0].dtype, shape)]

    @o.lower
    def _(n, b):
        kind = op
        if op == "mod" and n.attr("fmod", 0):
            kind = "fmod"
        emit_binary(b, kind, b.view(n.inputs[0]), b.view(n.inputs[1]), b.out(n.outputs[0]), n.inputs[0].dtype)

    if not domain:
        o.cases(_binary_cases(op))
    if op in _PY2 or op == "div":
        @o.fold
        def _(n, outs):
            return _fold_binary("fmod" if op == "mod" and n.attr("fmod", 0) else op, n, outs)
    return o


for _name, _op in {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Mod": "mod", "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal", "Greater": "greater",
                   "GreaterOrEqual": "greater_equal", "And": "and", "Or": "or", "Xor": "xor", "PRelu": "prelu"}.items():
    _declare_binary(_name, _op)
for _name, _op in {"SiLUMul": "silu_mul", "GeluMul": "gelu_mul", "GeluTanhMul": "gelu_tanh_mul"}.items():  # made by passes/activations.py
    _declare_binary(_name, _op, "edgewise")
_declare_binary("MinOf2", "min", "edgewise")
_declare_binary("MaxOf2", "max", "edgewise")
_declare_binary("PowSame", "pow", "edgewise")



@OPS["", "PRelu"].decompose
def _(n, g):
    """Before opset 7 a vector of slopes has one for each channel, not one for each element of the last dimension."""
    x, w = n.inputs
    if n.opset >= 7 or w.rank != 1 or x.rank < 3 or w.shape[0] == 1:
        return None
    return [g.op("PRelu", x, g.reshape(w, [w.shape[0]] + [1] * (x.rank - 2)))]


def _grad_add(n, g, dy):
    return [g.sum_to(dy, v.shape) if g.wants(i) else None for i, v in enumerate(n.inputs)]


def _grad_sub(n, g, dy):
    a, c = n.inputs
    return [g.sum_to(dy, a.shape) if g.wants(0) else None, g.neg(g.sum_to(dy, c.shape)) if g.wants(1) else None]


def _grad_mul(n, g, dy):
    a, c = n.inputs
    if a is c:
        return [scaled(g, g.mul(dy, a), 2), None]
    return [g.sum_to(g.mul(dy, c), a.shape) if g.wants(0) else None, g.sum_to(g.mul(dy, a), c.shape) if g.wants(1) else None]


def _grad_div(n, g, dy):
    a, c = n.inputs
    da = g.div(dy, c)
    return [g.sum_to(da, a.shape) if g.wants(0) else None, g.neg(g.sum_to(g.mul(da, n.outputs[0]), c.shape)) if g.wants(1) else None]


def _grad_mod(n, g, dy):
    a, c = n.inputs
    dc = None
    if g.wants(1):
        q = g.div(a, c)
        whole = g.mul(g.op("Sign", q), g.op("Floor", g.op("Abs", q))) if n.attr("fmod", 0) else g.op("Floor", q)
        dc = g.neg(g.sum_to(g.mul(dy, whole), c.shape))
    return [g.sum_to(dy, a.shape) if g.wants(0) else None, dc]


def _grad_pow(n, g, dy):
    """As PyTorch's: nothing reaches the base where the exponent is 0, nor the exponent where 0 is raised to 0 or more."""
    a, e = n.inputs
    zero, da, de, p = g.constant(a.dtype, [], [0.0]), None, None, e.scalar()
    if g.wants(0) and p is not None:
        da = g.sum_to(g.mul(scaled(g, dy, p), g.op("Pow", a, g.constant(a.dtype, [], [p - 1.0]))), a.shape) if p else None
    elif g.wants(0):
        da = g.sum_to(_where(g, g.op("Equal", e, zero), zero, g.mul(dy, g.mul(e, g.op("Pow", a, _plus(g, e, -1))))), a.shape)
    if g.wants(1):
        nothing = g.op("And", g.op("Equal", a, zero), g.op("GreaterOrEqual", e, zero))
        de = g.sum_to(_where(g, nothing, zero, g.mul(dy, g.mul(n.outputs[0], g.op("Log", a)))), e.shape)
    return [da, de]


def _grad_extreme(less):
    """Of the smaller or larger of two. Equals get half each, as PyTorch's minimum and maximum; ties="first": the first gets all, as PyTorch's clamp."""
    def rule(n, g, dy):
        def part(v, other, at_tie):
            nothing = g.constant(dy.dtype, [], [0.0])
            if at_tie == 0.5:
                nothing = _where(g, g.op("Equal", v, other), scaled(g, dy, 0.5))
            return g.sum_to(_where(g, g.op(less + ("OrEqual" if at_tie == 1 else ""), v, other), dy, nothing), v.shape)
        first = n.attr("ties", "") == "first"
        a, c = n.inputs
        return [part(a, c, 1 if first else 0.5) if g.wants(0) else None, part(c, a, 0 if first else 0.5) if g.wants(1) else None]
    return rule


def _grad_prelu(n, g, dy):
    x, w = n.inputs
    positive = g.op("Greater", x, g.constant(x.dtype, [], [0.0]))
    return [_where(g, positive, dy, g.mul(dy, w)) if g.wants(0) else None,
            g.sum_to(_where(g, positive, g.constant(x.dtype, [], [0.0]), g.mul(dy, x)), w.shape) if g.wants(1) else None]


def _grad_gated(name, *of):
    """Of activation(a) * b: what reaches b is activation(a) * dy, the same op again."""
    def rule(n, g, dy):
        a, b = n.inputs
        return [slope(g, g.mul(dy, b), a, *of) if g.wants(0) else None, g.op(name, a, dy, domain="edgewise") if g.wants(1) else None]
    return rule


for _key, _rule in {("", "Add"): _grad_add, ("", "Sub"): _grad_sub, ("", "Mul"): _grad_mul, ("", "Div"): _grad_div, ("", "Mod"): _grad_mod, ("", "PRelu"): _grad_prelu,
                    ("edgewise", "PowSame"): _grad_pow, ("edgewise", "MinOf2"): _grad_extreme("Less"), ("edgewise", "MaxOf2"): _grad_extreme("Greater"),
                    ("edgewise", "SiLUMul"): _grad_gated("SiLUMul", "quick_gelu", 1.0), ("edgewise", "GeluMul"): _grad_gated("GeluMul", "gelu"),
                    ("edgewise", "GeluTanhMul"): _grad_gated("GeluTanhMul", "gelu_tanh")}.items():
    OPS[_key].grad(_rule)

pow_ = Op("Pow")


@pow_.decompose
def _(n, g):
    x, e = n.inputs[:2]
    if e.scalar() is not None and not isinstance(e.scalar(), Sym) and e.rank <= x.rank and x.dtype in FLOATS:
        p = e.scalar()
        if p == 2:
            return [g.op("Mul", x, x)]
        if p == 1:
            return [x]
        if p == 0.5:
            return [g.op("Sqrt", x)]
        if p == 3:
            return [g.op("Mul", g.op("Mul", x, x), x)]
    if x.dtype in INTEGERS and e.dtype in FLOATS:  # the power is a float's, the result an integer again
        return [g.op("Cast", g.op("PowSame", g.op("Cast", x, to=DOUBLE), g.op("Cast", e, to=DOUBLE), domain="edgewise"), to=x.dtype)]
    return [g.op("PowSame", x, e if e.dtype == x.dtype else g.op("Cast", e, to=x.dtype), domain="edgewise")]


@pow_.cases
def _(t):
    for e in (2.0, 3.0, 1.0, 0.5, -1.0, 0.0, 1.7):
        yield t(t.f(3, 37, low=0.1, high=5), e)
    for e in (2.0, 3.0, -2.0):
        yield t(t.f(3, 5), e)
    yield t(t.f(3, 1, 5, low=0, high=3), t.f(2, 5))
    yield t(t.f(3, 5), 2)
    yield t(t.f(3, 5, dtype="float64"), t.of("float32", [2, 3, 1, 0, 5]))
    yield t(t.f(5, low=0.5, high=2, dtype="float16"), t.of("float16", [2, 3, 1, 0, 5]))
    yield t(t.n("int32", 3, 4, low=-4, high=4), t.n("int32", 4, low=0, high=4))
    yield t(t.n("int64", 3, 4, low=-4, high=4), 2)
    yield t(t.n("int64", 3, 5, low=0, high=9), t.f(5, low=0, high=4))
    yield t(t.n("int32", 3, 4, low=-4, high=4), 3.0)
    yield t(t.f(2, 1), t.f(1, 1, 1, 1))
    yield t(t.f(0, 3), 2.0)
    yield t(t.of("float32", [0.0, -0.0, INF, -INF, NAN, 2.0, -8.0]).reshape(7, 1), t.of("float32", [0.0, 0.5, 2.0, 3.0, -1.0, INF, NAN]))


shrink = Op("Shrink")


@shrink.decompose
def _(n, g):
    x, lambd, bias = n.inputs[0], n.attr("lambd", 0.5), n.attr("bias", 0.0)
    if x.dtype not in FLOATS:
        unsupported(n, "integers are not shrunk")
    low, high, b = (g.constant(x.dtype, [], [v]) for v in (-lambd, lambd, bias))
    inner = _where(g, g.op("Greater", x, high), g.op("Sub", x, b))
    return [g.op("Where", g.op("Less", x, low), g.op("Add", x, b), inner)]


@shrink.cases
def _(t):
    for shape in ((), (3, 7), (0, 4)):
        yield t(t.f(*shape))
    yield t(t.f(3, 7), lambd=0.3, bias=0.2)
    yield t(t.f(3, 7), lambd=0.0, bias=-0.5)
    yield t(t.f(4, 5, dtype="float64"), bias=0.25)
    yield t(t.f(4, 5, dtype="float16"), bias=0.25)


def _variadic(name, op, domain="", mean=False):
    o = Op(name)

    @o.cases
    def _(t):
        yield t(t.f(2, 3))
        yield t(t.f(2, 3), t.f(2, 3))
        yield t(t.f(2, 1, 3), t.f(4, 1), t.f(3), t.f())
        yield t(t.f(0, 3), t.f(1, 3))
        yield t(t.f(2, 3, dtype="float64"), t.f(3, dtype="float64"))
        yield t(t.f(2, 3, dtype="float16"), t.f(3, dtype="float16"))
        if "Of2" in op:
            yield t(t.of("float32", [1, NAN, 2, -INF]), t.of("float32", [NAN, 1, 3, INF]))
            for dtype in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
                yield t(t.n(dtype, 3, 5), t.n(dtype, 5))

    @o.decompose
    def _(n, g):
        if not n.inputs:
            fail(n, "it has no input")
        out = n.inputs[0]
        for v in n.inputs[1:]:
            out = g.op(op, out, v, domain=domain)
        return [g.op("Div", out, g.constant(out.dtype, [], [float(len(n.inputs)) if out.dtype in FLOATS else len(n.inputs)])) if mean and len(n.inputs) > 1 else out]


_variadic("Min", "MinOf2", "edgewise")
_variadic("Max", "MaxOf2", "edgewise")
_variadic("Sum", "Add")
_variadic("Mean", "Add", mean=True)

clip = Op("Clip")


@clip.decompose
def _(n, g):
    x = n.inputs[0]
    if n.opset < 11:
        low = g.constant(x.dtype, [], [n.attr("min")]) if n.attr("min") is not None else None
        high = g.constant(x.dtype, [], [n.attr("max")]) if n.attr("max") is not None else None
    else:
        low, high = n.input(1), n.input(2)
        for i, bound in ((1, low), (2, high)):
            if bound is not None and any(d != 1 for d in bound.shape):
                fail(n, f"its bounds are single numbers, input {i} is {bound}")
    if low is not None:
        x = g.op("MaxOf2", x, low, domain="edgewise", ties="first")
    if high is not None:
        x = g.op("MinOf2", x, high, domain="edgewise", ties="first")
    return [x]


@clip.cases
def _(t):
    yield t(t.f(3, 7), -0.5, 0.5)
    yield t(t.f(3, 7), None, 0.5)
    yield t(t.f(3, 7), -0.5)
    yield t(t.f(3, 7))
    yield t(t.f(3, 7), 0.5, -0.5)
    yield t(t.f(3, 7), -0.5, 0.5, opset=11)
    yield t(t.f(3, 7), opset=6, min=-0.5, max=0.5)
    yield t(t.f(3, 7), opset=6, min=-0.5)
    yield t(t.f(3, 7), opset=6)
    yield t(t.of("float32", [NAN, INF, -INF, 0.2]), -0.5, 0.5)
    yield t(t.f(5, dtype="float64"), t.of("float64", -0.5), t.of("float64", 0.1))
    yield t(t.f(5, dtype="float16"), t.of("float16", -0.5), t.of("float16", 0.1))
    for dtype in ("uint8", "int8", "int32", "int64", "uint64"):
        yield t(t.n(dtype, 9), t.of(dtype, 10), t.of(dtype, 40))
    yield t(t.f(0, 7), -0.5, 0.5)


where = Op("Where", moves=True)


@where.infer
def _(n):
    c, x, y = n.inputs
    if c.dtype != BOOL or x.dtype != y.dtype:
        fail(n, f"it wants a bool condition and two tensors of one type, and got {c}, {x}, {y}")
    return [(x.dtype, broadcast(n, c.shape, x.shape, y.shape))]


@where.fold
def _(n, outs):
    shape = outs[0][1]
    return [[a if c else d for c, a, d in zip(read_as(n.inputs[0], shape), read_as(n.inputs[1], shape), read_as(n.inputs[2], shape))]]


@where.lower
def _(n, b):
    y = b.out(n.outputs[0])
    c, a, d = (b.view(v).broadcast(y.shape) for v in n.inputs)
    b.nd("where", y.shape, {"condition": c, "a": a, "b": d, "y": y}, {"cs": "condition", "as": "a", "bs": "b", "ys": "y"}, size=size_of(y.dtype))


@where.grad
def _(n, g, dy):
    c, x, y = n.inputs
    zero = g.constant(dy.dtype, [], [0.0])
    return [None, g.sum_to(g.op("Where", c, dy, zero), x.shape) if g.wants(1) else None, g.sum_to(g.op("Where", c, zero, dy), y.shape) if g.wants(2) else None]


@where.cases
def _(t):
    yield t(t.b(2, 3), t.f(2, 3), t.f(2, 3))
    yield t(t.b(3), t.f(2, 1, 3), t.f(4, 1))
    yield t(t.b(2, 1, 1, 5), t.f(3, 4, 5), t.f())
    yield t(t.b(), t.f(3), t.f(3))
    yield t(t.b(0, 3), t.f(1, 3), t.f())
    for dtype in ("float64", "float16", "uint8", "int8", "int16", "int32", "int64", "uint64", "bool"):
        yield t(t.b(3, 5), t.any(dtype, 3, 5), t.any(dtype, 5))


cast = Op("Cast", half=[0])
ROUNDING = {"up": 0, "down": 2, "nearest": 4}


@cast.infer
def _(n):
    to = n.attr("to")
    if to in (FLOAT16, BFLOAT16):
        to = FLOAT  # half precision is stored as half and computed in float32
    v = n.inputs[0]
    if to == v.dtype:
        return [v]
    if to not in NAME:
        fail(n, f"there is no element type {to}", "Check the attribute `to`.")
    if n.attr("round_mode", "up") not in ROUNDING:
        fail(n, f"it rounds {n.attr('round_mode', 'up')!r}", "ONNX has round_mode up, down and nearest.")
    return [(to, list(v.shape))]


@cast.fold
def _(n, outs):
    to = outs[0][0]

    def convert(x):
        if isinstance(x, Sym):
            if to in (6, 7):
                return x
            if to == BOOL:
                return bool(x)
            raise NotStatic("a register in floating point")
        if to in MINIFLOATS:
            return decode(to, encode(to, x, bool(n.attr("saturate", 1)), n.attr("round_mode", "up")))
        if to in FLOATS:
            return wrap(to, float(x))
        if to == BOOL:
            return bool(x)
        return wrap(to, int(x) if x == x and abs(x) != INF else 0)
    return [[convert(x) for x in n.inputs[0].numbers]]


@cast.lower
def _(n, b):
    x = n.inputs[0]
    b.cast_into(b.view(x), b.out(n.outputs[0]), mode=(0 if n.attr("saturate", 1) else 1) + ROUNDING[n.attr("round_mode", "up")])


@cast.grad
def _(n, g, dy):
    return [g.op("Cast", dy, to=n.inputs[0].dtype if n.inputs[0].dtype == DOUBLE else FLOAT)]


@cast.cases
def _(t):
    numbers = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16"}
    for a in numbers.values():
        x = t.b(3, 11) if a == "bool" else abs(t.f(3, 11, dtype=a) * 20) if "float" in a else t.n(a, 3, 11, low=0)
        for code in numbers:
            yield t(x, to=code)
    for code in (3, 5, 6, 7, 9, 10, 11):
        yield t(t.of("float32", [-3.7, 3.7, -0.5, 0.5, 1e-9, 100.99, 0]), to=code)
        yield t(t.of("int64", [-3, 100, 0, 1]), to=code)
    for code in (1, 9, 10, 11, 16):
        yield t(t.of("float32", [NAN, INF, -INF, -0.0, 65519, 65520, 1e-8, 5.9604645e-8, 2049, 2051, 1.0009766, 1.0004883]), to=code)
    yield t(t.of("int64", [2**40 + 5, -2**40 - 7, 300, -129]), to=6)
    yield t(t.of("int32", [300, -129, 255, 256]), to=2)
    yield t(t.f(0, 2), to=7)
    yield t(t.f(), to=7)
    mine = {"trust": "onnx", "opset": 25, "why": "onnxruntime has not all of them"}
    small = {17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4_e2m1fn", 25: "uint2", 26: "int2", 27: "float6_e2m3fn", 28: "float6_e3m2fn"}
    hard = [0.0, -0.0, INF, -INF, 1e9, -1e9, 448, 464, 464.1, 240, 248, 57344, 61439, 61440, 3.25, -3.5, 0.25, 0.75, 1e-6, 0.0009765625, 2**-9, 2**-10, 3 * 2**-11, 5, 6, 7.75, 28, 29.9, -7.25]
    for code, dtype in small.items():
        opset = {**mine, "opset": 28} if "float6" in dtype else mine
        yield t(t.f(3, 37) * 3 if "float" in dtype else t.n("float32", 3, 7), to=code, **opset)
        for to in (1, 3, 10, 11, 7):
            yield t(t.any(dtype, 3, 11), to=to, **opset)
        yield t(t.any("int64", 3, 5), to=code, **opset)
        if "float" in dtype:
            yield t(t.of("float32", [NAN, *hard]), to=code, **opset)
            yield t(t.of("float64", hard), to=code, **opset)
            if "float8" in dtype:
                yield t(t.of("float32", [NAN, *hard]), to=code, saturate=0, **opset)
    yield t(t.of("float64", [1.0625, 1.0625 + 2**-40, 1.1875 - 2**-40]), to=17, expect=[t.of("float8_e4m3fn", [1, 1.125, 1.125])], why="the reference rounds twice, to float32 first")
    for dtype in ("uint8", "int8", "float8_e4m3fn"):
        yield t(t.any(dtype, 9), to=21, **mine)
        yield t(t.any(dtype, 9), to=19, **mine)
    yield t(t.of("int4", [-8, -1, 7]), to=21, expect=[t.of("uint4", [8, 15, 7])], why="the reference fails at it")
    powers = t.of("float32", [NAN, 1.0, 1.5, 1.25, 1.75, 2, 3, 0.1, 1e-30, 1.7e38, 2.5e38, 1e30])
    for mode in ("up", "down", "nearest"):
        yield t(powers, to=24, round_mode=mode, **mine)
    yield t(t.of("float8_e8m0fnu", [NAN, 1.0, 0.5, 2**-127, 2.0**127, 8]), to=1, **mine)
    yield t(t.of("float32", [0.0, INF, 1.0]), to=24, expect=[t.of("float8_e8m0fnu", [2**-127, 2.0**127, 1.0])], opset=25, why="the reference makes NaN of infinity, against ONNX's table")
    yield t(t.of("float32", [0.0, INF, 1.0]), to=24, saturate=0, round_mode="nearest", expect=[t.of("float8_e8m0fnu", [NAN, NAN, 1.0])], opset=25, why="the reference makes 2^-127 of 0, against ONNX's table")


cast_like = Op("CastLike", half=[0, 1])


@cast_like.decompose
def _(n, g):
    return [g.op("Cast", n.inputs[0], to=n.inputs[1].dtype, **{k: v for k, v in n.attrs.items() if k in ("saturate", "round_mode")})]


@cast_like.cases
def _(t):
    for dtype in ("float32", "float16", "float64", "int64", "bool"):
        yield t(t.f(3, 5), t.any(dtype, 2))
        yield t(t.n("int32", 3, 5), t.any(dtype, 0))

"""The formulas of elementwise operators, each in one place: of them C, WGSL, derivatives and
constant folding are made (declare/formula.py).

The order of UNARY, BINARY, SLOPES and ACTIVATIONS is that of the kernels' codes: a new line goes to
the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...declare.formula import INF, NAN, Function, guard, operands_of, renamed, slope_of

# ---- functions that formulas call
# In C on vectors of floats and on doubles: core/vector_math.h, libm; in WGSL: common.wgsl. Rare
# functions have no form for vectors, so that the engine has one copy of each, for doubles.


def _whole(f: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: float(f(x)) if math.isfinite(x) else x


def _power(a: float, b: float) -> float:
    try:
        r = a**b
    except (OverflowError, ZeroDivisionError):
        return INF
    return NAN if isinstance(r, complex) else r


def _modulo(a: float, b: float) -> float:
    r = guard(math.fmod, NAN)(a, b)
    return r + b if r != 0 and (r < 0) != (b < 0) else r


# min and max keep a NaN in u and drop one in v; minimum and maximum keep both.
Function(
    "min",
    "",
    "u v",
    vector="vf_min",
    double="f64_min",
    wgsl="select({0}, {1}, {1} < {0})",
    number=lambda u, v: v if v < u else u,
    slope="0 if v < u else 1; 1 if v < u else 0",
    node="edgewise.MinOf2",
)
Function(
    "max",
    "",
    "u v",
    vector="vf_max",
    double="f64_max",
    wgsl="select({0}, {1}, {0} < {1})",
    number=lambda u, v: v if u < v else u,
    slope="0 if u < v else 1; 1 if u < v else 0",
    node="edgewise.MaxOf2",
)
Function(
    "minimum",
    "",
    "u v",
    vector="vf_minimum",
    double="f64_minimum",
    wgsl="minimum",
    number=lambda u, v: v if v < u or v != v else u,
    slope="0 if v < u else 1; 1 if v < u else 0",
    node="edgewise.MinOf2",
)
Function(
    "maximum",
    "",
    "u v",
    vector="vf_maximum",
    double="f64_maximum",
    wgsl="maximum",
    number=lambda u, v: v if v > u or v != v else u,
    slope="0 if u < v else 1; 1 if u < v else 0",
    node="edgewise.MaxOf2",
)
# u, not below v and not above w; w where v > w. A NaN in u is kept. At a bound the slope is 0.
Function(
    "clamp",
    "min(max(u, v), w)",
    "u v w",
    vector="vf_min(vf_max({0}, {1}), {2})",
    double="f64_min(f64_max({0}, {1}), {2})",
    wgsl="clamped",
    slope="1 if v < u < w else 0; 1 if u < v else 0; 1 if u > w else 0",
)
# rounded once where there is an instruction
Function("fma", "u * v + w", "u v w", vector="vf_fma", double="({2} + {0} * {1})", wgsl="fma")
Function(
    "abs",
    vector="vf_abs",
    each="fabsf",
    double="fabs",
    wgsl="abs",
    number=abs,
    slope="sign(v)",
    node="Abs",
)
Function(
    "sign",
    "1 if v > 0 else -1 if v < 0 else v",
    wgsl="select(select({0}, -1f, {0} < 0f), 1f, {0} > 0f)",
    slope="0",
    node="Sign",
)
Function("floor", each="floorf", wgsl="floor", number=_whole(math.floor), slope="0", node="Floor")
Function("ceil", each="ceilf", wgsl="ceil", number=_whole(math.ceil), slope="0", node="Ceil")
# half to even
Function(
    "round",
    each="rintf",
    double="rint",
    wgsl="round",
    number=_whole(round),
    slope="0",
    node="Round",
)
Function(
    "is_nan",
    vector="({0} != {0})",
    double="({0} != {0})",
    wgsl="is_nan",
    number=math.isnan,
    node="IsNaN",
)
Function(
    "is_inf",
    double="(fabs({0}) == (double)INFINITY)",
    wgsl="is_inf",
    number=math.isinf,
    node="IsInf",
)
Function("sqrt", vector="vf_sqrt", each="sqrtf", wgsl="sqrt", slope="0.5 / sqrt(v)", node="Sqrt")
Function(
    "exp", vector="vf_exp", wgsl="exp", number=guard(math.exp, INF), slope="exp(v)", node="Exp"
)
Function("exp_low", "exp(v)", vector="vf_exp_low", double="exp", wgsl="exp")  # of v <= 88
Function(
    "expm1",
    "exp(v) - 1",
    vector="vf_expm1",
    double="expm1",
    wgsl="expm1",
    number=guard(math.expm1, INF),
    slope="exp(v)",
)
Function(
    "log",
    vector="vf_log",
    wgsl="log",
    slope="1 / v",
    node="Log",
    number=lambda x: math.log(x) if x > 0 else -INF if x == 0 else NAN,
)
Function(
    "log1p",
    "log(1 + v)",
    vector="vf_log1p",
    double="log1p",
    wgsl="log1p",  # of finite v
    number=lambda x: math.log1p(x) if x > -1 else -INF if x == -1 else NAN,
    slope="1 / (1 + v)",
)
Function("sin", wgsl="safe_sin", slope="cos(v)", node="Sin")
Function("cos", wgsl="safe_cos", slope="-sin(v)", node="Cos")
Function("tan", wgsl="(safe_sin({0}) / safe_cos({0}))", slope="tan(v) * tan(v) + 1", node="Tan")
Function("asin", slope="1 / sqrt(1 - v * v)", node="Asin")
Function("acos", slope="-1 / sqrt(1 - v * v)", node="Acos")
Function("atan", slope="1 / (v * v + 1)", node="Atan")
Function(
    "sinh",
    number=lambda x: guard(math.sinh, math.copysign(INF, x))(x),
    slope="cosh(v)",
    node="Sinh",
)
Function("cosh", number=guard(math.cosh, INF), slope="sinh(v)", node="Cosh")
Function("asinh", slope="1 / sqrt(v * v + 1)", node="Asinh")
Function("acosh", slope="1 / sqrt(v * v - 1)", node="Acosh")
Function(
    "atanh",
    slope="1 / (1 - v * v)",
    node="Atanh",
    number=lambda x: math.copysign(INF, x) if abs(x) == 1 else guard(math.atanh, NAN)(x),
)
Function("tanh", vector="vf_tanh", wgsl="safe_tanh", slope="1 - tanh(v) * tanh(v)", node="Tanh")
Function("erf", vector="vf_erf", wgsl="erf", slope="1.1283791670955126 * exp(-(v * v))", node="Erf")
Function(
    "sigmoid",
    vector="vf_sigmoid",
    double="f64_sigmoid",
    wgsl="sigmoid",
    number=lambda x: 0.0 if x < -700 else 1 / (1 + math.exp(-x)),
    slope="sigmoid(v) * (1 - sigmoid(v))",
    node="Sigmoid",
)
Function("softplus", "max(v, 0) + log1p(exp_low(-abs(v)))", slope="sigmoid(v)", node="Softplus")
Function("silu", "v * sigmoid(v)")
Function("gelu", "0.5 * v * (1 + erf(v * 0.70710678118654752))", vector="vf_gelu")
# v (1 + tanh(z)) / 2 is v sigmoid(2 z)
Function("gelu_tanh", "v * sigmoid(1.5957691216057308 * fma(0.044715 * v * v, v, v))")
# v tanh(softplus(v)): with e = e^v, tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2)
Function("mish", "e = exp_low(min(v, 20)); w = e * (e + 2); v * (w / (w + 2))")
# its derivative: tanh(softplus(v)) = 1 - 2 / (w + 2)
Function(
    "mish_slope",
    "z = min(v, 20); e = exp_low(z); w = e * (e + 2); r = 1 / (w + 2);"
    " w * r + (0 if e == 0 else z * 4 * e * (e + 1) * r * r)",
)
Function("power", "", "u v", double="pow", wgsl="power", number=_power, node="edgewise.PowSame")
# remainders, with the sign of v and with that of u
Function(
    "modulo", "", "u v", double="f64_modulo", wgsl="({0} - {1} * floor({0} / {1}))", number=_modulo
)
Function("fmod", "", "u v", wgsl="({0} - {1} * trunc({0} / {1}))")


# ---- operators of one operand, v: kernel "unary"

Ops = str | Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Unary:
    """A code of the kernel "unary", and the operators that it computes.

    Attributes:
        code: Its name in UNARY of contracts.py.
        formula: The result for floats, over v and the names of attributes. "": it is for integers
            or bools alone, as unary.c and unary.wgsl say.
        ops: The operator, or {operator: {attribute: default}}, with their domains. The kernel gets
            the attributes as its parameters alpha and beta, in this order.
        slope: The gradient, over that of the result, g, over v, the result y and the attributes;
            by default the derivative of the formula, which need not be accurate where it cancels.
            slope_<name>(g, x, alpha, beta) is the formula of SLOPES in one step over memory;
            slope_gelu and the like are those of the kernel "gated_grad".
        integers: Whether the operators also take integers, and the kernel has a rule for these.
    """

    code: str
    formula: str = ""
    ops: Ops = field(default_factory=dict)
    slope: str = ""
    integers: bool = False

    def operators(self) -> Mapping[str, Mapping[str, float]]:
        """{operator with its domain: {attribute: default}}"""
        return {self.ops: {}} if isinstance(self.ops, str) else self.ops

    def attributes(self) -> tuple[str, ...]:
        """The names that its formula has for the kernel's alpha and beta."""
        named = next((tuple(names) for names in self.operators().values()), ())
        return named or ("alpha", "beta")

    def gradient(self) -> str:
        """The formula of the gradient. Raises NotDifferentiable."""
        if self.slope:
            return self.slope
        derived = slope_of(self.formula)
        if SLOPES.get(self.code) == DERIVED:
            return f"slope_{self.code}(g, {'y' if 'y' in operands_of(derived) else 'v'})"
        return derived


_UNARY = (
    Unary("neg", "-v", "Neg", integers=True),
    Unary("abs", "abs(v)", "Abs", integers=True),
    Unary("sign", "sign(v)", "Sign", integers=True),
    Unary("floor", "floor(v)", "Floor"),
    Unary("ceil", "ceil(v)", "Ceil"),
    Unary("round", "round(v)", "Round"),
    Unary("sqrt", "sqrt(v)", "Sqrt"),
    Unary("reciprocal", "1 / v", "Reciprocal", slope="-(g * (y * y))"),
    Unary("exp", "exp(v)", "Exp"),
    Unary("log", "log(v)", "Log"),
    Unary("sin", "sin(v)", "Sin"),
    Unary("cos", "cos(v)", "Cos"),
    Unary("tan", "tan(v)", "Tan"),
    Unary("asin", "asin(v)", "Asin"),
    Unary("acos", "acos(v)", "Acos"),
    Unary("atan", "atan(v)", "Atan"),
    Unary("sinh", "sinh(v)", "Sinh"),
    Unary("cosh", "cosh(v)", "Cosh"),
    Unary("tanh", "tanh(v)", "Tanh"),
    Unary("asinh", "asinh(v)", "Asinh"),
    Unary("acosh", "acosh(v)", "Acosh"),
    Unary("atanh", "atanh(v)", "Atanh"),
    Unary("erf", "erf(v)", "Erf"),
    Unary("sigmoid", "sigmoid(v)", "Sigmoid"),
    # the result has the sign of the operand, which then need not be kept
    Unary("relu", "max(v, 0)", "Relu", slope="slope_step(g, y, 0, 0)", integers=True),
    Unary(
        "leaky_relu",
        "alpha * v if v < 0 else v",
        {"LeakyRelu": {"alpha": 0.01}},
        slope="slope_step(g, y if alpha >= 0 else v, alpha, 0)",
    ),
    Unary(
        "elu",
        "alpha * expm1(v) if v < 0 else v",
        {"Elu": {"alpha": 1.0}},
        slope="slope_elu(g, v, alpha, 1)",
    ),
    Unary(
        "selu",
        "gamma * (alpha * expm1(v) if v < 0 else v)",
        {"Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}},
        slope="slope_elu(g * gamma, v, alpha, 1)",
    ),
    Unary(
        "celu",
        "alpha * expm1(v / alpha) if v < 0 else v",
        {"Celu": {"alpha": 1.0}},
        slope="slope_elu(g, v, 1, 1 / alpha)",
    ),
    Unary("softplus", "softplus(v)", "Softplus"),
    Unary("softsign", "v / (1 + abs(v))", "Softsign", slope="slope_softsign(g, y)"),
    Unary(
        "hard_sigmoid",
        "clamp(alpha * v + beta, 0, 1)",
        {"HardSigmoid": {"alpha": 0.2, "beta": 0.5}},
        slope="g * alpha if 0 < y < 1 else 0",
    ),
    Unary("hard_swish", "v * clamp(v / 6 + 0.5, 0, 1)", "HardSwish"),
    Unary("mish", "mish(v)", "Mish", slope="slope_mish(g, v)"),
    Unary("gelu", "gelu(v)", "com.microsoft.Gelu", slope="slope_gelu(g, v)"),
    Unary("gelu_tanh", "gelu_tanh(v)", slope="slope_gelu_tanh(g, v)"),
    Unary(
        "quick_gelu",
        "v * sigmoid(alpha * v)",
        {"Swish": {"alpha": 1.0}, "com.microsoft.QuickGelu": {"alpha": 1.702}},
        slope="slope_quick_gelu(g, v, alpha)",
    ),
    # made by passes/activations.py
    Unary("silu", "silu(v)", "edgewise.SiLU", slope="slope_quick_gelu(g, v, 1)"),
    Unary(
        "thresholded_relu",
        "v if v > alpha else 0",
        {"ThresholdedRelu": {"alpha": 1.0}},
        slope="slope_step(g, v, 0, alpha)",
    ),
    Unary("clip", "clamp(v, alpha, beta)"),
    Unary("not"),
    Unary("bit_not"),
    Unary("is_nan", "is_nan(v)", "IsNaN"),
    Unary("is_inf", "is_inf(v)"),
    Unary("rsqrt", "1 / sqrt(v)"),
    Unary("square", "v * v"),
    Unary("linear", "alpha * v + beta"),
)
UNARY = {row.code: row for row in _UNARY}

# ---- gradients in one step over memory: kernel "unary_grad"
# g: the gradient of the result; v: the operand or the result, as the call of slope_<name> says.
# DERIVED: the derivative of the formula of UNARY with this name.
DERIVED = "derived"
SLOPES = {
    "step": "g if v > beta else alpha * g",
    "sigmoid": DERIVED,
    "tanh": DERIVED,
    "softsign": "g * (1 - abs(v)) * (1 - abs(v))",
    "hard_swish": DERIVED,
    "elu": "g * (1 if v > 0 else alpha * exp(beta * v))",
    "mish": "g * mish_slope(v)",
}


def slope_formula(name: str) -> str:
    """The formula of SLOPES over g and v, alpha and beta."""
    if SLOPES[name] != DERIVED:
        return SLOPES[name]
    return renamed(slope_of(UNARY[name].formula), {"y": "v"})


# ---- operators of two operands, u and v: kernel "binary"


@dataclass(frozen=True)
class Binary:
    """A code of the kernel "binary", and the operator that it computes.

    Attributes:
        code: Its name in BINARY of contracts.py.
        formula: The result for floats, over u and v. "": it is for integers or bools alone. Those
            have rules of their own in binary.c, binary.wgsl and, for folding, binary.py.
        op: The operator, with its domain.
    """

    code: str
    formula: str = ""
    op: str = ""


_BINARY = (
    Binary("add", "u + v", "Add"),
    Binary("sub", "u - v", "Sub"),
    Binary("mul", "u * v", "Mul"),
    Binary("div", "u / v", "Div"),
    Binary("mod", "modulo(u, v)", "Mod"),
    Binary("fmod", "fmod(u, v)"),
    Binary("pow", "power(u, v)", "edgewise.PowSame"),
    Binary("min", "minimum(u, v)", "edgewise.MinOf2"),
    Binary("max", "maximum(u, v)", "edgewise.MaxOf2"),
    Binary("equal", "u == v", "Equal"),
    Binary("less", "u < v", "Less"),
    Binary("less_equal", "u <= v", "LessOrEqual"),
    Binary("greater", "u > v", "Greater"),
    Binary("greater_equal", "u >= v", "GreaterOrEqual"),
    Binary("and", op="And"),
    Binary("or", op="Or"),
    Binary("xor", op="Xor"),
    Binary("bit_and"),
    Binary("bit_or"),
    Binary("bit_xor"),
    Binary("shift_left"),
    Binary("shift_right"),
    Binary("prelu", "u * v if u < 0 else u", "PRelu"),
    # made by passes/activations.py
    Binary("silu_mul", "silu(u) * v", "edgewise.SiLUMul"),
    Binary("gelu_mul", "gelu(u) * v", "edgewise.GeluMul"),
    Binary("gelu_tanh_mul", "gelu_tanh(u) * v", "edgewise.GeluTanhMul"),
)
BINARY = {row.code: row for row in _BINARY}

# ---- what kernels of products do to their results, v: the parameter "activation"
ACTIVATIONS = {
    "none": "v",
    "relu": "max(v, 0)",
    "gelu": "gelu(v)",
    "gelu_tanh": "gelu_tanh(v)",
    "silu": "silu(v)",
    "tanh": "tanh(v)",
    "sigmoid": "sigmoid(v)",
    "quick_gelu": "v * sigmoid(1.702 * v)",
    "relu6": "clamp(v, 0, 6)",
}

"""Contracts of the kernels of elementwise operators."""

from __future__ import annotations

from ....element_types import PACKED
from ...declare.dtypes import BOOL, FLOAT, UINT8
from ...declare.kernel import (
    CImplementation,
    Enum,
    Kernel,
    bool_if,
    params,
    read,
    sized,
    unpacked,
    write,
)
from . import formulas

BINARY = Enum("binary", " ".join(formulas.BINARY))

Kernel(
    "binary",
    params("op type dims[6] as[6] bs[6] ys[6]"),
    [
        read("a", "type", "dims:as"),
        read("b", "type", "dims:bs"),
        write(
            "y",
            bool_if(BINARY.is_between("op", "equal", "greater_equal"), "type"),
            "dims:ys",
            inplace=["a", "b"],
        ),
    ],
    enums={"op": BINARY},
    empty=["dims"],
    c=CImplementation(variants={"op": "BINARY_OP", "type": "BINARY_TYPE"}),
    doc=(
        "y = a op b with broadcasting by zero strides. equal..greater_equal write bool; "
        "and/or/xor take bool. Integer division truncates; integer mod has the sign of the "
        "divisor, fmod that of the dividend; dividing an integer by zero gives 0. silu_mul: "
        "(a*sigmoid(a))*b; gelu_mul and gelu_tanh_mul likewise."
    ),
)

Kernel(
    "cast",
    params("x_type y_type mode dims[6] xs[6] ys[6]"),
    [read("x", unpacked("x_type"), "dims:xs"), write("y", unpacked("y_type"), "dims:ys")],
    empty=["dims"],
    c=CImplementation(variants={"x_type": "CAST_FROM", "y_type": "CAST_TO"}),
    doc=(
        "ONNX Cast between all number types. float to integer truncates, saturating (NaN gives "
        "0; types of less than a byte keep the low bits of that); to bool: x != 0; to floats of "
        "16 bits and fewer: round to nearest even. Elements of less than a byte are unpacked, "
        "each in a byte. mode, for floats of 8 bits: with bit 0 values out of range do not "
        "saturate; float8e8m0 rounds down with bit 1, to nearest with bit 2, else up."
    ),
)

Kernel(
    "pack",
    params("bits n unpack"),
    [
        read("x", (UINT8, *PACKED), "ceil_div(n * bits, 8) if unpack else n"),
        write("y", (UINT8, *PACKED), "n if unpack else ceil_div(n * bits, 8)"),
    ],
    require=["bits in (2, 4, 6)"],
    empty=["n"],
    grid="n",
    doc=(
        "Packs n elements of less than a byte, each in the low bits of a byte of x, without "
        "gaps, low bits first; unpack: the reverse."
    ),
)

Kernel(
    "gated_grad",
    params("n activation alpha:f32"),
    [
        read("dy", FLOAT, "n"),
        read("a", FLOAT, "n"),
        read("b", FLOAT, "n", optional=True),
        write("da", FLOAT, "n", inplace=["dy", "a", "b"]),
        write("db", FLOAT, "n", optional=True, inplace=["dy", "a", "b"]),
        write("y", FLOAT, "n", optional=True, inplace=["dy", "a", "b"]),
    ],
    require=["activation in (2, 3, 7)"],
    empty=["n"],
    c=CImplementation(variants={"activation": "ACTIVATION"}),
    doc=(
        "Gradients of y = f(a) b: da = dy b f'(a), db = dy f(a), and y itself. f is gelu, "
        "gelu_tanh, or quick_gelu: a sigmoid(alpha a). Without the operand b, b is 1."
    ),
)

UNARY = Enum("unary", " ".join(formulas.UNARY))
SLOPE = Enum("slope", " ".join(formulas.SLOPES))

Kernel(
    "unary",
    params("op type dims[6] xs[6] ys[6] alpha:f32 beta:f32"),
    [
        read("x", "type", "dims:xs"),
        write(
            "y",
            bool_if(UNARY.is_one_of("op", "is_nan", "is_inf"), "type"),
            "dims:ys",
            inplace=["x"],
        ),
    ],
    enums={"op": UNARY},
    empty=["dims"],
    c=CImplementation(variants={"op": "UNARY_OP", "type": "UNARY_TYPE"}),
    doc=(
        "y = op(x). is_nan and is_inf write bool. alpha, beta: "
        "LeakyRelu/Elu/Celu/ThresholdedRelu alpha, Selu (alpha, gamma), HardSigmoid (alpha, "
        "beta), clip (min, max; for integer types too, as float bounds clamped to the type), "
        "quick_gelu alpha, linear alpha*x+beta. Types: float32, float64 for all; int32, int64 "
        "(and other ints) for neg abs sign clip relu square bit_not; bool for not. round is "
        "half to even."
    ),
)

Kernel(
    "unary_grad",
    params("op dims[6] dys[6] xs[6] dxs[6] alpha:f32 beta:f32"),
    [
        read("dy", FLOAT, "dims:dys"),
        read("x", FLOAT, "dims:xs"),
        write("dx", FLOAT, "dims:dxs", inplace=["dy", "x"]),
    ],
    enums={"op": SLOPE},
    empty=["dims"],
    doc=(
        "dx = dy f'(x). step: 1 where x > beta, else alpha; elu: alpha e^(beta x) where x <= "
        "0. sigmoid, tanh and softsign: x is f's output."
    ),
)

Kernel(
    "where",
    params("size dims[6] cs[6] as[6] bs[6] ys[6]"),
    [
        read("condition", BOOL, "dims:cs"),
        read("a", sized("size"), "dims:as"),
        read("b", sized("size"), "dims:bs"),
        write("y", sized("size"), "dims:ys", inplace=["a", "b"]),
    ],
    require=["size in (1, 2, 4, 8)"],
    empty=["dims"],
    c=CImplementation(variants={"size": "WHERE_SIZE"}),
    doc="y = condition ? a : b.",
)

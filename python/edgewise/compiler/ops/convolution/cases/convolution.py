"""Test cases of ops/convolution/convolution.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..convolution import conv, conv_transpose, fused_conv

if TYPE_CHECKING:
    from typing import Any

    from ....declare.annotations import Cases, Toolbox

# (x, w, attributes): every rank, tails, strides with and without rest, few and many channels per
# group
_CONVOLUTIONS: list[tuple[Any, Any, dict[str, Any]]] = [
    ((2, 3, 9), (4, 3, 3), {}),
    ((1, 1, 50), (8, 1, 10), {"strides": [5]}),
    ((1, 8, 21), (8, 2, 8), {"group": 4, "pads": [4, 4]}),
    ((2, 12, 17), (12, 1, 3), {"group": 12, "dilations": [2], "pads": [2, 2]}),
    ((2, 3, 9, 11), (4, 3, 3, 3), {}),
    ((1, 3, 8, 8), (6, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 5, 12, 13), (7, 5, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((1, 16, 20, 20), (32, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 8, 7, 7), (16, 8, 1, 1), {}),
    ((2, 8, 7, 7), (16, 8, 1, 1), {"strides": [2, 2]}),
    ((1, 8, 5, 5), (3, 8, 1, 1), {}),
    ((2, 6, 10, 9), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    ((1, 6, 10, 19), (6, 1, 3, 3), {"group": 6, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((2, 4, 9, 9), (8, 1, 5, 5), {"group": 4, "pads": [2, 2, 2, 2]}),
    ((1, 4, 9, 9), (20, 1, 3, 3), {"group": 4}),
    ((2, 8, 6, 6), (8, 4, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ((1, 3, 32, 32), (8, 3, 8, 8), {"strides": [8, 8]}),
    ((1, 3, 14, 9), (5, 3, 3, 2), {"dilations": [3, 2], "pads": [3, 0, 1, 2], "strides": [1, 3]}),
    ((1, 4, 5, 6, 7), (6, 4, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
    ((2, 4, 5, 6, 7), (4, 2, 2, 3, 1), {"group": 2, "strides": [2, 1, 2]}),
    ((1, 20, 3, 3), (2, 20, 3, 3), {}),
    ((1, 40, 11, 11), (24, 40, 5, 5), {"pads": [2, 2, 2, 2]}),
    ((3, 70, 13), (9, 70, 7), {"pads": [6, 0]}),
    ((3, 20, 9, 7), (17, 20, 3, 3), {"pads": [1, 0, 2, 1]}),
    ((1, 64, 7, 40), (70, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 300, 7), (5, 3, 3, 3), {"dilations": [90, 2], "pads": [90, 2, 90, 2]}),
    # few positions: dot products; many items with few positions each: one product
    ((1, 40, 1, 1), (70, 40, 1, 1), {}),
    ((1, 128, 1), (1, 128, 1), {}),
    ((1, 24, 6), (33, 24, 3), {"strides": [2], "pads": [1, 1]}),
    ((64, 20, 5), (12, 20, 3), {}),
    ((70, 6, 2, 3), (8, 3, 2, 2), {"group": 2, "pads": [1, 1, 0, 0]}),
    ((3, 6, 2, 2), (10, 3, 2, 2), {"group": 2}),
    ((2, 300, 2, 2), (9, 300, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((40, 8, 2, 2, 2), (6, 8, 2, 2, 2), {"pads": [1, 1, 1, 0, 1, 0], "dilations": [1, 2, 1]}),
    ((300, 70, 3), (90, 70, 3), {"pads": [2, 0], "dilations": [2]}),
    *(
        ((2, 3, h, w), (3 * m, 1, 3, 3), {"group": 3, "strides": [s, s], "pads": pads})
        for h, w, m, s, pads in (  # 3 x 3 alone: narrow and wide, low and high, pads on either side
            (7, 7, 1, 1, [1, 1, 1, 1]),
            (3, 16, 2, 1, [0, 1, 0, 0]),
            (70, 21, 1, 1, [1, 0, 1, 1]),
            (9, 34, 1, 1, [2, 0, 1, 0]),
            (14, 14, 1, 2, [1, 1, 1, 1]),
            (133, 45, 1, 2, [1, 1, 1, 1]),
            (6, 64, 2, 2, [0, 0, 1, 1]),
        )
    ),
]


@conv.cases
def conv_cases(t: Toolbox) -> Cases:
    for x, w, attrs in _CONVOLUTIONS:
        yield t(t.f(*x), t.f(*w), tol=1e-4, **attrs)
        yield t(
            t.f(*x),
            t.const(t.f(*w)),
            t.const(t.f(w[0])),
            tol=1e-4,
            kernel_shape=list(w[2:]),
            **attrs,
        )
    for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield t(t.f(1, 3, 8, 9), t.f(4, 3, 4, 3), tol=1e-4, auto_pad=mode, strides=[2, 1])
    yield t(t.f(0, 3, 8, 8), t.f(4, 3, 3, 3), tol=1e-4)
    yield t(t.f(2, 3, 9, 8), t.f(4, 3, 3, 3), opset=1, tol=1e-4)
    yield t(
        t.f(1, 3, 12, 12, dtype="float16"),
        t.const(t.f(8, 3, 3, 3, dtype="float16")),
        t.const(t.f(8, dtype="float16")),
        tol=4e-3,
    )


@conv_transpose.cases
def conv_transpose_cases(t: Toolbox) -> Cases:
    transposed: list[tuple[Any, Any, dict[str, Any]]] = [
        ((2, 4, 9), (4, 3, 3), {}),
        ((0, 4, 9), (4, 3, 3), {}),
        ((0, 8, 9), (8, 3, 1), {}),
        ((1, 6, 10), (6, 4, 8), {"strides": [4], "pads": [2, 2]}),
        ((2, 8, 7), (8, 1, 3), {"group": 8, "strides": [2], "output_padding": [1]}),
        ((2, 5, 6, 7), (5, 4, 3, 3), {}),
        (
            (1, 5, 6, 7),
            (5, 4, 3, 3),
            {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
        ),
        ((1, 16, 8, 8), (16, 8, 2, 2), {"strides": [2, 2]}),
        ((2, 6, 5, 5), (6, 3, 4, 4), {"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((1, 6, 5, 5), (6, 1, 3, 3), {"group": 6, "strides": [2, 3]}),
        ((2, 16, 7, 7), (16, 8, 1, 1), {}),
        ((1, 4, 6, 6), (4, 3, 3, 2), {"dilations": [2, 3], "pads": [0, 1, 2, 0]}),
        ((1, 4, 3, 4, 5), (4, 3, 2, 3, 2), {"strides": [2, 1, 2]}),
        ((1, 3, 4, 4), (3, 5, 3, 3), {"strides": [3, 3], "output_shape": [12, 12]}),
        ((1, 3, 4, 4), (3, 5, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 3, 4, 4), (3, 5, 3, 3), {"strides": [2, 2], "auto_pad": "VALID"}),
        ((2, 40, 13, 11), (40, 24, 3, 3), {"pads": [1, 1, 1, 1]}),
    ]
    for y, w, attrs in transposed:
        yield t(t.f(*y), t.f(*w), tol=1e-4, **attrs)
        only = (
            {
                "trust": "ort",
                "why": (
                    "ONNX's reference gives all channels of a depthwise transpose the bias of the"
                    " first"
                ),
            }
            if w[1] == 1
            else {}
        )
        yield t(
            t.f(*y),
            t.const(t.f(*w)),
            t.const(t.f(w[1] * attrs.get("group", 1))),
            tol=1e-4,
            **only,
            **attrs,
        )


@fused_conv.cases
def fused_conv_cases(t: Toolbox) -> Cases:
    for activation, numbers in (
        ("Relu", None),
        ("Tanh", None),
        ("Sigmoid", None),
        ("LeakyRelu", [0.2]),
        ("HardSigmoid", [0.3, 0.4]),
        ("Clip", [0.0, 0.5]),
    ):
        attrs = {
            "activation": activation,
            "pads": [1, 1, 1, 1],
            **({"activation_params": numbers} if numbers else {}),
        }
        yield t(t.f(1, 3, 8, 8), t.f(6, 3, 3, 3), t.f(6), tol=1e-4, **attrs)
    for batch, size in ((1, 8), (3, 2), (40, 2)):
        yield t(
            t.f(batch, 3, size, size),
            t.f(6, 3, 3, 3),
            t.f(6),
            t.f(batch, 6, size, size),
            tol=1e-4,
            activation="Relu",
            pads=[1, 1, 1, 1],
        )

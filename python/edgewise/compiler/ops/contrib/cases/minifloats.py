"""Test cases of ops/contrib/minifloats.py, which onnxruntime runs on GPUs only: by their
definition, with the numbers of ml_dtypes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..minifloats import fp4, fp8

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

WHY = "onnxruntime has no kernel for the processor"
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


@fp8.cases
def fp8_cases(t: Toolbox) -> Cases:
    for shape, k, block, scaled, biased in (
        ((1, 256), 256, 128, False, True),
        ((2, 3, 72), 72, 16, False, False),
        ((5, 100), 100, 32, True, True),
        ((4, 48), 48, 48, True, False),
    ):
        a, b = t.f(*shape), t.f(24, k, dtype="float8_e4m3fn")
        scale, bias = t.f(24, -(-k // block), low=0.01, high=0.1), t.f(24)
        w = b.astype("float64") * scale.repeat(block, 1)[:, :k]
        x, a_scale = a.astype("float64"), t.of("float32", 0.037)
        if scaled:
            x = t.of("float8_e4m3fn", a / a_scale).astype("float64") * a_scale
        y = x @ w.T + (bias if biased else 0)
        yield t(
            *(a, t.const(b), t.const(scale)),
            *(t.const(a_scale) if scaled else None, t.const(bias) if biased else None),
            block_size=block,
            tol=1e-4,
            expect=[t.of("float32", y)],
            why=WHY,
        )


@fp4.cases
def fp4_cases(t: Toolbox) -> Cases:
    for shape, k, block, biased in (
        ((1, 64), 64, 16, True),
        ((2, 3, 72), 72, 16, False),
        ((5, 160), 160, 32, True),
    ):
        a, b, bias = t.f(*shape), t.n("uint8", 24, k // 2, low=0, high=255), t.f(24)
        scale = t.f(24, -(-k // block), low=0.5, high=400, dtype="float8_e4m3fn")
        factor = t.of("float32", 0.0031)
        numbers = t.of("float64", E2M1)
        w = t.of("float64", [numbers[b & 15], numbers[b >> 4]]).transpose(1, 2, 0).reshape(24, k)
        w = w * scale.astype("float64").repeat(block, 1)[:, :k] * factor
        y = a.astype("float64") @ w.T + (bias if biased else 0)
        yield t(
            *(a, t.const(b), t.const(scale.view("uint8")), t.const(factor), None),
            *([t.const(bias)] if biased else []),
            block_size=block,
            tol=1e-4,
            expect=[t.of("float32", y)],
            why=WHY,
        )

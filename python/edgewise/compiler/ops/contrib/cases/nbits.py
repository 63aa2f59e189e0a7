"""Test cases of ops/contrib/nbits.py, which onnxruntime runs on GPUs only: by their definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..nbits import mlp, qkv

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

K, BLOCK = 64, 32
WHY = "onnxruntime has no kernel for the processor"


def _weights(t: Toolbox, columns: int, bias: bool) -> tuple[list[Any], Any, Any]:
    """(inputs, the weights as floats [K, columns], the bias)."""
    packed = t.n("uint8", columns, K // BLOCK, BLOCK // 2, low=0, high=255)
    scales, b = t.f(columns, K // BLOCK) * 0.1, t.f(columns)
    low, high = (packed & 15).astype("float32"), (packed >> 4).astype("float32")
    numbers = t.of("float32", [low, high]).transpose(1, 2, 3, 0).reshape(columns, K // BLOCK, BLOCK)
    dense = ((numbers - 8) * scales[..., None]).reshape(columns, K).T
    inputs = [t.const(packed), t.const(scales), t.const(b) if bias else None]
    return inputs, dense, b if bias else 0


def _normed(x: Any, scale: Any) -> Any:
    x = x.astype("float64")
    return x / ((x * x).mean(-1, keepdims=True) + 1e-5) ** 0.5 * scale


@qkv.cases
def qkv_cases(t: Toolbox) -> Cases:
    for shape, skipped, bias in (((1, 1, K), True, False), ((2, 3, K), False, True)):
        x, skip, scale = t.f(*shape), t.f(*shape), t.f(K) + 1
        total = x + skip if skipped else x
        projections = [_weights(t, columns, bias) for columns in (48, 16, 16)]
        y = _normed(total, scale)
        found = [(y @ w + b).astype("float32") for _, w, b in projections]
        yield t(
            *(x, skip if skipped else None, t.const(scale)),
            *(v for inputs, _, _ in projections for v in inputs),
            outputs=3 + skipped,
            K=K,
            Nq=48,
            Nkv=16,
            bits=4,
            block_size=BLOCK,
            tol=1e-4,
            expect=[*found, total] if skipped else found,
            why=WHY,
        )


@mlp.cases
def mlp_cases(t: Toolbox) -> Cases:
    for shape, normed, skipped in (
        ((1, 1, K), True, True),
        ((2, 3, K), True, False),
        ((4, K), False, False),
    ):
        x, skip, scale = t.f(*shape), t.f(*shape), t.f(K) + 1
        total = x + skip if skipped else x
        y = _normed(total, scale) if normed else x
        (gates, w, b), (ups, v, c) = (_weights(t, 24, normed) for _ in range(2))
        gate = y @ w + b
        found = (gate / (1 + 2.718281828459045**-gate) * (y @ v + c)).astype("float32")
        yield t(
            *(x, skip if skipped else None, t.const(scale) if normed else None, *gates, *ups),
            outputs=1 + skipped,
            K=K,
            N=24,
            bits=4,
            block_size=BLOCK,
            activation="silu",
            tol=1e-4,
            expect=[found, total] if skipped else [found],
            why=WHY,
        )

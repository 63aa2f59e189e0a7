"""Test cases of ops/contrib/packed.py: those of the operators on padded batches, without padding.

onnxruntime runs them on GPUs only. Tokens of rows of 3, 1 and 4 stand one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..packed import attention, multi_head, restore

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

OFFSETS = [[0, 1, 2, 4], [8, 9, 10, 11], [3, 5, 6, 7]]
ENDS = [0, 3, 4, 8]
WHY = "onnxruntime has no kernel for the processor"


def _attended(t: Toolbox, q: Any, k: Any, v: Any, heads: int, scale: float, added: Any) -> Any:
    out = []
    for row, (start, end) in enumerate(zip(ENDS, ENDS[1:])):
        parts = (x[start:end].reshape(end - start, heads, -1).swapaxes(0, 1) for x in (q, k, v))
        a, b, c = (x.astype("float64") for x in parts)
        scores = a @ b.swapaxes(1, 2) * scale
        if added is not None:
            scores = scores + added[row % len(added), :, : end - start, : end - start]
        e = 2.718281828459045**scores
        y = e / e.sum(-1, keepdims=True) @ c
        out.append(y.swapaxes(0, 1).reshape(end - start, -1))
    return t.of("float32", [r for y in out for r in y])


@multi_head.cases
def multi_head_cases(t: Toolbox) -> Cases:
    where = [t.of("int32", OFFSETS), t.of("int32", ENDS)]
    for scale, biased, shape in (
        (0.0, False, None),
        (0.3, True, (3, 2, 4, 4)),
        (0, True, (1, 1, 4, 4)),
    ):
        q, k, v, b = t.f(8, 12), t.f(8, 12), t.f(8, 8), t.f(32)
        added = t.f(*shape) if shape else None
        parts = (q + b[:12], k + b[12:24], v + b[24:]) if biased else (q, k, v)
        yield t(
            *(q, k, v, b if biased else None, *where, added),
            num_heads=2,
            tol=1e-4,
            expect=[_attended(t, *parts, 2, scale or 6**-0.5, added)],
            why=WHY,
            **({"scale": scale} if scale else {}),
        )
    qkv = t.f(8, 2, 3, 5)
    parts = qkv[:, :, 0].reshape(8, 10), qkv[:, :, 1].reshape(8, 10), qkv[:, :, 2].reshape(8, 10)
    expected = [_attended(t, *parts, 2, 5**-0.5, None)]
    yield t(qkv, None, None, None, *where, num_heads=2, tol=1e-4, expect=expected, why=WHY)


@attention.cases
def attention_cases(t: Toolbox) -> Cases:
    x, w, b = t.f(8, 6), t.f(6, 32), t.f(32)
    qkv = x @ w + b
    parts = (qkv[:, :12], qkv[:, 12:24], qkv[:, 24:])
    yield t(
        *(x, t.const(w), t.const(b), t.of("int32", OFFSETS), t.of("int32", ENDS)),
        num_heads=2,
        qkv_hidden_sizes=[12, 12, 8],
        tol=1e-4,
        expect=[_attended(t, *parts, 2, 6**-0.5, None)],
        why=WHY,
    )


@restore.cases
def restore_cases(t: Toolbox) -> Cases:
    x = t.f(8, 5)
    y = t.f(12, 5) * 0
    y[[0, 1, 2, 4, 8, 9, 10, 11]] = x
    yield t(x, t.of("int32", OFFSETS), expect=[y.reshape(3, 4, 5)], why=WHY)

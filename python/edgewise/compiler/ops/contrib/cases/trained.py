"""Test cases of ops/contrib/trained.py, by their definition: onnxruntime has them in builds for
training alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..trained import dropout, embedding, finite, rotary

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

WHY = "onnxruntime has it in builds for training alone"


@dropout.cases
def dropout_cases(t: Toolbox) -> Cases:
    for shape, bias, added, masked in (
        ((2, 3, 5), (5,), True, True),
        ((4, 5), (4, 5), False, False),
        ((4, 5), (5,), False, True),
    ):
        x, b, r = t.f(*shape), t.f(*bias), t.f(*shape)
        y, ones = x + b + (r if added else 0), t.of("bool", x == x)
        yield t(
            *(x, b, r if added else None, 0.25),
            outputs=1 + masked,
            seed=3,
            expect=[y, ones][: 1 + masked],
            why=WHY,
        )
    x, b = t.f(4, 5), t.f(5)
    yield t(x, b, None, 0.0, t.const(t.of("bool", True)), expect=[x + b], why=WHY)


@finite.cases
def finite_cases(t: Toolbox) -> Cases:
    inf, nan = float("inf"), float("nan")
    for bad, attrs, fine in (
        (1.0, {}, True),
        (inf, {}, False),
        (-inf, {"isinf_only": 1}, False),
        (nan, {"isinf_only": 1}, True),
        (nan, {"isnan_only": 1}, False),
        (inf, {"isnan_only": 1}, True),
        (nan, {}, False),
    ):
        x, y = t.f(3, 4), t.f(5)
        y[2] = bad
        yield t(x, y, t.f(), expect=[t.of("bool", fine)], why=WHY, **attrs)


@rotary.cases
def rotary_cases(t: Toolbox) -> Cases:
    angles = t.f(2, 3, 8, low=-9, high=9)
    q, turned_q, k, turned_k = (t.f(2, heads, 3, 8) for heads in (4, 4, 1, 1))
    wave = 2.718281828459045 ** (1j * angles.astype("float64"))[:, None]
    expect = [q * wave.real + turned_q * wave.imag, k * wave.real + turned_k * wave.imag]
    yield t(
        *(angles, q, turned_q, k, turned_k),
        outputs=2,
        tol=1e-4,
        expect=[t.of("float32", y) for y in expect],
        why=WHY,
    )


@embedding.cases
def embedding_cases(t: Toolbox) -> Cases:
    for dtype in ("float32", "int32", "uint8"):
        table, index = t.any(dtype, 9, 5), t.n("int64", 2, 3, low=0, high=8)
        yield t(table, index, t.of("int64", 1), expect=[table[index]], why=WHY)

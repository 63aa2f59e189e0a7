"""Test cases of ops/contrib/fourier.py, which onnxruntime runs on GPUs only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....declare.op import MS
from ... import OPS
from ..fourier import irfft, rfft

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

WHY = "onnxruntime has no kernel for the processor"


def _wave(t: Toolbox, count: int, sign: int) -> Any:
    """The matrix of a transform of `count` elements."""
    turns = [
        [sign * 2j * 3.141592653589793 * i * j / count for j in range(count)] for i in range(count)
    ]
    return 2.718281828459045 ** t.of("complex128", turns)


@rfft.cases
def rfft_cases(t: Toolbox) -> Cases:
    for shape in ((8,), (3, 10), (2, 3, 6)):
        x = t.f(*shape)
        y = (x @ _wave(t, shape[-1], -1))[..., : shape[-1] // 2 + 1]
        expected = t.of("float32", [y.real, y.imag]).transpose(*range(1, y.ndim + 1), 0).copy()
        yield t(x, signal_ndim=1, onesided=1, normalized=0, tol=1e-4, expect=[expected], why=WHY)
    x = t.f(2, 4, 6)
    y = (_wave(t, 4, -1) @ (x @ _wave(t, 6, -1)))[..., :4]
    expected = t.of("float32", [y.real, y.imag]).transpose(1, 2, 3, 0).copy()
    yield t(x, signal_ndim=2, onesided=1, normalized=0, tol=1e-4, expect=[expected], why=WHY)


@irfft.cases
def irfft_cases(t: Toolbox) -> Cases:
    for shape in ((8,), (3, 10)):
        x = t.f(*shape)
        y = (x @ _wave(t, shape[-1], -1))[..., : shape[-1] // 2 + 1]
        given = t.of("float32", [y.real, y.imag]).transpose(*range(1, y.ndim + 1), 0).copy()
        yield t(given, signal_ndim=1, onesided=1, normalized=0, tol=1e-4, expect=[x], why=WHY)
    x = t.f(2, 4, 6)
    y = (_wave(t, 4, -1) @ (x @ _wave(t, 6, -1)))[..., :4]
    given = t.of("float32", [y.real, y.imag]).transpose(1, 2, 3, 0).copy()
    yield t(given, signal_ndim=2, onesided=1, normalized=0, tol=1e-4, expect=[x], why=WHY)


def _products(t: Toolbox, sign: int) -> Cases:
    for a, b in (((3, 2), (3, 2)), ((2, 3, 2), (3, 2)), ((1, 3, 2), (4, 1, 2))):
        x, y = t.f(*a), t.f(*b)
        z = (x[..., 0] + 1j * x[..., 1]) * (y[..., 0] + sign * 1j * y[..., 1])
        expected = t.of("float32", [z.real, z.imag]).transpose(*range(1, z.ndim + 1), 0).copy()
        yield t(x, y, tol=1e-4, expect=[expected], why=WHY)


for _name, _sign in (("ComplexMul", 1), ("ComplexMulConj", -1)):
    OPS[MS, _name].cases(lambda t, _sign=_sign: _products(t, _sign))

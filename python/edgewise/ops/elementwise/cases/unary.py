"""Test cases of ops/elementwise/unary.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..unary import bias_gelu, fast_gelu, not_, shrink, swiglu

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@fast_gelu.cases
def fast_gelu_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3, 37))
    yield t(t.f(2, 3, 37), t.f(37))


@bias_gelu.cases
def bias_gelu_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3, 37), t.f(37))


@swiglu.cases
def swiglu_cases(t: Toolbox) -> Cases:
    only = {"opset": 28, "trust": "onnx", "why": "newer than onnxruntime"}
    yield t(t.f(2, 3, 37), t.f(2, 3, 37), **only)
    yield t(t.f(5), t.f(5), alpha=1.702, **only)
    yield t(t.f(3, 5, dtype="float16"), t.f(3, 5, dtype="float16"), **only)
    yield t(t.f(3, 5, dtype="float64"), t.f(3, 5, dtype="float64"), alpha=0.5, **only)


@not_.cases
def not_cases(t: Toolbox) -> Cases:
    yield t(t.b(3, 37))
    yield t(t.b())
    yield t(t.b(0, 2))


@shrink.cases
def shrink_cases(t: Toolbox) -> Cases:
    for shape in ((), (3, 7), (0, 4)):
        yield t(t.f(*shape))
    yield t(t.f(3, 7), lambd=0.3, bias=0.2)
    yield t(t.f(3, 7), lambd=0.0, bias=-0.5)
    yield t(t.f(4, 5, dtype="float64"), bias=0.25)
    yield t(t.f(4, 5, dtype="float16"), bias=0.25)

"""Test cases of ops/elementwise/unary.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....declare.formula import INF, NAN
from ....declare.op import MS, OPS
from ..formulas import UNARY
from ..unary import bias_gelu, fast_gelu, gelu, not_, shrink, swiglu

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ....declare.annotations import Cases, Toolbox


_RANGE_OF = {
    "sqrt": (0, 50),
    "log": (1e-6, 50),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atanh": (-0.99, 0.99),
    "acosh": (1, 50),
    "tan": (-1.5, 1.5),
}


def _unary_cases(
    op: str, integers: bool = False, opset: int = 21, attrs: Sequence[dict[str, Any]] = ()
) -> Callable[[Toolbox], Cases]:
    def cases(t: Toolbox) -> Cases:
        low, high = _RANGE_OF.get(op, (-6, 6))
        for shape in ((), (1,), (3, 5), (2, 3, 37), (0, 4), (260,)):
            yield t(t.f(*shape, low=low, high=high), opset=opset)
        for dtype in ("float64", "float16"):
            other = (
                {"same_as": ("", "Gelu")}
                if t.domain and op == "gelu" and dtype == "float64"
                else {}
            )  # onnxruntime has no double one
            yield t(t.f(4, 9, low=low, high=high, dtype=dtype), opset=opset, **other)
        yield t(
            t.of(
                "float32",
                [
                    0.0,
                    -0.0,
                    INF,
                    -INF,
                    NAN,
                    0.5,
                    1.0,
                    -1.0,
                    1.5,
                    2.5,
                    -2.5,
                    30,
                    -30,
                    100,
                    -100,
                    1e-30,
                ],
            ),
            opset=opset,
        )
        for dtype in ("int8", "int16", "int32", "int64") if integers else ():
            yield t(t.n(dtype, 3, 7), opset=opset)
        for a in attrs:
            yield t(t.f(3, 11, low=low, high=high), opset=opset, **a)

    return cases


for _row in UNARY.values():
    for _operator, _attributes in _row.operators().items():
        _domain, _, _name = _operator.rpartition(".")
        if _domain in ("", MS):  # onnxruntime knows it
            _some: list[dict[str, float]] = [dict(zip(_attributes, (0.3,)))] if _attributes else []
            _both = [dict(zip(_attributes, (0.7, 0.25)))] if len(_attributes) > 1 else []
            _opset = 24 if _name == "Swish" else 21
            _rule = _unary_cases(_row.code, _row.integers, _opset, _some + _both)
            OPS[_domain, _name].cases(_rule)
gelu.cases(_unary_cases("gelu", attrs=[{"approximate": "tanh"}, {"approximate": "none"}]))


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

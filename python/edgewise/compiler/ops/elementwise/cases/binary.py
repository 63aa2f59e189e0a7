"""Test cases of ops/elementwise/binary.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....declare.formula import INF, NAN
from ... import OPS
from ..binary import LOGICAL, clip, pow_
from ..formulas import BINARY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....declare.annotations import Cases, Toolbox


@pow_.cases
def pow_cases(t: Toolbox) -> Cases:
    for e in (2.0, 3.0, 1.0, 0.5, -1.0, 0.0, 1.7):
        yield t(t.f(3, 37, low=0.1, high=5), e)
    for e in (2.0, 3.0, -2.0):
        yield t(t.f(3, 5), e)
    yield t(t.f(3, 1, 5, low=0, high=3), t.f(2, 5))
    yield t(t.f(3, 5), 2)
    yield t(t.f(3, 5, dtype="float64"), t.of("float32", [2, 3, 1, 0, 5]))
    yield t(t.f(5, low=0.5, high=2, dtype="float16"), t.of("float16", [2, 3, 1, 0, 5]))
    yield t(t.n("int32", 3, 4, low=-4, high=4), t.n("int32", 4, low=0, high=4))
    yield t(t.n("int64", 3, 4, low=-4, high=4), 2)
    yield t(t.n("int64", 3, 5, low=0, high=9), t.f(5, low=0, high=4))
    yield t(t.n("int32", 3, 4, low=-4, high=4), 3.0)
    yield t(t.f(2, 1), t.f(1, 1, 1, 1))
    yield t(t.f(0, 3), 2.0)
    yield t(
        t.of("float32", [0.0, -0.0, INF, -INF, NAN, 2.0, -8.0]).reshape(7, 1),
        t.of("float32", [0.0, 0.5, 2.0, 3.0, -1.0, INF, NAN]),
    )


@clip.cases
def clip_cases(t: Toolbox) -> Cases:
    yield t(t.f(3, 7), -0.5, 0.5)
    yield t(t.f(3, 7), None, 0.5)
    yield t(t.f(3, 7), -0.5)
    yield t(t.f(3, 7))
    yield t(t.f(3, 7), 0.5, -0.5)
    yield t(t.f(3, 7), -0.5, 0.5, opset=11)
    yield t(t.f(3, 7), opset=6, min=-0.5, max=0.5)
    yield t(t.f(3, 7), opset=6, min=-0.5)
    yield t(t.f(3, 7), opset=6)
    yield t(t.of("float32", [NAN, INF, -INF, 0.2]), -0.5, 0.5)
    yield t(t.f(5, dtype="float64"), t.of("float64", -0.5), t.of("float64", 0.1))
    yield t(t.f(5, dtype="float16"), t.of("float16", -0.5), t.of("float16", 0.1))
    for dtype in ("uint8", "int8", "int32", "int64", "uint64"):
        yield t(t.n(dtype, 9), t.of(dtype, 10), t.of(dtype, 40))
    yield t(t.f(0, 7), -0.5, 0.5)


def _binary_cases(op: str) -> Callable[[Toolbox], Cases]:
    def cases(t: Toolbox) -> Cases:
        attrs = {"fmod": 1} if op == "mod" else {}
        for a, c in [
            ((3, 4), (3, 4)),
            ((2, 3, 37), (37,)),
            ((2, 3, 4), (3, 1)),
            ((2, 2), ()),
            ((), ()),
            ((7,), (1,)),
            ((0, 3), (1, 3)),
        ] + (
            []
            if op == "prelu"
            else [
                ((), (2, 2)),
                ((5, 1, 3), (1, 4, 1)),
                ((1, 3), (0, 3)),
                ((2, 1, 3, 1, 2, 1), (1, 2, 1, 3, 1, 2)),
            ]
        ):
            yield t(t.b(*a), t.b(*c)) if op in LOGICAL else t(t.f(*a), t.f(*c), **attrs)
        if op in LOGICAL:
            return
        for dtype in ("float64", "float16"):
            yield t(t.f(4, 9, dtype=dtype), t.f(9, dtype=dtype), **attrs)
        special = [0.0, -0.0, INF, -INF, NAN, 1.0, -2.5]
        yield t(
            t.of("float32", special).reshape(7, 1),
            t.of("float32", special if op != "prelu" else [0.5]),
            **attrs,
        )
        for dtype in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
            x, y = t.n(dtype, 3, 1, 8), t.n(dtype, 2, 1) if op != "prelu" else t.n(dtype, 8)
            if op == "prelu" and dtype[-1] in "86" and dtype != "int64":
                continue  # not in its type list
            if op in ("div", "mod"):
                y[y == 0] = 3
            yield (
                t(x, y)
                if op != "div" or dtype[0] == "u"
                else t(
                    x,
                    y,
                    trust="ort",
                    why=(
                        "integers are divided towards zero, as C does; the reference evaluator"
                        " rounds down"
                    ),
                )
            )
            if op == "mod":
                yield t(x, y, fmod=1)
        if op == "equal":
            yield t(t.b(3, 4), t.b(4))

    return cases


for _name, _op in ((row.op, code) for code, row in BINARY.items() if row.op and "." not in row.op):
    OPS["", _name].cases(_binary_cases(_op))


def _variadic_cases(t: Toolbox, extreme: bool) -> Cases:
    yield t(t.f(2, 3))
    yield t(t.f(2, 3), t.f(2, 3))
    yield t(t.f(2, 1, 3), t.f(4, 1), t.f(3), t.f())
    yield t(t.f(0, 3), t.f(1, 3))
    yield t(t.f(2, 3, dtype="float64"), t.f(3, dtype="float64"))
    yield t(t.f(2, 3, dtype="float16"), t.f(3, dtype="float16"))
    if extreme:
        yield t(t.of("float32", [1, NAN, 2, -INF]), t.of("float32", [NAN, 1, 3, INF]))
        for dtype in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
            yield t(t.n(dtype, 3, 5), t.n(dtype, 5))


for _name in ("Max", "Min", "Sum", "Mean"):
    OPS["", _name].cases(lambda t, _name=_name: _variadic_cases(t, _name in ("Max", "Min")))

"""Test cases of ops/random/random.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....declare.op import OPS
from ..random import bernoulli, dropout, multinomial

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@dropout.cases
def dropout_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3), outputs=2)
    yield t(t.f(2, 3), 0.5, t.of("bool", False), outputs=2)
    yield t(t.f(2, 3), opset=7, ratio=0.5)
    yield t(t.f(0, 3), outputs=2)


@bernoulli.cases
def bernoulli_cases(t: Toolbox) -> Cases:
    x = t.of("float32", [[0, 1, 1], [0, 0, 1]])
    yield t(x, expect=[x], why="references draw other numbers")
    yield t(x, seed=3.0, dtype=7, expect=[x.astype("int64")], why="references draw other numbers")
    yield t(x.astype("float64"), dtype=9, expect=[x > 0], why="references draw other numbers")


@multinomial.cases
def multinomial_cases(t: Toolbox) -> Cases:
    inf = float("inf")
    x = t.of("float32", [[-inf, 3, -inf], [0, -inf, -inf], [-inf, -inf, -5]])
    classes = t.of("int32", [[1] * 4, [0] * 4, [2] * 4])
    yield t(x, sample_size=4, expect=[classes], why="references draw other numbers")
    yield t(
        x.astype("float64"),
        sample_size=4,
        dtype=7,
        seed=1.0,
        expect=[classes.astype("int64")],
        why="references draw other numbers",
    )
    yield t(t.f(2, 1), expect=[t.of("int32", [[0], [0]])], why="references draw other numbers")


def _distribution_cases(t: Toolbox) -> Cases:
    """Distributions that have one value; tests/ops/test_random.py has the others."""
    place = {"mean": 2.5, "scale": 0.0} if "Normal" in t.name else {"low": 2.5, "high": 2.5}
    like_input = t.name.endswith("Like")
    for dtype, code in (("float32", 1), ("float64", 11)):
        x = t.f(3, 5, dtype=dtype)
        for more in ({}, {"seed": 7.5}):
            attrs = {**place, **more, **({} if like_input else {"shape": [3, 5], "dtype": code})}
            yield t(
                *([x] if like_input else []),
                expect=[x * 0 + 2.5],
                why="references draw other numbers",
                **attrs,
            )


for _name in ("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike"):
    OPS["", _name].cases(_distribution_cases)

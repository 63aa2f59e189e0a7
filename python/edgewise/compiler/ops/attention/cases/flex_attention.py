"""Test cases of ops/attention/flex_attention.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..flex_attention import flex_attention

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@flex_attention.cases
def flex_attention_cases(t: Toolbox) -> Cases:
    attrs = {"opset": 25, "tol": 1e-4}
    q, k, v = t.f(2, 4, 5, 8), t.f(2, 2, 7, 8), t.f(2, 2, 7, 6)
    yield t(q, k, v, **attrs)
    yield t(q, k, v, scale=0.3, **attrs)
    capped = t.graph(
        "cap",
        [("Div", ("s", "c0"), "a"), ("Tanh", ("a",), "b"), ("Mul", ("b", "c0"), "out")],
        t.of("float32", 2.0),
    )
    biased = t.graph("bias", [("Add", ("s", "c0"), "out")], t.f(5, 7))
    halved = t.graph("half", [("Mul", ("s", "c0"), "out")], t.of("float32", 0.5))
    yield t(q, k, v, score_mod=capped, **attrs)
    yield t(q, k, v, score_mod=biased, prob_mod=halved, **attrs)
    yield t(q, k, v, prob_mod=halved, scale=0.7, **attrs)

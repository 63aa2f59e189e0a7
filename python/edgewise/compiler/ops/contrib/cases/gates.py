"""Test cases of ops/contrib/gates.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..gates import attention_gate, gated_add, gated_norm, scaled_silu

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@gated_norm.cases
def gated_norm_cases(t: Toolbox) -> Cases:
    for width in (16, 4):
        for name in ("silu", "sigmoid", "swish"):
            yield t(
                t.f(2, 3, 16), t.f(width), t.f(2, 3, 16), activation=name, epsilon=1e-5, tol=1e-4
            )


@gated_add.cases
def gated_add_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3, 8), t.f(2, 3, 8), t.f(2, 3, 1))


@attention_gate.cases
def attention_gate_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3, 4), t.f(4), -abs(t.f(4)), t.f(2, 3, 4), outputs=2)
    yield t(t.f(2, 3, 4), t.f(4), -abs(t.f(4)))


@scaled_silu.cases
def scaled_silu_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3, 4), alpha=1.5)
    yield t(t.f(2, 3, 4), t.of("float32", 0.5), alpha=1.5)

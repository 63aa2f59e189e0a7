"""Test cases of ops/contrib/gates.py."""

from __future__ import annotations

from ..gates import attention_gate, gated_add, gated_norm, scaled_silu


@gated_norm.cases
def gated_norm_cases(t):
    for width in (16, 4):
        for name in ("silu", "sigmoid", "swish"):
            yield t(
                t.f(2, 3, 16), t.f(width), t.f(2, 3, 16), activation=name, epsilon=1e-5, tol=1e-4
            )


@gated_add.cases
def gated_add_cases(t):
    yield t(t.f(2, 3, 8), t.f(2, 3, 8), t.f(2, 3, 1))


@attention_gate.cases
def attention_gate_cases(t):
    yield t(t.f(2, 3, 4), t.f(4), -abs(t.f(4)), t.f(2, 3, 4), outputs=2)
    yield t(t.f(2, 3, 4), t.f(4), -abs(t.f(4)))


@scaled_silu.cases
def scaled_silu_cases(t):
    yield t(t.f(2, 3, 4), alpha=1.5)
    yield t(t.f(2, 3, 4), t.of("float32", 0.5), alpha=1.5)

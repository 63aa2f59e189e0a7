"""Test cases of ops/contrib/moe.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....declare.op import product
from ..moe import moe, qmoe

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

# ---- cases ----
GPT_OSS = {
    "activation_type": "swiglu",
    "swiglu_fusion": 1,
    "activation_alpha": 1.702,
    "activation_beta": 1.0,
    "swiglu_limit": 7.0,
}


def _scores(t: Toolbox, *tokens: int) -> Any:
    """Scores of four experts, all different: the order of equal ones is not defined."""
    return (
        t.of("float32", [list(t.random.permutation(4) + 1) for _ in range(product(tokens))]) * 0.5
    )


@moe.cases
def moe_cases(t: Toolbox) -> Cases:
    for tokens in ((2, 3), (2,), (1, 1)):
        for activation in ("relu", "gelu", "silu", "identity"):
            yield t(
                t.f(*tokens, 8),
                _scores(t, *tokens) * 2,
                t.f(4, 6, 8) * 0.3,
                t.f(4, 6),
                t.f(4, 8, 6) * 0.3,
                t.f(4, 8),
                k=2,
                activation_type=activation,
                normalize_routing_weights=1,
                tol=1e-4,
            )
        yield t(
            t.f(*tokens, 16),
            _scores(t, *tokens) * 2,
            t.f(4, 48, 16) * 0.3,
            t.f(4, 48),
            t.f(4, 16, 24) * 0.3,
            t.f(4, 16),
            k=2,
            normalize_routing_weights=1,
            tol=1e-4,
            attributes=GPT_OSS,
        )
    yield t(
        t.f(3, 16),
        _scores(t, 3),
        t.const(t.f(4, 48, 16) * 0.3),
        None,
        t.const(t.f(4, 16, 24) * 0.3),
        k=3,
        activation_type="swiglu",
        swiglu_fusion=1,
        tol=1e-4,
    )
    for count in (3, 1):  # at the end: of float16, onnxruntime gives zeros
        yield t(
            t.f(count, 16),
            _scores(t, count),
            t.f(4, 24, 16) * 0.3,
            None,
            t.f(4, 16, 24) * 0.3,
            k=1,
            activation_type="silu",
            tol=1e-4,
        )


@qmoe.cases
def qmoe_cases(t: Toolbox) -> Cases:
    # Over 60 lines: a list of cases.
    for bits in (4, 8, 2):
        for block in (0, 16, 32):
            fixed = (
                (lambda x: x) if bits == 8 and block else t.const
            )  # of constant ones onnxruntime rounds the activations, too
            for zeros in (False, True):
                for tokens, attrs in (((2, 3), {"activation_type": "silu"}), ((1, 1), GPT_OSS)):
                    fused = 2 if "swiglu_fusion" in attrs else 1
                    inputs = [t.f(*tokens, 64), _scores(t, *tokens) * 2]
                    points = []
                    for out, width in ((32 * fused, 64), (64, 32)):
                        inputs += [
                            fixed(t.n("uint8", 4, out, width * bits // 8, low=0, high=255)),
                            t.const(
                                t.f(
                                    4,
                                    out,
                                    *([width // block] if block else []),
                                    low=0.005,
                                    high=0.02,
                                )
                            ),
                            t.f(4, out),
                        ]
                        points.append(
                            t.const(
                                t.n(
                                    "uint8",
                                    4,
                                    *(
                                        [out, -(-width // block * bits // 8)]
                                        if block
                                        else [out * bits // 8]
                                    ),
                                    low=0,
                                    high=255,
                                )
                            )
                            if zeros
                            else None
                        )
                    more = [None] * 3 + points if zeros else []
                    yield t(
                        *inputs,
                        *more,
                        k=2,
                        normalize_routing_weights=1,
                        expert_weight_bits=bits,
                        tol=1e-4,
                        fold=False,
                        attributes={**attrs, **({"block_size": block} if block else {})},
                    )
    for normalize in (0, 1):
        yield t(
            *inputs,
            *more,
            None,
            t.f(1, 4, low=0, high=1),
            k=2,
            normalize_routing_weights=normalize,
            expert_weight_bits=2,
            tol=1e-4,
            fold=False,
            attributes={**attrs, "block_size": 32},
        )

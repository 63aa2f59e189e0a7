"""Test cases of ops/attention/linear_attention.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....declare.op import MS
from ... import OPS

if TYPE_CHECKING:
    from typing import Any

    from ....declare.annotations import Cases, Toolbox


def _linear_cases(t: Toolbox, **common: Any) -> Cases:
    for rule in ("linear", "gated", "delta", "gated_delta"):
        for batch, seq, heads, kv, dim, v_dim, past, wide in (
            (2, 5, 4, 4, 8, 8, False, False),
            (1, 1, 4, 2, 8, 16, True, True),
            (2, 37, 6, 3, 5, 21, True, False),
            (1, 3, 2, 2, 16, 7, False, True),
        ):
            q, k, v = (
                t.f(batch, seq, heads * dim),
                t.f(batch, seq, kv * dim) * 0.3,
                t.f(batch, seq, kv * v_dim),
            )
            state = t.f(batch, kv, dim, v_dim) if past else None
            decay = -abs(t.f(batch, seq, kv * dim if wide else kv)) if "gated" in rule else None
            beta = t.f(batch, seq, 1 if wide else kv, low=0, high=1) if "delta" in rule else None
            attrs = {"scale": 0.25} if past else {}
            yield t(
                q,
                k,
                v,
                state,
                decay,
                beta,
                outputs=2,
                update_rule=rule,
                q_num_heads=heads,
                kv_num_heads=kv,
                tol=1e-4,
                **common,
                **attrs,
            )
    if not common:
        q, k, v = t.f(2, 5, 16), t.f(2, 5, 32) * 0.3, t.f(2, 5, 24)
        yield t(
            q,
            k,
            v,
            None,
            -abs(t.f(2, 5, 4)),
            t.f(2, 5, 4, low=0, high=1),
            outputs=2,
            q_num_heads=2,
            kv_num_heads=4,
            tol=1e-4,
        )  # several key heads per query head


def _conv_cases(t: Toolbox, more: dict[str, Any]) -> Cases:
    for length, k, past, bias, activation in (
        (6, 4, False, False, "none"),
        (6, 4, True, True, "silu"),
        (1, 4, True, False, "swish"),
        (5, 1, False, True, "none"),
        (2, 4, False, True, "silu"),
    ):
        yield t(
            t.f(2, 3, length),
            t.const(t.f(3, 1, k)),
            t.const(t.f(3)) if bias else None,
            t.f(2, 3, k - 1) if past else None,
            outputs=2,
            activation=activation,
            tol=1e-4,
            **more,
        )
    if not more:
        for past in (False, True):
            yield t(
                t.f(2, 3, 6),
                t.const(t.f(3, 1, 3)),
                None,
                t.f(2, 3, 4) if past else None,
                outputs=2,
                dilation=2,
                tol=1e-4,
            )
            yield t(
                t.f(2, 6, 4),
                t.const(t.f(4, 1, 3)),
                t.const(t.f(4)),
                t.f(2, 2, 4) if past else None,
                outputs=2,
                channels_last=1,
                activation="silu",
                tol=1e-4,
            )


# com.microsoft's own, and ONNX's, which onnxruntime does not know
_NEWEST = {"opset": 27, "trust": "onnx", "why": "onnxruntime knows no opset 27"}
for _domain, _more in (("", _NEWEST), (MS, {})):
    OPS[_domain, "LinearAttention"].cases(lambda t, _more=_more: _linear_cases(t, **_more))
    OPS[_domain, "CausalConvWithState"].cases(lambda t, _more=_more: _conv_cases(t, _more))

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
        for rule in ("linear", "gated_delta"):  # keys of the model that several values share
            for heads, keys, kv, seq in ((2, 2, 4, 5), (4, 1, 4, 1), (2, 3, 6, 4)):
                q, k, v = t.f(2, seq, heads * 8), t.f(2, seq, keys * 8) * 0.3, t.f(2, seq, kv * 5)
                yield t(
                    *(q, k, v, t.f(2, kv, 8, 5), -abs(t.f(2, seq, kv * 8))),
                    t.f(2, seq, kv, low=0, high=1),
                    outputs=2,
                    update_rule=rule,
                    q_num_heads=heads,
                    kv_num_heads=kv,
                    tol=1e-4,
                )
        yield from _windowed_linear(t)
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


_WINDOW = "onnxruntime keeps no state for each position on the processor"


def _windowed_linear(t: Toolbox) -> Cases:
    """A state after each of the last positions: the gated delta rule, by its definition."""
    for seq, window in ((5, 3), (1, 4), (3, 3), (2, 1)):
        q, k, v = (t.f(2, seq, 4 * dim) for dim in (6, 6, 5))
        past, decay, beta = t.f(window, 2, 4, 6, 5), -abs(t.f(2, seq, 4)), t.f(2, seq, 4)
        s, ys, states = past[-1].astype("float64"), [], []
        for i in range(seq):
            qi, ki, vi = (x[:, i].reshape(2, 4, -1) for x in (q, k, v))
            s = s * (2.718281828459045 ** decay[:, i].astype("float64"))[..., None, None]
            error = vi - (s * ki[..., None]).sum(-2)
            s = s + ki[..., None] * (error * beta[:, i][..., None])[..., None, :]
            ys.append((s * qi[..., None]).sum(-2).reshape(2, 1, 20) * 6**-0.5)
            states.append(s)
        states = ([s * 0] * window + states)[-window:]
        yield t(
            *(q, k, v, past, decay, beta),
            outputs=2,
            q_num_heads=4,
            kv_num_heads=4,
            state_window=window,
            tol=1e-4,
            expect=[
                t.of("float32", [[y[b, 0] for y in ys] for b in (0, 1)]),
                t.of("float32", states),
            ],
            why=_WINDOW,
        )


def _windowed_conv(t: Toolbox) -> Cases:
    """A state after each of the last positions: the two positions up to it."""
    for length, window, last in ((5, 3, 0), (1, 4, 0), (4, 2, 1), (2, 2, 1)):
        x, w, past = t.f(2, 3, length), t.f(3, 1, 3), t.f(window, 2, 3, 2)
        whole = t.of("float32", [[[*p, *r] for p, r in zip(*rows)] for rows in zip(past[-1], x)])
        y = sum(whole[:, :, i : i + length] * w[None, :, :, i] for i in range(3))
        states = [whole[:, :, i + 1 : i + 3] for i in range(length)]
        states = ([states[0] * 0] * window + states)[-window:]
        y, state = t.of("float32", y), t.of("float32", states)
        if last:
            x, past, y, state = (v.swapaxes(-1, -2).copy() for v in (x, past, y, state))
        yield t(
            *(x, t.const(w), None, past),
            outputs=2,
            channels_last=last,
            state_window=window,
            tol=1e-4,
            expect=[y, state],
            why=_WINDOW,
        )


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
        yield from _windowed_conv(t)
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

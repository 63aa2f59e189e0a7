"""Test cases of ops/contrib/delta_net.py, by its definition: onnxruntime has it on GPUs only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..delta_net import delta_net

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

E = 2.718281828459045


def _walk(t: Toolbox, q: Any, k: Any, v: Any, decay: Any, beta: Any, state: Any) -> list[Any]:
    """[y, last state] of [batch, tokens, heads, size], the state [batch, heads, v size, size]."""
    group = v.shape[2] // q.shape[2]
    q, k = q.repeat(group, 2), k.repeat(group, 2)
    s, ys = state.astype("float64"), []
    for i in range(q.shape[1]):
        if decay is not None:
            step = E ** decay[:, i].astype("float64")
            s = s * (step[:, :, None, None] if step.ndim == 2 else step[:, :, None, :])
        error = v[:, i].astype("float64")
        if beta is not None:
            error = (error - (s * k[:, i, :, None, :]).sum(-1)) * beta[:, i, :, None]
        s = s + error[..., None] * k[:, i, :, None, :]
        ys.append((s * q[:, i, :, None, :]).sum(-1) * q.shape[-1] ** -0.5)
    return [t.of("float32", ys).swapaxes(0, 1).copy(), s.astype("float32")]


@delta_net.cases
def delta_net_cases(t: Toolbox) -> Cases:
    why = "onnxruntime has it on GPUs only"
    batch, heads, kv, size, v_size = 2, 2, 4, 6, 5
    for rule, tokens, form in (
        ("gated_delta", 5, "rows"),
        ("gated_delta", 1, "tokens"),
        ("gated_delta", 4, "packed"),
        ("delta", 3, "rows"),
        ("gated", 3, "wide"),
        ("linear", 3, "tokens"),
        ("gated_delta", 4, "activated"),
    ):
        q, k = (t.f(batch, tokens, heads, size) for _ in range(2))
        v, state = t.f(batch, tokens, kv, v_size), t.f(batch, kv, v_size, size)
        decay = -abs(t.f(batch, tokens, kv, *([size] if form == "wide" else [])))
        beta, a_log, bias = t.f(batch, tokens, kv), t.f(kv), t.f(kv)
        attrs: dict[str, Any] = {"update_rule": rule}
        gates = [decay if "gated" in rule else None, beta if "delta" in rule else None]
        used, more = [q, k, *gates], []
        if form == "activated":
            attrs |= {"qk_l2_norm": 1, "gate_activation": "qwen", "beta_activation": "sigmoid"}
            x = decay + bias
            used = [v / (v * v).sum(-1, keepdims=True) ** 0.5 for v in (q, k)]
            gate = t.of("float64", [0.0]) + E**x
            used += [-(E**a_log) * _log1p(gate), 1 / (1 + E**-beta)]
            more = [a_log, bias]
        else:
            k *= 0.3
        expected = _walk(t, used[0], used[1], v, used[2], used[3], state)
        inputs = [q, k, v, None, *gates, state, *more]
        if form != "rows" and form != "activated":  # the tokens of all rows
            inputs = [x.reshape(-1, *x.shape[2:]) if x is not None else None for x in inputs]
            inputs[6] = state
            expected[0] = expected[0].reshape(-1, kv, v_size)
        if form == "packed":
            flat = [x.reshape(batch * tokens, -1) for x in (q, k, v)]
            rows = [[*a, *b, *c] for a, b, c in zip(*flat)]
            inputs[:3] = [t.of("float32", rows), None, None]
        yield t(*inputs, outputs=2, tol=1e-4, expect=expected, why=why, **attrs)


def _log1p(x: Any) -> Any:
    """log(1 + x), by Newton's method."""
    y = x / (1 + x)
    for _ in range(60):
        y = y - 1 + (1 + x) / E**y
    return y

"""Gradients of attention and rotary embeddings against PyTorch."""

import numpy as np
import onnx
import pytest
import torch
from passes.graphs import Graph
from passes.test_rotary import rotary, tables

from .compare import MS, R, check, close, f
from .model import gradients, node_model

# ---- attention ----


def sdpa(q, k, v, mask=None, causal=False, scale=None, softcap=0.0, window=0, sink=None):
    """Attention in basic operations, with shared heads, a window and a soft cap; a mask is added,
    or selects if it is bool. sink: a score of each head without a value.
    """
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if mask is not None:
        s = (
            s.masked_fill(~torch.as_tensor(mask), -np.inf)
            if getattr(mask, "dtype", None) in (np.bool_, torch.bool)
            else s + mask
        )
    if causal:
        i, j = torch.arange(s.shape[-2])[:, None], torch.arange(s.shape[-1])[None]
        allowed = j <= i + (causal - 1)
        if window:
            allowed &= j > i + (causal - 1) - window
        s = s.masked_fill(~allowed, -np.inf)
    if sink is not None:
        s = torch.cat([sink[:, None, None].expand(*s.shape[:3], 1), s], -1)
        return torch.softmax(s, -1)[..., 1:] @ v
    return torch.softmax(s, -1) @ v


SHAPES = {
    "plain": {},
    "grouped": {"kv": 2},
    "cross": {"q_len": 3, "kv_len": 7, "kv": 1, "v_dim": 6},
    "one": {"batch": 1, "heads": 3, "kv": 1, "q_len": 1, "kv_len": 5},
    "blocks": {
        "batch": 1,
        "heads": 4,
        "kv": 2,
        "q_len": 300,
        "kv_len": 300,
        "dim": 16,
        "v_dim": 16,
    },
}


def qkv(batch=2, heads=4, kv=4, q_len=5, kv_len=5, dim=8, v_dim=8):
    return f(batch, heads, q_len, dim), f(batch, kv, kv_len, dim), f(batch, kv, kv_len, v_dim)


@pytest.mark.parametrize("shape", SHAPES)
def test_attention(engine, shape):
    q, k, v = qkv(**SHAPES[shape])
    new = {"opset": 23}
    q_len, kv_len = q.shape[2], k.shape[2]
    check(engine, "Attention", [q, k, v], sdpa, **new)
    check(
        engine,
        "Attention",
        [q, k, v],
        lambda q, k, v: sdpa(q, k, v, scale=0.3, softcap=2.0),
        scale=0.3,
        softcap=2.0,
        **new,
    )
    for mask in (
        f(q_len, kv_len),
        f(q.shape[0], 1, q_len, kv_len),
        f(q.shape[0], q.shape[1], q_len, kv_len),
        f(q.shape[1], 1, kv_len),
    ):
        check(engine, "Attention", [q, k, v, mask], sdpa, **new)
    check(
        engine,
        "Attention",
        [q, k, v, f(q_len, kv_len)],
        lambda q, k, v, m: sdpa(q, k, v, m, softcap=3.0),
        softcap=3.0,
        **new,
    )
    mask = R.random((q.shape[0], 1, q_len, kv_len)) < 0.5
    mask[..., 0] = True
    check(engine, "Attention", [q, k, v, mask], sdpa, **new)
    if q_len == kv_len:
        check(
            engine,
            "Attention",
            [q, k, v],
            lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            ),
            is_causal=1,
            **new,
        )
        check(
            engine,
            "Attention",
            [q, k, v, f(q.shape[0], 1, q_len, kv_len)],
            lambda q, k, v, m: sdpa(q, k, v, m, 1, softcap=2.0),
            is_causal=1,
            softcap=2.0,
            **new,
        )


@pytest.mark.parametrize("left, right", [(-1, 1), (2, -1), (2, 1), (3, 0), (0, 0)])
def test_attention_windows(engine, left, right):
    """Windows with three kinds of positions: of the queries alone, after a past, and by the length
    of each row.
    """

    def allowed(q_len, kv_len, past):
        at, j = torch.arange(q_len)[:, None] + past, torch.arange(kv_len)[None]
        return (
            (left < 0) | (j >= at - left) & ((right < 0) | (j <= at + right))
            if left >= 0
            else j <= at + right
        )

    attrs = {"left_window_size": left, "right_window_size": right, "opset": 25}
    q, k, v = qkv(kv=2, q_len=150, kv_len=150)
    check(
        engine, "Attention", [q, k, v], lambda q, k, v: sdpa(q, k, v, allowed(150, 150, 0)), **attrs
    )
    q, k, v = qkv(kv=2, q_len=3, kv_len=3)
    check(
        engine,
        "Attention",
        [q, k, v, None, f(2, 2, 4, 8), f(2, 2, 4, 8)],
        lambda q, k, v, _, pk, pv: (
            sdpa(q, torch.cat([pk, k], 2), torch.cat([pv, v], 2), allowed(3, 7, 4)),
            torch.cat([pk, k], 2),
            torch.cat([pv, v], 2),
        ),
        outputs=3,
        **attrs,
    )
    q, k, v = qkv(q_len=2, kv_len=9)
    lengths = np.array([5, 9])
    mask = torch.stack([allowed(2, 9, n - 2) & (torch.arange(9) < n) for n in lengths])[:, None]
    check(
        engine,
        "Attention",
        [q, k, v, None, None, None, lengths],
        lambda q, k, v, *_: sdpa(q, k, v, mask),
        **attrs,
    )


def heads_of(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def flat(x):
    return x.transpose(1, 2).flatten(2)


def test_attention_flat_with_past(engine):
    def reference(q, k, v, _, pk, pv):
        k, v = torch.cat([pk, heads_of(k, 2)], 2), torch.cat([pv, heads_of(v, 2)], 2)
        return flat(sdpa(heads_of(q, 4), k, v, causal=5)), k, v

    check(
        engine,
        "Attention",
        [f(2, 3, 32), f(2, 3, 16), f(2, 3, 12), None, f(2, 2, 4, 8), f(2, 2, 4, 6)],
        reference,
        outputs=3,
        q_num_heads=4,
        kv_num_heads=2,
        is_causal=1,
        opset=23,
    )


def test_nothing_to_attend_to_has_no_gradient(engine):
    q, k, v = qkv()
    mask = np.ones((2, 1, 5, 5), bool)
    mask[1, 0, 3:] = False
    model, feeds = node_model("Attention", [q, k, v, mask], opset=23)
    dy = f(2, 4, 5, 8)
    dy[1, :, 3:] = 0
    _, grads, _, _ = gradients(model, feeds, engine, seeds={"y0": dy})
    assert all(np.isfinite(x).all() for x in grads.values())


def turned_at(x, cos, sin, ids, interleaved):
    """x [batch, heads, length, dim] by rows of the tables; ids: positions, or None: from 0."""
    at = torch.arange(x.shape[2])[None] if ids is None else torch.as_tensor(ids)
    cos, sin = cos[at][:, None], sin[at][:, None]
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    y = a * cos - b * sin, b * cos + a * sin
    return torch.stack(y, -1).flatten(-2) if interleaved else torch.cat(y, -1)


@pytest.mark.parametrize("packed", (False, True))
@pytest.mark.parametrize("rotary", (None, 0, 1))
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"local_window_size": 4},
        {"softcap": 1.5, "scale": 0.2},
        {"bias": True},
        {"ids": True},
        {"sink": True},
        {"sink": True, "local_window_size": 4, "bias": True},
        {"sink": True, "local_window_size": 40, "length": 150, "softcap": 2.0},
        {"smooth_softmax": 1, "softcap": 1.5},
    ],
    ids=str,
)
def test_group_query_attention(engine, packed, rotary, more):
    more = dict(more)
    batch, heads, kv, length, dim = 2, 4, 2, more.pop("length", 9), 8
    sink = [f(heads)] if more.pop("sink", False) else []
    bias = [f(1, 1, length, length)] if more.pop("bias", False) else [None]
    ids = (
        R.integers(0, 20, (batch, length))
        if more.pop("ids", False) and rotary is not None
        else None
    )
    q, k, v = (f(batch, length, n * dim) for n in (heads, kv, kv))
    tables = [f(150, dim // 2), f(150, dim // 2)] if rotary is not None else [None, None]
    ints = [np.full(batch, length - 1, np.int32), np.array(length, np.int32)]
    inputs = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]

    def reference(q, k, v, *rest):
        cos, sin, bias = rest[4], rest[5], rest[7]
        if packed:
            q, k, v = q.split([heads * dim, kv * dim, kv * dim], 2)
        q, k, v = heads_of(q, heads), heads_of(k, kv), heads_of(v, kv)
        if rotary is not None:
            q, k = (turned_at(x, cos, sin, ids, rotary) for x in (q, k))
        scores = torch.zeros(heads) if "smooth_softmax" in more else rest[8] if sink else None
        return (
            flat(
                sdpa(
                    q,
                    k,
                    v,
                    bias,
                    1,
                    more.get("scale"),
                    more.get("softcap", 0.0),
                    more.get("local_window_size", 0),
                    scores,
                )
            ),
            k,
            v,
        )

    attrs = {"do_rotary": 1, "rotary_interleaved": rotary} if rotary is not None else {}
    check(
        engine,
        "GroupQueryAttention",
        [*inputs, None, None, *ints, *tables, ids, *bias, *sink],
        reference,
        outputs=3,
        domain=MS,
        num_heads=heads,
        kv_num_heads=kv,
        **attrs,
        **more,
    )


def test_multi_head_attention(engine):
    q, k, v = f(2, 5, 32), f(2, 7, 32), f(2, 7, 24)
    mask = np.array([[1, 1, 1, 1, 1, 0, 0], [1] * 7], np.int32)
    more = {"domain": MS, "num_heads": 4}

    def reference(q, k, v, _=None, mask=None, bias=None, causal=False):
        m = None if mask is None else torch.tensor((1 - mask) * -10000.0).float()[:, None, None]
        m = bias if m is None else m if bias is None else m + bias
        return flat(sdpa(heads_of(q, 4), heads_of(k, 4), heads_of(v, 4), m, causal))

    check(engine, "MultiHeadAttention", [q, k, v], reference, **more)
    check(engine, "MultiHeadAttention", [q, k, v, None, mask], reference, **more)
    check(engine, "MultiHeadAttention", [q, k, v, None, None, f(1, 4, 5, 7)], reference, **more)
    check(
        engine,
        "MultiHeadAttention",
        [q, f(2, 4, 7, 8), f(2, 4, 7, 8)],
        lambda q, k, v: flat(sdpa(heads_of(q, 4), k, v)),
        **more,
    )
    check(
        engine,
        "MultiHeadAttention",
        [f(2, 5, 4, 3, 8)],
        lambda x: reference(*(x[:, :, :, i].flatten(2) for i in range(3)), causal=True),
        unidirectional=1,
        **more,
    )
    check(
        engine,
        "MultiHeadAttention",
        [q, f(2, 7, 4, 2, 8)],
        lambda q, x: reference(q, *(x[:, :, :, i].flatten(2) for i in range(2))),
        **more,
    )


@pytest.mark.parametrize("interleaved", (0, 1))
def test_rotary_embedding(engine, interleaved):
    def turned(x, cos, sin, half):
        x, rest = x[..., : 2 * half], x[..., 2 * half :]
        a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
        y = a * cos - b * sin, b * cos + a * sin
        return torch.cat(
            [torch.stack(y, -1).flatten(-2) if interleaved else torch.cat(y, -1), rest], -1
        )

    ids = R.integers(0, 20, (2, 5))
    check(
        engine,
        "RotaryEmbedding",
        [f(2, 3, 5, 8), f(20, 4), f(20, 4), ids],
        lambda x, c, s, i: turned(x, c[i][:, None], s[i][:, None], 4),
        opset=23,
        interleaved=interleaved,
    )
    check(
        engine,
        "RotaryEmbedding",
        [f(2, 5, 30), f(2, 5, 2), f(2, 5, 2)],
        lambda x, c, s: flat(turned(heads_of(x, 3), c[:, None], s[:, None], 2)),
        opset=23,
        interleaved=interleaved,
        num_heads=3,
        rotary_embedding_dim=4,
    )
    check(
        engine,
        "RotaryEmbedding",
        [f(2, 5, 24), np.array([4]), f(20, 4), f(20, 4)],
        lambda x, i, c, s: flat(turned(heads_of(x, 3), c[4:9], s[4:9], 4)),
        domain=MS,
        interleaved=interleaved,
        num_heads=3,
    )
    check(
        engine,
        "RotaryEmbedding",
        [f(2, 3, 5, 8), ids, f(20, 4), f(20, 4)],
        lambda x, i, c, s: turned(x, c[i][:, None], s[i][:, None], 4),
        domain=MS,
        interleaved=interleaved,
    )


@pytest.mark.parametrize("kv", (4, 2))
@pytest.mark.parametrize("softcap", (0.0, 3.0))
def test_attention_as_exporters_spell_it(engine, kv, softcap):
    """Rotary embedding, shared heads, a float bias and merged heads, recognised before gradients
    are made.
    """
    B, H, S, D = 2, 4, 9, 8
    g = Graph()
    cos, sin = tables(g, D, batch=1, seq=S)
    x = [g.input(B, S, n * D) for n in (H, kv, kv)]
    bias = g.input(1, H, S, S)
    q, k, v = (
        g.Transpose(g.Reshape(a, [B, S, n, D]), perm=[0, 2, 1, 3]) for a, n in zip(x, (H, kv, kv))
    )
    q, k = rotary(g, q, cos, sin), rotary(g, k, cos, sin)
    if kv != H:
        k, v = (
            g.Reshape(g.Expand(g.unsqueeze(a, 2), [B, kv, H // kv, S, D]), [B, H, S, D])
            for a in (k, v)
        )
    s = g.Mul(g.MatMul(q, g.Transpose(k, perm=[0, 1, 3, 2])), D**-0.5)
    if softcap:
        s = g.Mul(g.Tanh(g.Div(s, softcap)), softcap)
    y = g.MatMul(g.Softmax(g.Add(s, bias), axis=-1), v)
    g.output(g.Reshape(g.Transpose(y, perm=[0, 2, 1, 3]), [B, S, H * D]))
    model = onnx.load_from_string(g.model())
    got, grads, seeds, plan = gradients(model, g.feeds, engine, wrt=[*x, bias])
    assert (
        "attention" in plan.kernels
        and "rope" in plan.kernels
        and "softmax_and_grad" in plan.kernels
    )
    t = {n: torch.tensor(a, requires_grad=True) for n, a in g.feeds.items()}
    at = torch.arange(S)[:, None] * torch.tensor(1 / 10000 ** (np.arange(0, D, 2) / D)).float()
    c, sn = at.cos(), at.sin()

    def turn(a):
        lo, hi = a.chunk(2, -1)
        return torch.cat([lo * c - hi * sn, hi * c + lo * sn], -1)

    q, k, v = (heads_of(t[n], m) for n, m in zip(x, (H, kv, kv)))
    want = flat(sdpa(turn(q), turn(k), v, t[bias], softcap=softcap))
    (want * torch.tensor(next(iter(seeds.values())))).sum().backward()
    close(next(iter(v for n, v in got.items())), want.detach().numpy(), 1e-4, "output")
    for n in (*x, bias):
        close(grads[n], t[n].grad.numpy(), 1e-4, f"gradient of {n}")

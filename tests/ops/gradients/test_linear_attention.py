"""Gradients of linear attention, of the convolution in front of it and of their gates, against
PyTorch, which goes token by token.
"""

import edgewise
import numpy as np
import pytest
import torch
from edgewise.compiler.bind.autodiff import add_gradients
from edgewise.compiler.declare.dtypes import FLOAT
from edgewise.compiler.declare.values import RunTensor
from edgewise.compiler.plan import compile_graph
from edgewise.host.session.compiled import Compiled
from engines import open_engine

from .compare import MS, R, check, close, f
from .model import node_model


def walk(q, k, v, state, decay, beta, heads, kv, scale):
    """Linear attention by its definition. decay: logarithms, or None; beta: or None."""
    outs = max(heads, kv)
    q, k, v = (x.unflatten(2, (n, -1)) for x, n in ((q, heads), (k, kv), (v, kv)))
    s = torch.zeros(*k.shape[:1], kv, k.shape[3], v.shape[3]).to(k) if state is None else state
    ys = []
    for t in range(q.shape[1]):
        if decay is not None:
            s = s * decay[:, t].unflatten(1, (kv, -1)).exp()[..., None]
        u = v[:, t]
        if beta is not None:
            u = (u - (k[:, t, :, None] @ s)[:, :, 0]) * beta[:, t, :, None]
        s = s + k[:, t, :, :, None] * u[:, :, None]
        wide = s.repeat_interleave(outs // kv, 1)
        ys.append((q[:, t].repeat_interleave(outs // heads, 1)[:, :, None] @ wide)[:, :, 0])
    return scale * torch.stack(ys, 1).flatten(2), s


# batch, tokens, query heads, key heads, heads of the state, dim, v_dim, past, decay of each row
SHAPES = {
    "short": (2, 5, 4, 4, 4, 8, 8, False, False),
    "chunks": (1, 150, 2, 2, 2, 8, 5, True, False),
    "rows": (1, 37, 2, 2, 2, 6, 4, True, True),
    "shared": (1, 20, 4, 2, 2, 6, 7, True, False),
    "shared keys": (2, 9, 2, 2, 4, 6, 5, True, False),
    "one": (1, 1, 2, 2, 2, 4, 4, True, True),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rule", ("linear", "gated", "delta", "gated_delta"))
def test_linear_attention(engine, rule, shape):
    batch, tokens, heads, keys, kv, dim, v_dim, past, by_row = SHAPES[shape]
    k = f(batch, tokens, keys, dim)
    k /= np.sqrt((k * k).sum(-1, keepdims=True))
    decay = -np.abs(f(batch, tokens, kv * dim if by_row else kv))
    beta = R.random((batch, tokens, kv)).astype(np.float32)
    inputs = [
        f(batch, tokens, heads * dim),
        k.reshape(batch, tokens, -1),
        f(batch, tokens, kv * v_dim),
        f(batch, kv, dim, v_dim) if past else None,
        decay if "gated" in rule else None,
        beta if "delta" in rule else None,
    ]

    def reference(q, k, v, state, decay, beta):
        k = k.unflatten(2, (keys, -1)).repeat_interleave(kv // keys, 2).flatten(2)
        return walk(q, k, v, state, decay, beta, heads, kv, dim**-0.5)

    check(
        engine,
        "LinearAttention",
        inputs,
        reference,
        outputs=2,
        domain=MS,
        update_rule=rule,
        q_num_heads=heads,
        kv_num_heads=kv,
    )


@pytest.mark.parametrize("steep", (0.0, 30.0))
def test_equal_keys(engine, steep):
    """A text of one token: what a chunk adds to a row adds up, or is forgotten at once."""
    k = np.tile(f(1, 1, 8), (1, 130, 1))
    k /= np.sqrt((k * k).sum(-1, keepdims=True))
    decay = np.full((1, 130, 1), -steep, np.float32)
    beta = np.full((1, 130, 1), 0.97, np.float32)
    check(
        engine,
        "LinearAttention",
        [f(1, 130, 8), k, f(1, 130, 6), f(1, 1, 8, 6), decay, beta],
        lambda *x: walk(*x, 1, 1, 8**-0.5),
        outputs=2,
        domain=MS,
        q_num_heads=1,
        kv_num_heads=1,
    )


@pytest.mark.parametrize("last", (0, 1))
@pytest.mark.parametrize("past, activation", ((True, "silu"), (False, "none")))
def test_causal_convolution(engine, last, past, activation):
    x, w, bias, state = f(2, 6, 9), f(6, 1, 4), f(6), f(2, 6, 3) if past else None

    def reference(x, w, bias, state):
        x, state = (v.mT if last and v is not None else v for v in (x, state))
        before = torch.zeros(2, 6, 3) if state is None else state
        whole = torch.cat([before, x], 2)
        y = torch.nn.functional.conv1d(whole, w, bias, groups=6)
        y = torch.nn.functional.silu(y) if activation == "silu" else y
        return [v.mT if last else v for v in (y, whole[:, :, -3:])]

    turned = [v.swapaxes(1, 2).copy() if last and v is not None else v for v in (x, state)]
    check(
        engine,
        "CausalConvWithState",
        [turned[0], w, bias, turned[1]],
        reference,
        outputs=2,
        domain=MS,
        activation=activation,
        channels_last=last,
    )


@pytest.mark.parametrize("packed", (False, True))
def test_gated_delta_net(engine, packed):
    """With the norms and gates of Qwen3.5 within the operator."""
    batch, tokens, heads, kv, dim, v_dim = 1, 70, 2, 4, 6, 5
    q, k, v = (
        f(batch, tokens, heads, dim),
        f(batch, tokens, heads, dim),
        f(batch, tokens, kv, v_dim),
    )
    decay, beta, a_log, bias = f(batch, tokens, kv), f(batch, tokens, kv), f(kv), f(kv)
    inputs = [q, k, v, None, decay, beta, f(batch, kv, v_dim, dim), a_log, bias]
    if packed:
        inputs = [x.reshape(-1, *x.shape[2:]) if 3 != i < 6 else x for i, x in enumerate(inputs)]
        inputs[:3] = [np.concatenate([x.reshape(tokens, -1) for x in (q, k, v)], 1), None, None]

    def reference(q, k, v, _, decay, beta, state, a_log, bias):
        if packed:
            q, k, v = q.split([heads * dim, heads * dim, kv * v_dim], 1)
        q, k, v, decay, beta = (x.reshape(batch, tokens, -1) for x in (q, k, v, decay, beta))
        q, k = (torch.nn.functional.normalize(x.unflatten(2, (heads, -1)), dim=-1) for x in (q, k))
        decay = -a_log.exp() * torch.nn.functional.softplus(decay + bias)
        k = k.repeat_interleave(kv // heads, 2).flatten(2)
        y, state = walk(q.flatten(2), k, v, state.mT, decay, beta.sigmoid(), heads, kv, dim**-0.5)
        y = y.unflatten(2, (kv, -1))
        return y[0] if packed else y, state.mT

    check(
        engine,
        "GatedDeltaNet",
        inputs,
        reference,
        outputs=2,
        domain=MS,
        qk_l2_norm=1,
        gate_activation="qwen",
        beta_activation="sigmoid",
    )


def test_second_derivative():
    """Of the squares of the keys' gradient: all of the gradient is operators that have one."""
    batch, tokens, dim = 1, 20, 4
    k = f(batch, tokens, dim)
    k /= np.sqrt((k * k).sum(-1, keepdims=True))
    q, v, decay = f(batch, tokens, dim), f(batch, tokens, dim), -np.abs(f(batch, tokens, 1))
    beta = R.random((batch, tokens, 1)).astype(np.float32)
    inputs = [q, k, v, None, decay, beta]
    model, feeds = node_model(
        "LinearAttention", inputs, domain=MS, q_num_heads=1, kv_num_heads=1, scale=1.0
    )
    session = edgewise.InferenceSession(model.SerializeToString(), engine=open_engine("native"))

    def differentiate(bound):
        leaf, y, op = bound.inputs["x1"], bound.outputs["y0"], bound.binder.op
        one = bound.binder.constant(FLOAT, y.shape, [1.0] * v.size)
        (first,) = add_gradients(bound, [(y, one)], [leaf])
        (second,) = add_gradients(bound, [(first, op("Add", first, first))], [leaf])
        bound.outputs["second"] = second

    shapes = {n: list(x.shape) for n, x in feeds.items()}
    plan, bound = compile_graph(
        session.graph, shapes, dict.fromkeys(feeds, FLOAT), transform=differentiate
    )
    compiled = Compiled(session, plan, bound)
    got = compiled.run({n: RunTensor(FLOAT, x.shape, x.tobytes()) for n, x in feeds.items()})
    got = np.frombuffer(got["second"].bytes(), np.float32).reshape(k.shape)
    q, k, v, decay, beta = (torch.tensor(x).double() for x in (q, k, v, decay, beta))
    k.requires_grad_(True)
    y, _ = walk(q, k, v, None, decay, beta, 1, 1, 1.0)
    (first,) = torch.autograd.grad(y.sum(), k, create_graph=True)
    (want,) = torch.autograd.grad(first.square().sum(), k)
    close(got, want.numpy().astype(np.float32), 1e-4, "second derivative")
    compiled.free()
    session.free()

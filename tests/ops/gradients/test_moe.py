"""Gradients of mixtures of experts against PyTorch: inputs, scores, weights and biases of experts,
through weights of bits, and of the sums that train weights.
"""

import numpy as np
import pytest
import torch

from .compare import MS, R, check, f
from .test_quantized import unpacked

EXPERTS, HIDDEN, INNER, K = 5, 32, 48, 2


def mixture(x, scores, layers, activation, normalize):
    """layers: (weight [experts, out, in], bias [experts, out] or None) of fc1, fc2 and fc3 or None.
    Only rows that chose an expert are computed by it, as in transformers' Qwen3MoeExperts.
    """
    best, index = torch.topk(scores, K, -1)
    shares = best.softmax(-1) if normalize else scores.softmax(-1).gather(1, index)
    (w1, b1), (w2, b2), third = layers
    linear = torch.nn.functional.linear
    out = torch.zeros_like(x)
    for e in range(EXPERTS):
        token, slot = torch.where(index == e)
        h = linear(x[token], w1[e], None if b1 is None else b1[e])
        gate = None if third is None else linear(x[token], third[0][e])
        h = activation(h, gate)
        y = linear(h, w2[e], None if b2 is None else b2[e]) * shares[token, slot, None]
        out = out.index_add(0, token, y)
    return out


def silu(h, gate):
    return torch.nn.functional.silu(h) * (1 if gate is None else gate)


def swiglu(h, gate):
    """gpt-oss's: gates and values in turns, both clamped."""
    a, b = h[:, ::2].clamp(max=7), h[:, 1::2].clamp(-7, 7)
    return a * torch.sigmoid(1.702 * a) * (b + 1)


def spread(tokens):
    """Scores that lie apart, of which the last expert is chosen by nobody."""
    scores = R.permuted(np.tile(np.arange(EXPERTS - 1) * 0.7, (tokens, 1)), axis=1)
    return np.c_[scores, np.full(tokens, -3.0)].astype(np.float32)


@pytest.mark.parametrize("tokens", (1, 6, 37))
@pytest.mark.parametrize("kind", ("silu", "gated", "swiglu"))
def test_moe(engine, tokens, kind):
    wide = 2 * INNER if kind == "swiglu" else INNER
    w1, w2, w3 = (f(EXPERTS, *s) * 0.3 for s in ((wide, HIDDEN), (HIDDEN, INNER), (INNER, HIDDEN)))
    third = [w3] if kind == "gated" else []
    attrs = {"activation_type": "silu"}
    if kind == "swiglu":
        attrs = {
            "activation_type": "swiglu",
            "swiglu_fusion": 1,
            "activation_alpha": 1.702,
            "activation_beta": 1.0,
            "swiglu_limit": 7.0,
        }
    check(
        engine,
        "MoE",
        [f(tokens, HIDDEN), spread(tokens), w1, f(EXPERTS, wide), w2, f(EXPERTS, HIDDEN), *third],
        lambda x, s, w1, b1, w2, b2, w3=None: mixture(
            x,
            s,
            [(w1, b1), (w2, b2), None if w3 is None else (w3, None)],
            swiglu if kind == "swiglu" else silu,
            kind != "silu",
        ),
        domain=MS,
        k=K,
        normalize_routing_weights=int(kind != "silu"),
        **attrs,
    )


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("tokens", (1, 37))
def test_qmoe(engine, bits, tokens):
    inputs, dense = [f(tokens, HIDDEN), spread(tokens)], []
    for out, width in ((INNER, HIDDEN), (HIDDEN, INNER)):
        q = R.integers(0, 256, (EXPERTS, out, width * bits // 8), np.uint8)
        scales = R.uniform(0.005, 0.02, (EXPERTS, out, width // 16)).astype(np.float32)
        inputs += [q, scales, f(EXPERTS, out)]
        numbers = np.stack([unpacked(w, bits, width) for w in q]) - 2 ** (bits - 1)
        dense.append(torch.tensor((numbers * scales.repeat(16, 2)).astype(np.float32)))
    check(
        engine,
        "QMoE",
        inputs,
        lambda x, s, q1, s1, b1, q2, s2, b2: mixture(
            x, s, [(dense[0], b1), (dense[1], b2), None], silu, True
        ),
        domain=MS,
        fixed=(3, 6),
        k=K,
        activation_type="silu",
        normalize_routing_weights=1,
        expert_weight_bits=bits,
        block_size=16,
    )

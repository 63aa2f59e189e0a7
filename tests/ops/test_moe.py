"""Experts with a third layer and SwiGLU that is not interleaved, which onnxruntime's CPU build does
not compute: against PyTorch.
"""

import numpy as np
import pytest
import torch

from .test_attention_forms import R, f, run

EXPERTS, HIDDEN, INNER = 4, 64, 32


def reference(x, scores, layers, k, activation, normalize=True, fusion=0):
    """layers: (weight [experts, out, in], bias) of fc1, fc2 and fc3 (or None)."""
    x, share = torch.tensor(x), torch.softmax(torch.tensor(scores), -1)
    best, index = share.topk(k)
    if normalize:
        best = best / best.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for t in range(len(x)):
        for w, e in zip(best[t], index[t]):
            h, gate = (
                (
                    torch.tensor(layer[0][e]) @ x[t] + torch.tensor(layer[1][e])
                    if layer is not None
                    else None
                )
                for layer in (layers[0], layers[2])
            )
            if fusion == 2:
                h, gate = h.chunk(2)
            h = activation(h) if gate is None else activation(h) * gate
            out[t] += w * (torch.tensor(layers[1][0][e]) @ h + torch.tensor(layers[1][1][e]))
    return out.numpy()


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("name, fusion", [("silu", 0), ("swiglu", 0), ("swiglu", 2)])
def test_moe(tokens, name, fusion):
    x, scores = f(tokens, HIDDEN), f(tokens, EXPERTS)
    wide = INNER * (2 if fusion else 1)
    layers = [
        (f(EXPERTS, wide, HIDDEN) * 0.2, f(EXPERTS, wide)),
        (f(EXPERTS, HIDDEN, INNER) * 0.2, f(EXPERTS, HIDDEN)),
        None if fusion else (f(EXPERTS, INNER, HIDDEN) * 0.2, f(EXPERTS, INNER)),
    ]
    inputs = [x, scores, *(v for layer in layers if layer for v in layer)]
    (got,) = run(
        "MoE", inputs, k=2, activation_type=name, swiglu_fusion=fusion, normalize_routing_weights=1
    )
    np.testing.assert_allclose(
        got,
        reference(x, scores, layers, 2, torch.nn.functional.silu, fusion=fusion),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("tokens", [1, 3])
def test_quantized_with_a_third_layer(tokens):
    """Each weight with a different number of bits."""
    x, scores, layers, inputs, points = f(tokens, HIDDEN), f(tokens, EXPERTS), [], [], []
    for bits, out, width in ((4, INNER, HIDDEN), (8, HIDDEN, INNER), (2, INNER, HIDDEN)):
        q, scale, zero = (
            R.integers(0, 1 << bits, (EXPERTS, out, width)),
            R.uniform(0.005, 0.02, (EXPERTS, out, width // 16)).astype(np.float32),
            R.integers(0, 1 << bits, (EXPERTS, out, width // 16)),
        )
        pack = lambda v, bits=bits: sum(
            np.pad(v, ((0, 0), (0, 0), (0, -v.shape[2] % (8 // bits))))[..., i :: 8 // bits]
            << bits * i
            for i in range(8 // bits)
        ).astype(np.uint8)
        layers.append(
            (((q - zero.repeat(16, 2)) * scale.repeat(16, 2)).astype(np.float32), f(EXPERTS, out))
        )
        inputs += [pack(q), scale, layers[-1][1]]
        points.append(pack(zero))
    (got,) = run(
        "QMoE",
        [x, scores, *inputs, *points],
        k=2,
        activation_type="silu",
        block_size=16,
        expert_weight_bits=4,
        fc2_expert_weight_bits=8,
        fc3_expert_weight_bits=2,
        normalize_routing_weights=1,
    )
    np.testing.assert_allclose(
        got, reference(x, scores, layers, 2, torch.nn.functional.silu), rtol=1e-3, atol=1e-3
    )

"""Gradients of ops that are made of others, against PyTorch's: their parts have gradients, so they
have.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from .compare import MS, check, f


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk->ik", ((3, 4), (4, 5))),
        ("bhid,bhjd->bhij", ((2, 3, 4, 5), (2, 3, 6, 5))),
        ("bind,bjnd->bnij", ((2, 4, 3, 5), (2, 6, 3, 5))),
        ("ii->i", ((4, 4),)),
        ("iij->ij", ((3, 3, 4),)),
        ("ij->", ((3, 4),)),
        ("i,j->ij", ((3,), (4,))),
        ("...ij,jk->...ik", ((2, 3, 4, 5), (5, 6))),
        ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
        ("bhwc,hkc->bhwk", ((2, 3, 4, 5), (3, 6, 5))),
        ("ij,i->ij", ((3, 4), (3,))),
    ],
    ids=str,
)
def test_einsum(engine, equation, shapes):
    check(
        engine,
        "Einsum",
        [f(*s) for s in shapes],
        lambda *v: torch.einsum(equation, *v),
        equation=equation,
    )


@pytest.mark.parametrize("causal", (0, 1))
@pytest.mark.parametrize("masked", (0, 1))
def test_attention(engine, causal, masked):
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)

    def reference(x, w, bias, *mask):
        q, k, v = (
            (x @ w + bias).chunk(3, -1)[i].unflatten(2, (4, 4)).transpose(1, 2) for i in range(3)
        )
        low = torch.zeros(2, 1, 5, 5)
        if mask:
            low = torch.where(torch.tensor(mask[0])[:, None, None] > 0, 0.0, -10000.0).expand(
                2, 1, 5, 5
            )
        if causal:
            low = low + torch.triu(torch.full((5, 5), -torch.inf), 1)
        return F.scaled_dot_product_attention(q, k, v, low).transpose(1, 2).flatten(2)

    check(
        engine,
        "Attention",
        [f(2, 5, 12), f(12, 48), f(48)] + ([mask] if masked else []),
        reference,
        domain=MS,
        num_heads=4,
        unidirectional=causal,
    )


def test_embeddings(engine):
    ids, segments = (
        np.array([[1, 4, 4], [0, 2, 6]], np.int32),
        np.array([[0, 1, 1], [0, 0, 1]], np.int32),
    )

    def reference(ids, segments, words, positions, kinds, gamma, beta):
        return F.layer_norm(words[ids] + positions[:3] + kinds[segments], (8,), gamma, beta, 1e-12)

    check(
        engine,
        "EmbedLayerNormalization",
        [ids, segments, f(7, 8), f(5, 8), f(2, 8), f(8), f(8)],
        reference,
        domain=MS,
    )


def test_biases(engine):
    check(engine, "BiasAdd", [f(2, 3, 8), f(8), f(2, 3, 8)], lambda x, b, s: x + b + s, domain=MS)
    check(
        engine,
        "BiasSplitGelu",
        [f(2, 3, 8), f(8)],
        lambda x, b: (x + b)[..., :4] * F.gelu((x + b)[..., 4:]),
        domain=MS,
    )
    check(
        engine,
        "FusedGemm",
        [f(3, 4), f(5, 4), f(5)],
        lambda a, w, b: torch.tanh(a @ w.T + b),
        domain=MS,
        transB=1,
        activation="Tanh",
    )


def test_group_norm(engine):
    def reference(x, gamma, beta, skip, bias):
        total = x + skip + bias
        return [
            F.silu(F.group_norm(total.movedim(3, 1), 4, gamma, beta, 1e-5).movedim(1, 3)),
            total,
        ]

    check(
        engine,
        "SkipGroupNorm",
        [f(2, 3, 5, 8), f(8), f(8), f(2, 3, 5, 8), f(8)],
        reference,
        domain=MS,
        outputs=2,
        groups=4,
        activation=1,
        epsilon=1e-5,
    )

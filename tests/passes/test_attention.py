"""softmax(q k^T) v as exporters spell it."""

import math

import numpy as np
import pytest
from edgewise.compiler.passes import common_subexpressions, fuse_attention

from .graphs import Graph, check, fused, untouched

PASS = [common_subexpressions, fuse_attention]
B, H, S, D = 2, 4, 5, 8
PARTS = ("Softmax", "MatMul", "Expand")


def heads(g, x, count=H, dim=D, seq=S, batch=B):
    return g.Transpose(g.Reshape(x, [batch, seq, count, dim]), perm=[0, 2, 1, 3])


def causal(low=-np.inf, shape=(1, 1, S, S)):
    return (
        np.broadcast_to(np.triu(np.full((S, S), low, np.float32), 1), shape).copy()
        if np.isfinite(low)
        else np.where(np.triu(np.ones((S, S), bool), 1), np.float32(low), np.float32(0)).reshape(
            1, 1, S, S
        )
    )


ROOT = math.sqrt(D)


def scores(g, q, k, scale="div", factor=ROOT):
    perm = [0, 1, 3, 2]
    if scale == "div":
        return g.Div(g.MatMul(q, g.Transpose(k, perm=perm)), factor)
    if scale == "mul":
        return g.Mul(g.MatMul(q, g.Transpose(k, perm=perm)), 1 / factor)
    if scale == "q":
        return g.MatMul(g.Mul(q, 1 / factor), g.Transpose(k, perm=perm))
    if scale == "both":  # how scaled_dot_product_attention is exported
        root = math.sqrt(1 / factor)
        return g.MatMul(g.Mul(q, root), g.Mul(g.Transpose(k, perm=perm), root))
    return g.MatMul(q, g.Transpose(k, perm=perm))


def inputs(g, kv=H, kv_len=S, q_len=S):
    return g.input(B, H, q_len, D), g.input(B, kv, kv_len, D), g.input(B, kv, kv_len, D)


@pytest.mark.parametrize("scale", ["div", "mul", "q", "both", "none"])
@pytest.mark.parametrize("mask", ["", "add", "add left", "per batch", "where", "per head"])
def test_attention(scale, mask):
    g = Graph(14)
    q, k, v = inputs(g)
    s = scores(g, q, k, scale)
    if mask == "where":
        s = g.Where(np.tril(np.ones((1, 1, S, S), bool)), s, -1e9)
    elif mask:
        m = g.input(
            value=causal(-1e9)
            + np.zeros(
                {"per batch": (B, 1, 1, 1), "per head": (1, H, 1, 1)}.get(mask, (1, 1, 1, 1)),
                np.float32,
            )
        )
        s = g.Add(m, s) if mask == "add left" else g.Add(s, m)
    g.output(g.MatMul(g.Softmax(s, axis=-1), v))
    fused(g, PASS, PARTS, Attention=1)


@pytest.mark.parametrize("form", ["where", "add", "sliced", "uint8"])
@pytest.mark.parametrize("past", [0, 3])
def test_causal_triangles_of_the_file(form, past):
    """Masks that become the kernel's `causal`, so that keys above the diagonal are never read;
    triangles that are not exactly causal stay masks.
    """
    for exact in (True, False):
        g = Graph()
        q, k, v = inputs(g, kv_len=S + past)
        allowed = np.tril(np.ones((1, 1, S, S + past), bool), past)
        allowed[0, 0, 1, 0] &= exact
        s = scores(g, q, k)
        if form == "add":
            s = g.Add(s, np.where(allowed, 0, -1e9).astype(np.float32))
        else:
            if form != "where":
                whole = np.tril(
                    np.ones((1, 1, S + past, S + past), np.uint8 if form == "uint8" else bool)
                )
                whole[0, 0, past + 1, 0] &= exact
                allowed = g.Slice(
                    g.Slice(whole, [past], [S + past], [2], [1]), [0], [S + past], [3], [1]
                )
                allowed = g.Cast(allowed, to=9) if form == "uint8" else allowed
            s = g.Where(allowed, s, -1e9)
        g.output(g.MatMul(g.Softmax(s, axis=-1), v))
        fused(g, PASS, PARTS, Attention=1, Where=int(form != "add" and not exact))


@pytest.mark.parametrize("low", [-np.inf, -3.4028234663852886e38, -65504.0, -1e9])
def test_rows_of_which_all_is_masked(low):
    """Rows of padding: equal weights if `low` is a number, since the scores are equal; NaN if it is
    -inf.
    """
    g = Graph()
    q, k, v = inputs(g)
    allowed = np.tril(np.ones((S, S), bool)) & (np.arange(S)[:, None] > 1)
    s = g.Where(allowed.reshape(1, 1, S, S), scores(g, q, k), float(low))
    g.output(g.MatMul(g.Softmax(s, axis=-1), v))
    fused(g, PASS, PARTS, Attention=1)


def test_rows_of_which_all_is_masked_by_addition():
    g = Graph()
    q, k, v = inputs(g)
    m = np.where(
        np.arange(S)[:, None] > 1, causal(-3.4028234663852886e38), -3.4028234663852886e38
    ).astype(np.float32)
    g.output(g.MatMul(g.Softmax(g.Add(scores(g, q, k), g.constant(m)), axis=-1), v))
    fused(g, PASS, PARTS, Attention=1)


def test_two_masks():
    """As GPT-2: a causal Where, then the attention mask."""
    g = Graph()
    q, k, v = inputs(g)
    s = g.Where(np.tril(np.ones((1, 1, S, S), bool)), scores(g, q, k), -3.4028234663852886e38)
    m = g.input(
        value=np.array([[0, 0, 0, 0, 0], [-3.4028234663852886e38, 0, 0, 0, 0]], np.float32).reshape(
            B, 1, 1, S
        )
    )
    g.output(g.MatMul(g.Softmax(g.Add(s, m), axis=-1), v))
    fused(g, PASS, PARTS, Attention=1)


@pytest.mark.parametrize("q_len, kv_len", [(1, 9), (3, 7), (7, 3)])
def test_lengths(q_len, kv_len):
    g = Graph()
    q, k, v = inputs(g, kv_len=kv_len, q_len=q_len)
    g.output(g.MatMul(g.Softmax(scores(g, q, k), axis=-1), v))
    fused(g, PASS, PARTS, Attention=1)


@pytest.mark.parametrize("axis", [3, -1])
def test_merged_heads(axis):
    g = Graph()
    x = [heads(g, g.input(B, S, H * D)) for _ in range(3)]
    y = g.MatMul(g.Softmax(scores(g, x[0], x[1]), axis=axis), x[2])
    g.output(
        g.MatMul(g.Reshape(g.Transpose(y, perm=[0, 2, 1, 3]), [B, S, H * D]), g.weight(H * D, 3))
    )
    fused(g, PASS, ("Softmax",), Attention=1, MatMul=1, Transpose=3)


def test_merged_to_rows():
    g = Graph()
    x = [heads(g, g.input(B, S, H * D)) for _ in range(3)]
    y = g.MatMul(g.Softmax(scores(g, x[0], x[1]), axis=-1), x[2])
    g.output(g.Reshape(g.Transpose(y, perm=[0, 2, 1, 3]), [B * S, H * D]))
    fused(g, PASS, ("Softmax", "MatMul"), Attention=1)


def test_heads_merged_in_another_order():
    g = Graph()
    q, k, v = inputs(g)
    y = g.MatMul(g.Softmax(scores(g, q, k), axis=-1), v)
    g.output(g.Reshape(g.Transpose(y, perm=[2, 0, 1, 3]), [S, B * H * D]))
    fused(g, PASS, PARTS, Attention=1, Transpose=1)


def test_heads_and_elements_merged_the_other_way_round():
    g = Graph()
    q, k, v = inputs(g)
    y = g.MatMul(g.Softmax(scores(g, q, k), axis=-1), v)
    g.output(g.Reshape(g.Transpose(y, perm=[0, 2, 3, 1]), [B, S, D * H]))
    fused(g, PASS, PARTS, Attention=1, Transpose=1)


@pytest.mark.parametrize("axis", [3, -1])
def test_before_opset_13(axis):
    g = Graph(12)
    q, k, v = inputs(g)
    g.output(g.MatMul(g.Softmax(scores(g, q, k), axis=axis), v))
    fused(g, PASS, PARTS, Attention=1)


def repeat_kv(g, x, groups, kv, seq=S):
    return g.Reshape(g.Expand(g.unsqueeze(x, 2), [B, kv, groups, seq, D]), [B, kv * groups, seq, D])


@pytest.mark.parametrize("kv", [1, 2])
def test_repeated_keys_and_values(kv):
    g = Graph()
    q, k, v = inputs(g, kv)
    k, v = (repeat_kv(g, x, H // kv, kv) for x in (k, v))
    g.output(g.MatMul(g.Softmax(scores(g, q, k, "both"), axis=-1), v))
    fused(g, PASS, PARTS, Attention=1)


def test_keys_repeated_the_other_way_round():
    """0 1 0 1 instead of 0 0 1 1 pairs other heads."""
    g = Graph()
    q, k, v = inputs(g, 2)
    k, v = (g.Reshape(g.Expand(g.unsqueeze(x, 1), [B, 2, 2, S, D]), [B, H, S, D]) for x in (k, v))
    g.output(g.MatMul(g.Softmax(scores(g, q, k), axis=-1), v))
    check(g, PASS)


def test_only_keys_are_repeated():
    g = Graph()
    q, k, v = g.input(B, H, S, D), g.input(B, 2, S, D), g.input(B, H, S, D)
    g.output(g.MatMul(g.Softmax(scores(g, q, repeat_kv(g, k, 2, 2)), axis=-1), v))
    check(g, PASS)


@pytest.mark.parametrize("cap, scale", [(5.0, "mul"), (30.0, "q"), (0.5, "none")])
def test_softcap(cap, scale):
    g = Graph()
    q, k, v = inputs(g)
    s = g.Mul(g.Tanh(g.Div(scores(g, q, k, scale), cap)), cap)
    g.output(g.MatMul(g.Softmax(g.Add(s, g.constant(causal(-1e9))), axis=-1), v))
    fused(g, PASS, (*PARTS, "Tanh"), Attention=1)


@pytest.mark.parametrize("inner, outer", [(5.0, 3.0), (-5.0, -5.0), (5.0, -5.0)])
def test_tanh_that_is_or_is_not_a_softcap(inner, outer):
    g = Graph()
    q, k, v = inputs(g)
    s = g.Mul(g.Tanh(g.Div(scores(g, q, k), inner)), outer)
    g.output(g.MatMul(g.Softmax(s, axis=-1), v))
    check(g, PASS)


def test_guard_against_nan():
    """As torch exports scaled_dot_product_attention: rows that are all -inf give zeros."""
    g = Graph()
    q, k, v = inputs(g)
    m = causal()
    m[..., 2, :] = -np.inf
    p = g.Softmax(g.Add(scores(g, q, k, "both"), g.constant(m)), axis=-1)
    g.output(g.MatMul(g.Where(g.IsNaN(p), 0.0, p), v))
    fused(g, PASS, (*PARTS, "IsNaN", "Where"), Attention=1)


@pytest.mark.parametrize("kind", ["one", "swapped"])
def test_other_guards(kind):
    g = Graph()
    q, k, v = inputs(g)
    m = causal()
    m[..., 2, :] = -np.inf
    p = g.Softmax(g.Add(scores(g, q, k), g.constant(m)), axis=-1)
    g.output(
        g.MatMul(g.Where(g.IsNaN(p), 1.0, p) if kind == "one" else g.Where(g.IsNaN(p), p, 0.0), v)
    )
    untouched(g, PASS, "Attention")


def test_bloom():
    """Batch and heads in one dimension, alibi added to it: baddbmm, then masks in four
    dimensions.
    """
    g = Graph()
    q, k, v = (g.input(B * H, S, D) for _ in range(3))
    alibi = g.input(
        value=(
            np.arange(B * H, dtype=np.float32)[:, None, None]
            * np.arange(S, dtype=np.float32)[None, None]
            * 0.1
        ).astype(np.float32)
    )
    s = g.Add(g.Mul(g.MatMul(q, g.Transpose(k, perm=[0, 2, 1])), 1 / math.sqrt(D)), alibi)
    s = g.Add(g.Reshape(s, [B, H, S, S]), g.constant(causal(-1e9)))
    p = g.Reshape(g.Softmax(s, axis=-1), [B * H, S, S])
    g.output(g.MatMul(p, v))
    fused(g, PASS, PARTS, Attention=1)


def test_flattened_around_the_transpose():
    """Dynamo: k is flattened to three dimensions only to swap the last two."""
    g = Graph(18)
    q, k, v = inputs(g)
    t = g.Reshape(g.Transpose(g.Reshape(k, [-1, S, D]), perm=[0, 2, 1]), [B, H, D, S])
    g.output(g.MatMul(g.Softmax(g.MatMul(g.Mul(q, 0.5), g.Mul(t, 0.5)), axis=-1), v))
    fused(g, PASS, PARTS, Attention=1)


@pytest.mark.parametrize("axis", [1, 2])
def test_softmax_along_another_axis(axis):
    g = Graph()
    q, k, v = inputs(g)
    g.output(g.MatMul(g.Softmax(scores(g, q, k), axis=axis), v))
    untouched(g, PASS, "Attention")


def test_softmax_that_flattens():
    """Before opset 13, axes 1 (the default) and 2 take dimensions together."""
    g = Graph(11)
    q, k, v = inputs(g)
    g.output(
        g.MatMul(g.Softmax(scores(g, q, k), axis=2), v), g.MatMul(g.Softmax(scores(g, q, k)), v)
    )
    untouched(g, PASS, "Attention")


@pytest.mark.parametrize("which", ["weights", "scores", "masked"])
def test_inner_value_that_is_an_output(which):
    g = Graph()
    q, k, v = inputs(g)
    s = scores(g, q, k)
    m = g.Add(s, g.constant(causal(-1e9)))
    p = g.Softmax(m, axis=-1)
    g.output(g.MatMul(p, v), {"weights": p, "scores": s, "masked": m}[which])
    untouched(g, PASS, "Attention")


def test_mask_before_scale():
    g = Graph()
    q, k, v = inputs(g)
    s = g.Div(
        g.Add(g.MatMul(q, g.Transpose(k, perm=[0, 1, 3, 2])), g.input(B, 1, S, S)), math.sqrt(D)
    )
    g.output(g.MatMul(g.Softmax(s, axis=-1), v))
    untouched(g, PASS, "Attention")


def test_mask_between_scale_and_cap():
    g = Graph()
    q, k, v = inputs(g)
    s = g.Mul(g.Tanh(g.Div(g.Add(scores(g, q, k), g.input(B, 1, S, S)), 5.0)), 5.0)
    g.output(g.MatMul(g.Softmax(s, axis=-1), v))
    untouched(g, PASS, "Attention")


def test_where_with_a_number_that_is_not_low():
    g = Graph()
    q, k, v = inputs(g)
    g.output(
        g.MatMul(
            g.Softmax(
                g.Where(np.tril(np.ones((1, 1, S, S), bool)), scores(g, q, k), -10.0), axis=-1
            ),
            v,
        )
    )
    untouched(g, PASS, "Attention")


def test_where_the_other_way_round():
    g = Graph()
    q, k, v = inputs(g)
    g.output(
        g.MatMul(
            g.Softmax(
                g.Where(np.triu(np.ones((1, 1, S, S), bool), 1), -1e9, scores(g, q, k)), axis=-1
            ),
            v,
        )
    )
    check(g, PASS)


def test_scale_in_a_vector():
    g = Graph()
    q, k, v = inputs(g)
    s = g.Mul(g.MatMul(q, g.Transpose(k, perm=[0, 1, 3, 2])), g.weight(S))
    g.output(g.MatMul(g.Softmax(s, axis=-1), v))
    untouched(g, PASS, "Attention")


def test_keys_that_are_not_transposed():
    g = Graph()
    q, k, v = g.input(B, H, S, D), g.input(B, H, D, S), g.input(B, H, S, D)
    g.output(g.MatMul(g.Softmax(g.MatMul(q, k), axis=-1), v))
    fused(g, PASS, PARTS, Attention=1)


def test_keys_shared_by_broadcasting():
    """MatMul broadcasts one head of keys over all heads of queries."""
    g = Graph()
    q, k, v = g.input(B, H, S, D), g.input(B, 1, S, D), g.input(B, 1, S, D)
    g.output(g.MatMul(g.Softmax(scores(g, q, k), axis=-1), v))
    check(g, PASS)


def test_batch_shared_by_broadcasting():
    g = Graph()
    q, k, v = g.input(B, H, S, D), g.input(1, H, S, D), g.input(1, H, S, D)
    g.output(g.MatMul(g.Softmax(scores(g, q, k), axis=-1), v))
    check(g, PASS)


def test_values_with_more_heads_than_weights():
    g = Graph()
    q, k, v = g.input(B, 1, S, D), g.input(B, 1, S, D), g.input(B, H, S, D)
    g.output(g.MatMul(g.Softmax(scores(g, q, k), axis=-1), v))
    check(g, PASS)


def test_mask_with_more_heads_than_scores():
    g = Graph()
    q, k, v = g.input(B, 1, S, D), g.input(B, 1, S, D), g.input(B, 1, S, D)
    g.output(g.MatMul(g.Softmax(g.Add(scores(g, q, k), g.input(B, H, S, S)), axis=-1), v))
    check(g, PASS)


@pytest.mark.parametrize("q, k, v", [(1, 1, 2), (2, 2, 1), (1, 2, 2), (2, 1, 2)])
@pytest.mark.parametrize("rank", [3, 4])
def test_products_that_broadcast_over_the_batch(q, k, v, rank):
    g = Graph()
    q, k, v = (g.input(*[n] * (rank - 2), S, D) for n in (q, k, v))
    perm = [*range(rank - 2), rank - 1, rank - 2]
    p = g.Softmax(g.Div(g.MatMul(q, g.Transpose(k, perm=perm)), ROOT), axis=-1)
    g.output(g.MatMul(p, v))
    untouched(g, PASS, "Attention")


def test_values_without_a_batch():
    """Weights of a layer that softmax's result is multiplied by: they broadcast over the batch."""
    g = Graph()
    q, k = g.input(B, S, D), g.input(B, S, D)
    p = g.Softmax(g.MatMul(q, g.Transpose(k, perm=[0, 2, 1])), axis=-1)
    g.output(g.MatMul(p, g.weight(S, D)))
    untouched(g, PASS, "Attention")


def test_values_first():
    g = Graph()
    q, k, v = g.input(B, H, S, S), g.input(B, H, S, S), g.input(B, H, S, S)
    g.output(g.MatMul(v, g.Softmax(scores(g, q, k, factor=math.sqrt(S)), axis=-1)))
    untouched(g, PASS, "Attention")


def test_three_dimensions():
    """A single head without a dimension for heads."""
    g = Graph()
    q, k, v = (g.input(B, S, D) for _ in range(3))
    g.output(g.MatMul(g.Softmax(g.MatMul(q, g.Transpose(k, perm=[0, 2, 1])), axis=-1), v))
    fused(g, PASS, Attention=1, Softmax=0)


@pytest.mark.parametrize("mask", [None, (B, 1, S, S)])
def test_batch_and_heads_in_one_dimension(mask):
    """The form of BART and DETR; the mask is added with both dimensions separate."""
    g = Graph()
    q, k, v = (g.Reshape(heads(g, g.input(B, S, H * D)), [B * H, S, D]) for _ in range(3))
    s = g.MatMul(g.Mul(q, D**-0.5), g.Transpose(k, perm=[0, 2, 1]))
    if mask:
        s = g.Reshape(g.Add(g.Reshape(s, [B, H, S, S]), g.input(*mask)), [B * H, S, S])
    y = g.Reshape(g.MatMul(g.Softmax(s, axis=-1), v), [B, H, S, D])
    g.output(g.Reshape(g.Transpose(y, perm=[0, 2, 1, 3]), [B, S, H * D]))
    fused(g, PASS, Attention=1, Softmax=0)

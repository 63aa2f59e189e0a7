"""Rotary position embedding as exporters spell it."""

import numpy as np
import pytest
from edgewise.compiler.passes import common_subexpressions, fuse_rotary

from .graphs import Graph, check, fused, untouched

PASS = [common_subexpressions, fuse_rotary]
B, H, S, D = 2, 3, 5, 8


def rotate_half(g, x, dim=D, how="slice", sign="high", order=(0, 1), cut=None):
    cut = dim // 2 if cut is None else cut
    if how == "split":
        low, high = g.Split(x, [cut, dim - cut], axis=-1, outputs=2)
    else:
        low, high = g.slice(x, 3, 0, cut), g.slice(x, 3, cut, 2**63 - 1 if how == "open" else dim)
    low, high = (low, g.Neg(high)) if sign == "high" else (g.Neg(low), high)
    parts = [high, low]
    return g.Concat(*(parts[i] for i in order), axis=-1)


def tables(g, dim=D, scale=None, batch=B, seq=S, axis=1):
    """cos and sin as transformers makes them: of cat(freqs, freqs), from positions."""
    positions = g.input(value=np.arange(batch * seq, dtype=np.float32).reshape(batch, seq, 1))
    inverse = g.constant(
        (1 / 10000 ** (np.arange(0, dim, 2, dtype=np.float32) / dim))
        .reshape(1, 1, -1)
        .astype(np.float32)
    )
    freqs = g.Mul(positions, inverse)
    both = g.Concat(freqs, freqs, axis=-1)
    cos, sin = g.Cos(both), g.Sin(both)
    if scale:
        cos, sin = g.Mul(cos, scale), g.Mul(sin, scale)
    return g.unsqueeze(cos, axis), g.unsqueeze(sin, axis)


def rotary(g, x, cos, sin, swapped=False, **how):
    turned = rotate_half(g, x, **how)
    a, b = (g.Mul(cos, x), g.Mul(sin, turned)) if swapped else (g.Mul(x, cos), g.Mul(turned, sin))
    return g.Add(b, a) if swapped else g.Add(a, b)


@pytest.mark.parametrize("opset", [14, 18])
@pytest.mark.parametrize("how", ["slice", "open", "split"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("scale", [None, 1.25])
def test_rotary(opset, how, swapped, scale):
    g = Graph(opset)
    cos, sin = tables(g, scale=scale)
    q, k = g.input(B, H, S, D), g.input(B, 1, S, D)
    g.output(*(rotary(g, x, cos, sin, swapped, how=how) for x in (q, k)))
    fused(g, PASS, ("Neg",), Rope=2, Add=0)


def test_one_row_of_positions_for_all():
    g = Graph()
    cos, sin = tables(g, batch=1)
    g.output(rotary(g, g.input(B, H, S, D), cos, sin))
    fused(g, PASS, ("Neg",), Rope=1)


def test_part_of_each_head():
    """GPT-NeoX: only the first elements are rotated, the rest is concatenated."""
    g = Graph()
    x = g.input(B, H, S, D)
    cos, sin = tables(g, dim=4)
    turned, rest = g.slice(x, 3, 0, 4), g.slice(x, 3, 4, 2**31 - 1)
    g.output(g.Concat(rotary(g, turned, cos, sin, dim=4), rest, axis=-1))
    fused(g, PASS, ("Neg",), Rope=1, Concat=2)


@pytest.mark.parametrize(
    "how", [{"sign": "low"}, {"order": (1, 0)}, {"sign": "low", "order": (1, 0)}, {"cut": 2}]
)
def test_other_rotations(how):
    g = Graph()
    cos, sin = tables(g)
    g.output(rotary(g, g.input(B, H, S, D), cos, sin, **how))
    untouched(g, PASS, "Rope")


def test_tables_whose_halves_may_differ():
    g = Graph()
    x = g.input(B, H, S, D)
    g.output(rotary(g, x, g.input(B, 1, S, D), g.input(B, 1, S, D)))
    untouched(g, PASS, "Rope")


def test_tables_of_two_frequencies():
    g = Graph()
    x, a, b = g.input(B, H, S, D), g.input(B, S, D // 2), g.input(B, S, D // 2)
    both = g.Concat(a, b, axis=-1)
    g.output(rotary(g, x, g.unsqueeze(g.Cos(both), 1), g.unsqueeze(g.Sin(both), 1)))
    untouched(g, PASS, "Rope")


@pytest.mark.parametrize("which", [0, 1])
def test_one_table_of_two_frequencies(which):
    g = Graph()
    both = list(tables(g))
    both[which] = g.unsqueeze(
        g.Cos(g.Concat(g.input(B, S, D // 2), g.input(B, S, D // 2), axis=-1)), 1
    )
    g.output(rotary(g, g.input(B, H, S, D), *both))
    untouched(g, PASS, "Rope")


def test_tables_of_each_head():
    g = Graph()
    f = g.input(B, H, S, D // 2)
    both = g.Concat(f, f, axis=-1)
    g.output(rotary(g, g.input(B, H, S, D), g.Cos(both), g.Sin(both)))
    check(g, PASS)


def test_halves_that_overlap():
    g = Graph()
    cos, sin = tables(g)
    x = g.input(B, H, S, D)
    turned = g.Concat(g.Neg(g.slice(x, 3, D // 2, D)), g.slice(x, 3, 1, D // 2 + 1), axis=-1)
    g.output(g.Add(g.Mul(x, cos), g.Mul(turned, sin)))
    untouched(g, PASS, "Rope")


def test_tables_scaled_by_a_vector():
    g = Graph()
    cos, sin = tables(g)
    g.output(rotary(g, g.input(B, H, S, D), g.Mul(cos, g.weight(D)), g.Mul(sin, g.weight(D))))
    untouched(g, PASS, "Rope")


def test_turned_half_of_another_value():
    g = Graph()
    cos, sin = tables(g)
    x, z = g.input(B, H, S, D), g.input(B, H, S, D)
    g.output(g.Add(g.Mul(x, cos), g.Mul(rotate_half(g, z), sin)))
    untouched(g, PASS, "Rope")


def test_turned_half_that_is_an_output():
    g = Graph()
    cos, sin = tables(g)
    x = g.input(B, H, S, D)
    turned = rotate_half(g, x)
    g.output(g.Add(g.Mul(x, cos), g.Mul(turned, sin)), turned)
    check(g, PASS)


def test_sin_and_cos_changed_about():
    """x * sin + rotated * cos is another rotation of the same form."""
    g = Graph()
    cos, sin = tables(g)
    g.output(rotary(g, g.input(B, H, S, D), sin, cos))
    fused(g, PASS, Rope=1)


def test_tables_with_heads_behind_the_sequence():
    """[batch, seq, heads, dim] with cos [batch, seq, 1, dim]: another layout than the kernel's."""
    g = Graph()
    cos, sin = tables(g, axis=2)
    g.output(rotary(g, g.input(B, S, H, D), cos, sin))
    check(g, PASS)


def test_difference_instead_of_sum():
    g = Graph()
    cos, sin = tables(g)
    x = g.input(B, H, S, D)
    g.output(g.Sub(g.Mul(x, cos), g.Mul(rotate_half(g, x), sin)))
    untouched(g, PASS, "Rope")


def test_concatenated_along_another_axis():
    g = Graph()
    x = g.input(1, D, S, D)
    cos, sin = tables(g, batch=1)
    turned = g.Concat(g.Neg(g.slice(x, 1, D // 2, D)), g.slice(x, 1, 0, D // 2), axis=1)
    g.output(g.Add(g.Mul(x, cos), g.Mul(turned, sin)))
    untouched(g, PASS, "Rope")

"""Pads of zeros before a convolution are its own; pads of nothing are nothing."""

import pytest
from edgewise.compiler.passes import fuse_padding

from .graphs import Graph, fused


def padded(g, x, pads, value=None, **attrs):
    return g.Pad(x, g.constant(pads), *([g.constant(value)] if value is not None else []), **attrs)


@pytest.mark.parametrize(
    "pads, value, own",
    [
        ([0, 0, 1, 2, 0, 0, 3, 0], None, {}),
        ([0, 0, 1, 1, 0, 0, 1, 1], 0.0, {"pads": [1, 0, 0, 2]}),
        ([0, 0, 0, 1, 0, 0, 1, 0], 0.0, {"strides": [2, 2], "auto_pad": "VALID"}),
    ],
)
def test_zeros_before_a_convolution(pads, value, own):
    g = Graph()
    x = g.input(2, 3, 9, 10)
    g.output(g.Conv(padded(g, x, pads, value), g.weight(4, 3, 3, 3), g.weight(4), **own))
    fused(g, [fuse_padding], ("Pad",), Conv=1)


@pytest.mark.parametrize(
    "pads, value, mode, own",
    [
        ([0, 0, 1, 1, 0, 0, 1, 1], 1.0, "constant", {}),
        ([0, 1, 1, 1, 0, 0, 1, 1], 0.0, "constant", {}),
        ([0, 0, -1, 1, 0, 0, 1, 1], 0.0, "constant", {}),
        ([0, 0, 1, 1, 0, 0, 1, 1], 0.0, "constant", {"auto_pad": "SAME_UPPER"}),
    ],
)
def test_other_pads_stay(pads, value, mode, own):
    g = Graph()
    x = g.input(2, 3, 9, 10)
    g.output(g.Conv(padded(g, x, pads, value, mode=mode), g.weight(4, 3 + pads[1], 3, 3), **own))
    fused(g, [fuse_padding], (), Conv=1, Pad=1)


def test_what_others_read_stays():
    """The padded tensor is an output as well: it is computed, and the convolution does without
    it.
    """
    g = Graph()
    x = g.input(1, 3, 6, 6)
    p = padded(g, x, [0, 0, 1, 1, 0, 0, 1, 1])
    g.output(g.Conv(p, g.weight(4, 3, 3, 3)), p)
    fused(g, [fuse_padding], (), Conv=1, Pad=1)


def test_pads_of_nothing():
    g = Graph()
    x = g.input(1, 3, 6, 6)
    g.output(g.Relu(padded(g, x, [0] * 8)))
    fused(g, [], ("Pad",), Relu=1)

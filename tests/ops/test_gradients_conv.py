"""Gradients of convolutions, pools, resizing and norms over channels against PyTorch's."""
import pytest
import torch
import torch.nn.functional as F

from edgewise.ops.convolution import _CONVOLUTIONS

from .test_gradients_structure import check, f

CONV = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
CONV_TRANSPOSE = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}


def _conv(x, w, bias=None, strides=1, dilations=1, pads=(), group=1):
    rank = x.dim() - 2
    pads = list(pads) or [0] * 2 * rank
    around = [p for d in reversed(range(rank)) for p in (pads[d], pads[d + rank])]
    return CONV[x.dim()](F.pad(x, around), w, bias, stride=strides, dilation=dilations, groups=group)


@pytest.mark.parametrize("x, w, attrs", _CONVOLUTIONS, ids=str)
def test_conv(engine, x, w, attrs):
    check(engine, "Conv", [f(*x), f(*w)], lambda x, w: _conv(x, w, **attrs), **attrs)
    check(engine, "Conv", [f(*x), f(*w), f(w[0])], lambda x, w, b: _conv(x, w, b, **attrs), **attrs)
    check(engine, "Conv", [f(*x), f(*w)], lambda x, w: _conv(x, torch.tensor(w), **attrs), fixed=(1,), **attrs)


@pytest.mark.parametrize("y, w, attrs", [((2, 4, 9), (4, 3, 3), {}), ((1, 6, 10), (6, 4, 8), {"stride": [4], "padding": [2]}), ((2, 8, 7), (8, 1, 3), {"groups": 8, "stride": [2], "output_padding": [1]}),
                                         ((1, 5, 6, 7), (5, 4, 3, 3), {"stride": [2, 2], "padding": [1, 1], "output_padding": [1, 1]}), ((2, 6, 5, 5), (6, 3, 4, 4), {"groups": 2, "stride": [2, 2], "padding": [1, 1]}),
                                         ((2, 16, 7, 7), (16, 8, 1, 1), {}), ((1, 4, 6, 6), (4, 3, 3, 2), {"dilation": [2, 3], "padding": [1, 0]}), ((1, 4, 3, 4, 5), (4, 3, 2, 3, 2), {"stride": [2, 1, 2]}),
                                         ((2, 40, 13, 11), (40, 24, 3, 3), {"padding": [1, 1]})], ids=str)
def test_conv_transpose(engine, y, w, attrs):
    names = {"stride": "strides", "padding": "pads", "dilation": "dilations", "groups": "group", "output_padding": "output_padding"}
    onnx = {names[k]: v * 2 if k == "padding" else v for k, v in attrs.items()}
    check(engine, "ConvTranspose", [f(*y), f(*w), f(w[1] * attrs.get("groups", 1))], lambda y, w, b: CONV_TRANSPOSE[y.dim()](y, w, b, **attrs), **onnx)

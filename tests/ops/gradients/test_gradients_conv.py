"""Gradients of convolutions, pools, resizing and norms over channels against PyTorch's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from edgewise.compiler.ops.convolution.cases.convolution import _CONVOLUTIONS

from .compare import check, close, f
from .model import gradients, node_model

CONV = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
CONV_TRANSPOSE = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}


def _conv(x, w, bias=None, strides=1, dilations=1, pads=(), group=1):
    rank = x.dim() - 2
    pads = list(pads) or [0] * 2 * rank
    around = [p for d in reversed(range(rank)) for p in (pads[d], pads[d + rank])]
    return CONV[x.dim()](
        F.pad(x, around), w, bias, stride=strides, dilation=dilations, groups=group
    )


@pytest.mark.parametrize("x, w, attrs", _CONVOLUTIONS, ids=str)
def test_conv(engine, x, w, attrs):
    check(engine, "Conv", [f(*x), f(*w)], lambda x, w: _conv(x, w, **attrs), **attrs)
    check(engine, "Conv", [f(*x), f(*w), f(w[0])], lambda x, w, b: _conv(x, w, b, **attrs), **attrs)
    check(
        engine,
        "Conv",
        [f(*x), f(*w)],
        lambda x, w: _conv(x, torch.tensor(w), **attrs),
        fixed=(1,),
        **attrs,
    )


@pytest.mark.parametrize(
    "y, w, attrs",
    [
        ((2, 4, 9), (4, 3, 3), {}),
        ((1, 6, 10), (6, 4, 8), {"stride": [4], "padding": [2]}),
        ((2, 8, 7), (8, 1, 3), {"groups": 8, "stride": [2], "output_padding": [1]}),
        (
            (1, 5, 6, 7),
            (5, 4, 3, 3),
            {"stride": [2, 2], "padding": [1, 1], "output_padding": [1, 1]},
        ),
        ((2, 6, 5, 5), (6, 3, 4, 4), {"groups": 2, "stride": [2, 2], "padding": [1, 1]}),
        ((2, 16, 7, 7), (16, 8, 1, 1), {}),
        ((1, 4, 6, 6), (4, 3, 3, 2), {"dilation": [2, 3], "padding": [1, 0]}),
        ((1, 4, 3, 4, 5), (4, 3, 2, 3, 2), {"stride": [2, 1, 2]}),
        ((2, 40, 13, 11), (40, 24, 3, 3), {"padding": [1, 1]}),
    ],
    ids=str,
)
def test_conv_transpose(engine, y, w, attrs):
    names = {
        "stride": "strides",
        "padding": "pads",
        "dilation": "dilations",
        "groups": "group",
        "output_padding": "output_padding",
    }
    onnx = {names[k]: v * 2 if k == "padding" else v for k, v in attrs.items()}
    check(
        engine,
        "ConvTranspose",
        [f(*y), f(*w), f(w[1] * attrs.get("groups", 1))],
        lambda y, w, b: CONV_TRANSPOSE[y.dim()](y, w, b, **attrs),
        **onnx,
    )


MAX_POOL, AVERAGE_POOL = (
    {3: F.max_pool1d, 4: F.max_pool2d, 5: F.max_pool3d},
    {3: F.avg_pool1d, 4: F.avg_pool2d, 5: F.avg_pool3d},
)
POOLS = [
    ((2, 3, 9), {"kernel_size": [3]}),
    ((1, 2, 11), {"kernel_size": [4], "stride": [3], "padding": [2]}),
    ((2, 3, 8, 8), {"kernel_size": [2, 2], "stride": [2, 2]}),
    ((1, 3, 13, 11), {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}),
    ((1, 3, 6, 7, 8), {"kernel_size": [2, 2, 3], "stride": [2, 1, 2]}),
    ((1, 3, 10, 10), {"kernel_size": [3, 3], "stride": [2, 2], "ceil_mode": True}),
    ((1, 3, 11, 11), {"kernel_size": [3, 3], "stride": [1, 1], "dilation": [2, 3]}),
]


def _pool_attributes(attrs):
    names = {
        "kernel_size": "kernel_shape",
        "stride": "strides",
        "padding": "pads",
        "dilation": "dilations",
        "ceil_mode": "ceil_mode",
    }
    return {
        names[k]: v * 2 if k == "padding" else int(v) if k == "ceil_mode" else v
        for k, v in attrs.items()
    }


@pytest.mark.parametrize("x, attrs", POOLS, ids=str)
def test_pools(engine, x, attrs):
    attrs = {"stride": [1] * (len(x) - 2), **attrs}
    check(
        engine,
        "MaxPool",
        [f(*x)],
        lambda x: MAX_POOL[x.dim()](x, **attrs),
        **_pool_attributes(attrs),
    )
    if "dilation" not in attrs:
        for pad in (False, True):
            check(
                engine,
                "AveragePool",
                [f(*x)],
                lambda x: AVERAGE_POOL[x.dim()](x, count_include_pad=pad, **attrs),
                count_include_pad=int(pad),
                **_pool_attributes(attrs),
            )


def test_norm_pools(engine):
    for p in (1, 2, 3):
        check(
            engine,
            "LpPool",
            [f(2, 3, 8, 8)],
            lambda x: x.abs().unfold(2, 3, 2).unfold(3, 2, 1).pow(p).sum((-1, -2)).pow(1 / p),
            p=p,
            kernel_shape=[3, 2],
            strides=[2, 1],
        )
        check(
            engine,
            "GlobalLpPool",
            [f(2, 3, 4, 5)],
            lambda x: x.abs().pow(p).sum((2, 3), keepdim=True).pow(1 / p),
            p=p,
        )
    check(engine, "GlobalAveragePool", [f(2, 3, 4, 5)], lambda x: x.mean((2, 3), keepdim=True))
    check(engine, "GlobalMaxPool", [f(2, 3, 4, 5)], lambda x: x.amax((2, 3), keepdim=True))


@pytest.mark.parametrize(
    "shape", [(2, 3, 4, 5), (4, 7), (2, 5, 33), (1, 3, 2, 3, 4), (8, 16, 8, 8)], ids=str
)
def test_batch_norm(engine, shape):
    c = shape[1]
    inputs = [f(*shape) + 2, f(c), f(c), f(c), abs(f(c)) + 0.5]
    check(
        engine,
        "BatchNormalization",
        inputs,
        lambda x, s, b, m, v: (
            (x - m.view(1, c, *[1] * (x.dim() - 2)))
            / (v + 1e-3).sqrt().view(1, c, *[1] * (x.dim() - 2))
            * s.view(1, c, *[1] * (x.dim() - 2))
            + b.view(1, c, *[1] * (x.dim() - 2))
        ),
        epsilon=1e-3,
    )
    check(
        engine,
        "BatchNormalization",
        inputs[:3] + [f(c), abs(f(c))],
        lambda x, s, b, m, v: F.batch_norm(
            x, torch.tensor(m), torch.tensor(v), s, b, training=True
        ),
        training_mode=1,
        fixed=(3, 4),
    )


def test_batch_norm_learns_statistics(engine):
    """Running statistics are outputs without gradients of their own."""

    def reference(x, s, b, m, v):
        return (
            F.batch_norm(x, None, None, s, b, training=True),
            torch.tensor(m) * 0.9 + 0.1 * x.mean((0, 2)).detach(),
            torch.tensor(v) * 0.9 + 0.1 * x.var((0, 2), unbiased=False).detach(),
        )

    inputs = [f(6, 5, 9), f(5), f(5), f(5), abs(f(5))]
    model, feeds = node_model(
        "BatchNormalization", inputs, outputs=3, fixed=(3, 4), training_mode=1
    )
    got, grads, seeds, _ = gradients(model, feeds, engine, seeds={"y0": f(6, 5, 9)})
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs[:3]]
    expected = reference(*tensors, *inputs[3:])
    (expected[0] * torch.tensor(seeds["y0"])).sum().backward()
    for i, y in enumerate(expected):
        close(got[f"y{i}"], y.detach().numpy(), 1e-4, f"output {i}")
    for i, x in enumerate(tensors):
        close(grads[f"x{i}"], x.grad.numpy(), 1e-4, f"gradient {i}")


def test_norms(engine):
    for shape in ((2, 6, 4, 5), (1, 6, 9)):
        check(
            engine,
            "InstanceNormalization",
            [f(*shape) + 1, f(6), f(6)],
            lambda x, s, b: F.instance_norm(x, weight=s, bias=b),
        )
        check(
            engine,
            "GroupNormalization",
            [f(*shape) + 1, f(6), f(6)],
            lambda x, s, b: F.group_norm(x, 3, s, b),
            num_groups=3,
        )
        check(
            engine,
            "GroupNormalization",
            [f(*shape) + 1, f(3), f(3)],
            lambda x, s, b: F.group_norm(x, 3, s.repeat_interleave(2), b.repeat_interleave(2)),
            num_groups=3,
            opset=18,
        )
    check(
        engine,
        "LRN",
        [f(2, 7, 4, 5)],
        lambda x: F.local_response_norm(x, 5, 0.5, 0.6, 2.0),
        size=5,
        alpha=0.5,
        beta=0.6,
        bias=2.0,
    )
    for p in (1, 2):
        check(
            engine,
            "LpNormalization",
            [f(3, 4, 5)],
            lambda x: F.normalize(x, p=p, dim=1),
            p=p,
            axis=1,
        )
    check(
        engine,
        "MeanVarianceNormalization",
        [f(2, 3, 4, 5)],
        lambda x: (
            (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), unbiased=False, keepdim=True)
        ),
    )


@pytest.mark.parametrize(
    "mode, align",
    [("nearest", None), ("linear", False), ("linear", True), ("cubic", False), ("cubic", True)],
)
@pytest.mark.parametrize("size", [(10, 12), (3, 13), (5, 6)], ids=str)
def test_resize(engine, mode, align, size):
    where = (
        "asymmetric" if mode == "nearest" else "align_corners" if align else "pytorch_half_pixel"
    )
    torch_mode = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[mode]
    check(
        engine,
        "Resize",
        [f(2, 3, 5, 6), None, None, np.array([2, 3, *size])],
        lambda x, *_: F.interpolate(x, size, mode=torch_mode, align_corners=align),
        mode=mode,
        coordinate_transformation_mode=where,
        nearest_mode="floor",
    )


def test_resize_antialias(engine):
    for mode, torch_mode in (("linear", "bilinear"), ("cubic", "bicubic")):
        check(
            engine,
            "Resize",
            [f(1, 2, 16, 20), None, None, np.array([1, 2, 5, 9])],
            lambda x, *_: F.interpolate(x, (5, 9), mode=torch_mode, antialias=True),
            mode=mode,
            antialias=1,
            exclude_outside=1,
            cubic_coeff_a=-0.5,
            opset=18,
        )


@pytest.mark.parametrize(
    "mode, torch_mode", [("linear", "bilinear"), ("nearest", "nearest"), ("cubic", "bicubic")]
)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(engine, mode, torch_mode, padding, align):
    grid = (f(2, 4, 7, 2) * 0.8).astype(np.float32)
    check(
        engine,
        "GridSample",
        [f(2, 3, 5, 6), grid],
        lambda x, grid: F.grid_sample(x, grid, torch_mode, padding, bool(align)),
        mode=mode,
        padding_mode=padding,
        align_corners=align,
        opset=20,
    )
    if mode != "cubic":
        check(
            engine,
            "GridSample",
            [f(1, 2, 3, 4, 5), (f(1, 2, 3, 4, 3) * 0.8).astype(np.float32)],
            lambda x, grid: F.grid_sample(x, grid, torch_mode, padding, bool(align)),
            mode=mode,
            padding_mode=padding,
            align_corners=align,
            opset=20,
        )


def test_blocks(engine):
    check(
        engine,
        "DepthToSpace",
        [f(2, 12, 3, 4)],
        lambda x: F.pixel_shuffle(x, 2),
        blocksize=2,
        mode="CRD",
    )
    check(
        engine,
        "SpaceToDepth",
        [f(2, 3, 6, 4)],
        lambda x: x.view(2, 3, 3, 2, 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(2, 12, 3, 2),
        blocksize=2,
    )

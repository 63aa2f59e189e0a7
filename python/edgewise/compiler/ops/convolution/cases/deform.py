"""Test cases of ops/convolution/deform.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..deform import affine_grid, col2im, deform_conv, max_unpool

if TYPE_CHECKING:
    from typing import Any

    from ....declare.annotations import Cases, Toolbox


@deform_conv.cases
def deform_conv_cases(t: Toolbox) -> Cases:
    def case(
        x: Any,
        w: Any,
        shared: int = 1,
        mask: bool = False,
        bias: bool = False,
        opset: int = 19,
        **attrs: Any,
    ) -> Any:
        kernel, stride, pads, dilation = (
            w[2:],
            attrs.get("strides", [1, 1]),
            attrs.get("pads", [0, 0, 0, 0]),
            attrs.get("dilations", [1, 1]),
        )
        out = [
            (x[2 + i] + pads[i] + pads[2 + i] - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1
            for i in range(2)
        ]
        taps = kernel[0] * kernel[1]
        return t(
            t.f(*x),
            t.f(*w),
            t.f(x[0], shared * taps * 2, *out, low=-2, high=2),
            t.f(w[0]) if bias else None,
            t.f(x[0], shared * taps, *out) if mask else None,
            offset_group=shared,
            tol=1e-4,
            opset=opset,
            **attrs,
        )

    yield case((1, 1, 3, 3), (1, 1, 2, 2))
    # small: ONNX's reference calls an interpreter for each sample
    yield case((2, 2, 4, 5), (3, 2, 3, 3), mask=True, bias=True, pads=[1, 1, 1, 1])
    yield case(
        (1, 4, 6, 4), (4, 2, 3, 2), shared=2, mask=True, group=2, strides=[2, 1], pads=[1, 0, 2, 1]
    )
    yield case(
        (1, 3, 5, 5),
        (3, 1, 3, 3),
        shared=3,
        group=3,
        dilations=[2, 2],
        pads=[2, 2, 2, 2],
        bias=True,
    )
    yield case((1, 2, 5, 5), (3, 2, 1, 1), opset=22)


@col2im.cases
def col2im_cases(t: Toolbox) -> Cases:
    for x, image, block, attrs in [
        ((1, 5, 5), [5, 5], [1, 5], {}),
        ((2, 9, 4), [6, 6], [3, 3], {"strides": [2, 2]}),
        ((1, 12, 16), [5, 6], [2, 3], {}),
        ((1, 5, 15), [5, 5], [1, 5], {"pads": [0, 1, 0, 1]}),
        ((1, 4, 5), [6, 6], [2, 2], {"dilations": [1, 5]}),
        ((2, 30, 12), [4, 5, 5], [1, 1, 5], {}),
        ((1, 6, 3), [8], [3], {"strides": [2]}),
    ]:
        if len(image) == 3:
            x = (x[0], 10, 20)
        yield t(t.f(*x), image, block, opset=18, tol=1e-4, **attrs)


@affine_grid.cases
def affine_grid_cases(t: Toolbox) -> Cases:
    for align in (0, 1):
        yield t(t.f(2, 2, 3), [2, 3, 5, 6], align_corners=align, opset=20, tol=1e-4)
        yield t(t.f(2, 3, 4), [2, 3, 4, 5, 6], align_corners=align, opset=20, tol=1e-4)
    yield t(t.f(1, 2, 3), [1, 1, 1, 4], opset=20, tol=1e-4)


@max_unpool.cases
def max_unpool_cases(t: Toolbox) -> Cases:
    yield t(
        t.f(1, 1, 2, 2), t.of("int64", [[[[5, 7], [13, 15]]]]), kernel_shape=[2, 2], strides=[2, 2]
    )
    yield t(
        t.f(2, 3, 2, 3),
        t.of("int64", t.random.permutation(144)[:36].reshape(2, 3, 2, 3)),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    yield t(t.f(1, 2, 3), t.of("int64", [[[0, 3, 5], [7, 9, 11]]]), kernel_shape=[2], strides=[2])
    yield t(
        t.f(1, 1, 2, 2),
        t.of("int64", [[[[5, 7], [13, 15]]]]),
        [1, 1, 5, 5],
        kernel_shape=[2, 2],
        strides=[2, 2],
        trust="onnx",
        why=(
            "onnxruntime's indices count elements of the output, ONNX's those of the pooled tensor"
        ),
    )
    yield t(
        t.f(1, 1, 2, 2),
        t.of("int64", [[[[0, 1], [3, 4]]]]),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        opset=11,
    )

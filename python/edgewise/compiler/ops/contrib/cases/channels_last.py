"""Test cases of ops/contrib/channels_last.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..channels_last import conv, fused_conv, max_pool, quantized_conv

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@conv.cases
def conv_cases(t: Toolbox) -> Cases:
    """With a kernel of one element a convolution is a matrix product."""
    x, w, bias = t.f(2, 4, 5, 3), t.f(6, 3, 1, 1), t.f(6)
    yield t(
        x,
        w,
        bias,
        tol=1e-4,
        expect=[x @ w[:, :, 0, 0].T + bias],
        why="onnxruntime has it on GPUs only",
    )


@fused_conv.cases
def fused_conv_cases(t: Toolbox) -> Cases:
    x, w, bias, more = t.f(2, 4, 5, 3), t.f(6, 3, 1, 1), t.f(6), t.f(2, 4, 5, 6)
    yield t(
        x,
        w,
        bias,
        more,
        activation="Relu",
        tol=1e-4,
        expect=[(x @ w[:, :, 0, 0].T + bias + more).clip(0)],
        why="onnxruntime has it on GPUs only",
    )


@max_pool.cases
def max_pool_cases(t: Toolbox) -> Cases:
    for kind in ("int8", "uint8"):
        for ceil in (0, 1):
            yield t(
                t.n(kind, 2, 7, 6, 3),
                kernel_shape=[3, 2],
                strides=[2, 2],
                pads=[1, 0, 1, 0],
                ceil_mode=ceil,
            )


@quantized_conv.cases
def quantized_conv_cases(t: Toolbox) -> Cases:
    for last in (0, 1):
        for group, attrs in ((1, {}), (1, {"strides": [2, 2], "pads": [1, 1, 1, 1]}), (2, {})):
            w = t.n("int8", 6, 4 // group, 3, 3)
            yield t(
                t.n("uint8", *((2, 7, 6, 4) if last else (2, 4, 7, 6))),
                *(t.const(t.of("float32", 0.02)), t.const(t.of("uint8", 120)), t.const(w)),
                *(t.const(t.f(6, low=0.01, high=0.03)), t.const(t.n("int8", 6, low=0, high=0))),
                *(t.const(t.of("float32", 0.3)), t.const(t.of("uint8", 100))),
                t.const(t.n("int32", 6, low=-900, high=900)),
                channels_last=last,
                group=group,
                **attrs,
            )

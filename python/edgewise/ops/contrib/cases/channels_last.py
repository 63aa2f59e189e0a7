"""Test cases of ops/contrib/channels_last.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..channels_last import conv, fused_conv, max_pool

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

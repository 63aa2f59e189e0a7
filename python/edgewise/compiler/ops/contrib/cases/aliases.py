"""Test cases of ops/contrib/aliases.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..aliases import (
    conv_transpose,
    dequantize_linear,
    expand_dims,
    gather_nd,
    grid_sample,
    pad,
    quantize_linear,
    range_,
    trilu,
)

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@expand_dims.cases
def expand_dims_cases(t: Toolbox) -> Cases:
    for axis in (0, 1, -1, 2):
        yield t(t.f(2, 3), t.const(t.of("int32", axis)))


@trilu.cases
def trilu_cases(t: Toolbox) -> Cases:
    for k in (-1, 0, 1):
        for upper in (0, 1):
            yield t(t.f(2, 3, 4), t.const(t.of("int64", k)), upper=upper)


@gather_nd.cases
def gather_nd_cases(t: Toolbox) -> Cases:
    for kind in ("int32", "int64"):
        yield t(t.f(3, 4, 5), t.n(kind, 2, 2, low=0, high=2))


@range_.cases
def range_cases(t: Toolbox) -> Cases:
    yield t(t.const(t.of("float32", 1)), t.const(t.of("float32", 7)), t.const(t.of("float32", 2)))
    yield t(t.const(t.of("int64", [1])), t.const(t.of("int64", [7])))
    yield t(t.const(t.of("int32", 9)), t.const(t.of("int32", 1)), t.const(t.of("int32", -2)))


@pad.cases
def pad_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3), [1, 0, 2, 1])
    yield t(t.f(2, 3), t.const(t.of("int64", [[0, 1, 0, 1]])), t.const(t.of("float32", [7])))
    yield t(t.f(4, 5), [1, 2, 1, 0], mode="reflect")
    yield t(t.f(4, 5), [1, 2, 1, 0], mode="edge")


@grid_sample.cases
def grid_sample_cases(t: Toolbox) -> Cases:
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border"):
            for corners in (0, 1):
                yield t(
                    t.f(2, 3, 5, 6),
                    t.f(2, 4, 3, 2, low=-1.2, high=1.2),
                    mode=mode,
                    padding_mode=padding,
                    align_corners=corners,
                    tol=1e-4,
                )


@conv_transpose.cases
def conv_transpose_cases(t: Toolbox) -> Cases:
    yield t(t.f(1, 3, 5, 5), t.f(3, 4, 3, 3), [1, 1, 1, 1], t.f(4), strides=[2, 2], tol=1e-4)
    yield t(t.f(1, 3, 5, 5), t.f(3, 4, 3, 3), [0, 1, 1, 0], tol=1e-4)


@quantize_linear.cases
@dequantize_linear.cases
def quantization_cases(t: Toolbox) -> Cases:
    for kind in ("uint8", "int8", "uint16", "int16"):
        for shape in ((), (3,)):
            yield t(
                t.f(2, 3, 4) if t.name == "QuantizeLinear" else t.n(kind, 2, 3, 4),
                t.f(*shape, low=0.01, high=0.1),
                t.n(kind, *shape, low=0, high=9),
            )

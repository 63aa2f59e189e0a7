"""Test cases of ops/convolution/pooling.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import OPS
from ..pooling import average_pool, lp_pool, max_pool

if TYPE_CHECKING:
    from typing import Any

    from ....declare.annotations import Cases, Toolbox

# (x, attributes): every rank, overlapping and not, windows over the edge
_POOLS: list[tuple[Any, dict[str, Any]]] = [
    ((2, 3, 9), {"kernel_shape": [3]}),
    ((1, 2, 11), {"kernel_shape": [4], "strides": [3], "pads": [1, 2]}),
    ((2, 3, 8, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((1, 3, 13, 11), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((2, 3, 9, 20), {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]}),
    ((1, 2, 7, 9), {"kernel_shape": [3, 2], "strides": [1, 3], "pads": [1, 0, 2, 1]}),
    ((1, 3, 6, 7, 8), {"kernel_shape": [2, 2, 3], "strides": [2, 1, 2]}),
    ((1, 3, 10, 10), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ((2, 70, 3, 3), {"kernel_shape": [3, 3]}),
]


@max_pool.cases
def max_pool_cases(t: Toolbox) -> Cases:
    for x, attrs in _POOLS:
        yield t(t.f(*x), **attrs)
        yield t(
            t.f(*x),
            outputs=2,
            trust="ort",
            why="ONNX's reference counts indices in its own way outside of two dimensions",
            **attrs,
        )
    for shape in ((2, 3, 5, 7), (1, 2, 3, 4, 5)):
        yield t(
            t.f(*shape),
            kernel_shape=[2] * (len(shape) - 2),
            storage_order=1,
            outputs=2,
            trust="ort",
            why="ONNX's reference counts indices in its own way outside of two dimensions",
        )
    yield t(t.f(1, 3, 12, 12), kernel_shape=[3, 2], dilations=[2, 3])
    for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield t(t.f(1, 3, 8, 9), kernel_shape=[4, 3], auto_pad=mode, strides=[2, 1])
    yield t(t.f(2, 3, 8, 8), kernel_shape=[2, 2], opset=1)
    yield t(t.f(0, 3, 8, 8), kernel_shape=[2, 2])
    for dtype in ("uint8", "int8"):
        yield t(t.n(dtype, 2, 3, 8, 8), kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 2])
    yield t(t.f(1, 3, 8, 8, dtype="float16"), kernel_shape=[2, 2])


@average_pool.cases
def average_pool_cases(t: Toolbox) -> Cases:
    for x, attrs in _POOLS:
        yield t(t.f(*x), tol=1e-4, **attrs)
        yield t(t.f(*x), tol=1e-4, count_include_pad=1, **attrs)
    yield t(t.f(1, 3, 12, 12), kernel_shape=[3, 2], dilations=[2, 3], tol=1e-4)
    for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield t(t.f(1, 3, 8, 9), kernel_shape=[4, 3], auto_pad=mode, strides=[2, 1], tol=1e-4)
    yield t(t.f(2, 3, 8, 8), kernel_shape=[2, 2], opset=1, tol=1e-4)
    yield t(t.f(0, 3, 8, 8), kernel_shape=[2, 2])


@lp_pool.cases
def lp_pool_cases(t: Toolbox) -> Cases:
    for x, attrs in _POOLS:
        if "ceil_mode" not in attrs:
            for p in (1, 2, 3):
                yield t(
                    t.f(*x),
                    p=p,
                    tol=1e-4,
                    trust="ort",
                    why="ONNX's reference does not know every rank and pad",
                    **attrs,
                )


def _global_cases(t: Toolbox, norm: bool = False) -> Cases:
    for shape in ((2, 3, 7), (1, 5, 8, 9), (2, 3, 4, 5, 6), (3, 2, 1, 1), (2, 64, 14, 14)):
        for attrs in ({"p": 1}, {"p": 2}, {"p": 3}) if norm else ({},):
            yield t(
                t.f(*shape),
                tol=1e-4,
                trust="ort",
                why="ONNX's reference does not know every rank",
                **attrs,
            )
    yield t(t.f(1, 5, 8, 9), opset=2 if norm else 1, tol=1e-4)


OPS["", "GlobalAveragePool"].cases(_global_cases)
OPS["", "GlobalMaxPool"].cases(_global_cases)
OPS["", "GlobalLpPool"].cases(lambda t: _global_cases(t, norm=True))

"""Test cases of ops/quantized/qlinear_pointwise.py.

Output scales are such that no number is half way between two: onnxruntime rounds those to even
after it has added the zero point, ONNX before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..qlinear_pointwise import (
    add,
    attention,
    concat,
    global_pool,
    leaky_relu,
    mul,
    pool,
    reduce_mean,
    sigmoid,
    softmax,
    where,
)
from .qlinear import quantized, scale, zero_point

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@add.cases
@mul.cases
def two_cases(t: Toolbox) -> Cases:
    def part(*shape: int, dtype: str = "uint8", scale: float = 2**-5) -> tuple[Any, Any, Any]:
        return (
            quantized(t, *shape, dtype=dtype),
            t.const(t.of("float32", scale)),
            zero_point(t, dtype),
        )

    for a, b in (((2, 3, 8), (2, 3, 8)), ((2, 3, 8), (8,)), ((2, 1, 8), (3, 1)), ((5,), ())):
        for dtype in ("uint8", "int8"):
            yield t(
                *part(*a, dtype=dtype),
                *part(*b, dtype=dtype, scale=2**-6),
                t.const(t.of("float32", 0.0613)),
                zero_point(t, dtype),
            )


def _one_cases(
    *shapes: tuple[int, ...], to: float = 0.0173, **attrs: Any
) -> Callable[[Toolbox], Cases]:
    def cases(t: Toolbox) -> Cases:
        for shape in shapes:
            for dtype in ("uint8", "int8"):
                yield t(
                    quantized(t, *shape, dtype=dtype),
                    t.const(t.of("float32", 2**-5)),
                    zero_point(t, dtype),
                    t.const(t.of("float32", to)),
                    t.const(t.of(dtype, 3)),
                    fold=False,
                    **attrs,
                )

    return cases


sigmoid.cases(_one_cases((2, 37), to=0.00391))
leaky_relu.cases(_one_cases((2, 37), alpha=0.1))
global_pool.cases(_one_cases((2, 3, 4, 5), (2, 3, 8), channels_last=0))
pool.cases(_one_cases((2, 3, 8, 8), kernel_shape=[2, 2], strides=[2, 2]))


@softmax.cases
def softmax_cases(t: Toolbox) -> Cases:
    for dtype, zero, shape, axis, opset in (
        ("uint8", 3, (2, 37), -1, 13),
        ("int8", -100, (3, 4, 5), 1, 13),
        ("uint8", 0, (3, 4, 5), 1, 11),
    ):
        x, axes = (
            quantized(t, *shape, dtype=dtype),
            (tuple(range(axis, len(shape))) if opset < 13 else axis),
        )
        e = 2.0 ** ((x.astype("float64") - x.max(axes, keepdims=True)) / 32 * 1.4426950408889634)
        y = (e / e.sum(axes, keepdims=True) / 0.00391 + zero).round()
        yield t(
            x,
            t.const(t.of("float32", 2**-5)),
            zero_point(t, dtype),
            t.const(t.of("float32", 0.00391)),
            t.const(t.of(dtype, zero)),
            axis=axis,
            attributes={"opset": opset},
            fold=False,
            expect=[
                (
                    y.clip(0, 255).astype("uint8")
                    if dtype == "uint8"
                    else y.clip(-128, 127).astype("int8")
                )
            ],
            why="onnxruntime's integers round by 1 otherwise",
        )


@concat.cases
def concat_cases(t: Toolbox) -> Cases:
    parts = [
        x
        for k in (3, 5)
        for x in (quantized(t, 2, k), t.const(t.of("float32", 2**-k)), zero_point(t, "uint8"))
    ]
    yield t(t.const(t.of("float32", 0.0613)), zero_point(t, "uint8"), *parts, axis=1)


@attention.cases
def attention_cases(t: Toolbox) -> Cases:
    inputs = [
        quantized(t, 2, 5, 12),
        t.const(quantized(t, 12, 48, dtype="int8")),
        t.const(t.f(48)),
        scale(t),
        scale(t),
    ]
    yield t(*inputs, None, zero_point(t, "uint8"), num_heads=4, tol=1e-4)
    yield t(
        *inputs,
        t.of("int32", [3, 5]),
        zero_point(t, "uint8"),
        t.const(t.of("int8", 0)),
        num_heads=4,
        tol=1e-4,
    )
    yield t(*inputs, None, zero_point(t, "uint8"), num_heads=4, unidirectional=1, tol=1e-4)


@where.cases
def where_cases(t: Toolbox) -> Cases:
    for kind in ("uint8", "int8"):
        for shapes in (((3, 4), (3, 4), (3, 4)), ((2, 3, 4), (3, 1), (1, 4))):
            x, y = (quantized(t, *shape, dtype=kind) for shape in shapes[1:])
            yield t(
                t.b(*shapes[0]),
                *(x, scale(t), zero_point(t, kind), y, scale(t), zero_point(t, kind)),
                *(scale(t), zero_point(t, kind)),
            )


@reduce_mean.cases
def reduce_mean_cases(t: Toolbox) -> Cases:
    for axes, keepdims in (([1], 1), ([-1, 0], 0), ([0, 1, 2], 1)):
        x, s, z = quantized(t, 3, 4, 5), t.of("float32", 0.11), t.of("uint8", 7)
        mean = ((x.astype("float64") - 7) * s).mean(tuple(axes), keepdims=bool(keepdims))
        y = (mean / 0.0737).round() + 20
        yield t(
            *(x, t.const(s), t.const(z), t.const(t.of("float32", 0.0737)), t.const(z + 13)),
            axes=axes,
            keepdims=keepdims,
            expect=[y.clip(0, 255).astype("uint8")],
            why="onnxruntime has no kernel for the processor",
        )

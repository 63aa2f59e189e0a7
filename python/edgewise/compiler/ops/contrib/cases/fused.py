"""Test cases of ops/contrib/fused.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..fused import (
    bias_add,
    bias_softmax,
    bias_split_gelu,
    fused_gemm,
    fused_matmul,
    gemm_fast_gelu,
    group_norm,
    skip_group_norm,
)

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@bias_add.cases
def bias_add_cases(t: Toolbox) -> Cases:
    x, bias, skip = t.f(2, 3, 8), t.f(8), t.f(2, 3, 8)
    yield t(x, bias, skip, expect=[x + bias + skip], why="onnxruntime has it on GPUs only")


@bias_split_gelu.cases
def bias_split_gelu_cases(t: Toolbox) -> Cases:
    x, bias = t.of("float32", [[[1.0, -2.0, 0.0, 1.0]]]), t.of("float32", [1.0, 0.5, 0.0, 1.0])
    yield t(
        x,
        bias,
        expect=[t.of("float32", [[[0.0, -2.9317497]]])],
        why="onnxruntime has it on GPUs only; gelu(2) = 1.9544997",
    )


def _normed(x: Any, gamma: Any, beta: Any, groups: int, silu: int, epsilon: float = 1e-5) -> Any:
    v = x.reshape(*x.shape[:3], groups, -1).astype("float64")
    mean = v.mean((1, 2, 4), keepdims=True)
    y = ((v - mean) / (((v - mean) ** 2).mean((1, 2, 4), keepdims=True) + epsilon) ** 0.5).reshape(
        x.shape
    ) * gamma + beta
    return (y / (1 + 2.718281828459045**-y) if silu else y).astype("float32")


@group_norm.cases
def group_norm_cases(t: Toolbox) -> Cases:
    for groups, silu in ((2, 0), (4, 1)):
        x, gamma, beta = t.f(2, 3, 5, 8), t.f(8), t.f(8)
        yield t(
            x,
            gamma,
            beta,
            groups=groups,
            activation=silu,
            epsilon=1e-5,
            tol=1e-4,
            expect=[_normed(x, gamma, beta, groups, silu)],
            why="onnxruntime has it on GPUs only",
        )


@skip_group_norm.cases
def skip_group_norm_cases(t: Toolbox) -> Cases:
    x, gamma, beta, bias = t.f(2, 3, 5, 8), t.f(8), t.f(8), t.f(8)
    for skip in (t.f(2, 3, 5, 8), t.f(2, 8)):
        total = x + (skip if skip.ndim == 4 else skip[:, None, None]) + bias
        yield t(
            x,
            gamma,
            beta,
            skip,
            bias,
            groups=4,
            activation=1,
            epsilon=1e-5,
            outputs=2,
            tol=1e-4,
            expect=[_normed(total, gamma, beta, 4, 1), total],
            why="onnxruntime has it on GPUs only",
        )


@fused_gemm.cases
def fused_gemm_cases(t: Toolbox) -> Cases:
    for activation, attrs in (
        ("Relu", {}),
        ("Tanh", {}),
        ("Sigmoid", {}),
        ("LeakyRelu", {"activation_alpha": 0.2}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
    ):
        yield t(
            t.f(3, 40),
            t.f(50, 40),
            t.f(50),
            transB=1,
            alpha=0.5,
            activation=activation,
            tol=1e-4,
            **attrs,
        )


@gemm_fast_gelu.cases
def gemm_fast_gelu_cases(t: Toolbox) -> Cases:
    yield t(
        t.of("float32", [[1.0, 2.0]]),
        t.of("float32", [[1.0, 0.0], [0.0, 0.5]]),
        t.of("float32", [0.0, 1.0]),
        tol=1e-4,
        expect=[t.of("float32", [[0.841192, 1.9545977]])],
        why="onnxruntime has it on GPUs only",
    )


@fused_matmul.cases
def fused_matmul_cases(t: Toolbox) -> Cases:
    a, b = t.f(2, 5, 3), t.f(4, 5)
    y = 0.5 * a.swapaxes(1, 2).astype("float64") @ b.T
    for activation, attrs, expected in (
        ("Relu", {}, y.clip(0)),
        ("LeakyRelu", {"activation_alpha": 0.2}, y.clip(0) + 0.2 * y.clip(None, 0)),
        ("Softmax", {"activation_axis": 1}, _softmax(y, 1)),
    ):
        yield t(
            *(a, b),
            transA=1,
            transB=1,
            alpha=0.5,
            activation=activation,
            tol=1e-4,
            expect=[expected.astype("float32")],
            why="onnxruntime has it on DirectML only",
            **attrs,
        )


def _softmax(x: Any, axis: Any) -> Any:
    e = 2.718281828459045 ** (x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@bias_softmax.cases
def bias_softmax_cases(t: Toolbox) -> Cases:
    for shape, bias, axis, inner in (
        ((2, 3, 4, 5), (2, 1, 1, 5), 3, 1),
        ((2, 3, 4, 5), (4, 5), 3, 0),
        ((2, 3, 4), (3, 4), 1, 0),
    ):
        x, b = t.f(*shape), t.f(*bias)
        expected = _softmax(x + b, tuple(range(axis, len(shape)))).astype("float32")
        yield t(
            *(x, b),
            axis=axis,
            is_inner_broadcast=inner,
            tol=1e-4,
            expect=[expected],
            why="onnxruntime has it on GPUs only",
        )

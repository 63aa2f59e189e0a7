"""Test cases of ops/contrib/contrib.py."""

from __future__ import annotations

from ..contrib import (
    attention,
    bias_add,
    bias_split_gelu,
    embed,
    fused_gemm,
    group_norm,
    skip_group_norm,
)


@embed.cases
def embed_cases(t):
    ids, segments, positions = (
        t.n("int32", 2, 5, low=0, high=19),
        t.n("int32", 2, 5, low=0, high=1),
        t.n("int32", 2, 5, low=0, high=8),
    )
    tables = [
        t.const(t.f(20, 8)),
        t.const(t.f(9, 8)),
        t.const(t.f(2, 8)),
        t.const(t.f(8)),
        t.const(t.f(8)),
    ]
    mask = t.of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    yield t(ids, segments, *tables, mask, outputs=2, tol=1e-4)
    yield t(ids, None, *tables, mask, outputs=2, tol=1e-4)
    yield t(ids, segments, *tables, outputs=2, tol=1e-4, epsilon=1e-3)
    yield t(ids, None, *tables[:2], None, *tables[3:], mask, positions, outputs=2, tol=1e-4)
    yield t(ids, segments, *tables, mask, outputs=3, tol=1e-4)


@attention.cases
def attention_cases(t):
    def case(*more, x=(2, 5, 12), sizes=(16, 16, 16), outputs=1, **attrs):
        return t(
            t.f(*x),
            t.const(t.f(x[2], sum(sizes)) * 0.5),
            t.const(t.f(sum(sizes))),
            *more,
            num_heads=4,
            outputs=outputs,
            tol=1e-4,
            **attrs,
        )

    yield case()
    yield case(x=(1, 1, 8))
    yield case(unidirectional=1)
    yield case(scale=0.2)
    yield case(sizes=(16, 16, 8), qkv_hidden_sizes=[16, 16, 8])
    yield case(t.of("int32", [3, 5]))
    yield case(t.of("int32", [4, 5, 1, 2]))
    yield case(t.of("int32", [3, 5, 0, 5, 10, 0, 5, 10]))
    yield case(t.of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]))
    yield case(t.of("int32", [[1, 1, 0, 0, 1], [0, 1, 1, 1, 1]]), mask_filter_value=-50.0)
    yield case(t.n("int32", 2, 5, 5, low=0, high=1) | t.of("int32", [[[1, 0, 0, 0, 0]]]))
    yield case(None, None, t.f(2, 4, 5, 5))
    yield case(t.of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]), None, t.f(2, 4, 5, 5))
    yield case(None, t.f(2, 2, 4, 3, 4), outputs=2)
    yield case(t.of("int32", [[1, 1, 1, 0, 0, 1, 1, 1], [1] * 8]), t.f(2, 2, 4, 3, 4), outputs=2)
    yield case(None, t.f(2, 2, 4, 3, 4), outputs=2, unidirectional=1)


@bias_add.cases
def bias_add_cases(t):
    x, bias, skip = t.f(2, 3, 8), t.f(8), t.f(2, 3, 8)
    yield t(x, bias, skip, expect=[x + bias + skip], why="onnxruntime has it on GPUs only")


@bias_split_gelu.cases
def bias_split_gelu_cases(t):
    x, bias = t.of("float32", [[[1.0, -2.0, 0.0, 1.0]]]), t.of("float32", [1.0, 0.5, 0.0, 1.0])
    yield t(
        x,
        bias,
        expect=[t.of("float32", [[[0.0, -2.9317497]]])],
        why="onnxruntime has it on GPUs only; gelu(2) = 1.9544997",
    )


def _normed(x, gamma, beta, groups, silu, epsilon=1e-5):
    v = x.reshape(*x.shape[:3], groups, -1).astype("float64")
    mean = v.mean((1, 2, 4), keepdims=True)
    y = ((v - mean) / (((v - mean) ** 2).mean((1, 2, 4), keepdims=True) + epsilon) ** 0.5).reshape(
        x.shape
    ) * gamma + beta
    return (y / (1 + 2.718281828459045**-y) if silu else y).astype("float32")


@group_norm.cases
def group_norm_cases(t):
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
def skip_group_norm_cases(t):
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
def fused_gemm_cases(t):
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

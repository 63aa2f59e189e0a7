"""Test cases of ops/product/matmul.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..matmul import fused_matmul, gemm, matmul, transpose_matmul

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

# shapes of products: vectors, one row, tails of every tile, batches that broadcast, nothing
PRODUCTS = [
    ((3, 4), (4, 5)),
    ((1, 37), (37, 65)),
    ((7, 130), (130, 67)),
    ((65, 33), (33, 129)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((3, 1, 2, 4), (5, 4, 6)),
    ((2, 3, 4, 5, 6), (2, 3, 4, 6, 3)),
    ((1, 2, 1, 3, 4), (5, 1, 6, 4, 2)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((3, 4), (4, 0)),
    ((2, 0, 3), (2, 3, 4)),
    ((33, 1), (1, 17)),
    ((1, 1), (1, 1)),
    ((5, 300), (300, 1)),
]


@matmul.cases
def matmul_cases(t: Toolbox) -> Cases:
    for a, w in PRODUCTS + [
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
    ]:
        yield t(t.f(*a), t.f(*w), tol=1e-4)
    yield t(t.f(3, 40), t.const(t.f(40, 50)), tol=1e-4)
    yield t(t.f(9, 40), t.const(t.f(40, 50)), tol=1e-4)
    for rows in (1, 9):
        yield t(t.f(rows, 40, dtype="float16"), t.f(40, 50, dtype="float16"), tol=4e-3)
        yield t(t.f(2, rows, 40, dtype="float16"), t.const(t.f(40, 50, dtype="float16")), tol=4e-3)


@fused_matmul.cases
def fused_matmul_cases(t: Toolbox) -> Cases:
    def stored(shape: tuple[int, ...], transposed: int) -> Any:
        return t.f(*shape[:-2], shape[-1], shape[-2]) if transposed else t.f(*shape)

    for a, w in (((3, 40), (40, 50)), ((1, 37), (37, 65)), ((2, 3, 4), (2, 4, 5))):
        for ta, tb in ((0, 0), (0, 1), (1, 0), (1, 1)):
            yield t(stored(a, ta), stored(w, tb), transA=ta, transB=tb, alpha=0.5, tol=1e-4)
    yield t(t.f(4, 2, 3, 5), t.f(2, 3, 5, 6), transBatchA=1, tol=1e-4)
    yield t(t.f(5, 2, 4), t.f(5, 2, 6), transBatchA=1, transBatchB=1, transA=1, tol=1e-4)
    yield t(t.f(2, 4, 5), t.f(6, 2, 5), transBatchB=1, transB=1, alpha=0.5, tol=1e-4)
    yield t(t.f(3, 4, dtype="float64"), t.f(4, 5, dtype="float64"), tol=1e-4)


@transpose_matmul.cases
def transpose_matmul_cases(t: Toolbox) -> Cases:
    yield t(t.f(3, 5, 4), t.f(3, 5, 6), transA=1, alpha=0.5, tol=1e-4)
    yield t(t.f(3, 4), t.f(4, 5), tol=1e-4)


@gemm.cases
def gemm_cases(t: Toolbox) -> Cases:
    for m, k, cols in ((3, 40, 50), (1, 37, 65), (65, 33, 17), (4, 0, 5), (0, 3, 4), (9, 130, 8)):
        for ta, tb in ((0, 0), (0, 1), (1, 0), (1, 1)):
            a, w = t.f(k, m) if ta else t.f(m, k), t.f(cols, k) if tb else t.f(k, cols)
            yield t(a, w, t.f(cols), transA=ta, transB=tb, tol=1e-4)
            yield t(
                a,
                w,
                t.f(m, cols),
                transA=ta,
                transB=tb,
                alpha=0.5,
                beta=-2.0,
                tol=1e-4,
                **({} if k else {"trust": "onnx", "why": "onnxruntime forgets beta where k is 0"}),
            )
    for m, k, cols in (
        (1, 300, 5003),
        (2, 300, 501),
        (5, 512, 600),
        (16, 131, 1700),
        (4, 300, 129),
    ):  # few rows: threads share out k, sums are many, rows of a fall on one place in cache
        for tb in (0, 1):
            yield t(t.f(m, k), t.f(cols, k) if tb else t.f(k, cols), t.f(cols), transB=tb, tol=1e-4)
    for c in ((), (1,), (1, 5), (3, 1), (1, 1), (3, 5)):
        yield t(t.f(3, 4), t.f(4, 5), t.f(*c), beta=0.5, tol=1e-4)
    yield t(t.f(3, 4), t.f(4, 5), alpha=2.0, tol=1e-4)
    yield t(t.f(3, 4), t.f(4, 5), t.f(5), opset=9, tol=1e-4)
    yield t(
        t.f(3, 40, dtype="float16"),
        t.const(t.f(50, 40, dtype="float16")),
        t.const(t.f(50, dtype="float16")),
        transB=1,
        tol=4e-3,
    )
    yield t(t.f(9, 40), t.const(t.f(50, 40)), t.const(t.f(50)), transB=1, tol=1e-4)
    yield t(
        t.f(5, 300, dtype="float16"),
        t.const(t.f(300, 77, dtype="float16")),
        t.const(t.f(77, dtype="float16")),
        tol=1e-2,
    )

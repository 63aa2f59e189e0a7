"""Test cases of ops/reduce/reduction.py."""

from __future__ import annotations

from ..reduction import cumprod, cumsum, top_k


@cumsum.cases
def cumsum_cases(t):
    for axis in (0, 1, 2, -1, -3):
        for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
            yield t(t.f(3, 4, 5), axis, exclusive=exclusive, reverse=reverse)
    for dtype in ("float64", "int32", "int64"):
        yield t(t.any(dtype, 3, 7), t.const(t.of("int32", 1)))
    yield t(t.f(0, 3), 0)
    yield t(t.f(3, 0), 0)
    yield t(t.f(5), [0])


@cumprod.cases
def cumprod_cases(t):
    only = {"opset": 26, "trust": "onnx", "why": "newer than onnxruntime"}
    for axis in (0, 1, -1):
        for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
            yield t(
                t.f(3, 5, 9),
                t.const(t.of("int32", axis)),
                exclusive=exclusive,
                reverse=reverse,
                **only,
            )
    for dtype in ("float64", "int32", "int64", "uint32", "float16"):
        yield t(t.n("int64", 2, 6, low=1, high=4).astype(dtype), t.const(t.of("int64", 1)), **only)
    yield t(t.of("float32", [3, 0, 2, 0, 5]), t.const(t.of("int64", 0)), **only)
    yield t(t.f(3, 1), t.const(t.of("int64", 1)), exclusive=1, **only)
    yield t(t.f(0, 3), t.const(t.of("int64", 0)), **only)


@top_k.cases
def top_k_cases(t):
    for axis in (0, 1, 2, -1):
        for largest in (0, 1):
            yield t(t.f(3, 4, 5), [2], outputs=2, axis=axis, largest=largest)
    yield t(t.n("int64", 3, 50, low=0, high=5), [20], outputs=2)
    yield t(t.n("int32", 3, 50, low=0, high=5), [50], outputs=2, largest=0)
    for dtype in ("uint16", "uint32", "uint64"):
        high = t.of(
            dtype, [[0, 2 ** {"6": 16, "2": 32, "4": 64}[dtype[-1]] - 1, 5], [2**15, 2**15 - 1, 1]]
        )
        for largest in (0, 1):
            yield t(
                high,
                [2],
                outputs=2,
                largest=largest,
                opset=24,
                trust="onnx",
                why="onnxruntime has it for few types",
            )
    yield t(t.f(3, 4), [0], outputs=2)
    yield t(t.f(3, 4), [3], outputs=[True, False])
    yield t(t.f(3, 4), [3], outputs=[False, True])
    yield t(t.f(3, 4), outputs=2, opset=9, k=2)
    yield t(t.f(3, 4, dtype="float64"), [2], outputs=2, opset=11)
    yield t(t.f(2, 1000), [100], outputs=2)
    yield t(t.f(0, 4), [2], outputs=2)

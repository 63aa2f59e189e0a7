"""Test cases of the operators of ops/reduce."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import OPS
from ..cumulative import cumprod, cumsum
from ..reduction import INF, NAN, REDUCTIONS
from ..selection import top_k

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....declare.annotations import Cases, Toolbox


@cumsum.cases
def cumsum_cases(t: Toolbox) -> Cases:
    for axis in (0, 1, 2, -1, -3):
        for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
            yield t(t.f(3, 4, 5), axis, exclusive=exclusive, reverse=reverse)
    for dtype in ("float64", "int32", "int64"):
        yield t(t.any(dtype, 3, 7), t.const(t.of("int32", 1)))
    yield t(t.f(0, 3), 0)
    yield t(t.f(3, 0), 0)
    yield t(t.f(5), [0])


@cumprod.cases
def cumprod_cases(t: Toolbox) -> Cases:
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
def top_k_cases(t: Toolbox) -> Cases:
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
                why="onnxruntime supports few types",
            )
    yield t(t.f(3, 4), [0], outputs=2)
    yield t(t.f(3, 4), [3], outputs=[True, False])
    yield t(t.f(3, 4), [3], outputs=[False, True])
    yield t(t.f(3, 4), outputs=2, opset=9, k=2)
    yield t(t.f(3, 4, dtype="float64"), [2], outputs=2, opset=11)
    yield t(t.f(2, 1000), [100], outputs=2)
    yield t(t.f(0, 4), [2], outputs=2)


def _reduce_cases(op: str) -> Callable[[Toolbox], Cases]:
    # long, but only a list of cases
    def cases(t: Toolbox) -> Cases:
        positive = {"low": 0.1, "high": 3} if "log" in op else {}
        tol = {"tol": 1e-4}  # the order of summation differs
        for shape, axes in [
            ((2, 3, 4), [1]),
            ((2, 3, 4), [-1]),
            ((2, 3, 4), [0, 2]),
            ((2, 3, 4), [0]),
            ((3, 5, 2, 3), [1, 2]),
            ((3, 5, 2, 3), [3, 1]),
            ((7, 133), [1]),
            ((133, 7), [0]),
            ((5,), [0]),
            ((2, 3), []),
        ]:
            for keep in (0, 1):
                yield t(t.f(*shape, **positive), axes, keepdims=keep, **tol)
        yield t(t.f(2, 3, **positive), **tol)
        yield t(t.f(**positive), **tol)
        yield (
            t(
                t.f(2, 3, **positive),
                None,
                noop_with_empty_axes=1,
                trust="ort",
                why=(
                    "the reference evaluator applies the element's function where ONNX says that"
                    " nothing is reduced"
                ),
            )
            if op in ("l1", "l2", "sum_square", "log_sum", "log_sum_exp")
            else t(t.f(2, 3), None, noop_with_empty_axes=1)
        )
        yield t(t.f(2, 3, 4, **positive), opset=11, axes=[1, -1], keepdims=0, **tol)
        yield t(t.f(2, 3, 4, **positive), opset=11, **tol)
        yield t(t.f(2, 3, 4, **positive), opset=13, **tol)
        if op != "sum":
            yield t(t.f(2, 3, 4, **positive), opset=13, axes=[0], **tol)
        else:
            yield t(t.f(2, 3, 4), [0], opset=13, **tol)
        yield t(t.f(3, 0, **positive), [0], **tol)
        if op not in ("max", "min", "mean"):
            yield t(t.f(3, 0), [1], **tol)
        for dtype in ("float32", "int32", "int8", "bool") if op in ("max", "min") else ():
            yield t(
                t.any(dtype, 2, 0), [1], trust="onnx", why="onnxruntime refuses to reduce nothing"
            )
        for dtype in ("float64", "float16"):
            yield t(t.f(3, 9, dtype=dtype, **positive), [1], **({} if dtype == "float16" else tol))
        for dtype in (
            ("int32", "int64")
            if op in ("sum", "mean", "max", "min", "prod", "l1", "sum_square")
            else ()
        ):
            yield (
                t(
                    t.n(dtype, 3, 4, low=-9, high=9),
                    [1],
                    trust="ort",
                    why="the reference evaluator widens int32",
                )
                if op == "sum_square"
                else t(t.n(dtype, 3, 4, low=-9, high=9), [1])
            )
        for dtype in ("uint8", "int8") if op in ("max", "min") else ():
            yield t(t.n(dtype, 3, 9), [0])
        for dtype in ("uint32", "uint64"):
            big = 2 ** (32 if dtype == "uint32" else 64) - 5
            if "log" not in op and op != "sum_square":  # which the reference evaluator widens
                yield t(
                    (
                        t.n(dtype, 3, 4, low=0, high=9)
                        if op == "l2"
                        else t.of(
                            dtype,
                            [[1, 2, 3], [big, 0, 7]] if op != "mean" else [[1, 2, 3], [4, 0, 7]],
                        )
                    ),
                    [1],
                    trust="onnx",
                    why="onnxruntime supports few types",
                )
        if op in ("max", "min"):
            yield t(t.b(3, 2), [1], opset=20)
            yield t(
                t.of("float32", [[NAN, 1, 2], [1, NAN, INF], [-INF, INF, 3]]),
                [1],
                trust="onnx",
                why=(
                    "a NaN anywhere is the result, as in NumPy; in onnxruntime it depends on where"
                    " the NaN stands"
                ),
            )
        if op == "log_sum_exp":
            yield t(t.f(3, 9) + 200, [1], **tol)

    return cases


for _name, _op in REDUCTIONS.items():
    OPS["", _name].cases(_reduce_cases(_op))


def _softmax_cases(t: Toolbox, log: int) -> Cases:
    for shape in ((3, 4), (2, 3, 37), (1, 1), (5,), (2, 3, 4, 5), (4, 1000)):
        for axis in range(-len(shape), len(shape)):
            yield t(t.f(*shape) * 3, axis=axis)
    for old_axis in (None, 0, 1, 2, -1):
        yield t(
            t.f(2, 3, 4),
            opset=11,
            trust="ort",
            why="the reference evaluator has only the meaning since opset 13",
            **({} if old_axis is None else {"axis": old_axis}),
        )
    yield t(t.f(2, 3, 4))
    yield t(t.f(0, 4))
    yield t(t.f(4, 0))
    yield t(t.of("float32", [[1e4, -1e4, 0], [-INF, 1, 2], [88, 89, 90]]))
    yield t(t.f(3, 9, dtype="float16"))
    yield t(t.f(3, 9, 2, dtype="float64") * 3, axis=1)
    yield t(
        t.f(3, 9, 2, dtype="float64"),
        axis=1,
        opset=11,
        trust="ort",
        why="the reference evaluator has only the meaning since opset 13",
    )
    yield (
        t(
            t.of("float32", [[-INF, -INF, -INF], [0, INF, 1]]),
            expect=[t.of("float32", [[NAN] * 3] * 2)],
            why="a row without a number has no softmax; the references agree, but warn",
        )
        if not log
        else t(t.f(1, 70000))
    )


OPS["", "Softmax"].cases(lambda t: _softmax_cases(t, 0))
OPS["", "LogSoftmax"].cases(lambda t: _softmax_cases(t, 1))


def _arg_cases(t: Toolbox) -> Cases:
    for axis in (0, 1, 2, -1):
        for keep in (0, 1):
            yield t(t.f(3, 4, 5), axis=axis, keepdims=keep)
    for last in (0, 1):
        yield t(t.n("int32", 4, 50, low=0, high=3), axis=1, select_last_index=last)
        yield t(t.n("int32", 50, 4, low=0, high=3), axis=0, select_last_index=last)
    for dtype in ("float64", "int64", "int8", "uint8"):
        yield t(t.any(dtype, 3, 9), axis=1)
    yield t(t.f(3, 9, dtype="float16"), axis=1)
    yield t(t.f(9))
    yield t(t.f(0, 3), axis=1)
    yield t(t.f(2, 3, 4), axis=1, opset=11)
    yield t(t.f(1, 1000), axis=-1)
    for dtype in ("float32", "float64", "float16"):
        for n in (5, 70):
            x = t.f(6, n, dtype=dtype)
            x[1, 0] = x[2, 2] = x[3, n - 1] = x[4, 1] = x[4, n - 2] = NAN
            x[5] = NAN
            for last in (0, 1):
                why = "NaN's index, as in NumPy; in onnxruntime it depends on where the NaN stands"
                how = {"select_last_index": last, "trust": "onnx", "why": why}
                yield t(x, axis=1, **how)
                yield t(x.T.copy(), axis=0, **how)


OPS["", "ArgMax"].cases(_arg_cases)
OPS["", "ArgMin"].cases(_arg_cases)

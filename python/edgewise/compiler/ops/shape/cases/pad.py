"""Test cases of ops/shape/pad.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..pad import center_crop_pad, pad

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@pad.cases
def pad_cases(t: Toolbox) -> Cases:
    for pads in ([1, 2, 3, 4], [0, 0, 0, 0], [0, 3, 0, 0], [-1, 0, 0, -2], [2, -1, -1, 3]):
        yield t(t.f(3, 4), pads)
        yield t(t.f(3, 4), pads, 1.5)
    yield t(t.f(3, 4), [1, 2], None, [1])
    yield t(t.f(2, 3, 4), [1, 2, 3, 4], 0.5, [-1, 0])
    yield t(t.f(3, 4), opset=10, pads=[1, 0, 0, 2], value=2.5)
    yield t(t.f(3, 4), [1, 0, 0, 2], opset=11)
    for mode in ("edge", "reflect", "wrap"):
        for pads in ([1, 2, 2, 3], [0, 3, 0, 0], [2, 0, 1, -1]):
            yield t(t.f(3, 4), pads, mode=mode, opset=19)
        yield t(
            t.n("int32", 2, 3, 5),
            [1, 2, 2, 0],
            None,
            [0, -1],
            mode=mode,
            opset=19,
            trust="onnx",
            why="onnxruntime does not take axes in any order in each mode",
        )
        yield t(t.f(2, 4100), [1, 3, 0, 2], mode=mode, opset=19)
    yield t(t.f(1, 2, 4, 5), opset=10, mode="reflect", pads=[0, 0, 1, 2, 0, 0, 3, 4])
    yield t(t.f(1, 2, 4, 5), opset=10, mode="edge", pads=[0, 0, 1, 2, 0, 0, 3, 4])
    yield t(t.f(3), [4, 7], mode="wrap", opset=19)
    yield t(t.f(1), [2, 1], mode="edge", opset=19)
    yield t(t.f(0, 4), [1, 0, 1, 0])
    for dtype in ("float64", "float16", "int64", "int32", "uint8", "int8", "bool"):
        yield t(t.any(dtype, 3, 4), [1, 0, 0, 2])
        yield t(t.any(dtype, 3, 4), [1, 0, 0, 2], t.const(t.of(dtype, 1)))


@center_crop_pad.cases
def center_crop_pad_cases(t: Toolbox) -> Cases:
    only = {
        "trust": "onnx",
        "why": "onnxruntime has the function's body of the standard, which fails for some axes",
    }
    for wanted in ([10, 7, 3], [7, 7, 7], [20, 12, 4], [10, 8, 5], [1, 0, 3]):
        yield t(t.f(11, 8, 3), wanted, opset=18, **only)
    yield t(t.f(20, 8, 3), [10, 9], axes=[1, 2], opset=18, **only)
    yield t(t.f(20, 8, 3), [10, 9], axes=[-3, -2], opset=18, **only)
    yield t(t.n("int64", 4, 5), [5, 4], opset=18, **only)

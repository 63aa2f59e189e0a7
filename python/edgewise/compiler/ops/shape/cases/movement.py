"""Test cases of ops/shape/movement.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..movement import reverse_sequence, slice_, tile, transpose, trilu

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@transpose.cases
def transpose_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3, 4))
    for perm in ([0, 2, 1], [1, 0, 2], [2, 0, 1], [1, 2, 0], [0, 1, 2]):
        yield t(t.f(2, 3, 4), perm=perm)
    yield t(t.f(70, 130))
    yield t(t.f(3, 65, 66, dtype="float16"), perm=[0, 2, 1])
    yield t(t.f(2, 3, 2, 3, 2, 3), perm=[5, 1, 3, 0, 4, 2])
    yield t(t.f(2, 3, 2, 3, 2, 3, 2, 3), perm=[5, 1, 3, 0, 7, 4, 2, 6])
    yield t(t.f(2, 1, 3, 1), perm=[3, 2, 1, 0])
    yield t(t.f(5))
    yield t(t.f(0, 3))
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 5, 7))


@slice_.cases
def slice_cases(t: Toolbox) -> Cases:
    x = t.f(5, 6, 7)
    far = 2**63 - 1
    for starts, ends, axes, steps in [
        ([1], [3], None, None),
        ([1, 2], [3, 5], [0, 2], None),
        ([-3], [-1], [1], None),
        ([0], [far], [1], [2]),
        ([-1], [-far - 1], [2], [-1]),
        ([4, 0], [1, 9], [0, -1], [-2, 3]),
        ([3], [1], [0], None),
        ([9], [20], [0], None),
        ([-20], [20], [-2], [4]),
        ([5], [0], [1], [-3]),
        ([0, 0, 0], [1, 1, 1], [2, 0, 1], [1, 1, 1]),
        ([2], [2**31 - 1], [1], [1]),
        ([-1], [-(2**31)], [0], [-4]),
    ]:
        yield t(x, starts, ends, axes, steps)
    yield t(x, opset=9, starts=[1, -4], ends=[3, 100], axes=[0, -1])
    yield t(x, opset=9, starts=[1, 2], ends=[3, 4])
    yield t(
        x, t.const(t.of("int32", [1])), t.const(t.of("int32", [4])), t.const(t.of("int32", [1]))
    )
    yield t(t.f(0, 3), [0], [2], [1])
    yield t(t.f(3, 0), [2], [0], [0], [-1])
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 9, 5), [7, 1], [1, 4], [0, 1], [-2, 1])


@tile.cases
def tile_cases(t: Toolbox) -> Cases:
    for x, repeats in [
        ((2, 3), [2, 3]),
        ((2, 3), [1, 1]),
        ((4,), [3]),
        ((1, 2, 3), [2, 1, 4]),
        ((2, 3), [0, 2]),
        ((0, 3), [2, 2]),
        ((), []),
        ((2, 1, 2), [2, 2, 2]),
    ]:
        yield t(t.f(*x), repeats)
    yield t(t.f(2, 3, 4, 5), [2, 3, 2, 3])
    yield t(t.f(2, 1, 3, 2, 2, 3), [2, 3, 2, 3, 2, 2])
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 2, 3), [2, 2])


@trilu.cases
def trilu_cases(t: Toolbox) -> Cases:
    for upper in (0, 1):
        yield t(t.f(4, 5), upper=upper)
        for k in (-9, -2, 0, 1, 3, 9):
            yield t(t.f(2, 4, 5), k, upper=upper)
    yield t(t.f(2, 3, 5, 4), -1)
    yield t(t.f(4, 1, 3))
    yield t(t.f(4, 3, 1), -1)
    yield t(t.f(0, 4))
    yield t(t.f(2, 3, 0))
    for dtype in ("float64", "float16", "bool", "int64", "uint8", "int32"):
        yield t(t.any(dtype, 3, 3))


@reverse_sequence.cases
def reverse_sequence_cases(t: Toolbox) -> Cases:
    for time in (0, 1):
        yield t(t.f(4, 4), t.of("int64", [4, 3, 2, 1]), time_axis=time, batch_axis=1 - time)
        yield t(
            t.f(5, 5, 2, 3), t.of("int64", [1, 5, 4, 1, 2]), time_axis=time, batch_axis=1 - time
        )
    yield t(t.f(6, 2), t.of("int64", [6, 3]))
    yield t(t.n("int64", 3, 4, 2), t.of("int64", [1, 2, 3, 3]), opset=10)
    yield t(
        t.f(0, 2),
        t.of("int64", [0, 0]),
        expect=[t.f(0, 2)],
        why="onnxruntime refuses what is empty",
    )

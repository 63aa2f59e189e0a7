"""Test cases of ops/contrib/embedding.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..embedding import embed, quantized

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@embed.cases
def embed_cases(t: Toolbox) -> Cases:
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


@quantized.cases
def quantized_cases(t: Toolbox) -> Cases:
    ids, segments = t.n("int32", 2, 5, low=0, high=19), t.n("int32", 2, 5, low=0, high=1)
    mask = t.of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    for dtype, masked, segmented in (
        ("uint8", True, True),
        ("int8", False, True),
        ("int8", True, False),
    ):
        low, high = (0, 255) if dtype == "uint8" else (-128, 127)
        shapes = ((20, 8), (9, 8), (2, 8), (8,), (8,))
        tables: list[Any] = [t.const(t.n(dtype, *s, low=low, high=high)) for s in shapes]
        scales: list[Any] = [0.01, 0.02, 0.03, 0.04, 0.05]
        zeros: list[Any] = [t.const(t.of(dtype, n)) for n in (3, 60, 100, 5, 9)]
        if not segmented:
            tables[2] = scales[2] = zeros[2] = None
        yield t(
            *(ids, segments if segmented else None, *tables, mask if masked else None),
            *(*scales, *zeros),
            outputs=2,
            tol=1e-4,
        )

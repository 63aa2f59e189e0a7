"""Test cases of ops/contrib/embedding.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..embedding import embed

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

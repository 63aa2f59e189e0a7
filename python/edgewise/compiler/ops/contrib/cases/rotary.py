"""Test cases of ops/contrib/rotary.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..rotary import multimodal_rotary

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@multimodal_rotary.cases
def multimodal_rotary_cases(t: Toolbox) -> Cases:
    for layout in (0, 1):
        for interleaved in (0, 1):
            for x in (t.f(2, 5, 36), t.f(2, 3, 5, 12)):
                yield t(
                    x,
                    t.n("int64", 3, 2, 5, low=0, high=19),
                    t.f(20, 6),
                    t.f(20, 6),
                    mrope_section=[2, 2, 2],
                    mrope_layout=layout,
                    interleaved=interleaved,
                    num_heads=3,
                    tol=1e-4,
                )

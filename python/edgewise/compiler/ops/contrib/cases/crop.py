"""Test cases of ops/contrib/crop.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..crop import crop_and_resize

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@crop_and_resize.cases
def crop_and_resize_cases(t: Toolbox) -> Cases:
    for size in ([4, 5], [1, 3]):
        for mode in ("bilinear", "nearest"):
            yield t(
                t.f(2, 3, 7, 9),
                t.of("float32", [[0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9], [-0.3, 0.2, 0.6, 1.4]]),
                t.of("int32", [0, 1, 0]),
                t.const(t.of("int32", size)),
                mode=mode,
                extrapolation_value=2.5,
                tol=1e-4,
            )

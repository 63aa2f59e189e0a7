"""Test cases of ops/image/grid_sample.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..grid_sample import grid_sample

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@grid_sample.cases
def grid_sample_cases(t: Toolbox) -> Cases:
    for opset, modes in (
        (16, ("bilinear", "nearest", "bicubic")),
        (20, ("linear", "nearest", "cubic")),
    ):
        for mode in modes:
            for padding in ("zeros", "border", "reflection"):
                for align in (0, 1):
                    only = (
                        {
                            "trust": "ort",
                            "why": (
                                "ONNX's reference moves coordinates to the border before it weighs,"
                                " PyTorch the elements"
                            ),
                        }
                        if (mode, padding) == ("cubic", "border")
                        else {}
                    )
                    yield t(
                        t.f(2, 3, 5, 6),
                        t.f(2, 4, 7, 2, low=-1.6, high=1.6),
                        mode=mode,
                        padding_mode=padding,
                        align_corners=align,
                        opset=opset,
                        tol=1e-4,
                        **only,
                    )
    for mode in ("linear", "nearest"):
        yield t(
            t.f(1, 2, 3, 4, 5),
            t.f(1, 2, 3, 4, 3, low=-1.3, high=1.3),
            mode=mode,
            opset=20,
            tol=1e-4,
        )

"""Test cases of ops/quantized/fake_quantization.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..fake_quantization import fake_quant

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@fake_quant.cases
def fake_quant_cases(t: Toolbox) -> Cases:
    x = t.of("float32", [[-3, 0.26, 0.2, 0.6], [1, 70, 63.7, 12.34]])
    yield t(
        x,
        0.25,
        4.0,
        outputs=2,
        expect=[
            t.of("float32", [[-1, 0.25, 0.25, 0.5], [1, 62.75, 62.75, 12.25]]),
            t.of("bool", [[False, True, True, True], [True, False, False, True]]),
        ],
        why="onnxruntime has it in training builds only",
    )

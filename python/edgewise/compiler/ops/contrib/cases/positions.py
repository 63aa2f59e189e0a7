"""Test cases of ops/contrib/positions.py, which onnxruntime runs on GPUs only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..positions import gated, relative

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

WHY = "onnxruntime has no kernel for the processor"
# Buckets of distances -20 to 20 by transformers' T5Attention, of 8 up to 10; many more are compared
# in tests/ops/test_positions.py.
BOTH = [3] * 16 + [2, 2, 2, 1, 0, 5] + [6, 6, 6] + [7] * 16
PAST = [7] * 13 + [6, 5, 4, 4, 3, 2, 1, 0]


@relative.cases
def relative_cases(t: Toolbox) -> Cases:
    for length in (1, 5, 12):
        for both in (0, 1):
            table = t.f(8, 3)
            rows = table.reshape(3, 8)  # as it lies in memory
            distances = [[k - q for k in range(length)] for q in range(length)]
            places = [
                [(BOTH[d + 20] if both else PAST[20 - abs(d)]) for d in row] for row in distances
            ]
            yield t(
                *(table, length, length),
                max_distance=10,
                is_bidirectional=both,
                expect=[rows[:, t.of("int64", places)][None]],
                why=WHY,
            )


@gated.cases
def gated_cases(t: Toolbox) -> Cases:
    for packed in (False, True):
        q, q_bias, rel_pos, w, b, eco = (
            *(t.f(2, 3, 8), t.f(8), t.f(1, 2, 3, 3)),
            *(t.f(4, 6), t.f(6), t.f(1, 2, 1, 1)),
        )
        heads = (q + q_bias).reshape(2, 3, 2, 4).transpose(0, 2, 1, 3)
        gates = (heads @ w + b).reshape(2, 2, 3, 2, 3).sum(-1)
        gates = 1 / (1 + 2.718281828459045 ** -gates.astype("float64"))
        u, r = gates[..., :1], gates[..., 1:]
        expected = ((u * (r * eco - 1) + 2) * rel_pos).astype("float32")
        inputs = [q, q_bias, rel_pos, t.const(w), t.const(b), eco]
        if packed:
            inputs[0] = q.reshape(6, 8)
            inputs.append(t.of("int32", [[0, 1, 2], [3, 4, 5]]))
        yield t(*inputs, num_heads=2, tol=1e-4, expect=[expected], why=WHY)

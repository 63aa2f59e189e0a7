"""Test cases of ops/contrib/varlen.py, which onnxruntime runs on GPUs only: by its definition, one
request and one token after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..varlen import convolution

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

WHY = "onnxruntime has no kernel for the processor"


@convolution.cases
def convolution_cases(t: Toolbox) -> Cases:
    for lengths, taps, dilation, activation, biased, slots in (
        ((3, 1, 4), 4, 1, "silu", True, 0),
        ((1, 1), 4, 1, "swish", False, 2),
        ((6,), 3, 2, "none", True, 4),
        ((2, 5), 2, 3, "silu", False, 8),
        ((2, 3), 1, 1, "none", True, 0),
    ):
        batch, tokens, kept = len(lengths), sum(lengths), (taps - 1) * dilation
        x, w, b = t.f(tokens, 5), t.f(5, 1, taps), t.f(5)
        state = t.f(batch, 5, kept)
        counts = [(i * 3 + 1) % 9 for i in range(batch)]
        ends, y, after, updates = [0], [], [], []
        for length, past, count in zip(lengths, state, counts):
            own = x[ends[-1] : ends[-1] + length]
            whole = [*past.T, *own]
            for i in range(length):
                v = sum(whole[i + j * dilation] * w[:, 0, j] for j in range(taps))
                v = v + b if biased else v
                y.append(v if activation == "none" else v / (1 + 2.718281828459045**-v))
            after.append(t.of("float32", whole[len(whole) - kept :]).reshape(kept, 5).T)
            taken = [*own[: min(count, slots)]]
            updates.append([*taken, *[[0.0] * 5] * (slots - len(taken))])
            ends.append(ends[-1] + length)
        expect = [t.of("float32", y), t.of("float32", after)]
        yield t(
            *(x, t.const(w), t.of("int32", ends), t.const(b) if biased else None, state),
            *([t.of("int32", counts)] if slots else []),
            outputs=3 if slots else 2,
            activation=activation,
            dilation=dilation,
            state_update_capacity=slots,
            tol=1e-4,
            expect=[*expect, t.of("float32", updates)] if slots else expect,
            why=WHY,
        )

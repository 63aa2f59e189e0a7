"""The test of a GPU before it is used: plans with a step of each kernel, on small odd shapes, whose
results are compared with the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE = 2e-4
"""Largest difference, as a part of the largest number: sums in another order, and the functions of
GPUs, differ by 1e-6, wrong results by far more.
"""

PERIOD = 65536
"""After so many, numbers repeat, and integers after PERIOD_OF_INTEGERS."""
PERIOD_OF_INTEGERS = 65521


@dataclass
class TestSlot:
    """A tensor of the plan.

    Attributes:
        name: of an operator, for results.
        kind: "numbers" (float32), "bytes", "ids" (int64), "zeros" (bytes), "result" (float32), or
            "temp": memory between steps.
        count: elements.
        limit: ids are below it.
    """

    name: str
    kind: str
    count: int
    limit: int


def numbers(slot: int, count: int) -> list[float]:
    """Float32 numbers from -1 to 1, other ones for each slot."""
    return [((i * 40503 + slot * 7919 + 17) % PERIOD) / 32768 - 1 for i in range(count)]


def integers(slot: int, count: int, limit: int) -> list[int]:
    """Integers from 0 to limit - 1, other ones for each slot."""
    return [(i * 40503 + slot * 7919 + 17) % PERIOD_OF_INTEGERS % limit for i in range(count)]


def difference(expected: Sequence[float], found: Sequence[float]) -> float:
    """The largest difference, as a part of the largest expected number. Infinite where a number is
    none.
    """
    largest = 0.0
    most = 0.0
    for i in range(len(expected)):
        apart = abs(expected[i] - found[i])
        if not apart <= 1e300:
            return float("inf")
        most = max(most, apart)
        largest = max(largest, abs(expected[i]))
    return most / max(largest, 1e-30)


def forms_of(
    shaders: Sequence[str], body: str, head: str, tail: str, takers: Sequence[str], chain: bool
) -> list[str]:
    """Names of what a dispatch runs that is tested before the first plan with it.

    Args:
        shaders: names of the shaders of its bodies.
        body: kernel of the steps that its first body runs.
        head, tail: kernels of the steps that it computes before and after them; "": none.
        takers: kernels of those that take results.
        chain: whether one workgroup runs one kind of steps after the other.
    """
    out = [f"shader {name}" for name in shaders]
    if head != "":
        out.append(f"{head} before {body}")
    if tail != "":
        out.append(f"{tail} after {body}")
    for kernel in takers:
        out.append(f"{kernel} of the results of {body}")
    if chain:
        out.append("a chain")
    return out


def wrong_of(slots: Sequence[TestSlot], differences: Sequence[float]) -> str | None:
    """What a GPU computes wrongly; None: nothing.

    Args:
        differences: of each slot; 0 for those that are no results.
    """
    wrong = [
        f"{slots[i].name} by {differences[i]:.2g}"
        for i in range(len(slots))
        if not differences[i] <= TOLERANCE
    ]
    return ", ".join(wrong) if wrong else None

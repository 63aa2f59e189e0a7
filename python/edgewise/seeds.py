"""Seeds of random numbers.

The random numbers of a plan run are determined by one int64 (core/kernels/random/random.c);
web/src/shared/seeds.ts computes the same seeds.
"""

from __future__ import annotations

import os

from .errors import InputError

MASK64 = (1 << 64) - 1


def seed_of_run(seed: int, run: int) -> int:
    """Seed of run number `run` (the finalizer of SplitMix64; Steele, Lea, Flood 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + run + 1) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return (z ^ (z >> 31)) & MASK64 >> 1


def random_seed() -> int:
    """An unpredictable seed."""
    return int.from_bytes(os.urandom(8), "little") >> 1


def check_seed(seed: object, where: str) -> int | None:
    """Checks a seed that a caller passed; None is allowed.

    Args:
        seed: an integer from 0 to 2^63 - 1, or None.
        where: name of the argument, for errors.

    Raises:
        InputError: it is neither.
    """
    if seed is None or type(seed) is int and 0 <= seed <= MASK64 >> 1:
        return seed
    raise InputError(
        f"{seed!r} is not a valid seed",
        where,
        "Pass an integer from 0 to 2^63 - 1, or None for new random numbers in each run.",
    )


class RunSeeds:
    """The seeds of one run of a model.

    Each execution of a plan that draws random numbers takes the next seed, so that the parts of a
    graph and the iterations of a loop draw different numbers, all determined by the run's seed.

    Args:
        seed: of the run; default: unpredictable.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = random_seed() if seed is None else seed
        self.taken = 0

    def next(self) -> int:
        """The next seed."""
        self.taken += 1
        return seed_of_run(self.seed, self.taken - 1)

"""Seeds of random numbers.

What the engine draws follows from one int64 per plan run (core/kernels/random/random.c);
web/src/shared/seeds.ts has the same.
"""

from __future__ import annotations

import os

from .errors import InputError

MASK64 = (1 << 64) - 1


def seed_of_run(seed: int, run: int) -> int:
    """The int64 that random numbers of run number `run` follow from (the finalizer of SplitMix64;
    Steele, Lea, Flood 2014).
    """
    z = (seed * 0x9E3779B97F4A7C15 + run + 1) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return (z ^ (z >> 31)) & MASK64 >> 1


def random_seed() -> int:
    """A seed that nobody can predict."""
    return int.from_bytes(os.urandom(8), "little") >> 1


def check_seed(seed: object, where: str) -> int | None:
    """A caller's seed, or None where there is none.

    Raises InputError unless it is an integer from 0 to 2^63 - 1.
    """
    if seed is None or type(seed) is int and 0 <= seed <= MASK64 >> 1:
        return seed
    raise InputError(
        f"{seed!r} is no seed",
        where,
        "Give an integer from 0 to 2^63 - 1, or None for other random numbers in each run.",
    )


class RunSeeds:
    """The seeds of one run of a model: each execution of a plan that draws random numbers takes the
    next one, so that parts of a graph and rounds of a loop draw different numbers and all of them
    follow from the run's seed.
    """

    def __init__(self, seed: int | None = None):
        self.seed = random_seed() if seed is None else seed
        self.taken = 0

    def next(self) -> int:
        """Seed number 0, 1, ... of this run."""
        self.taken += 1
        return seed_of_run(self.seed, self.taken - 1)

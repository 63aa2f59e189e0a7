"""Test cases of ops/contrib/ngrams.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ngrams import ngram_repeat_block

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@ngram_repeat_block.cases
def ngram_repeat_block_cases(t: Toolbox) -> Cases:
    for length in (1, 2, 9):
        for size in (1, 2, 3):
            yield t(t.n("int64", 3, length, low=0, high=3), t.f(3, 6), ngram_size=size)

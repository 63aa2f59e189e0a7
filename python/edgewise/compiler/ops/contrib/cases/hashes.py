"""Test cases of ops/contrib/hashes.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hashes import mapping

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@mapping.cases
def mapping_cases(t: Toolbox) -> Cases:
    for dtype, tokens, size, heads, past, offsets, eos, segments in (
        ("int64", 6, 3, 2, False, False, None, False),
        ("int64", 1, 3, 2, True, True, None, False),
        ("int32", 5, 4, 1, True, False, None, False),
        ("int64", 9, 3, 2, True, True, 1, False),
        ("int64", 9, 4, 1, False, False, 0, False),
        ("int64", 7, 3, 2, True, False, 1, True),
        ("int64", 7, 4, 1, False, False, None, True),
    ):
        count = (size - 1) * heads
        yield t(
            t.n(dtype, 2, tokens, low=0, high=4),
            t.of(dtype, [7919, 104729, 1299709, 15485863][:size]),
            t.n(dtype, count, low=11, high=97),
            t.n(dtype, 2, size - 1, low=0, high=4) if past else None,
            t.of(dtype, [100 * i for i in range(count)]) if offsets else None,
            t.of(dtype, 3) if eos is not None else None,
            *([t.of("int32", [[0] * 3 + [1] * (tokens - 4) + [0]] * 2)] if segments else []),
            outputs=2,
            pad_id=2,
            max_ngram_size=size,
            n_head_per_ngram=heads,
            reset_on_eos=eos or 0,
        )

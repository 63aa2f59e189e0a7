"""Caches of a sliding window, on both forms: what NumPy's slices of all rows have there."""

import random

import numpy as np
import pytest

from .forms import both, module

LONGEST = 128


@both
@pytest.mark.parametrize("size", [1, 2, 20, 128, 129, 130, 300])
def test_random_runs(form, size):
    """Each token finds the rows that it sees, after runs, cuts, and copies of states."""
    sliding, r = module(form, "generation.sliding"), random.Random(size)
    parts, row, rows = 2, 3, sliding.rows_of(size, LONGEST)
    capacity = rows + 10 * 128  # runs come to its end, often
    window = sliding.window_of({"size": size, "rows": rows}, capacity)
    cache = {"name": "k", "bytes": parts * rows * row, "rows": [parts, row], "sliding": True}
    assert rows <= size + 4 * 128
    whole = np.random.default_rng(0).integers(0, 256, (parts, capacity, row), np.uint8)
    data, past, dropped = np.zeros(parts * rows * row, np.uint8), 0, 0
    copies, ends = [(0, b"")], 0
    for _ in range(600):
        if past == capacity:
            ends, past = ends + 1, past - 1
        count = min(r.choice([1, 1, 16, LONGEST]), capacity - past)
        after = sliding.dropped_for(window, dropped, past, count)
        for at, to, n in sliding.shifts(cache, past - dropped, after - dropped, capacity):
            data[to : to + n] = data[at : at + n].copy()
        dropped = after
        assert dropped <= capacity - rows  # the maximum of its register
        held = data.reshape(parts, rows, row)
        held[:, past - dropped : past - dropped + count] = whole[:, past : past + count]
        past += count
        first = max(0, past - count - size + 1)  # that the first token of the run saw
        assert past - dropped <= rows and dropped <= sliding.first_seen(window, past - count)
        seen = held[:, first - dropped : past - dropped]
        assert dropped % 128 == 0 and np.array_equal(seen, whole[:, first:past])
        deed = r.random()
        if deed < 0.2:
            spans = sliding.spans(cache, window, capacity, past, dropped)
            copies.append((past, b"".join(bytes(data[at : at + n]) for at, n in spans)))
            assert len(copies[-1][1]) == sliding.marked_bytes([cache], window, past)
        elif deed < 0.4:
            cut = past - r.randrange(count + 1)  # of the last run, always
            assert dropped <= sliding.first_seen(window, cut)
            past = cut
        elif deed < 0.45:
            past, saved = r.choice(copies)
            dropped, done = sliding.first_seen(window, past), 0
            assert dropped <= capacity - rows
            data[:] = 0
            for at, n in sliding.spans(cache, window, capacity, past, dropped) if past else []:
                data[at : at + n] = np.frombuffer(saved[done : done + n], np.uint8)
                done += n
            assert done == len(saved)
    assert ends > 2


@both
def test_other_caches(form):
    """Those that grow have rows for all tokens, those of a fixed shape none."""
    sliding = module(form, "generation.sliding")
    grown = {"name": "k", "bytes": 2 * 20 * 3, "rows": [2, 3]}
    fixed = {"name": "s", "bytes": 7, "fixed": True}
    assert [sliding.rows_in(grown, room) for room in (5, 20)] == [5, 20]
    assert [sliding.marked(c) for c in (grown, fixed)] == [False, True]
    assert sliding.marked_bytes([grown, fixed], None, 12) == 7
    assert sliding.dropped_for(None, 0, 1000, 128) == sliding.first_seen(None, 1000) == 0

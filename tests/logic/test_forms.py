"""Both forms of modules agree, on random calls and through classes, records and functions."""

from __future__ import annotations

import random

import pytest

from .forms import both, module


@both
def test_classes_and_records(form):
    agreement = module(form, "speech.agreement")
    Word = agreement.Word
    one = agreement.Agreement()
    assert one.add([Word(0.0, 1.0, " a"), Word(1.0, 2.0, " b")]) == []
    assert one.add([Word(0.0, 1.0, " a"), Word(1.0, 2.5, " c")]) == [Word(0.0, 1.0, " a")]
    assert one.last == 1.0
    assert one.end() == [Word(1.0, 2.5, " c")]


@pytest.mark.parametrize("seed", range(3))
def test_time_warping(seed):
    r = random.Random(seed)
    cost = [[r.uniform(-1, 1) for _ in range(30)] for _ in range(12)]
    times = [module(form, "speech.alignment").token_times(cost) for form in ("python", "page")]
    assert times[0] == times[1]


@both
def test_errors_are_those_of_the_package(form):
    from edgewise.errors import InputError

    with pytest.raises(InputError, match="not a way of pooling. Use none, cls"):
        module(form, "post.embeddings").check_pooling("median")

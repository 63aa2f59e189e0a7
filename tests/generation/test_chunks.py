"""How prompts are divided into runs: the vectors of tests/conformance/chunks.json."""

import itertools

import pytest
from edgewise.errors import InputError
from edgewise.logic.generation.chunks import run_cost

from tests.conformance.vectors import vectors
from tests.logic.forms import both, module

VECTORS = vectors("chunks")


def lowest_cost(sizes, count):
    """The lowest cost of any multiset of runs that holds `count` tokens."""
    return min(
        sum(n * run_cost(size) for size, n in zip(sizes, numbers))
        for numbers in itertools.product(*(range(-(-count // size) + 1) for size in sizes))
        if sum(size * n for size, n in zip(sizes, numbers)) >= count
    )


def name(case):
    return f"{case['sizes']}-{case['past']}-{case['count']}"


@both
def test_costs(form):
    run_cost = module(form, "generation.chunks").run_cost
    assert [run_cost(tokens) for tokens, _ in VECTORS["costs"]] == [c for _, c in VECTORS["costs"]]


@both
@pytest.mark.parametrize("case", VECTORS["cases"], ids=name)
def test_runs(form, case):
    choose_run = module(form, "generation.chunks").choose_run
    left, runs = case["count"], []
    while left > 0:
        past = case["past"] + case["count"] - left
        runs.append(choose_run(case["sizes"], left, past, case["max_length"]))
        if runs[-1] is None:
            break
        left -= runs[-1]
    assert runs == case["runs"]


# Where the end of the caches excludes none of the sizes, and the prompt is not longer than the
# longest run, which is taken without a search.
SEARCHED = [
    c
    for c in VECTORS["cases"]
    if c["count"] <= c["sizes"][-1] <= c["max_length"] - c["past"] - c["count"]
]


@pytest.mark.parametrize("case", SEARCHED, ids=name)
def test_no_other_runs_cost_less(case):
    assert sum(map(run_cost, case["runs"])) == lowest_cost(case["sizes"], case["count"])


def shape(of, sizes, max_length=512, way="append"):
    return of.Shape(sizes, max_length, 100, way)


@both
@pytest.mark.parametrize("case", VECTORS["cases"], ids=name)
def test_ids_of_runs(form, case):
    """Each id is run once, in order, after those before it."""
    of = module(form, "generation.chunks")
    past, ids = case["past"], [i % 100 for i in range(case["count"])]
    plans = shape(of, case["sizes"], case["max_length"])
    if case["runs"][-1] is None or past + len(ids) > case["max_length"]:
        with pytest.raises(InputError, match="no run of the model fits|exceed"):
            of.runs_of(plans, ids, past, [])
        return
    runs = of.runs_of(plans, ids, past, [])
    assert [run.size for run in runs] == case["runs"]
    assert [i for run in runs for i in run.ids] == ids
    for run in runs:
        assert run.past == past and len(run.ids) <= run.size
        past += len(run.ids)


@both
def test_runs_without_caches_and_one_by_one(form):
    of = module(form, "generation.chunks")
    again = shape(of, [4, 8, 16], 16, "recompute")
    assert [tuple(r) for r in of.runs_of(again, [5, 6], 3, [1, 2, 3])] == [(8, [1, 2, 3, 5, 6], 0)]
    steps = shape(of, [1, 4], 16, "steps")
    assert [tuple(r) for r in of.runs_of(steps, [5, 6, 7], 0, [])] == [(4, [5, 6, 7], 0)]
    assert [tuple(r) for r in of.runs_of(steps, [5, 6], 3, [])] == [(1, [5], 3), (1, [6], 4)]


@both
@pytest.mark.parametrize(
    "ids, past, match",
    [
        ([], 0, "no token ids"),
        ([1] * 5, 12, "17 tokens exceed the model's maximum length, 16"),
        ([3, 100], 0, "token id 100 is outside the vocabulary of 100"),
        ([-1], 0, "token id -1 is outside"),
        ([1.5], 0, "token id 1.5 is outside"),
        ([1] * 9, 0, "no plan for 9 tokens"),
    ],
)
def test_ids_that_cannot_be_run(form, ids, past, match):
    of = module(form, "generation.chunks")
    with pytest.raises(InputError, match=match):
        of.runs_of(shape(of, [1, 8], 16, "steps"), ids, past, [])


@both
@pytest.mark.parametrize("length", [-1, 4, 1.5, None, True, "2"])
def test_lengths_to_which_a_sequence_cannot_be_cut(form, length):
    check_length = module(form, "generation.chunks").check_length
    for fine in (0, 3):
        check_length(fine, 3)
    with pytest.raises(InputError, match="not a valid length for a sequence of 3 tokens"):
        check_length(length, 3)


@both
def test_states_that_cannot_be_cut(form):
    """Where they hold other tokens, all tokens are run again; no run is padded."""
    of = module(form, "generation.chunks")
    plans = of.Shape([1, 4], 16, 100, "append", False, True)
    assert [tuple(r) for r in of.runs_of(plans, [7, 8], 3, [1, 2, 3])] == [(1, [7], 3), (1, [8], 4)]
    again = of.runs_of(plans, [7, 8], 3, [1, 2, 3], True)
    assert [tuple(r) for r in again] == [(4, [1, 2, 3, 7], 0), (1, [8], 4)]
    caches_alone = of.Shape([1, 4], 16, 100, "append")
    assert [tuple(r) for r in of.runs_of(caches_alone, [7], 3, [1, 2, 3], True)] == [(1, [7], 3)]


@both
def test_tokens_that_one_run_takes(form):
    """No run ends among tokens that belong together; runs of text after them are as ever."""
    of = module(form, "generation.chunks")

    def runs(spans, ids, past=0, padded=True):
        plans = of.Shape([1, 4, 8], 64, 100, "append", padded)
        spans = [of.Span(*one) for one in spans]
        return [
            (r.size, len(r.ids), r.past) for r in of.runs_of(plans, ids, past, [], False, spans)
        ]

    assert runs([(1, 7)], [5] * 8) == [(8, 8, 0)]
    assert runs([(5, 10)], [5] * 12) == [(8, 5, 0), (8, 7, 5)]
    assert runs([(2, 6), (6, 11)], [5] * 13) == [(8, 6, 0), (8, 7, 6)]
    assert runs([(0, 3)], [5] * 20) == [(8, 8, 0), (8, 8, 8), (4, 4, 16)]
    assert runs([(0, 3)], [5], 20) == [(1, 1, 20)]
    assert runs([(0, 5)], [5] * 5) == [(8, 5, 0)]
    with pytest.raises(InputError, match="9 tokens of the prompt see each other, and a run takes"):
        runs([(1, 10)], [5] * 12)
    with pytest.raises(InputError, match="5 tokens of the prompt see each other"):
        runs([(0, 5)], [5] * 5, padded=False)

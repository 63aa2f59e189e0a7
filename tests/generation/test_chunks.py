"""How prompts are divided into runs: the vectors of tests/conformance/chunks.json."""

import itertools

import pytest
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

"""What a training run on texts is: rows, end tokens, orders, numbers of updates and learning rates
(tests/conformance/training_data.json), in both forms.
"""

import pytest
from conformance.vectors import vectors
from edgewise.compiler.training.language_model import special_token
from edgewise.errors import InputError

from tests.logic.forms import both, module

from . import data_vectors

VECTORS = vectors("training_data")


def test_vectors_are_those_of_torch_and_transformers():
    assert data_vectors.FILE.read_text("utf-8") == data_vectors.text(data_vectors.compute())


@both
def test_permutations(form):
    permutation = module(form, "training.data").permutation
    for case in VECTORS["permutations"]:
        assert permutation(case["count"], int(case["seed"])) == case["order"]


@both
def test_rows(form):
    data = module(form, "training.data")
    for case in VECTORS["rows"]:
        made = data.token_rows(case["texts"], case["sequence"], case["end"], case["pad"])
        assert [ids for ids, _ in made] == case["ids"]
        assert [labels for _, labels in made] == case["labels"]
        count = sum(x != data.IGNORED for labels in case["labels"] for x in labels[1:])
        assert data.learned(made) == count
    for case in VECTORS["too_short"]:
        with pytest.raises(InputError, match="too few"):
            data.token_rows(case["texts"], 8, case["end"])


@both
def test_batches(form):
    data = module(form, "training.data")
    rows = data.token_rows([[1, 2, 3, 4, 5]], 4, None, 9)
    ids, labels = data.batch_of(rows[1:], 2, 9)
    assert ids == [4, 5, 9, 9, 9, 9, 9, 9]
    assert labels == [4, 5, -100, -100, -100, -100, -100, -100]
    assert data.learned(rows[1:]) == 1


@both
def test_splits(form):
    split_rows = module(form, "training.data").split_rows
    for case in VECTORS["splits"]:
        rows = [([i], [i]) for i in range(case["count"])]
        parts = split_rows(rows, case["share"], int(case["seed"]))
        assert [[ids[0] for ids, _ in part] for part in parts] == case["parts"]
    with pytest.raises(InputError, match="too few"):
        split_rows([([0], [0])], 0.5, 0)
    with pytest.raises(InputError, match="1.5 is not between"):
        split_rows([([0], [0])] * 3, 1.5, 0)


@both
def test_updates(form):
    data = module(form, "training.data")
    for case in VECTORS["runs"]:
        order = data.Order(case["rows"], case["batch"], int(case["seed"]))
        updates = data.Updates(order.batches, case["accumulation"])
        got = []
        for step in range(updates.total(case["epochs"], case["max_steps"])):
            epoch, first = updates.place(step)
            got.append([order.chosen(i, epoch) for i in range(first, updates.end(first))])
        assert got == case["updates"]
    # batches of 4, 4 and 2 rows, updates of 2 and 1
    order = data.Order(10, 4, 0)
    assert [order.chosen(i) for i in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    passes = [data.Updates(order.batches, 2).epochs(step) for step in range(4)]
    assert passes == [0, 2 / 3, 1, 1 + 2 / 3]


@both
def test_schedules(form):
    factor = module(form, "training.schedules").factor
    for case in VECTORS["schedules"]:
        got = [
            factor(case["schedule"], step, case["total"], case["warmup"])
            for step in range(case["total"])
        ]
        assert got == pytest.approx(case["factors"], rel=1e-15, abs=1e-16)


def test_special_tokens():
    """The first file that has the field counts, and the first id of a list, as in transformers."""
    assert special_token("eos_token_id", {"eos_token_id": [3, 4]}, {"eos_token_id": 5}) == 3
    assert special_token("eos_token_id", {"eos_token_id": None}, {"eos_token_id": 5}) == 5
    assert special_token("eos_token_id", {}, []) is None

"""What a training run on texts is: rows, end tokens, orders, numbers of updates and learning rates
(tests/conformance/training_data.json, which web/test/training/training.test.ts reads too).
"""

import pytest
from conformance.vectors import vectors
from edgewise.compiler.training.language_model import special_token
from edgewise.errors import InputError
from edgewise.host.training.data import (
    TokenRows,
    permutation,
    split_rows,
    token_rows,
    total_updates,
    updates_per_epoch,
)

from tests.logic.forms import both, module

from . import data_vectors

VECTORS = vectors("training_data")


def test_vectors_are_those_of_torch_and_transformers():
    assert data_vectors.FILE.read_text("utf-8") == data_vectors.text(data_vectors.compute())


def test_permutations():
    for case in VECTORS["permutations"]:
        assert permutation(case["count"], int(case["seed"])) == case["order"]


def test_rows():
    for case in VECTORS["rows"]:
        made = token_rows(case["texts"], case["sequence"], case["end"], case["pad"])
        assert [ids for ids, _ in made] == case["ids"]
        assert [labels for _, labels in made] == case["labels"]
    for case in VECTORS["too_short"]:
        with pytest.raises(InputError, match="too few"):
            token_rows(case["texts"], 8, case["end"])


def test_splits():
    for case in VECTORS["splits"]:
        rows = [([i], [i]) for i in range(case["count"])]
        parts = split_rows(rows, case["share"], int(case["seed"]))
        assert [[ids[0] for ids, _ in part] for part in parts] == case["parts"]
    with pytest.raises(InputError, match="too few"):
        split_rows([([0], [0])], 0.5, 0)
    with pytest.raises(InputError, match="between"):
        split_rows([([0], [0])] * 3, 1.5, 0)


def test_updates():
    for case in VECTORS["runs"]:
        rows = TokenRows([([i], [i]) for i in range(case["rows"])], case["batch"], 11)
        per_epoch = updates_per_epoch(len(rows), case["accumulation"])
        total = total_updates(per_epoch, case["epochs"], case["max_steps"])
        got = []
        for update in range(total):
            epoch, part = divmod(update, per_epoch)
            first = part * case["accumulation"]
            batches = range(first, min(first + case["accumulation"], len(rows)))
            got.append([list(rows.chosen(i, epoch)) for i in batches])
        assert got == case["updates"]


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

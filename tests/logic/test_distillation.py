"""What a teacher says of records, on both forms: at the places of the logits that PyTorch's shifted
loss compares with the learned tokens.
"""

import math

import pytest
from edgewise.errors import InputError

from .forms import both, module


@both
def test_lists_stand_before_their_tokens(form):
    chat = module(form, "training.chat")
    taught = module(form, "training.distillation")
    example = chat.Example([5, 6, 7, 8, 9], [False, False, True, True, True])
    lists = [[[1, -0.5], [2, -1.5], [3, -2.5]], [[4, -0.25]]]  # without that of the end token
    made = taught.told({"teacher": lists}, example, 6, 2, 10, "x")
    assert list(made.ids) == [-1, -1, 1, 2, 4, -1, -1, -1, -1, -1, -1, -1]
    assert made.log_probs[2:5] == [-0.5, -1.5, -0.25]
    assert all(x <= -1e30 for i, x in enumerate(made.log_probs) if i not in (2, 3, 4))
    cut = taught.told({"teacher": lists}, example, 2, 1, 10, "x")
    assert list(cut.ids) == [-1, 1]
    both_rows = taught.of_batch([cut], 2)
    assert list(both_rows.ids) == [-1, 1, -1, -1] and len(both_rows.log_probs) == 4
    first = chat.Example([5, 6], [True, True])  # the first token of a row is not predicted
    assert list(taught.told({"teacher": [[[3, 0.0]]]}, first, 2, 1, 10, "x").ids) == [3, -1]
    for given, error in (
        (None, "x: teacher is"),
        ([[[1, 0.0]]], "x: teacher has 1 lists for 3 tokens"),
        ([[[1, 0.0]], 5], "x, teacher 2: it is 5"),
        ([[[1, 0.0]], [[1]]], "x, teacher 2: it has"),
        ([[[1, 0.0]], [["a", 0.0]]], "x, teacher 2: it has"),
        ([[[1, 0.0]], [[1, 1e31]]], "x, teacher 2: a log-probability is 1e[+]31"),
        ([[[1, math.inf]], []], "x, teacher 1: a log-probability is"),
        ([[[1, math.nan]], []], "x, teacher 1: a log-probability is"),
        ([[[1, 0.0]], [[10, 0.0]]], "token id 10 is outside the vocabulary of 10"),
    ):
        with pytest.raises(InputError, match=error):
            taught.told({} if given is None else {"teacher": given}, example, 6, 2, 10, "x")


@both
def test_records_are_a_list(form):
    taught = module(form, "training.distillation")
    assert len(taught.taught([{"text": "a"}], "x")) == 1
    for given in (None, 5, "a", {"text": "a"}, [], ["a"]):
        with pytest.raises(InputError, match="x: they are no records with a teacher's part"):
            taught.taught(given, "x")
    with pytest.raises(InputError, match="x, record 2: .* is not a record"):
        taught.taught([{"text": "a"}, "b"], "x")


def test_integers_beyond_float64():
    """JSON has them, and Python reads them."""
    example = module("python", "training.chat").Example([5, 6], [False, True])
    for score, words in ((10**400, "x, teacher 1: a log-prob"), (10**5000, "too large to write")):
        with pytest.raises(InputError, match=words):
            told = module("python", "training.distillation").told
            told({"teacher": [[[1, score]]]}, example, 2, 1, 10, "x")
    low = told({"teacher": [[[1, -(10**400)]]]}, example, 2, 1, 10, "x")
    assert low.log_probs == [-1e30, -1e30]

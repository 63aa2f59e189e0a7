"""The word error rate on both forms, beside jiwer (make_word_errors.py)."""

import json
from pathlib import Path

import edgewise
import pytest
from edgewise.errors import InputError

from .forms import both, module

CASES = json.loads(Path(__file__).with_name("word_errors.json").read_text())


@both
def test_rates_are_those_of_jiwer(form):
    rate = module(form, "speech.word_errors").word_error_rate
    for references, predictions, expected in CASES:
        assert rate(references, predictions) == pytest.approx(expected, abs=1e-12)


@both
def test_texts_that_do_not_fit(form):
    rate = module(form, "speech.word_errors").word_error_rate
    bad = (
        ((["a"], ["a", "b"]), "predictions: there are 1 references and 2 predictions"),
        (([], []), "references: there are no texts"),
        ((["a", "b"], ["a", None]), "predictions[1]: "),
    )
    for given, words in bad:
        with pytest.raises(InputError) as error:
            rate(*given)
        assert str(error.value).startswith(words)


def test_it_is_public():
    assert edgewise.word_error_rate("to be or not", "to bee or") == 0.5

"""How documents are ranked, in both forms: scores by transformers are in tests/pipelines."""

import math

import pytest
from edgewise.errors import InputError
from edgewise.logic.tasks.inputs import Values
from edgewise.logic.tasks.ranking import Answers, Ranking
from edgewise.logic.text.encoding import EncodeOptions, Encoding

from .forms import both, module

PLAIN = EncodeOptions("longest_first", None)


@both
def test_scores(form):
    """The score is the label's own, or the difference of two tokens of the last position."""
    score = module(form, "tasks.ranking")._score
    one = Ranking(None, False, True, PLAIN, "", None)
    assert score(Values([1, 1], [2.0]), 9, one) == pytest.approx(1 / (1 + math.exp(-2)))
    raw = Ranking(None, False, False, PLAIN, "", None)
    assert score(Values([1, 1], [2.0]), 9, raw) == 2.0
    yes_no = Ranking(None, False, False, PLAIN, "", Answers(2, 0))
    three = [1.0, 0.0, 4.0, 7.0, 0.0, 9.0, 5.0, 0.0, 5.5]
    assert score(Values([1, 3, 3], three), 2, yes_no) == 2.0  # one token is padding
    assert score(Values([1, 1, 3], three[:3]), 2, yes_no) == 3.0
    yes = Ranking(None, False, False, PLAIN, "", Answers(1, None))
    assert score(Values([1, 1, 3], three[:3]), 2, yes) == 0.0
    with pytest.raises(InputError, match="has 3 tokens, and its answer is the token 7"):
        score(Values([1, 1, 3], three[:3]), 2, Ranking(1, False, True, PLAIN, "", Answers(7, 0)))
    for dims in ([1, 2], [1, 2, 1]):
        with pytest.raises(InputError, match="Ranking needs a model with one score"):
            score(Values(dims, [0.0, 1.0]), 2, one)


@both
def test_files_name_the_function(form):
    """As CrossEncoder.get_default_activation_fn: the newest place of the three counts."""
    function = module(form, "tasks.ranking")._function
    identity = "torch.nn.modules.linear.Identity"
    assert function({}, {}) == "sigmoid"
    assert function({"sbert_ce_default_activation_function": identity}, {}) == "none"
    former = {"sentence_transformers": {"activation_fn": identity, "version": "4.1"}}
    assert function(former, {}) == "none"
    sigmoid = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    assert function(former, sigmoid) == "sigmoid"
    assert function({"sentence_transformers": {"version": "3"}}, {}) == "sigmoid"


def test_order_is_that_of_sorted():
    """Of equal scores the first document is first, as Python's sort is stable."""
    from edgewise.logic.tasks.ranking import rank
    from edgewise.logic.tasks.texts import TextModel

    class Words:
        def encodings(self, text, pair, options):
            return [Encoding([1, 2], [0, 0], [0, 0])]

    model = TextModel("text-ranking", {}, Words())
    steps = rank(model, "q", ["a", "b", "c", "d"], Ranking(3, True, False, PLAIN, "", None))
    next(steps)
    found = None
    try:
        for x in (1.0, 3.0, 3.0, 2.0):
            steps.send([Values([1, 1], [x])])
    except StopIteration as end:
        found = end.value
    assert [(one["corpus_id"], one["text"]) for one in found] == [(1, "b"), (2, "c"), (3, "d")]

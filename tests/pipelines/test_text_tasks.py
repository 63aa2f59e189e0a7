"""Text tasks give the results of transformers' pipelines on the same models."""

import edgewise
import pytest
from edgewise.errors import InputError

from .tiny import TEXTS

transformers = pytest.importorskip("transformers")

KINDS = ("bert", "roberta")
LONG = " ".join(TEXTS * 2)


def pair(tiny_model, task, kind, head, **config):
    """(our pipeline, transformers')"""
    folder = tiny_model(kind, head, **config)
    theirs = transformers.pipeline(task, model=str(folder), device="cpu")
    return edgewise.pipeline(task, folder), theirs


def same(ours, theirs):
    """Compares results: numbers to 5e-5, all else exactly."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict) and list(ours) == list(theirs) or set(ours) == set(theirs)
        for name in theirs:
            same(ours[name], theirs[name])
    elif isinstance(theirs, (list, tuple)):
        assert isinstance(ours, list) and len(ours) == len(theirs), (ours, theirs)
        for one, other in zip(ours, theirs):
            same(one, other)
    elif isinstance(theirs, str) or theirs is None:
        assert ours == theirs
    else:
        # of these models of random weights, PyTorch's own logits are up to 7e-6 of the largest away
        # from those in float64
        assert ours == pytest.approx(float(theirs), rel=5e-5, abs=3e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_text_classification(tiny_model, kind):
    ours, theirs = pair(tiny_model, "text-classification", kind, "sequence")
    both = {"text": TEXTS[0], "text_pair": TEXTS[1]}
    for given in (TEXTS[0], TEXTS, both, [both, TEXTS[2]]):
        same(ours(given), theirs(given))
        for options in (
            {"top_k": None},
            {"top_k": 2},
            {"top_k": 1},
            {"function_to_apply": "sigmoid"},
            {"function_to_apply": "none", "top_k": None},
            {"return_all_scores": True},
        ):
            same(ours(given, **options), theirs(given, **options))
    same(list(ours(iter(TEXTS))), list(theirs(t for t in TEXTS)))
    assert ours(TEXTS, batch_size=2) == ours(TEXTS)
    same(ours(LONG), theirs(LONG, truncation=True))
    short = {"truncation": True, "max_length": 8}
    same(ours(LONG, **short), theirs(LONG, **short))
    everything = edgewise.pipeline("sentiment-analysis", tiny_model(kind, "sequence"), top_k=None)
    same(everything("a"), transformers.pipeline("text-classification", top_k=None,
         model=str(tiny_model(kind, "sequence")), device="cpu")("a"))  # fmt: skip


@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_problem_types(tiny_model, problem):
    ours, theirs = pair(tiny_model, "text-classification", "bert", "sequence", problem_type=problem)
    same(ours(TEXTS, top_k=None), theirs(TEXTS, top_k=None))


@pytest.mark.parametrize("kind", KINDS)
def test_zero_shot_classification(tiny_model, kind):
    ours, theirs = pair(tiny_model, "zero-shot-classification", kind, "sequence")
    labels = ["urgent", "phone", "computer"]
    for given in (TEXTS[2], TEXTS):
        for options in ({}, {"multi_label": True}, {"hypothesis_template": "It is about {}!"}):
            same(ours(given, labels, **options), theirs(given, labels, **options))
    same(ours(TEXTS[0], "one"), theirs(TEXTS[0], "one"))
    same(ours(TEXTS[0], "a, b"), theirs(TEXTS[0], "a, b"))
    same(ours(LONG, labels), theirs(LONG, labels))  # of the pair, only the text is cut


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
def test_token_classification(tiny_model, kind):
    ours, theirs = pair(tiny_model, "token-classification", kind, "tokens")
    for strategy in ("none", "simple", "first", "average", "max"):
        for options in ({}, {"ignore_labels": []}, {"ignore_labels": ["O", "PER", "B-PER"]}):
            options = {"aggregation_strategy": strategy, **options}
            same(ours(TEXTS, **options), theirs(TEXTS, **options))
            same(ours(TEXTS[1], **options), theirs(TEXTS[1], **options))
    for strategy in ("simple", "first", "max"):
        options = {"aggregation_strategy": strategy, "ignore_labels": []}
        same(ours(LONG, **options), theirs(LONG, **options))
        same(ours(LONG, stride=9, **options), theirs(LONG, stride=9, **options))
    words = TEXTS[1].split()
    options = {"is_split_into_words": True, "aggregation_strategy": "simple"}
    same(ours(words, **options), theirs(words, **options))
    same(ours([words, words[:3]], **options), theirs([words, words[:3]], **options))
    same(ours("Zürich 漢字 ☃ x", ignore_labels=[]), theirs("Zürich 漢字 ☃ x", ignore_labels=[]))


@pytest.mark.parametrize("kind", KINDS)
def test_fill_mask(tiny_model, kind):
    ours, theirs = pair(tiny_model, "fill-mask", kind, "mask")
    mask = ours.tokenizer.mask_token
    one, two = f"The quick {mask} fox.", f"The {mask} brown {mask}."
    for given in (one, two, [one, two]):
        same(ours(given), theirs(given))
        same(ours(given, top_k=2), theirs(given, top_k=2))
    same(ours(one, targets=["the", "in"]), theirs(one, targets=["the", "in"]))
    with pytest.raises(InputError, match="in the text"):
        ours("nothing is masked")


@pytest.mark.parametrize("kind", KINDS)
def test_question_answering(tiny_model, kind):
    ours, theirs = pair(tiny_model, "question-answering", kind, "questions")
    question, context = "Where did she live?", TEXTS[1]

    def compare(context, **options):
        same(
            ours(question, context, **options),
            theirs(question=question, context=context, **options),
        )

    for options in (
        {},
        {"top_k": 3},
        {"max_answer_len": 2},
        {"align_to_words": False, "top_k": 3},
        {"handle_impossible_answer": True, "top_k": 2},
    ):
        compare(context, **options)
        compare(LONG, max_seq_len=48, doc_stride=10, **options)
    compare(LONG)
    several = [{"question": question, "context": c} for c in TEXTS]
    same(ours(several), theirs(several))
    same(ours([question, "Who?"], context), theirs(question=[question, "Who?"], context=context))
    for wrong in ({"question": "a"}, {"question": "", "context": "b"}, 3):
        with pytest.raises(InputError):
            ours(wrong)

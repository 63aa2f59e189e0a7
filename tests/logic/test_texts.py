"""Post-processing of text tasks gives the results of transformers: tests/conformance."""

import itertools
from dataclasses import asdict

import pytest
from edgewise.errors import InputError, ModelError
from edgewise.logic.tasks.lengths import PlanSize

from tests.conformance.vectors import vectors

from .forms import both, module

CASES = vectors("text_tasks")


def close(ours, theirs):
    """Compares numbers to float32's precision, all else exactly."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for name in theirs:
            close(ours[name], theirs[name])
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            close(one, other)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-7)
    else:
        assert ours == theirs


def joined(words):
    """How make_text_tasks.py makes text of tokens."""
    return " ".join(words).replace(" ##", "")


@pytest.mark.slow("test_classification")  # imports alone take 6 s of a processor
def test_cases_are_those_of_transformers():
    pytest.importorskip("transformers")
    from tests.pipelines.make_text_tasks import all_cases

    found = all_cases()
    assert found.keys() == CASES.keys() - {"about"}
    for name, cases in found.items():
        close(cases, CASES[name])


@both
def test_embeddings(form):
    embeddings = module(form, "post.embeddings")
    for case in CASES["embeddings"]:
        vector = embeddings.pool(case["states"], case["size"], case["mask"], case["pooling"])
        close(vector, case["pooled"])
        short = embeddings.shortened(vector, case["dimensions"])
        close(embeddings.normalized(short), case["normalized"])
        for precision in ("binary", "ubinary"):
            assert embeddings.packed(vector, precision) == case[precision]


@both
def test_poolings(form):
    recipe = module(form, "text.recipe")
    for case in CASES["poolings"]:
        assert recipe.poolings_of(case["config"]) == case["poolings"]


@both
def test_recipes(form):
    recipe = module(form, "text.recipe")
    for case in vectors("personal/recipes")["cases"]:
        files = case["files"]
        given = files.get("modules.json"), "model/modules.json", lambda n, f=files: f.get(n) or {}
        if "error" in case:
            with pytest.raises(ModelError, match=case["error"]):
                recipe.recipe_of(*given)
        else:
            assert asdict(recipe.recipe_of(*given)) == case["recipe"]


@both
def test_classification(form):
    classification = module(form, "post.classification")
    for case in CASES["classification"]:
        logits = case["logits"]
        function = case["function"] or classification.function_for(
            case["problem_type"], len(logits)
        )
        labels = {str(i): f"label {i}" for i in range(len(logits))}
        scores = classification.scores_of(logits, function)
        close(classification.best(scores, labels, case["top_k"]), case["result"])


@both
def test_zero_shot(form):
    classification = module(form, "post.classification")
    for case in CASES["zero_shot"]:
        entailment = classification.entailment_of(case["label2id"])
        found = classification.zero_shot(
            case["logits"], case["labels"], entailment, case["multi_label"]
        )
        close(list(found), case["result"])


@both
def test_fill_mask(form):
    classification = module(form, "post.classification")
    for case in CASES["fill_mask"]:
        found = classification.fill_mask(case["logits"], case["top_k"], case["targets"])
        close([list(f) for f in found], case["result"])


@both
def test_entities(form):
    classification = module(form, "post.classification")
    tokens = module(form, "post.tokens")
    for case in CASES["entities"]:
        text, prefix = case["text"], case["prefix"]
        scored = []
        for i, (t, logits) in enumerate(zip(case["tokens"], case["logits"])):
            start, end, unknown = t["start"], t["end"], t["unknown"]
            word = text[start:end] if unknown else t["token"]
            inside = not unknown and tokens.is_subword(text, word, start, end, prefix)
            scores = classification.softmax(logits)
            scored.append(tokens.Scored(word, scores, start, end, i, inside))
        labels = {str(i): label for i, label in enumerate(case["labels"])}
        found = tokens.entities_of(scored, labels, case["strategy"], case["ignored"], joined)
        close(found, case["result"])


@both
def test_answers(form):
    questions = module(form, "post.questions")
    for case in CASES["answers"]:
        candidates, null = [], questions.NO_SCORE
        top_k = case["top_k"] * 2 + 10 if case["align"] else case["top_k"]
        for part in case["parts"]:
            spans, score = questions.spans_of(
                part["start"], part["end"], part["allowed"], top_k, case["max_answer_len"]
            )
            null = min(null, score)
            for first, last, s in spans:
                begin, end = questions.answer_chars(
                    part["offsets"], part["words"], part["sequences"], (first, last), case["align"]
                )
                candidates.append((begin, end, s))
        found = questions.merge_answers(
            candidates, case["context"], case["top_k"], null if case["impossible"] else None
        )
        close(found, case["result"])


@both
def test_refusals(form):
    embeddings = module(form, "post.embeddings")
    assert embeddings.check_pooling("first_token") == "cls"
    with pytest.raises(InputError, match="not a way of pooling. Use none, cls"):
        embeddings.check_pooling("median")
    with pytest.raises(InputError, match="2 is not between 1 and 1"):
        embeddings.shortened([1.0], 2)
    with pytest.raises(InputError, match="multiple of 8"):
        embeddings.packed([1.0], "binary")


@both
def test_characters_are_those_of_the_host(form):
    """Positions in texts count code points in Python, and units of UTF-16 in pages."""
    questions, tokens = module(form, "post.questions"), module(form, "post.tokens")
    at = 2 if form == "python" else 3  # of "b" in the text
    found = questions.merge_answers([(at, at + 1, 0.5)], "\U0001f600 b c", 1, None)
    assert [a["answer"] for a in found] == ["b"]
    assert not tokens.is_subword("\U0001f600 b", "b", at, at + 1, False)
    assert tokens.is_subword("\U0001f600ab", "b", at, at + 1, False)


@both
def test_models_without_labels(form):
    """Damaged models have none: scores are empty, or an error says so."""
    classification, tokens = module(form, "post.classification"), module(form, "post.tokens")
    assert classification.softmax([]) == []
    token = tokens.Scored("a", [], 0, 1, 0, False)
    with pytest.raises(InputError, match="no labels"):
        tokens.entities_of([token], {}, "simple", [], "".join)


@both
def test_sizes_that_plans_take(form):
    """The smallest of all sizes that the plans take, from the number of tokens on."""
    lengths = module(form, "tasks.lengths")
    plans = [
        ([16], [[2, 9]]),
        ([1, 0], [[2, 9]]),
        ([3, -1], [[2, 9]]),
        ([2, 1, 1], [[1, 1], [20, 24]]),
    ]
    sizes = [PlanSize(dim, registers) for dim, registers in plans]
    for some in itertools.product((False, True), repeat=4):
        taken = set()
        for (dim, registers), used in zip(plans, some):
            if used and len(dim) == 1:
                taken.add(dim[0])
            elif used:
                low, high = registers[dim[2] if len(dim) > 2 else 0]
                taken |= {dim[0] * at + dim[1] for at in range(low, high + 1)}
        chosen = [size for size, used in zip(sizes, some) if used]
        for least in range(1, 60):
            expected = min((n for n in taken if n >= least), default=least)
            assert lengths.fitting_size(chosen, least) == expected
    ruled = PlanSize([1, 0, 1], [[2, 9], [0, 0, 0, 2, 0, 0, 1]])
    assert lengths.fitting_size([ruled, sizes[0]], 5) == 16

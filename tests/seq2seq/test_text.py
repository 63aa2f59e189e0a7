"""T5, Marian and BART against transformers, on tiny random models (make.py)."""

import json
from pathlib import Path

import pytest
from edgewise.errors import InputError
from edgewise.host.session.seq2seq import Seq2SeqModel
from edgewise.pipelines import pipeline
from edgewise.text import generate

HERE = Path(__file__).parent / "models"
MODELS = {"t5": "t5", "marian": "marian", "marian_separate": "marian", "bart": "bart"}
INPUTS = [[5, 9, 17, 33, 2, 90, 1], [4, 4, 8], list(range(3, 37))]


@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_those_of_transformers(name):
    cases = json.loads((HERE / f"{MODELS[name]}.json").read_text())
    model = Seq2SeqModel(str(HERE / name))
    sources = [model.encode(ids) for ids in INPUTS]
    for what, case in cases.items():
        for source, wanted in zip(sources, case["sequences"]):
            assert generate(source, model.start_ids(), **case["options"]) == [wanted], (what, name)
    model.free()


class Ids:
    """In place of a tokenizer."""

    config = {"additional_special_tokens": []}

    def encode(self, text, **_):
        return [int(x) for x in text.split()]

    def decode(self, ids, **_):
        return " ".join(map(str, ids))


def test_pipelines():
    model = Seq2SeqModel(str(HERE / "t5"))
    text = " ".join(map(str, INPUTS[0]))
    for task, name in (
        ("text2text-generation", "generated_text"),
        ("summarization", "summary_text"),
        ("translation", "translation_text"),
    ):
        pipe = pipeline(task, model, Ids(), max_new_tokens=6)
        (one,) = pipe(text)
        assert set(one) == {name} and pipe([text, text]) == [one, one]
        assert len(pipe(text, num_beams=3, num_return_sequences=2)) == 2
    with pytest.raises(InputError, match="tokens"):
        pipeline("text2text-generation", model, Ids())("7 " * 99)
    assert pipeline("summarization", model, Ids())("7 " * 99)
    with pytest.raises(InputError, match="language"):
        pipe(text, tgt_lang="xx")
    model.free()

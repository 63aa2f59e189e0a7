"""image-to-text and document-question-answering against transformers, from pixels to text, on tiny
random models (make_pictures.py).
"""

import json
from pathlib import Path

import pytest

pytest.importorskip("PIL.Image")
pytest.importorskip("tokenizers")

from edgewise.errors import InputError  # noqa: E402
from edgewise.pipelines import pipeline  # noqa: E402

from .pictures import PICTURES, QUESTION, writing  # noqa: E402

HERE = Path(__file__).parent / "models"
NAMES = [
    pytest.param("trocr", marks=pytest.mark.family("TrOCR", exporter="optimum")),
    pytest.param("vit_gpt2", marks=pytest.mark.family("ViT-GPT2", exporter="optimum")),
    pytest.param("donut", marks=pytest.mark.family("Donut", exporter="optimum")),
]


def expected(name):
    return json.loads((HERE / f"{name}.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_those_of_transformers(name):
    with pipeline("image-to-text", HERE / name) as read:
        for case in expected(name)["cases"].values():
            for i, size in enumerate(PICTURES):
                found = read(writing(*size, i), **case["options"])
                assert [one["generated_text"] for one in found] == case["texts"][i]
        both = [writing(*size, i) for i, size in enumerate(PICTURES[:2])]
        assert read(both) == [read(one) for one in both]


@pytest.mark.family("Donut", exporter="optimum")
def test_answers_are_those_of_transformers():
    with pipeline("document-question-answering", HERE / "donut") as ask:
        written = []
        decode = ask.tokenizer.decode

        def kept(ids, **options):
            written.append(decode(ids, **options))
            return written[-1]

        ask.tokenizer.decode = kept
        for i, size in enumerate(PICTURES):
            assert ask(writing(*size, i), QUESTION, max_new_tokens=12) == [{"answer": None}]
        assert written == expected("donut")["answers"]
        image = writing(*PICTURES[0], 0)
        given = {"image": image, "question": QUESTION}
        ask.tokenizer.decode = lambda ids, **_: "<s_docvqa> x<s_answer> 42 </s_answer></s><pad>"
        assert ask(given) == ask(image, question=QUESTION) == [{"answer": "42"}]
        assert ask([given, given]) == [[{"answer": "42"}]] * 2
        for bad in (image, {"image": image}, {"question": "x"}):
            with pytest.raises(InputError, match="question"):
                ask(bad)


@pytest.mark.family("Florence-2", exporter="torch")
def test_places():
    wanted = expected("florence2")
    with pipeline("image-to-text", HERE / "florence2") as look:
        look.tokenizer.config["x"] = 1
        texts = []
        decode = look.tokenizer.decode

        def kept(ids, **options):
            texts.append(decode(ids, **options))
            return texts[-1]

        look.tokenizer.decode = kept
        for i, size in enumerate(PICTURES):
            found = look(writing(*size, i), prompt=wanted["prompt"], max_new_tokens=20)
            assert texts[-1] == wanted["texts"][i]
            assert found == [{"generated_text": _plain(wanted["texts"][i])}]
        look.tokenizer.decode = lambda ids, **_: "</s><s>cat<loc_0><loc_0><loc_500><loc_999></s>"
        found = look(writing(40, 50, 0), prompt="<OD>", max_new_tokens=4)
        text = "cat<loc_0><loc_0><loc_500><loc_999>"
        result = {"<OD>": {"bboxes": [[0, 0, 25, 39]], "labels": ["cat"]}}
        assert found == [{"generated_text": text, "result": result}]
        with pytest.raises(InputError, match="alone"):
            look(writing(40, 50, 0), prompt="<OD> cat")
        with pytest.raises(InputError, match="no text"):
            look(writing(40, 50, 0), prompt=3)


def _plain(text):
    for mark in ("<s>", "</s>", "<pad>"):
        text = text.replace(mark, "")
    return text.strip()


def test_prompts_begin_the_text():
    """Of models whose encoder hears none."""
    with pipeline("image-to-text", HERE / "donut") as read:
        image = writing(32, 32, 1)
        (found,) = read(image, prompt="w9 w10", max_new_tokens=3)
        assert found["generated_text"].startswith("w9 w10")
        with pytest.raises(InputError, match="picture"):
            read(b"no picture")
        with pytest.raises(InputError, match="wings"):
            read(image, wings=2)
        assert read(image)[0]["generated_text"]


def test_models_of_other_tasks():
    with pytest.raises(InputError, match=r"vision_encoder.onnx or encoder_model.onnx"):
        pipeline("image-to-text", HERE.parents[1] / "zoo" / "models")
    with pytest.raises(InputError, match=r"preprocessor_config.json"):
        pipeline("image-to-text", HERE / "t5", tokenizer=object())

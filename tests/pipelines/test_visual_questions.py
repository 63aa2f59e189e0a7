"""visual-question-answering with ViLT against transformers, on a tiny random model."""

import json

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("PIL.Image")

from edgewise.errors import InputError  # noqa: E402
from edgewise.pipelines import pipeline  # noqa: E402

from tests.seq2seq.pictures import tokenizer, writing  # noqa: E402

from .exporting import export  # noqa: E402

ANSWERS = ["yes", "no", "two", "a cat"]
QUESTION = "w12 w30 w9"


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """As make_vilt."""
    return make_vilt(tmp_path_factory.mktemp("vilt"))


def make_vilt(folder):
    """Writes a model to a folder; (folder, pictures of several sizes, what transformers answers)"""
    torch.manual_seed(3)
    config = transformers.ViltConfig(
        vocab_size=90,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=32,
        patch_size=8,
        max_image_length=-1,
        initializer_range=0.5,
        id2label=dict(enumerate(ANSWERS)),
        label2id={name: i for i, name in enumerate(ANSWERS)},
    )
    model = transformers.ViltForQuestionAnswering(config).eval()
    processor = transformers.ViltImageProcessor(size={"shortest_edge": 32}, size_divisor=8)
    words = tokenizer()
    pictures = [writing(40, 64, 0), writing(80, 48, 1), writing(33, 33, 2)]
    with pytest.MonkeyPatch.context() as patch:
        # The order of patches is drawn; attention does not depend on it.
        patch.setattr(torch, "multinomial", lambda of, count, **_: torch.arange(count))
        given = [_inputs(processor, words, one) for one in pictures]
        wanted = [model(**one).logits.sigmoid()[0].tolist() for one in given]
        example = {name: given[0][name] for name in given[0]}
        axes = {n: {0: "batch", 1: "length"} for n in example if "pixel" not in n}
        axes["pixel_values"] = {2: "height", 3: "width"}
        axes["pixel_mask"] = {1: "height", 2: "width"}
        export(model, example, ["logits"], axes, folder / "onnx" / "model.onnx")
    words.save_pretrained(folder)
    processor.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    return folder, pictures, wanted


def _inputs(processor, words, image):
    text = words(QUESTION, return_tensors="pt", return_token_type_ids=True)
    return {**text, **processor(image, return_tensors="pt")}


@pytest.mark.family("ViLT", exporter="torch")
def test_answers_are_those_of_transformers(asked):
    folder, pictures, wanted = asked
    with pipeline("visual-question-answering", folder) as ask:
        for image, scores in zip(pictures, wanted, strict=True):
            found = ask(image, QUESTION, top_k=3)
            order = sorted(range(4), key=lambda i: -scores[i])[:3]
            assert [one["answer"] for one in found] == [ANSWERS[i] for i in order]
            close = pytest.approx([scores[i] for i in order], abs=1e-5)
            assert [one["score"] for one in found] == close
        both = ask(pictures, QUESTION)
        assert both == [ask(one, question=QUESTION) for one in pictures]
        assert ask([{"image": pictures[0], "question": QUESTION}]) == both[:1]
        assert len(ask(pictures, [QUESTION, "w9"])) == 6


def test_bad_input(asked):
    folder, pictures, _ = asked
    with pipeline("visual-question-answering", folder) as ask:
        for given in (pictures[0], {"question": "x"}, {"image": pictures[0], "question": ""}):
            with pytest.raises(InputError, match="question"):
                ask(given)
        with pytest.raises(InputError, match="top_k"):
            ask(pictures[0], QUESTION, top_k=0)

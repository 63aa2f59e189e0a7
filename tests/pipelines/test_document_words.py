"""document-question-answering with LayoutLM against transformers' pipeline, on tiny models."""

import json

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("PIL.Image")

from edgewise.errors import InputError  # noqa: E402
from edgewise.pipelines import pipeline  # noqa: E402

from .exporting import export  # noqa: E402
from .tiny import tokenizer_of  # noqa: E402

WORDS = "Invoice no. 4711 of two cats, total: 12 EUR , paid in (May) by a very large dog".split()
QUESTION = "What is  the total?"


def page(count=1):
    """Words with boxes, in thousandths."""
    rng = np.random.default_rng(2)
    words = WORDS * count
    lows = rng.integers(0, 900, (len(words), 2))
    sizes = rng.integers(1, 100, (len(words), 2))
    return [
        (w, [*map(int, low), *map(int, low + size)]) for w, low, size in zip(words, lows, sizes)
    ]


@pytest.fixture(scope="module", params=["bert", "roberta"])
def models(request, tmp_path_factory):
    """(folder, transformers' pipeline)"""
    from tokenizers import pre_tokenizers

    torch.manual_seed(1)
    tokenizer = tokenizer_of(request.param)
    if request.param == "roberta":  # as published models of LayoutLM that answer questions
        spaced = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.backend_tokenizer.pre_tokenizer = spaced
        tokenizer.add_prefix_space = True
    config = transformers.LayoutLMConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.4,
    )
    model = transformers.LayoutLMForQuestionAnswering(config).eval()
    folder = tmp_path_factory.mktemp(request.param)
    ids = torch.ones(1, 7, dtype=torch.int64)
    inputs = {
        "input_ids": ids,
        "bbox": torch.ones(1, 7, 4, dtype=torch.int64),
        "attention_mask": ids,
        "token_type_ids": ids * 0,
    }
    axes = {name: {0: "batch", 1: "length"} for name in inputs}
    path = folder / "onnx" / "model.onnx"
    export(model, inputs, ["start_logits", "end_logits"], axes, path)
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    theirs = transformers.pipeline(
        "document-question-answering", model=model.eval(), tokenizer=tokenizer, device="cpu"
    )
    return folder, theirs


OPTIONS = [
    {},
    {"top_k": 4},
    {"top_k": 3, "max_answer_len": 2},
    {"top_k": 3, "handle_impossible_answer": True},
    {"top_k": 5, "max_seq_len": 40, "doc_stride": 8},
]


@pytest.mark.family("LayoutLM", exporter="torch")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("count", [1, 4])
def test_answers_are_those_of_transformers(models, options, count):
    """Also of pages that do not fit into one run."""
    folder, theirs = models
    given = {"question": QUESTION, "word_boxes": page(count)}
    wanted = theirs(given, **options)
    with pipeline("document-question-answering", folder) as ask:
        found = ask(given, **options)
        assert found == ask(question=QUESTION, word_boxes=page(count), **options)
        assert ask([given, given], **options) == [found, found]
    assert len(found) == len(wanted) > 0
    for one, other in zip(found, wanted):
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)
        assert {n: one[n] for n in ("answer", "start", "end")} == {
            n: other[n] for n in ("answer", "start", "end")
        }


def test_words_of_a_picture(models):
    """A line's words share its width by their characters."""
    folder, _ = models
    box = [(10, 20), (210, 20), (210, 40), (10, 40)]
    lines = [{"text": "total: 12 EUR", "score": 1.0, "box": box}]
    picture = np.zeros((100, 400, 3), np.uint8)
    across = [25, 25 + 500 * 6 / 13, 25 + 500 * 7 / 13, 25 + 500 * 9 / 13, 25 + 500 * 10 / 13, 525]
    sides = [int(x + 1e-6) for x in across]
    boxes = [[sides[i], 200, sides[i + 1], 400] for i in (0, 2, 4)]
    with pipeline("document-question-answering", folder) as ask:
        found = ask(picture, QUESTION, ocr=lambda image: lines)
        assert found == ask(None, QUESTION, word_boxes=list(zip(["total:", "12", "EUR"], boxes)))


def test_bad_input(models):
    folder, _ = models
    with pipeline("document-question-answering", folder) as ask:
        for given, says in (
            ({"question": QUESTION}, "no words"),
            ({"question": " ", "word_boxes": page()}, "question is no text"),
            ({"question": QUESTION, "word_boxes": 5}, "word_boxes: it is 5. Give a list"),
            ({"question": QUESTION, "word_boxes": {"a": [0, 0, 1, 2]}}, "it has 'a'"),
            ({"question": QUESTION, "word_boxes": [("a", [0, 0, 1])]}, "it has"),
            ({"question": QUESTION, "word_boxes": [("a", [0, 0, 1, 2000])]}, "0 to 1000"),
            ({"question": QUESTION, "word_boxes": [("", [0, 0, 1, 2])]}, "has no words"),
        ):
            with pytest.raises(InputError, match=says):
                ask(given)
        with pytest.raises(InputError, match="top_k"):
            ask({"question": QUESTION, "word_boxes": page()}, top_k=0)
        assert len(ask({"question": QUESTION, "word_boxes": page()})) == 1

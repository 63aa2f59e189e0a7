"""image-to-text and document-question-answering in a page: tiny models whose texts transformers
made (tests/seq2seq/make_pictures.py).
"""

import json
from pathlib import Path

import pytest
from edgewise.cli import main

from tests.seq2seq.pictures import PICTURES, QUESTION, writing

MODELS = Path(__file__).parents[2] / "seq2seq" / "models"
URLS = [f"/files/writing/{i}.png" for i in range(len(PICTURES))]


def expected(name):
    return json.loads((MODELS / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def folder(files):
    """Packages of the models, and pictures."""
    target = files / "writing"
    target.mkdir()
    for i, size in enumerate(PICTURES):
        writing(*size, i).save(target / f"{i}.png")
    for name in ("trocr", "vit_gpt2", "donut", "florence2"):
        task = "document-question-answering" if name == "donut" else "image-to-text"
        folder = str(MODELS / name)
        main(["build", "--task", task, folder, "-o", str(target / f"{name}.edge")])
    return target


@pytest.fixture
def page(visit, server, folder):
    return visit(server)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("trocr", marks=pytest.mark.family("TrOCR", exporter="optimum")),
        pytest.param("vit_gpt2", marks=pytest.mark.family("ViT-GPT2", exporter="optimum")),
    ],
)
def test_texts_are_those_of_transformers(page, folder, name):
    cases = list(expected(name)["cases"].values())
    found = page.run(
        """
            const [name, urls, cases] = arg;
            const p = await ew.pipeline("image-to-text", `/files/writing/${name}.edge`);
            const texts = [];
            for (const options of cases) {
              const made = await p(urls, options);
              texts.push(made.map((each) => each.map((r) => r.generated_text)));
            }
            let streamed = "";
            const streamer = (piece) => { streamed += piece; };
            const [one] = await p(urls[0], { streamer });
            const errors = [];
            for (const given of [["/files/writing/none.png", {}], [urls[0], { prompt: 3 }]])
              errors.push(await p(...given).then(() => "", (e) => e.message));
            await p.dispose();
            return { texts, streamed, one, errors };
        """,
        [name, URLS, [case["options"] for case in cases]],
    )
    assert "error" not in found, found
    assert found["texts"] == [case["texts"] for case in cases]
    assert found["streamed"] == found["one"]["generated_text"] == cases[0]["texts"][0][0]
    assert "none.png" in found["errors"][0] and "no text" in found["errors"][1]


@pytest.mark.family("Donut", exporter="optimum")
def test_answers(page, folder):
    """With the tokens of transformers; this random model writes no </s_answer>."""
    found = page.run(
        """
            const [urls, question] = arg;
            const task = "document-question-answering";
            const p = await ew.pipeline(task, "/files/writing/donut.edge");
            const written = [];
            for (const url of urls) {
              let text = "";
              const streamer = (piece) => { text += piece; };
              const answer = await p(url, question, { max_new_tokens: 12, streamer });
              written.push([text, answer]);
            }
            const none = await p(urls[0], "").then(() => "", (e) => e.message);
            await p.dispose();
            return { written, none };
        """,
        [URLS, QUESTION],
    )
    assert "error" not in found, found
    prompt = 5 + len(QUESTION.split())
    for (text, answer), whole in zip(found["written"], expected("donut")["answers"], strict=True):
        words = [w for w in whole.split()[prompt - 1 :] if w.startswith("w")]
        assert text.split() == words
        assert answer == [{"answer": None}]
    assert "question is no text" in found["none"]


@pytest.mark.family("Florence-2", exporter="torch")
def test_places(page, folder):
    wanted = expected("florence2")
    found = page.run(
        """
            const [urls, prompt] = arg;
            const p = await ew.pipeline("image-to-text", "/files/writing/florence2.edge");
            const options = { prompt, max_new_tokens: 20 };
            const texts = await p(urls, options);
            const boxes = await p(urls[0], { prompt: "<OD>", max_new_tokens: 4 });
            const alone = await p(urls[0], { prompt: "<OD> x" }).then(() => "", (e) => e.message);
            await p.dispose();
            return { texts, boxes, alone };
        """,
        [URLS, wanted["prompt"]],
    )
    assert "error" not in found, found
    plain = [text.replace("<s>", "").replace("</s>", "").strip() for text in wanted["texts"]]
    assert found["texts"] == [[{"generated_text": text}] for text in plain]
    assert set(found["boxes"][0]["result"]["<OD>"]) == {"bboxes", "labels"}
    assert "alone" in found["alone"]

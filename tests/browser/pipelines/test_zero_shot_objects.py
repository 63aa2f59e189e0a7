"""Objects by any labels in a page: the same as in Python, whose results
tests/pipelines/test_zero_shot_objects.py compares with transformers.
"""

import pytest

Image = pytest.importorskip("PIL.Image")

import torch  # noqa: E402
from edgewise import pipeline  # noqa: E402
from edgewise.cli import main  # noqa: E402

from tests.pipelines import tiny_prompts  # noqa: E402
from tests.pipelines.test_mask_generation import pictures  # noqa: E402
from tests.pipelines.test_zero_shot_objects import LABELS, LIMITS, TEXTS  # noqa: E402


@pytest.fixture(scope="module")
def folder(files):
    """The folder with pictures, models and packages."""
    torch.set_num_threads(1)
    made = files / "objects"
    made.mkdir()
    for name, image in zip("abc", pictures()):
        image.save(made / f"{name}.png")
    for kind in ("owlvit", "owlv2"):
        tiny_prompts.make_owl(made / kind, kind)
        package = str(made / f"{kind}.edge")
        main(["build", "--task", "zero-shot-object-detection", str(made / kind), "-o", package])
    tiny_prompts.make_grounded(made / "grounded")
    return made


@pytest.mark.parametrize("kind", ["owlvit", "owlv2"])
def test_objects(visit, server, folder, kind):
    found = visit(server).run(
        """
            const p = await ew.pipeline("zero-shot-object-detection", arg.model);
            const names = ["a", "b", "c"].map((name) => `/files/objects/${name}.png`);
            const all = [];
            for (const name of names) all.push(await p(name, arg.labels, { threshold: 0.2 }));
            const several = await p(names, arg.labels, { threshold: 0.2, top_k: 2 });
            const words = [];
            for (const bad of [[], ["x ".repeat(90)]])
              words.push(await p(names[0], bad).then(() => "", (e) => e.message));
            await p.dispose();
            return [all, several, words];
        """,
        {"model": f"/files/objects/{kind}.edge", "labels": LABELS},
    )
    assert "error" not in found, found
    all_found, several, words = found
    pipe = pipeline("zero-shot-object-detection", folder / kind)
    for name, one, two in zip("abc", all_found, several):
        expected = pipe(Image.open(folder / f"{name}.png"), LABELS, threshold=0.2)
        assert [x["label"] for x in one] == [x["label"] for x in expected]
        for a, b in zip(one, expected):
            assert a["score"] == pytest.approx(b["score"], abs=1e-4)
            assert all(abs(a["box"][side] - at) <= 1 for side, at in b["box"].items())
        assert two == one[:2]
    assert any(all_found)
    assert "no labels" in words[0] and "tokens" in words[1]


@pytest.mark.family("Grounding DINO", exporter="torch")
def test_phrases(visit, server, folder):
    """Compiled by the page."""
    found = visit(server).run(
        """
            const p = await ew.pipeline("zero-shot-object-detection", "/files/objects/grounded/");
            const made = [];
            for (const labels of arg.texts)
              made.push(await p("/files/objects/a.png", labels, arg.options));
            const words = [];
            for (const bad of [["a.b", "c"], Array(300).fill("word")])
              words.push(await p("/files/objects/a.png", bad).then(() => "", (e) => e.message));
            await p.dispose();
            return [made, words];
        """,
        {"texts": TEXTS, "options": LIMITS},
    )
    assert "error" not in found, found
    made, words = found
    pipe = pipeline("zero-shot-object-detection", folder / "grounded")
    for labels, objects in zip(TEXTS, made):
        expected = pipe(Image.open(folder / "a.png"), labels, **LIMITS)
        assert [x["label"] for x in objects] == [x["label"] for x in expected]
        for a, b in zip(objects, expected):
            assert a["score"] == pytest.approx(b["score"], abs=1e-4)
            assert all(abs(a["box"][side] - at) <= 1 for side, at in b["box"].items())
    assert "dot" in words[0] and "the model takes 64" in words[1]

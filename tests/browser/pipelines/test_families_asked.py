"""Families of vision-language models in a page, from pixels to tokens, beside transformers."""

import shutil

import pytest
from edgewise.cli import main

from tests.multimodal import both_ways, tiled
from tests.multimodal.asking import answered, messages, pictures

MODELS = {**both_ways.MODELS, **tiled.MODELS}
ASK = """
    const p = await ew.pipeline("image-text-to-text", arg.model, arg.options);
    const found = [];
    for (const count of arg.counts) {
      const parts = Array.from({ length: count }, (_, i) => ({
        type: "image", image: `/files/families/${i}.png`,
      }));
      const text = { type: "text", text: "what is in this picture ?" };
      const chat = [{ role: "user", content: [...parts, text] }];
      const [one] = await p(chat, { max_new_tokens: 8, do_sample: false, return_tensors: true });
      found.push(one.generated_token_ids);
    }
    await p.dispose();
    return found;
"""
COUNTS = (1, 3)


@pytest.fixture(scope="module")
def folder(files):
    """The folder of the models, with pictures."""
    target = files / "families"
    target.mkdir()
    for i, picture in enumerate(pictures(max(COUNTS))):
        picture.save(target / f"{i}.png")
    return target


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("gemma3", marks=pytest.mark.family("Gemma 3 with pictures", exporter="torch")),
        pytest.param("paligemma", marks=pytest.mark.family("PaliGemma", exporter="torch")),
        pytest.param("onevision", marks=pytest.mark.family("LLaVA-OneVision", exporter="torch")),
        pytest.param("llava-next", marks=pytest.mark.family("LLaVA-NeXT", exporter="torch")),
        "janus-parts",
        pytest.param("janus", marks=pytest.mark.family("Janus", exporter="torch")),
        pytest.param(
            "granite-docling", marks=pytest.mark.family("Granite-Docling", exporter="torch")
        ),
    ],
)
def test_answers_are_those_of_transformers(visit, server, folder, tmp_path, name):
    """From a package, and from a folder that the page compiles."""
    model = MODELS[name](tmp_path / name)
    wanted = [answered(model, messages(n), pictures(n), 8) for n in COUNTS]
    shutil.copytree(model.root, folder / name)
    package = folder / f"{name}.edge"
    main(["build", "--task", "image-text-to-text", str(model.root), "-o", str(package)])
    page = visit(server)
    for path, options in ((f"{name}.edge", {}), (f"{name}/", {"dtype": "fp32"})):
        given = {"model": f"/files/families/{path}", "options": options, "counts": COUNTS}
        assert page.run(ASK, given) == wanted

"""Families of vision-language models in a page, from pixels to tokens, beside transformers."""

import shutil

import edgewise
import pytest
from edgewise.cli import main

from tests.multimodal import both_ways, tiled, tiny
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


@pytest.mark.family("SmolVLM", exporter="torch")
def test_frames_of_a_video(visit, server, folder, tmp_path):
    """The tokens are those of Python, which a test compares with transformers."""
    model = tiny.MODELS["smolvlm"](tmp_path / "smolvlm")
    template = model.root / "chat_template.jinja"
    template.write_text(
        template.read_text().replace("'image'", "'video'").replace("image>", "video>")
    )
    shutil.copytree(model.root, folder / "smolvlm")
    question = {"type": "text", "text": "what is in this picture ?"}
    part = {"type": "video", "video": pictures(3), "fps": 0.01}
    with edgewise.pipeline("image-text-to-text", model.root) as made:
        options = {"max_new_tokens": 8, "do_sample": False, "return_tensors": True}
        [wanted] = made([{"role": "user", "content": [part, question]}], **options)
    found = visit(server).run(
        """
            const p = await ew.pipeline("image-text-to-text", arg, { dtype: "fp32" });
            const text = { type: "text", text: "what is in this picture ?" };
            const ask = (part) => p(
              [{ role: "user", content: [{ type: "video", ...part }, text] }],
              { max_new_tokens: 8, do_sample: false, return_tensors: true },
            );
            const video = [0, 1, 2].map((i) => `/files/families/${i}.png`);
            const [one] = await ask({ video, fps: 0.01 });
            const errors = [];
            for (const part of [{}, { video: [] }, { video, fps: -1 }])
              errors.push(await ask(part).then(() => "", (e) => `${e.name}: ${e.message}`));
            await p.dispose();
            return { ids: one.generated_token_ids, errors,
              same: one.input_text[0].content[0].video[1] === video[1] };
        """,
        "/files/families/smolvlm/",
    )
    assert "error" not in found, found
    assert found["ids"] == wanted["generated_token_ids"]
    assert found["same"]
    words = ["a video is not a list", "a video is not a list", "frames per second"]
    for error, of in zip(found["errors"], words, strict=True):
        assert error.startswith("InputError") and of in error

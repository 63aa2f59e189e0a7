"""image-text-to-text in a page with encoders of pictures of any size, beside transformers."""

import json
import shutil

import edgewise
import pytest
from edgewise.compiler.task_package import compile_task
from edgewise.host.session.open import folder_files

from tests.multimodal.any_size import MODELS
from tests.multimodal.asking import QUESTION, answered, messages, pictures
from tests.multimodal.kept import unpacked

ASK = """
    const p = await ew.pipeline("image-text-to-text", arg.model, { dtype: "fp32" });
    const greedy = { max_new_tokens: 10, do_sample: false, return_tensors: true };
    const part = (i) => ({ type: "image", image: `/files/any_size/${i}.png` });
    const text = { type: "text", text: "what is in this picture ?" };
    const ask = async (content) => {
      const [one] = await p([{ role: "user", content }], greedy);
      return one.generated_token_ids;
    };
    const found = [];
    for (const of of arg.asked) found.push(await ask([...of.map(part), text]));
    const { origin } = p.info;
    await p.dispose();
    return { found, origin };
"""
ASKED = [[], [0], [0, 1], [1, 0], [0, 1, 2], [1]]


@pytest.fixture(scope="module")
def models(files, tmp_path_factory):
    """{name: a tiny model}, whose folder is among the files, with pictures."""
    target = files / "any_size"
    target.mkdir()
    for i, picture in enumerate(pictures(3)):
        picture.save(target / f"{i}.png")
    made = {}

    def make(name):
        if name not in made:
            made[name] = MODELS[name](tmp_path_factory.mktemp("any_size") / name)
            shutil.copytree(made[name].root, target / name)
        return made[name]

    return make


@pytest.fixture
def page(visit, server, models):
    return visit(server)


def wanted(model, asked):
    images = pictures(3)
    return [answered(model, messages(len(of)), [images[i] for i in of], 10) for of in asked]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("qwen2-vl", marks=pytest.mark.family("Qwen2-VL", exporter="torch")),
        pytest.param("qwen2.5-vl", marks=pytest.mark.family("Qwen2.5-VL", exporter="torch")),
        pytest.param("qwen3-vl", marks=pytest.mark.family("Qwen3-VL", exporter="torch")),
        pytest.param("pixtral", marks=pytest.mark.family("Pixtral", exporter="torch")),
        pytest.param("mistral3", marks=pytest.mark.family("Mistral 3", exporter="torch")),
        pytest.param("lfm2-vl", marks=pytest.mark.family("LFM2-VL", exporter="torch")),
    ],
)
def test_tokens_are_those_of_transformers(page, models, name):
    model = models(name)
    found = page.run(ASK, {"model": f"/files/any_size/{name}/", "asked": ASKED})
    assert "error" not in found, found
    expected = wanted(model, ASKED)
    assert found == {"found": expected, "origin": "compiled"}
    assert len({tuple(ids[-10:]) for ids in expected}) > 1


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("qwen3_5", marks=pytest.mark.family("Qwen3.5-VL", exporter="torch")),
        pytest.param("lighton_ocr", marks=pytest.mark.family("LightOnOCR", exporter="torch")),
        pytest.param("glm_ocr", marks=pytest.mark.family("GLM-OCR", exporter="torch")),
        pytest.param("fastvlm", marks=pytest.mark.family("FastVLM", exporter="torch")),
    ],
)
def test_answers_that_are_kept(page, files, name):
    """Scripts of tests/multimodal (make_*.py) write them with transformers 5."""
    expected = unpacked(name, files / f"any_size/{name}")
    found = page.run(ASK, {"model": f"/files/any_size/{name}/", "asked": expected["asked"]})
    assert "error" not in found, found
    assert found["found"] == expected["answers"]


@pytest.mark.parametrize("name", ["qwen3_5", "glm_ocr"])
def test_videos_with_times(page, files, name):
    """make_videos.py of tests/multimodal writes the answers with transformers 5."""
    root = files / f"any_size/{name} of videos"
    unpacked(name, root)
    kept = json.loads((root / "videos.json").read_text())
    (root / "chat_template.jinja").write_text(kept["template"])
    (root / "video_preprocessor_config.json").write_text(json.dumps({"size": kept["limits"]}))
    for i, frame in enumerate(pictures(7)):
        frame.resize((96, 64)).save(files / f"any_size/small{i}.png")
    cases = kept["cases"][:3]
    found = page.run(
        """
            const p = await ew.pipeline("image-text-to-text", arg.model, { dtype: "fp32" });
            const text = { type: "text", text: "what is in this picture ?" };
            const found = [];
            for (const [count, fps] of arg.cases) {
              const url = (_, i) => `/files/any_size/small${i}.png`;
              const video = Array.from({ length: count }, url);
              const part = { type: "video", video, ...(fps ? { fps } : {}) };
              const [one] = await p(
                [{ role: "user", content: [part, text] }],
                { max_new_tokens: 10, do_sample: false, return_tensors: true },
              );
              found.push(one.generated_token_ids);
            }
            await p.dispose();
            return found;
        """,
        {"model": f"/files/any_size/{name} of videos/", "cases": cases},
    )
    assert found == kept["answers"][:3]


def test_frames_that_are_seen_together(page, files, models):
    """The tokens are those of Python, which a test compares with transformers."""
    root = files / "any_size/watching"
    shutil.copytree(models("qwen2.5-vl").root, root)
    template = root / "chat_template.jinja"
    text = template.read_text().replace("'image'", "'video'")
    template.write_text(text.replace("image_pad", "video_pad"))
    frames = [one.resize((90, 40)) for one in pictures(3)]
    for i, frame in enumerate(frames):
        frame.save(files / f"any_size/frame{i}.png")
    part = {"type": "video", "video": frames, "fps": 1}
    with edgewise.pipeline("image-text-to-text", root) as made:
        options = {"max_new_tokens": 10, "do_sample": False, "return_tensors": True}
        [wanted] = made([{"role": "user", "content": [part, QUESTION]}], **options)
    found = page.run(
        """
            const p = await ew.pipeline("image-text-to-text", arg, { dtype: "fp32" });
            const text = { type: "text", text: "what is in this picture ?" };
            const ask = (video) => p(
              [{ role: "user", content: [{ type: "video", video, fps: 1 }, text] }],
              { max_new_tokens: 10, do_sample: false, return_tensors: true },
            );
            const [one] = await ask([0, 1, 2].map((i) => `/files/any_size/frame${i}.png`));
            const other = ["/files/any_size/frame0.png", "/files/any_size/1.png"];
            const error = await ask(other).then(() => "", (e) => `${e.name}: ${e.message}`);
            await p.dispose();
            return { ids: one.generated_token_ids, error };
        """,
        "/files/any_size/watching/",
    )
    assert found["ids"] == wanted["generated_token_ids"]
    assert "InputError" in found["error"] and "frames of 40 x 90 and 30 x 20" in found["error"]


def test_plans_are_kept_for_the_next_visit(visit, server, models):
    """Those of the sizes that were seen, without Python; another size starts it."""
    name = "qwen2.5-vl"
    model = models(name)
    given = {"model": f"/files/any_size/{name}/", "asked": [[0]]}
    assert visit(server).run(ASK, given)["found"] == wanted(model, [[0]])
    found = visit(server).run(ASK, {**given, "asked": [[0], [1], [0, 1]]})
    assert "error" not in found, found
    assert found == {"found": wanted(model, [[0], [1], [0, 1]]), "origin": "cache"}


def test_files_that_the_user_chose(page, models):
    name = "pixtral"
    model = models(name)
    names = [str(f.relative_to(model.root)) for f in model.root.rglob("*") if f.is_file()]
    script = """
        const files = [];
        for (const name of arg.names) {
          const blob = await (await fetch(`${arg.model}${name}`)).blob();
          const file = new File([blob], name.split("/").at(-1));
          Object.defineProperty(file, "webkitRelativePath", { value: `model/${name}` });
          files.push(file);
        }
        arg.model = files;
    """
    given = {"model": f"/files/any_size/{name}/", "names": names, "asked": [[0, 1]]}
    found = page.run(script + ASK, given)
    assert "error" not in found, found
    assert found["found"] == wanted(model, [[0, 1]])


def test_turns_of_a_conversation_and_bad_pictures(page, models):
    name = "qwen2.5-vl"
    model = models(name)
    found = page.run(
        """
            const p = await ew.pipeline("image-text-to-text", arg, { dtype: "fp32" });
            const greedy = { max_new_tokens: 10, do_sample: false };
            const image = (i) => ({ type: "image", image: `/files/any_size/${i}.png` });
            const text = { type: "text", text: "what is in this picture ?" };
            const [first] = await p([{ role: "user", content: [image(0), text] }], greedy);
            const chat = [...first.generated_text, { role: "user", content: [image(1), text] }];
            const [second] = await p(chat, { ...greedy, return_tensors: true });
            const long = new ImageData(2100, 10);
            const errors = [];
            for (const picture of [await createImageBitmap(long), new Blob(["no picture"])]) {
              const content = [{ type: "image", image: picture }, text];
              errors.push(await p([{ role: "user", content }], greedy).then(
                () => "",
                (e) => `${e.name}: ${e.message}`,
              ));
            }
            const many = Array.from({ length: 300 }, () => image(0));
            errors.push(await p([{ role: "user", content: [...many, text] }], greedy).then(
              () => "",
              (e) => `${e.name}: ${e.message}`,
            ));
            const stop = new AbortController();
            stop.abort();
            errors.push(await p(chat, { signal: stop.signal }).catch((e) => e.name));
            const [again] = await p(chat, { ...greedy, return_tensors: true });
            await p.dispose();
            return {
              said: first.generated_text.at(-1).content,
              ids: second.generated_token_ids,
              again: again.generated_token_ids,
              errors,
            };
        """,
        f"/files/any_size/{name}/",
    )
    assert "error" not in found, found
    chat = [
        *messages(1),
        {"role": "assistant", "content": found["said"]},
        {"role": "user", "content": [{"type": "image"}, QUESTION]},
    ]
    assert found["ids"] == answered(model, chat, pictures(2), 10) == found["again"]
    words = ["more than 200 times longer", "cannot be decoded", "a sequence has at most", "Aborted"]
    for error, part in zip(found["errors"], words, strict=True):
        assert part in error


@pytest.mark.parametrize("name", ["qwen2.5-vl", "pixtral"])
def test_packages(page, files, models, name):
    """They have the encoder as an .onnx file, of which plans are compiled for each size."""
    model = models(name)
    package = compile_task(folder_files(model.root)[0], "image-text-to-text")
    package.save(str(files / f"any_size/{name}.edge"))
    asked = [[0, 1], [2], []]
    found = page.run(ASK, {"model": f"/files/any_size/{name}.edge", "asked": asked})
    assert "error" not in found, found
    assert found == {"found": wanted(model, asked), "origin": "package"}


def test_an_encoder_of_another_model_is_refused(page, files, models):
    root = files / "any_size/mixed"
    shutil.copytree(models("pixtral").root, root)
    shutil.copy(models("qwen2-vl").root / "onnx/vision_encoder.onnx", root / "onnx")
    found = page.run(ASK, {"model": "/files/any_size/mixed/", "asked": [[0]]})
    assert "pixel_values" in json.dumps(found["error"])

"""Graphs whose shapes depend on a picture, in a page: they run in a session beside the pipeline.
And pictures that a model sees in windows.
"""

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")  # transformers' image processors need it

import torch  # noqa: E402
import transformers  # noqa: E402
from edgewise.compiler.task_package import compile_task  # noqa: E402
from edgewise.errors import UnsupportedOp  # noqa: E402
from edgewise.host.session.open import folder_files  # noqa: E402

from tests.pipelines import tiny_images, tiny_prompts  # noqa: E402
from tests.pipelines.test_universal_segmentation import split_into_windows  # noqa: E402
from tests.pipelines.test_visual_questions import ANSWERS, QUESTION, make_vilt  # noqa: E402

SIZES = [(60, 90), (44, 44), (100, 30)]


@pytest.fixture(scope="module")
def folder(files):
    """The folder of models and pictures."""
    torch.set_num_threads(1)
    made = files / "beside"
    made.mkdir()
    for i, (height, width) in enumerate(SIZES):
        noise = np.random.default_rng(i).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((width, height), Image.BICUBIC).save(made / f"{i}.png")
    return made


@pytest.fixture
def page(visit, server, folder):
    return visit(server)


def images(folder):
    return [Image.open(folder / f"{i}.png") for i in range(len(SIZES))]


@pytest.mark.family("ViLT", exporter="torch")
def test_answers_that_are_chosen(page, folder):
    """visual-question-answering with ViLT, whose graph finds patches in the picture's mask."""
    _, pictures, wanted = make_vilt(folder / "vilt")
    for i, picture in enumerate(pictures):
        picture.save(folder / f"asked{i}.png")
    found = page.run(
        """
            const p = await ew.pipeline("visual-question-answering", "/files/beside/vilt/");
            const urls = [0, 1, 2].map((i) => `/files/beside/asked${i}.png`);
            const all = await p(urls, arg, { top_k: 3 });
            const pair = await p({ image: urls[1], question: arg });
            const errors = [];
            for (const given of [[urls[0], ""], [urls[0], arg, { top_k: 0 }]])
              errors.push(await p(...given).then(() => "", (e) => `${e.name}: ${e.message}`));
            const { task, info: { origin } } = p;
            await p.dispose();
            return { all, pair, errors, task, origin };
        """,
        QUESTION,
    )
    assert "error" not in found, found
    for one, scores in zip(found["all"], wanted, strict=True):
        order = sorted(range(4), key=lambda i: -scores[i])[:3]
        assert [a["answer"] for a in one] == [ANSWERS[i] for i in order]
        close = pytest.approx([scores[i] for i in order], abs=1e-5)
        assert [a["score"] for a in one] == close
    assert found["pair"][:3] == found["all"][1]
    assert (found["task"], found["origin"]) == ("visual-question-answering", "compiled")
    for error, words in zip(found["errors"], ["the question is no text", "top_k"], strict=True):
        assert error.startswith("InputError") and words in error


def test_packages_are_refused(folder):
    if not (folder / "vilt/config.json").exists():
        make_vilt(folder / "vilt")
    with pytest.raises(UnsupportedOp, match="depend on the picture"):
        compile_task(folder_files(folder / "vilt")[0], "visual-question-answering")


@pytest.mark.family("SuperPoint", exporter="torch")
def test_salient_points(page, folder):
    """keypoint-detection with SuperPoint: a picture has as many points as the graph finds."""
    root = tiny_images.make(folder / "superpoint", "superpoint")
    model = transformers.SuperPointForKeypointDetection.from_pretrained(root).eval()
    processor = transformers.SuperPointImageProcessor.from_pretrained(root)
    found = page.run(
        """
            const p = await ew.pipeline("keypoint-detection", "/files/beside/superpoint/");
            const urls = [0, 1, 2].map((i) => `/files/beside/${i}.png`);
            const all = await p(urls);
            const few = await p(urls[1], { threshold: all[1].scores[0] });
            await p.dispose();
            return { all, few };
        """
    )
    assert "error" not in found, found
    for picture, one in zip(images(folder), found["all"], strict=True):
        with torch.no_grad():
            outputs = model(**processor(picture, return_tensors="pt"))
        size = [(picture.height, picture.width)]
        (want,) = processor.post_process_keypoint_detection(outputs, size)
        assert len(want["keypoints"]) > 3
        assert one["keypoints"] == want["keypoints"].tolist()
        assert one["scores"] == pytest.approx(want["scores"].tolist(), abs=5e-5)
        np.testing.assert_allclose(one["descriptors"], want["descriptors"], atol=1e-4)
    assert len({len(one["scores"]) for one in found["all"]}) > 1
    least = found["all"][1]["scores"][0]
    kept = [x for x in found["all"][1]["scores"] if x > least]
    assert found["few"]["scores"] == kept


@pytest.mark.family("EoMT", exporter="torch")
@pytest.mark.parametrize("form", ["folder", "package"])
def test_windows_of_a_picture(page, folder, form):
    """image-segmentation with a processor of EoMT that splits pictures."""
    root = folder / "eomt"
    if not root.exists():
        split_into_windows(tiny_prompts.make_eomt(root))
    where = "/files/beside/eomt/"
    if form == "package":
        with (folder / "eomt.edge").open("wb") as file:
            compile_task(folder_files(root)[0], "image-segmentation").write(file)
        where = "/files/beside/eomt.edge"
    found = page.run(
        """
            const p = await ew.pipeline("image-segmentation", arg);
            const all = await p([0, 1, 2].map((i) => `/files/beside/${i}.png`));
            const error = await p("/files/beside/0.png", { subtask: "panoptic" })
              .then(() => "", (e) => `${e.name}: ${e.message}`);
            await p.dispose();
            const plain = ({ label, mask }) => ({ label, mask: Array.from(mask.data) });
            return { all: all.map((masks) => masks.map(plain)), error };
        """,
        where,
    )
    assert "error" not in found or isinstance(found["error"], str), found
    theirs = transformers.pipeline(
        "image-segmentation", str(root), framework="pt", use_fast=False, device="cpu"
    )
    for picture, masks in zip(images(folder), found["all"], strict=True):
        wanted = theirs(picture, subtask="semantic")
        assert [one["label"] for one in masks] == [one["label"] for one in wanted]
        for one, other in zip(masks, wanted, strict=True):
            assert (np.array(one["mask"]) != np.array(other["mask"]).ravel()).mean() < 0.002
    assert "sees windows of pictures" in found["error"]

"""Packages of tasks in Python: results are those of the model's folder."""

import numpy as np
import pytest
from edgewise import personalize, pipeline
from edgewise.cli import main
from edgewise.errors import InputError, UnsupportedOp
from edgewise.host.session.open import folder_files
from edgewise.task_package import compile_task

from . import tiny, tiny_images

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")
QUESTION = {"question": "Where did she live?", "context": tiny.TEXTS[1] * 3}
CALLS = {
    "feature-extraction": ("base", [tiny.TEXTS[0], tiny.TEXTS[4]], {"pooling": "mean"}),
    "text-classification": ("sequence", tiny.TEXTS[:2], {"top_k": None}),
    "token-classification": ("tokens", tiny.TEXTS[1], {"ignore_labels": []}),
    "question-answering": ("questions", QUESTION, {"top_k": 3}),
    "fill-mask": ("mask", "The quick brown [MASK] jumps.", {}),
}


def same(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            same(found[name], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            same(a, b)
    elif isinstance(expected, (str, int, type(None))):
        assert found == expected
    else:
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=2e-5)


def built(folder, task, *options):
    path = folder / f"{task}.edge"
    main(["build", "--task", task, str(folder), "-o", str(path), *options])
    return path


@pytest.mark.parametrize("task", CALLS)
def test_texts(tmp_path, task):
    head, given, options = CALLS[task]
    folder = tiny.make(tmp_path / "model", "bert", head)
    path = built(folder, task, "--max-length", "64")
    with pipeline(task, folder) as whole, pipeline(task, path) as packaged:
        same(packaged(given, **options), whole(given, **options))
        # no plan for longer texts: they are cut, or divided
        long = {**QUESTION, "context": tiny.TEXTS[1] * 9} if head == "questions" else None
        if long or head in ("base", "sequence"):
            assert packaged(long or " ".join(tiny.TEXTS * 4), **options)


def test_models_of_another_task(tmp_path):
    """States are not taken for logits."""
    files = folder_files(tiny.make(tmp_path / "model", "bert", "base"))[0]
    for task in ("text-classification", "token-classification", "fill-mask", "ner"):
        with pytest.raises(UnsupportedOp, match=r"last_hidden_state.*needs logits"):
            compile_task(files, task)


@pytest.mark.parametrize("declared", [False, True])
def test_graphs_that_make_embeddings(tmp_path, declared):
    """They are taken where the model's files declare vectors, and no `pooling` is given."""
    folder = tiny.with_embedding(tiny.make(tmp_path / "model", "bert", "base"))
    if declared:
        tiny.as_sentence_transformer(folder, {"pooling_mode_mean_tokens": True}, normalize=False)
    path = built(folder, "feature-extraction", "--max-length", "64")
    with (
        pipeline("feature-extraction", folder) as whole,
        pipeline("feature-extraction", path) as packaged,
    ):
        states = np.asarray(whole(tiny.TEXTS[0], pooling="none"))[0]
        own = np.asarray(whole(tiny.TEXTS[0]))
        np.testing.assert_allclose(own, 2 * states.max(0) if declared else states[None], atol=1e-5)
        for options in ({}, {"pooling": "mean"}):
            same(packaged(tiny.TEXTS[0], **options), whole(tiny.TEXTS[0], **options))


def test_texts_with_plans_for_some_lengths(tmp_path):
    """Positions are relative: the package has plans for 8, 16, 32, and 40 tokens."""
    folder = tiny.make(tmp_path / "model", "bert", "tokens", position_embedding_type="relative_key")
    path = built(folder, "token-classification", "--max-length", "40")
    with pipeline("ner", folder) as whole, pipeline("ner", path) as packaged:
        for text in tiny.TEXTS:
            options = {"ignore_labels": []}
            same(packaged(text, **options), whole(text, **options))


@pytest.mark.parametrize(
    "task, kind",
    [
        ("image-classification", "vit"),
        ("object-detection", "yolos"),
        ("depth-estimation", "dpt"),
        ("image-segmentation", "segformer"),
    ],
)
def test_pictures(tmp_path, task, kind):
    (tmp_path / "model").mkdir()
    folder = tiny_images.make(tmp_path / "model", kind)
    pixels = np.random.default_rng(3).integers(0, 256, (64, 96, 3)).astype(np.uint8)
    path = built(folder, task)
    options = {"threshold": 0.1} if task == "object-detection" else {}
    with pipeline(task, path) as packaged:
        described = packaged.processor.description
        with pipeline(task, folder, processor=described) as whole:
            same(packaged(pixels, **options), whole(pixels, **options))
        if task == "image-classification":
            with pytest.raises(InputError, match="personalized in pages"):
                personalize(packaged, {"a": [pixels], "b": [pixels]})
            with pytest.raises(InputError, match="a package for 'image-classification'"):
                pipeline("image-feature-extraction", path)
            with pytest.raises(InputError, match="a package for 'image-classification'"):
                pipeline("audio-classification", path)


def test_frames_are_no_part_of_masks(tmp_path):
    """A package pads pictures to one of a few sizes; masks are those of the picture alone."""
    Image = pytest.importorskip("PIL.Image")
    (tmp_path / "model").mkdir()
    folder = tiny_images.make(tmp_path / "model", "detr-masks")
    pixels = np.random.default_rng(3).integers(0, 256, (40, 90, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    options = {"threshold": 0.2, "mask_threshold": 0.1, "overlap_mask_area_threshold": 0.1}
    with pipeline("image-segmentation", built(folder, "image-segmentation")) as packaged:
        picture, (top, left, bottom, right) = packaged.processor.resized(tmp_path / "wide.png")
        assert (bottom - top, right - left) != (picture.height, picture.width)
        found = packaged(tmp_path / "wide.png", **options)
        wanted = tiny_images.cut(packaged, tmp_path / "wide.png", options)
    assert found and [one["label"] for one in found] == [one["label"] for one in wanted]
    for one, other in zip(found, wanted):
        assert np.array_equal(np.asarray(one["mask"]), np.asarray(other["mask"]))


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_pictures_and_texts(tmp_path, kind, separate):
    """The graph is divided, or comes in two files: a text is read once for all pictures."""
    task = "zero-shot-image-classification"
    (tmp_path / "model").mkdir()
    folder = tiny_images.make(tmp_path / "model", kind, separate=separate)
    pixels = np.random.default_rng(3).integers(0, 256, (64, 96, 3)).astype(np.uint8)
    path = built(folder, task)
    with pipeline(task, folder) as whole, pipeline(task, path) as packaged:
        programs = packaged.files.package.manifest["programs"]
        assert [*programs] == ["pre", "model", "text", "scores"]
        assert {i["name"] for i in programs["model"]["inputs"]} == {"pixel_values"}
        labels = ["cat", "two very large trees", "a"]
        found, expected = packaged(pixels, labels), whole(pixels, labels)
        same(*(sorted(f, key=lambda one: one["label"]) for f in (found, expected)))
        for name in ("text", "scores"):  # of a package that was changed
            session = packaged.session(name)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(session, "inputs", ["anything"])
                with pytest.raises(InputError, match=f"{name}: .*not known: anything"):
                    packaged(pixels, f"new for {name}")
    base = tiny_images.make(tmp_path / "base", "vit")
    with pytest.raises(UnsupportedOp, match="logits_per_image"):
        compile_task(folder_files(base)[0], task)
    with pytest.raises(InputError, match="personalized"):
        compile_task(folder_files(folder)[0], task, personalize=True)


def test_labels_of_yolo(tmp_path):
    source = tiny_images.yolo(tmp_path)
    path = built(source.parent, "object-detection")
    pixels = np.random.default_rng(3).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    options = {"threshold": 0.1}
    found = pipeline("object-detection", path)(pixels, **options)
    assert found
    same(found, pipeline("object-detection", source)(pixels, **options))

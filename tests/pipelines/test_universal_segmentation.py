"""EoMT against transformers' pipeline, from pixels on."""

import json
import shutil

import pytest

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from edgewise import pipeline  # noqa: E402
from edgewise.errors import InputError  # noqa: E402
from edgewise.host.pipelines.images.image_processor import ImageProcessor  # noqa: E402
from edgewise.host.session.open import folder_files  # noqa: E402
from edgewise.task_package import compile_task  # noqa: E402

from . import tiny_prompts  # noqa: E402
from .test_image_tasks import masks_agree  # noqa: E402
from .test_mask_generation import pictures  # noqa: E402


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """(folder, package)"""
    folder = tiny_prompts.make_eomt(tmp_path_factory.mktemp("eomt") / "model")
    package = folder.parent / "model.edge"
    with package.open("wb") as file:
        compile_task(folder_files(folder)[0], "image-segmentation").write(file)
    return folder, package


@pytest.mark.parametrize("form", [0, 1])
def test_eomt(models, form):
    theirs = transformers.pipeline(
        "image-segmentation", str(models[0]), framework="pt", use_fast=False, device="cpu"
    )
    ours = pipeline("image-segmentation", models[form])
    count = 0
    for image in pictures():
        for options in (
            {"threshold": 0.2, "mask_threshold": 0.5, "overlap_mask_area_threshold": 0.1},
            {"threshold": 0.3, "mask_threshold": 0.7, "overlap_mask_area_threshold": 0.05},
            {"subtask": "panoptic", "threshold": 0.2},
            {"subtask": "instance", "threshold": 0.1},
            {"subtask": "instance", "threshold": 0.3},
        ):
            found, wanted = ours(image, **options), theirs(image, **options)
            masks_agree(found, wanted)
            count += len(found)
        found = ours(image, subtask="semantic")
        wanted = semantic(theirs, image)
        labels = theirs.model.config.id2label
        assert [one["label"] for one in found] == [labels[int(i)] for i in np.unique(wanted)]
        for one, i in zip(found, np.unique(wanted)):
            assert ((np.array(one["mask"]) == 255) != (wanted == i)).mean() < 0.002
    assert count > 6


@pytest.fixture
def splitting(models, tmp_path):
    """A folder whose processor splits pictures into windows."""
    return split_into_windows(shutil.copytree(models[0], tmp_path / "model"))


def split_into_windows(folder):
    """Writes a processor into a folder that splits pictures into windows."""
    path = folder / "preprocessor_config.json"
    config = json.loads(path.read_text())
    size = {"shortest_edge": config["size"]["shortest_edge"], "longest_edge": None}
    path.write_text(json.dumps({**config, "size": size, "do_split_image": True, "do_pad": False}))
    return folder


@pytest.mark.family("EoMT", exporter="torch")
@pytest.mark.parametrize("packaged", [False, True])
def test_windows_of_a_picture(splitting, packaged):
    """Of one window, of two and of more; upright and lying."""
    source = splitting
    if packaged:
        source = splitting.parent / "windows.edge"
        with source.open("wb") as file:
            compile_task(folder_files(splitting)[0], "image-segmentation").write(file)
    theirs = transformers.pipeline(
        "image-segmentation", str(splitting), framework="pt", use_fast=False, device="cpu"
    )
    count = 0
    with pipeline("image-segmentation", source) as ours:
        for i, (height, width) in enumerate([(50, 50), (40, 57), (90, 41), (30, 133)]):
            noise = np.random.default_rng(i).integers(0, 256, (5, 7, 3), dtype=np.uint8)
            image = Image.fromarray(noise).resize((width, height), Image.BICUBIC)
            found, wanted = ours(image), theirs(image, subtask="semantic")
            assert ours(image, subtask="semantic") == found
            assert [one["label"] for one in found] == [one["label"] for one in wanted]
            for one, other in zip(found, wanted, strict=True):
                a, b = np.array(one["mask"]), np.array(other["mask"])
                assert a.shape == b.shape == (height, width)
                assert (a != b).mean() < 0.002
            count += len(found)
        with pytest.raises(InputError, match="windows.*panoptic"):
            ours(image, subtask="panoptic")
    assert count > 6


def test_where_windows_are_refused(splitting):
    files = folder_files(splitting)[0]
    with pytest.raises(InputError, match="only image-segmentation"):
        compile_task(files, "background-removal")
    path = splitting / "preprocessor_config.json"
    config = json.loads(path.read_text())
    with pytest.raises(InputError, match="only image-segmentation"):
        ImageProcessor(config)(Image.new("RGB", (40, 60)))
    for change in ({"do_resize": False}, {"size": {"shortest_edge": 32, "longest_edge": 64}}):
        path.write_text(json.dumps({**config, **change}))
        with pytest.raises(InputError, match="longest_edge to null"):
            pipeline("image-segmentation", splitting)


def semantic(pipe, image):
    """The class of each pixel, as post_process_semantic_segmentation of transformers 5: that of
    version 4 needs pictures that are split.
    """
    enlarge = torch.nn.functional.interpolate
    with torch.no_grad():
        out = pipe.model(**pipe.image_processor(image, return_tensors="pt"))
    side = pipe.image_processor.size["shortest_edge"]
    masks = enlarge(out.masks_queries_logits, (side, side), mode="bilinear").sigmoid()
    classes = out.class_queries_logits.softmax(-1)[..., :-1]
    planes = torch.einsum("bqc,bqhw->bchw", classes, masks)
    return enlarge(planes, (image.height, image.width), mode="bilinear")[0].argmax(0).numpy()

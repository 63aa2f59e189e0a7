"""keypoint-detection: ViTPose and SuperPoint. Warped pictures and keypoints of heatmaps are
compared with those of transformers in tests/logic/test_keypoints.py.
"""

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.cli import main
from edgewise.compiler.task_package import compile_task
from edgewise.errors import EdgewiseError, InputError
from edgewise.host.session.open import folder_files

pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from . import tiny_images  # noqa: E402
from .test_image_tasks import pictures  # noqa: E402

BOXES = [[10.0, 5.0, 20.0, 30.0], [-6.0, -9.0, 30.5, 20.25]]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    made = {}

    def get(kind):
        if kind not in made:
            made[kind] = tiny_images.make(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return get


@pytest.mark.family("ViTPose", exporter="torch")
@pytest.mark.parametrize("packaged", [False, True])
def test_vitpose(tiny, tmp_path, packaged):
    folder = source = tiny("vitpose")
    if packaged:
        source = tmp_path / "model.edge"
        main(["build", "--task", "keypoint-detection", str(folder), "-o", str(source)])
    model = transformers.VitPoseForPoseEstimation.from_pretrained(folder).eval()
    with pipeline("keypoint-detection", source) as pipe:
        for picture in pictures():
            found = pipe(picture, boxes=BOXES)
            assert len(found) == len(BOXES)
            for box, one in zip(BOXES, found):
                (values,) = folder_values(pipe, picture, box)
                with torch.no_grad():
                    maps = model(torch.tensor(values)).heatmaps[0].numpy()
                assert one["scores"] == pytest.approx(maps.max((1, 2)).tolist(), abs=1e-4)
                assert one["labels"][:5] == tiny_images.LABELS
                left, top, width, height = box
                want = {"xmin": left, "ymin": top, "xmax": left + width, "ymax": top + height}
                assert one["box"] == pytest.approx(want)
                check_places(one["keypoints"], maps, box)
            (whole,) = pipe(picture)
            assert whole["box"]["xmax"] == picture.width
            kept = pipe(picture, threshold=float(np.median(whole["scores"])))[0]
            assert 0 < len(kept["keypoints"]) < len(whole["keypoints"])
        named = [{"score": 1, "label": "person", "box": dict(xmin=10, ymin=5, xmax=30, ymax=35)}]
        assert pipe(picture, boxes=named)[0] == found[0]
        assert pipe(picture, boxes=[]) == []


def folder_values(pipe, picture, box):
    return [np.asarray(pipe.processor(picture, tuple(box))["pixel_values"])]


def check_places(points, maps, box):
    """Each keypoint is within a cell of the greatest number of its map, where that is positive."""
    left, top, width, height = box
    x, y = left + width / 2, top + height / 2
    width, height = max(width, height * 0.75), max(height, width / 0.75)
    for (at_x, at_y), heat in zip(points, maps):
        row, column = np.unravel_index(heat.argmax(), heat.shape)
        if heat.max() <= 0:
            continue
        cell_x, cell_y = 1.25 * width / (heat.shape[1] - 1), 1.25 * height / (heat.shape[0] - 1)
        want_x = x - 0.625 * width + column * cell_x
        want_y = y - 0.625 * height + row * cell_y
        assert abs(at_x - want_x) < 3 * cell_x and abs(at_y - want_y) < 3 * cell_y


@pytest.mark.family("SuperPoint", exporter="torch")
def test_superpoint(tiny):
    folder = tiny("superpoint")
    model = transformers.SuperPointForKeypointDetection.from_pretrained(folder).eval()
    processor = transformers.SuperPointImageProcessor.from_pretrained(folder)
    with pipeline("keypoint-detection", folder) as pipe:
        for picture in pictures():
            inputs = processor(picture, return_tensors="pt")
            with torch.no_grad():
                outputs = model(**inputs)
            size = [(picture.height, picture.width)]
            (want,) = processor.post_process_keypoint_detection(outputs, size)
            found = pipe(picture)
            assert len(want["keypoints"]) > 3
            assert [list(p) for p in found["keypoints"]] == want["keypoints"].tolist()
            assert found["scores"] == pytest.approx(want["scores"].tolist(), abs=5e-5)
            np.testing.assert_allclose(found["descriptors"], want["descriptors"], atol=1e-4)
            least = float(want["scores"].median())
            kept = pipe(picture, threshold=least)
            assert len(kept["scores"]) == int((want["scores"] > least).sum())


def test_superpoint_in_packages_is_refused(tiny):
    files, _ = folder_files(tiny("superpoint"))
    with pytest.raises(EdgewiseError, match="depend"):
        compile_task(files, "keypoint-detection")


def test_what_is_refused(tiny):
    (picture, _) = pictures()
    with pipeline("keypoint-detection", tiny("vitpose")) as pipe:
        for boxes, what in (
            ([[0, 0, 0, 5]], "box 0 is empty"),
            ([[1, 2, 3]], "box 0 is none"),
            ([[0, 0, 5, 5], [0, 0, float("nan"), 5]], "box 1 has a side that is no number"),
            ([[500, 0, 5, 5]], "box 0 lies outside of the picture"),
            ("all", "boxes"),
            ([{"box": {"xmin": 1}}], "box 0 is none"),
        ):
            with pytest.raises(InputError, match=what):
                pipe(picture, boxes=boxes)
        assert len(pipe(picture)) == 1
        dot = np.zeros((1, 1, 3), np.uint8)
        assert len(pipe(dot)[0]["keypoints"]) > 0

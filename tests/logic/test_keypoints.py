"""Warped pictures and keypoints of heatmaps, in both forms, beside transformers and SciPy
(tests/processors/make_poses.py).
"""

import base64

import numpy as np
import pytest
from edgewise.compiler.processors.images import read_description
from edgewise.errors import InputError
from edgewise.host.media.pictures import Picture
from edgewise.host.pipelines.images.image_processor import ImageProcessor
from edgewise.logic.tasks.inputs import Values
from edgewise.logic.tasks.keypoints import Posing

from tests.conformance.vectors import vectors

from .forms import both, module

CASES = vectors("poses")
SIZE = CASES["size"]


def picture():
    """As make_poses.picture."""
    y, x = np.mgrid[0:48, 0:64]
    planes = [127 + 120 * np.sin(x / (3 + c) + y / (5 + c)) for c in range(3)]
    made = np.stack(planes, -1)
    made[20:, 30:] = 255 - made[20:, 30:]
    return made.astype(np.uint8)


def config(factor):
    return {
        "image_processor_type": "VitPoseImageProcessor",
        "size": SIZE,
        "do_rescale": False,
        "do_normalize": False,
        "normalize_factor": factor,
    }


def expected(case, box):
    pixels = base64.b64decode(case["pixels"][box])
    return np.frombuffer(pixels, np.uint8).reshape(SIZE["height"], SIZE["width"], 3).astype(int)


@both
@pytest.mark.parametrize("case", CASES["warped"], ids=str)
def test_warped_pictures(form, case):
    """By the steps and the weights of a form; pixels within a level, for SciPy has doubles."""
    geometry, taps = module(form, "images.geometry"), module(form, "images.taps")
    steps = read_description(config(case["factor"])).steps
    for i, box in enumerate(CASES["boxes"]):
        source, done = picture().astype(float), geometry.layout(steps, 48, 64, tuple(box))
        *windows, warp = done.steps
        for w in windows:
            window = source[w["top"] : w["top"] + w["height"], w["left"] : w["left"] + w["width"]]
            assert w["top"] >= 0 and w["left"] >= 0 and window.shape[0] == w["height"]
            source = window
        rows = matrix(taps.straight(warp["top"], warp["down"], len(source), warp["height"]), source)
        turned = source.transpose(1, 0, 2)
        given = (warp["left"], warp["across"], len(turned), warp["width"])
        columns = matrix(taps.straight(*given), turned)
        made = np.floor(np.einsum("yi,xj,ijc->yxc", rows, columns, source) + 0.5)
        assert np.abs(made - expected(case, i)).max() <= 1


def matrix(taps, source):
    made = np.zeros((len(taps.at) // taps.count, len(source)))
    for i, (at, weight) in enumerate(zip(taps.at, taps.weights)):
        made[i // taps.count, at] += weight
    return made


@pytest.mark.parametrize("case", CASES["warped"], ids=str)
def test_processor(case):
    processor = ImageProcessor(config(case["factor"]))
    given = Picture(picture().tobytes(), 48, 64)
    for i, box in enumerate(CASES["boxes"]):
        values = np.asarray(processor(given, tuple(box))["pixel_values"])[0].transpose(1, 2, 0)
        off = np.abs(values - expected(case, i))
        assert off.max() <= 1 and (off > 0).mean() < 0.01
    with pytest.raises(InputError, match="outside of the picture"):
        processor(given, (900.0, 2.0, 3.0, 4.0))
    processor.close()


@both
def test_keypoints(form):
    tasks = module(form, "tasks.keypoints")
    maps = Values([1, 5, 16, 12], CASES["maps"])
    for case in CASES["poses"]:
        how = Posing([], case["threshold"], case["kernel"])
        shown = (SIZE["height"], SIZE["width"])
        found = tasks.pose(maps, tuple(case["box"]), shown, how, {}, "keypoint-detection")
        assert found["labels"] == [f"LABEL_{i}" for i in case["labels"]]
        assert found["scores"] == pytest.approx(case["scores"], abs=1e-6)
        got = np.array([list(p) for p in found["keypoints"]])
        np.testing.assert_allclose(got, case["keypoints"], atol=2e-2)


@both
def test_wrong_outputs(form):
    tasks = module(form, "tasks.keypoints")
    for dims in ([1, 5, 16], [2, 5, 4, 4], [1, 0, 4, 4]):
        with pytest.raises(InputError, match="is not that of this task"):
            tasks.pose(Values(dims, []), (0, 0, 1, 1), (8, 8), Posing(None, None, 11), {}, "x")
    with pytest.raises(InputError, match="is not that of this task"):
        few = Values([1, 2], [0.0, 0.0])
        tasks.points([few, few, few, few], (8, 8), None, "x")

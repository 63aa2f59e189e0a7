"""Sizes of pictures, boxes and segments: vectors of tests/conformance on both forms.
tests/pipelines/test_image_post.py and tests/processors/test_images.py compute them from other
implementations.
"""

import numpy as np
import pytest
from edgewise.errors import InputError

from tests.conformance.vectors import vectors
from tests.processors.make_saved import picture

from .forms import both, module


def close(ours, theirs):
    assert [label for _, label, _ in ours] == [label for _, label, _ in theirs]
    for (score, _, box), (other, _, wanted) in zip(ours, theirs):
        assert score == pytest.approx(other, abs=1e-4)
        assert list(box) == pytest.approx(wanted, abs=1e-3)


@both
def test_boxes_of_queries(form):
    detection = module(form, "post.detection")
    for v in vectors("detection"):
        given = (v["logits"], v["boxes"], v["classes"], v["threshold"], *v["size"])
        if v["kind"] == "set":
            found = detection.set_prediction(*given)
        else:
            found = detection.focal(*given, v["most"])
        assert found
        close(found, v["found"])


@both
def test_boxes_of_yolo(form):
    detection = module(form, "post.detection")
    v = vectors("detection_yolo")
    for case in v["cases"]:
        close(detection.yolo(v["output"], v["anchors"], *case["arguments"]), case["found"])
    for case in v["letterbox"]:
        height, width = case["picture"]
        given = [(1.0, 0, tuple(case["box"]))]
        ((_, _, box),) = detection.unletterbox(given, tuple(case["model"]), height, width)
        assert list(box) == case["expected"]
        assert detection.named_box(box, height, width, False) == case["named"]
        parts = detection.named_box(box, height, width, True)
        assert parts["ymax"] * height == pytest.approx(case["expected"][3])


@both
@pytest.mark.parametrize("name", ["Owlv2ImageProcessor", "RfDetrImageProcessor"])
def test_filters(form, name):
    """Filters that the engine does not have, against those of SciPy and PyTorch."""
    taps = module(form, "images.taps").taps
    kind = "gaussian" if name.startswith("Owl") else "linear"

    def matrix(size, out):
        made, found = np.zeros((out, size)), taps(kind, size, out)
        for i, (at, weight) in enumerate(zip(found.at, found.weights)):
            made[i // found.count, at] += weight
        return made

    cases = [v for v in vectors("image_numbers") if v["config"]["image_processor_type"] == name]
    assert cases
    for v in cases:
        pixels = picture(*v["picture"]).astype(float)
        if kind == "gaussian":
            side = max(pixels.shape)
            more = [(0, side - n) for n in pixels.shape[:2]]
            pixels = np.pad(pixels, [*more, (0, 0)])
        _, _, height, width = v["shape"]
        rows, columns = matrix(pixels.shape[0], height), matrix(pixels.shape[1], width)
        made = np.einsum("yh,hwc,xw->cyx", rows, pixels, columns) / 255
        mean, std = (np.reshape(v["config"][f"image_{n}"], (3, 1, 1)) for n in ("mean", "std"))
        expected = np.reshape(v["values"], v["shape"])[0]
        np.testing.assert_allclose((made - mean) / std, expected, atol=2e-3)


@both
def test_names_of_boxes(form):
    """A negative coordinate that is cut to 0 has no sign."""
    named = module(form, "post.detection").named_box((-0.5, 0.5, 2.5, 3.5), 10, 10, False)
    assert str(list(named.values())) in ("[0, 0, 2, 3]", "[0.0, 0.0, 2.0, 3.0]")


@both
def test_segments(form):
    """Classes that are fused become one segment; the others keep their numbers."""
    segments = module(form, "post.segmentation").segments
    numbers, found = segments([0.9, 0.8, 0.7, 0.6], [1, 2, 1, 3], [9] * 4, [9] * 4, 0.5, [1])
    assert numbers == [1, 2, 1, 3]
    assert [(s["id"], s["label_id"], s["was_fused"]) for s in found] == [
        (1, 1, True),
        (2, 2, False),
        (3, 3, False),
    ]
    assert segments([0.9, 0.8], [1, 1], [9, 0], [9, 9], 0.5)[0] == [1, 0]
    assert segments([0.9], [1], [4], [9], 0.5) == ([0], [])


@both
def test_sizes_of_pictures(form):
    geometry = module(form, "images.geometry")
    for entry in vectors("image_layouts"):
        for wanted in entry["layouts"]:
            done = geometry.layout(entry["description"]["steps"], *wanted["picture"])
            assert done.steps == wanted["steps"]
            assert [done.height, done.width] == wanted["size"]
            assert list(done.valid) == wanted["valid"]
            assert list(done.kept) == wanted["kept"]


@both
def test_windows_of_pictures(form):
    """As transformers splits pictures for EoMT."""
    np = pytest.importorskip("numpy")
    transformers = pytest.importorskip("transformers")
    from transformers.image_transforms import get_size_with_aspect_ratio

    geometry = module(form, "images.geometry")
    steps = [
        {"op": "resize", "rule": "shortest", "size": 32, "filter": "bilinear"},
        {"op": "crop", "rule": "split", "height": 32, "width": 32},
    ]
    size = {"shortest_edge": 32, "longest_edge": None}
    theirs = transformers.EomtImageProcessor(size=size, do_split_image=True, do_pad=False)
    for height, width in ((32, 32), (20, 20), (40, 41), (64, 32), (65, 33), (30, 200), (31, 9)):
        # the processor of version 4 rounds where its fast one and those of version 5 cut
        whole = np.zeros((3, *get_size_with_aspect_ratio((height, width), 32)), np.uint8)
        parts, wanted = theirs._split_image(whole, size, 0)
        split = geometry.split_of(steps, height, width)
        assert (split.height, split.width) == whole.shape[1:]
        along = 1 if split.height > split.width else 0
        starts = [int(box[along]) for box in split.boxes]
        assert [[0, at, at + 32] for at in starts] == wanted
        assert all(tuple(box[2:]) == (32, 32) and not box[1 - along] for box in split.boxes)
        inside = [sum(a <= k < b for _, a, b in wanted) for k in range(max(whole.shape[1:]))]
        assert list(split.counts) == inside
        assert len(parts) == len(starts)
        done = geometry.layout(steps, height, width, tuple(split.boxes[-1]))
        assert (done.height, done.width) == (32, 32)
    assert geometry.split_of(steps[:1], 40, 41) is None
    with pytest.raises(InputError, match="windows"):
        geometry.layout(steps, 40, 41)


@both
def test_pictures_that_are_empty_or_too_large(form):
    layout = module(form, "images.geometry").layout
    steps = [{"op": "resize", "rule": "floor", "divisor": 32, "filter": "bilinear"}]
    for given in ((steps, 31, 64), ([], 0, 64), ([], 20_000, 20_000)):
        with pytest.raises(InputError):
            layout(*given)

"""Boxes of text in both forms, beside RapidOCR (tests/processors/make_ocr.py), and the texts of a
recognizer's numbers.
"""

import math

import numpy as np
import pytest
from edgewise.compiler.task_package.ocr import detector_input
from edgewise.errors import InputError
from edgewise.logic.ocr.reading import Best, Detected
from edgewise.logic.ocr.regions import Finding
from edgewise.logic.tasks.inputs import Values

from tests.conformance.vectors import vectors
from tests.processors.make_ocr import text_map

from .forms import both, module

CASES = vectors("ocr")


def dilated(over):
    """As cv2.dilate with a square of two pixels."""
    made = over.copy()
    made[1:] |= over[:-1]
    made[:, 1:] |= over[:, :-1]
    made[1:, 1:] |= over[:-1, :-1]
    return made.astype(np.uint8)


@both
def test_boxes(form):
    """The same boxes within a pixel: Clipper's arcs have other corners."""
    regions, found = module(form, "ocr.regions"), 0
    for case in CASES["cases"]:
        maps = text_map(case["map"])
        values = Values([1, 1, *maps.shape], maps.flatten().tolist())
        how = Finding(0.3, case["least"], case["ratio"])
        mask = dilated(maps > 0.3).tobytes()
        boxes = regions.boxes_of_text(values, mask, how, tuple(case["size"]), 0)
        assert len(boxes) == len(case["boxes"]), case
        scale = max(case["size"][0] / maps.shape[0], 1)
        for ours, theirs in zip(boxes, case["boxes"]):
            got = np.array([list(p) for p in ours])
            np.testing.assert_allclose(got, theirs, atol=2 * scale)
            found += 1
    assert found > 20


@both
def test_sizes(form):
    """Margins and sizes of pictures before the detector, but for pictures that are very long."""
    geometry, steps = module(form, "images.geometry"), detector_input().steps
    for (height, width), margin, size in CASES["sizes"]:
        assert geometry.strip_margin(height, width) == margin
        done = geometry.layout(steps, height, width)
        if max(size) <= 2944:
            assert [done.height, done.width] == size
        else:
            assert max(done.height, done.width) <= 2944 + 32
            assert not done.height % 32 and not done.width % 32


@both
def test_texts(form):
    """CTC: repeated numbers are one character, and 0 is none."""
    reading = module(form, "ocr.reading")
    letters = ["a", "b", "c"]
    found = reading.decoded(Best([0, 1, 1, 0, 1, 2, 2], [1, 0.9, 0.1, 1, 0.7, 0.8, 0.2]), letters)
    assert found[0] == "aab" and found[1] == pytest.approx(0.8)
    assert list(reading.decoded(Best([0, 0], [1, 1]), letters)) == ["", 0]
    assert reading.characters_of(letters, 4) == letters
    assert reading.characters_of(letters, 5) == [*letters, " "]
    assert reading.characters_of(letters, None) == [*letters, " "]
    for classes in (3, 6):
        with pytest.raises(InputError, match="the dictionary has 3 characters"):
            reading.characters_of(letters, classes)
    with pytest.raises(InputError, match="the dictionary has 3 characters"):
        reading.decoded(Best([7], [1]), letters)


@both
def test_projections(form):
    """Corners of the unit square are those of the part."""
    shapes = module(form, "ocr.shapes")
    quads = (
        [(1, 2), (11, 2), (11, 8), (1, 8)],
        [(3, 1), (12, 4), (11, 9), (2, 6)],
        [(0, 0), (9, 1), (12, 10), (1, 7)],
    )
    for quad in quads:
        m = shapes.unit_to_quad([(float(x), float(y)) for x, y in quad])
        for (u, v), (x, y) in zip([(0, 0), (1, 0), (1, 1), (0, 1)], quad):
            w = m[6] * u + m[7] * v + 1
            assert (m[0] * u + m[1] * v + m[2]) / w == pytest.approx(x)
            assert (m[3] * u + m[4] * v + m[5]) / w == pytest.approx(y)


@both
def test_rectangles(form):
    """Of a turned rectangle's points the rectangle itself."""
    shapes = module(form, "ocr.shapes")
    turn = math.radians(20)
    corners = [(-10, -3), (10, -3), (10, 3), (-10, 3)]
    points = [
        (x * math.cos(turn) - y * math.sin(turn) + 50, x * math.sin(turn) + y * math.cos(turn) + 40)
        for x, y in [*corners, (0, 0), (4, 3), (-10, 1)]
    ]
    found = shapes.smallest_rectangle(points)
    assert found.short == pytest.approx(6)
    np.testing.assert_allclose([list(p) for p in found.corners], points[:4], atol=1e-9)
    assert shapes.smallest_rectangle([(3.0, 4.0)]).short == 0


def test_other_detectors():
    from edgewise.logic.ocr.reading import read_page, reading

    steps = read_page(reading({}), (10, 10), ["a"], True)
    next(steps)
    with pytest.raises(InputError, match=r"the detector's output is \[1, 2, 4, 4\]"):
        steps.send(Detected(Values([1, 2, 4, 4], [0.0] * 32), bytes(32)))

"""Clips of long recordings for Whisper's features, on both forms."""

import numpy as np
import pytest

from .forms import both, module
from .test_recognition import driven

SIZE, WIDTH = 1600, 1600 + 160 + 400


@both
@pytest.mark.parametrize("count", [300, 1600, 1601, 5000, 6400])
def test_what_is_around_a_clip(form, count):
    """The recording, reflected at both ends as by numpy, zeros further on."""
    around = module(form, "speech.features").around
    x = np.arange(1.0, count + 1)
    before = (WIDTH - SIZE + 160) // 2
    whole = np.pad(x, (min(before, count - 1), min(200, count - 1)), mode="reflect")
    whole = np.pad(whole, (before - min(before, count - 1), 2 * WIDTH))
    for number in range(-(-count // SIZE)):
        of = around(number, SIZE, WIDTH, count)
        left = [x[min(of.left - i, count - 1)] for i in range(of.left)]
        inner = x[of.start : of.start + of.inner]
        right = x[count - 1 - of.right : count - 1][::-1]
        found = np.zeros(WIDTH)
        made = np.concatenate([left, inner, right])
        found[: len(made)] = made
        expected = whole[number * SIZE : number * SIZE + WIDTH]
        skipped = max(0, before - (count - 1)) if number == 0 else 0
        assert np.array_equal(found[skipped:], expected[skipped:])


@both
def test_parts_of_windows(form):
    """A window is what is there of the recording's frames, wherever it begins."""
    parts_of = module(form, "speech.features").parts_of
    frames, columns = 25, 10
    recording = np.zeros(30)
    recording[:frames] = np.arange(1, frames + 1)
    for start in range(frames):
        window = np.zeros(columns)
        for part in parts_of(start, columns, frames, columns):
            clip = recording[part.clip * columns : (part.clip + 1) * columns]
            window[part.at : part.at + part.length] = clip[part.first : part.first + part.length]
        expected = np.zeros(columns)
        expected[: frames - start] = recording[start : min(start + columns, frames)]
        assert window.tolist() == expected.tolist()


@both
def test_floor_of_a_recording(form):
    floor_of = module(form, "speech.features").floor_of
    values = iter([1.5, 3.3, -2.0])
    floor, seen = driven(floor_of(4000, SIZE), lambda clip: next(values))
    assert floor == float(np.float32(3.3 - 8)) and [c.number for c in seen] == [0, 1, 2]

"""Resampling of pictures equals Pillow's, resampling of sound has the promised frequency response;
natively and in WebAssembly.
"""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
from conformance.vectors import vectors
from edgewise import Array
from edgewise.errors import InputError, OutOfMemory
from edgewise.host.media.resampling import (
    FILTERS,
    Resampler,
    resample_audio,
    resize_float,
    resize_image,
)

from processors.make_media import cases, digest, floats, noise

VECTORS = vectors("media")


@pytest.mark.parametrize("case", VECTORS["images"], ids=lambda c: f"{c['filter']}-{c['sizes']}")
def test_pillow_vectors(case):
    height, width, channels, out_height, out_width = case["sizes"]
    count = height * width * channels
    if case["float"]:
        out = resize_float(
            floats(count), height, width, out_height, out_width, case["filter"], case["box"]
        )
    else:
        out = resize_image(noise(count), *case["sizes"], case["filter"], case["box"])
    assert digest(out) == case["digest"]


def test_vectors_are_pillows():
    pytest.importorskip("PIL")
    assert json.loads(json.dumps(cases())) == {"images": VECTORS["images"]}


def test_random_sizes_equal_pillow():
    """Bytes are equal; floats, which are summed in the same order, too."""
    image = pytest.importorskip("PIL.Image")
    rng, draw = np.random.default_rng(0), random.Random(1)
    for _ in range(300):
        h, w, oh, ow = (draw.choice([1, 2, 3, 17, 64, draw.randint(1, 200)]) for _ in range(4))
        channels, name = draw.choice([1, 3, 4]), draw.choice([*FILTERS])
        pixels = rng.integers(0, 256, (h, w, channels), dtype=np.uint8)
        if draw.random() < 0.3:
            pixels = np.uint8(pixels > 128) * np.uint8(255)
        box = None
        if draw.random() < 0.5:
            left, top = draw.uniform(0, w - 0.5), draw.uniform(0, h - 0.5)
            box = (left, top, draw.uniform(left + 0.1, w), draw.uniform(top + 0.1, h))
        kind = image.Resampling[name.upper()]
        mode = {1: "L", 3: "RGB", 4: "CMYK"}[channels]
        picture = image.frombytes(mode, (w, h), pixels.tobytes())
        expected = picture.resize((ow, oh), kind, box=box).tobytes()
        assert resize_image(pixels.tobytes(), h, w, channels, oh, ow, name, box) == expected
        x = rng.standard_normal((h, w)).astype(np.float32)
        expected = np.asarray(image.fromarray(x).resize((ow, oh), kind, box=box))
        y = np.frombuffer(resize_float(x, h, w, oh, ow, name, box), np.float32)
        assert np.abs(y.reshape(oh, ow) - expected).max() < 1e-5


def test_large_picture_in_pieces():
    """A picture of several pieces has the result of its rows."""
    pixels = noise(3000) * 1600  # 1600 rows of 1000 RGB pixels, 4.8 MB
    once = resize_image(pixels, 1600, 1000, 3, 1, 40, "bilinear")
    assert once == resize_image(pixels[:3000], 1, 1000, 3, 1, 40, "bilinear")


@pytest.mark.parametrize(
    "sizes, name, box, text",
    [
        ((0, 4, 1, 2, 2), "box", None, "height is 0"),
        ((4, 4, 1, 2, -1), "box", None, "out_width is -1"),
        ((4, 4, 1, 2, 2**31), "box", None, "out_width"),
        ((4, 4, 0, 2, 2), "box", None, "channels"),
        ((4, 4, 1, 2, 2), "cubic", None, "no filter 'cubic'"),
        ((4, 4, 1, 2, 2), "box", (0, 0, 5, 4), "the box"),
        ((4, 4, 1, 2, 2), "box", (2, 0, 2, 4), "the box"),
        ((4, 4, 1, 2, 2), "box", (math.nan, 0, 2, 4), "the box"),
        ((4, 4, 1, 2, 2), "box", (0, 2), "a box of 2"),
        ((4, 5, 1, 2, 2), "box", None, "16 bytes"),
    ],
)
def test_refusals(sizes, name, box, text):
    with pytest.raises(InputError, match=text):
        resize_image(bytes(16), *sizes, name, box)


def test_result_that_no_memory_holds():
    with pytest.raises(OutOfMemory):
        resize_image(bytes(16), 4, 4, 1, 1 << 20, 1 << 20, "nearest")


@pytest.mark.parametrize("case", VECTORS["sounds"], ids=lambda c: str(c["rates"]))
def test_sound_vectors(case):
    """The bits that pages must have, too (media.test.ts)."""
    out = resample_audio(memoryview(floats(5000)).cast("f"), *case["rates"])
    assert digest(bytes(out.data)) == case["digest"]


def tone(hz: float, rate: int) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(rate) / rate)


@pytest.mark.parametrize(
    "rate, to_rate",
    [(44100, 16000), (48000, 16000), (44056, 16000), (8000, 16000), (16000, 44100), (16001, 16000)],
)
def test_frequency_response(rate, to_rate):
    """Up to 0.9 of the lower Nyquist frequency a tone stays what it is: 0.001 is 0.009 dB. Above
    that frequency it is gone: 1e-4 is -80 dB.
    """
    nyquist = min(rate, to_rate) / 2
    middle = slice(to_rate // 4, 3 * to_rate // 4)
    for part in (0.01, 0.5, 0.8, 0.9):
        y = np.asarray(resample_audio(tone(part * nyquist, rate).astype("f"), rate, to_rate))
        assert y.shape == (to_rate,)
        assert np.abs(y - tone(part * nyquist, to_rate))[middle].max() < 1e-3
    for part in (1.0, 1.02, 1.3, 1.9) if rate > to_rate else ():
        if part * nyquist < rate / 2:
            y = np.asarray(resample_audio(tone(part * nyquist, rate).astype("f"), rate, to_rate))
            assert np.abs(y[middle]).max() < 1e-4


def test_equals_scipy():
    """Where scipy has the same filter: half the rate, 64 zero crossings, Kaiser's window."""
    signal = pytest.importorskip("scipy.signal")
    x = np.random.default_rng(0).standard_normal(3000)
    t = np.arange(-128, 129)
    taps = np.sinc(0.95 * t / 2) * np.kaiser(257, 9.0)
    taps[[0, -1]] = 0
    expected = signal.resample_poly(x, 1, 2, window=taps / taps.sum())
    y = np.asarray(resample_audio(x.astype("f"), 16000, 8000))
    assert np.abs(y - expected).max() < 2e-6


@pytest.mark.parametrize("length", [0, 1, 2, 100, 4097])
def test_lengths(length):
    out = resample_audio(Array((length,), "float32", bytes(4 * length)), 44100, 16000)
    assert out.shape == (-(-length * 16000 // 44100),)


def test_pieces_give_the_same_bits():
    data = floats(9000)
    with Resampler(44100, 16000) as stream:
        pieces = [stream.feed(data[at : at + 4 * 331]) for at in range(0, len(data), 4 * 331)]
        joined = b"".join(pieces) + stream.end()
    assert joined == bytes(resample_audio(memoryview(data).cast("f"), 44100, 16000).data)


@pytest.mark.parametrize(
    "rate, to_rate, text",
    [
        (0, 16000, "not a whole number"),
        (16000, -1, "not a whole number"),
        (16000.5, 16000, "not a whole number"),
        (2**21, 16000, "not a whole number"),
        (1, 16000, "256 times"),
        ("16000", 16000, "is not a sampling rate"),
    ],
)
def test_rates(rate, to_rate, text):
    with pytest.raises(InputError, match=text):
        resample_audio([0.0], rate, to_rate)


def test_sound_has_one_dimension():
    with pytest.raises(InputError, match="shape"):
        resample_audio(np.zeros((2, 9), "f"), 8000, 16000)

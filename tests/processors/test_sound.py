"""Reading sound: WAV files against the standard library and soundfile, arrays, dictionaries."""

from __future__ import annotations

import io
import struct
import wave

import numpy as np
import pytest
from conformance.vectors import vectors
from edgewise.errors import InputError
from edgewise.processors.audio.decode import read_sound

from processors import make_sounds

SAMPLES = (np.sin(np.arange(900) / 7) * 20000).astype(np.int16)


def wav(samples: np.ndarray, rate: int = 16000, channels: int = 1, width: int = 2) -> bytes:
    """A file of the standard library."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return out.getvalue()


def read(source, rate=16000, **options):
    return np.asarray(read_sound(source, rate, **options).samples)


def test_int16(tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(wav(SAMPLES))
    raw = {"raw": SAMPLES, "sampling_rate": 16000}
    for source in (path, str(path), path.read_bytes(), SAMPLES, raw):
        assert np.array_equal(read(source), SAMPLES.astype("f") / 32768)


@pytest.mark.parametrize("width, scale", [(1, 128), (3, 2**23), (4, 2**31)])
def test_other_widths(width, scale):
    ints = (np.sin(np.arange(500) / 9) * scale * 0.9).astype(np.int64)
    if width == 1:
        data = (ints + 128).astype(np.uint8)
    else:
        data = ints.astype("<i4").view(np.uint8).reshape(-1, 4)[:, :width].copy()
    assert np.allclose(read(wav(data, width=width)), ints / scale, atol=1e-7)


@pytest.mark.parametrize("kind", ["<f4", "<f8"])
def test_floats(kind):
    x = np.sin(np.arange(300) / 5).astype(kind)
    form = struct.pack("<HHIIHH", 3, 1, 16000, 0, 0, 8 * x.itemsize)
    body = b"WAVEJUNK\3\0\0\0abc\0fmt " + struct.pack("<I", 16) + form
    body += b"data" + struct.pack("<I", 0xFFFFFFFF) + x.tobytes()  # as a stream writes it
    assert np.array_equal(read(b"RIFF\0\0\0\0" + body), x.astype("f"))


def test_channels_are_averaged():
    both = np.stack([SAMPLES, SAMPLES[::-1]])
    expected = both.mean(0) / 32768
    assert np.allclose(read(wav(both.T.copy(), channels=2)), expected, atol=1e-7)
    with pytest.warns(UserWarning, match="the array has 2 channels, whose mean is taken"):
        averaged = read({"array": both, "sampling_rate": 16000})
    assert np.allclose(averaged, expected, atol=1e-7)
    with pytest.raises(InputError, match="2 channels"):
        read(both, mono=False)


def test_other_rates_are_resampled():
    t = np.arange(44100) / 44100
    x = np.sin(2 * np.pi * 440 * t).astype("f")
    y = read({"array": x, "sampling_rate": 44100})
    expected = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    assert y.shape == (16000,) and np.abs(y - expected)[500:-500].max() < 1e-3


@pytest.mark.parametrize("form", ["FLAC", "OGG"])
def test_other_files(form):
    soundfile = pytest.importorskip("soundfile")
    out = io.BytesIO()
    soundfile.write(out, SAMPLES, 16000, format=form)
    found = read(out.getvalue())
    tolerance = 1e-7 if form == "FLAC" else 0.1
    assert found.shape == (900,) and np.abs(found - SAMPLES / 32768).max() < tolerance


def test_samples_of_wav_files_are_those_of_pages():
    """The vectors are current, and soundfile's."""
    soundfile = pytest.importorskip("soundfile")
    assert make_sounds.cases() == vectors("audio/sounds")
    for case in make_sounds.CASES:
        file = make_sounds.wav(*case[:4])
        expected, rate = soundfile.read(io.BytesIO(file), dtype="float32", always_2d=True)
        assert rate == case[3]
        found = read(file, rate)
        assert np.abs(found - expected[: len(found)].mean(1, dtype="f8")).max() < 1e-7, case


GOOD = wav(SAMPLES)


@pytest.mark.parametrize(
    "source, text",
    [
        (b"", "empty"),
        (np.zeros(0, "f"), "no samples"),
        (wav(np.zeros(0, np.int16)), "no samples"),
        (GOOD[:12], "no samples"),
        (GOOD[:20], "format is truncated"),
        (GOOD[:12] + b"fmt \4\0\0\0abcd", "format is truncated"),
        (GOOD[:12] + GOOD[36:], "no format"),
        (GOOD[:22] + b"\0\0" + GOOD[24:], "0 channels"),
        (GOOD[:24] + b"\0\0\0\0" + GOOD[28:], "sampling rate 0"),
        (GOOD[:24] + b"\xff\xff\xff\xff" + GOOD[28:], "sampling rate 4294967295"),
        (b"no sound at all", "cannot be decoded|needs the package soundfile"),
        (GOOD[:20] + b"\x55\0" + GOOD[22:60], "cannot be decoded|needs the package soundfile"),
        ("/nowhere/a.wav", "cannot be read"),
        ("https://example.org/a.wav", "does not fetch"),
        ({"array": SAMPLES}, "is not sound"),
        ({"array": SAMPLES, "sampling_rate": "x"}, "is not a sampling rate"),
        ({"array": SAMPLES, "sampling_rate": float("nan")}, "is not a sampling rate"),
        (np.zeros((2, 3, 4), "f"), "shape"),
        (np.zeros(3, np.uint8), "neither a float nor int16"),
        (object(), "not a tensor"),
    ],
)
def test_refusals(source, text):
    with pytest.raises(InputError, match=text):
        read(source)


@pytest.mark.parametrize("seed", range(200))
def test_damaged_files_do_no_harm(seed):
    """Random changes of a file give sound or an InputError."""
    draw = np.random.default_rng(seed)
    data = bytearray(GOOD[: draw.integers(8, len(GOOD))])
    for at in draw.integers(0, min(len(data), 60), 3):
        data[at] = draw.integers(256)
    try:
        assert read(bytes(data)).size
    except InputError:
        pass

"""Long recordings: the same samples as at once, in memory that does not depend on their length."""

from __future__ import annotations

import struct
import tracemalloc
import wave

import numpy as np
import pytest
from edgewise.arrays import Array
from edgewise.errors import InputError
from edgewise.host.media import recording
from edgewise.host.media.recording import Recording, open_sound, part
from edgewise.host.pipelines.whisper_features import WhisperFeatures
from edgewise.processors.audio.decode import read_sound, stream_samples
from edgewise.processors.reader import audio_processor

SECONDS = 100


def samples(count: int, channels: int = 1) -> np.ndarray:
    t = np.arange(count * channels)
    noise = np.random.default_rng(0).integers(-300, 300, count * channels)
    return (12000 * np.sin(t / 11) * np.sin(t / 70000) + noise).astype("<i2")


def write(path, data, rate, channels=1):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(data.tobytes())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture
def short(monkeypatch):
    """Files of more than 5000 frames are long."""
    monkeypatch.setattr(recording, "LONG", 5000)


@pytest.mark.parametrize("rate, channels", [(16000, 1), (16000, 2), (44100, 1), (8000, 2)])
def test_samples_are_those_that_are_read_at_once(folder, short, rate, channels):
    path = write(folder / "a.wav", samples(300_001, channels), rate, channels)
    whole = read_sound(path, 16000).samples
    with open_sound(path, 16000) as found:
        assert isinstance(found, Recording) and found.size == whole.size
        assert b"".join(found.pieces(70_001)) == bytes(whole.data)
        for start, count in ((0, 10), (-5, 8), (77_777, 1000), (found.size - 3, 9), (10**7, 5)):
            assert found.read(start, count) == part(whole, start, count)


def test_files_of_other_formats(folder, short):
    soundfile = pytest.importorskip("soundfile")
    path = folder / "a.flac"
    soundfile.write(path, samples(40_000, 2).reshape(-1, 2), 22050)
    whole = read_sound(path, 16000).samples
    with open_sound(path, 16000) as found:
        assert isinstance(found, Recording)
        assert b"".join(found.pieces()) == bytes(whole.data)


def test_samples_that_are_not_finite(folder, short):
    """In a long file where they are read, in a stream and in memory at once."""
    data = np.zeros(9000, "<f4")
    data[7000] = np.nan
    path = folder / "nan.wav"
    head = struct.pack("<IHHIIHH", 16, 3, 1, 16000, 64000, 4, 32)
    path.write_bytes(
        b"RIFF" + struct.pack("<I", 36 + data.nbytes) + b"WAVEfmt " + head
        + b"data" + struct.pack("<I", data.nbytes) + data.tobytes()
    )  # fmt: skip
    with open_sound(path, 16000) as found:
        assert found.read(0, 7000) == bytes(28000)
        with pytest.raises(InputError, match=r"nan\.wav: samples are not finite"):
            found.read(6999, 2)
    with pytest.raises(InputError, match=r"nan\.wav: samples are not finite"):
        open_sound(path, 8000)
    with pytest.raises(InputError, match="feed: samples are not finite"):
        stream_samples(data)
    for x in (np.inf, -np.inf, 3e38, -(2.0**33)):
        data[7000] = x
        with pytest.raises(InputError, match="feed: samples are not finite"):
            stream_samples(data)
    data[:2] = -(2.0**32), 1e-40
    assert bytes(stream_samples(data[:7000])) == data[:7000].tobytes()
    for given in ("a\0b", b"a\0b"):
        with pytest.raises(InputError):
            open_sound(given, 16000)


def test_what_is_no_long_file(folder, short):
    assert isinstance(open_sound(write(folder / "b.wav", samples(5000), 16000), 16000), Array)
    assert isinstance(open_sound(np.zeros(9000, "f"), 16000), Array)
    for data in (b"RIFF" + bytes(20_000), b"no sound" * 2000, b""):
        (folder / "c.wav").write_bytes(data)
        with pytest.raises(InputError):
            open_sound(folder / "c.wav", 16000)
    with pytest.raises(InputError, match="cannot be read"):
        open_sound("/nowhere/a.wav", 16000)


def whisper():
    config = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80}
    return WhisperFeatures(audio_processor(config))


def test_features_of_a_window_are_those_of_the_recording():
    """transformers' of the whole recording; windows begin anywhere."""
    from transformers import WhisperFeatureExtractor

    x = samples(45 * 16000 + 77).astype("f") / 32768
    extractor = WhisperFeatureExtractor()
    wanted = extractor(x, sampling_rate=16000, truncation=False, padding="longest")
    wanted = wanted["input_features"][0]
    features = whisper()
    found = features(Array((len(x),), "float32", x.tobytes()))
    assert (found.bins, found.frames) == wanted.shape
    for start in (0, 1, 2345, 3000, found.frames - 10):
        window = np.frombuffer(found.window(start, 3000), "f").reshape(80, 3000)
        count = min(3000, found.frames - start)
        assert np.abs(window[:, :count] - wanted[:, start : start + count]).max() < 1e-4
        assert not window[:, count:].any()
    features.close()


@pytest.mark.parametrize("seconds", [2, 30])
def test_a_short_recording_with_a_high_rate_is_padded(folder, short, seconds):
    """Its file has many samples, but it fits a window."""
    path = write(folder / "high.wav", samples(seconds * 96000), 96000)
    features = whisper()
    with open_sound(path, 16000) as found:
        assert isinstance(found, Recording) and found.size == seconds * 16000
        ours = features(found)
    wanted = features(read_sound(path, 16000).samples)
    assert (ours.frames, ours.spoken) == (wanted.frames, wanted.spoken) == (3000, 100 * seconds)
    assert ours.window(0, 3000) == wanted.window(0, 3000)
    features.close()


def test_memory_does_not_depend_on_the_length(folder, short):
    """Samples of 100 s as float32 take 6.4 MB, their features 3.2 MB."""
    path = write(folder / "long.wav", samples(SECONDS * 16000), 16000)
    features = whisper()
    features(Array((31 * 16000,), "float32", bytes(4 * 31 * 16000)))  # compiles the graph
    tracemalloc.start()
    try:
        with open_sound(path, 16000) as found:
            assert isinstance(found, Recording)
            windows = features(found)
            for start in range(0, windows.frames, 3000):
                assert len(windows.window(start, 3000)) == 4 * 80 * 3000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    features.close()
    assert peak < 7e6

"""Speech recognition of streams: whole recordings' words."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from conformance.vectors import vectors
from edgewise import pipeline
from edgewise.errors import InputError

from .. import tiny_audio
from . import make_streams
from .test_ctc import VOCABULARY, sound

REAL = Path(os.environ.get("EDGEWISE_REAL", "/nowhere"))
JFK = REAL / "audio" / "jfk16k.wav"
needs_real = pytest.mark.skipif(not JFK.exists(), reason="EDGEWISE_REAL has no models")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A CTC model of random words, which change with what follows them."""
    pytest.importorskip("transformers")
    folder = tiny_audio.make_ctc(
        tmp_path_factory.mktemp("ctc"), "Wav2Vec2", VOCABULARY, False, False
    )
    with pipeline("asr", folder) as pipe:
        yield pipe


def heard(stream, samples, size, rate=None):
    """All events of a stream that gets pieces of `size` samples."""
    events = []
    for at in range(0, len(samples), size):
        piece = samples[at : at + size]
        events += stream.feed(piece if rate is None else {"array": piece, "sampling_rate": rate})
    return events + stream.end()


def test_a_stream_does_not_depend_on_its_pieces(tiny):
    samples = sound(5, 70000)
    events = heard(tiny.stream(interval=0.5), samples, 1600)
    assert events and events[-1]["partial"] == ""
    assert events == heard(tiny.stream(interval=0.5), samples, 777)
    assert events == heard(tiny.stream(interval=0.5), samples, len(samples))
    # what the last transcript ends with is the end of the stream's text
    whole = [c["text"] for c in tiny(samples, return_timestamps="word")["chunks"]]
    text = "".join(e["committed"] for e in events)
    assert text.endswith(whole[-1])
    times = [e["timestamp"] for e in events if e["timestamp"]]
    assert all(0 <= start <= end <= len(samples) / 16000 for start, end in times)


def test_words_of_a_stream_are_separate(tiny):
    """Those of CTC models have no space of their own."""
    stream = tiny.stream()
    data = sound(5, 30000).tobytes()
    found = tiny(np.frombuffer(data, "f"), return_timestamps="word")["chunks"]
    assert [w["text"] for w in stream._words(data, "")] == [" " + c["text"] for c in found] != []


def test_windows_and_events():
    """Pages share these cases: whole streams, and live ones that fall behind."""
    found = vectors("audio/streams")
    assert found == make_streams.cases()
    for case in found:
        newest = [sum(case["feeds"][: i + 1]) for i in range(len(case["feeds"]))]
        windows = case["windows"]
        words = " ".join(e["committed"].strip() for e in case["events"] if e["committed"]).split()
        numbers = [int(w.strip("w?.")) for w in words]
        assert numbers == sorted(set(numbers))  # none twice
        gaps = [e["skipped"] for e in case["events"] if "skipped" in e]
        spoken = make_streams.words_of(0, newest[-1], case["speech"])
        missing = {int(w["text"].strip(" w?.")) for w in spoken} - set(numbers)
        assert all(any(a < 0.4 * k + 0.3 and 0.4 * k < b for a, b in gaps) for k in missing)
        if not case["live"]:
            assert not gaps
            continue
        assert len(windows) <= len(newest) + 1  # one for each feed, and one for the end
        assert all(count <= 28 * 16000 for _, count, _ in windows)
        if case["voice"] is None:  # they end with the newest sound
            assert {first + count for first, count, _ in windows} <= set(newest)


def test_silence_is_forgotten(tiny, monkeypatch):
    stream = tiny.stream()
    monkeypatch.setattr(stream, "_words", lambda data, before: [])
    for _ in range(60):
        assert stream.feed(np.zeros(16000, "f")) == []
        assert len(stream.heard) <= 4 * 16000 * 29


def test_streams_refuse(tiny):
    for work, text in (
        (lambda: tiny.stream(loud=True), "no option 'loud'"),
        (lambda: tiny.stream(chunk_length_s=5), "no effect in a stream"),
        (lambda: tiny.stream(interval=0), "from 0.1 to 10"),
        (lambda: tiny.stream(live=1), "live: it is 1. Give True or False"),
        (lambda: tiny.stream().feed(np.zeros((2, 3), "f")), "shape"),
        (lambda: tiny.stream().feed({"array": np.zeros(3, "f")}), "not a sampling rate"),
    ):
        with pytest.raises(InputError, match=text):
            work()
    stream = tiny.stream()
    stream.feed({"array": np.zeros(30, "f"), "sampling_rate": 8000})
    with pytest.raises(InputError, match="before was 8000"):
        stream.feed(np.zeros(30, "f"))
    stream.close()


def words_of(events):
    """The words of a transcript, without case and punctuation."""
    text = "".join(e["committed"] for e in events).lower()
    return "".join(c if c.isalnum() or c == "'" else " " for c in text).split()


@needs_real
def test_real_speech():
    from edgewise.processors.audio.decode import read_sound

    samples = np.asarray(read_sound(JFK, 16000).samples)
    with pipeline("asr", REAL / "whisper-tiny.en") as pipe:
        wanted = words_of([{"committed": pipe(JFK)["text"]}])
        assert len(wanted) == 22
        stream = pipe.stream()
        events = heard(stream, samples, 8000)
        assert words_of(events) == wanted
        sizes = [len(e["committed"]) for e in events]
        assert sum(s > 0 for s in sizes) > 4  # text comes while it is spoken
        (at,) = [e["timestamp"] for e in events if "Americans" in e["committed"]]
        assert at[0] < 2.3 and abs(at[1] - 2.24) < 0.3
        # Twice as long: sound is forgotten, the text goes on.
        stream, events = pipe.stream(interval=4.0), []
        for at in range(0, 2 * len(samples), 16000):
            events += stream.feed(np.tile(samples, 2)[at : at + 16000])
            assert len(stream.heard) < 4 * 16000 * 30
        assert words_of(events + stream.end()) == 2 * wanted


@needs_real
def test_real_speech_with_voice_activity():
    """Silence is not transcribed, and ends what is committed; 48 kHz are resampled."""
    from edgewise.processors.audio.decode import read_sound
    from edgewise.processors.media import resample_audio

    samples = np.asarray(read_sound(JFK, 16000).samples)
    quiet = np.zeros(5 * 16000, "f")
    talk = np.concatenate([quiet, samples[: 3 * 16000], quiet])
    high = np.asarray(resample_audio(talk, 16000, 48000))
    detect = pipeline("voice-activity-detection", REAL / "silero-vad" / "silero_vad.onnx")
    with detect, pipeline("asr", REAL / "whisper-tiny.en") as pipe:
        events = heard(pipe.stream(vad=detect), high, 24000, 48000)
        assert words_of(events)[-2:] == ["fellow", "americans"]
        times = [e["timestamp"] for e in events if e["timestamp"]]
        assert times[0][0] > 5 and times[-1][1] < 8
        assert heard(pipe.stream(vad=detect), quiet, 4000) == []

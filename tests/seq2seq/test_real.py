"""Whisper tiny.en on real speech, where EDGEWISE_REAL names the folder of real models."""

import os

import pytest
from edgewise.pipelines import pipeline

REAL = os.environ.get("EDGEWISE_REAL", "")
pytestmark = pytest.mark.skipif(
    not os.path.isdir(os.path.join(REAL, "whisper-tiny.en")), reason="needs EDGEWISE_REAL"
)
TEXT = (
    " And so my fellow Americans ask not what your country can do for you ask what you can do for"
    " your country."
)
# transformers' words of jfk16k.wav: [previous token's time, own time]
FIRST = [(" And", 0.0, 0.76), (" so", 0.76, 1.06), (" my", 1.06, 1.44), (" fellow", 1.44, 1.76)]


def test_speech():
    sound = os.path.join(REAL, "audio", "jfk16k.wav")
    with pipeline("asr", os.path.join(REAL, "whisper-tiny.en")) as pipe:
        assert pipe(sound)["text"] == TEXT.replace("you ask", "you, ask")
        timed = pipe(sound, return_timestamps=True)
        assert timed["text"] == TEXT
        assert [c["timestamp"] for c in timed["chunks"]] == [(0.0, 8.0), (8.0, 11.0)]
        words = pipe(sound, return_timestamps="word")["chunks"]
        for (text, start, end), word in zip(FIRST, words):
            assert word["text"] == text
            assert word["timestamp"] == pytest.approx((start, end), abs=0.02)

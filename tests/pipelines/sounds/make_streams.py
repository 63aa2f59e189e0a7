"""Writes tests/conformance/audio/streams.json: streams of speech whose model is a rule, so that the
engine is not needed, and the windows and events that Python has.

Sound is its own index. A word of 0.3 s begins every 0.4 s where somebody speaks, every twelfth ends
a sentence, and a word near the end of a window is misheard.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from edgewise.host.pipelines.speech.stream import SpeechStream

FILE = Path(__file__).parents[2] / "conformance" / "audio" / "streams.json"
RATE = 16000


def words_of(first: int, count: int, speech: list[list[float]]) -> list[dict[str, Any]]:
    """The words of samples [first, first + count)."""
    begin, end = first / RATE, (first + count) / RATE
    found = []
    for k in range(int(end / 0.4) + 1):
        start = round(0.4 * k, 1)
        stop = round(start + 0.3, 1)
        if start < begin or stop > end or not any(a <= start and stop <= b for a, b in speech):
            continue
        text = f" w{k}" + ("?" if stop > end - 0.4 else "." if k % 12 == 11 else "")
        found.append({"text": text, "timestamp": (start - begin, stop - begin)})
    return found


class Model:
    """Stands for the pipeline."""

    is_ctc = False
    spaced = True
    engine = None

    def __init__(self, speech: list[list[float]]) -> None:
        self.speech, self.windows, self.tokenizer = speech, list[Any](), self
        self.before = ""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        self.before = text.removeprefix("<|startofprev|>")
        return [1]

    def __call__(self, sound: Any, **options: Any) -> dict[str, Any]:
        samples = np.asarray(sound)
        first, count = int(samples[0]), samples.size
        before = self.before if "prompt_ids" in options else ""
        self.windows.append([first, count, before])
        return {"chunks": words_of(first, count, self.speech)}


class Voice:
    """Stands for a stream of voice activity: reports events once so many samples are heard."""

    def __init__(self, script: list[list[Any]]) -> None:
        self.script, self.heard, self.speaking = [*script], 0, False

    def stream(self, **options: Any) -> Voice:
        return self

    def feed(self, samples: Any) -> list[dict[str, int]]:
        self.heard += samples.shape[0]
        found = []
        while self.script and self.script[0][0] <= self.heard:
            event = self.script.pop(0)[1]
            self.speaking = "start" in event
            found.append(event)
        return found


def run(case: dict[str, Any]) -> dict[str, Any]:
    """A case with its windows and events."""
    model = Model(case["speech"])
    vad: Any = None if case["voice"] is None else Voice(case["voice"])
    stream = SpeechStream(model, {}, case["interval"], vad, case["live"])  # type: ignore[arg-type]
    events, at = [], 0
    for count in case["feeds"]:
        events += stream.feed(np.arange(at, at + count, dtype="f"))
        at += count
    events += stream.end()
    return {**case, "windows": model.windows, "events": json.loads(json.dumps(events))}


def cases() -> list[dict[str, Any]]:
    """The contents of the file."""
    s = RATE
    always = [[0, 1000]]
    talks = [[1, 5], [8, 14], [30, 33]]  # what is spoken, and what voice activity finds of it
    voice: list[list[Any]] = []
    for a, b in talks:
        voice.append([int((a + 0.1) * s), {"start": int((a - 0.2) * s)}])
        voice.append([int((b + 0.8) * s), {"end": int((b + 0.2) * s)}])
    base = {"interval": 1.0, "live": False, "voice": None, "speech": always}
    heard = {**base, "speech": talks, "voice": voice}
    slow = [s, 4 * s, 3 * s, 5 * s, 6 * s, 6 * s, 7 * s, 8 * s]  # of a machine that falls behind
    found = [
        {**base, "feeds": [s // 2] * 80},
        {**base, "feeds": [40 * s]},
        {**base, "live": True, "feeds": slow},
        {**base, "live": True, "feeds": [5 * s, 60 * s, 2 * s, 31 * s]},
        {**base, "live": True, "interval": 2.0, "feeds": [s // 2] * 20},
        {**heard, "feeds": [s // 4] * 148},
        {**heard, "feeds": [37 * s]},
        {**heard, "live": True, "feeds": slow},
        {**heard, "live": True, "feeds": [3 * s, 30 * s, 2 * s]},
        {**heard, "live": True, "feeds": [s // 4] * 148},
    ]
    return [run(case) for case in found]


if __name__ == "__main__":
    FILE.write_text(json.dumps(cases(), separators=(",", ":")) + "\n")

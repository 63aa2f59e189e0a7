"""Writes tests/conformance/audio/agreement.json: transcripts of a growing recording, and what
whisper_streaming commits of them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

Timed = tuple[float, float, str]


class HypothesisBuffer:
    """Copied from whisper_streaming (Macháček, MIT license), whisper_online.py, without its log."""

    def __init__(self):
        self.commited_in_buffer = []
        self.buffer = []
        self.new = []
        self.last_commited_time = 0
        self.last_commited_word = None

    def insert(self, new, offset):
        new = [(a + offset, b + offset, t) for a, b, t in new]
        self.new = [(a, b, t) for a, b, t in new if a > self.last_commited_time - 0.1]
        if len(self.new) >= 1:
            a, b, t = self.new[0]
            if abs(a - self.last_commited_time) < 1:
                if self.commited_in_buffer:
                    cn = len(self.commited_in_buffer)
                    nn = len(self.new)
                    for i in range(1, min(min(cn, nn), 5) + 1):
                        c = " ".join(
                            [self.commited_in_buffer[-j][2] for j in range(1, i + 1)][::-1]
                        )
                        tail = " ".join(self.new[j - 1][2] for j in range(1, i + 1))
                        if c == tail:
                            for _ in range(i):
                                self.new.pop(0)
                            break

    def flush(self):
        commit = []
        while self.new:
            na, nb, nt = self.new[0]
            if len(self.buffer) == 0:
                break
            if nt == self.buffer[0][2]:
                commit.append((na, nb, nt))
                self.last_commited_word = nt
                self.last_commited_time = nb
                self.buffer.pop(0)
                self.new.pop(0)
            else:
                break
        self.buffer = self.new
        self.new = []
        self.commited_in_buffer.extend(commit)
        return commit

    def pop_commited(self, time):
        while self.commited_in_buffer and self.commited_in_buffer[0][1] <= time:
            self.commited_in_buffer.pop(0)

    def complete(self):
        return self.buffer


def case(seed: int) -> dict[str, Any]:
    """Transcripts of words with wrong ends and shifted times; some words are spoken twice."""
    draw = random.Random(seed)
    spoken: list[Timed] = []
    at = 0.0
    for _ in range(14):
        length = draw.choice([0.2, 0.4, 0.6])
        spoken.append((at, at + length, draw.choice([" a", " b", " c", " d"])))
        at += length + draw.choice([0.0, 0.1])
    buffer, passes, first = HypothesisBuffer(), [], 0.0
    for end in range(1, 9):
        words = []
        for a, b, t in spoken:
            if a < first or b > end:
                continue
            shift = draw.choice([0.0, 0.0, 0.05, -0.05])
            wrong = draw.random() < (0.5 if b > end - 0.5 else 0.05)
            words.append((round(a + shift, 2), round(b + shift, 2), " x" if wrong else t))
        buffer.insert(words, 0)
        committed = buffer.flush()
        forget = None
        if end % 3 == 0 and buffer.commited_in_buffer:
            forget = first = buffer.commited_in_buffer[-1][1]
            buffer.pop_commited(forget)
        partial = buffer.complete()
        passes.append(
            {
                "words": words,
                "committed": [list(w) for w in committed],
                "partial": [list(w) for w in partial],
                "forget": forget,
            }
        )
        buffer.buffer = list(partial)
    return {"passes": json.loads(json.dumps(passes))}


def cases() -> list[dict[str, Any]]:
    """What whisper_streaming commits."""
    return [case(seed) for seed in range(12)]


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "conformance" / "audio" / "agreement.json"
    path.write_text(json.dumps(cases()).replace('{"passes"', '\n{"passes"') + "\n")

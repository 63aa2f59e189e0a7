"""Sound that models make, and the sentences that they speak."""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

from ....compiler.arrays import as_input
from ....logic.speech.sentences import Sentences

__all__ = ["Speech", "sentences"]


class Speech(dict[str, Any]):
    """A result: {"audio": float32 [1, samples], "sampling_rate": Hz}, and of `stream` "text"."""

    def to_wav(self) -> bytes:
        """The sound as a WAV file of 16 bits. What exceeds -1 to 1 is cut."""
        values = array("f", memoryview(as_input(self["audio"], "audio")[2]).cast("B").tobytes())
        pcm = array("h", [round(max(-1.0, min(1.0, x)) * 32767) for x in values])
        data, rate = struct.pack(f"<{len(pcm)}h", *pcm), self["sampling_rate"]
        head = struct.pack(
            "<4sI8sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVEfmt ", 16, 1, 1,
            rate, 2 * rate, 2, 16, b"data", len(data),
        )  # fmt: skip
        return head + data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a WAV file."""
        with open(path, "wb") as file:
            file.write(self.to_wav())


def sentences(pieces: Iterable[str]) -> Iterator[str]:
    """The sentences of a text in pieces, each as soon as it is known to have ended."""
    logic = Sentences()
    for piece in pieces:
        yield from logic.feed(piece)
    yield from logic.end()

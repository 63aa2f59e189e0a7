"""Recognition with CTC models: text and times, from the token of each frame. Mirrors transformers'
Wav2Vec2CTCTokenizer.decode, and its pipeline's chunks.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import InputError
from ..native import option, written
from .chunks import Chunk, Done, Hear, chunk_lengths, chunks_of

# Spaces before punctuation that clean_up_tokenization of transformers removes.
CLEANED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a CTC model, as packages describe them.

    Attributes:
        tokens: by id; None where there is none.
        blank: the token between two equal ones.
        unknown: the token of other ids.
        delimiter: the token that becomes `space`.
        lower: whether text is in lower case.
        clean_up: whether spaces before punctuation are removed.
    """

    tokens: Sequence[str | None]
    blank: str
    unknown: str
    delimiter: str
    space: str
    lower: bool
    clean_up: bool


class Span(NamedTuple):
    """A character or word, and the frames from `start` to `end` (exclusive) that it was read in."""

    text: str
    start: int
    end: int


def characters_of(vocabulary: Vocabulary, ids: Sequence[int]) -> list[Span]:
    """The characters that the tokens of frames are: repeated ones are one, blanks are left out."""
    found: list[Span] = []
    last: str | None = None
    for i, token_id in enumerate(ids):
        known = vocabulary.tokens[token_id] if 0 <= token_id < len(vocabulary.tokens) else None
        token = vocabulary.unknown if known is None else known
        if token != vocabulary.blank:
            if token == last:
                before = found[-1]
                found[-1] = Span(before.text, before.start, i + 1)
            else:
                text = vocabulary.space if token == vocabulary.delimiter else token
                found.append(Span(text, i, i + 1))
        last = token
    return found


def words_of(vocabulary: Vocabulary, characters: Sequence[Span]) -> list[Span]:
    """The words that characters form."""
    words: list[Span] = []
    inside = False
    for one in characters:
        if one.text == vocabulary.space:
            inside = False
        elif inside:
            word = words[-1]
            words[-1] = Span(word.text + one.text, word.start, one.end)
        else:
            words.append(one)
            inside = True
    return words


def text_of(vocabulary: Vocabulary, characters: Sequence[Span]) -> str:
    """The text of characters, without spaces at its ends."""
    text = "".join(one.text for one in characters).strip()
    if vocabulary.lower:
        text = text.lower()
    if vocabulary.clean_up:
        text = cleaned(text)
    return text


def cleaned(text: str) -> str:
    """A text without spaces before punctuation."""
    for part in CLEANED:
        text = text.replace(part, part.strip())
    return text


def frames_in(windows: Sequence[Sequence[int]], count: int) -> int:
    """Frames that convolutions make of so many samples. windows: [size, step] of each."""
    for window in windows:
        count = (count - window[0]) // window[1] + 1
    return max(count, 0)


def frames_of(chunk: Chunk, samples: int) -> tuple[int, int]:
    """The frames [first, end) of a chunk without those of its overlaps. samples: of a frame."""
    frames = round(chunk.length / samples)
    first = round(chunk.left / chunk.length * frames)
    return first, frames - round(chunk.right / chunk.length * frames)


@dataclass(frozen=True)
class Frames:
    """How the samples of a recording become frames.

    Attributes:
        rate: Hz.
        samples: of a frame.
        windows: [size, step] of the model's convolutions, which give its frames; none: not known.
        most: samples that the model takes at once; None: any number.
        padded: whether the model may get silence after the sound.
    """

    rate: int
    samples: int
    windows: Sequence[Sequence[int]]
    most: int | None
    padded: bool


def times_of(options: Mapping[str, Any]) -> str:
    """The option return_timestamps: "char", "word" or "" for none."""
    value: object = options.get("return_timestamps")
    if value is None or value is False:
        return ""
    if value != "char" and value != "word":
        raise InputError(
            f"CTC models have no times of kind {written(value)}",
            option("return_timestamps"),
            f'Give {written(False)}, "char" or "word".',
        )
    return str(value)


def divided(frames: Frames, options: Mapping[str, Any], count: int) -> tuple[list[Chunk], bool]:
    """The chunks of a recording, and whether their overlaps are left out: where chunk_length_s is
    given, or the recording is too long for the model. Args and errors as of `recognized`.
    """
    seconds: object = options.get("chunk_length_s")
    most = frames.most
    if (seconds is None or seconds == 0) and most is not None and count > most:
        seconds = most // frames.samples * frames.samples / frames.rate  # of whole frames
    if seconds is None or seconds == 0:
        return [Chunk(0, count, 0, 0)], False
    stride: object = options.get("stride_length_s")
    size, before, after = chunk_lengths(seconds, stride, frames.rate, frames.samples)
    return chunks_of(count, size, before, after), True


def recognized(
    frames: Frames, options: Mapping[str, Any], count: int
) -> Generator[Hear | Done, Any, list[int]]:
    """The token of each frame of a recording.

    Args:
        frames: of the model.
        options: of the call; these are chunk_length_s and stride_length_s. A recording that is too
            long for the model is divided in any case.
        count: samples of the recording.

    Raises:
        InputError: see `chunk_lengths`.
    """
    chunks, cut = divided(frames, options, count)
    ids: list[int] = []
    for chunk in chunks:
        found: list[int] = yield Hear(chunk.start, chunk.length)
        first, end = 0, len(found)
        if cut:
            first, end = frames_of(chunk, frames.samples)
        if frames.padded:
            end = min(end, _frames_without_silence(frames, chunk.length))
        ids += found[first:end]
        yield Done(chunk.start + chunk.length, count)
    return ids


def _frames_without_silence(frames: Frames, count: int) -> int:
    if frames.windows:
        return frames_in(frames.windows, count)
    return round(count / frames.samples)


def transcript(
    vocabulary: Vocabulary, frames: Frames, ids: Sequence[int], times: str
) -> dict[str, Any]:
    """The result for a recording: {"text"}, and with times {"chunks": [{"text", "timestamp"}]}.

    Args:
        vocabulary, frames: of the model.
        ids: the token of each frame.
        times: of `times_of`.
    """
    spans = characters_of(vocabulary, ids)
    text = text_of(vocabulary, spans)
    if not times:
        return {"text": text}
    parts = words_of(vocabulary, spans) if times == "word" else spans
    size, rate = frames.samples, frames.rate
    chunks: list[dict[str, Any]] = [
        {"text": s.text, "timestamp": (s.start * size / rate, s.end * size / rate)} for s in parts
    ]
    return {"text": text, "chunks": chunks}

"""Recognition with Moonshine: an encoder of samples, and a decoder."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from typing import Any

from .chunks import Done, Hear, chunk_lengths, chunks_of, joined_tokens

MODEL_TYPES = ("moonshine", "moonshine_streaming")
TOKENS = 6  # most of a second of speech: without speech the model would go on to its limit


def recognized(
    options: Mapping[str, Any], rate: int, count: int
) -> Generator[Hear | Done, Any, list[int]]:
    """The tokens of a recording.

    Args:
        options: of the call; these are chunk_length_s and stride_length_s.
        rate: Hz.
        count: samples of the recording.

    Raises:
        InputError: see `chunk_lengths`.
    """
    seconds: object = options.get("chunk_length_s")
    if seconds is None or seconds == 0:
        ids: list[int] = yield Hear(0, count)
        yield Done(count, count)
        return ids
    size, before, after = chunk_lengths(seconds, options.get("stride_length_s"), rate)
    joined: list[int] = []
    for chunk in chunks_of(count, size, before, after):
        found: list[int] = yield Hear(chunk.start, chunk.length)
        joined = joined_tokens(joined, found) if joined else found
        yield Done(chunk.start + chunk.length, count)
    return joined


def fields_of(fields: dict[str, Any], count: int, rate: int, room: int) -> dict[str, Any]:
    """The fields of GenerationConfig for a sound, with a limit of its tokens.

    Args:
        fields: of the call.
        count: samples of the sound.
        rate: Hz.
        room: tokens that the decoder has room for.
    """
    if fields.get("max_new_tokens") is not None or fields.get("max_length") is not None:
        return fields
    return {**fields, "max_new_tokens": min(room, math.ceil(TOKENS * count / rate))}


def without_marks(ids: list[int], config: dict[str, Any]) -> list[int]:
    """Tokens without those of begin and end. config: generation_config.json."""
    marks: list[int] = []
    for name in ("bos", "eos", "pad", "decoder_start"):
        mark: int | list[int] | None = config.get(f"{name}_token_id")
        if isinstance(mark, list):
            marks += mark
        elif mark is not None:
            marks.append(mark)
    return [i for i in ids if i not in marks]

"""Which plans of an encoder-decoder model run, and what those of times of words get."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import InputError
from ..native import setting


def encoder_for(sizes: Sequence[int], count: int, unit: str) -> int:
    """The index of the encoder's plans for an input.

    Args:
        sizes: tokens or positions of the plans, ascending.
        count: of the input.
        unit: "tokens" or "positions".

    Raises:
        InputError: the input is empty or too long.
    """
    if not count:
        raise InputError(f"there are no {unit}", "encode", "Give at least one.")
    found = len([size for size in sizes if size < count])
    if found < len(sizes):
        return found
    tokens = f"Shorten the input, or give {setting('truncation', True)} to the pipeline."
    raise InputError(
        f"the input has {count} {unit}, and the model takes at most {sizes[-1]}",
        "encode",
        tokens if unit == "tokens" else "Give a shorter sound, or chunk_length_s.",
    )


def aligner_for(sizes: Sequence[int], count: int, skip: int, length: int, positions: int) -> int:
    """The index of the plan for times of words.

    Args:
        sizes: tokens of the plans, ascending.
        count: decoder tokens, prompt included.
        skip: number of first tokens that do not count.
        length: number of positions that count.
        positions: of the source.

    Raises:
        InputError: the model was compiled without alignment heads, or there are too many tokens.
    """
    if not sizes:
        raise InputError(
            "the model was compiled without alignment heads", "align", "Use a Whisper model."
        )
    found = len([size for size in sizes if size < count])
    if found == len(sizes) or not 0 <= skip < count or not 0 < length <= positions:
        raise InputError(
            f"{count} tokens, {skip} of which are skipped, and {length} positions do not fit"
            f" a model for {sizes[-1]} tokens and {positions} positions",
            "align",
            "Give fewer tokens.",
        )
    return found


def shares(count: int, skip: int, size: int) -> list[float]:
    """The input `rows` of a plan for times of words: how much each of `size` tokens counts."""
    share = 1 / (count - skip)
    return [share if skip <= i < count else 0.0 for i in range(size)]


def reflected(length: int, positions: int, width: int) -> list[int]:
    """The input `frames` of a plan for times of words: the positions that weights are taken from.

    Args:
        length: number of first positions that count; what is beyond both ends is reflected, as by
            torch's mode "reflect".
        positions: of the source.
        width: of the median filter.
    """
    half = width // 2
    out: list[int] = []
    for i in range(-half, positions + width - 1 - half):
        at = abs(min(i, length + half - 1))
        at = 2 * (length - 1) - at if at >= length else at
        out.append(min(max(at, 0), length - 1))
    return out

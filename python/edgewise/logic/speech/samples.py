"""What happens to samples before a processor's graph, as its description says, and the parts of a
recording that a model gets.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InputError
from ..manifest.processor import AudioFields, SoundLength, SoundMask, SoundWindows


@dataclass(frozen=True)
class Input:
    """The inputs of a processor's graph.

    Attributes:
        total: samples that the graph gets.
        valid: frames within the sound; None: the graph does not take their number.
        mask: (ones, ones and zeros) of the model's mask; None: it has none.
    """

    total: int
    valid: int | None
    mask: tuple[int, int] | None


def input_of(sound: AudioFields, count: int) -> Input:
    """The inputs for so many samples.

    Raises:
        InputError: there are too few, or too many.
    """
    total = total_of(sound, count)
    used = min(count, total)
    frames, mask = sound.get("frames"), sound.get("mask")
    return Input(
        total,
        None if frames is None else (used - frames[0]) // frames[1] + 1,
        None if mask is None else mask_sizes(mask, used, total),
    )


def total_of(sound: AudioFields, count: int) -> int:
    """The number of samples that the graph gets for `count` samples. Raises as `input_of`."""
    length = sound["length"]
    least, kind, rate = length["least"], sound["type"], sound["sampling_rate"]
    if count < least:
        raise InputError(
            f"the sound has {count} samples, {kind} needs {least}",
            "audio",
            "Give a longer recording.",
        )
    total = _length(length, count)
    if count > total and not length["truncate"]:
        raise InputError(
            f"the sound has {count} samples, {kind} takes {total}",
            "audio",
            f"Cut it to {total / rate:g} s.",
        )
    return total


def _length(length: SoundLength, count: int) -> int:
    exact, chunk, stride = length.get("exact"), length["chunk"], length["stride"]
    if exact is not None:
        return exact
    if chunk:
        return (-(-count // stride) - 1) * stride + chunk
    multiple = length["multiple"]
    return -(-count // multiple) * multiple


def repeated(length: SoundLength, count: int, total: int) -> int:
    """How many of `total` samples are the sound, repeated where the processor says it; zeros are
    after them.
    """
    if count >= total or length["repeat"] == "repeat":
        return total
    return total // count * count if length["repeat"] else count


def mask_sizes(mask: SoundMask, count: int, total: int) -> tuple[int, int]:
    """(number of ones, number of ones and zeros) of a mask. total: samples with padding."""
    hop, base, group = mask["hop"], int(mask["base"]), mask["group"]
    valid = (count - base) // hop + int(mask["valid"])
    steps = (total - base) // hop + int(mask["more"])
    groups = -(-steps // group)
    return min(max(valid, 0) // group, groups), groups


def longest(sound: AudioFields) -> int | None:
    """The most samples that a package takes at once; None: it does not say."""
    span, lengths = sound.get("any_length"), sound.get("lengths")
    if span is not None:
        return span[1]
    return None if lengths is None else lengths[-1]


def check_longest(sound: AudioFields, count: int, task: str) -> None:
    """Raises InputError where there are more samples than a package takes."""
    most, rate = longest(sound), sound["sampling_rate"]
    if most is not None and count > most:
        raise InputError(
            f"the sound has {count / rate:.1f} s, this package takes {most / rate:g} s",
            task,
            "Give a shorter one, or build the package with a larger --max-length.",
        )


def plan_length(sound: AudioFields, count: int) -> int | None:
    """The samples that a package has a plan for, at least `count`; None: the processor says it."""
    span, lengths = sound.get("any_length"), sound.get("lengths")
    if span is not None:
        return max(span[0], _length(sound["length"], count))
    for length in lengths or []:
        if length >= count:
            return length
    return None


def voice_parts(sound: AudioFields, count: int) -> list[tuple[int, int]]:
    """(first sample, samples) of the parts of a recording of which a voice's vector is the mean.
    What is outside of the recording is zeros.
    """
    windows = sound.get("windows")
    if windows is not None:
        return [(at - windows["before"], windows["size"]) for at in window_starts(windows, count)]
    span, lengths = sound.get("any_length"), sound.get("lengths")
    if (span is None and lengths is None) or (span is not None and count <= span[1]):
        return [(0, count)]
    known = [span[1]] if span is not None else lengths or []
    size = known[0]
    for length in known:
        if length <= count:
            size = length
    parts = max(1, -(-count // size))
    if parts == 1:
        return [(0, size)]
    return [(int(i * (count - size) / (parts - 1) + 0.5), size) for i in range(parts)]


def window_starts(windows: SoundWindows, count: int) -> list[int]:
    """Where the parts of `count` samples begin: those of Resemblyzer's compute_partial_slices."""
    unit, span, hop = windows["unit"], windows["span"], windows["hop"]
    units = -(-(count + 1) // unit)
    steps = max(1, units - (span - hop) // unit + 1)
    starts = list(range(0, steps * unit, hop))
    if len(starts) > 1 and count - starts[-1] < windows["coverage"] * span:
        starts.pop()
    return starts

"""Segments of speech from probabilities: silero-vad's get_speech_timestamps, and its VADIterator
for streams.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ...errors import InputError
from ..native import option, written
from ..options import read_count, read_flag, read_within, refused

# By sampling rate: samples of a window of Silero VAD, and of those before it.
WINDOWS = {16000: (512, 64), 8000: (256, 32)}
# The options of a call, with their defaults.
OPTIONS: dict[str, Any] = {
    "sampling_rate": 16000,
    "threshold": 0.5,
    "neg_threshold": None,
    "min_speech_duration_ms": 250,
    "max_speech_duration_s": math.inf,
    "min_silence_duration_ms": 100,
    "speech_pad_ms": 30,
    "min_silence_at_max_speech": 98,
    "return_seconds": False,
    "time_resolution": 1,
}
# Those that apply to a stream.
STREAM_OPTIONS = (
    "sampling_rate",
    "threshold",
    "neg_threshold",
    "min_silence_duration_ms",
    "speech_pad_ms",
)
# Options for a stream of which the speech is recognized.
STREAM: dict[str, Any] = {
    "sampling_rate": 16000,
    "min_silence_duration_ms": 700,
    "speech_pad_ms": 200,
}


@dataclass(frozen=True)
class VoiceRules:
    """How probabilities become segments.

    Attributes:
        sampling_rate: Hz.
        window: samples of a probability.
        threshold: speech begins where a probability reaches it.
        neg_threshold: speech may end where one is below it.
        min_speech_ms: shorter segments are dropped.
        max_speech_s: longer segments are divided, at their longest silence if possible.
        min_silence_ms: shorter silences do not end a segment.
        pad_ms: padding at both ends.
        min_silence_at_max_ms: silences at which a segment that is too long may be divided.
    """

    sampling_rate: int = 16000
    window: int = 512
    threshold: float = 0.5
    neg_threshold: float = 0.35
    min_speech_ms: float = 250
    max_speech_s: float = float("inf")
    min_silence_ms: float = 100
    pad_ms: float = 30
    min_silence_at_max_ms: float = 98


class Segment(TypedDict):
    """Speech, in samples."""

    start: int
    end: int


class Event(TypedDict, total=False):
    """Speech begins or ends at a sample of a stream."""

    start: int
    end: int


def rules_of(options: Mapping[str, Any]) -> VoiceRules:
    """The rules that the options of a call state. Raises InputError."""
    given: object = options.get("sampling_rate")
    rate = 8000 if given == 8000 else 16000
    if given is not None and given != rate:
        raise InputError(
            f"the sampling rate {written(given)} is not one of the model's",
            option("sampling_rate"),
            "Use 16000 or 8000; give sound of another rate with its sampling_rate.",
        )
    threshold = read_within(options, "threshold", 0.5, 0, 1)
    return VoiceRules(
        rate,
        WINDOWS[rate][0],
        threshold,
        read_within(options, "neg_threshold", max(threshold - 0.15, 0.01), 0, 1),
        _duration(options, "min_speech_duration_ms"),
        _duration(options, "max_speech_duration_s"),
        _duration(options, "min_silence_duration_ms"),
        _duration(options, "speech_pad_ms"),
        _duration(options, "min_silence_at_max_speech"),
    )


def _duration(options: Mapping[str, Any], name: str) -> float:
    otherwise: float = OPTIONS[name]
    return read_within(options, name, otherwise, 0, math.inf)


def digits_of(options: Mapping[str, Any]) -> int | None:
    """The decimals of times in seconds; None: times are in samples. Raises InputError."""
    digits = read_count(options, "time_resolution", 0)
    if digits is not None and digits > 9:
        raise refused("time_resolution", digits, "Give an integer from 0 to 9.")
    if not read_flag(options, "return_seconds"):
        return None
    return 1 if digits is None else digits


def times_of(
    segments: Sequence[Segment], rate: int, count: int, digits: int | None
) -> list[dict[str, Any]]:
    """The result of a call.

    Args:
        segments: of `segments_of`.
        rate: Hz.
        count: samples of the recording.
        digits: see `digits_of`.
    """
    if digits is None:
        return [{"start": s["start"], "end": s["end"]} for s in segments]
    return [
        {
            "start": max(round(s["start"] / rate, digits), 0),
            "end": min(round(s["end"] / rate, digits), count / rate),
        }
        for s in segments
    ]


def samples_of(rules: VoiceRules, milliseconds: float) -> float:
    """A duration in samples."""
    return rules.sampling_rate * milliseconds / 1000


def segments_of(
    probabilities: Sequence[float], rules: VoiceRules, length: int | None = None
) -> list[Segment]:
    """The segments of a recording.

    Args:
        probabilities: of each window.
        rules: thresholds and durations.
        length: samples of the recording; by default all windows are whole.

    Returns:
        [{"start", "end"}] in samples
    """
    total = len(probabilities) * rules.window if length is None else length
    return _padded(_found(probabilities, rules, total), rules, total)


def _found(probabilities: Sequence[float], rules: VoiceRules, total: int) -> list[Segment]:
    least, pad = samples_of(rules, rules.min_speech_ms), samples_of(rules, rules.pad_ms)
    most = rules.sampling_rate * rules.max_speech_s - rules.window - 2 * pad
    silence = samples_of(rules, rules.min_silence_ms)
    divides = samples_of(rules, rules.min_silence_at_max_ms)
    segments: list[Segment] = []
    start: int | None = None  # of the current segment
    quiet = 0  # where the current silence began; 0: there is none
    silences: list[tuple[int, int]] = []  # (start, samples) within the segment
    for i, probability in enumerate(probabilities):
        at = rules.window * i
        if probability >= rules.threshold:
            if quiet:
                if at - quiet > divides:
                    silences.append((quiet, at - quiet))
                quiet = 0
            if start is None:
                start = at
                continue
        if start is not None and at - start > most:
            if not silences:
                segments.append({"start": start, "end": at})
                start, quiet = None, 0
                continue
            end, samples = max(silences, key=lambda s: s[1])
            segments.append({"start": start, "end": end})
            start, quiet, silences = end + samples, 0, []
        if start is not None and probability < rules.neg_threshold:
            quiet = quiet or at
            if at - quiet >= silence:
                if quiet - start > least:
                    segments.append({"start": start, "end": quiet})
                start, quiet, silences = None, 0, []
    if start is not None and total - start > least:
        segments.append({"start": start, "end": total})
    return segments


def _padded(segments: list[Segment], rules: VoiceRules, total: int) -> list[Segment]:
    """Adds pad_ms at both ends; neighbours share a silence that is too short for it."""
    pad = samples_of(rules, rules.pad_ms)
    for i, segment in enumerate(segments):
        if not i:
            segment["start"] = int(max(0, segment["start"] - pad))
        if i == len(segments) - 1:
            segment["end"] = int(min(total, segment["end"] + pad))
            break
        following = segments[i + 1]
        silence = following["start"] - segment["end"]
        if silence < 2 * pad:
            segment["end"] += silence // 2
            following["start"] = max(0, following["start"] - silence // 2)
        else:
            segment["end"] = int(min(total, segment["end"] + pad))
            following["start"] = int(max(0, following["start"] - pad))
    return segments


class VoiceEvents:
    """Beginnings and ends of speech in a stream of probabilities.

    Args:
        rules: thresholds and durations; min_speech_ms and max_speech_s are for recordings.
    """

    def __init__(self, rules: VoiceRules) -> None:
        self.rules = rules
        self.at = self.quiet = 0
        self.speaking = False

    def next(self, probability: float) -> Event | None:
        """{"start": sample} or {"end": sample} if speech begins or ends, else None."""
        rules = self.rules
        self.at += rules.window
        pad = samples_of(rules, rules.pad_ms)
        if probability >= rules.threshold:
            self.quiet = 0
            if not self.speaking:
                self.speaking = True
                return {"start": int(max(0, self.at - pad - rules.window))}
        if probability < rules.neg_threshold and self.speaking:
            self.quiet = self.quiet or self.at
            if self.at - self.quiet >= samples_of(rules, rules.min_silence_ms):
                end = int(self.quiet + pad - rules.window)
                self.quiet, self.speaking = 0, False
                return {"end": end}
        return None

"""Videos as frames, of SmolVLM, and of Qwen2-VL and Qwen2.5-VL, whose encoder sees two at once.
Mirrors processing_*.py and video_processing_*.py of transformers/models/smolvlm and qwen2_5_vl.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from ....errors import InputError
from ...images.geometry import Size
from ...images.views import ViewRule
from ..asking import TASK, Clip
from ..prompt import Shown, with_texts

USUAL_RATE = 24.0
"""Frames per second of a video of which nobody says how many it has."""
CHOSEN_RATE = 2.0
"""The same, of frames that the encoder sees together."""
SKIPPED = 1
"""Seconds at the beginning and the end of a long video that are left out."""


class VideoRule(TypedDict):
    """How a family sees videos.

    Fields:
        placeholder: of a video in the text of a chat template.
        longest: pixels of the longer side of a frame before it becomes a square.
        filter: with which it is resized.
        rate: frames per second that are taken; 0: all are.
        most: frames at most.
        together: consecutive frames that the encoder sees at once; the last one is repeated.
        pixels: least and most of a frame, where they are seen together.
        interval: positions per second; 0: one for all that are seen together.
    """

    placeholder: str
    longest: int
    filter: str
    rate: float
    most: int
    together: int
    pixels: tuple[int, int]
    interval: float


def frame_rule(rule: ViewRule, video: VideoRule) -> ViewRule:
    """What is seen of a frame: of SmolVLM a square, which is not divided.

    Args:
        rule: of pictures.
        video: of videos.
    """
    found: ViewRule = {**rule}
    if video["together"] > 1:
        found["least"], found["most"] = video["pixels"]
        return found
    found["split"] = False
    found["longest"] = video["longest"]
    found["filter"] = video["filter"]
    return found


def sampled(video: VideoRule, count: int, rate: float | None) -> list[int]:
    """Indices of the frames that are taken.

    Args:
        video: of the family.
        count: of all frames.
        rate: frames per second; None: the caller has chosen the frames.

    Raises:
        InputError: there are no frames, or the rate is no positive number.
    """
    if count < 1:
        raise InputError("a video has no frames", TASK, "Give at least one.")
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise InputError(f"{rate} frames per second", "fps", "Give a positive number.")
    if rate is None or not video["rate"]:
        return list(range(count))
    seconds = count / rate
    wanted = max(min(int(round(video["rate"] * seconds)), video["most"]), 1)
    start, end = 0, count - 1
    if seconds - 2 * SKIPPED > video["most"] * video["rate"]:
        start = max(int(SKIPPED * rate), 0)
        end = min(int(count - SKIPPED * rate), count - 1)
        if start >= end:
            start, end = 0, count - 1
    found: list[int] = []
    for i in range(wanted):
        at = start
        if i:  # as numpy.linspace, whose last number is the end itself
            step = (end - start) / (wanted - 1)
            at = end if i == wanted - 1 else math.floor(start + i * step)
        if not found or found[-1] != at:
            found.append(at)
    return found


def video_text(frames: list[Shown], indices: list[int], count: int, rate: float | None) -> str:
    """What stands for a video.

    Args:
        frames: what stands for each frame.
        indices: of the frames among all.
        count: of all frames.
        rate: frames per second; None: unknown.
    """
    of = USUAL_RATE if rate is None else rate
    seconds = int(indices[-1] / of) if rate is None else int(count / of)
    minutes = seconds // 60
    length = f"{minutes // 60}:{_two(minutes % 60)}:{_two(seconds % 60)}"
    if minutes >= 24 * 60:
        days = minutes // (24 * 60)
        rest = f"{minutes // 60 % 24}:{_two(minutes % 60)}:{_two(seconds % 60)}"
        length = f"{days} day{'s' if days > 1 else ''}, {rest}"
    parts = [
        f"You are provided the following series of {_words(len(frames))} frames from a {length}"
        " [H:MM:SS] video.\n"
    ]
    for frame, i in zip(frames, indices):
        at = i / of
        parts.append(f"\nFrame from {_two(int(at // 60))}:{_two(int(at % 60))}:{frame.text}")
    parts.append("\n\n")
    return "".join(parts)


@dataclass
class Chosen:
    """The pictures of an input that are seen.

    Attributes:
        taken: (indices among those of the input, whether they are frames of a video), in order: of
            one, or of frames that are seen together.
        videos: of each its place among `taken`, the indices of its frames, how many it had, and
            the rate.
    """

    taken: list[tuple[list[int], bool]]
    videos: list[tuple[int, list[int], int, float | None]]


def chosen_of(video: VideoRule | None, pictures: Sequence[object], clips: list[Clip]) -> Chosen:
    """The pictures of an input, and the frames of its videos that are taken.

    Args:
        video: of the family; None: it has none.
        pictures: of the input.
        clips: of the input.

    Raises:
        InputError: the family sees no videos, or as `sampled`.
    """
    chosen = Chosen([], [])
    at = 0
    if clips and video is None:
        raise InputError(
            "the model sees no videos",
            TASK,
            'Give some of its frames as pictures, each in a part {"type": "image", "image": ...}.',
        )
    for clip in clips:
        chosen.taken += [([i], False) for i in range(at, clip.first)]
        if video is not None:
            indices = sampled(video, clip.count, clip.rate)
            chosen.videos.append((len(chosen.taken), indices, clip.count, clip.rate))
            last, side = len(indices) - 1, video["together"]
            for start in range(0, len(indices), side):
                of = [indices[min(i, last)] for i in range(start, start + side)]
                chosen.taken.append(([clip.first + i for i in of], True))
        at = clip.first + clip.count
    chosen.taken += [([i], False) for i in range(at, len(pictures))]
    return chosen


def check_frames(video: VideoRule | None, chosen: Chosen, sizes: list[list[Size]]) -> None:
    """Raises InputError if frames that are seen together differ in size.

    Args:
        video: of the family.
        chosen: of the input.
        sizes: heights and widths of those that are taken.
    """
    if video is None or video["together"] == 1:
        return
    for first, indices, _, _ in chosen.videos:
        high, wide = sizes[first][0]
        for several in sizes[first : first + _parts(video, indices)]:
            for height, width in several:
                if height != high or width != wide:
                    raise InputError(
                        f"a video has frames of {high} x {wide} and {height} x {width} pixels",
                        TASK,
                        "Give frames of one size.",
                    )


def _parts(video: VideoRule, indices: list[int]) -> int:
    """How many are taken of a video. indices: of its frames."""
    return math.ceil(len(indices) / video["together"])


def moving(video: VideoRule | None, chosen: Chosen, texts: list[Shown]) -> list[Shown]:
    """Pictures and videos as positions count them: frames that follow are one in time.

    Args:
        video: of the family.
        chosen: of the input.
        texts: of all that are seen.
    """
    if video is None or video["together"] == 1:
        return texts
    out: list[Shown] = []
    at = 0
    for first, indices, _, rate in chosen.videos:
        end = first + _parts(video, indices)
        parts = texts[first:end]
        height, width = parts[0].grid[1], parts[0].grid[2]
        step = 1.0
        if video["interval"]:
            step = video["interval"] * video["together"] / (CHOSEN_RATE if rate is None else rate)
        grid = [len(parts), height, width]
        out += [*texts[at:first], Shown("", sum([one.count for one in parts]), grid, step)]
        at = end
    return out + texts[at:]


def replaced_by(video: VideoRule | None, token: str) -> list[str]:
    """Tokens whose embeddings are replaced. token: of pictures."""
    return [token] if video is None or video["together"] == 1 else [token, video["placeholder"]]


def still(chosen: Chosen, texts: list[Shown]) -> list[Shown]:
    """What stands for pictures that are no frames. texts: of all that are seen."""
    return [one for one, taken in zip(texts, chosen.taken) if not taken[1]]


def with_videos(video: VideoRule | None, text: str, chosen: Chosen, texts: list[Shown]) -> str:
    """A prompt with its videos.

    Args:
        video: of the family.
        text: with its pictures.
        chosen: of the input.
        texts: of all that are seen.

    Raises:
        InputError: the text has not as many placeholders.
    """
    if video is None or not chosen.videos:
        return text
    made: list[str] = []
    for first, indices, count, rate in chosen.videos:
        if video["together"] > 1:
            parts = texts[first : first + _parts(video, indices)]
            made.append(video["placeholder"] * sum([one.count for one in parts]))
            continue
        made.append(video_text(texts[first : first + len(indices)], indices, count, rate))
    return with_texts(text, video["placeholder"], made, TASK, "video")


def _two(number: int) -> str:
    """A number with at least two digits."""
    return f"0{number}" if number < 10 else str(number)


SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
).split(" ")
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ")


def _words(number: int) -> str:
    """A number in English, as num2words writes it."""
    if number < 20:
        return SMALL[number]
    if number < 100:
        ten = TENS[number // 10 - 2]
        return f"{ten}-{SMALL[number % 10]}" if number % 10 else ten
    if number < 1000:
        rest = number % 100
        hundred = f"{SMALL[number // 100]} hundred"
        return f"{hundred} and {_words(rest)}" if rest else hundred
    rest = number % 1000
    thousand = f"{_words(number // 1000)} thousand"
    if not rest:
        return thousand
    return f"{thousand} and {_words(rest)}" if rest < 100 else f"{thousand}, {_words(rest)}"

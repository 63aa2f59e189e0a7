"""Videos as frames, of SmolVLM, and of Qwen2-VL to Qwen3.5 and GLM, whose encoder sees two at once.
Mirrors processing_*.py and video_processing_*.py of transformers/models/smolvlm, qwen2_5_vl,
qwen3_vl, glm4v and glm46v.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from ....errors import InputError
from ...images.geometry import Size
from ...images.views import ViewRule
from ...native import fixed
from ..asking import TASK, Clip
from ..prompt import Shown, with_texts

USUAL_RATE = 24.0
"""Frames per second of a video of which nobody says how many it has."""
CHOSEN_RATE = 2.0
"""The same, of frames that the encoder sees together."""
SKIPPED = 1
"""Seconds at the beginning and the end of a long video that are left out."""
Family = Literal["smolvlm", "qwen2", "qwen3", "glm4v", "glm46v"]
TIMED = ("qwen3", "glm4v", "glm46v")
"""Families whose prompts have the times of what is seen together."""
LONG = 300.0
"""Seconds after which a video of GLM-4V has fewer frames."""
RATES = ((30.0, 3.0), (300.0, 1.0), (2400.0, 0.5))
"""Of GLM-4.6V: (seconds of a video at most, what is seen together in each)."""
MAX_TAKEN = 640
"""Frames of a video of GLM-4.6V at most."""


class VideoRule(TypedDict):
    """How a family sees videos.

    Fields:
        family: of whose videos this is the rule.
        placeholder: of a video in the text of a chat template.
        longest: pixels of the longer side of a frame before it becomes a square.
        filter: with which it is resized.
        rate: frames per second that are taken; 0: all are.
        most: frames at most.
        together: consecutive frames that the encoder sees at once; the last one is repeated.
        pixels: least and most of a frame, where they are seen together.
        interval: positions per second; 0: one for all that are seen together.
        ends: tokens around what is seen together, where times are between.
        fewest: frames at least, if there are so many.
        cap: pixels of a frame at most, however few there are; 0: `pixels` alone says it.
    """

    family: Family
    placeholder: str
    longest: int
    filter: str
    rate: float
    most: int
    together: int
    pixels: tuple[int, int]
    interval: float
    ends: tuple[str, str]
    fewest: int
    cap: int


def frame_rule(rule: ViewRule, video: VideoRule, count: int) -> ViewRule:
    """What is seen of a frame: of SmolVLM a square, which is not divided.

    Args:
        rule: of pictures.
        video: of videos.
        count: of frames.
    """
    found: ViewRule = {**rule}
    if video["together"] > 1:
        found["least"], found["most"] = video["pixels"]
        if video["family"] in TIMED:  # limits of the whole video
            found["frames"] = count
        if video["cap"]:
            share = min(video["cap"], found["most"] // count)
            found["most"] = max(share, int(found["least"] * 1.05)) * count
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
    if video["family"] in TIMED and count == 1:
        raise InputError("a video has one frame", TASK, "Give it as a picture.")
    if rate is None or not video["rate"]:
        return list(range(count))
    seconds = count / rate
    if video["family"] == "qwen3":
        wanted = int(seconds * video["rate"])
        wanted = min(max(wanted, video["fewest"]), video["most"], count)
        return [round(at) for at in evenly(0, count - 1, wanted)]
    if video["family"] in TIMED:
        found = (
            _by_seconds(video, count, rate)
            if video["family"] == "glm4v"
            else _by_rates(count, rate)
        )
        return _distinct(found if found else [0, count - 1])
    wanted = max(min(int(round(video["rate"] * seconds)), video["most"]), 1)
    start, end = 0, count - 1
    if seconds - 2 * SKIPPED > video["most"] * video["rate"]:
        start = max(int(SKIPPED * rate), 0)
        end = min(int(count - SKIPPED * rate), count - 1)
        if start >= end:
            start, end = 0, count - 1
    places: list[int] = []
    for place in evenly(start, end, wanted):
        if not places or places[-1] != math.floor(place):
            places.append(math.floor(place))
    return places


def evenly(start: float, end: float, count: int) -> list[float]:
    """Numbers from a first to a last one, as numpy.linspace gives them."""
    found: list[float] = []
    for i in range(count):
        step = (end - start) / (count - 1) if count > 1 else 0.0
        found.append(end if 0 < i == count - 1 else i * step + start)
    return found


def _distinct(places: list[int]) -> list[int]:
    """Indices of frames without repetitions; the last one again, where their number is odd."""
    found: list[int] = []
    for at in places:
        if at not in found[-1:]:
            found.append(at)
    return found + found[-1:] if len(found) % 2 else found


def _by_seconds(video: VideoRule, count: int, rate: float) -> list[int]:
    """Indices of the frames that GLM-4V takes."""
    last, seconds = count - 1, count / rate
    if seconds <= LONG:
        wanted = max(math.floor(seconds * video["rate"]), 1)
        return [min(last, math.ceil(i * rate / video["rate"])) for i in range(wanted)]
    wanted = int(LONG * video["rate"])
    if wanted >= count:
        return list(range(count))
    return [min(last, math.ceil(at * rate)) for at in evenly(0.0, seconds, wanted)]


def _by_rates(count: int, rate: float) -> list[int]:
    """Indices of the frames that GLM-4.6V and GLM-OCR take."""
    seconds, last = count / rate, count - 1
    length = min(seconds, RATES[-1][0])
    target = RATES[-1][1]
    for longest, taken in RATES[:-1]:
        if length <= longest:
            target = taken
            break
    wanted = min(int(length * target * 2), MAX_TAKEN)
    found: list[int] = []
    if count >= wanted:
        time = 0.0
        for i in range(count):
            if i * (1 / rate) >= time:
                time += 1 / (2 * target)
                found.append(i)
                if time >= int(seconds):
                    break
    first = 0
    if found and len(found) < wanted:
        first, last = found[0], found[-1]
    if len(found) != wanted:
        found = [math.floor(at) for at in evenly(first, last, wanted)]
    return found


def timed_text(video: VideoRule, parts: list[Shown], indices: list[int], rate: float | None) -> str:
    """What stands for a video whose times are in the prompt.

    Args:
        video: of the family.
        parts: what stands for what is seen together.
        indices: of the frames among all.
        rate: frames per second; None: unknown.
    """
    of = USUAL_RATE if rate is None else rate
    first, last = video["ends"]
    side, made = video["together"], ""
    for i, part in enumerate(parts):
        at = indices[i * side] / of
        if video["family"] == "qwen3":
            to = indices[min(i * side + side - 1, len(indices) - 1)] / of
            made += f"<{fixed((at + to) / 2, 1)} seconds>"
            made += first + video["placeholder"] * part.count + last
        else:
            time = str(int(at)) if video["family"] == "glm4v" else f"{fixed(at, 1)} seconds"
            made += first + part.text + last + time
    return made


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


def rules_of(rule: ViewRule, video: VideoRule | None, chosen: Chosen) -> list[ViewRule]:
    """What is seen of each that is taken.

    Args:
        rule: of pictures.
        video: of the family.
        chosen: of the input.
    """
    rules = [rule for _ in chosen.taken]
    if video is not None:
        for first, indices, _, _ in chosen.videos:
            of = frame_rule(rule, video, len(indices))
            for i in range(_parts(video, indices)):
                rules[first + i] = of
    return rules


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
    if video is None or video["together"] == 1 or video["family"] in TIMED:
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
    if video["family"] == "qwen3":  # whose marks are around each time
        whole = video["ends"][0] + video["placeholder"] + video["ends"][1]
        text = text.replace(whole, video["placeholder"])
    for first, indices, count, rate in chosen.videos:
        if video["family"] in TIMED:
            parts = texts[first : first + _parts(video, indices)]
            made.append(timed_text(video, parts, indices, rate))
            continue
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

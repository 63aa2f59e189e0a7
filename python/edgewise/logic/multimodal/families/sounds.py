"""What stands for a sound in the prompt of each family, and what its encoder gets: windows of one
length, or as much as there is. Mirrors the processors of transformers (models/*/processing_*.py)
and transformers.js.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from ....errors import InputError
from ...native import listed
from ..prompt import Shown, with_texts

TASK = "audio-text-to-text"
MAX_WINDOWS = 240  # two hours of windows of 30 s


class AnyLength(TypedDict):
    """What the graph of features of an encoder of any length gets: rows of samples, the last of
    which is beyond the frames of features.

    Fields:
        unit: samples of a row.
        extra: samples that are added before those of a sound are divided into rows.
        least: shorter sounds are followed by silence.
        most: samples that are heard at once; 0: there is no limit.
        block: frames that the encoder hears by themselves, for `steps`; 0: all together.
    """

    unit: int
    extra: int
    least: int
    most: int
    block: int


class SoundRule(TypedDict):
    """How a family writes a sound.

    Fields:
        placeholder: of a sound in the text of a chat template.
        token: whose embedding a feature replaces.
        first, last: around a sound.
        size: samples of a window; 0: a sound has one.
        several: whether a longer sound has several windows; otherwise its beginning is heard.
        count: tokens of a window; 0: as many as the encoder gives features.
        steps: [divisor, added before, added after] in turn, from samples to tokens of a window that
            is not full; none: it has `count` as well.
        any_length: of an encoder of any length.
        flat: whether the chat template takes texts alone, in which placeholders stand for sounds.
    """

    placeholder: str
    token: str
    first: str
    last: str
    size: int
    several: bool
    count: int
    steps: list[tuple[int, int, int]]
    any_length: NotRequired[AnyLength]
    flat: NotRequired[bool]


def windows_of(rule: SoundRule, count: int) -> list[tuple[int, int]]:
    """(first sample, samples) of the windows of a sound.

    Args:
        rule: of the family.
        count: samples of the sound.

    Raises:
        InputError: it is empty, or has too many windows.
    """
    size = rule["size"]
    if count < 1:
        raise InputError("there are no samples", TASK, "Give a recording that is not empty.")
    if not size:
        return [(0, count)]
    if not rule["several"]:
        return [(0, min(count, size))]
    if count > MAX_WINDOWS * size:
        raise InputError(
            f"the sound has {-(-count // size)} windows, and at most {MAX_WINDOWS} are heard",
            TASK,
            "Give it in parts.",
        )
    return [(at, min(size, count - at)) for at in range(0, count, size)]


def rows_of_window(rule: SoundRule, samples: int, given: int) -> int:
    """The features of a window with so many samples that are not silence after it.

    Args:
        rule: of the family.
        samples: of the window.
        given: features that the encoder gives.
    """
    if not rule["steps"]:
        return rule["count"] or given
    over = rule.get("any_length")
    found = samples if over is None else max(samples, over["least"])
    divisor, before, after = rule["steps"][0]
    found = (found + before) // divisor + after
    if over is not None and over["block"]:
        block = over["block"]
        whole = _tokens(rule, block) * (found // block)
        return whole + _tokens(rule, found % block)
    found = _tokens(rule, found)
    return max(0, min(found, rule["count"])) if rule["count"] else max(0, found)


def _tokens(rule: SoundRule, frames: int) -> int:
    """The tokens of so many frames of features."""
    found = frames
    for divisor, before, after in rule["steps"][1:]:
        found = (found + before) // divisor + after
    return found


def tokens_of(rule: SoundRule, count: int) -> int | None:
    """The tokens of a sound of so many samples; None: as many as the encoder gives features.

    Raises:
        InputError: see windows_of.
    """
    found = 0
    for window in windows_of(rule, count):
        if not rule["steps"] and not rule["count"]:
            return None
        found += rows_of_window(rule, window[1], 0)
    return found


@dataclass(frozen=True)
class Rows:
    """What the graph of features gets for a window: rows of samples, with zeros after those of the
    sound.

    Attributes:
        count, size: of rows, and samples of each.
        valid: samples that count.
    """

    count: int
    size: int
    valid: int


def rows_of(over: AnyLength, samples: int) -> Rows:
    """The rows of a window of so many samples.

    Raises:
        InputError: there are too many.
    """
    if over["most"] and samples > over["most"]:
        raise InputError(
            f"the sound has {samples} samples, and at most {over['most']} are heard at once",
            TASK,
            "Give it in parts.",
        )
    valid = max(samples, over["least"])
    return Rows((valid + over["extra"]) // over["unit"] + 1, over["unit"], valid)


def heard(rule: SoundRule, rows: int) -> Shown:
    """What stands for a sound of so many features."""
    return Shown(rule["first"] + rule["token"] * rows + rule["last"], rows)


def flat_messages(rule: SoundRule, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as the chat template of a family takes them: where it takes texts alone, with
    placeholders for sounds.
    """
    if not rule.get("flat"):
        return messages
    found: list[dict[str, Any]] = []
    for message in messages:
        parts = listed(message["content"])
        if parts is None:
            found.append(message)
            continue
        texts: list[str] = []
        for one in parts:
            is_text = one["type"] == "text"
            text: str = one["text"] if is_text else rule["placeholder"]
            texts.append(text)
        found.append({**message, "content": "".join(texts)})
    return found


def prompt_text(rule: SoundRule, text: str, sounds: list[Shown]) -> str:
    """A text with tokens in place of placeholders. Raises InputError: see with_texts."""
    return with_texts(text, rule["placeholder"], [one.text for one in sounds], TASK, "sound")

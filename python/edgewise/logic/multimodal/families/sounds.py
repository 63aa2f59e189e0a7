"""What stands for a sound in the prompt of each family whose encoder hears windows of one length.
Mirrors the processors of transformers (models/*/processing_*.py) and transformers.js.
"""

from __future__ import annotations

from typing import TypedDict

from ....errors import InputError
from ..prompt import Shown, with_texts

TASK = "audio-text-to-text"
MAX_WINDOWS = 240  # two hours of windows of 30 s


class SoundRule(TypedDict):
    """How a family writes a sound.

    Fields:
        placeholder: of a sound in the text of a chat template.
        token: whose embedding a feature replaces.
        first, last: around a sound.
        size: samples of a window.
        several: whether a longer sound has several windows; otherwise its beginning is heard.
        count: tokens of a window.
        steps: [divisor, added before, added after] in turn, from samples to tokens of a window that
            is not full; none: it has `count` as well.
    """

    placeholder: str
    token: str
    first: str
    last: str
    size: int
    several: bool
    count: int
    steps: list[tuple[int, int, int]]


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
    if not rule["several"]:
        return [(0, min(count, size))]
    if count > MAX_WINDOWS * size:
        raise InputError(
            f"the sound has {-(-count // size)} windows, and at most {MAX_WINDOWS} are heard",
            TASK,
            "Give it in parts.",
        )
    return [(at, min(size, count - at)) for at in range(0, count, size)]


def rows_of_window(rule: SoundRule, samples: int) -> int:
    """The features of a window with so many samples that are not silence after it."""
    if not rule["steps"]:
        return rule["count"]
    found = samples
    for divisor, before, after in rule["steps"]:
        found = (found + before) // divisor + after
    return max(0, min(found, rule["count"]))


def heard(rule: SoundRule, count: int) -> Shown:
    """What stands for a sound of so many samples. Raises InputError: see windows_of."""
    rows = 0
    for window in windows_of(rule, count):
        rows += rows_of_window(rule, window[1])
    return Shown(rule["first"] + rule["token"] * rows + rule["last"], rows)


def prompt_text(rule: SoundRule, text: str, sounds: list[Shown]) -> str:
    """A text with tokens in place of placeholders. Raises InputError: see with_texts."""
    return with_texts(text, rule["placeholder"], [one.text for one in sounds], TASK, "sound")

"""optical-character-recognition: what is run on a picture, and the lines of its text. Mirrors
RapidOCR and PaddleOCR with the models of PP-OCR.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from ...errors import InputError
from ..images.geometry import Size, strip_margin
from ..options import read_flag, read_within
from ..tasks.inputs import Values
from .regions import Finding, boxes_of_text
from .shapes import Point, Quad

TURNED = 0.9
"""A text is turned around from this probability on."""
UPRIGHT = 1.5
"""Boxes that are so many times higher than wide are turned by a quarter."""


class Line(TypedDict):
    """A line of text: corners of its box from the top left one on, clockwise, in pixels."""

    text: str
    score: float
    box: list[Point]


@dataclass(frozen=True)
class Reading:
    """How text is read.

    Attributes:
        find: its boxes.
        text_score: lines with lower scores are left out.
        directions: whether texts that are upside down are turned.
    """

    find: Finding
    text_score: float
    directions: bool


@dataclass(frozen=True)
class Detect:
    """A run of the detector on the picture. The answer: Detected."""

    thresh: float
    kind: Literal["detect"] = "detect"


@dataclass(frozen=True)
class Detected:
    """maps: of the detector, [1, 1, height, width]; mask: bytes [height, width] of those above the
    threshold.
    """

    maps: Values
    mask: bytes


@dataclass(frozen=True)
class See:
    """A run of another model on a part of the picture. The answer: its outputs, the number of the
    greatest score of each step or label and this score.

    Attributes:
        model: "cls" or "rec".
        quad: corners of the part.
        height: of the part as it is cut out.
        width: of the part as it is cut out.
        turns: quarter turns, clockwise, after it is cut out.
    """

    model: Literal["cls", "rec"]
    quad: Quad
    height: int
    width: int
    turns: int
    kind: Literal["see"] = "see"


@dataclass(frozen=True)
class Best:
    """The greatest of each step: its number, and its score."""

    numbers: Sequence[float]
    scores: Sequence[float]


def reading(options: Mapping[str, Any]) -> Reading:
    """The options `thresh`, `box_thresh`, `unclip_ratio`, `text_score` and `use_cls`, with
    RapidOCR's names and defaults. Raises InputError.
    """
    find = Finding(
        read_within(options, "thresh", 0.3, 0, 1),
        read_within(options, "box_thresh", 0.5, 0, 1),
        read_within(options, "unclip_ratio", 1.6, 0, 10),
    )
    score = read_within(options, "text_score", 0.5, 0, 1)
    return Reading(find, score, read_flag(options, "use_cls", True))


def read_page(
    how: Reading, size: Size, characters: Sequence[str], directs: bool
) -> Generator[Detect | See, Any, list[Line]]:
    """The lines of a picture.

    Args:
        how: it is read.
        size: height and width of the picture.
        characters: of the recognizer's numbers from 1 on.
        directs: whether there is a model of directions.

    Raises:
        InputError: a model is none of this task.
    """
    detected: Detected = yield Detect(how.find.thresh)
    dims = detected.maps.dims
    if len(dims) != 4 or dims[0] != 1 or dims[1] != 1:
        raise InputError(
            f"the detector's output is [{', '.join(map(str, dims))}]",
            "optical-character-recognition",
            "It is [1, 1, height, width] of the models of PP-OCR.",
        )
    margin = strip_margin(size[0], size[1])
    lines: list[Line] = []
    for quad in boxes_of_text(detected.maps, detected.mask, how.find, size, margin):
        height, width = cut_size(quad)
        turns = 3 if height / width >= UPRIGHT else 0
        if directs and how.directions:
            label: Best = yield See("cls", quad, height, width, turns)
            if len(label.numbers) and label.numbers[0] == 1 and label.scores[0] > TURNED:
                turns = (turns + 2) % 4
        best: Best = yield See("rec", quad, height, width, turns)
        text, score = decoded(best, characters)
        if score >= how.text_score:
            lines.append({"text": text, "score": score, "box": quad})
    return lines


def cut_size(quad: Quad) -> Size:
    """Height and width of a part that is cut out."""
    a, b, c, d = quad
    width = int(max(_far(a, b), _far(c, d)))
    return max(int(max(_far(a, d), _far(b, c))), 1), max(width, 1)


def _far(a: Point, b: Point) -> float:
    return math.hypot(a[0] - b[0], a[1] - b[1])


def decoded(best: Best, characters: Sequence[str]) -> tuple[str, float]:
    """The text of a line and its mean score: repeated numbers are one, and 0 is none (CTC).

    Raises:
        InputError: there is no such character.
    """
    text: list[str] = []
    scores: list[float] = []
    last = 0
    for i, score in enumerate(best.scores):
        number = int(best.numbers[i])
        if number > 0 and (i == 0 or number != last):
            if number > len(characters):
                raise other_dictionary(len(characters), number)
            text.append(characters[number - 1])
            scores.append(score)
        last = number
    return "".join(text), sum(scores) / len(scores) if scores else 0.0


def other_dictionary(have: int, number: int) -> InputError:
    """The error about a dictionary that is not the model's."""
    return InputError(
        f"the dictionary has {have} characters, and the model knows {number} or more",
        "optical-character-recognition",
        "Give the dictionary that the model was trained with.",
    )


def characters_of(lines: Sequence[str], classes: int | None) -> list[str]:
    """The characters of a recognizer.

    Args:
        lines: of its dictionary.
        classes: how many numbers it has, with that for none; None: not known.

    Returns:
        the characters of the numbers from 1 on; the last one may be the space

    Raises:
        InputError: they are not as many.
    """
    if classes is not None and classes not in (len(lines) + 1, len(lines) + 2):
        raise other_dictionary(len(lines), classes - 1)
    return list(lines) if classes == len(lines) + 1 else [*lines, " "]

"""What stands for a picture in the prompt of each family. Mirrors `replace_image_token` of the
processors of transformers (models/*/processing_*.py).
"""

from __future__ import annotations

from typing import TypedDict

from ....errors import InputError
from ...images.views import Seen
from ..prompt import Shown, with_texts
from .joined import grid_of

TASK = "image-text-to-text"
MAX_TOKENS = 1 << 20
"""Tokens of one picture."""


class PictureRule(TypedDict):
    """How a family writes a picture.

    Fields:
        rule: "one": a run of tokens, also for each part of Gemma 3; "tiles": one for each tile,
            then one for the whole; "lines": one for each row of patches; "anyres": of
            LLaVA-OneVision, whose tiles are joined.
        placeholder: of a picture in the text of a chat template.
        token: whose embedding a feature replaces.
        first, last: around a picture.
        count: tokens of a picture, or of a tile; 0: as many as it has squares of `unit` pixels.
        unit: pixels of a side of the part of a picture that a token stands for.
        extra: further tokens of a picture.
        cell: texts before, between and after the row and the column of a tile.
        line: after each row.
        whole: before the tokens of the whole picture, after tiles.
        single: before those of a picture that has no tiles.
        parts: before the first of several parts, after it, and between the others.
        most: tiles as which the features of a picture are kept.
        sizes: of the processor.
        ends: texts that are put after the last placeholder of a prompt, and at its end.
    """

    rule: str
    placeholder: str
    token: str
    first: str
    last: str
    count: int
    unit: int
    extra: int
    cell: list[str]
    line: str
    whole: str
    single: str
    parts: list[str]
    most: int
    sizes: list[tuple[int, int]]
    ends: list[str]


def shown(rule: PictureRule, picture: Seen) -> Shown:
    """What stands for a picture.

    Args:
        rule: of the family.
        picture: what the model sees of it.

    Raises:
        InputError: it has too many tokens.
    """
    count = rule["count"]
    if rule["unit"]:
        height, width = picture.resized
        count = (height // rule["unit"]) * (width // rule["unit"])
    count += rule["extra"]
    if rule["rule"] == "lines":
        return _lines(rule, picture)
    if rule["rule"] == "anyres" and len(picture.views) > 1:
        count += _joined(rule, picture)
    _check(count)
    text = rule["token"] * count
    if rule["rule"] == "tiles":
        return _tiles(rule, picture, text, count)
    one = rule["first"] + text + rule["last"]
    if rule["rule"] == "one" and len(picture.views) > 1:
        before, after, between = rule["parts"]
        others = between.join([one for part in picture.views[1:]])
        return Shown(before + one + after + others, count * len(picture.views))
    return Shown(one, count, _grid(rule, picture))


def _check(count: int) -> None:
    if count < 1 or count > MAX_TOKENS:
        raise InputError(
            f"a picture with {count} tokens, where there are 1 to {MAX_TOKENS}",
            TASK,
            "Do the model's preprocessor_config.json and processor_config.json belong together?",
        )


def _grid(rule: PictureRule, picture: Seen) -> list[int]:
    """Time, height and width of a picture's features."""
    if not rule["unit"]:
        return []
    height, width = picture.resized
    return [1, height // rule["unit"], width // rule["unit"]]


def _tiles(rule: PictureRule, picture: Seen, whole: str, count: int) -> Shown:
    """Idefics3, LFM2-VL. whole: the tokens of the whole picture."""
    if not picture.rows:
        return Shown(rule["first"] + rule["single"] + whole + rule["last"], count)
    tiles = picture.rows * picture.columns
    each = rule["count"]
    _check(each * tiles + count)
    before, between, after = rule["cell"]
    parts: list[str] = [rule["first"]]
    for row in range(picture.rows):
        for column in range(picture.columns):
            parts.append(f"{before}{row + 1}{between}{column + 1}{after}" if before else "")
            parts.append(rule["token"] * each)
        parts.append(rule["line"])
    total = each * tiles
    if picture.whole:
        parts += [rule["whole"], whole]
        total += count
    parts.append(rule["last"])
    return Shown("".join(parts), total)


def _lines(rule: PictureRule, picture: Seen) -> Shown:
    """Pixtral: rows of patches with a token after each."""
    height, width = picture.resized
    rows, columns = height // rule["unit"], width // rule["unit"]
    _check(rows * columns)
    row = rule["token"] * columns
    text = rule["line"].join([row for i in range(rows)])
    return Shown(rule["first"] + text + rule["last"], rows * columns)


def _joined(rule: PictureRule, picture: Seen) -> int:
    """LLaVA-OneVision: features of the tiles without the padding, and one for each row."""
    grid = grid_of(rule["count"], rule["sizes"], rule["most"], picture)
    return grid.rows * grid.across + grid.rows


def prompt_text(rule: PictureRule, text: str, pictures: list[Shown]) -> str:
    """The text of a prompt, with the tokens of its pictures.

    Args:
        rule: of the family.
        text: of the chat template, or the caller's.
        pictures: in order.

    Raises:
        InputError: the text has not as many placeholders.
    """
    after, end = rule["ends"]
    place = rule["placeholder"]
    if (after or end) and place not in text and pictures:
        text = "".join([place for _ in pictures]) + text  # PaliGemma's prompts need none
    made = with_texts(text, place, [one.text for one in pictures], TASK, "picture")
    if not after and not end:
        return made
    at = made.rfind(rule["token"])
    cut = 0 if at < 0 else at + len(rule["token"])
    return made[:cut] + after + made[cut:] + end

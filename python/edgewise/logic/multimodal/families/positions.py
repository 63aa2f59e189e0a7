"""Positions of three dimensions (mRoPE), of Qwen2-VL to Qwen3.5. Mirrors get_rope_index of
transformers/models/qwen2_vl/modeling_qwen2_vl.py.
"""

from __future__ import annotations

from ....errors import InputError
from ..prompt import Prepared, Shown


def with_positions(prompt: Prepared, pictures: list[Shown]) -> Prepared:
    """A prompt with the positions of its tokens: of time, height and width.

    Text counts on in all three. Those of a picture begin together, and the text after it begins
    after the longest of its sides; of a video time is one of them.

    Args:
        prompt: with the places of the pictures' tokens.
        pictures: and videos, in order, with their grids.

    Raises:
        InputError: the tokens of a picture are not together.
    """
    rows: list[list[int]] = [[], [], []]
    at, position = 0, 0
    next_place = 0
    for picture in pictures:
        start = prompt.places[next_place]
        end = start + picture.count
        if prompt.places[next_place + picture.count - 1] != end - 1:
            raise InputError(
                "other tokens are between those of a picture",
                "input_ids",
                "Do the model's tokenizer and its processor belong together?",
            )
        position = _count(rows, start - at, position)
        times, height, width = picture.grid
        for time in range(times):
            for row in range(height):
                for column in range(width):
                    rows[0].append(position + int(time * picture.step))
                    rows[1].append(position + row)
                    rows[2].append(position + column)
        position += max(height, width, int((times - 1) * picture.step) + 1)
        at, next_place = end, next_place + picture.count
    _count(rows, len(prompt.ids) - at, position)
    return Prepared(prompt.ids, prompt.places, rows)


def _count(rows: list[list[int]], tokens: int, position: int) -> int:
    """Adds positions of text; returns the next one."""
    for i in range(tokens):
        for row in rows:
            row.append(position + i)
    return position + tokens

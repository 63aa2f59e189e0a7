"""Features of the tiles of a picture as one grid; see logic/multimodal/families/joined.py."""

from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from typing import Any

from ....compiler.arrays import Array
from ....logic.multimodal.families.joined import BLOCK, MIXED, NEWLINE, Grid, Mix, copies, mixes

__all__ = ["joined"]


def joined(grid: Grid, pieces: Sequence[bytes], size: int, program: Callable[[], Any]) -> bytes:
    """The features of a picture.

    Args:
        grid: of its tiles.
        pieces: features of the whole picture and of each tile, and the one that ends a row.
        size: bytes of a feature.
        program: the session that mixes features.
    """
    mixed = b"".join(_mixed(one, pieces, size, program()) for one in mixes(grid))
    line = pieces[0][-size:]
    found = bytearray()
    for one in copies(grid):
        special = {NEWLINE: line, MIXED: mixed}
        data = special[one.piece] if one.piece < 0 else pieces[one.piece]
        found += data[size * one.first : size * (one.first + one.count)]
    return bytes(found)


def _mixed(mix: Mix, pieces: Sequence[bytes], size: int, session: Any) -> bytes:
    """The features of a run."""
    data = b"".join(pieces[piece][size * i : size * (i + 1)] for piece, i in mix.sources)
    weights = array.array("f", mix.weights).tobytes()
    given = {
        "rows": Array([BLOCK, 4, size // 4], "float32", data),
        "weights": Array([BLOCK, 4, 1], "float32", weights),
    }
    (rows,) = session.run(list(session.outputs), given)
    return bytes(rows.tobytes()[: size * mix.count])

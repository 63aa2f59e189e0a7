"""Writes what a page's InferenceSession shares with this one: web/src/gen/session.ts.

The file is committed; a test compares it.

`make gen` runs it: `python -m edgewise.session.emit`.
"""

from __future__ import annotations

import json
from pathlib import Path

from ..bind import LATEST, MAX_NESTING
from ..declare.dtypes import NAME, STRING, bits_of
from .program import MOST_NUMBERS

PATH = "web/src/gen/session.ts"
BITS = {NAME[code]: bits_of(code) for code in sorted(NAME) if code != STRING}
CONSTANTS = [
    (
        "ELEMENT_BITS",
        ": Readonly<Record<string, number>>",
        BITS,
        "Bits of an element, by the names that NumPy and ml_dtypes give to element types.",
    ),
    ("MAX_SHAPE_NUMBERS", "", MOST_NUMBERS, "Most elements of a tensor that a shape depends on."),
    ("MAX_NESTING", "", MAX_NESTING, "How deep functions and subgraphs may be nested."),
    (
        "LATEST_OPSET",
        "",
        LATEST,
        "Version of the operator set in which operators of the driver's own are written.",
    ),
]


def text() -> str:
    """The file's text."""
    lines = ["// Made by python/edgewise/session/emit.py; do not edit.", ""]
    for name, kind, value, words in CONSTANTS:
        lines += [f"/** {words} */", f"export const {name}{kind} = {json.dumps(value)};"]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    (Path(__file__).resolve().parents[3] / PATH).write_text(text(), "utf-8")

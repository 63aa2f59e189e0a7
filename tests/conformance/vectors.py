"""Reads a file of shared vectors."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parent


def vectors(name: str):
    """The contents of tests/conformance/NAME.json, with what stands for long values written out."""
    return expanded(json.loads((FOLDER / f"{name}.json").read_text("utf-8")))


def expanded(value):
    """{"$repeat": [text, n]} is the text n times, {"$list": [value, n]} a list of n, {"$long": n}
    in a vocabulary a token of n characters.
    """
    if isinstance(value, list):
        return [expanded(x) for x in value]
    if not isinstance(value, dict):
        return value
    if "$repeat" in value:
        text, n = value["$repeat"]
        return text * n
    if "$list" in value:
        one, n = value["$list"]
        return [expanded(one)] * n
    out = {name: expanded(x) for name, x in value.items() if name != "$long"}
    if "$long" in value:
        out["x" * value["$long"]] = 9
    return out

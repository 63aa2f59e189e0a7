"""Texts of a model's folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ModelError
from ...json_text import parse_json
from ..onnx.source import Source


class ModelFiles:
    """The files of a model's folder by their names, wherever they are in it.

    Args:
        files: {name with folders: Source}.
    """

    def __init__(self, files: Mapping[str, Source]) -> None:
        self.files = files

    def contents(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none."""
        found = (s for n, s in self.files.items() if n.rsplit("/", 1)[-1] == name)
        source = next(found, None)
        return None if source is None else source.read_all()

    def json(self, name: str) -> Mapping[str, Any]:
        """The object of a JSON file; {} if there is none.

        Raises:
            ModelError: it is not JSON, or no object.
        """
        data = self.contents(name)
        if data is None:
            return {}
        value = parse_json(data, name)
        if not isinstance(value, dict):
            raise ModelError("it is no JSON object", name, "Fetch the model again.")
        return value

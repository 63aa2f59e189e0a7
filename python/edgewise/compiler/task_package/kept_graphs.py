"""Graphs that a package has as .onnx files, since their plans are compiled for each size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import UnsupportedOp
from ...logic.manifest.limits import MAX_FILE
from ..onnx.editor import ModelEditor

if TYPE_CHECKING:
    from ..onnx.source import Source
    from ..package import Package


def keep_graph(package: Package, source: Source, name: str) -> str:
    """Adds a graph with all of its weights to a package.

    Args:
        package: of a pipeline.
        source: its file.
        name: of the file in the package.

    Returns:
        the name

    Raises:
        UnsupportedOp: it is larger than a part of a package may be.
    """
    data = ModelEditor(source).write()
    if data is None or len(data) > MAX_FILE:
        raise UnsupportedOp(
            f"it has more than {MAX_FILE >> 20} MB, and packages have its file as a whole",
            source.name,
            "Give a page or Python the model's folder or the id of the model.",
        )
    package.blobs[name] = data
    return name

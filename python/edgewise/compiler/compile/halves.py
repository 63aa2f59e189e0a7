"""A file of a model, written as two files: `edgewise split`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ...errors import InputError
from ..bind import bind
from ..declare.symbolic import NeedsHost, NotStatic
from ..ir import Graph, Info, NeedsValue
from ..onnx import FileSource, read_model
from ..onnx.split import Parts, split_model

NAMES = ("first.onnx", "second.onnx")
UNKNOWN = 8  # size of a free dimension that is not given


def split_file(
    model: str | os.PathLike[str],
    at: Sequence[str],
    folder: str | os.PathLike[str],
    send: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
) -> Parts:
    """Splits a model into `first.onnx` and `second.onnx` of a folder.

    Args:
        model: path of an .onnx file.
        at, send: as of edgewise.compiler.onnx.split.split_model.
        folder: made if it is missing.
        dims: {name of a free dimension: size} with which the types of inner tensors are found, if
            the file does not declare them. Default: 8.

    Returns:
        the parts

    Raises:
        InputError, ModelError, UnsupportedOp: as split_model, and of files.
    """
    path = os.fspath(model)
    source = FileSource(path)
    parts = split_model(source, at, _Declared(read_model(source), dims or {}), send)
    os.makedirs(folder, exist_ok=True)
    for name, editor in zip(NAMES, (parts.first, parts.second)):
        target = os.path.join(folder, name)
        if os.path.exists(target) and os.path.samefile(target, path):
            raise InputError("the model itself would be overwritten", target, "Choose a folder.")
        editor.write(target)
    return parts


class _Declared(dict[str, Info]):
    """{name: Info} of inner tensors, which are found when one of them is asked for."""

    def __init__(self, graph: Graph, dims: Mapping[str, int]) -> None:
        super().__init__()
        self.graph, self.dims = graph, dims
        self.found = False

    def get(self, name: str, default: Info | None = None) -> Info | None:  # type: ignore[override]
        if not self.found:
            self.found = True
            self._find()
        return super().get(name, default)

    def _find(self) -> None:
        given = self.graph.input_names()
        shapes: dict[str, list[int]] = {}
        for info in given:
            if info.shape is None:
                raise InputError(
                    f"the input '{info.name}' has no declared shape",
                    self.graph.name,
                    "Export the model with shapes.",
                )
            shapes[info.name] = [
                d if isinstance(d, int) else self.dims.get(str(d), UNKNOWN) for d in info.shape
            ]
        fixed = all(isinstance(d, int) for info in given for d in info.shape or ())
        try:
            bound = bind(self.graph, shapes, run_seed=True)
        except (NeedsValue, NeedsHost, NotStatic) as e:
            raise InputError(
                f"the types of inner tensors depend on data ({type(e).__name__})",
                self.graph.name,
                "Write them into the file with onnx.shape_inference.",
            ) from None
        for node in bound.nodes:
            for v in node.outputs:
                if v is not None:
                    shape = [d if fixed and isinstance(d, int) else None for d in v.shape]
                    self[v.name] = Info(v.name, v.dtype, shape)

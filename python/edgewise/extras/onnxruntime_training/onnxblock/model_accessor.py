"""The model that blocks extend: one at a time, inside `with base(model):`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ....errors import UnsupportedField
from ._graph_utils import BlockError, onnx

if TYPE_CHECKING:
    from onnx import ModelProto

_GLOBAL_ACCESSOR: ModelAccessor | None = None
_GLOBAL_CUSTOM_OP_LIBRARY = None


class ModelAccessor:
    """A model and the path of its file, if there is one."""

    def __init__(
        self, model: ModelProto | None, model_path: str | os.PathLike[str] | None = None
    ) -> None:
        self._model, self._path = model, model_path

    @property
    def model(self) -> ModelProto:
        """The onnx.ModelProto. Raises BlockError if there is none."""
        if self._model is None:
            raise BlockError(
                "there is no model",
                "onnxblock",
                "Open one with onnxblock.base or onnxblock.empty_base.",
            )
        return self._model

    @property
    def path(self) -> str | os.PathLike[str]:
        """The path of the model's file. Raises BlockError if it is not known."""
        if self._path is None:
            raise BlockError(
                "the model came from no file", "onnxblock", "Pass model_path to onnxblock.base."
            )
        return self._path

    @property
    def has_path(self) -> bool:
        """Whether `path` is known."""
        return self._path is not None


def current() -> ModelProto:
    """The model that is open. Raises BlockError if there is none."""
    if _GLOBAL_ACCESSOR is None:
        raise BlockError(
            "blocks work on a model, and none is open",
            "onnxblock",
            "Use them inside `with onnxblock.base(model):` or `with onnxblock.empty_base():`.",
        )
    return _GLOBAL_ACCESSOR.model


@contextmanager
def _open(accessor: ModelAccessor) -> Iterator[ModelAccessor]:
    global _GLOBAL_ACCESSOR
    if _GLOBAL_ACCESSOR is not None:
        raise BlockError("another model is open", "onnxblock", "Leave its `with` block first.")
    _GLOBAL_ACCESSOR = accessor
    try:
        yield accessor
    finally:
        _GLOBAL_ACCESSOR = None


@contextmanager
def base(
    model: ModelProto, model_path: str | os.PathLike[str] | None = None
) -> Iterator[ModelAccessor]:
    """Opens a copy of a model for blocks to extend.

        with onnxblock.base(model) as handle:
            onnxblock.loss.MSELoss()("output")
            extended = handle.model

    Args:
        model: the model to copy.
        model_path: path of its file.

    Raises:
        BlockError: model is None, or another model is open.
    """
    if model is None:
        raise BlockError(
            "the model is None",
            "onnxblock.base",
            "Use onnxblock.empty_base to build one from nothing.",
        )
    copy = type(model)()
    copy.CopyFrom(model)
    with _open(ModelAccessor(copy, model_path)) as accessor:
        yield accessor


@contextmanager
def empty_base(opset_version: int | None = None) -> Iterator[ModelAccessor]:
    """Opens an empty model.

    Args:
        opset_version: of ONNX's operators. Default: the latest of the onnx package.
    """
    o = onnx()
    model = o.ModelProto(ir_version=min(o.IR_VERSION, 10), producer_name="edgewise")
    model.graph.name = "graph"
    model.opset_import.extend(
        [
            o.helper.make_opsetid("com.microsoft", 1),
            o.helper.make_opsetid("", opset_version or o.defs.onnx_opset_version()),
        ]
    )
    with _open(ModelAccessor(model)) as accessor:
        yield accessor


@contextmanager
def custom_op_library(custom_op_library_path: str | os.PathLike[str]) -> Iterator[None]:
    """Raises UnsupportedField: ONNX Runtime loads native code of custom operators here, which
    Edgewise does not support.
    """
    raise UnsupportedField(
        f"custom_op_library is {os.fspath(custom_op_library_path)!r}",
        "onnxblock",
        "Write the operator as a function of the model, or of ONNX's own operators.",
    )
    yield

"""Writes parameters of onnx models to checkpoint files, and reads them back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....compiler.ir import Tensor
from ....compiler.onnx.protobuf import Message
from ....compiler.onnx.source import BytesSource
from ....compiler.onnx.tensors import TensorReader
from ....errors import ModelError
from ..artifact_files.odtc import Checkpoint, read_checkpoint, write_checkpoint
from ._graph_utils import BlockError, onnx

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto


def as_tensor(proto: TensorProto) -> Tensor:
    """The Tensor of an onnx.TensorProto, from any of its data fields."""
    if proto.data_location == 1:
        raise BlockError(
            f"the data of '{proto.name}' was not loaded",
            "onnxblock",
            "Load the model with its external data.",
        )
    source = BytesSource(proto.SerializeToString(), proto.name)
    t = TensorReader(source).read(Message.of(source))
    data: Any = (
        memoryview(t.data) if t.data is not None else source.data[t.offset : t.offset + t.nbytes]
    )
    return Tensor(t.name, t.dtype, t.shape, None, 0, t.nbytes, data)


def save_checkpoint(
    parameters: tuple[Sequence[TensorProto], Sequence[TensorProto]],
    path_to_checkpoint: str | os.PathLike[str],
    nominal_checkpoint: bool = False,
) -> None:
    """Writes a checkpoint file.

    Args:
        parameters: (trainable, frozen), from TrainingBlock.parameters.
        path_to_checkpoint: of the file.
        nominal_checkpoint: write names and types only.
    """
    if parameters is None:
        raise BlockError(
            "there are no parameters",
            "save_checkpoint",
            "Build a TrainingBlock and pass its parameters().",
        )
    trainable, frozen = ({t.name: as_tensor(t) for t in kind} for kind in parameters)
    write_checkpoint(Checkpoint(trainable, frozen, nominal=nominal_checkpoint), path_to_checkpoint)


def load_checkpoint_to_model(path_to_checkpoint: str | os.PathLike[str], model: ModelProto) -> None:
    """Sets the parameters of an inference model to those of a checkpoint.

    Args:
        path_to_checkpoint: of the file.
        model: changed in place. Initializers with the parameters' names are replaced, graph inputs
            with these names become initializers.

    Raises:
        ModelError: the checkpoint is nominal, or the model lacks a parameter.
    """
    g = model.graph
    checkpoint = read_checkpoint(path_to_checkpoint)
    if checkpoint.nominal:
        raise ModelError(
            "a nominal checkpoint has no numbers", str(path_to_checkpoint), "Load a complete one."
        )
    at = {t.name: t for t in g.initializer}
    inputs = {i.name for i in g.input}
    for name, t in checkpoint.parameters.items():
        if name not in at and name not in inputs:
            raise ModelError(
                f"the model has no parameter '{name}'",
                str(path_to_checkpoint),
                "Take the model that the artifacts were made of.",
            )
        proto = onnx().TensorProto(
            name=name, data_type=t.dtype, dims=list(t.shape), raw_data=t.bytes()
        )
        if name in at:
            at[name].CopyFrom(proto)
        else:
            g.initializer.append(proto)
            g.input.remove(next(i for i in g.input if i.name == name))

"""`generate_artifacts`: writes the files of a training session from a forward model, as ONNX
Runtime Training does.

    from edgewise.training import artifacts

    artifacts.generate_artifacts(
        model,
        requires_grad=["fc.weight", "fc.bias"],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory="out",
    )

Needs the onnx package. `edgewise.Trainer` does not need artifacts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from typing import Any

from ...errors import InputError, UnsupportedField
from . import onnxblock
from .onnxblock._graph_utils import BlockError, onnx, opset_of

_LARGE = (1 << 31) - (1 << 20)  # bytes a protobuf file can have
LOSS_OPSET = 12  # the first with SoftmaxCrossEntropyLoss


class LossType(Enum):
    """Losses that `generate_artifacts` knows by name."""

    MSELoss = 1
    CrossEntropyLoss = 2
    BCEWithLogitsLoss = 3
    L1Loss = 4


class OptimType(Enum):
    """Optimizers that `generate_artifacts` knows by name: AdamW in the form of transformers, as
    ONNX Runtime's, and plain SGD.
    """

    AdamW = 1
    SGD = 2


class _Training(onnxblock.TrainingBlock):
    def __init__(self, loss: onnxblock.Block, loss_inputs: list[str], additional: list[str]):
        super().__init__()
        self._loss, self._loss_inputs, self._additional = loss, loss_inputs, additional

    def build(self, *outputs: str) -> tuple[str, ...]:
        loss = self._loss(*(self._loss_inputs or outputs))
        loss = (loss,) if isinstance(loss, str) else tuple(loss)
        return (*loss, *(n for n in self._additional if n not in loss))


def generate_artifacts(
    model: Any,
    requires_grad: Sequence[str] | None = None,
    frozen_params: Sequence[str] | None = None,
    loss: LossType | onnxblock.Block | None = None,
    optimizer: OptimType | onnxblock.Block | None = None,
    artifact_directory: str | os.PathLike[str] | None = None,
    prefix: str = "",
    ort_format: bool = False,
    custom_op_library: Any = None,
    additional_output_names: Sequence[str] | None = None,
    nominal_checkpoint: bool = False,
    loss_input_names: Sequence[str] | None = None,
    *,
    batch_norm: bool | None = None,
) -> None:
    """Writes {prefix}training_model.onnx, {prefix}eval_model.onnx, {prefix}checkpoint and, with an
    optimizer, {prefix}optimizer_model.onnx.

    Mirrors onnxruntime.training.artifacts, release 1.19.2. The files are described in
    `edgewise.extras.onnxruntime_training.artifact_files.metadata`.

    Args:
        model: onnx.ModelProto, or the path of a model (one above 2 GB needs a path).
        requires_grad: names of the initializers to train.
        frozen_params: names of initializers that are not trained, but kept in the checkpoint
            instead of the models.
        loss: LossType, an onnxblock.Block that is called with the names of the model's outputs, or
            None: the first output is the loss.
        optimizer: OptimType, a block such as onnxblock.optim.AdamW(weight_decay=0.1), or None.
        artifact_directory: folder, made if it is missing. Default: the working directory.
        prefix: of the file names.
        ort_format, custom_op_library: not supported.
        additional_output_names: values of the graph that both models also output.
        nominal_checkpoint: also write {prefix}nominal_checkpoint: names and types only.
        loss_input_names: names that the loss is called with, instead of all outputs.
        batch_norm: whether BatchNormalization uses the batch's statistics in training. True:
            everywhere, as in ONNX Runtime; False: nowhere; None: if its scale or bias is trained.
            Not in ONNX Runtime.

    Raises:
        InputError: (also a RuntimeError) a parameter does not exist, or is trained and frozen; the
            loss is not a number; an argument has a wrong type.
        UnsupportedField: ort_format or custom_op_library is set.
    """
    if ort_format:
        raise UnsupportedField(
            "ort_format is set",
            "generate_artifacts",
            "Edgewise's artifacts are ONNX files, which it loads as they are.",
        )
    if custom_op_library is not None:
        with onnxblock.custom_op_library(custom_op_library):
            pass
    model, path = _load_model(model)
    _check_names(requires_grad, frozen_params, additional_output_names, loss_input_names)
    loss, optimizer_block = _loss_block(loss), _optimizer_block(optimizer)
    if (
        isinstance(loss, onnxblock.loss.CrossEntropyLoss)
        and opset_of(model) < LOSS_OPSET
        and model.ByteSize() < _LARGE
    ):
        model = onnx().version_converter.convert_version(model, LOSS_OPSET)
    training = _Training(loss, list(loss_input_names or ()), list(additional_output_names or ()))
    training.batch_norm = batch_norm
    for name in requires_grad or ():
        training.requires_grad(name)
    for name in frozen_params or ():
        training.requires_grad(name, False)
    with onnxblock.base(model, path):
        training(*[output.name for output in model.graph.output])
    training_model, eval_model = training.to_model_proto()
    parameters = training.parameters()
    optimizer_model = None
    if optimizer_block is not None:
        with onnxblock.empty_base(opset_version=max(opset_of(model), LOSS_OPSET)):
            optimizer_block(parameters)
            optimizer_model = optimizer_block.to_model_proto()
    models = {
        "training_model": training_model,
        "eval_model": eval_model,
        "optimizer_model": optimizer_model,
    }
    folder = _write_models(models, artifact_directory, prefix)
    onnxblock.save_checkpoint(parameters, os.path.join(folder, f"{prefix}checkpoint"))
    if nominal_checkpoint:
        onnxblock.save_checkpoint(
            parameters, os.path.join(folder, f"{prefix}nominal_checkpoint"), nominal_checkpoint=True
        )


def _load_model(model: Any) -> tuple[Any, str | None]:
    """(ModelProto, its path or None) of a ModelProto or a path."""
    package = onnx()
    if not isinstance(model, (str, os.PathLike)):
        if not isinstance(model, package.ModelProto):
            raise BlockError(
                f"model is a {type(model).__name__}",
                "generate_artifacts",
                "Pass an onnx.ModelProto or a path.",
            )
        return model, None
    path = os.fspath(model)
    try:
        return package.load(path), path
    except OSError as e:
        raise InputError(
            f"cannot read it ({e.strerror or e})",
            path,
            "Check the path, and that external data lies beside it.",
        ) from None
    except Exception as e:  # protobuf's DecodeError, which has its own base
        raise InputError(
            f"it is not an ONNX model ({str(e)[:100]})",
            path,
            "Pass an onnx.ModelProto or the path of one.",
        ) from None


def _check_names(
    requires_grad: Any, frozen_params: Any, additional_output_names: Any, loss_input_names: Any
) -> None:
    both = set(requires_grad or ()) & set(frozen_params or ())
    if both:
        raise BlockError(
            f"'{min(both)}' is in requires_grad and in frozen_params",
            "generate_artifacts",
            "A parameter is trained or frozen.",
        )
    for name, value in (
        ("requires_grad", requires_grad),
        ("frozen_params", frozen_params),
        ("additional_output_names", additional_output_names),
        ("loss_input_names", loss_input_names),
    ):
        if value is not None and (
            isinstance(value, str) or not all(isinstance(x, str) for x in value)
        ):
            raise BlockError(f"{name} is {value!r}", "generate_artifacts", "It is a list of names.")


def _loss_block(loss: Any) -> onnxblock.Block:
    if loss is None:
        return onnxblock.blocks.PassThrough()
    if isinstance(loss, LossType):
        return getattr(onnxblock.loss, loss.name)()
    if not isinstance(loss, onnxblock.Block):
        raise BlockError(
            f"loss is a {type(loss).__name__}",
            "generate_artifacts",
            "Pass a LossType, an onnxblock.Block, or None.",
        )
    return loss


def _optimizer_block(optimizer: Any) -> Any:
    if isinstance(optimizer, OptimType):
        return getattr(onnxblock.optim, optimizer.name)()
    if optimizer is not None and not isinstance(optimizer, onnxblock.Block):
        raise BlockError(
            f"optimizer is a {type(optimizer).__name__}",
            "generate_artifacts",
            "Pass an OptimType, an onnxblock.Block, or None.",
        )
    return optimizer


def _write_models(
    models: dict[str, Any], artifact_directory: str | os.PathLike[str] | None, prefix: str
) -> str:
    """Writes {prefix}{name}.onnx of each model that is not None. Returns the folder."""
    path = os.getcwd() if artifact_directory is None else artifact_directory
    folder = os.fsdecode(path)
    try:
        os.makedirs(folder, exist_ok=True)
        for name, model in models.items():
            if model is not None:
                _save(model, folder, f"{prefix}{name}.onnx")
    except OSError as e:
        raise InputError(
            f"cannot write the artifacts ({e.strerror or e})",
            folder,
            "Check the folder and the free space.",
        ) from None
    return folder


def _save(model: Any, folder: str, name: str) -> None:
    path = os.path.join(folder, name)
    if model.ByteSize() < _LARGE:
        onnx().save(model, path)
        return
    data = os.path.join(folder, name + ".data")
    if os.path.exists(data):  # onnx would append to it
        os.unlink(data)
    onnx().save(model, path, save_as_external_data=True, location=name + ".data")

"""`generate_artifacts` as ONNX Runtime Training has it: from a forward model to the files that a
training session is opened with.

    from edgewise.training import artifacts
    artifacts.generate_artifacts(model, requires_grad=["fc.weight", "fc.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
                                 optimizer=artifacts.OptimType.AdamW, artifact_directory="out")

Needs the onnx package. `edgewise.Trainer` does without artifacts.
"""

from __future__ import annotations

import os
from enum import Enum

from ..errors import InputError, UnsupportedField
from . import onnxblock
from .onnxblock._graph_utils import BlockError, onnx, opset_of

_LARGE = (1 << 31) - (1 << 20)  # bytes a protobuf file can have


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
    def __init__(self, loss, loss_inputs, additional):
        super().__init__()
        self._loss, self._loss_inputs, self._additional = loss, loss_inputs, additional

    def build(self, *outputs):
        loss = self._loss(*(self._loss_inputs or outputs))
        loss = (loss,) if isinstance(loss, str) else tuple(loss)
        return (*loss, *(n for n in self._additional if n not in loss))


def generate_artifacts(
    model,
    requires_grad=None,
    frozen_params=None,
    loss=None,
    optimizer=None,
    artifact_directory=None,
    prefix="",
    ort_format=False,
    custom_op_library=None,
    additional_output_names=None,
    nominal_checkpoint=False,
    loss_input_names=None,
    *,
    batch_norm=None,
):
    """Writes {prefix}training_model.onnx, {prefix}eval_model.onnx, {prefix}checkpoint and, with an
    optimizer, {prefix}optimizer_model.onnx.

    Args:
        model: onnx.ModelProto, or the path of a model (one above 2 GB needs a path).
        requires_grad: names of the initializers to train. A name that the model lacks raises.
        frozen_params: names of initializers that are not trained, but kept in the checkpoint
        instead of the models. loss: LossType, an onnxblock.Block that is called with the names of
        the model's outputs, or None: the first output is the loss. optimizer: OptimType, a block
        such as onnxblock.optim.AdamW(weight_decay=0.1), or None. artifact_directory: folder, made
        if it is missing; the working directory by default. prefix: of the file names.
        additional_output_names: list of values of the graph that both models also put out.
        nominal_checkpoint: also write {prefix}nominal_checkpoint: names and types alone.
        loss_input_names: list of names that the loss is called with, instead of all outputs.
        batch_norm: whether BatchNormalization takes the batch's statistics in training: None, where
        its scale or bias is trained; True, everywhere, as
            in ONNX Runtime; False, nowhere. Only here.
        ort_format, custom_op_library: not supported; anything but the default raises.
    Raises:
        InputError (also caught as RuntimeError): a parameter that is not there, one that is trained
        and frozen, a loss that is no number, a wrong type. UnsupportedField: ort_format,
        custom_op_library.
    Signature and files: onnxruntime.training.artifacts, release 1.19.2. What the files say:
    `edgewise.training.artifact_files`.
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
    o = onnx()
    path = None
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        try:
            model = o.load(path)
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
    elif not isinstance(model, o.ModelProto):
        raise BlockError(
            f"model is a {type(model).__name__}",
            "generate_artifacts",
            "Pass an onnx.ModelProto or a path.",
        )
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
    if loss is None:
        loss = onnxblock.blocks.PassThrough()
    elif isinstance(loss, LossType):
        loss = getattr(onnxblock.loss, loss.name)()
    elif not isinstance(loss, onnxblock.Block):
        raise BlockError(
            f"loss is a {type(loss).__name__}",
            "generate_artifacts",
            "Pass a LossType, an onnxblock.Block, or None.",
        )
    if isinstance(optimizer, OptimType):
        optimizer = getattr(onnxblock.optim, optimizer.name)()
    elif optimizer is not None and not isinstance(optimizer, onnxblock.Block):
        raise BlockError(
            f"optimizer is a {type(optimizer).__name__}",
            "generate_artifacts",
            "Pass an OptimType, an onnxblock.Block, or None.",
        )
    if (
        isinstance(loss, onnxblock.loss.CrossEntropyLoss)
        and opset_of(model) < 12
        and model.ByteSize() < _LARGE
    ):
        model = o.version_converter.convert_version(model, 12)  # the first that has the loss
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
    if optimizer is not None:
        with onnxblock.empty_base(opset_version=max(opset_of(model), 12)):
            optimizer(parameters)
            optimizer_model = optimizer.to_model_proto()
    folder = os.fspath(artifact_directory) if artifact_directory is not None else os.getcwd()
    folder = folder.decode() if isinstance(folder, bytes) else folder
    try:
        os.makedirs(folder, exist_ok=True)
        for name, m in (
            ("training_model", training_model),
            ("eval_model", eval_model),
            ("optimizer_model", optimizer_model),
        ):
            if m is not None:
                _save(m, folder, f"{prefix}{name}.onnx")
    except OSError as e:
        raise InputError(
            f"cannot write the artifacts ({e.strerror or e})",
            folder,
            "Check the folder and the free space.",
        ) from None
    onnxblock.save_checkpoint(parameters, os.path.join(folder, f"{prefix}checkpoint"))
    if nominal_checkpoint:
        onnxblock.save_checkpoint(
            parameters, os.path.join(folder, f"{prefix}nominal_checkpoint"), nominal_checkpoint=True
        )


def _save(model, folder, name):
    path = os.path.join(folder, name)
    if model.ByteSize() < _LARGE:
        onnx().save(model, path)
        return
    data = os.path.join(folder, name + ".data")
    if os.path.exists(data):  # onnx would append to it
        os.unlink(data)
    onnx().save(model, path, save_as_external_data=True, location=name + ".data")

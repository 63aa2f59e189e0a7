"""Reads the models that `generate_artifacts` writes, here or in ONNX Runtime, as graphs to train.

Training models of ONNX Runtime have gradient nodes, of which only the part up to the loss is kept.
Their parameters are inputs, with a gradient buffer for each trained one. The values of the
parameters are in the checkpoint.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....compiler.declare.dtypes import FLOAT, NAME
from ....compiler.ir import Graph, Tensor
from ....compiler.onnx import as_source, read_model
from ....compiler.onnx.source import Source
from ....compiler.training.optimizers import SGD, AdamW, Optimizer
from ....errors import ModelError, UnsupportedOp
from .metadata import TrainingInfo, read_optimizer_model
from .odtc import Checkpoint, OptimizerGroup

MAX_STEP = 1 << 52  # pages count in doubles
GROUP = "group0"  # the optimizer's name in a checkpoint
BUFFER, GRADIENT = "_grad.accumulation.buffer", ".accumulation.out"


@dataclass
class TrainingModel:
    """A training or evaluation model.

    Attributes:
        graph: the forward part and the loss, with the parameters as constants.
        inputs: names of the inputs that are fed, in order.
        outputs: names of the outputs, the loss first.
        trainable, frozen: names of the parameters, in the order of the file.
        batch_norm: outputs of the normalizations that update their running statistics.
    """

    graph: Graph
    inputs: list[str]
    outputs: list[str]
    trainable: list[str]
    frozen: list[str] = field(default_factory=list)
    batch_norm: list[str] = field(default_factory=list)
    shapes: dict[str, list[int]] = field(default_factory=dict)


def read_training_model(
    source: Source | str | os.PathLike[str] | bytes, parameters: Mapping[str, Tensor]
) -> TrainingModel:
    """Reads a training or evaluation model.

    Args:
        source: path, bytes or Source of training_model.onnx or eval_model.onnx.
        parameters: {name: Tensor} of its checkpoint.

    Raises:
        ModelError: it is not such model, or a parameter is not in the checkpoint.
    """
    source = as_source(source)
    graph = read_model(source)
    said = TrainingInfo.of(graph)
    names = [i.name for i in graph.input_names()]
    buffers = [n for n in names if n.endswith(BUFFER)]
    if said is not None:
        trainable = list(said.requires_grad)
    else:
        trainable = [n[: -len(BUFFER)] for n in buffers]
    missing = [n for n in trainable if n not in parameters]
    if missing:
        raise ModelError(
            f"its parameter '{missing[0]}' is not in the checkpoint",
            source.name,
            "Give the checkpoint that was made with it.",
        )
    shapes = _fixed_shapes(graph, parameters)
    # Edgewise's artifacts may have parameters as initializers; the checkpoint's override them.
    fed = [n for n in names if n in parameters]
    kept = [n for n in parameters if n in graph.constants and n not in fed]
    for name in (*fed, *kept):
        t = parameters[name]
        graph.constants[name] = Tensor(name, t.dtype, t.shape, t.source, t.offset, t.nbytes, t.data)
    internal = set(buffers) | {"lazy_reset_grad"} if buffers else set()
    graph.inputs = [i for i in graph.inputs if i.name not in internal and i.name not in parameters]
    graph.outputs = [o for o in graph.outputs if not o.name.endswith(GRADIENT)]
    if not graph.outputs:
        raise ModelError(
            "it has no output for a loss",
            source.name,
            "Give the training model that generate_artifacts wrote.",
        )
    _keep_forward(graph)
    inputs = [i.name for i in graph.input_names()]
    norms = [
        n.outputs[0]
        for n in graph.nodes
        if n.op == "BatchNormInternal"
        or n.op == "BatchNormalization"
        and n.attrs.get("training_mode") == 1
    ] + list(said.batch_norm if said is not None and said.mode == "train" else ())
    return TrainingModel(
        graph,
        inputs,
        [o.name for o in graph.outputs],
        trainable,
        [n for n in parameters if n not in trainable],
        norms,
        shapes,
    )


def _fixed_shapes(graph: Graph, names: Iterable[str]) -> dict[str, list[int]]:
    """The shapes of parameters as the model declares them, where it does."""
    declared = {i.name: i.shape for i in graph.inputs}
    declared |= {n: list(t.shape) for n, t in graph.constants.items()}
    return {
        n: shape
        for n in names
        if (shape := declared.get(n)) is not None and all(isinstance(d, int) for d in shape)
    }


def saved_optimizer(checkpoint: Checkpoint) -> OptimizerGroup | None:
    """The optimizer states of a checkpoint, or None.

    Raises:
        ModelError: the step or the learning rate is out of range, or a moment is not a float32
            tensor of its parameter's shape.
    """
    name = GROUP if GROUP in checkpoint.groups else next(iter(checkpoint.groups), None)
    if name is None:
        return None
    group, remedy = checkpoint.groups[name], "The checkpoint is damaged; make it again."
    if not 0 <= group.step < MAX_STEP or not (
        math.isfinite(group.initial_learning_rate) and group.initial_learning_rate >= 0
    ):
        raise ModelError(
            f"it is at step {group.step} with a learning rate of {group.initial_learning_rate}",
            f"checkpoint, optimizer '{name}'",
            remedy,
        )
    for parameter, moments in group.momentums.items():
        t = checkpoint.parameters.get(parameter)
        for key, moment in moments.items():
            if (
                t is not None
                and not checkpoint.nominal
                and (moment.dtype != FLOAT or list(moment.shape) != list(t.shape))
            ):
                raise ModelError(
                    f"its {key} is {NAME.get(moment.dtype, moment.dtype)}{list(moment.shape)}, for"
                    f" a parameter of shape {list(t.shape)}",
                    f"checkpoint, parameter '{parameter}'",
                    remedy,
                )
    return group


def _keep_forward(graph: Graph) -> None:
    """Removes the nodes that the outputs do not depend on: gradients.

    The further outputs of ONNX Runtime's batch norms have one name in all of them, and no
    consumer; they are removed too.
    """
    for n in graph.nodes:
        if n.op == "BatchNormInternal":
            n.outputs = n.outputs[:1]
    graph.nodes, used = graph.needed([o.name for o in graph.outputs])
    graph.constants = {k: t for k, t in graph.constants.items() if k in used}


def optimizer_of_model(
    source: Source | str | os.PathLike[str] | bytes,
) -> tuple[Optimizer, float | None]:
    """(Optimizer, max_grad_norm or None) of an optimizer_model.onnx."""
    info = read_optimizer_model(source)
    if info.kind == "SGD":
        return SGD(lr=1e-3), _decimal(info.max_norm)
    if not info.correct_bias:
        raise UnsupportedOp(
            "its AdamW does not correct the moments' bias",
            "optimizer model",
            "Make it with correct_bias=True.",
        )
    optimizer = AdamW(
        lr=1e-3,
        betas=tuple(map(_decimal, info.betas)),
        eps=_decimal(info.eps),
        weight_decay=_decimal(info.weight_decay),
        form="ort" if info.adam_mode == 1 else "torch",
    )
    return optimizer, _decimal(info.max_norm)


def _decimal(x: float | None) -> Any:
    """A float32 attribute as the decimal number that it was written from: 0.9, not 0.89999998."""
    return None if x is None else float(f"{x:.7g}")

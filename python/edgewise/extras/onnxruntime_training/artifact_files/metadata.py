"""Training artifacts, read without the onnx package: Edgewise's training and evaluation models,
and optimizer models of Edgewise and of ONNX Runtime.

A training model of Edgewise contains only the forward graph and the loss: gradients are derived
when it is loaded. Its parameters are graph inputs after the user's, as in ONNX Runtime's
artifacts; their values are in the checkpoint. The rest is stored as JSON in metadata_props under
`edgewise.training`:

    version: 1
    mode: "train" or "eval"
    inputs: names of the inputs of a step, in order; the other graph inputs are parameters
    outputs: names of the outputs, the loss first
    requires_grad: names of the parameters that are trained
    frozen: names of those that are not trained but stored in the checkpoint
    batch_norm: {output of a BatchNormalization node: [mean, variance]}: nodes that take mean and
        variance from the batch in training, and the two frozen parameters that they update:
        x = momentum * x + (1 - momentum) * the batch's
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field

from ....compiler.ir import Graph, Node
from ....compiler.onnx import as_source, read_model
from ....compiler.onnx.source import Source
from ....errors import ModelError, UnsupportedOp

KEY = "edgewise.training"


@dataclass
class TrainingInfo:
    """The metadata of a training or evaluation model; see the module's documentation."""

    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    requires_grad: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    batch_norm: dict[str, list[str]] = field(default_factory=dict)
    mode: str = "train"
    version: int = 1

    @property
    def loss(self) -> str:
        """Name of the loss."""
        return self.outputs[0]

    @property
    def parameters(self) -> list[str]:
        """Names of all parameters, those that are trained first."""
        return [*self.requires_grad, *self.frozen]

    def to_json(self) -> str:
        """The text for metadata_props."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def of(cls, graph: Graph) -> TrainingInfo | None:
        """The metadata of a graph; None if it is not a model of Edgewise (ONNX Runtime's training
        models have gradients as nodes).

        Raises:
            ModelError: the metadata is damaged or does not match the graph.
        """
        text = graph.about.custom_metadata_map.get(KEY)
        if text is None:
            return None

        def broken(what: str) -> ModelError:
            return ModelError(
                f"its metadata '{KEY}' {what}",
                getattr(graph.source, "name", "model"),
                "Make the artifacts again.",
            )

        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise broken(f"is not valid JSON ({str(e)[:80]})") from None
        if not isinstance(values, dict) or values.get("version") != 1:
            raise broken("is of another version")
        info = cls(**{k: values.get(k, d) for k, d in asdict(cls()).items()})
        for name in ("inputs", "outputs", "requires_grad", "frozen"):
            if not isinstance(getattr(info, name), list) or not all(
                isinstance(x, str) for x in getattr(info, name)
            ):
                raise broken(f"has no names in {name}")
        if not isinstance(info.batch_norm, dict) or not all(
            isinstance(v, list) and len(v) == 2 and set(map(str, v)) <= set(info.frozen)
            for v in info.batch_norm.values()
        ):
            raise broken("has no names of statistics in batch_norm")
        inputs, names = [i.name for i in graph.inputs], [*info.inputs, *info.parameters]
        if sorted(inputs) != sorted(names):
            raise broken(
                "and its inputs name different tensors"
                f" ({', '.join(sorted(set(inputs) ^ set(names))[:6]) or 'one twice'})"
            )
        if info.outputs != [o.name for o in graph.outputs] or not info.outputs:
            raise broken("and its outputs name different tensors")
        if not set(info.batch_norm) <= {
            n.outputs[0] for n in graph.nodes if n.op == "BatchNormalization" and n.outputs
        }:
            raise broken("names a BatchNormalization that is not there")
        return info


@dataclass
class OptimizerInfo:
    """An optimizer model. The learning rate and the step are its inputs.

    Attributes:
        kind: "AdamW" or "SGD".
        betas, eps, weight_decay, correct_bias: of AdamW.
        adam_mode: 0: PyTorch's form (decay before the update, eps on the corrected root); 1: that
            of transformers (decay after the update).
        max_norm: maximum L2 norm of all gradients, or None.
    """

    kind: str = "AdamW"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    correct_bias: bool = True
    adam_mode: int = 0
    max_norm: float | None = None

    @property
    def moments(self) -> tuple[str, ...]:
        """Names of a parameter's states in a checkpoint."""
        return ("momentum0", "momentum1") if self.kind == "AdamW" else ("momentum0",)


def read_optimizer_model(source: Source | str | os.PathLike[str] | bytes) -> OptimizerInfo:
    """Reads an optimizer_model.onnx, ONNX Runtime's or Edgewise's.

    Args:
        source: path, bytes or Source.

    Raises:
        ModelError: the file is damaged.
        UnsupportedOp: its graph is not gradient clipping and one AdamW or SGD node.
    """
    file = as_source(source, "optimizer_model.onnx")
    graph, where = read_model(file), file.name
    info, gradients = None, "gradients"
    max_norm = None
    for n in graph.nodes:
        if (
            n.domain == "com.microsoft"
            and n.op == "InplaceClipGradNorm"
            and info is None
            and n.inputs[:1] == ["gradients"]
            and n.outputs
        ):
            gradients, max_norm = n.outputs[0], _float(n, "max_norm", 1.0, where)
            if not max_norm > 0:
                raise ModelError(
                    f"max_norm is {max_norm}",
                    f"{where}: {n.where}",
                    "Clip gradients to a positive norm.",
                )
            continue
        at = {"AdamWOptimizer": 3, "SGDOptimizerV2": 2}.get(n.op)  # input of the gradients
        if (
            n.domain != "com.microsoft"
            or at is None
            or info is not None
            or len(n.inputs) <= at
            or n.inputs[at] != gradients
        ):
            raise UnsupportedOp(
                "an optimizer model is gradient clipping and one AdamWOptimizer or SGDOptimizerV2",
                f"{where}: {n.where}",
                "Make it with onnxblock.optim.",
            )
        info = OptimizerInfo("SGD") if n.op == "SGDOptimizerV2" else _adamw(n, where)
        info.max_norm = max_norm
    if info is None:
        raise UnsupportedOp("it holds no optimizer", where, "Is this an optimizer_model.onnx?")
    return info


def _adamw(node: Node, where: str) -> OptimizerInfo:
    """The attributes of an AdamWOptimizer."""
    mode = node.attrs.get("adam_mode", 0)
    if mode not in (0, 1):
        raise UnsupportedOp(
            f"adam_mode is {mode!r}",
            f"{where}: {node.where}",
            "It is 0 (PyTorch's) or 1 (that of transformers).",
        )
    info = OptimizerInfo(
        "AdamW",
        (_float(node, "alpha", 0.9, where), _float(node, "beta", 0.999, where)),
        _float(node, "epsilon", 1e-8, where),
        _float(node, "weight_decay", 1e-2, where),
        bool(node.attrs.get("correct_bias", 1)),
        mode,
    )
    if not all(0 <= b < 1 for b in info.betas) or info.eps < 0:
        raise ModelError(
            f"AdamW with betas {info.betas} and epsilon {info.eps}",
            f"{where}: {node.where}",
            "Betas are at least 0 and less than 1, epsilon is not negative.",
        )
    return info


def _float(node: Node, name: str, default: float, where: str) -> float:
    """A finite attribute."""
    x = node.attrs.get(name, default)
    if type(x) not in (int, float) or not math.isfinite(x):
        raise ModelError(
            f"attribute '{name}' is not a number",
            f"{where}: {node.where}",
            "The file is damaged; make the artifacts again.",
        )
    return x

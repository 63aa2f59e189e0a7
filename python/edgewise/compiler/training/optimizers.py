"""Optimizers, with PyTorch's names.

Each describes its states per parameter (`states`) and adds the node that updates a parameter
(`update`). The arithmetic is in ops/training and core/kernels/training/optimizer.c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import InputError
from ..bind.autodiff import Gradients
from ..declare.dtypes import FLOAT, INT8, UINT8
from ..declare.symbolic import product
from ..ir import Value
from ..schema.training import LANGUAGE_MODEL, default_learning_rate

BLOCK = 256  # elements that share a scale in 8-bit states


@dataclass
class Optimizer:
    """An optimizer.

    Args:
        lr: learning rate; schedules multiply it.
    """

    lr: float = 1e-3

    def states(self, shape: Sequence[int]) -> dict[str, tuple[int, list[int]]]:
        """The states of a parameter, {suffix: (dtype code, shape)}. All are zeros at first."""
        return {name: (FLOAT, list(shape)) for name in self.moments()}

    def moments(self) -> tuple[str, ...]:
        """Suffixes of the float32 states with the parameter's shape, named as in PyTorch."""
        return ()

    def update(
        self,
        graph: Gradients,
        parameter: Value,
        gradient: Value,
        states: Sequence[Value],
        learning_rate: Value,
        step: Value,
        scale: Value | None,
        weight_decay: float,
    ) -> list[Value]:
        """Adds the node that updates a parameter.

        Args:
            graph: to add it to.
            parameter, gradient: float32 of one shape.
            states: as `states` describes them.
            learning_rate: float32 [1].
            step: int64 [1], counting from 1.
            scale: float32 [1], factor of the gradient; or None.
            weight_decay: of this parameter.

        Returns:
            The new parameter and states.
        """
        inputs = [parameter, gradient, *states, learning_rate, step] + (
            [scale] if scale is not None else []
        )
        return (
            graph.op(
                self.op_name(),
                *inputs,
                domain="edgewise",
                outputs=1 + len(states),
                **self.attributes(weight_decay),
            )
            if states
            else [
                graph.op(
                    self.op_name(), *inputs, domain="edgewise", **self.attributes(weight_decay)
                )
            ]
        )

    def op_name(self) -> str:
        """The op of the domain edgewise that updates a parameter (ops/training/optimizers.py)."""
        return type(self).__name__

    def attributes(self, weight_decay: float) -> dict[str, Any]:
        """Attributes of that op. weight_decay: of the parameter, since its group may have its
        own.
        """
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """JSON of it: {"type": name, field: value, ...}."""
        return {"type": type(self).__name__, **asdict(self)}


@dataclass
class AdamW(Optimizer):
    """torch.optim.AdamW (Loshchilov and Hutter 2019): p -= lr wd p; p -= lr m^ / (sqrt(v^) + eps).

    form: "torch", or "ort": ONNX Runtime Training's rule (Hugging Face's first AdamW), which decays
    after the update.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    form: str = "torch"

    def moments(self) -> tuple[str, ...]:
        """Mean of gradients and of their squares."""
        return ("exp_avg", "exp_avg_sq")

    def op_name(self) -> str:
        """AdamW, also for Adam: `form` selects the rule."""
        return "AdamW"

    def attributes(self, weight_decay: float) -> dict[str, Any]:
        """beta1, beta2, epsilon, weight_decay, and mode: `form`."""
        return {
            "beta1": float(self.betas[0]),
            "beta2": float(self.betas[1]),
            "epsilon": float(self.eps),
            "weight_decay": float(weight_decay),
            "mode": self.form,
        }


@dataclass
class Adam(AdamW):
    """torch.optim.Adam (Kingma and Ba 2015); weight decay is added to the gradient."""

    weight_decay: float = 0.0
    form: str = "adam"


@dataclass
class AdamW8bit(AdamW):
    """AdamW with its two moments in 8 bits, a scale for each 256 of them (after Dettmers et al.

    2022, 8-bit Optimizers via Block-wise Quantization).
    """

    def op_name(self) -> str:
        """AdamW8bit."""
        return "AdamW8bit"

    def states(self, shape: Sequence[int]) -> dict[str, tuple[int, list[int]]]:
        """The moments flat, int8 and uint8, and the largest magnitude of each BLOCK elements in
        float32.
        """
        n = product(shape)
        blocks = -(-n // BLOCK)
        return {
            "exp_avg": (INT8, [n]),
            "exp_avg_absmax": (FLOAT, [blocks]),
            "exp_avg_sq": (UINT8, [n]),
            "exp_avg_sq_absmax": (FLOAT, [blocks]),
        }


@dataclass
class SGD(Optimizer):
    """torch.optim.SGD with momentum, dampening and Nesterov."""

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def moments(self) -> tuple[str, ...]:
        """The momentum, if it is not 0."""
        return ("momentum_buffer",) if self.momentum else ()

    def attributes(self, weight_decay: float) -> dict[str, Any]:
        """momentum, dampening, nesterov (0 or 1), weight_decay.

        InputError: Nesterov without a momentum, or with dampening.
        """
        if self.nesterov and (self.momentum <= 0 or self.dampening):
            raise InputError(
                "Nesterov momentum requires a momentum and zero dampening",
                "SGD",
                "Set momentum, and dampening to 0.",
            )
        return {
            "momentum": float(self.momentum),
            "dampening": float(self.dampening),
            "nesterov": int(self.nesterov),
            "weight_decay": float(weight_decay),
        }


@dataclass
class Adagrad(Optimizer):
    """torch.optim.Adagrad (Duchi et al. 2011) without learning rate decay."""

    lr: float = 1e-2
    eps: float = 1e-10
    weight_decay: float = 0.0

    def moments(self) -> tuple[str, ...]:
        """The sum of squared gradients."""
        return ("sum",)

    def attributes(self, weight_decay: float) -> dict[str, Any]:
        """epsilon, weight_decay."""
        return {"epsilon": float(self.eps), "weight_decay": float(weight_decay)}


@dataclass
class RMSprop(Optimizer):
    """torch.optim.RMSprop (Hinton), also centered and with momentum."""

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    def moments(self) -> tuple[str, ...]:
        """Mean of squared gradients; of gradients if centered; the momentum if there is
        one.
        """
        return (
            "square_avg",
            *(["grad_avg"] if self.centered else []),
            *(["momentum_buffer"] if self.momentum else []),
        )

    def attributes(self, weight_decay: float) -> dict[str, Any]:
        """alpha, epsilon, momentum, centered (0 or 1), weight_decay."""
        return {
            "alpha": float(self.alpha),
            "epsilon": float(self.eps),
            "momentum": float(self.momentum),
            "centered": int(self.centered),
            "weight_decay": float(weight_decay),
        }


@dataclass
class Lion(Optimizer):
    """Lion (Chen et al. 2023): the sign of an interpolated momentum."""

    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0

    def moments(self) -> tuple[str, ...]:
        """Mean of gradients."""
        return ("exp_avg",)

    def attributes(self, weight_decay: float) -> dict[str, Any]:
        """beta1, beta2, weight_decay."""
        return {
            "beta1": float(self.betas[0]),
            "beta2": float(self.betas[1]),
            "weight_decay": float(weight_decay),
        }


@dataclass
class Muon(Optimizer):
    """torch.optim.Muon (Jordan et al. 2024).

    The step is the momentum with all singular values brought close to 1 by Newton-Schulz
    iterations. Those are computed in float32 here, in bfloat16 by PyTorch. For matrices only: give
    embeddings, gains and biases another optimizer (`groups` of Program).

    Args:
        adjust_lr_fn: None or "original": the rate is multiplied by sqrt(max(1, rows / columns)) of
            the tensor as stored in the file; "match_rms_adamw": by 0.2 sqrt(max(rows, columns)),
            which makes steps as large as AdamW's (Liu et al. 2025).
    """

    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315)
    eps: float = 1e-7
    ns_steps: int = 5
    adjust_lr_fn: str | None = None

    def moments(self) -> tuple[str, ...]:
        """The momentum."""
        return ("momentum_buffer",)

    def update(
        self,
        graph: Gradients,
        parameter: Value,
        gradient: Value,
        states: Sequence[Value],
        learning_rate: Value,
        step: Value,
        scale: Value | None,
        weight_decay: float,
    ) -> list[Value]:
        """The new parameter and momentum, in ONNX operators.

        InputError: the parameter is not a matrix, or adjust_lr_fn is unknown.
        """
        if parameter.rank != 2:
            raise InputError(
                f"it has the shape {list(parameter.shape)}, Muon is for matrices",
                f"parameter '{parameter.name}'",
                "Give it another optimizer in groups, for instance {'optimizer': 'AdamW'}.",
            )
        if self.adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise InputError(
                f"{self.adjust_lr_fn!r} is not a valid adjust_lr_fn",
                "Muon",
                "Use 'original' or 'match_rms_adamw'.",
            )
        rows, columns = parameter.shape
        gradient = gradient if scale is None else graph.mul(gradient, scale)
        fresh = graph.scale(gradient, 1 - self.momentum)
        mean = graph.op(
            "Assign",
            states[0],
            graph.add(graph.scale(states[0], self.momentum), fresh),
            domain="edgewise",
        )
        x = graph.add(graph.scale(mean, self.momentum), fresh) if self.nesterov else mean
        x = self._orthogonal(graph, x, rows > columns)
        size = (
            0.2 * math.sqrt(max(rows, columns))
            if self.adjust_lr_fn == "match_rms_adamw"
            else math.sqrt(max(1, rows / columns))
        )
        kept = (
            graph.mul(
                parameter,
                graph.sub(graph.number(1.0), graph.scale(learning_rate, float(weight_decay))),
            )
            if weight_decay
            else parameter
        )
        return [
            graph.op(
                "Assign",
                parameter,
                graph.sub(kept, graph.mul(x, graph.scale(learning_rate, size))),
                domain="edgewise",
            ),
            mean,
        ]

    def _orthogonal(self, graph: Gradients, x: Value, tall: bool) -> Value:
        """A matrix with its singular values brought close to 1. tall: more rows than columns."""
        x = graph.swap(x) if tall else x  # the smaller of the two Gram matrices
        x = graph.div(
            x,
            graph.op(
                "Max",
                graph.op("Sqrt", graph.op("SumOfSquares", x, domain="edgewise")),
                graph.number(self.eps),
            ),
        )
        a, b, c = map(float, self.ns_coefficients)
        for _ in range(self.ns_steps):  # x -> a x + b (x x^T) x + c (x x^T)^2 x
            gram = graph.op("Gemm", x, x, transB=1)
            x = graph.op("Gemm", graph.op("Gemm", gram, gram, gram, alpha=c, beta=b), x, x, beta=a)
        return graph.swap(x) if tall else x


OPTIMIZERS = {
    c.__name__.lower(): c for c in (AdamW, Adam, AdamW8bit, SGD, Adagrad, RMSprop, Lion, Muon)
}


def optimizer_of(optimizer: Optimizer | str | dict[str, Any] | None) -> Optimizer:
    """An Optimizer.

    Args:
        optimizer: an Optimizer; a name, in any case; or a dict of fields with "type", as `describe`
            returns.

    Raises:
        InputError: there is no such optimizer, or it lacks a field.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    fields = dict(optimizer) if isinstance(optimizer, dict) else {"type": optimizer}
    name = fields.pop("type", None)
    kind = OPTIMIZERS.get(name.lower()) if isinstance(name, str) else None
    if kind is None:
        raise InputError(
            f"there is no optimizer {name!r}",
            "optimizer",
            f"Use one of {', '.join(c.__name__ for c in OPTIMIZERS.values())}.",
        )
    try:
        return kind(**fields)
    except TypeError as e:
        raise InputError(
            str(e)
            .split("__init__() ")[-1]
            .replace("got an unexpected keyword argument", "it has no field"),
            f"optimizer {name}",
            f"Its fields are {', '.join(kind.__dataclass_fields__)}.",
        ) from None


def language_model_optimizer(
    optimizer: Optimizer | str | dict[str, object] | None, adapters: bool
) -> Optimizer:
    """The optimizer to fine-tune a language model with.

    Args:
        optimizer: as `optimizer_of` takes it; None: the default one. Without a learning rate of its
            own it gets the default for language models (schema/training.py).
        adapters: whether adapters are trained, not the parameters.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    made = optimizer_of(LANGUAGE_MODEL.optimizer if optimizer is None else optimizer)
    if not (isinstance(optimizer, dict) and "lr" in optimizer):
        rate = default_learning_rate(type(made).__name__, adapters)
        made.lr = made.lr if rate is None else rate
    return made

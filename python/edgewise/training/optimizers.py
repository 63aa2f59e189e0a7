"""Optimizers in PyTorch's words. Each says what it keeps per parameter (`states`) and adds the node that updates one (`update`);
the arithmetic is in ops/optimizers.py and core/kernels/optimizer.c."""
from __future__ import annotations

from dataclasses import asdict, dataclass

from ..errors import InputError
from ..ops.dtypes import FLOAT, INT8, UINT8
from ..ops.symbolic import product

BLOCK = 256  # elements that share a scale in 8-bit states


@dataclass
class Optimizer:
    """lr: learning rate at the start; schedules multiply it."""
    lr: float = 1e-3

    def states(self, shape):
        """{suffix: (dtype code, shape)} of what is kept for a parameter; all begin as zeros."""
        return {name: (FLOAT, list(shape)) for name in self.moments()}

    def moments(self):
        return ()

    def update(self, g, parameter, gradient, states, learning_rate, step, scale, weight_decay):
        """Adds the updating node; returns the Values of the new parameter and states.

        learning_rate: float32 [1]; step: int64 [1], counting from 1; scale: float32 [1] that the gradient is multiplied with, or None."""
        inputs = [parameter, gradient, *states, learning_rate, step] + ([scale] if scale is not None else [])
        return g.op(self.op_name(), *inputs, domain="edgewise", outputs=1 + len(states), **self.attributes(weight_decay)) if states else [g.op(self.op_name(), *inputs, domain="edgewise", **self.attributes(weight_decay))]

    def op_name(self):
        return type(self).__name__

    def attributes(self, weight_decay):
        raise NotImplementedError

    def describe(self):
        """JSON of it: {"type": name, field: value, ...}."""
        return {"type": type(self).__name__, **asdict(self)}


@dataclass
class AdamW(Optimizer):
    """torch.optim.AdamW (Loshchilov and Hutter 2019): p -= lr wd p; p -= lr m^ / (sqrt(v^) + eps).

    form: "torch", or "ort": ONNX Runtime Training's rule (Hugging Face's first AdamW), which decays after the update."""
    betas: tuple = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    form: str = "torch"

    def moments(self):
        return ("exp_avg", "exp_avg_sq")

    def op_name(self):
        return "AdamW"

    def attributes(self, weight_decay):
        return {"beta1": float(self.betas[0]), "beta2": float(self.betas[1]), "epsilon": float(self.eps), "weight_decay": float(weight_decay), "mode": self.form}


@dataclass
class Adam(AdamW):
    """torch.optim.Adam (Kingma and Ba 2015); weight decay is added to the gradient."""
    weight_decay: float = 0.0
    form: str = "adam"


@dataclass
class AdamW8bit(AdamW):
    """AdamW with its two moments in 8 bits, a scale for each 256 of them (after Dettmers et al. 2022, 8-bit Optimizers via Block-wise Quantization)."""

    def op_name(self):
        return "AdamW8bit"

    def states(self, shape):
        n = product(shape)
        blocks = -(-n // BLOCK)
        return {"exp_avg": (INT8, [n]), "exp_avg_absmax": (FLOAT, [blocks]), "exp_avg_sq": (UINT8, [n]), "exp_avg_sq_absmax": (FLOAT, [blocks])}


@dataclass
class SGD(Optimizer):
    """torch.optim.SGD with momentum, dampening and Nesterov."""
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def moments(self):
        return ("momentum_buffer",) if self.momentum else ()

    def attributes(self, weight_decay):
        if self.nesterov and (self.momentum <= 0 or self.dampening):
            raise InputError("Nesterov's rule wants a momentum and no dampening", "SGD", "Set momentum, and dampening to 0.")
        return {"momentum": float(self.momentum), "dampening": float(self.dampening), "nesterov": int(self.nesterov), "weight_decay": float(weight_decay)}


@dataclass
class Adagrad(Optimizer):
    """torch.optim.Adagrad (Duchi et al. 2011) without learning rate decay."""
    lr: float = 1e-2
    eps: float = 1e-10
    weight_decay: float = 0.0

    def moments(self):
        return ("sum",)

    def attributes(self, weight_decay):
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

    def moments(self):
        return ("square_avg", *(["grad_avg"] if self.centered else []), *(["momentum_buffer"] if self.momentum else []))

    def attributes(self, weight_decay):
        return {"alpha": float(self.alpha), "epsilon": float(self.eps), "momentum": float(self.momentum), "centered": int(self.centered), "weight_decay": float(weight_decay)}


@dataclass
class Lion(Optimizer):
    """Lion (Chen et al. 2023): the sign of an interpolated momentum."""
    lr: float = 1e-4
    betas: tuple = (0.9, 0.99)
    weight_decay: float = 0.0

    def moments(self):
        return ("exp_avg",)

    def attributes(self, weight_decay):
        return {"beta1": float(self.betas[0]), "beta2": float(self.betas[1]), "weight_decay": float(weight_decay)}


OPTIMIZERS = {c.__name__.lower(): c for c in (AdamW, Adam, AdamW8bit, SGD, Adagrad, RMSprop, Lion)}


def optimizer_of(optimizer):
    """An Optimizer of an Optimizer, of a name (case does not matter), or of a dict as `describe` gives."""
    if isinstance(optimizer, Optimizer):
        return optimizer
    fields = dict(optimizer) if isinstance(optimizer, dict) else {"type": optimizer}
    name = fields.pop("type", None)
    kind = OPTIMIZERS.get(name.lower()) if isinstance(name, str) else None
    if kind is None:
        raise InputError(f"there is no optimizer {name!r}", "optimizer", f"Use one of {', '.join(c.__name__ for c in OPTIMIZERS.values())}.")
    try:
        return kind(**fields)
    except TypeError as e:
        raise InputError(str(e).replace("__init__() ", ""), f"optimizer {name}", f"Its fields are {', '.join(kind.__dataclass_fields__)}.") from None

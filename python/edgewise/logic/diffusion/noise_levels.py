"""The noise of a diffusion model's training: what diffusers' schedulers compute from their
configurations.

diffusers computes these tables in float32; `f32` rounds where it does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import f32

__all__ = ["Levels", "SchedulerConfig", "evenly", "interpolated", "time_of"]

WHERE = "scheduler_config.json"
MAX_STEPS = 10000  # of training


def evenly(first: float, last: float, count: int) -> list[float]:
    """`count` numbers from `first` to `last`, as numpy.linspace."""
    if count == 1:
        return [first]
    step = (last - first) / (count - 1)
    return [*(first + i * step for i in range(count - 1)), last]


class SchedulerConfig:
    """The fields of a scheduler's configuration, with the defaults of its class.

    Args:
        fields: contents of scheduler_config.json.
        defaults: those of the class; fields that are in neither are ignored, as by diffusers.
    """

    def __init__(self, fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.fields = {**defaults, **{k: v for k, v in fields.items() if k in defaults}}

    def choice(self, name: str, *among: Any) -> Any:
        """A field that has one of several values. Raises InputError."""
        value = self.fields[name]
        if not any(value == one and type(value) is type(one) for one in among):
            raise InputError(
                f"{name} is {value!r}", WHERE, f"Supported are {', '.join(map(repr, among))}."
            )
        return value

    def number(self, name: str, least: float, most: float) -> float:
        """A number within bounds. Raises InputError."""
        value = self.fields[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(f"{name} is {value!r}", WHERE, "Give a number.")
        if not least <= value <= most:
            raise InputError(f"{name} is {value}", WHERE, f"Give {least} to {most}.")
        return value

    def count(self, name: str, least: int, most: int) -> int:
        """An integer within bounds. Raises InputError."""
        value = self.number(name, least, most)
        if value != int(value):
            raise InputError(f"{name} is {value}", WHERE, "Give an integer.")
        return int(value)

    def flag(self, name: str) -> bool:
        """A bool. Raises InputError."""
        return bool(self.choice(name, True, False))


@dataclass(frozen=True)
class Levels:
    """The noise at each time of training.

    Attributes:
        alphas: how much of the variance is the picture's (alphas_cumprod), from time 0 on.
        last_alpha: after the last step.
    """

    alphas: Sequence[float]
    last_alpha: float

    @classmethod
    def of(cls, config: SchedulerConfig, smallest: float | None = None) -> Levels:
        """Reads a configuration.

        Args:
            config: of the scheduler.
            smallest: replaces the last alpha if rescale_betas_zero_snr makes it 0.

        Raises:
            InputError: a field is not supported.
        """
        betas = _betas(config)
        if config.fields.get("rescale_betas_zero_snr"):
            betas = _without_signal(betas)
        alphas = _products([f32(1 - beta) for beta in betas])
        if config.fields.get("rescale_betas_zero_snr") and smallest is not None:
            alphas[-1] = smallest
        one = config.fields.get("set_alpha_to_one", True)
        return cls(alphas, 1.0 if one else alphas[0])

    def alpha(self, time: int) -> float:
        """The alpha of a time; before time 0 the last one."""
        return self.alphas[time] if time >= 0 else self.last_alpha

    def sigmas(self) -> list[float]:
        """Noise relative to the picture, for each time."""
        return [f32(math.sqrt(f32(f32(1 - a) / a))) if a else math.inf for a in self.alphas]


def _betas(config: SchedulerConfig) -> list[float]:
    trained = config.fields.get("trained_betas")
    if trained is not None:
        if not isinstance(trained, list) or not 0 < len(trained) <= MAX_STEPS:
            raise InputError("trained_betas is no list of numbers", WHERE, "Set it to null.")
        if not all(isinstance(b, (int, float)) and 0 <= b < 1 for b in trained):
            raise InputError("trained_betas are not all from 0 to 1", WHERE, "Set it to null.")
        return [f32(b) for b in trained]
    count = config.count("num_train_timesteps", 1, MAX_STEPS)
    first, last = config.number("beta_start", 0, 0.999), config.number("beta_end", 0, 0.999)
    kind = config.choice("beta_schedule", "linear", "scaled_linear", "squaredcos_cap_v2")
    if kind == "linear":
        return [f32(b) for b in evenly(first, last, count)]
    if kind == "scaled_linear":
        roots = [f32(b) for b in evenly(math.sqrt(first), math.sqrt(last), count)]
        return [f32(b * b) for b in roots]

    def bar(time: float) -> float:
        return math.cos((time + 0.008) / 1.008 * math.pi / 2) ** 2

    return [f32(min(1 - bar((i + 1) / count) / bar(i / count), 0.999)) for i in range(count)]


def _products(factors: Sequence[float]) -> list[float]:
    """Products of the first 1, 2, ... factors."""
    products, product = [], 1.0
    for factor in factors:
        product *= factor
        products.append(f32(product))
    return products


def _without_signal(betas: Sequence[float]) -> list[float]:
    """Betas that leave nothing of the picture at the last time (Lin, Liu, Li, Yang 2023)."""
    roots = [f32(math.sqrt(a)) for a in _products([f32(1 - beta) for beta in betas])]
    first, last = roots[0], roots[-1]
    scale = f32(first / f32(first - last))
    bars = [f32(f32(f32(r - last) * scale) ** 2) for r in roots]
    return [f32(1 - bar / before) for before, bar in zip([1.0, *bars[:-1]], bars)]


def interpolated(time: float, values: Sequence[float]) -> float:
    """The value at a time between integers, as numpy.interp."""
    low = min(max(math.floor(time), 0), len(values) - 1)
    high = min(low + 1, len(values) - 1)
    part = min(max(time - low, 0.0), 1.0)
    return values[low] + part * (values[high] - values[low]) if part else values[low]


def time_of(sigma: float, sigmas: Sequence[float]) -> float:
    """The time at which the noise is `sigma`, between integers by its logarithm."""
    log = math.log(max(sigma, 1e-10))
    low = 0
    while low < len(sigmas) - 2 and math.log(sigmas[low + 1]) <= log:
        low += 1
    below, above = math.log(sigmas[low]), math.log(sigmas[low + 1])
    part = min(max((below - log) / (below - above), 0.0), 1.0)
    return (1 - part) * low + part * (low + 1)

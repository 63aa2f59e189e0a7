"""The arguments of a Trainer, checked, with defaults for those that were not given."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ....compiler.ir import Graph, Value
from ....compiler.schema.training import LANGUAGE_MODEL, OTHER_MODEL
from ....compiler.training.losses import Loss, loss_of
from ....compiler.training.optimizers import Optimizer, language_model_optimizer, optimizer_of
from ....compiler.training.parameters import choose, quantized_count
from ....compiler.training.peft import LoraConfig
from ....errors import InputError, UnsupportedField
from ....logic.training.schedules import Schedule, factor
from .model import TrainedModel


@dataclass
class Options:
    """Fields are the Trainer's arguments."""

    is_lm: bool
    loss: object
    optimizer: Optimizer
    lora: LoraConfig | None
    trainable: object
    frozen: Sequence[str]
    batch_size: int
    sequence_length: int
    accumulation: int
    schedule: Schedule
    warmup: int
    total_steps: int | None
    max_grad_norm: float | None
    max_grad_value: float | None
    no_decay: Sequence[str]
    groups: Sequence[tuple[str, dict[str, Any]]]
    memory: float | None
    checkpointing: bool
    seed: int

    def program(self) -> dict[str, Any]:
        """Arguments of Program."""
        return {
            "loss": self.loss,
            "optimizer": self.optimizer,
            "trainable": self.trainable,
            "frozen": self.frozen,
            "lora": self.lora,
            "max_grad_norm": self.max_grad_norm,
            "max_grad_value": self.max_grad_value,
            "no_decay": self.no_decay,
            "groups": self.groups,
        }

    def record(self) -> dict[str, object]:
        """What a checkpoint says about the run."""
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "sequence_length": self.sequence_length,
            "accumulation": self.accumulation,
            "schedule": self.schedule if isinstance(self.schedule, str) else "function",
            "warmup_steps": self.warmup,
            "optimizer": self.optimizer.describe(),
            "lora": asdict(self.lora) if self.lora is not None else None,
        }


def check_options(
    model: TrainedModel,
    loss: Loss | str | Graph | Callable[..., Value] | None,
    optimizer: Optimizer | str | dict[str, Any] | None,
    adapters: LoraConfig | dict[str, Any] | None,
    learning_rate: float | None,
    given: dict[str, Any],
) -> Options:
    """Options of a Trainer's arguments.

    Args:
        model: what is trained.
        loss, optimizer, adapters, learning_rate: the arguments of these names.
        given: Options' other fields; None or "auto" where there is a default.

    Raises:
        InputError, UnsupportedField: a value cannot be used.
    """
    is_lm = model.is_causal_lm and loss in (None, "causal_lm")
    if loss is None and not is_lm:
        raise InputError(
            "no loss was given", "loss", "Pass loss='cross_entropy', 'mse' or another."
        )
    loss = "causal_lm" if loss is None else loss
    loss_of(loss)  # raises if there is no such loss
    defaults = LANGUAGE_MODEL if is_lm else OTHER_MODEL
    lora = _lora(adapters)
    made = (
        language_model_optimizer(optimizer, lora is not None) if is_lm else optimizer_of(optimizer)
    )
    made = replace(made)  # a copy, since the rate below is this trainer's
    if learning_rate is not None:
        made.lr = learning_rate
    if given["batch_size"] is None:
        given["batch_size"] = defaults.batch_size
    for name in ("max_grad_norm", "no_decay"):
        if isinstance(given[name], str) and given[name] == "auto":
            given[name] = getattr(defaults, name)
    options = Options(is_lm=is_lm, loss=loss, optimizer=made, lora=lora, **given)
    _check_numbers(options)
    _check_groups(options.groups)
    if lora is None and options.trainable == "all":
        _check_quantized(model.graph, options.frozen)
    if lora is not None and options.trainable == "all":
        options.trainable = []
    limit = model.positions if is_lm else None
    if limit is not None and options.sequence_length > limit:
        raise InputError(
            f"{options.sequence_length} tokens are more than the model's {limit} positions",
            "sequence_length",
            "Use shorter rows.",
        )
    if not callable(options.schedule):
        factor(options.schedule, 0, 1, options.warmup)  # raises if there is no such schedule
    return options


def check_finite(name: str, value: object, positive: bool = False) -> None:
    """Raises InputError unless `value` is a finite number, at least 0, or above 0."""
    if (
        not isinstance(value, (int, float))
        or type(value) is bool
        or not math.isfinite(value)
        or value < 0
        or positive
        and value == 0
    ):
        raise InputError(
            f"{value!r} is not a {'positive' if positive else 'non-negative'} number",
            name,
            "Give one.",
        )


def check_whole(name: str, value: object, least: int) -> None:
    """Raises InputError unless `value` is an int, at least `least`."""
    if type(value) is not int or value < least:
        raise InputError(
            f"{value!r} is not an integer of at least {least}", name, "Give an integer."
        )


def _check_numbers(options: Options) -> None:
    check_finite("learning_rate", options.optimizer.lr)
    for name in ("max_grad_norm", "max_grad_value", "memory"):
        if getattr(options, name) is not None:
            check_finite(name, getattr(options, name), positive=True)
    check_whole("batch_size", options.batch_size, 1)
    check_whole("gradient_accumulation_steps", options.accumulation, 1)
    check_whole("warmup_steps", options.warmup, 0)
    check_whole("seed", options.seed, 0)
    if options.total_steps is not None:
        check_whole("total_steps", options.total_steps, 1)
    if options.is_lm:
        check_whole("sequence_length", options.sequence_length, 1)


def _check_groups(groups: Sequence[object]) -> None:
    for group in groups:
        if not (
            isinstance(group, (list, tuple))
            and len(group) == 2
            and isinstance(group[0], str)
            and isinstance(group[1], dict)
        ):
            raise InputError(
                f"{group!r} is not a valid group",
                "groups",
                'Give pairs such as ("*.bias", {"lr_scale": 2.0, "weight_decay": 0.0}).',
            )


def _check_quantized(graph: Graph, frozen: Sequence[str]) -> None:
    """Raises InputError if most weights are quantized, which only adapters can train."""
    kept = quantized_count(graph)
    trained = sum(graph.constants[n].count for n in choose(graph, "all", frozen))
    if kept > trained:
        raise InputError(
            f"{kept:,} of its {kept + trained:,} weights are quantized, which only adapters can"
            " train",
            "trainable",
            "Pass adapters=LoraConfig(...), take the model's float file (dtype='fp32'), or name the"
            " parameters that you mean in `trainable`.",
        )


def _lora(adapters: object) -> LoraConfig | None:
    if isinstance(adapters, dict):
        unknown = [k for k in adapters if k not in LoraConfig.__dataclass_fields__]
        if unknown:
            raise UnsupportedField(
                f"LoraConfig has no field '{unknown[0]}' here",
                "adapters",
                f"Its fields are {', '.join(LoraConfig.__dataclass_fields__)}.",
            )
        return LoraConfig(**adapters)
    if adapters is not None and not isinstance(adapters, LoraConfig):
        raise InputError(
            f"a {type(adapters).__name__} is not a LoraConfig",
            "adapters",
            "Pass edgewise.training.LoraConfig(r=8, ...).",
        )
    return adapters

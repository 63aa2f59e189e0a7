"""Checks of the options of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ..native import given, written

# Integers, and the least value of each.
WHOLE = {
    "batch_size": 1,
    "sequence_length": 1,
    "gradient_accumulation_steps": 1,
    "warmup_steps": 0,
    "total_steps": 1,
    "max_steps": 0,
    "evaluate_every": 1,
    "early_stopping": 1,
    "early_stopping_patience": 1,
    "checkpoint_every": 1,
}
# Finite numbers, and whether they are above 0; else they are at least 0.
NUMBERS = {
    "learning_rate": False,
    "proximal_mu": False,
    "loraplus_lr_ratio": True,
    "loraplus_lr_embedding": True,
    "epochs": True,
    "max_grad_norm": True,
    "max_grad_value": True,
    "memory": True,
}
MAX = 1e300  # of numbers


def check_whole(value: object, where: str, least: int) -> int:
    """An integer, at least `least`. where: name of the option, for errors.

    Raises:
        InputError: it is something else.
    """
    if type(value) is not int or value < least:
        raise InputError(f"it is {written(value)}", where, f"Give an integer of at least {least}.")
    return value


def check_number(value: object, where: str, positive: bool = False) -> float:
    """A finite number, at least 0 or above 0. where: name of the option, for errors.

    Raises:
        InputError: it is something else.
    """
    least = "above 0" if positive else "of at least 0"
    return _checked(value, where, positive, f"Give a number {least}, such as 0.001.")


def _checked(value: object, where: str, positive: bool, remedy: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise InputError(f"it is {written(value)}", where, remedy)
    if not 0 <= value < MAX or positive and value == 0:
        raise InputError(f"it is {written(value)}", where, remedy)
    return value


def check_judged(patience: object, load_best: object, evaluates: bool, where: str = "") -> None:
    """Checks that a run which is judged by evaluations has some.

    Args:
        patience: early_stopping_patience, or None.
        load_best: load_best_model_at_end, or None.
        evaluates: whether there is evaluation data.
        where: what errors write before the name.

    Raises:
        InputError: there is none.
    """
    if evaluates:
        return
    if patience is not None and patience != 0 or load_best is True:
        name = "load_best_model_at_end" if load_best is True else "early_stopping_patience"
        raise InputError(
            "there is no evaluation data to judge by",
            where + name,
            "Give evaluation, such as 0.1, and evaluate_every.",
        )


def check_options(fields: Mapping[str, Any], where: str = "") -> None:
    """Checks the options of WHOLE, NUMBERS and "ema_decay" that were given; None: its default.

    Args:
        fields: options by name. Others are not looked at.
        where: what errors write before the name.

    Raises:
        InputError: one cannot be used.
    """
    for name, value in given(fields):
        if value is None:
            continue
        if name in WHOLE:
            check_whole(value, where + name, WHOLE[name])
        elif name == "ema_decay":
            remedy = "Give a number of at least 0 and below 1, such as 0.99."
            if _checked(value, where + name, False, remedy) >= 1:
                raise InputError(f"it is {written(value)}", where + name, remedy)
        elif name in NUMBERS:
            check_number(value, where + name, NUMBERS[name])

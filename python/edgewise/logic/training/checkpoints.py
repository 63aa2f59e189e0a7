"""Checkpoints of training runs: the states that they hold, and whether they belong to a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import InputError
from ..native import written
from .safetensors import TensorInfo

BEST = "best/"  # before the names of the results of the best evaluation
# Options that the description of a run has only where they are set.
OPTIONAL = (
    "ema_decay",
    "early_stopping_patience",
    "freeze_A",
    "load_best_model_at_end",
    "loraplus_lr_embedding",
    "loraplus_lr_ratio",
    "packing",
    "preference",
    "proximal_mu",
    "router_aux_loss_coef",
)


def is_kept(kind: str) -> bool:
    """Whether a checkpoint holds the states of a kind: gradients are made anew."""
    return kind != "gradient"


def is_result(kind: str) -> bool:
    """Whether states of a kind are the result of training."""
    return kind in ("parameter", "adapter", "buffer")


def is_of_optimizer(kind: str) -> bool:
    """Whether states of a kind are the optimizer's, with the number of its updates."""
    return is_kept(kind) and not is_result(kind) and kind != "average"


def check_tensors(found: dict[str, TensorInfo], wanted: dict[str, TensorInfo], where: str) -> None:
    """Checks that a checkpoint has exactly the states of a model.

    Args:
        found: the tensors of the file.
        wanted: the states.
        where: name of the file, for errors.

    Raises:
        InputError: it has others.
    """
    wrong = [n for n in wanted if n not in found or not _alike(found[n], wanted[n])]
    wrong += [n for n in found if n not in wanted]
    if wrong:
        raise InputError(
            f"its tensors do not match this model's: {', '.join(wrong[:5])}",
            where,
            "Resume with the model, adapters and optimizer of the run, or start over.",
        )


def _alike(a: TensorInfo, b: TensorInfo) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape


def check_same_run(
    mine: dict[str, Any], theirs: dict[str, Any], large: Sequence[str], where: str, remedy: str
) -> None:
    """Checks that a checkpoint belongs to a run.

    Args:
        mine: values of JSON that determine the run.
        theirs: those of the checkpoint; more of them do not count, but for OPTIONAL.
        large: names of values that errors do not write.
        where: name of the file, for errors.
        remedy: what to do about another run.

    Raises:
        InputError: they differ.
    """
    differ: list[str] = []
    names = list(mine)
    for name in OPTIONAL:
        if name not in mine:
            names.append(name)
    for name in names:
        here: object = mine.get(name)
        there: object = theirs.get(name)
        if here == there:
            continue
        if name in large:
            differ.append(f"other {name}")
        elif isinstance(here, dict) and isinstance(there, dict):
            ours: dict[str, Any] = here
            those: dict[str, Any] = there
            for key in {**ours, **those}:
                if ours.get(key) != those.get(key):
                    differ.append(_difference(f"{name}.{key}", those.get(key), ours.get(key)))
        else:
            differ.append(_difference(name, there, here))
    if differ:
        raise InputError(f"it belongs to another run: {'; '.join(differ[:4])}", where, remedy)


def _difference(name: str, there: object, here: object) -> str:
    was, now = ("given" if isinstance(x, dict) else written(x)[:60] for x in (there, here))
    return f"{name} was {was}, is {now}"

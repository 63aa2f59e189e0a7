"""Checkpoints of a Trainer: what they say about the run, and whether another Trainer can go on from
one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from ....compiler.ir import Tensor
from ....compiler.training.program import State
from ....errors import InputError, ModelError
from .options import Options

KEPT = ("parameter", "adapter", "buffer", "optimizer", "step")  # kinds of states that are saved


def kept_states(states: Mapping[str, State]) -> dict[str, State]:
    """The states that a checkpoint holds."""
    return {n: s for n, s in states.items() if s.kind in KEPT}


def check_run(
    run: dict[str, Any], options: Options, changed: Collection[str], path: object
) -> None:
    """Checks a checkpoint's description of its run.

    Args:
        run: of load_checkpoint.
        options: of the trainer that goes on.
        changed: names of what may differ.
        path: of the file, for messages.

    Raises:
        ModelError: it is not a checkpoint of a Trainer. InputError: it belongs to another run.
    """

    def count(name: str, otherwise: object = None, least: int | None = 0) -> bool:
        value = run.get(name, otherwise)
        return type(value) is int and (least is None or value >= least)

    if not (
        count("first_update")
        and count("first_epoch", 0)
        and count("runs")
        and count("epoch")
        and count("cursor")
        and count("seed", least=None)
    ):
        raise ModelError(
            "it is not a checkpoint of a Trainer",
            str(path),
            "Give a file that Trainer.save has written.",
        )
    differ = _differences(run, options, changed)
    if differ:
        raise InputError(
            "it belongs to another run: " + "; ".join(differ[:4]),
            str(path),
            "Make the trainer as it was made for the run; what may change can be named in"
            " `changed`.",
        )


def check_tensors(
    tensors: Mapping[str, Tensor], states: Mapping[str, State], path: str | os.PathLike[str]
) -> None:
    """Raises InputError unless a checkpoint has exactly the tensors of `states`."""
    wrong = [
        n
        for n, s in states.items()
        if n not in tensors
        or tensors[n].dtype != s.dtype
        or tuple(tensors[n].shape) != tuple(s.shape)
    ] + [n for n in tensors if n not in states]
    if wrong:
        raise InputError(
            f"its tensors do not match this model's: {', '.join(wrong[:5])}",
            str(path),
            "Resume with the model, adapters and optimizer of the run.",
        )


def _differences(run: dict[str, Any], options: Options, changed: Collection[str]) -> list[str]:
    """Messages about what a run did otherwise."""
    mine = json.loads(json.dumps(options.record()))
    out = []
    for name, here in mine.items():
        there = run.get(name)
        if (
            name in changed
            or name == "sequence_length"
            and not options.is_lm
            or name not in run
            and name in ("schedule", "warmup_steps")  # not in files of old versions
        ):
            continue
        if isinstance(here, dict) and isinstance(there, dict):
            out += [
                f"{name}.{k} was {there.get(k)!r}, is {here.get(k)!r}"
                for k in {**here, **there}
                if here.get(k) != there.get(k) and not (k == "lr" and "learning_rate" in changed)
            ]
        elif here != there:
            was, now = ("given" if isinstance(x, dict) else x for x in (there, here))
            out.append(f"{name} was {was!r}, is {now!r}")
    return out

"""Adapters in PEFT's layout (https://huggingface.co/docs/peft, checkpoint format): the names of
their tensors, their scaling, and the configuration that is written beside them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError, ModelError, UnsupportedField

PREFIX = "base_model.model."  # of the tensors' names in a file
MANY = 20  # names of modules, from which on PEFT writes their last parts
_LINEAR = re.compile(r"(.+)\.lora_(A|B)(?:\.default)?\.weight")
_MAGNITUDE = re.compile(r"(.+)\.lora_magnitude_vector(?:\.default)?(?:\.weight)?")
_NUMBER = re.compile(r"[0-9]+")
_EMBEDDING = re.compile(r"(.+)\.lora_embedding_(A|B)(?:\.default)?")


@dataclass(frozen=True)
class Half:
    """A tensor of an adapter: the A or the B of a module."""

    module: str
    is_a: bool
    embedding: bool


def half_of(name: str) -> Half | None:
    """What the tensor of a name without PREFIX is; None: a parameter that replaces the base's."""
    linear = _LINEAR.fullmatch(name)
    if linear is not None:
        return Half(linear[1], linear[2] == "A", False)
    embedding = _EMBEDDING.fullmatch(name)
    if embedding is not None:
        return Half(embedding[1], embedding[2] == "A", True)
    return None


def magnitude_of(name: str) -> str | None:
    """The module whose rows' norms the tensor of a name without PREFIX holds (DoRA), or None."""
    found = _MAGNITUDE.fullmatch(name)
    return None if found is None else found[1]


def name_of_magnitude(module: str) -> str:
    """The name of the tensor with the norms of a module's rows, without PREFIX."""
    return f"{module}.lora_magnitude_vector"


def name_of(half: Half) -> str:
    """The name of a tensor without PREFIX, and without the name of its adapter."""
    which = "A" if half.is_a else "B"
    if half.embedding:
        return f"{half.module}.lora_embedding_{which}"
    return f"{half.module}.lora_{which}.weight"


def name_of_saved(name: str, adapted: Sequence[str]) -> str:
    """The name in a file, without PREFIX, of a parameter that replaces the base's.

    Args:
        name: of the parameter.
        adapted: modules with an adapter.
    """
    module, _, parameter = name.rpartition(".")
    return f"{module}.base_layer.{parameter}" if module in adapted else name


def is_adapter(names: Sequence[str]) -> bool:
    """Whether the tensors of a file are those of an adapter, not whole parameters."""
    return any(".lora_" in name or name.startswith("lora_") for name in names)


def names_of(names: Sequence[str], where: str) -> dict[str, str]:
    """The tensors of an adapter's file, as {name in the file: name}.

    Names are without PREFIX: those of `name_of`, and those of parameters that replace the base's.

    Args:
        names: of the file's tensors.
        where: name of the file, for errors.

    Raises:
        ModelError: one of a pair is missing. UnsupportedField: it is a variant of LoRA.
    """
    found: dict[str, str] = {}
    for key in names:
        name = key.removeprefix(PREFIX)
        half = half_of(name)
        module = magnitude_of(name)
        if half is not None:
            found[key] = name_of(half)
        elif module is not None:
            found[key] = name_of_magnitude(module)
        elif is_adapter([name]):
            raise UnsupportedField(
                f"'{key}' belongs to a variant of LoRA that is not supported",
                where,
                "Train the adapter as LoRA or DoRA (no lora_bias).",
            )
        elif ".original_module." not in name:
            base = name.replace(".base_layer.", ".")
            found[key] = base.replace(".modules_to_save.default.", ".")
    present = set(found.values())
    for name in found.values():
        half = half_of(name)
        if half is None:
            continue
        if name_of(Half(half.module, not half.is_a, half.embedding)) not in present:
            raise ModelError(
                f"'{half.module}' has lora_{'A' if half.is_a else 'B'} alone",
                where,
                "The file is incomplete; fetch it again.",
            )
    return found


def check_magnitudes(shapes: dict[str, list[int]], use_dora: bool, where: str) -> None:
    """Checks that an adapter has DoRA's magnitudes where its configuration says so.

    Args:
        shapes: of the tensors of an adapter, by the names of `names_of`.
        use_dora: whether the configuration says that there are magnitudes.
        where: name of the file, for errors.

    Raises:
        ModelError: some are missing, do not fit, or are too many.
    """
    remedy = "Take the adapter_config.json that belongs to these weights."
    for name, shape in shapes.items():
        module = magnitude_of(name)
        if module is not None:
            b = shapes.get(name_of(Half(module, False, False)))
            if not use_dora or b is None:
                says = "the configuration says LoRA" if not use_dora else "its lora_B is missing"
                raise ModelError(f"'{name}' belongs to DoRA, and {says}", where, remedy)
            if shape != [b[0]]:
                raise ModelError(
                    f"'{module}' has magnitudes {shape}, and lora_B {b}",
                    where,
                    "The file is damaged, or not of a linear layer.",
                )
        half = half_of(name)
        if use_dora and half is not None and name_of_magnitude(half.module) not in shapes:
            raise ModelError(
                f"'{half.module}' has no lora_magnitude_vector, and the configuration says DoRA",
                where,
                remedy,
            )


def check_pairs(shapes: dict[str, list[int]], rank_of: Callable[[str], int], where: str) -> None:
    """Checks that each A fits its B.

    Args:
        shapes: of the tensors of an adapter, by the names of `names_of`.
        rank_of: the rank of a module in the adapter's configuration.
        where: name of the file, for errors.

    Raises:
        ModelError: they do not fit, or have another rank.
    """
    for name, a in shapes.items():
        half = half_of(name)
        if half is None or not half.is_a:
            continue
        module = half.module
        b = shapes[name_of(Half(module, False, half.embedding))]
        fits = len(a) == len(b) and len(a) >= 2 and (len(a) == 2 or not half.embedding)
        if not fits or a[0] != b[1] or not all(d == 1 for d in b[2:]):
            raise ModelError(
                f"'{module}' has lora_A {a} and lora_B {b}, which are incompatible",
                where,
                "The file is damaged, or not a LoRA adapter.",
            )
        if a[0] != rank_of(module):
            raise ModelError(
                f"'{module}' has rank {a[0]}, the configuration says {rank_of(module)}",
                where,
                "Take the adapter_config.json that belongs to these weights.",
            )


def check_fit(
    shapes: dict[str, list[int]], states: dict[str, list[int]], exact: bool, where: str
) -> None:
    """Checks that a model has room for an adapter.

    Args:
        shapes: of the tensors of the adapter, by the names of `names_of`. Those that replace whole
            parameters are not looked at.
        states: shapes of the model's states.
        exact: ranks must be equal. Otherwise smaller ones are padded with zeros, which have no
            effect.
        where: name of the adapter, for errors.

    Raises:
        InputError: it has layers that the model does not adapt, larger ranks, or other widths.
    """
    _check_kind(shapes, states, exact, where)
    for name, shape in shapes.items():
        half, axis = half_of(name), rank_axis(name)
        if half is None or axis is None:
            continue
        if name not in states:
            raise _without_adapter(half.module, states, where)
        room = states[name]
        own = shape[axis] if len(shape) == len(room) else 0
        if own and [*shape[:axis], room[axis], *shape[axis + 1 :]] != room:
            own = 0
        if not own:
            raise InputError(
                f"'{name}' is {shape}, {room} is expected", where, "Give an adapter of this model."
            )
        rank = room[axis]
        if own > rank or exact and own != rank:
            remedy = f"Compile the model with LoraConfig(r={own}, ...)."
            raise InputError(
                f"its rank is {own} at '{half.module}', the model was compiled for {rank}",
                where,
                remedy if own > rank else "Give an adapter of the same rank.",
            )


def _check_kind(
    shapes: dict[str, list[int]], states: dict[str, list[int]], exact: bool, where: str
) -> None:
    """Checks that DoRA meets DoRA. Args, Raises: as check_fit's."""
    for name in shapes:
        module, half = magnitude_of(name), half_of(name)
        if module is not None and name not in states:
            if name_of(Half(module, True, False)) in states:
                raise InputError(
                    f"it is DoRA at '{module}', the model was compiled for LoRA",
                    where,
                    "Compile the model with use_dora.",
                )
        if exact and half is not None:
            own = name_of_magnitude(half.module)
            if own in states and own not in shapes:
                raise InputError(
                    f"it is LoRA at '{half.module}', which is trained with use_dora",
                    where,
                    "Train without use_dora, or begin with a DoRA adapter.",
                )


def _without_adapter(module: str, states: dict[str, list[int]], where: str) -> InputError:
    halves = [half_of(name) for name in states]
    some = sorted({half.module for half in halves if half is not None})
    more = ", ..." if len(some) > 6 else ""
    return InputError(
        f"it adapts '{module}', for which the model was compiled without an adapter",
        where,
        "Compile the model with target_modules that match it; now they match"
        f" {', '.join(some[:6])}{more}.",
    )


def rank_axis(name: str) -> int | None:
    """The axis of a tensor that has the size of the rank; None if it has none."""
    half = half_of(name)
    if half is None:
        return None
    return 0 if half.is_a else 1


def scaling(alpha: float, r: int, use_rslora: bool) -> float:
    """The factor of an adapter's output."""
    return alpha / (math.sqrt(r) if use_rslora else r)


def _short(names: list[str]) -> list[str]:
    """The last parts of names, if they are many and no part is a number."""
    ends: set[str] = set()
    for name in names:
        end = name.split(".")[-1]
        if _NUMBER.fullmatch(end):
            return names
        ends.add(end)
    return names if len(names) < MANY else sorted(ends)


def _is_all_linear(targets: object) -> bool:
    return targets is None or isinstance(targets, str) and targets.lower() == "all-linear"


def whole_names(config: dict[str, Any], modules: Sequence[str]) -> dict[str, Any]:
    """A configuration with the whole names of the adapted modules in the place of "all-linear": of
    a part of a model, such as a decoder, since layers of the other parts may end alike.
    """
    fields = dict(config)
    if _is_all_linear(fields.get("target_modules")):
        fields["target_modules"] = sorted(set(modules))
    return fields


def written_config(config: dict[str, Any], modules: Sequence[str]) -> dict[str, Any]:
    """The fields of adapter_config.json in their order.

    "all-linear" is replaced by the names of the adapted modules, of many by their last parts, as by
    PEFT (of a part of a model, see whole_names). A field that later releases of PEFT added is
    written only if it is set.

    Args:
        config: fields of the adapter's configuration.
        modules: names of the adapted modules.
    """
    fields = dict(config)
    if _is_all_linear(fields.get("target_modules")):
        fields["target_modules"] = _short(sorted(set(modules)))
    fields["inference_mode"] = True  # as PEFT: loaded for inference by default
    made: dict[str, Any] = {}
    for name in sorted(fields):
        if name != "exclude_modules" or fields[name] is not None:
            made[name] = fields[name]
    return made

"""The fields of PEFT's LoraConfig and of its adapter_config.json (release 0.21), and their checks.

A field that changes the result and is not supported raises an error, and so does an unknown field
that is set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...errors import InputError, ModelError, UnsupportedField
from ..native import written
from .adapters import scaling

_PLAIN = re.compile(r"[A-Za-z0-9_.]+")  # a module's name as a pattern
MAX_RANK = 1 << 20
MAX = 1e300  # of other numbers
MAX_PATTERNS = 20_000  # entries of rank_pattern or alpha_pattern
FIELDS = (
    "r",
    "lora_alpha",
    "lora_dropout",
    "target_modules",
    "exclude_modules",
    "use_rslora",
    "use_dora",
    "modules_to_save",
    "bias",
    "fan_in_fan_out",
    "init_lora_weights",
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
    "task_type",
    "base_model_name_or_path",
    "revision",
    "peft_type",
)
# Fields of a file without an effect, or without one unless another field is set.
NO_EFFECT = (
    "auto_mapping",
    "peft_version",
    "megatron_core",
    "qalora_group_size",
    "runtime_config",
    "inference_mode",
)
MODULES = ("target_modules", "exclude_modules", "modules_to_save", "layers_pattern")


def read_config(values: object, where: str) -> dict[str, Any]:
    """The fields of an adapter_config.json that are set, of FIELDS.

    Args:
        values: of the JSON.
        where: name of the file, for errors.

    Raises:
        UnsupportedField: a field is set that Edgewise does not have.
        ModelError: it is not a configuration, or a value is out of range.
    """
    if not isinstance(values, dict):
        raise ModelError("it is not a JSON object", where, "Is this PEFT's adapter_config.json?")
    fields: dict[str, Any] = values
    kind: object = fields.get("peft_type")
    if kind != "LORA":
        raise UnsupportedField(
            f"peft_type is {written(kind)[:40]}",
            where,
            "Edgewise reads LoRA adapters (peft_type LORA).",
        )
    known: dict[str, Any] = {}
    for name, value in fields.items():
        if name in FIELDS:
            if value is not None:
                known[name] = value
        elif name not in NO_EFFECT and not _is_unset(value):
            raise UnsupportedField(
                f"{name} is {written(value)[:80]}, which is not supported",
                where,
                "Train or convert the adapter without it.",
            )
    fault = fault_of(known)
    if fault is not None:
        raise ModelError(fault[0], where, fault[1])
    check_supported(known, where)
    return known


def _is_unset(value: object) -> bool:
    if value is None or value is False:
        return True
    if isinstance(value, (int, float)):
        return value == 0
    return isinstance(value, (str, list, dict)) and len(value) == 0


def check_config(fields: Mapping[str, Any], where: str) -> None:
    """Checks the values of fields.

    Raises:
        InputError: one is out of range. UnsupportedField: PEFT has it, Edgewise does not.
    """
    check_supported(fields, where)
    fault = fault_of(fields)
    if fault is not None:
        raise InputError(fault[0], where, fault[1])


def check_supported(fields: Mapping[str, Any], where: str) -> None:
    """Raises UnsupportedField for values that PEFT has and Edgewise does not."""
    kind: object = fields.get("peft_type", "LORA")
    if kind != "LORA":
        raise UnsupportedField(
            f"peft_type is {written(kind)[:40]}", where, "Edgewise has LoRA (peft_type LORA)."
        )
    first: object = fields.get("init_lora_weights", True)
    if not isinstance(first, bool) and first != "gaussian":
        raise UnsupportedField(
            f"init_lora_weights is {written(first)[:80]}",
            where,
            'Edgewise has true, false and "gaussian"; others change the base weights: convert the'
            " adapter with PEFT.",
        )


def fault_of(fields: Mapping[str, Any]) -> tuple[str, str] | None:
    """What is wrong with the values of fields, and the form that they have to have."""
    for name, value in fields.items():
        wanted = _wanted_of(name, value)
        if wanted:
            return f"{name} is {written(value)[:200]}", wanted
    layers: object = fields.get("layers_to_transform")
    if layers is not None and isinstance(fields.get("target_modules"), str):
        return (
            "layers_to_transform needs target_modules as a list",
            "Or put the layers into the regular expression.",
        )
    pattern: object = fields.get("layers_pattern")
    if isinstance(pattern, (str, list)) and len(pattern) and layers is None:
        return "layers_pattern without layers_to_transform", "Say which layers."
    return None


def _wanted_of(name: str, value: object) -> str:
    """The form that a field's value has to have, if it has another one; else ""."""
    fits = True
    wanted = ""
    if name == "r":
        fits, wanted = is_rank(value), "The rank is a positive integer."
    elif name == "lora_alpha":
        fits, wanted = is_number(value), "It is a number."
    elif name == "lora_dropout":
        fits = isinstance(value, (int, float)) and is_number(value) and 0 <= value < 1
        wanted = "It is a probability: at least 0, less than 1."
    elif name == "bias":
        fits = value in ("none", "all", "lora_only")
        wanted = 'It is "none", "all" or "lora_only".'
    elif name in ("use_rslora", "use_dora", "fan_in_fan_out"):
        fits, wanted = isinstance(value, bool), "It is true or false."
    elif name in MODULES:
        text = name != "modules_to_save"
        fits = value is None or _is_list_of_texts(value) or text and isinstance(value, str)
        wanted = "It is a list of module names" + (", or a regular expression." if text else ".")
    elif name == "layers_to_transform":
        fits = value is None or type(value) is int or _is_list_of_integers(value)
        wanted = "It is a layer's index, or a list of them."
    elif name in ("rank_pattern", "alpha_pattern"):
        fits = value is None or _is_table(value, name == "rank_pattern")
        kind = "ranks" if name == "rank_pattern" else "numbers"
        wanted = (
            f"It gives {kind} by module name or regular expression, for at most {MAX_PATTERNS}."
        )
    return "" if fits else wanted


def value_of(patterns: Mapping[str, Any], module: str, otherwise: float) -> float:
    """The value of the first pattern that names a module, or the module's end after a dot.

    Args:
        patterns: of rank_pattern or alpha_pattern, which `check_plain` has checked.
        module: full name.
        otherwise: where none does.
    """
    for pattern in patterns:
        start = len(module) - len(pattern)
        if start < 0 or start > 0 and module[start - 1] != ".":
            continue
        if all(p == "." or p == module[start + i] for i, p in enumerate(pattern)):
            return float(patterns[pattern])
    return otherwise


def _table_of(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A field with values by name."""
    found: Any = fields.get(name)
    return found if isinstance(found, dict) else {}


def check_plain(fields: Mapping[str, Any], where: str) -> None:
    """Checks that the patterns of rank_pattern and alpha_pattern are names of modules.

    Raises:
        UnsupportedField: one is another regular expression.
    """
    for name in ("rank_pattern", "alpha_pattern"):
        for pattern in _table_of(fields, name):
            if _PLAIN.fullmatch(pattern) is None:
                raise UnsupportedField(
                    f"{name} has {written(pattern)[:80]}, a regular expression",
                    where,
                    "Pages take names of modules there: write them out.",
                )


def rank_in(fields: Mapping[str, Any], module: str) -> int:
    """The rank of a module. fields: of a configuration that `check_plain` has checked."""
    return int(value_of(_table_of(fields, "rank_pattern"), module, fields["r"]))


def scaling_in(fields: Mapping[str, Any], module: str) -> float:
    """The factor of a module's adapter. fields: of a configuration that `check_plain` has
    checked.
    """
    alpha = value_of(_table_of(fields, "alpha_pattern"), module, fields["lora_alpha"])
    return scaling(alpha, rank_in(fields, module), fields.get("use_rslora") is True)


def has_patterns(fields: Mapping[str, Any]) -> bool:
    """Whether modules of a configuration have ranks or scalings of their own."""
    return len(_table_of(fields, "rank_pattern")) + len(_table_of(fields, "alpha_pattern")) > 0


def is_number(x: object) -> bool:
    """Whether a value is a finite number, also as a float."""
    return isinstance(x, (int, float)) and not isinstance(x, bool) and -MAX < x < MAX


def is_rank(x: object) -> bool:
    """Whether a value is a rank."""
    return type(x) is int and 0 < x <= MAX_RANK


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(x, str) for x in value)


def _is_list_of_integers(value: object) -> bool:
    return isinstance(value, list) and all(type(x) is int for x in value)


def _is_table(value: object, ranks: bool) -> bool:
    if not isinstance(value, dict) or len(value) > MAX_PATTERNS:
        return False
    table: dict[Any, Any] = value
    for name, x in table.items():
        if not isinstance(name, str) or not (is_rank(x) if ranks else is_number(x)):
            return False
    return True

"""Public names of compiler/training/safetensors.py."""

from ..compiler.training.safetensors import (
    MAX_HEADER,
    MAX_RANK,
    NAMES,
    RANK,
    REMEDY,
    TYPES,
    load_safetensors,
    safetensors_parts,
    save_safetensors,
)

__all__ = [
    "MAX_HEADER",
    "MAX_RANK",
    "NAMES",
    "RANK",
    "REMEDY",
    "TYPES",
    "load_safetensors",
    "safetensors_parts",
    "save_safetensors",
]

"""Public names of compiler/training/safetensors.py."""

from ..compiler.training.safetensors import (
    NAMES,
    RANK,
    TYPES,
    load_safetensors,
    safetensors_parts,
    save_safetensors,
)
from ..logic.training.safetensors import MAX_HEADER, MAX_RANK, REMEDY

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

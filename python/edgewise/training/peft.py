"""Public names of compiler/training/peft/__init__.py."""

from ..compiler.training.peft import (
    CONFIG,
    WEIGHTS,
    Adapter,
    LoraConfig,
    adapter_parts,
    load_adapter,
    save_adapter,
)

__all__ = [
    "Adapter",
    "CONFIG",
    "LoraConfig",
    "WEIGHTS",
    "adapter_parts",
    "load_adapter",
    "save_adapter",
]

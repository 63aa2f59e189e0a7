"""LoRA adapters in PEFT's format."""

from .config import CONFIG, WEIGHTS, Adapter, LoraConfig, adapter_parts, load_adapter, save_adapter

__all__ = [
    "CONFIG",
    "WEIGHTS",
    "Adapter",
    "LoraConfig",
    "adapter_parts",
    "load_adapter",
    "save_adapter",
]

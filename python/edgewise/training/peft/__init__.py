"""LoRA adapters in PEFT's layout, adapter_config.json and adapter_model.safetensors in one folder."""

from .adapter import WEIGHTS, Adapter, adapter_parts, load_adapter, save_adapter
from .config import CONFIG, LoraConfig

__all__ = [
    "CONFIG",
    "WEIGHTS",
    "Adapter",
    "LoraConfig",
    "adapter_parts",
    "load_adapter",
    "save_adapter",
]

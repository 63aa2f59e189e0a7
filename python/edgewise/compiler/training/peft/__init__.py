"""LoRA adapters in the layout of PEFT: adapter_config.json and adapter_model.safetensors."""

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

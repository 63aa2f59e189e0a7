"""Public names of compiler/training/export.py."""

from ..compiler.training.export import export_inference, export_lora, export_parameters, put_lora

__all__ = ["export_inference", "export_lora", "export_parameters", "put_lora"]

"""Public names of host/training/adapters.py."""

from ..host.training.adapters import CausalLM, fitted

__all__ = ["CausalLM", "fitted"]

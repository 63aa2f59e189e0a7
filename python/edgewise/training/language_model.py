"""Public names of compiler/training/language_model.py."""

from ..compiler.training.language_model import causal_lm_inputs

__all__ = ["causal_lm_inputs"]

"""Smaller engines: takes kernels out of an engine's .wasm, and what only they need."""

from .module import kernels_of, main, shake

__all__ = ["kernels_of", "main", "shake"]

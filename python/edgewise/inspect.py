"""Public names of compiler/inspect/__init__.py."""

from .compiler.inspect import (
    Cache,
    Initializers,
    Memory,
    Operator,
    Report,
    TensorInfo,
    Trainability,
    Weights,
    every_node,
    inspect,
    is_supported,
    unsupported,
)

__all__ = [
    "Cache",
    "Initializers",
    "Memory",
    "Operator",
    "Report",
    "TensorInfo",
    "Trainability",
    "Weights",
    "every_node",
    "inspect",
    "is_supported",
    "unsupported",
]

"""Public names of extras/backend.py."""

from .extras.backend import (
    EdgewiseBackend,
    EdgewiseBackendRep,
    is_compatible,
    prepare,
    run_model,
    run_node,
    supports_device,
)

__all__ = [
    "EdgewiseBackend",
    "EdgewiseBackendRep",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]

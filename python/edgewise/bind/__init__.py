"""Binding: a Graph with concrete shapes becomes a BoundGraph, to which gradients can be added."""

from .autodiff import Gradients, add_gradients
from .binder import HALF, RUN_SEED, BoundGraph, bind, function_body, prepared

__all__ = [
    "HALF",
    "RUN_SEED",
    "BoundGraph",
    "Gradients",
    "add_gradients",
    "bind",
    "function_body",
    "prepared",
]

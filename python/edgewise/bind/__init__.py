"""Binding: a Graph with concrete shapes becomes a BoundGraph, to which gradients can be added."""

from .autodiff import Gradients, add_gradients
from .binder import Binder, BindOptions, bind
from .constants import function_body, prepared
from .graph import BoundGraph
from .nodes import HALF, RUN_SEED
from .outputs import declared_outputs

__all__ = [
    "HALF",
    "RUN_SEED",
    "BindOptions",
    "Binder",
    "BoundGraph",
    "Gradients",
    "add_gradients",
    "bind",
    "declared_outputs",
    "function_body",
    "prepared",
]

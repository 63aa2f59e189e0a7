"""Binding: a Graph with concrete shapes becomes a BoundGraph, to which gradients can be added."""

from .autodiff import Gradients, add_gradients
from .binder import Binder, BindOptions, bind
from .constants import function_body, overridden, prepared
from .graph import BoundGraph
from .jumps import fits_a_plan
from .nodes import RUN_SEED
from .operators import check_operators, every_node, is_supported, unsupported
from .outputs import declared_outputs
from .rounding import HALF

__all__ = [
    "HALF",
    "RUN_SEED",
    "BindOptions",
    "Binder",
    "BoundGraph",
    "Gradients",
    "add_gradients",
    "bind",
    "check_operators",
    "declared_outputs",
    "every_node",
    "fits_a_plan",
    "function_body",
    "is_supported",
    "overridden",
    "prepared",
    "unsupported",
]

"""Whole models to packages: what `edgewise build` and a page do once per model."""

from .caches import CACHE_NAME, cache_axis, cached_as_halves, head_dim, interface, state_shape
from .causal_lm import CHUNKS, compile_causal_lm, compile_package
from .inference import (
    add_inference_plan,
    compile_inference,
    describe_metadata,
    describe_plan,
    describe_values,
    described_shape,
    inference_package,
)
from .model_file import pick_model_file
from .states import find_states
from .weights import CONSTANTS, add_plans, add_weight

__all__ = [
    "CACHE_NAME",
    "CHUNKS",
    "CONSTANTS",
    "add_inference_plan",
    "add_plans",
    "add_weight",
    "cache_axis",
    "cached_as_halves",
    "compile_causal_lm",
    "compile_inference",
    "compile_package",
    "describe_plan",
    "describe_metadata",
    "describe_values",
    "described_shape",
    "find_states",
    "head_dim",
    "inference_package",
    "interface",
    "pick_model_file",
    "state_shape",
]

"""Inputs of language models: caches of keys and values, and the element types that are taken."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import UnsupportedOp
from ..declare.dtypes import BOOL, FLOAT, FLOAT16, INT32, INT64, NAME
from ..ir import Graph, Info, Node

CACHE_NAME = re.compile(r"(^|[._])past([._]|_key).*(key|value)|past_key_values[._]\d+[._]\d+")
# Inputs that text generation understands besides caches, with their element types.
INPUT_TYPES = {
    "input_ids": (INT64,),
    "attention_mask": (INT64, INT32, BOOL, FLOAT),
    "position_ids": (INT64, INT32),
    "use_cache_branch": (BOOL,),
}
_REMEDY = "Export the model with past_key_values of shape [batch, heads, past, dim]."


def check_interface(graph: Graph) -> dict[str, Info]:
    """{name: Info} of the inputs of a decoder-only language model.

    Raises:
        UnsupportedOp: the graph is not such model, or has an input that generation does not know.
    """
    inputs = {i.name: i for i in graph.input_names()}
    if "input_ids" not in inputs or not any(o.name == "logits" for o in graph.outputs):
        raise UnsupportedOp(
            f"inputs {', '.join(inputs)} and outputs"
            f" {', '.join(o.name for o in graph.outputs)[:200]} do not match a decoder-only"
            " language model",
            graph.name or "model",
            "Text generation needs `input_ids` in and `logits` out; run other models with"
            " InferenceSession.",
        )
    return inputs


def cache_axes(graph: Graph, inputs: Mapping[str, Info]) -> dict[str, int]:
    """{name: axis of the past length} of the inputs that are caches.

    Raises:
        UnsupportedOp: an input has an element type or a name that generation does not know.
    """
    for name, kinds in INPUT_TYPES.items():
        if name in inputs and inputs[name].dtype not in kinds:
            raise UnsupportedOp(
                f"its element type is {NAME.get(inputs[name].dtype, inputs[name].dtype)}",
                f"input '{name}'",
                f"Text generation takes {' or '.join(NAME[k] for k in kinds)} there.",
            )
    caches = {}
    for name, info in inputs.items():
        if CACHE_NAME.search(name):
            caches[name] = cache_axis(info)
        elif name not in INPUT_TYPES:
            raise UnsupportedOp(
                f"it has an input '{name}' that text generation does not know",
                graph.name or "model",
                "Export the model for text generation, or run it with InferenceSession.",
            )
    return caches


def cached_as_halves(graph: Graph) -> bool:
    """Whether a language model declares its keys and values as float16."""
    dtypes = {i.dtype for i in graph.input_names() if CACHE_NAME.search(i.name)}
    return dtypes == {FLOAT16}


def cache_axis(info: Info) -> int:
    """Axis of the past length in a cache input, from its declared shape.

    Raises:
        UnsupportedOp: the shape is not [batch, heads, past, dim].
    """
    free = [i for i, d in enumerate(info.shape or ()) if not isinstance(d, int)]
    if not info.shape or len(info.shape) != 4 or not free or not set(free) <= {0, 2, 3}:
        raise UnsupportedOp(f"its shape is {info.shape}", f"input '{info.name}'", _REMEDY)
    return 2


def head_dim(graph: Graph, name: str, info: Info) -> int:
    """Size of a cache's last dimension, from its declaration or that of its `present` output.

    Args:
        graph: the model.
        name, info: of the cache input, whose shape has 4 dimensions.

    Raises:
        UnsupportedOp: the model does not tell.
    """
    last = info.shape[3] if info.shape else None
    if isinstance(last, int):
        return last
    present = {o.name: o for o in graph.outputs}.get(name.replace("past_key_values", "present"))
    if present is not None and present.shape and isinstance(present.shape[-1], int):
        return present.shape[-1]
    for node in graph.nodes:
        if name in node.inputs and node.op == "GroupQueryAttention":
            return _gqa_head_dim(graph, node)
    raise UnsupportedOp(
        f"its shape is {info.shape}",
        f"input '{name}'",
        "Export the model with a fixed head dimension.",
    )


def _gqa_head_dim(graph: Graph, node: Node) -> int:
    cos = graph.constants.get(node.inputs[7]) if len(node.inputs) > 7 else None
    if cos is not None:
        return 2 * cos.shape[1]
    raise UnsupportedOp(
        "its head dimension is not declared",
        node.where,
        "Export the model with a fixed head dimension.",
    )

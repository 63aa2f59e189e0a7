"""Inputs of language models: states, their shapes, and the element types that are taken."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import UnsupportedOp
from ..declare.dtypes import BOOL, FLOAT, FLOAT16, INT32, INT64, NAME
from ..ir import Graph, Info, Node
from .features import CAUSAL, MASK, masks
from .features import INPUTS as FED
from .states import StateInput, find_states

CACHE_NAME = re.compile(
    r"(^|[._])past([._]|_key).*(key|value)|past_key_values[._]\d+[._]\d+|cache\..*\.(key|value)s?$"
)
# Inputs that text generation understands besides states, with their element types.
INPUT_TYPES = {
    "input_ids": (INT64, INT32),
    "attention_mask": (INT64, INT32, BOOL, FLOAT, FLOAT16),
    "position_ids": (INT64, INT32),
    "cache_position": (INT64, INT32),
    "token_type_ids": (INT64, INT32),
    "num_logits_to_keep": (INT64, INT32),
    "logits_to_keep": (INT64, INT32),
    "use_cache_branch": (BOOL,),
}
# Fields of config.json with the size of a head, and those that it follows from.
HEAD_FIELDS = ("head_dim", "head_size", "attention_head_dim")
# Those with the number of tokens that a short convolution reads.
KERNEL_FIELDS = ("linear_conv_kernel_dim", "conv_kernel", "mamba_d_conv", "conv_L_cache")
_REMEDY = "Export the model with past_key_values of shape [batch, heads, past, dim]."


@dataclass(frozen=True)
class Interface:
    """What a decoder-only language model takes and gives.

    Attributes:
        inputs: {name: Info} of all.
        states: {name: StateInput} of the inputs that are states.
        logits: name of the output.
    """

    inputs: Mapping[str, Info]
    states: Mapping[str, StateInput]
    logits: str


def interface(graph: Graph) -> Interface:
    """Finds out which inputs and outputs of a language model are which.

    Raises:
        UnsupportedOp: the graph is not such model, or has an input that generation does not know.
    """
    inputs = {i.name: i for i in graph.input_names()}
    names = [o.name for o in graph.outputs]
    if "input_ids" not in inputs:
        names = []
    states = decoder_states(graph, inputs) if names else {}
    replaced = {s.output for s in states.values()}
    left = [n for n in names if n not in replaced and "hidden" not in n]
    scores = ["logits"] if "logits" in names else left
    if len(scores) != 1:
        raise UnsupportedOp(
            f"inputs {', '.join(inputs)} and outputs"
            f" {', '.join(o.name for o in graph.outputs)[:200]} do not match a decoder-only"
            " language model",
            graph.name or "model",
            "Text generation needs `input_ids` in and `logits` out; run other models with"
            " InferenceSession.",
        )
    return Interface(inputs, states, scores[0])


def decoder_states(graph: Graph, inputs: Mapping[str, Info]) -> dict[str, StateInput]:
    """{name: StateInput} of the inputs that are states.

    Raises:
        UnsupportedOp: an input has an element type that generation does not know, or no output
            replaces it.
    """
    of_layers = dict.fromkeys(masks(inputs), INPUT_TYPES[MASK])
    for name, kinds in (INPUT_TYPES | of_layers).items():
        if name in inputs and inputs[name].dtype not in kinds:
            raise UnsupportedOp(
                f"its element type is {NAME.get(inputs[name].dtype, inputs[name].dtype)}",
                f"input '{name}'",
                f"Text generation takes {' or '.join(NAME[k] for k in kinds)} there.",
            )
    known = {*INPUT_TYPES, *of_layers, *FED}
    return find_states(graph, [name for name in inputs if name not in known])


def static_rooms(
    found: Interface, config: Mapping[str, Any], capacity: int
) -> dict[int | str, int]:
    """The tokens that caches of a fixed size hold (transformers' StaticCache), by the dimension
    that these and a mask of pairs of tokens have.

    Args:
        found: inputs and states of a model.
        config: its config.json, which has the size of a window.
        capacity: most tokens of a sequence.
    """
    fixed = {d for s in found.states.values() if s.fixed for d in (s.info.shape or ())[1:]}
    rooms: dict[int | str, int] = {}
    for name, info in masks(found.inputs).items():
        last = info.shape[-1] if info.shape and len(info.shape) == 4 else None
        if last is None or last not in fixed:
            continue
        size = (
            min(_size(config, "sliding_window") or capacity, capacity)
            if "sliding" in name
            else capacity
        )
        rooms[last] = last if isinstance(last, int) else size
    return rooms


class Window(NamedTuple):
    """The tokens that a token sees among itself and those before it.

    Attributes:
        size: so many of them, or of a chunk.
        chunked: whether those are seen that belong to its chunk, and not the last ones.
    """

    size: int
    chunked: bool


def windows(
    found: Interface, config: Mapping[str, Any], rooms: Mapping[int | str, int]
) -> dict[str, Window]:
    """The tokens that each token sees, by the mask of pairs of tokens that says so to layers of a
    window, or of chunks: their caches grow, and hold more.

    Args:
        found: inputs and states of a model.
        config: its config.json, which has the size of the window.
        rooms: of static_rooms: caches that hold the window alone need no such mask.

    Raises:
        UnsupportedOp: the size is not known.
    """
    given, sizes = masks(found.inputs), {}
    for name, info in given.items():
        shape, chunked = info.shape or [], "chunked" in name
        if len(shape) != 4 or (shape[-1] in rooms and not chunked):
            continue
        if len(given) == 1 and name.removesuffix(CAUSAL) == MASK:
            if not _all_slide(config):
                continue
        elif not chunked and "sliding" not in name:
            continue
        field, layers = ("sliding_window", "with a sliding window")
        if chunked:
            field, layers = ("attention_chunk_size", "of chunks")
        size = _size(config, field)
        if shape[-1] in rooms:
            raise UnsupportedOp(
                "it is a mask of chunks over a cache of a fixed size",
                f"input '{name}'",
                "Export the model with caches that grow.",
            )
        if size is None:
            raise UnsupportedOp(
                f"it is a mask of layers {layers} of unknown size",
                f"input '{name}'",
                f"Put the model's config.json beside it, with {field}.",
            )
        sizes[name] = Window(size, chunked)
    return sizes


# Without layer_types, all of their layers have the window if there is one.
_SLIDING = {"mistral", "ministral3", "mixtral", "phi3", "phimoe", "qwen3_moe", "starcoder2"}


def _all_slide(config: Mapping[str, Any]) -> bool:
    """Whether all layers of a model with one mask have a sliding window."""
    for c in (config, config.get("text_config")):
        if (
            not isinstance(c, Mapping)
            or _size({**c, "text_config": None}, "sliding_window") is None
        ):
            continue
        kinds = c.get("layer_types")
        if isinstance(kinds, list):
            return bool(kinds) and all(kind == "sliding_attention" for kind in kinds)
        return c.get("model_type") in _SLIDING and c.get("use_sliding_window") is not False
    return False


def _size(config: Mapping[str, Any], field: str) -> int | None:
    """A number of tokens of config.json, or of its `text_config`."""
    fields = (config, config.get("text_config"))
    sizes = (c.get(field) for c in fields if isinstance(c, Mapping))
    return next((n for n in sizes if type(n) is int and n > 0), None)


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


def state_shape(
    graph: Graph,
    state: StateInput,
    config: Mapping[str, Any],
    rooms: Mapping[int | str, int] | None = None,
) -> list[int]:
    """The shape of a state for one sequence, with 0 where it grows.

    Args:
        graph: the model.
        state: one of its states.
        config: its config.json.
        rooms: of static_rooms.

    Raises:
        UnsupportedOp: a dimension is not known.
    """
    shape: list[int] = []
    if state.info.shape is None:
        raise UnsupportedOp(
            "its shape is not declared",
            f"input '{state.name}'",
            "Export the model with the shapes of its states.",
        )
    declared = state.info.shape
    for i, d in enumerate(declared):
        if isinstance(d, int):
            shape.append(d)
        elif i == state.axis:
            shape.append(0)
        elif i == 0:
            shape.append(1)
        elif state.fixed and rooms and d in rooms:
            shape.append(rooms[d])
        elif i == len(declared) - 1 and state.axis is not None:
            shape.append(head_dim(graph, state.name, state.info, state.output, config))
        elif state.axis is None and (kernel := _kernel(graph, state.name, config)):
            shape.append(kernel)
        else:
            raise UnsupportedOp(
                f"its shape is {declared}, where dimension {i} is not known",
                f"input '{state.name}'",
                "Export the model with fixed sizes of its states.",
            )
    return shape


def _kernel(graph: Graph, name: str, config: Mapping[str, Any]) -> int | None:
    """How many of the last tokens a convolution reads: of the node that a state leads to, or by the
    model's configuration.
    """
    reached, size = {name}, None
    for node in graph.nodes:
        if reached.isdisjoint(node.inputs):
            continue
        if node.op == "Conv" and node.inputs[0] in reached:
            weight = graph.constants.get(node.inputs[1])
            kernel = node.attrs.get("kernel_shape") or (weight.shape[2:] if weight else None)
            if kernel:
                size = (node.attrs.get("dilations") or [1])[-1] * (kernel[-1] - 1) + 1
                break
        elif node.op in ("Concat", "Cast", "Identity", "Transpose", "Slice", "Unsqueeze"):
            reached.update(node.outputs)
    if size is not None:
        return int(size)
    fields = (config, config.get("text_config"))
    sizes = (c.get(k) for c in fields if isinstance(c, Mapping) for k in KERNEL_FIELDS)
    return next((n for n in sizes if type(n) is int and n > 0), None)


def head_dim(
    graph: Graph,
    name: str,
    info: Info,
    output: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> int:
    """Size of a cache's last dimension, from its declaration, that of the output that replaces it,
    the node that uses it, or the model's configuration.

    Args:
        graph: the model.
        name, info: of the cache input, whose shape has 4 dimensions.
        output: its name; default: by optimum's names.
        config: the model's config.json.

    Raises:
        UnsupportedOp: the model does not tell.
    """
    last = info.shape[-1] if info.shape else None
    if isinstance(last, int):
        return last
    output = output or name.replace("past_key_values", "present")
    present = {o.name: o for o in graph.outputs}.get(output)
    if present is not None and present.shape and isinstance(present.shape[-1], int):
        return present.shape[-1]
    for node in graph.nodes:
        if name in node.inputs and node.op == "GroupQueryAttention":
            size = _configured(config or {}, False) or _gqa_head_dim(graph, node)
            size = size or _configured(config or {})
            if size:
                return size
            raise UnsupportedOp(
                "its head dimension is not declared",
                node.where,
                "Put the model's config.json beside it, or export it with a fixed head dimension.",
            )
    size = _configured(config or {})
    if size:
        return size
    raise UnsupportedOp(
        f"its shape is {info.shape}",
        f"input '{name}'",
        "Export the model with a fixed head dimension.",
    )


def _gqa_head_dim(graph: Graph, node: Node) -> int | None:
    """The size of a head: from the product that makes the queries, or the table of cosines, which
    has half of what is rotated.
    """
    heads, of_keys = (node.attrs.get(n) for n in ("num_heads", "kv_num_heads"))
    if isinstance(heads, int) and isinstance(of_keys, int):
        by_output = {o: n for n in graph.nodes for o in n.outputs}
        made = by_output.get(node.inputs[0])
        if made is not None and made.op == "Add":
            made = next((by_output[n] for n in made.inputs if n in by_output), made)
        columns = made.attrs.get("N") if made is not None else None
        if made is not None and made.op == "MatMul" and made.inputs[1] in graph.constants:
            columns = graph.constants[made.inputs[1]].shape[-1]
        count = heads if len(node.inputs) > 1 and node.inputs[1] else heads + 2 * of_keys
        if isinstance(columns, int) and count > 0 and columns % count == 0:
            return columns // count
    cos = graph.constants.get(node.inputs[7]) if len(node.inputs) > 7 else None
    return 2 * cos.shape[1] if cos is not None else None


def _configured(config: Mapping[str, Any], derived: bool = True) -> int | None:
    """The size of a head that config.json gives.

    Args:
        config: its contents; those of genai_config.json may be in "genai".
        derived: whether it may follow from the width of the model, too.
    """
    genai: Any = config.get("genai")
    for key in ("model", "decoder"):
        genai = genai.get(key) if isinstance(genai, dict) else None
    for c in (config, config.get("text_config"), genai):
        if not isinstance(c, Mapping):
            continue
        size = next((c[k] for k in HEAD_FIELDS if type(c.get(k)) is int and c[k] > 0), None)
        width, heads = c.get("hidden_size"), c.get("num_attention_heads")
        if size is not None:
            return int(size)
        if not derived or type(width) is not int or type(heads) is not int:
            continue
        if heads > 0 and width % heads == 0:
            return width // heads
    return None

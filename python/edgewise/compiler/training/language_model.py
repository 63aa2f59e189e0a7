"""Causal language models in training, for exports of all tools: their inputs, and their logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...errors import InputError, UnsupportedOp
from ..compile import CACHE_NAME, cache_axis, head_dim, interface, state_shape
from ..compile.caches import Interface, static_rooms
from ..compile.computed import COUNTS, computed_inputs, filled
from ..compile.features import fed_rows, text_config
from ..compile.states import find_states, is_past
from ..ir import Graph, Info, Node, Tensor, Value
from .packing import POSITIONS, check_packing, check_states

# Ops after the last layer that work on each token alone.
_TOKENWISE = {"MatMul", "MatMulNBits", "MatMulBnb4", "Gemm", "Add", "Mul", "Div", "Tanh", "Cast"}
_TOKENWISE |= {"Identity", "DequantizeLinear"}


def causal_lm_inputs(
    graph: Graph,
    batch: int,
    sequence: int,
    config: Mapping[str, Any] | None = None,
    packing: bool = False,
) -> dict[str, Any]:
    """Arguments of Program for whole sequences without a past: `input_ids` [batch, sequence] is
    fed, the mask is all ones, positions count from 0, states are empty or zeros. A decoder that
    takes features of pictures is fed with these, too (compile/features.py).

    Padding stands on the right, where causal attention hides it from all other tokens, and has the
    label -100.

    Args:
        graph: a causal language model.
        batch: rows.
        sequence: tokens per row.
        config: the model's config.json, which may tell sizes that the graph does not.
        packing: whether rows have several documents (packing.py).

    Returns:
        {"shapes": ..., "known": ..., "computed": ...}

    Raises:
        InputError: batch or sequence is not a positive int, or not the one of the export.
        UnsupportedOp: the model has other inputs.
    """
    for what, n in (("batch", batch), ("sequence", sequence)):
        if type(n) is not int or n < 1:
            raise InputError(
                f"{n!r} is not a valid number of {'rows' if what == 'batch' else 'tokens'}",
                what,
                "Give a positive integer.",
            )
    found, config = _interface(graph), config or {}
    _check_sizes(found.inputs["input_ids"], batch, sequence)
    fed = fed_rows(graph, batch, sequence)
    check_packing(packing, not fed)
    if fed:
        config = text_config(config)
    rooms = static_rooms(found, config, sequence)
    shapes: dict[str, list[int]] = {"input_ids": [batch, sequence], **fed}
    known: dict[str, list[Any]] = {}
    computed: dict[str, Callable[[Any], Value]] = {}
    for name, state in found.states.items():
        shape = state_shape(graph, state, config, rooms)
        if state.info.shape and not isinstance(state.info.shape[0], int):
            shape[0] = batch
        if state.fixed:
            computed[name] = partial(filled, name, state.info.dtype, 0, shape)
        else:
            shapes[name], known[name] = shape, []
    if "use_cache_branch" in found.inputs:
        shapes["use_cache_branch"], known["use_cache_branch"] = [1], [False]
    for name in COUNTS & found.inputs.keys():
        shapes[name], known[name] = list(found.inputs[name].shape or []), [sequence]
    computed |= computed_inputs(found, config, 0, sequence, rooms, batch)
    if packing:
        check_states(found.states, config, graph.name or "model")
        if computed.pop(POSITIONS, None) is not None:
            rank = len(found.inputs[POSITIONS].shape or (0, 0))
            shapes[POSITIONS] = [3, batch, sequence] if rank > 2 else [batch, sequence]
    return {"shapes": shapes, "known": known, "computed": computed}


def without_past(
    graph: Graph, shapes: Mapping[str, list[int]], config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Arguments of Program for a model whose other inputs are fed: caches are empty, states of a
    fixed shape zeros, and a merged decoder takes the branch without caches.

    Args:
        graph: a model, such as the decoder of an encoder-decoder model, or one of embeddings.
        shapes: of the inputs that are fed.
        config: the model's config.json, which may tell the size of a head.

    Returns:
        {"shapes": ..., "known": ..., "computed": ...}
    """
    found: dict[str, list[int]] = dict(shapes)
    known: dict[str, list[Any]] = {}
    computed: dict[str, Callable[[Any], Value]] = {}
    given = next((shapes[n] for n in ("input_ids", "inputs_embeds") if shapes.get(n)), [1])
    for info in graph.input_names():
        if info.name in shapes:
            continue
        if info.name == "use_cache_branch":
            found[info.name], known[info.name] = [1], [False]
        elif CACHE_NAME.search(info.name) and len(info.shape or ()) == 4:
            shape = [d if isinstance(d, int) else given[0] for d in info.shape or ()]
            shape[3] = head_dim(graph, info.name, info, config=config)
            shape[cache_axis(info)] = 0
            found[info.name], known[info.name] = shape, []
        elif is_past(info.name):
            state = find_states(graph, [info.name])[info.name]
            shape = state_shape(graph, state, config or {})
            if info.shape and not isinstance(info.shape[0], int):
                shape[0] = given[0]
            computed[info.name] = partial(filled, info.name, info.dtype, 0, shape)
    return {"shapes": found, "known": known, "computed": computed}


def fixed_rows(graph: Graph) -> int | None:
    """The number of rows that a model was exported for; None: any."""
    ids = next((i for i in graph.input_names() if i.name == "input_ids"), None)
    rows = ids.shape[0] if ids is not None and ids.shape else None
    return rows if isinstance(rows, int) and rows > 0 else None


def _interface(graph: Graph) -> Interface:
    """The inputs and states of a model. Raises UnsupportedOp where it is no such model."""
    inputs = [i.name for i in graph.input_names()]
    where, remedy = graph.name or "model", "and the shapes of its inputs."
    if "input_ids" not in inputs or not any(o.name == "logits" for o in graph.outputs):
        raise UnsupportedOp(
            f"inputs {', '.join(inputs)} and outputs"
            f" {', '.join(o.name for o in graph.outputs)[:200]} do not match a causal language"
            " model",
            where,
            f"Train other models with Program or Trainer {remedy}",
        )
    encoded = next((name for name in inputs if ".encoder." in name), None)
    if encoded is not None:
        raise UnsupportedOp(
            f"its input '{encoded}' holds an encoder's output",
            graph.name or "graph",
            f"Train it with Program or Trainer, a loss on its outputs, {remedy}",
        )
    return interface(graph)


def _check_sizes(ids: Info, batch: int, sequence: int) -> None:
    """Raises InputError where the model was exported for another number of rows or tokens."""
    for i, (given, name, more) in enumerate(
        ((batch, "rows", "batch_size"), (sequence, "tokens", "sequence_length"))
    ):
        size = ids.shape[i] if ids.shape and len(ids.shape) == 2 else None
        if isinstance(size, int) and size > 0 and size != given:
            also = " and more gradient_accumulation_steps" if not i else ""
            raise InputError(
                f"the number of {name} in a step is {size} in its file, not {given}",
                more,
                f"Give {more}={size}{also}, or export the model with dynamic sizes.",
            )


def of_whole_rows(graph: Graph) -> Graph:
    """A language model without what serves generation alone: caches that forget what is older than
    a window (layers of one see no more in any case), and the choice of the last token.
    """
    forgets = "sliding_window_cache"
    if any(n.attrs.get(forgets) for n in graph.nodes):
        nodes = [
            replace(n, attrs={k: v for k, v in n.attrs.items() if k != forgets})
            for n in graph.nodes
        ]
        graph = replace(graph, nodes=nodes, values=None)
    return _with_all_logits(graph)


def _with_all_logits(graph: Graph) -> Graph:
    """A graph that computes the logits of all tokens, where the last one is cut out in front of the
    product with the vocabulary (`prune_lm_head` of ONNX Runtime GenAI's builder); others as they
    are.
    """
    made = {o: n for n in graph.nodes for o in n.outputs if o}
    node = made.get("logits")
    while node is not None and node.op in _TOKENWISE:
        node = next((made[n] for n in node.inputs if n in made), None)
    cut = [node] if node is not None else []
    if node is not None and node.op == "Unsqueeze" and _numbers(graph, made, node, 1) == [1]:
        cut += [made[n] for n in node.inputs[:1] if n in made]
    last = cut[-1] if cut else None
    if last is None or last.op != "Gather" or last.attrs.get("axis", 0) != 1:
        return graph
    if _numbers(graph, made, last, 1) != [-1]:
        return graph
    whole = Node("Identity", [last.inputs[0]], list(cut[0].outputs), name=cut[0].name)
    nodes = [whole if n is cut[0] else n for n in graph.nodes if n is cut[0] or n is not last]
    return replace(graph, nodes=nodes, values=None)


def _numbers(graph: Graph, made: Mapping[str, Node], node: Node, i: int) -> list[Any] | None:
    """The constant that a node's input i is; None for others."""
    if i >= len(node.inputs):
        axes: list[Any] | None = node.attrs.get("axes")  # before opset 13
        return axes
    constant: Any = graph.constants.get(node.inputs[i])
    maker = made.get(node.inputs[i])
    if constant is None and maker is not None and maker.op == "Constant":
        constant = maker.attrs.get("value")
    return constant.numbers() if isinstance(constant, Tensor) and constant.count <= 8 else None


def special_token(field: str, *configs: object) -> int | None:
    """A token id from configuration files; the first id where the field is a list.

    Args:
        field: such as "eos_token_id".
        configs: contents of generation_config.json, config.json, ...; the first that has the field
            counts.
    """
    for config in configs:
        ids = config.get(field) if isinstance(config, dict) else None
        if ids is not None:
            first = ids[0] if isinstance(ids, list) and ids else ids
            return first if type(first) is int else None
    return None

"""The inputs of causal language models in training, for exports of all tools."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...errors import InputError, UnsupportedOp
from ..compile import CACHE_NAME, cache_axis, head_dim
from ..declare.dtypes import INT64
from ..ir import Graph, Tensor, Value


def causal_lm_inputs(graph: Graph, batch: int, sequence: int) -> dict[str, Any]:
    """Arguments of Program for whole sequences without a past: `input_ids` [batch, sequence] is
    fed, the mask is all ones, positions count from 0.

    Padding stands on the right, where causal attention hides it from all other tokens, and has the
    label -100.

    Args:
        graph: a causal language model.
        batch: rows.
        sequence: tokens per row.

    Returns:
        {"shapes": ..., "known": ..., "computed": ...}

    Raises:
        InputError: batch or sequence is not a positive int.
        UnsupportedOp: the model has other inputs.
    """
    inputs = {i.name: i for i in graph.input_names()}
    if "input_ids" not in inputs or not any(o.name == "logits" for o in graph.outputs):
        raise UnsupportedOp(
            f"inputs {', '.join(inputs)} and outputs"
            f" {', '.join(o.name for o in graph.outputs)[:200]} do not match a causal language"
            " model",
            graph.name or "model",
            "Train other models with Program or Trainer and the shapes of their inputs.",
        )
    for what, n in (("batch", batch), ("sequence", sequence)):
        if type(n) is not int or n < 1:
            raise InputError(
                f"{n!r} is not a valid number of {'rows' if what == 'batch' else 'tokens'}",
                what,
                "Give a positive integer.",
            )
    shapes: dict[str, list[int]] = {"input_ids": [batch, sequence]}
    known: dict[str, list[Any]] = {}
    computed: dict[str, Callable[[Any], Value]] = {}
    for name, info in inputs.items():
        if ".encoder." in name:
            raise UnsupportedOp(
                f"its input '{name}' holds an encoder's output",
                graph.name or "graph",
                "Train it with Program or Trainer, a loss on its outputs, and the shapes of its"
                " inputs.",
            )
        if CACHE_NAME.search(name):
            shape = [d if isinstance(d, int) else batch for d in info.shape or ()]
            shape[3] = head_dim(graph, name, info)
            shape[cache_axis(info)] = 0
            shapes[name], known[name] = shape, []
        elif name == "use_cache_branch":
            shapes[name], known[name] = [1], [False]
        elif name == "attention_mask":
            computed[name] = partial(_ones, info.dtype, batch, sequence)
        elif name == "position_ids":
            computed[name] = partial(_positions, info.dtype, batch, sequence)
        elif name != "input_ids":
            raise UnsupportedOp(
                f"it has an input '{name}' that is not one of a causal language model",
                graph.name or "model",
                "Train it with Program or Trainer and the shapes of its inputs.",
            )
    return {"shapes": shapes, "known": known, "computed": computed}


def _ones(dtype: int, batch: int, sequence: int, builder: Any) -> Value:
    """The attention mask."""
    shape = Value("mask_shape", INT64, [2], numbers=[batch, sequence])
    return builder.op("ConstantOfShape", shape, value=Tensor.of("one", dtype, [1], [1]))


def _positions(dtype: int, batch: int, sequence: int, builder: Any) -> Value:
    """0, 1, ... for each row."""
    ids = builder.op("Range", *(Value("p", dtype, [], numbers=[x]) for x in (0, sequence, 1)))
    return builder.op(
        "Expand",
        builder.op("Unsqueeze", ids, builder.constant(INT64, [1], [0])),
        builder.constant(INT64, [2], [batch, sequence]),
    )


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

"""Inputs of language models that plans compute themselves: masks, positions and types of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..bind import Binder
from ..declare.dtypes import BOOL, FLOAT, FLOAT16, INT64
from ..ir import Tensor, Value
from .caches import Interface, Window, windows
from .features import masks

# Inputs with the number of tokens of a run that logits are wanted of: all of them.
COUNTS = {"num_logits_to_keep", "logits_to_keep"}


def computed_inputs(
    found: Interface,
    config: Mapping[str, Any],
    past: Any,
    tokens: int,
    rooms: Mapping[int | str, int],
    batch: int = 1,
) -> dict[str, Callable[[Binder], Value]]:
    """Inputs that a plan computes itself: masks in which each token sees itself and those before
    it, or its window of these, positions from `past` on, and types of tokens, which are 0.

    Args:
        found: inputs and states of a model.
        config: its config.json.
        past, tokens: before the run, and of it.
        rooms: of caches of a fixed size.
        batch: rows.
    """

    def positions(name: str) -> Callable[[Binder], Value]:
        def make(binder: Binder) -> Value:
            shape = found.inputs[name].shape
            dtype = found.inputs[name].dtype
            ends = [Value("p", dtype, [], numbers=[x]) for x in (past, past + tokens, 1)]
            ids = binder.op("Range", *ends)
            if shape is not None and len(shape) < 2:
                return ids
            ids = binder.op("Unsqueeze", ids, binder.constant(INT64, [1], [0]))
            sizes = [batch, tokens]
            if shape is not None and len(shape) > 2:
                # of time, height and width (mRoPE): those of text are equal
                sizes.insert(0, 3 if not isinstance(shape[0], int) else shape[0])
            if sizes[:-1] == [1]:
                return ids
            return binder.op("Expand", ids, binder.constant(INT64, [len(sizes)], sizes))

        return make

    make: dict[str, Callable[[Binder], Value]] = {}
    sizes = windows(found, config, rooms)
    for name, mask in masks(found.inputs).items():
        if len(mask.shape or ()) != 4:
            make[name] = partial(filled, name, mask.dtype, 1, [batch, past + tokens])
            continue
        room = rooms.get((mask.shape or [0])[-1])
        make[name] = partial(_causal, mask.dtype, past, tokens, room, sizes.get(name), batch)
    for name in ("position_ids", "cache_position"):
        if name in found.inputs:
            make[name] = positions(name)
    if (types := found.inputs.get("token_type_ids")) is not None:
        make[types.name] = partial(filled, types.name, types.dtype, 0, [batch, tokens])
    return make


def filled(name: str, dtype: int, number: int, sizes: list[Any], binder: Binder) -> Value:
    """A tensor of one number. name: of the input; sizes: its shape."""
    one = Tensor.of("one", dtype, [1], [number])
    shape = Value(f"{name}_shape", INT64, [len(sizes)], numbers=sizes)
    value: Value = binder.op("ConstantOfShape", shape, value=one)
    return value


def _causal(
    dtype: int,
    past: Any,
    tokens: int,
    room: int | None,
    window: Window | None,
    batch: int,
    binder: Binder,
) -> Value:
    """A mask of [batch, 1, tokens, past + tokens]: true, 1, or 0 where numbers are added.

    Args:
        dtype: of the mask.
        past, tokens: before the run, and of it.
        room: of a cache that has this many rows from the first token on; a window is full once it
            has seen so many.
        window: the tokens that a token sees of a cache that holds them all; None: all.
        batch: rows.
    """

    def counted(start: Any, end: Any) -> Value:
        return binder.op("Range", *(Value("p", INT64, [], numbers=[x]) for x in (start, end, 1)))

    rows = counted(past, past + tokens)
    if room is not None:
        rows = binder.op("Min", rows, binder.constant(INT64, [], [room - 1]))
    rows = binder.op("Unsqueeze", rows, binder.constant(INT64, [1], [1]))
    columns = counted(0, past + tokens if room is None else room)
    seen = binder.op("LessOrEqual", columns, rows)
    if window is not None:
        size = binder.constant(INT64, [], [window.size])
        before = binder.op("Mod", rows, size) if window.chunked else size
        kind = "GreaterOrEqual" if window.chunked else "Greater"
        seen = binder.op("And", seen, binder.op(kind, columns, binder.op("Sub", rows, before)))
    seen = binder.op("Unsqueeze", seen, binder.constant(INT64, [2], [0, 1]))
    if batch > 1:
        sizes = [batch, *seen.shape[1:]]
        seen = binder.op("Expand", seen, binder.constant(INT64, [4], sizes))
    if dtype == BOOL:
        return seen
    if dtype in (FLOAT, FLOAT16):
        lowest = -65504.0 if dtype == FLOAT16 else -3.4028234663852886e38
        numbers = (binder.constant(FLOAT, [], [x]) for x in (0.0, lowest))
        return binder.op("Where", seen, *numbers)
    return binder.op("Cast", seen, to=dtype)

"""Which position of the encoder's output each token belongs to, from the weights of cross
attention: an output that is added to a decoder once its attention is recognised, so that any export
has it.

The matrix is that of openai/whisper's `find_alignment` and of transformers'
`_extract_token_timestamps`: weights of some heads, normalized over the tokens, smoothed by a median
filter along the positions, and averaged over the heads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import UnsupportedOp
from ..declare.dtypes import FLOAT, INT64
from ..ir import BoundNode, Value

if TYPE_CHECKING:
    from ..bind import BoundGraph

ALIGNMENT, ROWS, FRAMES = "alignment", "rows", "frames"
MEDIAN_WIDTH = 7  # of the filter, in positions; Whisper's median_filter_width
_CROSS_KEY = re.compile(r"past_key_values\.(\d+)\.encoder\.key")
# What may lie between a cache of keys and a softmax.
_ON_THE_WAY = ("Transpose", "Reshape", "Mul", "Div", "Add", "MatMul", "Where", "Cast")


def add_alignment(
    bound: BoundGraph, heads: Sequence[tuple[int, int]], tokens: int, width: int = MEDIAN_WIDTH
) -> None:
    """Adds the output `alignment`, float32 [tokens, positions].

    It reads two more inputs: `rows`, float32 [tokens, 1], is 1 / n for the n tokens that count and
    0 for others; `frames`, int64 [positions + width - 1], is the position that each position of the
    padded weights is taken from (`reflected` of logic/generation/encoder_decoder.py).

    Args:
        bound: the decoder's graph, with attention recognised.
        heads: (layer, head) of the weights.
        tokens: of a run.
        width: of the median filter; odd.

    Raises:
        UnsupportedOp: a layer's attention was not recognised.
    """
    op, layers = bound.binder.op, _attention_layers(bound)
    parts = []
    for layer in sorted({layer for layer, _ in heads}):
        if layer not in layers:
            raise UnsupportedOp(
                f"the cross attention of layer {layer} is not recognised",
                f"decoder layer {layer}",
                "Give other alignment_heads, or transcribe without times of words.",
            )
        chosen = bound.binder.ints([h for at, h in heads if at == layer])
        parts.append(_weights(bound, layers[layer], chosen))
    weights = op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    positions = weights.shape[3]
    rows = _input(bound, ROWS, FLOAT, [tokens, 1])
    frames = _input(bound, FRAMES, INT64, [positions + width - 1])
    axis = bound.binder.ints([2])
    mean = op("ReduceSum", op("Mul", weights, rows), axis, keepdims=1)
    centred = op("Sub", weights, mean)
    variance = op("ReduceSum", op("Mul", op("Mul", centred, centred), rows), axis, keepdims=1)
    smallest = bound.binder.constant(FLOAT, [], [1e-30])
    normal = op("Div", centred, op("Sqrt", op("Max", variance, smallest)))
    padded = op("Gather", normal, frames, axis=3)
    shifted = [
        op(
            "Slice",
            padded,
            bound.binder.ints([i]),
            bound.binder.ints([i + positions]),
            bound.binder.ints([3]),
        )
        for i in range(width)
    ]
    middle = _median(bound, shifted)
    matrix = op("ReduceMean", middle, bound.binder.ints([1]), keepdims=0)
    bound.outputs[ALIGNMENT] = bound.binder.reshape(matrix, [tokens, positions])


def _input(bound: BoundGraph, name: str, dtype: int, shape: list[int]) -> Value:
    value = Value(name, dtype, shape, role="input")
    bound.inputs[name] = value
    return value


def _attention_layers(bound: BoundGraph) -> dict[int, BoundNode]:
    """{layer: the Attention or Softmax of its cross attention}"""
    layers: dict[int, BoundNode] = {}
    for n in bound.nodes:
        start = (
            n.inputs[1]
            if n.op == "Attention" and n.domain == "edgewise"
            else n.inputs[0]
            if n.op == "Softmax"
            else None
        )
        layer = None if start is None else _layer_of(start)
        if layer is not None:
            layers[layer] = n
    return layers


def _layer_of(value: Value, depth: int = 12) -> int | None:
    """The layer whose cache of cross keys a value comes from."""
    if value.role == "cache":
        found = _CROSS_KEY.search(value.name)
        return int(found[1]) if found else None
    n = value.producer
    if n is None or not depth or n.op not in _ON_THE_WAY:
        return None
    for v in n.inputs:
        layer = None if v is None else _layer_of(v, depth - 1)
        if layer is not None:
            return layer
    return None


def _weights(bound: BoundGraph, node: BoundNode, chosen: Value) -> Value:
    """The weights of some heads, [1, heads, tokens, positions]."""
    op = bound.binder.op
    if node.op == "Softmax":
        whole = node.outputs[0]
        if whole.rank == 3:
            whole = bound.binder.reshape(whole, [1, *whole.shape])
        return op("Gather", whole, chosen, axis=1)
    q, k, *masks = [node.inputs[0], node.inputs[1], *node.inputs[3:]]
    if k.shape[1] != q.shape[1] or any(
        m.rank > 1 and m.shape[-3] != 1 for m in masks if m.rank > 2
    ):
        raise UnsupportedOp(
            "its heads share keys or have masks of their own",
            node.where,
            "Transcribe without times of words.",
        )
    scale = bound.binder.constant(FLOAT, [], [float(node.attr("scale", 1.0))])
    keys = op("Transpose", op("Gather", k, chosen, axis=1), perm=[0, 1, 3, 2])
    scores = op("MatMul", op("Mul", op("Gather", q, chosen, axis=1), scale), keys)
    for mask in masks:
        scores = op("Add", scores, mask)
    return op("Softmax", scores, axis=-1)


def _median(bound: BoundGraph, values: list[Value]) -> Value:
    """The median of tensors, element by element: a network that sorts up to the middle."""
    op, middle = bound.binder.op, len(values) // 2
    for i in range(middle + 1):
        for j in range(i + 1, len(values)):
            low, high = op("Min", values[i], values[j]), op("Max", values[i], values[j])
            values[i], values[j] = low, high
    return values[middle]

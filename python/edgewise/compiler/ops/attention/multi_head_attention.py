"""onnxruntime's MultiHeadAttention, and DecoderMaskedMultiHeadAttention, its form for beam search.

Both become ONNX's Attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT, INT32, INT64
from ...declare.op import MS, Op, fail, takes, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Decomposed, Value

# Inputs: query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value,
# past_sequence_length, cache_indirection.
mha = Op("MultiHeadAttention", MS)


@dataclass
class _Inputs:
    """The inputs that both operators have; None where they are absent.

    Attributes:
        q, k, v: [batch, seq, heads * dim]; k and v of a cross attention may be [batch, heads, seq,
            dim]. At first q may be [batch, seq, heads, 3, dim], with keys and values in it, or k
            [batch, seq, heads, 2, dim], with values in it: `_separate` takes them apart.
        bias: Of q, k and v, one after the other.
        padding: int32: the number of keys of each row, or a mask.
        added: float32 that is added to the scores.
        past_k, past_v: [batch, heads, seq, dim].
        past_length: The length of the past, where past_k and past_v are buffers with room for new
            keys and values after it.
        sources: For each position of each row the beam of the batch that it comes from.
    """

    q: Value
    k: Value
    v: Value
    bias: Value | None
    padding: Value | None
    added: Value | None
    past_k: Value | None
    past_v: Value | None
    past_length: Value | None
    sources: Value | None

    @property
    def shares_buffer(self) -> bool:
        """Whether new keys are written into the buffers of the past."""
        return self.past_k is not None and self.past_length is not None


@mha.decompose
def mha_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    return _attention(node, graph, _Inputs(*[*node.inputs, *[None] * 10][:10]))


def _attention(node: BoundNode, graph: Binder, x: _Inputs) -> Decomposed:
    """Attention of q, k and v once they are separate and have their bias."""
    heads = node.attr("num_heads", 0)
    takes(node, (FLOAT,), 0, 1, 2)
    for value in (x.bias, x.added, x.past_k, x.past_v):
        if value is not None and value.dtype != FLOAT:
            unsupported(node, f"its input {value}")
    _separate(node, graph, x, heads)
    _add_bias(node, graph, x, heads)
    batch, count = x.q.shape[0], x.k.shape[-2]
    _add_padding(node, graph, x)
    attrs = {"is_causal": int(node.attr("unidirectional", 0) != 0)}
    if node.attr("scale", 0.0):
        attrs["scale"] = node.attr("scale", 0.0)
    inputs, presents = [x.added, x.past_k, x.past_v], []
    k, v = x.k, x.v
    if x.past_length is not None and x.shares_buffer:
        start = _start(node, graph, x.past_length, batch)
        k, v = presents = [
            graph.op("TensorScatter", past, _by_heads(graph, new, heads), start)
            for past, new in ((x.past_k, k), (x.past_v, v))
        ]
        if x.sources is not None and (x.sources.rank != 3 or x.sources.shape[1] != 1):
            k, v = _of_beams(node, graph, k, v, start, x.sources)
        length = graph.op("Add", start, graph.constant(INT64, [], [count]))
        inputs = [x.added, None, None, length]
    while inputs and inputs[-1] is None:
        inputs.pop()
    if node.wants(3):
        attrs["qk_matmul_output_mode"] = 2
    outputs = len(node.outputs)
    if k.rank == 3:
        attrs |= {"q_num_heads": heads, "kv_num_heads": heads}
        outs = graph.op("Attention", x.q, k, v, *inputs, outputs=outputs, **attrs)
        return outs if isinstance(outs, list) else [outs]
    q = _by_heads(graph, x.q, heads)
    outs = graph.op("Attention", q, k, v, *inputs, outputs=outputs, **attrs)
    outs = outs if isinstance(outs, list) else [outs]
    y = graph.op("Transpose", outs[0], perm=[0, 2, 1, 3])
    return [
        graph.reshape(y, [*y.shape[:2], y.shape[2] * y.shape[3]]),
        *(presents or outs[1:3]),
        *outs[3:],
    ][:outputs]


def _cut(graph: Binder, x: Value, axis: int, start: int, length: int) -> Value:
    """`length` elements of x from `start` on along an axis."""
    return graph.op(
        "Slice", x, *(graph.constant(INT64, [1], [i]) for i in (start, start + length, axis))
    )


def _by_heads(graph: Binder, x: Value, heads: int) -> Value:
    """[batch, seq, heads * dim] as [batch, heads, seq, dim]; x itself where it is that already."""
    if x.rank != 3:
        return x
    return graph.op(
        "Transpose", graph.reshape(x, [*x.shape[:2], heads, x.shape[2] // heads]), perm=[0, 2, 1, 3]
    )


def _separate(node: BoundNode, graph: Binder, x: _Inputs, heads: int) -> None:
    """Takes packed queries, keys and values apart, and checks their shapes."""
    q, k = x.q, x.k
    if q.rank == 5:  # [batch, seq, heads, 3, dim]
        x.q, x.k, x.v = (
            graph.reshape(_cut(graph, q, 3, i, 1), [*q.shape[:2], q.shape[2] * q.shape[4]])
            for i in range(3)
        )
    elif k is not None and k.rank == 5:  # [batch, seq, heads, 2, dim]
        x.k, x.v = (
            graph.reshape(_cut(graph, k, 3, i, 1), [*k.shape[:2], k.shape[2] * k.shape[4]])
            for i in range(2)
        )
    q, k, v = x.q, x.k, x.v
    if (
        heads < 1
        or k is None
        or v is None
        or q.rank != 3
        or k.rank != v.rank
        or k.rank not in (3, 4)
        or (x.past_k is None) != (x.past_v is None)
        or q.shape[2] % heads
    ):
        fail(node, f"its inputs {q}, {k}, {v} are incompatible")


def _add_bias(node: BoundNode, graph: Binder, x: _Inputs, heads: int) -> None:
    """Adds the bias to q, k and v."""
    if x.bias is None:
        return
    width = x.q.shape[2]
    v_width = x.v.shape[2] if x.v.rank == 3 else heads * x.v.shape[3]
    if list(x.bias.shape) != [2 * width + v_width]:
        fail(node, f"its bias is {x.bias}; {2 * width + v_width} numbers are expected")
    x.q = graph.op("Add", x.q, _cut(graph, x.bias, 0, 0, width))
    if x.k.rank == 3:
        x.k = graph.op("Add", x.k, _cut(graph, x.bias, 0, width, width))
        x.v = graph.op("Add", x.v, _cut(graph, x.bias, 0, 2 * width, v_width))


def _add_padding(node: BoundNode, graph: Binder, x: _Inputs) -> None:
    """Turns key_padding_mask into numbers that are added to the scores."""
    padding = x.padding
    if padding is None:
        return
    if padding.dtype != INT32:
        fail(node, f"its key_padding_mask is {padding}; int32 is expected")
    batch, q_len, total = x.q.shape[0], x.q.shape[1], x.k.shape[-2]
    if x.past_k is not None:
        total = x.past_k.shape[2] + (0 if x.shares_buffer else total)
    shape = list(padding.shape)
    if shape in ([batch], [3 * batch + 2]):  # lengths; starts, after them, are for packed batches
        ends = graph.reshape(
            padding if shape == [batch] else _cut(graph, padding, 0, 0, batch), [batch, 1, 1, 1]
        )
        seen = graph.op("Less", graph.constant(INT32, [1, 1, 1, total], range(total)), ends)
    elif (
        len(shape) in (2, 3)
        and shape in ([batch, shape[-1]], [batch, q_len, shape[-1]])
        and (shape[-1] == total or x.shares_buffer and shape[-1] < total)
    ):
        seen = graph.op(
            "Cast",
            graph.reshape(padding, [batch, 1, 1 if len(shape) == 2 else q_len, shape[-1]]),
            to=BOOL,
        )
    else:
        unsupported(node, f"a key_padding_mask of shape {shape}")
    low = graph.op(
        "Where",
        seen,
        graph.constant(FLOAT, [], [0.0]),
        graph.constant(FLOAT, [], [node.attr("mask_filter_value", -10000.0)]),
    )
    x.added = low if x.added is None else graph.op("Add", low, x.added)


def _start(node: BoundNode, graph: Binder, length: Value, batch: int) -> Value:
    """The length of the past as int64 [batch]."""
    if list(length.shape) not in ([], [1]) or length.dtype != INT32:
        fail(node, f"its past_sequence_length is {length}; one int32 is expected")
    return graph.op(
        "Expand",
        graph.op("Cast", graph.reshape(length, [1]), to=INT64),
        graph.constant(INT64, [1], [batch]),
    )


def _of_beams(
    node: BoundNode, graph: Binder, k: Value, v: Value, start: Value, sources: Value
) -> list[Value]:
    """Keys and values as each beam sees them: positions before `start` come from other beams.

    Args:
        k, v: [batch * beams, heads, positions, dim].
        start: The first position that is the beam's own, int64 [batch * beams].
        sources: The beam that each position comes from, [batch, beams, positions].
    """
    rows, _, positions, _ = k.shape
    batch, beams, known = sources.shape if sources.rank == 3 else (0, 0, 0)
    if batch * beams != rows or known < positions:
        fail(
            node,
            f"its cache_indirection is {sources}; [batch, beams, {positions}] with {rows} rows is"
            " expected",
        )
    first = graph.constant(INT64, [rows, 1], [i // beams * beams for i in range(rows)])
    sources = graph.op(
        "Slice",
        graph.reshape(graph.op("Cast", sources, to=INT64), [rows, known]),
        *(graph.constant(INT64, [1], [i]) for i in (0, positions, 1)),
    )
    place = graph.constant(INT64, [1, positions], range(positions))
    row = graph.op(
        "Where",
        graph.op("Less", place, graph.reshape(start, [rows, 1])),
        graph.op("Add", sources, first),
        graph.constant(INT64, [rows, 1], range(rows)),
    )
    index = graph.op(
        "Concat",
        graph.reshape(row, [rows, positions, 1]),
        graph.reshape(
            graph.op("Expand", place, graph.constant(INT64, [2], [rows, positions])),
            [rows, positions, 1],
        ),
        axis=2,
    )
    return [
        graph.op(
            "Transpose",
            graph.op("GatherND", graph.op("Transpose", x, perm=[0, 2, 1, 3]), index),
            perm=[0, 2, 1, 3],
        )
        for x in (k, v)
    ]


# Inputs: query, key, value, mask_index, attention_bias, past_key, past_value, past_sequence_length,
# beam_width, cache_indirection, bias.
masked = Op("DecoderMaskedMultiHeadAttention", MS)


@masked.decompose
def masked_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """One token of each row; without key and value, query holds all three."""
    q, k, v, mask, added, past_k, past_v, length, _, sources, bias = [*node.inputs, *[None] * 11][
        :11
    ]
    if q.rank != 3 or q.shape[1] != 1:
        fail(node, f"its query is {q}; [batch, 1, width] is expected")
    if past_k is not None and bool(node.attr("past_present_share_buffer", 0)) != (
        length is not None
    ):
        fail(
            node,
            "past_sequence_length and past_present_share_buffer do not agree",
            "Export the model again.",
        )
    if k is None:
        width = q.shape[2] // 3
        if q.shape[2] % 3:
            fail(node, f"its query is {q}; it does not divide into queries, keys and values")
        q, k, v = (
            graph.op(
                "Slice",
                q,
                *(graph.constant(INT64, [1], [x]) for x in (i * width, i * width + width, 2)),
            )
            for i in range(3)
        )
    inputs = _Inputs(q, k, v, bias, mask, added, past_k, past_v, length, sources)
    return _attention(node, graph, inputs)

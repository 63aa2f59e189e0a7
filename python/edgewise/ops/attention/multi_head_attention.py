"""onnxruntime's MultiHeadAttention, and the form of it that its beam search decodes with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT, INT32, INT64
from ...declare.op import MS, Op, fail, takes, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Graph, Value

# inputs: query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value,
# past_sequence_length, cache_indirection
mha = Op("MultiHeadAttention", MS)


@mha.decompose
def mha_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    return _attention(node, graph, *[*node.inputs, *[None] * 10][:10])


def _attention(
    node: BoundNode,
    graph: Graph,
    q,
    k,
    v,
    bias,
    padding,
    added,
    past_k,
    past_v,
    past_length,
    sources,
):
    """Attention, once packed queries, keys and values are apart and have their bias, and padding is
    a number to add.

    past_length: the past's buffers have room behind this many positions, and new keys are written
    there. sources: which of its batch's beams each position of a row came from.
    """
    heads = node.attr("num_heads", 0)
    takes(node, (FLOAT,), 0, 1, 2)
    for x in (bias, added, past_k, past_v):
        if x is not None and x.dtype != FLOAT:
            unsupported(node, f"its input {x}")

    def cut(x, axis, start, length):
        return graph.op(
            "Slice", x, *(graph.constant(INT64, [1], [i]) for i in (start, start + length, axis))
        )

    if q.rank == 5:  # [batch, seq, heads, 3, dim]
        q, k, v = (
            graph.reshape(cut(q, 3, i, 1), [*q.shape[:2], q.shape[2] * q.shape[4]])
            for i in range(3)
        )
    elif k is not None and k.rank == 5:  # [batch, seq, heads, 2, dim]
        k, v = (
            graph.reshape(cut(k, 3, i, 1), [*k.shape[:2], k.shape[2] * k.shape[4]])
            for i in range(2)
        )
    if (
        heads < 1
        or k is None
        or v is None
        or q.rank != 3
        or k.rank != v.rank
        or k.rank not in (3, 4)
        or (past_k is None) != (past_v is None)
        or q.shape[2] % heads
    ):
        fail(node, f"its inputs {q}, {k}, {v} do not fit together")
    if bias is not None:
        parts = [q.shape[2]] * 2 + [v.shape[2] if v.rank == 3 else heads * v.shape[3]]
        if list(bias.shape) != [sum(parts)]:
            fail(node, f"its bias is {bias}; {sum(parts)} numbers are wanted")
        at = [0, parts[0], 2 * parts[0]]
        q = graph.op("Add", q, cut(bias, 0, 0, parts[0]))
        if k.rank == 3:
            k, v = (graph.op("Add", x, cut(bias, 0, at[i], parts[i])) for x, i in ((k, 1), (v, 2)))
    batch, q_len, count = q.shape[0], q.shape[1], k.shape[-2]
    shares = past_k is not None and past_length is not None
    total = past_k.shape[2] if shares else count + (past_k.shape[2] if past_k is not None else 0)
    if padding is not None:
        if padding.dtype != INT32:
            fail(node, f"its key_padding_mask is {padding}; int32 is wanted")
        shape = list(padding.shape)
        if shape in (
            [batch],
            [3 * batch + 2],
        ):  # how many keys there are; where they begin is for packed batches
            ends = graph.reshape(
                padding if shape == [batch] else cut(padding, 0, 0, batch), [batch, 1, 1, 1]
            )
            seen = graph.op("Less", graph.constant(INT32, [1, 1, 1, total], range(total)), ends)
        elif (
            len(shape) in (2, 3)
            and shape in ([batch, shape[-1]], [batch, q_len, shape[-1]])
            and (shape[-1] == total or shares and shape[-1] < total)
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
        added = low if added is None else graph.op("Add", low, added)
    more = {"is_causal": int(node.attr("unidirectional", 0) != 0)}
    if node.attr("scale", 0.0):
        more["scale"] = node.attr("scale", 0.0)

    def by_heads(x):
        return (
            graph.op(
                "Transpose",
                graph.reshape(x, [*x.shape[:2], heads, x.shape[2] // heads]),
                perm=[0, 2, 1, 3],
            )
            if x.rank == 3
            else x
        )

    presents = []
    if shares:
        if list(past_length.shape) not in ([], [1]) or past_length.dtype != INT32:
            fail(node, f"its past_sequence_length is {past_length}; one int32 is wanted")
        start = graph.op(
            "Expand",
            graph.op("Cast", graph.reshape(past_length, [1]), to=INT64),
            graph.constant(INT64, [1], [batch]),
        )
        k, v = presents = [
            graph.op("TensorScatter", past, by_heads(x), start)
            for past, x in ((past_k, k), (past_v, v))
        ]
        if sources is not None and sources.shape[1:2] != [1]:
            k, v = _of_beams(node, graph, k, v, start, sources)
        past_k = past_v = None
        inputs = [added, None, None, graph.op("Add", start, graph.constant(INT64, [], [count]))]
    else:
        inputs = [added, past_k, past_v]
    while inputs and inputs[-1] is None:
        inputs.pop()
    if node.wants(3):
        more["qk_matmul_output_mode"] = 2
    outputs = len(node.outputs)
    if k.rank == 3:
        outs = graph.op(
            "Attention",
            q,
            k,
            v,
            *inputs,
            outputs=outputs,
            q_num_heads=heads,
            kv_num_heads=heads,
            **more,
        )
        return outs if isinstance(outs, list) else [outs]
    outs = graph.op("Attention", by_heads(q), k, v, *inputs, outputs=outputs, **more)
    outs = outs if isinstance(outs, list) else [outs]
    y = graph.op("Transpose", outs[0], perm=[0, 2, 1, 3])
    return [
        graph.reshape(y, [*y.shape[:2], y.shape[2] * y.shape[3]]),
        *(presents or outs[1:3]),
        *outs[3:],
    ][:outputs]


def _of_beams(
    node: BoundNode, graph: Binder, k: Value, v: Value, start: Value, sources: Value
) -> list[Value]:
    """Caches [batch * beams, heads, places, dim] as each beam sees them: what is older than `start`
    came from the beam that sources [batch, beams, places] says.
    """
    rows, _, places, _ = k.shape
    batch, beams, known = sources.shape if sources.rank == 3 else (0, 0, 0)
    if batch * beams != rows or known < places:
        fail(
            node,
            f"its cache_indirection is {sources}; [batch, beams, {places}] of {rows} rows is"
            " wanted",
        )

    first = graph.constant(INT64, [rows, 1], [i // beams * beams for i in range(rows)])
    sources = graph.op(
        "Slice",
        graph.reshape(graph.op("Cast", sources, to=INT64), [rows, known]),
        *(graph.constant(INT64, [1], [i]) for i in (0, places, 1)),
    )
    place = graph.constant(INT64, [1, places], range(places))
    row = graph.op(
        "Where",
        graph.op("Less", place, graph.reshape(start, [rows, 1])),
        graph.op("Add", sources, first),
        graph.constant(INT64, [rows, 1], range(rows)),
    )
    index = graph.op(
        "Concat",
        graph.reshape(row, [rows, places, 1]),
        graph.reshape(
            graph.op("Expand", place, graph.constant(INT64, [2], [rows, places])), [rows, places, 1]
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


masked = Op(
    "DecoderMaskedMultiHeadAttention",
    MS,
    # query, key, value, mask_index, attention_bias, past_key, past_value, past_sequence_length,
    # beam_width, cache_indirection, bias
)


@masked.decompose
def masked_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """One token at a time; without key and value, query holds all three."""
    q, k, v, mask, added, past_k, past_v, length, _, sources, bias = [*node.inputs, *[None] * 11][
        :11
    ]
    if q.rank != 3 or q.shape[1] != 1:
        fail(node, f"its query is {q}; [batch, 1, width] is wanted")
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
            fail(node, f"its query is {q}; queries, keys and values of one width are wanted")
        q, k, v = (
            graph.op(
                "Slice",
                q,
                *(graph.constant(INT64, [1], [x]) for x in (i * width, i * width + width, 2)),
            )
            for i in range(3)
        )
    return _attention(node, graph, q, k, v, bias, mask, added, past_k, past_v, length, sources)

"""What onnxruntime's optimizers write for encoders, CNNs and diffusion models, said in other ops:
embeddings with their norm, attention with its projection, biases with what follows them.

(onnxruntime/docs/ContribOperators.md; as its CPU kernels compute.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT, INT32, INT64
from ...declare.op import MS, Op, fail, takes, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Graph, Value


def _part(graph: Graph, v, start, end, axis):
    return graph.op("Slice", v, graph.ints([start]), graph.ints([end]), graph.ints([axis]))


# ---- embeddings ----
embed = Op("EmbedLayerNormalization", MS, half=[2, 3, 4], parameters=(2, 3, 4, 5, 6))


@embed.decompose
def embed_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    ids, segments, words, positions, segment_words, gamma, beta, mask, position_ids = [
        *node.inputs,
        *[None] * 9,
    ][:9]
    if ids.rank != 2:
        fail(node, f"its input_ids are {ids}")
    batch, seq = ids.shape
    total = graph.op("Gather", words, ids)
    if position_ids is not None:
        total = graph.op("Add", total, graph.op("Gather", positions, position_ids))
    else:
        if seq > positions.shape[0]:
            fail(
                node,
                f"{seq} tokens are more than the {positions.shape[0]} positions that it knows",
                "Feed fewer tokens.",
            )
        total = graph.op(
            "Add",
            total,
            graph.op(
                "Gather",
                positions,
                graph.op("Range", *(graph.constant(INT64, [], [k]) for k in (0, seq, 1))),
            ),
        )
    if segment_words is not None:  # without segments all are the first
        total = graph.op(
            "Add",
            total,
            graph.op(
                "Gather",
                segment_words,
                segments if segments is not None else graph.constant(INT64, [], [0]),
            ),
        )
    out = [graph.op("LayerNormalization", total, gamma, beta, epsilon=node.attr("epsilon", 1e-12))]
    if node.wants(1):  # how many tokens of each sequence are no padding
        counts = (
            graph.op(
                "ReduceSum",
                graph.op(
                    "Cast", graph.op("Equal", mask, graph.constant(mask.dtype, [], [1])), to=INT32
                ),
                graph.ints([1]),
                keepdims=0,
            )
            if mask is not None
            else graph.constant(INT32, [batch], [0] * batch)
        )
        out.append(counts)
    elif len(node.outputs) > 1:
        out.append(None)
    return [*out, total][: len(node.outputs)]


# ---- attention ----
attention = Op("Attention", MS, half=[1], parameters=(1, 2))


def _attention_mask(node: BoundNode, graph: Graph, mask, batch, q_len, total, low):
    """Numbers to add to scores, [batch, 1, 1 or q_len, total]: `low` where a key is not to be
    seen.
    """
    takes(node, (INT32,), 3)
    shape = list(mask.shape)
    if (
        shape in ([batch], [2 * batch], [3 * batch + 2])
        # where the keys of each sequence end, and begin; of the third kind the rest is for packed
        # batches
    ):
        at = graph.op("Range", *(graph.constant(INT32, [], [k]) for k in (0, total, 1)))
        ends = graph.op("Reshape", _part(graph, mask, 0, batch, 0), graph.ints([batch, 1]))
        seen = graph.op("Less", at, ends)
        if shape == [2 * batch] and batch:
            seen = graph.op(
                "And",
                seen,
                graph.op(
                    "GreaterOrEqual",
                    at,
                    graph.op(
                        "Reshape", _part(graph, mask, batch, 2 * batch, 0), graph.ints([batch, 1])
                    ),
                ),
            )
        shape = [batch, total]
    elif shape in ([batch, total], [batch, q_len, total]):
        seen = graph.op("Cast", mask, to=BOOL)
    elif (
        len(shape) == 4 and shape[:2] == [batch, 1] and shape[2] == shape[3] >= total
    ):  # of all places: rows behind the past are those of the queries
        seen = graph.op(
            "Cast", _part(graph, _part(graph, mask, total - q_len, total, 2), 0, total, 3), to=BOOL
        )
        shape = [batch, q_len, total]
    else:
        unsupported(
            node,
            f"the mask {mask}",
            "Masks [batch], [2 * batch], [3 * batch + 2], [batch, keys], [batch, queries, keys] and"
            " [batch, 1, places, places] can be computed.",
        )
    seen = graph.reshape(seen, [batch, 1, *([1] if len(shape) == 2 else []), *shape[1:]])
    return graph.op(
        "Where", seen, graph.constant(FLOAT, [], [0.0]), graph.constant(FLOAT, [], [low])
    )


@attention.decompose
def attention_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    x, w, bias, mask, past, added, past_length = [*node.inputs, *[None] * 7][:7]
    takes(node, (FLOAT,), 0, 2, 4, 5)
    heads, sizes = node.attr("num_heads", 0), list(node.attr("qkv_hidden_sizes") or [])
    if (
        past_length is not None
        or node.attr("past_present_share_buffer", 0)
        or node.attr("do_rotary", 0)
    ):
        unsupported(node, "a past that shares its buffer, or rotary positions")
    if x.rank != 3 or w.rank != 2 or w.shape[0] != x.shape[2] or heads < 1:
        fail(node, f"{x}, {w} and {heads} heads do not fit")
    sizes = sizes or [w.shape[1] // 3] * 3
    if (
        len(sizes) != 3
        or sum(sizes) != w.shape[1]
        or sizes[0] != sizes[1]
        or any(s % heads for s in sizes)
        or bias is not None
        and list(bias.shape) != [w.shape[1]]
    ):
        fail(
            node,
            f"{heads} heads of queries, keys and values of {sizes} columns do not fit {w} and"
            f" {bias}",
        )
    batch, seq, _ = x.shape
    qkv = graph.op("MatMul", x, w)
    if bias is not None:
        qkv = graph.op("Add", qkv, bias)
    at = [0, sizes[0], 2 * sizes[0], w.shape[1]]
    q, k, v = (_part(graph, qkv, at[i], at[i + 1], 2) for i in range(3))
    first, kept = [None, None], 0
    if past is not None:
        if (
            past.rank != 5
            or past.shape[:3] != [2, batch, heads]
            or past.shape[4] != sizes[0] // heads
            or sizes[2] != sizes[0]
        ):
            fail(node, f"its past {past} does not fit")
        kept = past.shape[3]
        first = [graph.reshape(_part(graph, past, i, i + 1, 0), [*past.shape[1:]]) for i in (0, 1)]
    total, low = seq + kept, node.attr("mask_filter_value", -10000.0)
    biases = (
        [_attention_mask(node, graph, mask, batch, seq, total, low)] if mask is not None else []
    )
    biases += [added] if added is not None else []
    y, keys, values = graph.op(
        "Attention",
        q,
        k,
        v,
        graph.op("Add", *biases) if len(biases) == 2 else biases[0] if biases else None,
        *first,
        outputs=3,
        q_num_heads=heads,
        kv_num_heads=heads,
        is_causal=int(bool(node.attr("unidirectional", 0))),
        **({"scale": node.attr("scale", 0.0)} if node.attr("scale", 0.0) else {}),
    )
    if not node.wants(1):
        return [y]
    return [
        y,
        graph.op(
            "Concat", *(graph.op("Unsqueeze", p, graph.ints([0])) for p in (keys, values)), axis=0
        ),
    ]


# ---- biases ----
bias_add = Op("BiasAdd", MS, parameters=(1,))  # x [batch, positions, channels] + bias + skip


@bias_add.decompose
def bias_add_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    return [graph.op("Add", graph.op("Add", node.inputs[0], node.inputs[1]), node.inputs[2])]


bias_split_gelu = Op("BiasSplitGelu", MS)  # of x + bias, the first half times gelu of the second


@bias_split_gelu.decompose
def bias_split_gelu_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    x = graph.op("Add", node.inputs[0], node.inputs[1])
    half = x.shape[-1] // 2
    return [
        graph.op(
            "Mul",
            _part(graph, x, 0, half, x.rank - 1),
            graph.op("Gelu", _part(graph, x, half, 2 * half, x.rank - 1)),
        )
    ]


# ---- group norms with channels last ----
def _group_norm(node: BoundNode, graph: Graph, x):
    axes = node.attr("channels_last", 1)
    rank = x.rank
    if axes:
        x = graph.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    y = graph.op(
        "GroupNormalization",
        x,
        node.inputs[1],
        node.inputs[2],
        num_groups=node.attr("groups", 1),
        epsilon=node.attr("epsilon", 1e-5),
    )
    if node.attr("activation", 0):
        y = graph.op("Mul", y, graph.op("Sigmoid", y))
    return graph.op("Transpose", y, perm=[0, *range(2, rank), 1]) if axes else y


group_norm = Op("GroupNorm", MS, parameters=(1, 2))  # activation 1: SiLU


@group_norm.decompose
def group_norm_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    return [_group_norm(node, graph, node.inputs[0])]


skip_group_norm = Op("SkipGroupNorm", MS)  # of x + skip + bias, which is the second output


@skip_group_norm.decompose
def skip_group_norm_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    x, skip = node.inputs[0], node.inputs[3]
    if skip.rank == 2:
        skip = graph.op("Reshape", skip, graph.ints([skip.shape[0], 1, 1, skip.shape[1]]))
    total = graph.op("Add", x, skip)
    if node.has(4):
        total = graph.op("Add", total, node.inputs[4])
    return [_group_norm(node, graph, total), total][: len(node.outputs)]


# ---- products with an activation ----
_ACTIVATIONS = (
    "Relu",
    "LeakyRelu",
    "Sigmoid",
    "Tanh",
    "Elu",
    "HardSigmoid",
    "Selu",
    "Softplus",
    "Softsign",
    "ThresholdedRelu",
)


def _activated(node: BoundNode, graph: Graph, y, prefix):
    name, attrs = (
        node.attr("activation", ""),
        {
            k[len(prefix) :]: v
            for k, v in node.attrs.items()
            if k.startswith(prefix) and len(k) > len(prefix)
        },
    )
    if name and name not in _ACTIVATIONS:
        unsupported(node, f"the activation {name!r}")
    return (
        graph.op(name, y, **{k: v for k, v in attrs.items() if k in ("alpha", "beta", "gamma")})
        if name
        else y
    )


fused_gemm = Op("FusedGemm", MS, half=[1], parameters=(0, 1, 2))


@fused_gemm.decompose
def fused_gemm_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    y = graph.op(
        "Gemm",
        *node.inputs,
        **{k: node.attrs[k] for k in ("alpha", "beta", "transA", "transB") if k in node.attrs},
    )
    return [_activated(node, graph, y, "activation_")]

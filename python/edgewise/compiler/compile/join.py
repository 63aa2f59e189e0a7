"""Joins the graph that embeds token ids with the decoder that takes embeddings.

Exports of multimodal models have a file for each: `embed_tokens.onnx` (optimum, transformers.js) or
`embedding.onnx` (ONNX Runtime GenAI) from `input_ids` to `inputs_embeds`, and a decoder. For text
they are one graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import UnsupportedOp
from ..declare.dtypes import INT64, NAME
from ..ir import Graph, Info, Node, Tensor
from .features import with_features

IDS, EMBEDS = "input_ids", "inputs_embeds"
PER_LAYER = "per_layer_inputs"  # what layers get besides (Gemma 3n)
# Inputs of embedding graphs with what pictures and sounds give, which text does without.
FEATURES_OF = ("image_features", "audio_features", "vision_features")
PREFIX = "embedding/"  # of the names of tensors


def join_embedding(
    embedding: Graph, decoder: Graph, features: Mapping[str, Any] | None = None
) -> Graph:
    """A decoder of token ids.

    Args:
        embedding: from `input_ids` to `inputs_embeds` and others of the decoder's inputs.
        decoder: takes these.
        features: contents of config.json, where features of pictures or sounds may replace
            embeddings (features.py).

    Raises:
        UnsupportedOp: the graphs do not fit together, or have other versions of an operator set.
    """
    wanted = {i.name: i for i in decoder.input_names()}
    ids = next((i for i in embedding.input_names() if i.name == IDS), None)
    given = {o.name: o for o in embedding.outputs}
    if ids is None or EMBEDS not in wanted or not given:
        raise _unfit(
            embedding, "it has no input 'input_ids'" if ids is None else "it gives nothing"
        )
    outputs = {name: name for name in given if name in wanted}
    if EMBEDS not in outputs and len(given) == 1:  # optimum names it `embeddings` or so
        outputs[next(iter(given))] = EMBEDS
    if EMBEDS not in outputs.values():
        raise _unfit(embedding, f"its outputs are {', '.join(given)[:200]}, none 'inputs_embeds'")
    if different := other_operators(embedding, decoder):
        raise _unfit(embedding, different)
    source = next(name for name, of in outputs.items() if of == EMBEDS)
    if features is not None:
        outputs[source] = PREFIX + EMBEDS
    names = {IDS: IDS, **outputs}
    empty = [i for i in embedding.input_names() if i.name != IDS]
    constants = {
        PREFIX + t.name: replace(t, name=PREFIX + t.name) for t in embedding.constants.values()
    }
    for info in empty:
        constants[PREFIX + info.name] = _nothing(embedding, info)
    inputs = [i for i in decoder.inputs if i.name not in (*outputs.values(), EMBEDS)]
    ids = replace(ids, shape=_fewer(ids.shape, wanted[EMBEDS].shape))
    joined = replace(
        decoder,
        nodes=[*(_renamed(n, names) for n in embedding.nodes), *decoder.nodes],
        inputs=inputs if IDS in wanted else [ids, *inputs],
        constants={**constants, **decoder.constants},
        value_info={
            **{
                _name(k, names): replace(v, name=_name(k, names))
                for k, v in embedding.value_info.items()
            },
            **decoder.value_info,
        },
        opsets={**embedding.opsets, **decoder.opsets},
        functions={**embedding.functions, **decoder.functions},
        values=None,
    )
    if features is None:
        return joined
    taken = wanted[EMBEDS]
    if not isinstance((taken.shape or [None])[-1], int):  # the embedding may know the size
        taken = replace(taken, shape=given[source].shape or taken.shape)
    return with_features(joined, taken, PREFIX + EMBEDS, features)


def _fewer(ids: list[int | str] | None, embeds: list[int | str] | None) -> Any:
    """The shape of the ids, with the sizes that the decoder's embeddings have in its file."""
    if not ids or not embeds or len(ids) != 2 or len(embeds) != 3:
        return ids
    return [b if isinstance(b, int) and not isinstance(a, int) else a for a, b in zip(ids, embeds)]


def other_operators(part: Graph, decoder: Graph) -> str:
    """Why the nodes of a graph may mean something else in a decoder; "" if they do not.

    Args:
        part: the graph, which is to be joined with the decoder.
        decoder: of another file.
    """
    for domain, version in part.opsets.items():
        own = decoder.opsets.get(domain, version)
        if own != version:
            return f"its operator set '{domain or 'ai.onnx'}' is {version}, the decoder's {own}"
    if any(decoder.functions.get(k, f) is not f for k, f in part.functions.items()):
        return "it has a function that the decoder has, too"
    return ""


def _unfit(embedding: Graph, what: str) -> UnsupportedOp:
    return UnsupportedOp(
        what,
        f"embedding graph '{embedding.name}'",
        "Export decoder and embedding together, or run both with InferenceSession.",
    )


def _nothing(embedding: Graph, info: Info) -> Tensor:
    """What stands for features of no picture and no sound: no rows."""
    shape = [d if isinstance(d, int) else 0 for d in info.shape or ()]
    if info.name not in FEATURES_OF or 0 not in shape:
        raise _unfit(
            embedding,
            f"it has an input '{info.name}' of {NAME.get(info.dtype, info.dtype)} that text does"
            " not give",
        )
    return Tensor(PREFIX + info.name, info.dtype, tuple(shape), data=b"")


def _name(name: str, names: Mapping[str, str]) -> str:
    return names.get(name, PREFIX + name) if name else ""


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    """A node with other names of tensors, those of its subgraphs among them."""
    return replace(
        node,
        name=PREFIX + node.name if node.name else "",
        inputs=[_name(n, names) for n in node.inputs],
        outputs=[_name(n, names) for n in node.outputs],
        attrs={k: _attribute(v, names) for k, v in node.attrs.items()},
    )


def _attribute(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_attribute(v, names) for v in value]
    if not isinstance(value, Graph):
        return value

    def infos(of: list[Info]) -> list[Info]:
        return [replace(i, name=_name(i.name, names)) for i in of]

    return replace(
        value,
        nodes=[_renamed(n, names) for n in value.nodes],
        inputs=infos(value.inputs),
        outputs=infos(value.outputs),
        constants={
            _name(k, names): replace(t, name=_name(k, names)) for k, t in value.constants.items()
        },
        value_info={},
        values=None,
    )


def takes_embeddings(graph: Graph) -> bool:
    """Whether a decoder takes embeddings instead of token ids."""
    names = {i.name for i in graph.input_names()}
    return EMBEDS in names and IDS not in names


def of_ids(graph: Graph) -> Graph:
    """A decoder as it is declared once it is joined with the graph that embeds token ids, without
    this graph's nodes; others as they are.
    """
    if not takes_embeddings(graph):
        return graph
    inputs = [i for i in graph.inputs if i.name not in (EMBEDS, PER_LAYER)]
    return replace(graph, inputs=[Info(IDS, INT64, [1, "tokens"]), *inputs])

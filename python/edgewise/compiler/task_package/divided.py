"""Janus as transformers.js has it: one graph that embeds token ids and encodes pictures, a decoder
without its head, and the head. They become the graphs that other families have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...errors import UnsupportedOp
from ..compile.join import other_operators
from ..ir import Graph, Info, Node

IDS, EMBEDS, PIXELS = "input_ids", "inputs_embeds", "pixel_values"
HEAD = "lm_head"  # name of the file
OF_SHAPES = ("Shape", "Size")
"""Operators whose results depend on no number of their inputs."""


def divided(graph: Graph) -> tuple[Graph, Graph]:
    """An encoder of pictures and an embedding of token ids.

    Args:
        graph: from IDS, PIXELS and masks to embeddings, in which features of pictures have replaced
            those of their tokens.

    Returns:
        (from PIXELS to features, from IDS to EMBEDS)

    Raises:
        UnsupportedOp: it has no such parts.
    """
    found = {name: _last_alone(graph, name) for name in (PIXELS, IDS)}
    for name, last in found.items():
        if last is None:
            raise UnsupportedOp(
                f"no tensor depends on '{name}' alone",
                graph.name or "prepare_inputs_embeds",
                "Export vision_encoder.onnx and embed_tokens.onnx.",
            )
    output = graph.outputs[0]
    return (
        _part(graph, PIXELS, str(found[PIXELS]), replace(output, name="image_features")),
        _part(graph, IDS, str(found[IDS]), replace(output, name=EMBEDS)),
    )


def _last_alone(graph: Graph, name: str) -> str | None:
    """The last tensor that depends on numbers of one input alone, where others join it."""
    if all(i.name != name for i in graph.input_names()):
        return None
    sources = {i.name: {i.name} for i in graph.input_names()}
    last = None
    for node in graph.nodes:
        read = [i for i in node.inputs if i]
        of = set().union(*(sources.get(i, set()) for i in read))
        if of - {name}:
            joined = [i for i in read if sources.get(i) == {name} and i != name]
            last = joined[-1] if joined else last
        for made in node.outputs:
            sources[made] = set() if node.op in OF_SHAPES else of
    return last


def _part(graph: Graph, source: str, last: str, output: Info) -> Graph:
    """The graph from an input to a tensor."""
    nodes, read = graph.needed([last])
    return replace(
        graph,
        nodes=[*nodes, Node("Identity", [last], [output.name], name=output.name)],
        inputs=[i for i in graph.input_names() if i.name == source],
        outputs=[replace(output, shape=None)],
        constants={n: t for n, t in graph.constants.items() if n in read},
        values=None,
    )


def with_head(decoder: Graph, head: Graph) -> Graph:
    """A decoder of logits.

    Args:
        decoder: gives hidden states and caches.
        head: from hidden states to logits.

    Raises:
        UnsupportedOp: the decoder does not give what the head takes, or they have other versions of
            an operator set.
    """
    (taken, *more) = (i.name for i in head.input_names())
    caches = {o.name for o in decoder.outputs if "present" in o.name}
    states = [o.name for o in decoder.outputs if o.name not in caches]
    if more or not states or (taken not in states and len(states) > 1):
        raise UnsupportedOp(
            f"its outputs are {', '.join(states)}, and the head takes {taken}",
            decoder.name or "language_model",
            "Take all files of one export.",
        )
    if different := other_operators(head, decoder):
        raise UnsupportedOp(
            different, f"head '{head.name or HEAD}'", "Take all files of one export."
        )
    names = {taken: taken if taken in states else states[0], "": ""}

    def of(name: str) -> str:
        return names.get(name, f"{HEAD}/{name}")

    def all_of(some: Iterable[str]) -> list[str]:
        return [of(name) for name in some]

    logits = replace(head.outputs[0], name="logits")
    nodes = [
        replace(n, name=of(n.name), inputs=all_of(n.inputs), outputs=all_of(n.outputs))
        for n in head.nodes
    ]
    nodes.append(Node("Identity", [of(head.outputs[0].name)], ["logits"], name="logits"))
    constants = {of(n): replace(t, name=of(n)) for n, t in head.constants.items()}
    return replace(
        decoder,
        nodes=[*decoder.nodes, *nodes],
        outputs=[logits, *(o for o in decoder.outputs if o.name in caches)],
        constants={**decoder.constants, **constants},
        opsets={**head.opsets, **decoder.opsets},
        functions={**head.functions, **decoder.functions},
        values=None,
    )

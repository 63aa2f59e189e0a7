"""Where the parts of a graph were read in its file, so that unchanged parts are copied."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Info, Node, Tensor

# Fields of ModelProto and GraphProto.
MODEL_GRAPH = 7
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT, GRAPH_VALUE_INFO = 1, 5, 11, 12, 13

Thing = Node | Tensor | Info


@dataclass
class Origin:
    """Where a node, tensor or value info was read.

    Attributes:
        thing: it.
        field: its field in the file: (offset, size).
        snapshot: its contents as they were read.
    """

    thing: Thing
    field: tuple[int, int]
    snapshot: object


def snapshot(thing: Thing) -> object:
    """Contents of a node or value info, to detect changes; None for tensors, which are compared by
    identity.
    """
    if isinstance(thing, Node):
        return (
            list(thing.inputs),
            list(thing.outputs),
            thing.name,
            thing.op,
            thing.domain,
            _copy_attributes(thing),
        )
    if isinstance(thing, Info):
        return thing.name, thing.dtype, None if thing.shape is None else list(thing.shape)
    return None


def _copy_attributes(node: Node) -> dict[str, object]:
    return {k: list(v) if isinstance(v, list) else v for k, v in node.attrs.items()}

"""Models that are read, changed and written.

What was not changed is copied byte for byte from the file: unknown fields, doc strings, functions
and weights pass through as ranges of their Source, so that a model is never in memory as a whole
and keeps what Edgewise does not know.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, MutableSequence
from dataclasses import dataclass
from typing import cast

from ...errors import InputError
from ...model_metadata import ModelMetadata
from ..declare.dtypes import BytesLike
from ..ir import Graph, Info, Node, Tensor
from .origins import (
    GRAPH_INITIALIZER,
    GRAPH_INPUT,
    GRAPH_NODE,
    GRAPH_OUTPUT,
    GRAPH_VALUE_INFO,
    MODEL_GRAPH,
    Origin,
    Thing,
    snapshot,
)
from .protobuf import CachedReader, FieldValue, Message
from .reader import GraphReader, read_model
from .sink import Stored, Writable, as_stored, write_parts
from .source import Source, as_source

MAX_MODEL = (1 << 31) - 1  # bytes of one protobuf message


@dataclass
class GraphField:
    """A field of the file's graph. thing: the node, tensor or value info that it was read as."""

    number: int
    wire: int
    value: FieldValue
    thing: Thing | None


class ModelEditor:
    """A model that is read, changed and written.

        editor = ModelEditor("model.onnx")
        editor.set_initializer("fc1.weight", array)
        editor.write("tuned.onnx")

    `graph` is the file's `Graph`; its lists and dicts are what is written. Nodes, inputs and
    outputs may be inserted, removed and changed in place (subgraphs in a node's attributes only as
    a whole), `constants` are the initializers, `metadata` and `opsets` those of the model. The
    methods are for common changes. Nodes must stay in topological order.

    Args:
        source: path, bytes or Source of a model; None for an empty model.

    Raises:
        ModelError, UnsupportedOp: as `read_model`.
    """

    def __init__(self, source: object = None) -> None:
        self.source: Source | None = None
        self._origin: dict[int, Origin] = {}
        self._stored: dict[str, tuple[Stored, Tensor]] = {}
        self._root: list[tuple[int, int, FieldValue]] = []
        self._fields: list[GraphField] = []
        if source is None:
            self.graph = Graph(
                name="graph", ir_version=10, about=ModelMetadata("edgewise"), opsets={"": 21}
            )
            self._opsets_before: dict[str, int] = {}
            self._metadata_before: dict[str, str] = {}
            return
        self.source = as_source(source)
        self.graph = read_model(self.source)
        self._opsets_before = dict(self.graph.opsets)
        self._metadata_before = dict(self.graph.about.custom_metadata_map)
        self._window = CachedReader(self.source)
        self._record_fields(self.source)

    def _record_fields(self, source: Source) -> None:
        """Finds the fields of the file that the contents of the graph were read from."""
        graph = self.graph
        root = Message(self._window, 0, source.size)
        self._root = list(root)
        inner = root.sub(next(value for number, _, value in self._root if number == MODEL_GRAPH))
        infos = {info.name: info for info in graph.value_info.values()}
        things: dict[int, Iterator[Thing]] = {
            GRAPH_NODE: iter(graph.nodes),
            GRAPH_INITIALIZER: iter(graph.constants.values()),
            GRAPH_INPUT: iter(graph.inputs),
            GRAPH_OUTPUT: iter(graph.outputs),
        }
        reader = GraphReader(source)
        for number, wire, value in inner:
            thing: Thing | None = None
            if number in things:
                thing = next(things[number])
            elif number == GRAPH_VALUE_INFO:
                thing = infos.get(reader.read_info(inner.sub(value)).name)
            if thing is not None and isinstance(value, tuple):
                self._origin[id(thing)] = Origin(thing, value, snapshot(thing))
            self._fields.append(GraphField(number, wire, value, thing))

    def set_initializer(self, name: str, x: object) -> None:
        """Sets the data, type and shape of an initializer, or adds one.

        Args:
            name: of the initializer.
            x: array, Tensor or (dtype, shape, data), as in `sink.as_stored`.

        Raises:
            InputError: x is none of these.
        """
        stored = as_stored(x, name)
        data = stored.data
        t = Tensor(name, stored.dtype, stored.shape, None, 0, stored.nbytes)
        if isinstance(data, Tensor):
            t.source, t.offset, t.nbytes, t.data = data.source, data.offset, data.nbytes, data.data
        elif isinstance(data, memoryview):
            t.data = cast(bytes, data)  # read like bytes
        self.graph.constants[name] = t
        self._stored[name] = stored, t

    add_initializer = set_initializer

    def remove_initializer(self, name: str) -> None:
        """Removes an initializer; InputError if there is none of this name."""
        if self.graph.constants.pop(name, None) is None:
            raise InputError(
                f"it has no initializer '{name}'", self.where, "Names are case-sensitive."
            )

    def add_nodes(self, nodes: Iterable[Node], before: Node | None = None) -> None:
        """Inserts nodes before a node of the graph; by default at the end."""
        at = len(self.graph.nodes) if before is None else self._position(before)
        self.graph.nodes[at:at] = list(nodes)

    def remove_node(self, node: Node) -> None:
        """Removes a node; InputError if it is not one of graph.nodes."""
        del self.graph.nodes[self._position(node)]

    def replace_input(self, node: Node, index: int, name: str) -> None:
        """Sets an input of a node; inputs before it that do not exist are added as absent."""
        node.inputs += [""] * (index + 1 - len(node.inputs))
        node.inputs[index] = name

    def consumers(self, name: str) -> list[tuple[Node, int]]:
        """The (node, input index) that read a tensor, without the nodes of subgraphs."""
        return [(n, i) for n in self.graph.nodes for i, x in enumerate(n.inputs) if x == name]

    def producer(self, name: str) -> Node | None:
        """The node that computes a tensor."""
        return next((n for n in self.graph.nodes if name in n.outputs), None)

    def unused_name(self, stem: str) -> str:
        """A tensor name that does not occur in the graph."""
        taken = _names(self.graph)
        name, i = stem, 0
        while name in taken:
            i += 1
            name = f"{stem}_{i}"
        return name

    def add_input(self, info: Info) -> None:
        """Appends a graph input."""
        self.graph.inputs.append(info)

    def add_output(self, info: Info) -> None:
        """Appends a graph output."""
        self.graph.outputs.append(info)

    def remove_input(self, name: str) -> None:
        """Removes a graph input; InputError if there is none of this name."""
        self._remove(self.graph.inputs, name, "input")

    def remove_output(self, name: str) -> None:
        """Removes a graph output; InputError if there is none of this name."""
        self._remove(self.graph.outputs, name, "output")

    def set_metadata(self, key: str, value: str | None) -> None:
        """Sets an entry of metadata_props; None removes it."""
        if value is None:
            self.graph.about.custom_metadata_map.pop(key, None)
        else:
            self.graph.about.custom_metadata_map[key] = value

    def set_opset(self, domain: str, version: int) -> None:
        """Sets the version of an operator set; nodes are not converted.

        "ai.onnx" and "" are the same domain.
        """
        self.graph.opsets["" if domain == "ai.onnx" else domain] = version

    @property
    def where(self) -> str:
        """Name of the file, for errors."""
        return self.source.name if self.source is not None else "model"

    def _position(self, node: Node) -> int:
        for i, n in enumerate(self.graph.nodes):
            if n is node:
                return i
        raise InputError(
            "this node is not in the graph", node.where, "Pass one of editor.graph.nodes."
        )

    def _remove(self, infos: MutableSequence[Info], name: str, kind: str) -> None:
        for i, info in enumerate(infos):
            if info.name == name:
                del infos[i]
                return
        raise InputError(
            f"it has no {kind} '{name}'", self.where, f"It has {', '.join(i.name for i in infos)}."
        )

    def parts(
        self, external_data: str | None = None, keep_external: bool = False
    ) -> tuple[Iterator[BytesLike], Iterator[BytesLike] | None]:
        """The contents of the files: (model, external data or None), as iterators over parts.

        Args:
            external_data: name of a file for all tensors of 1 kB and more; None: the model
                contains all data.
            keep_external: whether references to existing external data files are kept, which works
                only for a model that is written beside them.

        Raises:
            InputError: more than 2 GB without external_data.
            ModelError: an external data file of the model is missing.
        """
        from .writer import ModelWriter

        if external_data is not None and (
            not external_data or external_data != os.path.basename(external_data)
        ):
            raise InputError(
                f"external_data is {external_data!r}",
                self.where,
                "Pass the name of a file in the folder of the model, without a path.",
            )
        writer = ModelWriter(self, external_data, keep_external)
        model = writer.model()
        if model.size > MAX_MODEL:
            raise InputError(
                f"the model takes {model.size >> 20} MB, a protobuf file at most 2048",
                self.where,
                "Pass external_data, the name of a file for its weights.",
            )
        return model.parts(), writer.external.parts() if external_data is not None else None

    def write(
        self,
        target: str | os.PathLike[str] | Writable | None = None,
        external_data: str | tuple[str, Writable] | None = None,
        keep_external: bool = False,
    ) -> bytes | None:
        """Writes the model.

        Each file appears complete or not at all, the external data first. Give it another name
        than the existing external data: otherwise an interrupted write leaves the old model with
        new weights.

        Args:
            target: a path, an object with `write`, or None to return bytes.
            external_data: name of a file in the folder of the path for all tensors of 1 kB and
                more; (name, object with `write`) if target is not a path.
            keep_external: as in `parts`.

        Raises:
            InputError, ModelError: as `parts`; or the files cannot be written.
        """
        name: str | None
        data_target: str | Writable | None = None
        if isinstance(external_data, tuple):
            name, data_target = external_data
        else:
            name = external_data
        if name is not None and data_target is None:
            if not isinstance(target, (str, os.PathLike)):
                raise InputError(
                    "there is no folder for external_data",
                    self.where,
                    "Write to a path, or pass (name, object with write).",
                )
            data_target = os.path.join(os.path.dirname(os.fspath(target)), name)
        model, data = self.parts(name, keep_external)
        if data is not None:
            write_parts(data_target, data)
        return write_parts(target, model)


def _names(graph: Graph) -> set[str]:
    """Names of all tensors of a graph and its subgraphs."""
    names = {info.name for info in [*graph.inputs, *graph.outputs]} | set(graph.constants)
    for node in graph.nodes:
        names.update(node.inputs, node.outputs)
        for value in node.attrs.values():
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, Graph):
                    names |= _names(inner)
    return names

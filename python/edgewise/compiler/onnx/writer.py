"""Graph -> ONNX file: unchanged parts are copied, new ones are encoded."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UnsupportedOp
from ..declare.dtypes import NAME
from ..ir import OVERLOAD, Graph, Info, Node, Tensor
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
from .protobuf import DELIMITED, FIXED32, FieldValue, Message
from .reader import (
    ATTR_FLOAT,
    ATTR_FLOATS,
    ATTR_GRAPH,
    ATTR_INT,
    ATTR_STRING,
    ATTR_TENSOR,
    AttributeReference,
    GraphReader,
    read_opset,
)
from .segments import Segments, string_pair
from .sink import Stored, as_stored
from .source import Source
from .tensors import (
    DATA_LOCATION,
    DATA_TYPE,
    DIMS,
    EXTERNAL,
    EXTERNAL_DATA,
    RAW_DATA,
    STRINGS,
    TENSOR_NAME,
    TYPED_DATA,
    read_string_pair,
)

if TYPE_CHECKING:
    from .editor import ModelEditor

# Bytes from which a tensor goes to the external file, as in onnx's own tool.
MIN_EXTERNAL = 1024
# Alignment of external data; large tensors begin on a page, so that they can be mapped.
ALIGN, PAGE, MIN_PAGE_ALIGNED = 64, 4096, 1 << 20
# Messages that may contain tensors: by message, the fields that do.
NESTED = {
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "function": {7: "node", 11: "attribute"},
}
# Fields of TensorProto that are written anew when its data is.
DATA_FIELDS = {
    DIMS,
    DATA_TYPE,
    STRINGS,
    TENSOR_NAME,
    RAW_DATA,
    EXTERNAL_DATA,
    DATA_LOCATION,
    *TYPED_DATA,
}
# AttributeProto: the field of one value, and of a list of values, by type.
ATTRIBUTE_FIELDS = {
    ATTR_FLOAT: (2, 7),
    ATTR_INT: (3, 8),
    ATTR_STRING: (4, 9),
    ATTR_TENSOR: (5, 10),
    ATTR_GRAPH: (6, 11),
}
VALUE_TYPES: dict[int, tuple[type, ...]] = {
    ATTR_INT: (int,),
    ATTR_FLOAT: (int, float),
    ATTR_STRING: (str, bytes),
    ATTR_TENSOR: (Tensor,),
    ATTR_GRAPH: (Graph,),
}
LIST_OF = ATTR_FLOATS - ATTR_FLOAT  # from the type of a value to the type of a list of them


class ModelWriter:
    """Writes the model of an editor once.

    Args:
        editor: the model.
        external_name: name of the file for large tensors, or None.
        keep_external: whether references to existing external data are kept.

    Attributes:
        external: contents of the external file, complete after `model`.
    """

    def __init__(self, editor: ModelEditor, external_name: str | None, keep_external: bool) -> None:
        self.editor = editor
        self.external_name = external_name
        self.keep_external = keep_external
        self.external = Segments()
        # Whether tensors inside nodes may have to move into or out of an external file.
        self.moves_tensors = editor.source is not None and (
            external_name is not None or not keep_external
        )

    @property
    def source(self) -> Source:
        """The file that was read."""
        assert self.editor.source is not None, "only models that were read have fields to copy"
        return self.editor.source

    def model(self) -> Segments:
        """The ModelProto."""
        editor, out = self.editor, Segments()
        graph = editor.graph
        opsets: set[str] = set()  # that were copied
        keys: set[str] = set()  # of metadata that was copied
        if editor.source is None:
            out.varint(1, graph.ir_version)
            out.text(2, graph.about.producer_name)
            out.message(MODEL_GRAPH, self._graph())
        for number, wire, value in editor._root:
            if number == MODEL_GRAPH:
                out.message(MODEL_GRAPH, self._graph())
            elif number == 25 and self.moves_tensors:
                out.message(25, self._moved(self._message(value), "function"))
            elif (number != 8 or self._keeps_opset(value, opsets)) and (
                number != 14 or self._keeps_metadata(value, keys)
            ):
                out.field(self.source, number, wire, value)
        for domain, version in graph.opsets.items():
            if domain not in opsets:
                opset = Segments()
                if domain:
                    opset.text(1, domain)
                opset.varint(2, version)
                out.message(8, opset)
        for key, text in graph.about.custom_metadata_map.items():
            if key not in keys:
                out.message(14, string_pair(key, text))
        return out

    def _keeps_opset(self, value: FieldValue, copied: set[str]) -> bool:
        """Whether an OperatorSetIdProto is copied; adds its domain to `copied`."""
        domain, _ = read_opset(self._message(value))
        if domain in copied:
            return False
        if self.editor.graph.opsets.get(domain) != self.editor._opsets_before[domain]:
            return False
        copied.add(domain)
        return True

    def _keeps_metadata(self, value: FieldValue, copied: set[str]) -> bool:
        """Whether an entry of metadata is copied; adds its key to `copied`."""
        key, text = read_string_pair(self._message(value))
        before = self.editor._metadata_before[key]
        if (
            key in copied
            or text != before
            or self.editor.graph.about.custom_metadata_map.get(key) != before
        ):
            return False
        copied.add(key)
        return True

    def _message(self, value: FieldValue) -> Message:
        """A message of the file."""
        assert isinstance(value, tuple), "the reader accepted this field as a message"
        return Message(self.editor._window, *value)

    def _graph(self) -> Segments:
        """The GraphProto: fields in the order of the file, new things after their predecessors."""
        editor, out = self.editor, Segments()
        graph = editor.graph
        lists: dict[int, list[Thing]] = {
            GRAPH_NODE: list(graph.nodes),
            GRAPH_INITIALIZER: list(graph.constants.values()),
            GRAPH_INPUT: list(graph.inputs),
            GRAPH_OUTPUT: list(graph.outputs),
            GRAPH_VALUE_INFO: list(graph.value_info.values()),
        }
        present = {number: {id(x) for x in things} for number, things in lists.items()}
        written = dict.fromkeys(lists, 0)  # number of things of each list that were written

        def write_until(number: int, last: Thing | None) -> None:
            """Writes the things of a list up to and including `last`; None: all."""
            things = lists[number]
            while written[number] < len(things):
                thing = things[written[number]]
                written[number] += 1
                self._write(out, number, thing)
                if thing is last:
                    break

        named = False
        for field in editor._fields:
            if field.number not in lists:
                named = named or field.number == 2
                out.field(self.source, field.number, field.wire, field.value)
            elif field.thing is not None and id(field.thing) in present[field.number]:
                write_until(field.number, field.thing)
        if not named:
            out.text(2, graph.name)
        for number in lists:
            write_until(number, None)
        return out

    def _write(self, out: Segments, number: int, thing: Thing) -> None:
        """Writes a node, tensor or value info: copied if it is unchanged, else encoded."""
        origin = self.editor._origin.get(id(thing))
        if isinstance(thing, Tensor):
            out.message(number, self._tensor(thing, origin.field if origin else None))
        elif origin is not None and snapshot(thing) == origin.snapshot:
            if isinstance(thing, Node) and self._may_contain_moved_tensors(origin.field):
                out.message(number, self._moved(self._message(origin.field), "node"))
            else:
                out.field(self.source, number, DELIMITED, origin.field)
        elif isinstance(thing, Node):
            out.message(number, self._node(thing, origin))
        else:
            out.message(number, _info(thing))

    def _may_contain_moved_tensors(self, value: tuple[int, int]) -> bool:
        """Whether a node may contain tensors that are external, or become so.

        Short nodes are searched for the key of external data instead of being parsed.
        """
        if not self.moves_tensors:
            return False
        long = value[1] > (MIN_EXTERNAL if self.external_name is not None else 1 << 16)
        return long or b"location" in self.editor._window.at(*value)

    def _moved(self, m: Message, kind: str) -> Segments:
        """A message with its tensors, at any depth, inside or outside as this writing requires."""
        out = Segments()
        inside = NESTED[kind]
        for number, wire, value in m:
            if number not in inside or wire != DELIMITED or not isinstance(value, tuple):
                out.field(self.source, number, wire, value)
            elif inside[number] == "tensor":
                t = GraphReader(self.source).tensors.read(m.sub(value))
                out.message(number, self._tensor(t, value, kind == "graph"))
            else:
                out.message(number, self._moved(m.sub(value), inside[number]))
        return out

    def _tensor(
        self, t: Tensor, field: tuple[int, int] | None = None, initializer: bool = True
    ) -> Segments:
        """A TensorProto.

        Args:
            t: the tensor.
            field: its field in the file, if it was read.
            initializer: whether it is an initializer. Tensors of Constant nodes are not moved to
                the external file, since not all readers look for them there.
        """
        editor, out = self.editor, Segments()
        stored: Stored | None = None
        if t.name in editor._stored and editor._stored[t.name][1] is t:
            stored = editor._stored[t.name][0]
        is_text = NAME[t.dtype] == "string"
        is_external = t.data is None and t.source is not editor.source
        outside = (
            self.external_name is not None
            and t.nbytes >= MIN_EXTERNAL
            and (initializer or is_external)
        )
        if is_external:
            stays = self.external_name is None and self.keep_external
        else:
            stays = not outside
        if stored is None and field is not None and (is_text or stays):
            out.copy(self.source, *field)
            return out
        if is_text:
            raise UnsupportedOp(
                f"the text tensor '{t.name}' cannot be encoded",
                editor.where,
                "Tensors of text can only be copied from a file.",
            )
        stored = stored or as_stored(t, t.name)
        for dim in stored.shape:
            out.varint(DIMS, dim)
        out.varint(DATA_TYPE, stored.dtype)
        out.text(TENSOR_NAME, t.name)
        if field is not None:
            for number, wire, value in self._message(field):
                if number not in DATA_FIELDS:
                    out.field(self.source, number, wire, value)
        if outside:
            self._put_external(out, stored, t.name)
        else:
            inner = Segments()
            inner.put_stored(stored, t.name)
            out.message(RAW_DATA, inner)
        return out

    def _put_external(self, out: Segments, stored: Stored, name: str) -> None:
        """Appends data to the external file, and the reference to it to a TensorProto."""
        assert self.external_name is not None
        align = PAGE if stored.nbytes >= MIN_PAGE_ALIGNED else ALIGN
        self.external.put(bytes(-self.external.size % align))
        out.message(EXTERNAL_DATA, string_pair("location", self.external_name))
        out.message(EXTERNAL_DATA, string_pair("offset", str(self.external.size)))
        out.message(EXTERNAL_DATA, string_pair("length", str(stored.nbytes)))
        out.varint(DATA_LOCATION, EXTERNAL)
        self.external.put_stored(stored, name)

    def _node(self, node: Node, origin: Origin | None = None) -> Segments:
        """A NodeProto; fields of the file that a Node does not represent are kept."""
        out = Segments()
        for name in node.inputs:
            out.text(1, name)
        for name in node.outputs:
            out.text(2, name)
        op, _, overload = node.op.partition(OVERLOAD)
        for number, text in ((3, node.name), (4, op), (7, node.domain), (8, overload)):
            if text:
                out.text(number, text)
        kept = set() if origin is None else self._copy_node_fields(out, node, origin)
        for name, value in node.attrs.items():
            if name not in kept:
                out.message(5, self._attribute(name, value, node))
        return out

    def _copy_node_fields(self, out: Segments, node: Node, origin: Origin) -> set[str]:
        """Copies unchanged attributes and unknown fields; returns the names of the attributes."""
        kept: set[str] = set()
        before = origin.snapshot[5] if isinstance(origin.snapshot, tuple) else {}
        m = self._message(origin.field)
        for number, wire, value in m:
            if number == 5:
                name = _name_of(m.sub(value))
                if name in kept or name not in node.attrs or node.attrs[name] != before.get(name):
                    continue
                kept.add(name)
                if self.moves_tensors:
                    out.message(5, self._moved(m.sub(value), "attribute"))
                    continue
            if number not in (1, 2, 3, 4, 7, 8):
                out.field(self.source, number, wire, value)
        return kept

    def _attribute(self, name: str, value: object, node: Node) -> Segments:
        """An AttributeProto."""
        out = Segments()
        out.text(1, name)
        many = isinstance(value, (list, tuple))
        values: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
        kind = next(
            (k for k, types in VALUE_TYPES.items() if all(isinstance(v, types) for v in values)),
            None,
        )
        if kind is None:
            what = (
                "a reference to a function's attribute"
                if isinstance(value, AttributeReference)
                else type(values[0]).__name__
            )
            raise InputError(
                f"attribute '{name}' is {what}",
                node.where,
                "Attributes are numbers, text, Tensors, Graphs, or lists of one of them.",
            )
        number = ATTRIBUTE_FIELDS[kind][many]
        for v in values:
            if kind == ATTR_INT:
                out.varint(number, int(v))
            elif kind == ATTR_FLOAT:
                _put_float(out, number, v, name, node)
            elif kind == ATTR_STRING:
                out.data(number, v.encode("utf-8", "surrogateescape") if isinstance(v, str) else v)
            elif kind == ATTR_TENSOR:
                out.message(number, self._tensor(v, initializer=False))
            else:
                out.message(number, self._subgraph(v))
        out.varint(20, kind + LIST_OF if many else kind)
        return out

    def _subgraph(self, graph: Graph) -> Segments:
        """The GraphProto of a new attribute."""
        out = Segments()
        for node in graph.nodes:
            out.message(GRAPH_NODE, self._node(node))
        out.text(2, graph.name)
        for t in graph.constants.values():
            out.message(GRAPH_INITIALIZER, self._tensor(t))
        for number, infos in (
            (GRAPH_INPUT, graph.inputs),
            (GRAPH_OUTPUT, graph.outputs),
            (GRAPH_VALUE_INFO, graph.value_info.values()),
        ):
            for info in infos:
                out.message(number, _info(info))
        return out


def _name_of(m: Message) -> str:
    return next((m.text(value) for number, _, value in m if number == 1), "")


def _put_float(out: Segments, number: int, value: float, name: str, node: Node) -> None:
    try:
        data = struct.pack("<f", value)
    except OverflowError:
        raise InputError(
            f"attribute '{name}' is {value}, which float32 cannot represent",
            node.where,
            "Choose a smaller number.",
        ) from None
    out.key(number, FIXED32)
    out.put(data)


def _info(info: Info) -> Segments:
    """The ValueInfoProto of a tensor."""
    if info.kind != "tensor":
        raise UnsupportedOp(
            f"'{info.name}' is a {info.kind}, which cannot be encoded",
            info.name,
            "Values that are not tensors can only be copied from a file.",
        )
    kind, out = Segments(), Segments()
    kind.varint(1, info.dtype)
    if info.shape is not None:
        shape = Segments()
        for dim in info.shape:
            entry = Segments()
            if isinstance(dim, int):
                entry.varint(1, dim)
            elif dim is not None:
                entry.text(2, dim)
            shape.message(1, entry)
        kind.message(2, shape)
    tensor = Segments()
    tensor.message(1, kind)
    out.text(1, info.name)
    out.message(2, tensor)
    return out

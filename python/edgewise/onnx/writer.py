"""ONNX files written back: what was not touched is copied byte for byte from the file it came from,
what is new is encoded.

Nothing of a model is decoded to be kept: unknown fields, doc strings, functions and weights pass
through as ranges of their Source, so a model is never in memory as a whole and loses nothing that
Edgewise does not know.
"""

from __future__ import annotations

import os
import struct

from ..declare.dtypes import NAME
from ..errors import InputError, UnsupportedOp
from ..ir import Graph, Info, Node, Tensor
from .reader import AttributeReference, Message, Window, _Reader, read_model
from .sink import as_stored, pieces, source_pieces, write_parts
from .source import as_source

MOST = (1 << 31) - 1  # bytes of one protobuf
# bytes from which a tensor goes to the external file, when there is one: what onnx's own tool takes
EXTERNAL = 1024
ALIGN, PAGE = 64, 4096  # of external data; what is mapped (a megabyte on) begins on a page
NESTED = {
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "function": {7: "node", 11: "attribute"},
}
DATA_FIELDS = {
    1,
    2,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    13,
    14,
}  # of a TensorProto: dims, type, name and everything that can hold numbers


def _varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


class Segments:
    """Bytes to be: a list of bytes, ranges of Sources, and what `as_stored` gave, with their length
    known.
    """

    def __init__(self):
        self.items, self.size = [], 0

    def put(self, data):
        """Appends bytes."""
        if self.items and type(self.items[-1]) is bytearray and len(self.items[-1]) < 1 << 16:
            self.items[-1] += data
        else:
            self.items.append(bytearray(data))
        self.size += len(data)

    def copy(self, source, offset, size):
        """A stretch of a source; one that follows the last is joined to it."""
        last = self.items[-1] if self.items else None
        if type(last) is list and last[0] is source and last[1] + last[2] == offset:
            last[2] += size
        elif size:
            self.items.append([source, offset, size])
        self.size += size

    def stored(self, stored, where):
        """Appends what `sink.as_stored` gave. where: its name, for errors when it is written."""
        self.items.append((stored, where))
        self.size += stored[2]

    def varint(self, number, n):
        """Field `number` of wire type 0; negative n as its two's complement in 64 bits."""
        self.put(_varint(number << 3) + _varint(n))

    def data(self, number, data):
        """Field `number` of wire type 2: its length and these bytes."""
        self.put(_varint(number << 3 | 2) + _varint(len(data)) + data)

    def text(self, number, text):
        """Field `number` of wire type 2: UTF-8; what was no UTF-8 in the file is written as it
        was.
        """
        self.data(number, text.encode("utf-8", "surrogateescape"))

    def message(self, number, segments):
        """Field `number` of wire type 2: the message that other Segments hold."""
        self.put(_varint(number << 3 | 2) + _varint(segments.size))
        for item in segments.items:
            if type(item) is bytearray:
                self.put(item)
            elif type(item) is list:
                self.copy(*item)
            else:
                self.stored(*item)

    def field(self, source, number, wire, value):
        """A field as the reader gave it."""
        if wire == 2:
            self.put(_varint(number << 3 | 2) + _varint(value[1]))
            self.copy(source, *value)
        else:
            self.put(_varint(number << 3 | wire) + (_varint(value) if wire == 0 else value))

    def parts(self):
        """Its bytes in order, in bytes-like chunks; ranges are read when it is their turn."""
        for item in self.items:
            if type(item) is bytearray:
                yield item
            elif type(item) is list:
                yield from source_pieces(*item)
            else:
                yield from pieces(*item)


class ModelEditor:
    """A model that is read, changed and written.

        editor = ModelEditor("model.onnx")
        editor.set_initializer("fc1.weight", array)
        editor.write("tuned.onnx")

    `graph` is the file's `Graph`, and its lists and dicts are what is written: nodes, inputs and
    outputs may be inserted, removed and changed in place (of a node's attributes, subgraphs only as
    a whole), `constants` are the initializers, `metadata` and `opsets` the model's. The methods are
    for what is done often. Nodes must stay in an order in which each comes after those whose
    outputs it takes.

    Args:
        source: path, bytes or Source of a model; None for an empty one, to be filled.
    Raises:
        ModelError, UnsupportedOp: as `read_model`.
    """

    def __init__(self, source=None):
        self._origin, self._stored, self._root, self._fields = {}, {}, [], []
        if source is None:
            self.source = None
            self.graph = Graph(name="graph", ir_version=10, producer="edgewise", opsets={"": 21})
            self._before = {}, {}
            return
        self.source = as_source(source)
        self.graph = g = read_model(self.source)
        self._before = dict(g.opsets), dict(g.metadata)
        self._window = Window(self.source)
        root = Message(self._window, 0, self.source.size)
        self._root = list(root)
        inner = root.sub(next(value for number, _, value in self._root if number == 7))
        infos = {i.name: i for i in g.value_info.values()}
        lists = {
            1: iter(g.nodes),
            5: iter(g.constants.values()),
            11: iter(g.inputs),
            12: iter(g.outputs),
        }
        for number, wire, value in inner:
            thing = None
            if number in lists:
                thing = next(lists[number])
            elif number == 13:
                thing = infos.get(_Reader(self.source).info(inner.sub(value)).name)
            if thing is not None:
                self._origin[id(thing)] = thing, value, _snapshot(thing)
            self._fields.append((number, wire, value, thing))

    # changing
    def set_initializer(self, name, x):
        """Gives an initializer new numbers, type and shape, or makes a new one. x: array, Tensor or
        (dtype, shape, data), see `sink.as_stored`.
        """
        self._stored[name] = stored = as_stored(x, name)
        data = stored[3]
        if isinstance(data, Tensor):
            self.graph.constants[name] = t = Tensor(
                name, stored[0], stored[1], data.source, data.offset, data.nbytes, data.data
            )
        else:
            self.graph.constants[name] = t = Tensor(
                name,
                stored[0],
                stored[1],
                None,
                0,
                stored[2],
                data if isinstance(data, memoryview) else None,
            )
        self._stored[name] = stored, t

    add_initializer = set_initializer

    def remove_initializer(self, name):
        """Raises InputError when there is none of this name."""
        if self.graph.constants.pop(name, None) is None:
            raise InputError(
                f"it has no initializer '{name}'", self.where, "Names are case-sensitive."
            )

    def add_nodes(self, nodes, before=None):
        """Inserts Nodes before one of the graph's, or at the end."""
        at = len(self.graph.nodes) if before is None else self._position(before)
        self.graph.nodes[at:at] = list(nodes)

    def remove_node(self, node):
        """Raises InputError when it is not one of graph.nodes."""
        del self.graph.nodes[self._position(node)]

    def replace_input(self, node, index, name):
        """Makes another tensor a node's input; those before it that are missing become absent
        optional ones.
        """
        node.inputs += [""] * (index + 1 - len(node.inputs))
        node.inputs[index] = name

    def consumers(self, name):
        """[(node, input index)] of the graph's own nodes that take a tensor (what nodes of
        subgraphs take is not listed).
        """
        return [(n, i) for n in self.graph.nodes for i, x in enumerate(n.inputs) if x == name]

    def producer(self, name):
        """The node whose output has this name, or None."""
        return next((n for n in self.graph.nodes if name in n.outputs), None)

    def unused_name(self, stem):
        """A tensor name that nothing in the graph has."""
        taken = self._names(self.graph)
        name, i = stem, 0
        while name in taken:
            i += 1
            name = f"{stem}_{i}"
        return name

    def add_input(self, info):
        """Appends a graph input (an Info)."""
        self.graph.inputs.append(info)

    def add_output(self, info):
        """Appends a graph output (an Info)."""
        self.graph.outputs.append(info)

    def remove_input(self, name):
        """By name; InputError when there is none."""
        self._remove(self.graph.inputs, name, "input")

    def remove_output(self, name):
        """By name; InputError when there is none."""
        self._remove(self.graph.outputs, name, "output")

    def set_metadata(self, key, value):
        """metadata_props: text by name; None removes it."""
        if value is None:
            self.graph.metadata.pop(key, None)
        else:
            self.graph.metadata[key] = value

    def set_opset(self, domain, version):
        """Version of an operator set that the model imports; "ai.onnx" and "" are one domain.

        Nodes are not converted.
        """
        self.graph.opsets["" if domain == "ai.onnx" else domain] = version

    @property
    def where(self):
        """Name of the file, for errors."""
        return self.source.name if self.source is not None else "model"

    def _position(self, node):
        for i, n in enumerate(self.graph.nodes):
            if n is node:
                return i
        raise InputError(
            "this node is not in the graph", node.where, "Take one of editor.graph.nodes."
        )

    def _remove(self, infos, name, kind):
        for i, info in enumerate(infos):
            if info.name == name:
                del infos[i]
                return
        raise InputError(
            f"it has no {kind} '{name}'", self.where, f"It has {', '.join(i.name for i in infos)}."
        )

    def _names(self, graph):
        names = {i.name for i in [*graph.inputs, *graph.outputs]} | set(graph.constants)
        for n in graph.nodes:
            names.update(n.inputs, n.outputs)
            for value in n.attrs.values():
                for g in value if isinstance(value, list) else [value]:
                    if isinstance(g, Graph):
                        names |= self._names(g)
        return names

    # writing
    def parts(self, external_data=None, keep_external=False):
        """The files as iterators over bytes-like parts: (model, external data or None).

        Args:
            external_data: name of a file that is to hold all tensors from 1 kB on. None: the model
            holds everything. keep_external: leave references to the external data files that the
            model has as they are; only for a model that stays with them.
        Raises:
            InputError: more than 2 GB without external_data. ModelError: external data that the
            model refers to is missing.
        """
        if external_data is not None and (
            not external_data or external_data != os.path.basename(external_data)
        ):
            raise InputError(
                f"external_data is {external_data!r}",
                self.where,
                "It is the plain name of a file that lies beside the model.",
            )
        writer = _Writer(self, external_data, keep_external)
        model = writer.model()
        if model.size > MOST:
            raise InputError(
                f"the model takes {model.size >> 20} MB, a protobuf file at most 2048",
                self.where,
                "Pass external_data, the name of a file for its weights.",
            )
        return model.parts(), writer.external.parts() if external_data is not None else None

    def write(self, target=None, external_data=None, keep_external=False):
        """Writes the model.

        Args:
            target: a path, an object with `write`, or None to get bytes.
            external_data: name of a file beside the path that is to hold all tensors from 1 kB on;
            where target is no path, (name, object with `write`). keep_external: as `parts`.
        Each file appears complete or not at all, the external data first: give it another name than
        the old one has, or an interrupted write leaves the old model with new weights.
        """
        name, data_target = (
            (external_data, None)
            if external_data is None or isinstance(external_data, str)
            else external_data
        )
        if name is not None and data_target is None:
            if target is None or hasattr(target, "write"):
                raise InputError(
                    "external_data needs a place",
                    self.where,
                    "Write to a path, or pass (name, object with write).",
                )
            data_target = os.path.join(os.path.dirname(os.fspath(target)), name)
        model, data = self.parts(name, keep_external)
        if data is not None:
            write_parts(data_target, data)
        return write_parts(target, model)


def _snapshot(x):
    """What a thing of the file is, to be compared with what it was."""
    if isinstance(x, Node):
        return (
            list(x.inputs),
            list(x.outputs),
            x.name,
            x.op,
            x.domain,
            {k: list(v) if isinstance(v, list) else v for k, v in x.attrs.items()},
        )
    if isinstance(x, Info):
        return x.name, x.dtype, None if x.shape is None else list(x.shape)
    return None


class _Writer:
    """One writing of an editor's model."""

    def __init__(self, editor, external_name, keep_external):
        self.editor, self.name, self.keep = editor, external_name, keep_external
        self.external = Segments()
        self.source = editor.source
        self.elsewhere = self.source is not None and (
            external_name is not None or not keep_external
        )  # tensors inside nodes may have to move

    def model(self):
        e, out = self.editor, Segments()
        g, (opsets, metadata) = e.graph, e._before
        written, keys = set(), set()
        if self.source is None:
            out.varint(1, g.ir_version)
            out.text(2, g.producer)
        for number, wire, value in e._root:
            if number == 7:
                out.message(7, self.graph())
                continue
            if number in (8, 14):
                sub = Message(e._window, *value)
                pair = _pair(sub)
                if number == 8:
                    domain = "" if pair[0] == "ai.onnx" else pair[0]
                    if domain in written or g.opsets.get(domain) != opsets[domain]:
                        continue
                    written.add(domain)
                else:
                    if (
                        pair[0] in keys
                        or g.metadata.get(pair[0]) != metadata[pair[0]]
                        or pair[1] != metadata[pair[0]]
                    ):
                        continue
                    keys.add(pair[0])
            if number == 25 and self.elsewhere:
                out.message(25, self.moved(Message(e._window, *value), "function"))
                continue
            out.field(self.source, number, wire, value)
        if self.source is None:
            out.message(7, self.graph())
        for domain, version in g.opsets.items():
            if domain not in written:
                s = Segments()
                if domain:
                    s.text(1, domain)
                s.varint(2, version)
                out.message(8, s)
        for key, value in g.metadata.items():
            if key not in keys:
                out.message(14, _strings(key, value))
        return out

    def graph(self):
        e, out = self.editor, Segments()
        g = e.graph
        lists = {
            1: [g.nodes, 0],
            5: [list(g.constants.values()), 0],
            11: [g.inputs, 0],
            12: [g.outputs, 0],
            13: [list(g.value_info.values()), 0],
        }
        alive = {number: {id(x) for x in things} for number, (things, _) in lists.items()}
        named = False
        for number, wire, value, thing in e._fields:
            if number not in lists:
                named = named or number == 2
                out.field(self.source, number, wire, value)
            elif thing is not None and id(thing) in alive[number]:
                self.until(out, number, lists[number], thing)
            # what is no longer in the list is left out
        if not named:
            out.text(2, g.name)
        for number, rest in lists.items():
            self.until(out, number, rest, None)
        return out

    def until(self, out, number, rest, thing):
        """Writes a list's things from where it stands up to and with one (None: all)."""
        things, at = rest
        while at < len(things):
            x = things[at]
            at += 1
            self.thing(out, number, x)
            if x is thing:
                break
        rest[1] = at

    def thing(self, out, number, x):
        """A node, tensor or value info: as it was, or anew."""
        origin = self.editor._origin.get(id(x))
        if number == 5:
            out.message(5, self.tensor(x, origin and origin[1]))
        elif origin is not None and _snapshot(x) == origin[2]:
            if number == 1 and self.elsewhere and self.may_move(origin[1]):
                out.message(1, self.moved(Message(self.editor._window, *origin[1]), "node"))
            else:
                out.field(self.source, number, 2, origin[1])
        elif number == 1:
            out.message(1, self.node(x, origin))
        else:
            out.message(number, _info(x))

    def may_move(self, value):
        """Whether a node may have tensors in it that are external, or become so; short ones are
        looked at as bytes.
        """
        return value[1] > (
            EXTERNAL if self.name is not None else 1 << 16
        ) or b"location" in self.editor._window.at(*value)

    def moved(self, m, kind):
        """A message whose external tensors, however deep, are put where this writing wants them."""
        out = Segments()
        inside = NESTED[kind]
        for number, wire, value in m:
            if number not in inside or wire != 2:
                out.field(self.source, number, wire, value)
            elif inside[number] == "tensor":
                out.message(
                    number,
                    self.tensor(_Reader(self.source).tensor(m.sub(value)), value, kind == "graph"),
                )
            else:
                out.message(number, self.moved(m.sub(value), inside[number]))
        return out

    def tensor(self, t, value=None, initializer=True):
        """A TensorProto. value: where in the source it was, if it was.

        Those of Constant nodes stay inside, since not all readers look for them elsewhere.
        """
        e, out = self.editor, Segments()
        new = None
        held = e._stored.get(t.name)
        if held is not None and held[1] is t:
            new = held[0]
        is_external = t.data is None and t.source is not self.source
        outside = self.name is not None and t.nbytes >= EXTERNAL and (initializer or is_external)
        if (
            new is None
            and value is not None
            and (
                NAME[t.dtype] == "string"
                or is_external
                and self.name is None
                and self.keep
                or not is_external
                and not outside
            )
        ):
            out.copy(self.source, *value)
            return out
        if NAME[t.dtype] == "string":
            raise UnsupportedOp(
                f"the text tensor '{t.name}' cannot be written anew",
                e.where,
                "Text is kept only where it stands.",
            )
        new = new or as_stored(t, t.name)
        for d in new[1]:
            out.varint(1, d)
        out.varint(2, new[0])
        out.text(8, t.name)
        if value is not None:
            for number, wire, v in Message(e._window, *value):
                if number not in DATA_FIELDS:
                    out.field(self.source, number, wire, v)
        if outside:
            size = new[2]
            to = PAGE if size >= 1 << 20 else ALIGN
            self.external.put(bytes(-self.external.size % to))
            for key, text in (
                ("location", self.name),
                ("offset", str(self.external.size)),
                ("length", str(size)),
            ):
                out.message(13, _strings(key, text))
            out.varint(14, 1)
            self.external.stored(new, t.name)
        else:
            out.put(_varint(9 << 3 | 2) + _varint(new[2]))
            out.stored(new, t.name)
        return out

    def node(self, node, origin=None):
        """A NodeProto; what an old one had besides the things a Node knows is kept."""
        out = Segments()
        for x in node.inputs:
            out.text(1, x)
        for x in node.outputs:
            out.text(2, x)
        for number, text in ((3, node.name), (4, node.op), (7, node.domain)):
            if text:
                out.text(number, text)
        kept = set()
        if origin is not None:
            attrs = origin[2][5]
            m = Message(self.editor._window, *origin[1])
            for number, wire, value in m:
                if number == 5:
                    name = _name_of(m.sub(value))
                    if (
                        name in kept
                        or name not in node.attrs
                        or node.attrs[name] != attrs.get(name)
                    ):
                        continue
                    kept.add(name)
                    if self.elsewhere:
                        out.message(5, self.moved(m.sub(value), "attribute"))
                        continue
                if number not in (1, 2, 3, 4, 7):
                    out.field(self.source, number, wire, value)
        for name, value in node.attrs.items():
            if name not in kept:
                out.message(5, self.attribute(name, value, node))
        return out

    def attribute(self, name, value, node):
        out = Segments()
        out.text(1, name)
        many = isinstance(value, (list, tuple))
        values = list(value) if many else [value]
        if all(isinstance(v, int) for v in values):
            kind, write = 2, lambda number, v: out.varint(number, int(v))
        elif all(isinstance(v, (int, float)) for v in values):
            kind, write = (
                1,
                lambda number, v: out.put(_varint(number << 3 | 5) + _float(v, name, node)),
            )
        elif all(isinstance(v, (str, bytes)) for v in values):
            kind, write = (
                3,
                lambda number, v: out.data(
                    number, v.encode("utf-8", "surrogateescape") if isinstance(v, str) else v
                ),
            )
        elif all(isinstance(v, Tensor) for v in values):
            kind, write = (
                4,
                lambda number, v: out.message(number, self.tensor(v, initializer=False)),
            )
        elif all(isinstance(v, Graph) for v in values):
            kind, write = 5, lambda number, v: out.message(number, self.subgraph(v))
        else:
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
        for v in values:
            write({1: 7, 2: 8, 3: 9, 4: 10, 5: 11}[kind] if many else kind + 1, v)
        out.varint(20, kind + 5 if many else kind)
        return out

    def subgraph(self, g):
        out = Segments()
        for n in g.nodes:
            out.message(1, self.node(n))
        out.text(2, g.name)
        for t in g.constants.values():
            out.message(5, self.tensor(t))
        for number, infos in ((11, g.inputs), (12, g.outputs), (13, g.value_info.values())):
            for i in infos:
                out.message(number, _info(i))
        return out


def _pair(m):
    """(text, text or number) of a message whose fields 1 and 2 are those."""
    a, b = "", ""
    for number, wire, value in m:
        if number == 1:
            a = m.text(value)
        elif number == 2:
            b = m.text(value) if wire == 2 else value
    return a, b


def _name_of(m):
    return next((m.text(value) for number, _, value in m if number == 1), "")


def _strings(key, value):
    out = Segments()
    out.text(1, key)
    out.text(2, value)
    return out


def _float(v, name, node):
    try:
        return struct.pack("<f", v)
    except OverflowError:
        raise InputError(
            f"attribute '{name}' is {v}, more than a float32 can be",
            node.where,
            "Choose a smaller number.",
        ) from None


def _info(info):
    """A ValueInfoProto of a tensor."""
    if info.kind != "tensor":
        raise UnsupportedOp(
            f"'{info.name}' is a {info.kind}, which cannot be written anew",
            info.name,
            "Keep it as it was.",
        )
    kind, out = Segments(), Segments()
    kind.varint(1, info.dtype)
    if info.shape is not None:
        shape = Segments()
        for d in info.shape:
            dim = Segments()
            if isinstance(d, int):
                dim.varint(1, d)
            elif d is not None:
                dim.text(2, d)
            shape.message(1, dim)
        kind.message(2, shape)
    tensor = Segments()
    tensor.message(1, kind)
    out.text(1, info.name)
    out.message(2, tensor)
    return out

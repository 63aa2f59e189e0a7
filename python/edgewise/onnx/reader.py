"""Protobuf wire format -> Graph, without the protobuf library
(https://protobuf.dev/programming-guides/encoding/).

Field numbers are those of onnx.proto3 (ONNX 1.23). The file is read through a window, weights are
skipped, never decoded: a model larger than memory costs its graph only.
"""

from __future__ import annotations

import re
import struct

from ..declare.dtypes import BITS, MINIFLOATS, NAME, bytes_for, pack, pack_codes
from ..declare.symbolic import strides_of
from ..element_types import DTYPES
from ..errors import EdgewiseError, ModelError, OutOfMemory, UnsupportedOp
from ..ir import Graph, Info, Node, Tensor, check_tensor_bytes

INLINE = 1 << 12  # longer fields are not copied out of the source unless asked for
MAX_DEPTH = 64  # nested graphs, types and attributes
MAX_SPARSE = 1 << 24  # elements of a sparse tensor: a few bytes of a file become all of them
MAX_ELEMENTS = 1 << 40
MAX_RANK = 64
MAX_NAME = (
    1 << 12
    # bytes of a name of a tensor, a node or an operator; those of real models have up to some
    # hundreds
)
MAX_TEXT = 1 << 20  # bytes of a text in metadata
MAX_ATTRIBUTE = 1 << 26  # bytes of an attribute's text or list of numbers


class Window:
    """Random access to a source through one cached block."""

    def __init__(self, source, block=1 << 16):
        self.source, self.block, self.start, self.data = source, block, 0, b""

    def at(self, offset, size):
        """bytes of the file at an offset; ModelError where it ends before."""
        lo = offset - self.start
        if lo < 0 or lo + size > len(self.data):
            if size > self.block:
                return self.source.read(offset, size)
            self.start = offset
            self.data = self.source.read(offset, min(self.block, self.source.size - offset))
            lo = 0
            if size > len(self.data):
                raise ModelError(
                    f"the file ends inside a field at byte {offset}",
                    self.source.name,
                    "It is truncated; fetch it again.",
                )
        return self.data[lo : lo + size]


class Message:
    """Iterates over the fields of a message: (field number, wire type, value); a length-delimited
    value is (offset, size).

    A message that fits in a block is read as a whole, and the messages inside it share its bytes;
    larger ones are walked through the window.
    """

    __slots__ = ("window", "start", "size", "depth", "data", "base")

    def __init__(self, window, start, size, depth=0, data=None, base=0):
        self.window, self.start, self.size, self.depth = window, start, size, depth
        if depth > MAX_DEPTH:
            raise self.broken(start, "messages nested too deeply")
        if data is None and size <= window.block:
            data, base = window.at(start, size) if size else b"", start
        self.data, self.base = data, base

    def broken(self, at, what="not valid protobuf"):
        """The ModelError for the byte `at` of the file."""
        return ModelError(
            f"{what} at byte {at}",
            self.window.source.name,
            "The file is damaged or not an ONNX model; fetch or export it again.",
        )

    def __iter__(self):
        return self._walk_bytes() if self.data is not None else self._walk_window()

    def _walk_bytes(self):
        data, base = self.data, self.base
        i = self.start - base
        end = i + self.size
        while i < end:
            at = i
            key = data[i]
            i += 1
            if key > 127:
                key, i = self._varint(data, at, base, end)
            number, wire = key >> 3, key & 7
            if wire == 0:
                if i < end and data[i] < 128:
                    value = data[i]
                    i += 1
                else:
                    value, i = self._varint(data, i, base, end)
            elif wire == 2:
                if i < end and data[i] < 128:
                    length = data[i]
                    i += 1
                else:
                    length, i = self._varint(data, i, base, end)
                if i + length > end:
                    raise self.broken(base + at, "a field longer than the message around it")
                value = (base + i, length)
                i += length
            elif wire == 5 or wire == 1:
                width = 4 if wire == 5 else 8
                if i + width > end:
                    raise self.broken(base + at)
                value = data[i : i + width]
                i += width
            else:
                raise self.broken(base + at)
            if number == 0:
                raise self.broken(base + at)
            yield number, wire, value

    def _walk_window(self):
        window, at, end = self.window, self.start, self.start + self.size
        while at < end:
            head = window.at(at, min(20, end - at))
            n = len(head)
            key, i = self._varint(head, 0, at, n)
            number, wire = key >> 3, key & 7
            if number == 0:
                raise self.broken(at)
            if wire == 0:
                value, i = self._varint(head, i, at, n)
            elif wire == 2:
                length, i = self._varint(head, i, at, n)
                if at + i + length > end:
                    raise self.broken(at, "a field longer than the message around it")
                value = (at + i, length)
                i += length
            elif wire in (1, 5):
                width = 8 if wire == 1 else 4
                if i + width > n:
                    raise self.broken(at)
                value = head[i : i + width]
                i += width
            else:
                raise self.broken(at)
            yield number, wire, value
            at += i

    def _varint(self, data, i, base, end):
        result = shift = 0
        while True:
            if i >= end or shift > 63:
                raise self.broken(base + i)
            b = data[i]
            i += 1
            result |= (b & 127) << shift
            if b < 128:
                return result & 0xFFFFFFFFFFFFFFFF, i
            shift += 7

    # reading values of known types
    def sub(self, value):
        """The message that a length-delimited value is; ModelError where it is of another kind, or
        nested deeper than MAX_DEPTH.
        """
        if not isinstance(value, tuple):
            raise self.broken(self.start)
        return Message(self.window, value[0], value[1], self.depth + 1, self.data, self.base)

    def raw(self, value):
        """bytes of a length-delimited value."""
        if not isinstance(value, tuple):
            raise self.broken(self.start)
        at, size = value
        if self.data is not None:
            at -= self.base
            return self.data[at : at + size]
        return self.window.at(at, size) if size else b""

    def text(self, value, most=MAX_NAME):
        """str of a length-delimited value; ModelError where it has more than `most` bytes or is not
        UTF-8.
        """
        if isinstance(value, tuple) and value[1] > most:
            raise self.broken(
                value[0], f"a {'name' if most == MAX_NAME else 'text'} of {value[1]} bytes"
            )
        try:
            return self.raw(value).decode()
        except UnicodeDecodeError:
            raise self.broken(value[0], "a name that is not UTF-8") from None

    def int(self, value):
        """A varint as the int64 it stands for."""
        if not isinstance(value, int):
            raise self.broken(self.start)
        return value - (1 << 64) if value >> 63 else value

    def listed(self, value):
        """bytes of a packed list; ModelError where it is longer than MAX_ATTRIBUTE."""
        if isinstance(value, tuple) and value[1] > MAX_ATTRIBUTE:
            raise self.broken(value[0], f"a list of numbers of {value[1]} bytes")
        return self.raw(value)

    def ints(self, wire, value):
        """One of a repeated varint field, packed or not."""
        if wire == 0:
            return [self.int(value)]
        data, out, i = self.listed(value), [], 0
        while i < len(data):
            v, i = self._varint(data, i, value[0], len(data))
            out.append(v - (1 << 64) if v >> 63 else v)
        return out

    def numbers(self, wire, value, code):
        """One of a repeated fixed-width field (code: struct letter), packed or not."""
        data = value if wire in (1, 5) else self.listed(value)
        width = struct.calcsize("<" + code)
        if wire == 0 or len(data) % width:
            raise self.broken(self.start)
        return list(struct.unpack(f"<{len(data) // width}{code}", data))


def read_model(source):
    """Reads the graph of an ONNX model.

    Args:
        source: a `Source`.
    Returns:
        Graph, with initializers as references into the source (or into its external data files).
    Raises:
        ModelError: the file is broken, truncated, not ONNX, or of a kind that cannot be; with the
        byte offset. OutOfMemory: the graph does not fit into memory.
    """
    try:
        return _read_model(source)
    except MemoryError as e:
        if isinstance(e, EdgewiseError):
            raise
        raise OutOfMemory(
            "its graph does not fit into memory",
            source.name,
            "Close other programs, or use a smaller model.",
        ) from None
    except RecursionError:
        raise ModelError(
            "its messages are nested too deeply",
            source.name,
            "The file is damaged or not an ONNX model; fetch or export it again.",
        ) from None


def _read_model(source):
    if source.size == 0:
        raise ModelError("the file is empty", source.name, "Fetch or export it again.")
    if source.size >= 8 and source.read(0, 8) == b"EDGEWISE":
        raise ModelError(
            "it is a package, not a model",
            source.name,
            "Packages run in pages, those of language models in `edgewise.CausalLM` and `pipeline`"
            " as well; give the .onnx file that it was built from.",
        )
    reader = _Reader(source)
    graph = None
    opsets, functions, metadata, ir_version, producer = {}, {}, {}, 0, ""
    root = Message(Window(source), 0, source.size)
    for number, _wire, value in root:
        if number == 7:
            if graph is not None:
                raise root.broken(root.start, "two graphs in one model")
            graph = reader.graph(root.sub(value))
        elif number == 8:
            domain, version = "", 0
            for n, _, v in (m := root.sub(value)):
                if n == 1:
                    domain = m.text(v)
                elif n == 2:
                    version = m.int(v)
            if version < 1:
                raise ModelError(
                    f"it asks for version {version} of the operator set '{domain or 'ai.onnx'}'",
                    source.name,
                    "The file is damaged; export it again.",
                )
            opsets["" if domain == "ai.onnx" else domain] = version
        elif number == 25:
            f = reader.function(root.sub(value))
            functions[(f.domain, f.name)] = f
        elif number == 14:
            key, val = reader.string_pair(root.sub(value))
            metadata[key] = val
        elif number == 1:
            ir_version = root.int(value)
        elif number == 2:
            producer = root.text(value)
    if graph is None or not opsets:
        raise ModelError(
            "it holds no ONNX graph" if graph is None else "it names no operator set",
            source.name,
            "Is this an ONNX file? Edgewise reads the ONNX protobuf format.",
        )
    (
        graph.opsets,
        graph.functions,
        graph.metadata,
        graph.ir_version,
        graph.producer,
        graph.source,
    ) = (opsets, functions, metadata, ir_version, producer, source)
    return graph


class Function:
    """A model-local function: body nodes over formal names."""

    def __init__(self):
        (
            self.name,
            self.domain,
            self.inputs,
            self.outputs,
            self.attributes,
            self.nodes,
            self.opsets,
            self.defaults,
        ) = ("", "", [], [], [], [], {}, {})


# metadata that torch's exporter gives nodes: a list of module names, outermost first, and the
# node's own
NAME_SCOPES = "pkg.torch.onnx.name_scopes"


def _innermost(scopes):
    """Name of the module that a node belongs to; "" where the text is no such list."""
    found = re.findall(r"'([^']*)'", scopes)
    return found[-2] if len(found) > 1 else ""


class _Reader:
    def __init__(self, source):
        self.source = source
        self.siblings = {}

    def string_pair(self, m):
        key = val = ""
        for n, _, v in m:
            if n == 1:
                key = m.text(v)
            elif n == 2:
                val = m.text(v, MAX_TEXT)
        return key, val

    def graph(self, m):
        g = Graph()
        for n, _w, v in m:
            if n == 1:
                g.nodes.append(self.node(m.sub(v)))
            elif n == 2:
                g.name = m.text(v)
            elif n == 5:
                t = self.tensor(m.sub(v))
                if t.name in g.constants:
                    raise ModelError(
                        f"two initializers are called '{t.name}'",
                        self.source.name,
                        "Export the model again.",
                    )
                g.constants[t.name] = t
            elif n == 11:
                g.inputs.append(self.info(m.sub(v)))
            elif n == 12:
                g.outputs.append(self.info(m.sub(v)))
            elif n == 13:
                i = self.info(m.sub(v))
                g.value_info[i.name] = i
            elif n == 15:
                t = self.sparse(m.sub(v))
                if t.name in g.constants:
                    raise ModelError(
                        f"two initializers are called '{t.name}'",
                        self.source.name,
                        "Export the model again.",
                    )
                g.constants[t.name] = t
        for kind, infos in (("input", g.inputs), ("output", g.outputs)):
            names = {i.name for i in infos}
            if "" in names or len(names) != len(infos):
                raise ModelError(
                    f"an {kind} of graph '{g.name}' has no name, or the name of another",
                    self.source.name,
                    "Export the model again.",
                )
        return g

    def node(self, m):
        node = Node("", [], [])
        for n, _w, v in m:
            if n == 1:
                node.inputs.append(m.text(v))
            elif n == 2:
                node.outputs.append(m.text(v))
            elif n == 3:
                node.name = m.text(v)
            elif n == 4:
                node.op = m.text(v)
            elif n == 5:
                key, val = self.attribute(m.sub(v))
                node.attrs[key] = val
            elif n == 7:
                node.domain = m.text(v)
            elif n == 9:
                key, value = "", ""
                for k, _, x in (s := m.sub(v)):
                    if k == 1:
                        key = s.text(x)
                    elif k == 2:
                        value = s.text(x, MAX_TEXT)
                if key == NAME_SCOPES:
                    node.module = _innermost(value)
        if node.domain == "ai.onnx":
            node.domain = ""
        if node.op == "Gradient" and node.domain == "ai.onnx.preview.training":
            self.differentiated(node)
        return node

    def differentiated(self, node):
        """Gradient names what it differentiates in an attribute: one input more, so that it is
        computed before.
        """
        xs, y = node.attrs.get("xs"), node.attrs.get("y")
        if not xs or not isinstance(xs, list) or not isinstance(y, str) or not y:
            raise ModelError("it does not name its xs and y", node.where, "Export the model again.")
        if node.inputs[: len(xs)] != xs:
            raise UnsupportedOp(
                "gradients at other values than those that the graph computes",
                node.where,
                "Make its inputs the tensors that `xs` and `zs` name.",
            )
        node.inputs.append(y)

    def function(self, m):
        f = Function()
        for n, _w, v in m:
            if n == 1:
                f.name = m.text(v)
            elif n == 4:
                f.inputs.append(m.text(v))
            elif n == 5:
                f.outputs.append(m.text(v))
            elif n == 6:
                f.attributes.append(m.text(v))
            elif n == 7:
                f.nodes.append(self.node(m.sub(v)))
            elif n == 9:
                domain, version = "", 0
                for k, _, x in (s := m.sub(v)):
                    if k == 1:
                        domain = s.text(x)
                    elif k == 2:
                        version = s.int(x)
                f.opsets["" if domain == "ai.onnx" else domain] = version
            elif n == 10:
                f.domain = m.text(v)
            elif n == 11:
                key, val = self.attribute(m.sub(v))
                f.defaults[key] = val
        return f

    def attribute(self, m):
        name, kind, value, ref = "", 0, None, ""
        floats, ints, strings, tensors, graphs = [], [], [], [], []
        f, i, s = 0.0, 0, b""
        t, g, tp = None, None, Info("")
        for n, w, v in m:
            if n == 1:
                name = m.text(v)
            elif n == 20:
                kind = m.int(v)
            elif n == 2:
                if w != 5:
                    raise m.broken(m.start, "a number that is not encoded as one")
                f = m.numbers(w, v, "f")[0]
            elif n == 3:
                i = m.int(v)
            elif n == 4:
                s = m.listed(v)
            elif n == 5:
                t = self.tensor(m.sub(v))
            elif n == 6:
                g = self.graph(m.sub(v))
            elif n == 7:
                floats += m.numbers(w, v, "f")
            elif n == 8:
                ints += m.ints(w, v)
            elif n == 9:
                strings.append(m.listed(v))
            elif n == 10:
                tensors.append(self.tensor(m.sub(v)))
            elif n == 11:
                graphs.append(self.graph(m.sub(v)))
            elif n == 14:
                self.type(m.sub(v), tp)
            elif n == 22:
                t = self.sparse(m.sub(v))
            elif n == 21:
                ref = m.text(v)
        if ref:
            return name, AttributeReference(ref)
        value = {
            1: f,
            2: i,
            3: s.decode("utf-8", "surrogateescape"),
            4: t,
            5: g,
            6: floats,
            7: ints,
            8: [x.decode("utf-8", "surrogateescape") for x in strings],
            9: tensors,
            10: graphs,
            11: t,
            13: tp,
        }.get(kind)
        if value is None:
            raise ModelError(
                f"attribute '{name}' has no readable value (kind {kind})",
                self.source.name,
                "Export the model again.",
            )
        return name, value

    def sparse(self, m):
        """A sparse tensor, as a dense one."""
        values = places = None
        dims = []
        for n, w, v in m:
            if n == 1:
                values = self.tensor(m.sub(v))
            elif n == 2:
                places = self.tensor(m.sub(v))
            elif n == 3:
                dims += m.ints(w, v)
        count = 1
        for d in dims:
            count *= max(d, 0)
            if count > MAX_SPARSE or len(dims) > MAX_RANK:
                raise UnsupportedOp(
                    f"it holds a sparse tensor of {str(dims)[:80]}, which would be stored densely",
                    self.source.name,
                    "Store the initializer densely.",
                )
        name = values.name if values is not None else ""
        if (
            values is None
            or values.dtype not in DTYPES
            or places is not None
            and (
                places.dtype != 7
                or places.shape not in ((values.count,), (values.count, len(dims)))
            )
            or min(dims, default=0) < 0
        ):
            raise ModelError(
                f"the sparse tensor '{name}' has no values, or indices that do not fit them",
                self.source.name,
                "Export the model again.",
            )
        size = DTYPES[values.dtype][1]
        data, dense = values.bytes(), bytearray(count * size)
        at = places.numbers() if places is not None else []
        if values.count and len(at) < values.count or len(data) != values.count * size:
            raise ModelError(
                f"the sparse tensor '{name}' has fewer indices or bytes than values",
                self.source.name,
                "Export the model again.",
            )
        steps = strides_of(dims) if places is not None and len(places.shape) == 2 else [1]
        for i in range(values.count):
            place = at[i * len(steps) : (i + 1) * len(steps)]
            to = sum(p * s for p, s in zip(place, steps))
            if (
                not 0 <= to < count
                or len(steps) == len(dims)
                and any(not 0 <= p < d for p, d in zip(place, dims))
            ):
                raise ModelError(
                    f"the sparse tensor '{name}' has a value at {place}, outside of {dims}",
                    self.source.name,
                    "Export the model again.",
                )
            dense[to * size : (to + 1) * size] = data[i * size : (i + 1) * size]
        return Tensor(name, values.dtype, tuple(dims), None, 0, len(dense), bytes(dense))

    def info(self, m):
        info = Info("")
        for n, _w, v in m:
            if n == 1:
                info.name = m.text(v)
            elif n == 2:
                self.type(m.sub(v), info)
        return info

    def type(self, m, info):
        """A TypeProto into an Info."""
        for kind, _, x in m:
            if kind == 1:
                self.tensor_type(m.sub(x), info)
            elif kind in (4, 5, 8, 9):
                info.kind, info.elem = (
                    {4: "sequence", 5: "map", 8: "sparse", 9: "optional"}[kind],
                    Info(info.name),
                )
                for n, _, y in (t := m.sub(x)):
                    if kind in (4, 9) and n == 1 or kind == 5 and n == 2:
                        self.type(t.sub(y), info.elem)
                    elif kind == 5 and n == 1:
                        info.key_type = t.int(y)

    def tensor_type(self, m, info):
        for n, _w, v in m:
            if n == 1:
                info.dtype = m.int(v)
            elif n == 2:
                info.shape = []
                for k, _, d in (s := m.sub(v)):
                    if k != 1:
                        continue
                    dim = None
                    for kk, _, x in (dm := s.sub(d)):
                        if kk == 1:
                            dim = dm.int(x)
                        elif kk == 2:
                            text = dm.text(x)  # transformers 5 writes some fixed sizes as names
                            dim = (
                                int(text)
                                if text.isdigit() and text.isascii() and len(text) < 10
                                else (text or None)
                            )
                    info.shape.append(dim)

    def tensor(self, m):
        dims, dtype, name, raw, external, location = [], 0, "", None, {}, 0
        typed, strings = None, []
        for n, w, v in m:
            if n == 1:
                dims += m.ints(w, v)
            elif n == 6:
                strings.append(m.listed(v).decode("utf-8", "surrogateescape"))
            elif n == 2:
                dtype = m.int(v)
            elif n == 8:
                name = m.text(v)
            elif n == 9:
                raw = v
            elif n == 13:
                key, val = self.string_pair(m.sub(v))
                external[key] = val
            elif n == 14:
                location = m.int(v)
            elif n in (4, 5, 6, 7, 10, 11):
                if typed is None:
                    typed = []
                typed.append((n, w, v))
        where = self.source.name
        if dtype not in NAME:
            raise ModelError(
                f"tensor '{name}' has the element type {dtype}, which is unknown here",
                where,
                "Convert it to a standard ONNX type.",
            )
        if len(dims) > MAX_RANK:
            raise ModelError(
                f"tensor '{name}' claims {len(dims)} dimensions", where, "The file is damaged."
            )
        count = 1
        for d in dims:
            if d < 0:
                raise ModelError(
                    f"tensor '{name}' has the dimension {d}", where, "Export the model again."
                )
            count *= d
            if count > MAX_ELEMENTS:
                raise ModelError(
                    f"tensor '{name}' claims {dims} elements", where, "The file is damaged."
                )
        t = Tensor(name, dtype, tuple(dims))
        if dtype == 8:
            if len(strings) != count:
                raise ModelError(
                    f"tensor '{name}' has {len(strings)} strings, its shape {dims} needs {count}",
                    where,
                    "The file is damaged; export it again.",
                )
            t.data, t.strings = b"", strings
            return t
        if location == 1:
            t.source, t.offset, t.nbytes = self.external(name, external, bytes_for(dtype, count))
        elif raw is not None:
            if not isinstance(raw, tuple):
                raise m.broken(m.start)
            t.source, t.offset, t.nbytes = self.source, raw[0], raw[1]
            if t.nbytes <= INLINE:
                t.data = m.raw(raw)
        elif (
            typed is not None
            and len(typed) == 1
            and typed[0][0] == {1: 4, 11: 10}.get(dtype)
            and typed[0][1] == 2
        ):  # packed floats lie there as raw ones do
            t.source, (t.offset, t.nbytes) = self.source, typed[0][2]
            if t.nbytes <= INLINE:
                t.data = m.raw(typed[0][2])
        elif typed is not None or count == 0:
            t.data = self.typed_data(m, t, typed or [], count)
            t.nbytes = len(t.data)
        elif count:
            raise ModelError(f"tensor '{name}' has no data", where, "Export the model again.")
        check_tensor_bytes(t, where)
        return t

    def typed_data(self, m, t, fields, count):
        values = []
        for n, w, v in fields:
            if n == 4:
                values += m.numbers(w, v, "f")
            elif n == 10:
                values += m.numbers(w, v, "d")
            elif n in (5, 7, 11):
                values += m.ints(w, v)
        try:
            if t.dtype in (10, 16):  # half types as their bits in int32_data
                return b"".join((v & 0xFFFF).to_bytes(2, "little") for v in values)
            if (
                t.dtype in MINIFLOATS or t.dtype in BITS
            ):  # bytes as they are, of packed types too; those of 6 bits a code each
                return (
                    pack_codes(6, values)
                    if BITS.get(t.dtype) == 6
                    else bytes(v & 255 for v in values)
                )
            if t.dtype == 13:
                values = [v & 0xFFFFFFFFFFFFFFFF for v in values]
            return pack(t.dtype, values)
        except (struct.error, OverflowError, KeyError, TypeError):
            raise ModelError(
                f"tensor '{t.name}' holds numbers outside its type",
                self.source.name,
                "Export the model again.",
            ) from None

    def external(self, name, entries, expected):
        location = entries.get("location", "")
        if not location:
            raise ModelError(
                f"initializer '{name}' has external data without a file name",
                self.source.name,
                "Export the model again.",
            )
        if location not in self.siblings:
            self.siblings[location] = self.source.sibling(location)
        other = self.siblings[location]
        try:
            offset, length = int(entries.get("offset", 0)), int(entries.get("length", expected))
        except ValueError:
            raise ModelError(
                f"initializer '{name}' has a broken external data entry",
                self.source.name,
                "Export the model again.",
            ) from None
        if offset < 0 or length < 0 or offset + length > other.size:
            raise ModelError(
                f"initializer '{name}' lies at bytes {offset}..{offset + length} of {location},"
                f" which has {other.size}",
                self.source.name,
                "The data file is truncated or belongs to another model; fetch it again.",
            )
        return other, offset, length


class AttributeReference:
    """An attribute of a function's body that takes the calling node's attribute of this name."""

    def __init__(self, name):
        self.name = name

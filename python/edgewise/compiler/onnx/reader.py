"""ONNX file -> Graph, without the protobuf library.

Field numbers are those of onnx.proto3 (ONNX 1.23). Weights are skipped, never decoded: reading a
model larger than memory takes memory for its graph only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import EdgewiseError, ModelError, OutOfMemory, UnsupportedOp
from ..declare.dtypes import INT64
from ..ir import Graph, Info, Node, Tensor, overloaded
from .protobuf import FIXED32, MAX_TEXT, FieldValue, Message
from .source import Source
from .tensors import EXPORT_AGAIN, TensorReader, read_string_pair

DAMAGED = "The file is damaged or not an ONNX model; fetch or export it again."
# Metadata that torch's exporter gives nodes: a list of module names, outermost first, that ends
# with the node's own name.
NAME_SCOPES = "pkg.torch.onnx.name_scopes"

# AttributeProto.AttributeType.
(
    ATTR_FLOAT,
    ATTR_INT,
    ATTR_STRING,
    ATTR_TENSOR,
    ATTR_GRAPH,
    ATTR_FLOATS,
    ATTR_INTS,
    ATTR_STRINGS,
    ATTR_TENSORS,
    ATTR_GRAPHS,
    ATTR_SPARSE_TENSOR,
) = range(1, 12)
ATTR_TYPE = 13
# TypeProto: kinds of values that are not tensors, by field.
TYPE_KINDS = {4: "sequence", 5: "map", 8: "sparse", 9: "optional"}


@dataclass
class Function:
    """A function that the model defines: nodes over the names of its inputs.

    Attributes:
        name: operator, with the overload (ir.overloaded).
        domain: operator set.
        inputs: names.
        outputs: names.
        attributes: names of attributes without a default value.
        nodes: the body.
        opsets: version by operator set.
        defaults: values of the other attributes.
    """

    name: str = ""
    domain: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    opsets: dict[str, int] = field(default_factory=dict)
    defaults: dict[str, object] = field(default_factory=dict)


class AttributeReference:
    """An attribute in the body of a function whose value is an attribute of the calling node.

    Args:
        name: name of the calling node's attribute.
    """

    def __init__(self, name: str) -> None:
        self.name = name


def read_model(source: Source, given: Mapping[str, Tensor] | None = None) -> Graph:
    """Reads the graph of an ONNX model.

    Args:
        source: the file.
        given: {name: Tensor} of initializers with external data, which is then not looked for.

    Returns:
        The graph; its initializers refer to the source or to its external data files.

    Raises:
        ModelError: the file is damaged, truncated, not ONNX or not valid; says at which byte.
        OutOfMemory: the graph does not fit into memory.
    """
    try:
        return _read_model(source, given)
    except MemoryError as e:
        if isinstance(e, EdgewiseError):
            raise
        raise OutOfMemory(
            "its graph does not fit into memory",
            source.name,
            "Close other programs, or use a smaller model.",
        ) from None
    except RecursionError:
        raise ModelError("its messages are nested too deeply", source.name, DAMAGED) from None


def _read_model(source: Source, given: Mapping[str, Tensor] | None) -> Graph:
    if source.size == 0:
        raise ModelError("the file is empty", source.name, "Fetch or export it again.")
    if source.size >= 8 and source.read(0, 8) == b"EDGEWISE":
        raise ModelError(
            "it is a package, not a model",
            source.name,
            "Packages run in pages, those of language models in `edgewise.CausalLM` and `pipeline`"
            " as well; give the .onnx file that it was built from.",
        )
    reader = GraphReader(source, given)
    graph: Graph | None = None
    # The graph may precede these fields in the file.
    model = Graph()
    root = Message.of(source)
    for number, _, value in root:
        if number == 7:
            if graph is not None:
                raise root.broken(root.start, "two graphs in one model")
            graph = reader.read_graph(root.sub(value))
        elif number == 8:
            domain, version = read_opset(root.sub(value))
            if version < 1:
                raise ModelError(
                    f"it requires version {version} of the operator set '{domain or 'ai.onnx'}'",
                    source.name,
                    "The file is damaged; export it again.",
                )
            model.opsets[domain] = version
        elif number == 25:
            _add_function(model, reader.read_function(root.sub(value)), source)
        elif number == 14:
            key, text = read_string_pair(root.sub(value))
            model.about.custom_metadata_map[key] = text
        elif number == 1:
            model.ir_version = root.integer(value)
        elif number == 2:
            model.about.producer_name = root.text(value)
        elif number == 4:
            model.about.domain = root.text(value)
        elif number == 5:
            model.about.version = root.integer(value)
        elif number == 6:
            model.about.description = _read_prose(root, value)
    if graph is None or not model.opsets:
        raise ModelError(
            "it holds no ONNX graph" if graph is None else "it names no operator set",
            source.name,
            "Is this an ONNX file? Edgewise reads the ONNX protobuf format.",
        )
    model.about.graph_name = graph.name
    model.about.graph_description = graph.about.graph_description
    graph.opsets, graph.functions, graph.about = model.opsets, model.functions, model.about
    graph.ir_version, graph.source = model.ir_version, source
    return graph


def _add_function(model: Graph, function: Function, source: Source) -> None:
    key = function.domain, function.name
    if key in model.functions:
        raise ModelError(f"two functions are named '{'.'.join(key)}'", source.name, EXPORT_AGAIN)
    model.functions[key] = function


class GraphReader:
    """Reads the graphs, nodes and functions of one model.

    Args:
        source, given: see `read_model`.
    """

    def __init__(self, source: Source, given: Mapping[str, Tensor] | None = None) -> None:
        self.source = source
        self.tensors = TensorReader(source, given)

    def read_graph(self, m: Message) -> Graph:
        """The Graph of a GraphProto."""
        graph = Graph()
        for number, _, value in m:
            if number == 1:
                graph.nodes.append(self.read_node(m.sub(value)))
            elif number == 2:
                graph.name = m.text(value)
            elif number == 5:
                self._add_constant(graph, self.tensors.read(m.sub(value)))
            elif number == 10:
                graph.about.graph_description = _read_prose(m, value)
            elif number == 11:
                graph.inputs.append(self.read_info(m.sub(value)))
            elif number == 12:
                graph.outputs.append(self.read_info(m.sub(value)))
            elif number == 13:
                info = self.read_info(m.sub(value))
                graph.value_info[info.name] = info
            elif number == 15:
                self._add_constant(graph, self.tensors.read_sparse(m.sub(value)))
        for kind, infos in (("input", graph.inputs), ("output", graph.outputs)):
            names = {info.name for info in infos}  # a tensor may be several outputs
            if "" in names or kind == "input" and len(names) != len(infos):
                raise ModelError(
                    f"an {kind} of graph '{graph.name}' has no name, or a duplicate name",
                    self.source.name,
                    EXPORT_AGAIN,
                )
        return graph

    def _add_constant(self, graph: Graph, t: Tensor) -> None:
        if t.name in graph.constants:
            raise ModelError(
                f"two initializers are named '{t.name}'", self.source.name, EXPORT_AGAIN
            )
        graph.constants[t.name] = t

    def read_node(self, m: Message) -> Node:
        """The Node of a NodeProto."""
        node, overload = Node("", [], []), ""
        for number, _, value in m:
            if number == 1:
                node.inputs.append(m.text(value))
            elif number == 2:
                node.outputs.append(m.text(value))
            elif number == 3:
                node.name = m.text(value)
            elif number == 4:
                node.op = m.text(value)
            elif number == 5:
                name, attribute = self.read_attribute(m.sub(value))
                node.attrs[name] = attribute
            elif number == 7:
                node.domain = m.text(value)
            elif number == 8:
                overload = m.text(value)
            elif number == 9:
                key, text = read_string_pair(m.sub(value))
                if key == NAME_SCOPES:
                    node.module = _innermost_module(text)
        node.op = overloaded(node.op, overload)
        if node.domain == "ai.onnx":
            node.domain = ""
        if node.op == "Gradient" and node.domain == "ai.onnx.preview.training":
            _add_differentiated_input(node)
        if node.op == "Loop" and not node.domain and isinstance(node.attrs.get("body"), Graph):
            _take_scalars(node.attrs["body"])
        return node

    def read_function(self, m: Message) -> Function:
        """The Function of a FunctionProto."""
        f, overload = Function(), ""
        for number, _, value in m:
            if number == 1:
                f.name = m.text(value)
            elif number == 4:
                f.inputs.append(m.text(value))
            elif number == 5:
                f.outputs.append(m.text(value))
            elif number == 6:
                f.attributes.append(m.text(value))
            elif number == 7:
                f.nodes.append(self.read_node(m.sub(value)))
            elif number == 9:
                domain, version = read_opset(m.sub(value))
                f.opsets[domain] = version
            elif number == 10:
                f.domain = m.text(value)
            elif number == 11:
                name, attribute = self.read_attribute(m.sub(value))
                f.defaults[name] = attribute
            elif number == 13:
                overload = m.text(value)
        f.name = overloaded(f.name, overload)
        f.domain = "" if f.domain == "ai.onnx" else f.domain
        return f

    # long: one branch for each field of AttributeProto
    def read_attribute(self, m: Message) -> tuple[str, object]:
        """(name, value) of an AttributeProto.

        The value is an int, float, str, Tensor, Graph, Info (a type), a list of one of the first
        five, or an AttributeReference.
        """
        name, kind, reference = "", 0, ""
        number_f, number_i, text = 0.0, 0, b""
        floats: list[float] = []
        integers: list[int] = []
        strings: list[bytes] = []
        tensors: list[Tensor] = []
        graphs: list[Graph] = []
        tensor: Tensor | None = None
        graph: Graph | None = None
        info = Info("")
        for number, wire, value in m:
            if number == 1:
                name = m.text(value)
            elif number == 20:
                kind = m.integer(value)
            elif number == 2:
                if wire != FIXED32:
                    raise m.broken(m.start, "a number that is not encoded as one")
                number_f = m.numbers(wire, value, "f")[0]
            elif number == 3:
                number_i = m.integer(value)
            elif number == 4:
                text = m.limited(value)
            elif number == 5:
                tensor = self.tensors.read(m.sub(value))
            elif number == 6:
                graph = self.read_graph(m.sub(value))
            elif number == 7:
                floats += m.numbers(wire, value, "f")
            elif number == 8:
                integers += m.integers(wire, value)
            elif number == 9:
                strings.append(m.limited(value))
            elif number == 10:
                tensors.append(self.tensors.read(m.sub(value)))
            elif number == 11:
                graphs.append(self.read_graph(m.sub(value)))
            elif number == 14:
                self._read_type(m.sub(value), info)
            elif number == 22:
                tensor = self.tensors.read_sparse(m.sub(value))
            elif number == 21:
                reference = m.text(value)
        if reference:
            return name, AttributeReference(reference)
        found: object = {
            ATTR_FLOAT: number_f,
            ATTR_INT: number_i,
            ATTR_STRING: text.decode("utf-8", "surrogateescape"),
            ATTR_TENSOR: tensor,
            ATTR_GRAPH: graph,
            ATTR_FLOATS: floats,
            ATTR_INTS: integers,
            ATTR_STRINGS: [x.decode("utf-8", "surrogateescape") for x in strings],
            ATTR_TENSORS: tensors,
            ATTR_GRAPHS: graphs,
            ATTR_SPARSE_TENSOR: tensor,
            ATTR_TYPE: info,
        }.get(kind)
        if found is None:
            raise ModelError(
                f"attribute '{name}' has no readable value (kind {kind})",
                self.source.name,
                EXPORT_AGAIN,
            )
        return name, found

    def read_info(self, m: Message) -> Info:
        """The Info of a ValueInfoProto."""
        info = Info("")
        for number, _, value in m:
            if number == 1:
                info.name = m.text(value)
            elif number == 2:
                self._read_type(m.sub(value), info)
        return info

    def _read_type(self, m: Message, info: Info) -> None:
        """Reads a TypeProto into an Info."""
        for number, _, value in m:
            if number in (1, 8):
                info.kind = TYPE_KINDS.get(number, "tensor")
                _read_tensor_type(m.sub(value), info)
            elif number in TYPE_KINDS:
                elem = Info(info.name)
                info.kind, info.elem = TYPE_KINDS[number], elem
                inner = m.sub(value)
                for n, _, v in inner:
                    if info.kind in ("sequence", "optional") and n == 1:
                        self._read_type(inner.sub(v), elem)
                    elif info.kind == "map" and n == 2:
                        self._read_type(inner.sub(v), elem)
                    elif info.kind == "map" and n == 1:
                        info.key_type = inner.integer(v)


def _read_prose(m: Message, value: FieldValue) -> str:
    """A description, on which nothing depends: what is not UTF-8 in it is replaced, and the rest of
    a very long one left out.
    """
    if isinstance(value, tuple):
        value = value[0], min(value[1], MAX_TEXT)
    return m.raw(value).decode("utf-8", "replace")


def read_opset(m: Message) -> tuple[str, int]:
    """(domain, version) of an OperatorSetIdProto; the domain of ONNX's own operators is ""."""
    domain, version = "", 0
    for number, _, value in m:
        if number == 1:
            domain = m.text(value)
        elif number == 2:
            version = m.integer(value)
    return "" if domain == "ai.onnx" else domain, version


def _read_tensor_type(m: Message, info: Info) -> None:
    for number, _, value in m:
        if number == 1:
            info.dtype = m.integer(value)
        elif number == 2:
            shape = m.sub(value)
            dims = [v for n, _, v in shape if n == 1]
            info.shape = [_read_dimension(shape.sub(v)) for v in dims]
            info.denotations = [_read_denotation(shape.sub(v)) for v in dims]


def _read_dimension(m: Message) -> int | str | None:
    """A size, a name, or None if it is unknown."""
    dim: int | str | None = None
    for number, _, value in m:
        if number == 1:
            dim = m.integer(value)
            dim = dim if dim >= 0 else None  # converters write -1 for any size
        elif number == 2:
            text = m.text(value)
            if text.isdigit() and text.isascii() and len(text) < 10:
                dim = int(text)  # transformers 5 writes some fixed sizes as names
            else:
                dim = text or None
    return dim


def _read_denotation(m: Message) -> str:
    """What a dimension stands for, such as DATA_BATCH; "" if the file does not say."""
    return next((m.text(value) for number, _, value in m if number == 3), "")


def _innermost_module(scopes: str) -> str:
    """Name of the module that a node belongs to; "" if the text is not a list of scopes."""
    found = re.findall(r"'([^']*)'", scopes)
    return found[-2] if len(found) > 1 else ""


def _add_differentiated_input(node: Node) -> None:
    """Adds an input to a Gradient node for its attribute `y`, the tensor that is differentiated,
    so that y is computed before.
    """
    xs, y = node.attrs.get("xs"), node.attrs.get("y")
    if not xs or not isinstance(xs, list) or not isinstance(y, str) or not y:
        raise ModelError("it does not name its xs and y", node.where, EXPORT_AGAIN)
    if node.inputs[: len(xs)] != xs:
        raise UnsupportedOp(
            "gradients at other values than those that the graph computes",
            node.where,
            "Make its inputs the tensors that `xs` and `zs` name.",
        )
    node.inputs.append(y)


def _take_scalars(body: Graph) -> None:
    """Lets the body of a Loop take the iteration number and the condition as scalars.

    Some converters declare them as vectors of one element, and the body's nodes expect that.
    """
    for info in body.inputs[:2]:
        if info.shape is None or len(info.shape) != 1:
            continue
        vector, info.name, info.shape = info.name, info.name + "~scalar", []
        shape = vector + "~shape"
        body.constants[shape] = Tensor.of(shape, INT64, [1], [1])
        body.nodes.insert(0, Node("Reshape", [info.name, shape], [vector]))

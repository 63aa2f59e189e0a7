"""The nodes of a graph in order, and its constants as Values: once per graph, for all bindings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...errors import ModelError, UnsupportedOp
from ..declare.dtypes import FLOAT, INT64, STRING
from ..ir import Graph, Info, Node, Tensor, Value, content_of
from ..onnx.reader import AttributeReference, Function

# of a name that _own_name gave
_OWN_NAME = re.compile(r"@[0-9a-f]{32}$")


def prepared(graph: Graph, inner: bool = False) -> dict[str, Value]:
    """Sorts a graph's nodes, and makes Values of its constants, which all bindings share.

    A constant whose name looks like that of an inner one is renamed like it.

    Args:
        graph: a graph; its `nodes` and `values` are set.
        inner: whether it is a subgraph or a function's body, whose names are not unique.

    Returns:
        {name: Value} of its initializers and Constant nodes
    """
    if graph.values is None:
        values = {
            name: Value(
                name,
                t.dtype,
                t.shape,
                tensor=_own_name(t, name) if inner or _OWN_NAME.search(name) else t,
            )
            for name, t in graph.constants.items()
        }
        nodes = []
        for n in _sorted(graph.nodes, {i.name for i in graph.inputs} | set(values)):
            if n.op == "Constant" and n.domain == "":
                if n.outputs and n.outputs[0]:
                    values[n.outputs[0]] = _constant_node(n)
            else:
                nodes.append(n)
        graph.nodes, graph.values = nodes, values
    return graph.values


def overridden(graph: Graph, names: Iterable[str]) -> Graph:
    """A model whose callers feed some of its initializers.

    Args:
        graph: the model; its other constants are shared.
        names: of the initializers, which are inputs as well (Graph.overridable).
    """
    fed, values = set(names), prepared(graph)
    if not fed:
        return graph
    return replace(
        graph,
        constants={n: t for n, t in graph.constants.items() if n not in fed},
        values={n: v for n, v in values.items() if n not in fed},
    )


def function_body(f: Function, attrs: Mapping[str, Any], given: Iterable[str]) -> Graph:
    """A model-local function as a Graph of its own.

    Args:
        f: the function.
        attrs: attributes of the node that calls it.
        given: names of the function's inputs that the node has.
    """
    values, missing = {**f.defaults, **attrs}, set(f.inputs) - set(given)

    def attributes(n: Node) -> dict[str, Any]:
        named = {
            k: values.get(v.name, v) if isinstance(v, AttributeReference) else v
            for k, v in n.attrs.items()
        }
        return {
            k: subgraph(v) if isinstance(v, Graph) else v
            for k, v in named.items()
            if not isinstance(v, AttributeReference)
        }

    def nodes_of(nodes: list[Node]) -> list[Node]:
        return [
            type(n)(
                n.op,
                ["" if i in missing else i for i in n.inputs],
                n.outputs,
                attributes(n),
                n.domain,
                n.name,
            )
            for n in nodes
        ]

    def subgraph(g: Graph) -> Graph:
        return Graph(g.name, nodes_of(g.nodes), g.inputs, g.outputs, g.constants, g.value_info)

    return Graph(
        f.name,
        nodes_of(f.nodes),
        [Info(i) for i in f.inputs if i not in missing],
        [Info(o) for o in f.outputs],
    )


# ---- order
def _sorted(nodes: list[Node], given: Iterable[str] = ()) -> list[Node]:
    """The nodes in an order that can run; as they stand, if that is one.

    Raises:
        ModelError: a cycle, or a value that is computed twice, or both given and computed.
    """
    _check_outputs(nodes, given)
    produced = {o for n in nodes for o in n.outputs if o}
    seen: set[str] = set()
    for n in nodes:
        if any(i in produced and i not in seen for i in _reads(n)):
            return _topological(nodes)
        seen.update(n.outputs)
    return nodes


def _reads(node: Node) -> list[str]:
    """The names that a node reads, itself or in its subgraphs."""
    names = list(node.inputs)
    for g in node.subgraphs():
        own = {i.name for i in g.inputs} | set(g.constants)
        own.update(o for n in g.nodes for o in n.outputs)
        inner = [i for n in g.nodes for i in _reads(n)] + [o.name for o in g.outputs]
        names += [i for i in inner if i not in own]
    return names


def _check_outputs(nodes: list[Node], given: Iterable[str]) -> None:
    names = [o for n in nodes for o in n.outputs if o]
    if len(names) != len(set(names)):
        counts: dict[str, int] = {}
        for o in names:
            counts[o] = counts.get(o, 0) + 1
        twice = next(o for o, c in counts.items() if c > 1)
        raise ModelError(
            f"two nodes compute '{twice}'", "graph", "The graph is broken; export it again."
        )
    clash = next((n for n in nodes for o in n.outputs if o in given), None)
    if clash is not None:
        raise ModelError(
            "it computes a value that is an input or a constant already",
            clash.where,
            "The graph is broken; export it again.",
        )


def _topological(nodes: list[Node]) -> list[Node]:
    by_output = {o: n for n in nodes for o in n.outputs if o}
    needs = {id(n): {id(by_output[i]) for i in _reads(n) if i in by_output} for n in nodes}
    waiting = {k: len(v) for k, v in needs.items()}
    readers: dict[int, list[Node]] = {}
    for n in nodes:
        for p in needs[id(n)]:
            readers.setdefault(p, []).append(n)
    ready, out = [n for n in nodes if not waiting[id(n)]], []
    while ready:
        n = ready.pop()
        out.append(n)
        for r in readers.get(id(n), []):
            waiting[id(r)] -= 1
            if not waiting[id(r)]:
                ready.append(r)
    if len(out) != len(nodes):
        stuck = next(n for n in nodes if waiting[id(n)])
        raise ModelError(
            "it depends on its own output", stuck.where, "The graph has a cycle; export it again."
        )
    return out


# ---- constants
_KINDS: tuple[tuple[str, int, type | tuple[type, ...]], ...] = (
    ("value_float", FLOAT, float),
    ("value_int", INT64, int),
    ("value_string", STRING, (str, bytes)),
)


def _constant_node(node: Node) -> Value:
    """The output of a Constant node."""
    name = node.outputs[0]
    t = node.attrs.get("value", node.attrs.get("sparse_value"))
    if isinstance(t, Tensor):
        return Value(name, t.dtype, t.shape, tensor=_own_name(t, name))
    for key, dtype, kind in _KINDS:
        for many in (False, True):
            attribute = key + "s" * many
            value = node.attrs.get(attribute)
            if value is None:
                continue
            numbers = value if many else [value]
            if not isinstance(numbers, list) or not all(isinstance(x, kind) for x in numbers):
                raise ModelError(
                    f"its attribute '{attribute}' is of the wrong kind ({type(value).__name__})",
                    node.where,
                    "The file is damaged or not valid ONNX; export it again.",
                )
            shape = [len(numbers)] if many else []
            if dtype != STRING:
                return Value(name, dtype, shape, numbers=list(numbers))
            strings = Tensor(name, STRING, tuple(shape), strings=list(numbers))
            return Value(name, STRING, shape, tensor=strings)
    raise UnsupportedOp(
        "its value is of a kind that cannot be read (sparse)",
        node.where,
        "Export the model without it.",
    )


def _own_name(t: Tensor, name: str) -> Tensor:
    """A constant of a node or subgraph under a name that no other content has.

    Weights are stored by name, and branches use the same names.
    """
    if t.strings is not None:
        return t
    return Tensor(f"{name}@{content_of(t)}", t.dtype, t.shape, t.source, t.offset, t.nbytes, t.data)

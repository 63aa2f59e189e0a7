"""A model in two parts, of which the second continues from tensors of the first.

The first part computes what the named tensors depend on, the second part the rest. Tensors that
cross are named by the caller: a value that goes around the cut would tell the second part more than
the caller means to tell, so it is an error that lists what would have to be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError, UnsupportedOp
from ..ir import Graph, Info, Node
from .editor import ModelEditor

ENCODER = "encoder"
RANDOM = ("Random", "Bernoulli", "Multinomial")
REMEDY = "Add them to --at, or choose tensors behind which everything comes from them."


@dataclass
class Parts:
    """A model in two parts.

    Attributes:
        first, second: the editors of both, to be written.
        crossing: names of the tensors that go from the first to the second.
        shared: inputs of the model that both read.
    """

    first: ModelEditor
    second: ModelEditor
    crossing: list[str]
    shared: list[str]


def split_model(
    source: Any, at: Sequence[str], infos: Mapping[str, Info], send: Iterable[str] = ()
) -> Parts:
    """Splits a model.

    Args:
        source: path, bytes or Source of a model.
        at: names of the tensors that cross; ["encoder"]: those that leave the module of this name.
        infos: types and shapes of inner tensors where the file does not declare them.
        send: inputs of the model that the second part may read although the first one does.

    Returns:
        the parts, which together have the model's outputs

    Raises:
        InputError: a name is none of an inner tensor, other tensors would cross, or there is
            nothing to split. UnsupportedOp: a value that would cross is no tensor.
    """
    first, second = ModelEditor(source), ModelEditor(source)
    graph = first.graph
    at = _leaving(graph) if list(at) == [ENCODER] else list(at)
    made = {o for n in graph.nodes for o in n.outputs if o}
    given = [i.name for i in graph.input_names()]
    send = set(send)
    if not at:
        raise InputError("no tensor is named", first.where, "Name those that cross with --at.")
    if unknown := sorted(send - set(given)):
        raise InputError(
            f"'{unknown[0][:80]}' is no input", first.where, f"It has {', '.join(given)[:300]}."
        )
    for name in at:
        if name not in made:
            raise InputError(
                f"no node computes a tensor '{name[:80]}'",
                first.where,
                f"Name inner tensors, or {ENCODER}; `edgewise inspect` lists them.",
            )
    outputs = [o.name for o in graph.outputs]
    behind_cut = _behind(graph, at)
    before, read = graph.needed([*at, *(name for name in outputs if name not in behind_cut)])
    inside = {id(n) for n in before}
    early = {o for n in before for o in n.outputs if o}
    early -= _constant(graph) - set(at)  # both parts compute these
    after, later = _rest(graph, [o for o in outputs if o not in early], early)
    if not after:
        raise InputError(
            f"no output depends on {', '.join(at)[:200]} alone", first.where, "Choose others."
        )
    between = sorted(later & early, key=_order(graph))
    if extra := [name for name in between if name not in at]:
        raise InputError(
            f"these tensors would cross as well: {', '.join(extra)[:400]}", first.where, REMEDY
        )
    shared = [name for name in given if name in read and name in later]
    if unsent := [name for name in shared if name not in send]:
        raise InputError(
            f"both parts read the inputs {', '.join(unsent)[:300]}",
            first.where,
            "Allow with --send that the second part gets them, or split elsewhere.",
        )
    crossing = [_info(name, graph, infos) for name in between]
    behind = {id(n) for n in _same(second.graph, graph, after)}
    _cut(first, inside, [*crossing, *(o for o in graph.outputs if o.name in early)], None)
    _cut(second, behind, None, crossing)
    return Parts(first, second, between, shared)


def _leaving(graph: Graph) -> list[str]:
    """The tensors that leave the module `encoder`, by the names of nodes."""
    own = [n for n in graph.nodes if ENCODER in n.name.replace(".", "/").split("/")]
    if not own:
        raise InputError(
            f"no node is in a module named {ENCODER}", graph.name, "Name tensors with --at."
        )
    before, _ = graph.needed([o for n in own for o in n.outputs if o])
    inside = {id(n) for n in before}
    made = {o for n in before for o in n.outputs if o} - _constant(graph)
    read = {o.name for o in graph.outputs}
    for node in graph.nodes:
        if id(node) not in inside:
            read |= _reads(node)
    return sorted(made & read, key=_order(graph))


def _rest(graph: Graph, names: Sequence[str], early: set[str]) -> tuple[list[Node], set[str]]:
    """The nodes that tensors depend on after the `early` ones, and all names that these read."""
    by_output = {o: n for n in graph.nodes for o in n.outputs if o}
    kept: set[int] = set()
    read: set[str] = set()
    stack = list(names)
    while stack:
        name = stack.pop()
        read.add(name)
        node = None if name in early else by_output.get(name)
        if node is not None and id(node) not in kept:
            kept.add(id(node))
            stack += _reads(node)
    return [n for n in graph.nodes if id(n) in kept], read


def _behind(graph: Graph, names: Iterable[str]) -> set[str]:
    """The tensors that depend on others, without these."""
    found, start = set(names), set(names)
    for node in graph.nodes:
        if not found.isdisjoint(_reads(node)):
            found.update(o for o in node.outputs if o)
    return found - start


def _constant(graph: Graph) -> set[str]:
    """The tensors that depend on no input, and are the same in every run."""
    known = set(graph.constants)
    for node in graph.nodes:
        if _reads(node) <= known and not node.op.startswith(RANDOM):
            known.update(o for o in node.outputs if o)
    return known - set(graph.constants)


def _reads(node: Node) -> set[str]:
    """The names that a node and its subgraphs read or return."""
    names = set(node.inputs)
    for graph in node.subgraphs():
        names |= {o.name for o in graph.outputs}
        for inner in graph.nodes:
            names |= _reads(inner)
    return names - {""}


def _order(graph: Graph) -> Any:
    """A key that sorts names as the nodes make them."""
    made = [o for n in graph.nodes for o in n.outputs]
    place = {name: i for i, name in enumerate(made)}
    return lambda name: place.get(name, -1)


def _same(graph: Graph, other: Graph, nodes: Iterable[Node]) -> list[Node]:
    """The nodes of one reading of a file that are those of another one."""
    place = {id(n): i for i, n in enumerate(other.nodes)}
    return [graph.nodes[place[id(n)]] for n in nodes]


def _info(name: str, graph: Graph, infos: Mapping[str, Info]) -> Info:
    """The declaration of a tensor that crosses."""
    declared = next((o for o in graph.outputs if o.name == name), graph.value_info.get(name))
    info = declared if declared is not None and declared.dtype else infos.get(name)
    if info is None:
        raise InputError(
            f"the type of '{name}' is not known", graph.name, "Give sizes of the inputs: --dims."
        )
    if info.kind != "tensor":
        raise UnsupportedOp(f"'{name}' is a {info.kind}", graph.name, "Split at tensors.")
    return info


def _cut(
    editor: ModelEditor, inside: set[int], outputs: list[Info] | None, inputs: list[Info] | None
) -> None:
    """Keeps some nodes of a model, and what they need.

    Args:
        editor: the model.
        inside: ids of the nodes.
        outputs: new outputs; None: all results of the nodes.
        inputs: new inputs beside those that the nodes read.
    """
    graph = editor.graph
    graph.nodes[:] = [n for n in graph.nodes if id(n) in inside]
    made = {o for n in graph.nodes for o in n.outputs if o}
    read = {name for n in graph.nodes for name in _reads(n)}
    if outputs is None:
        # an output may also be an input or a constant that passes through
        graph.outputs[:] = [o for o in graph.outputs if o.name in made]
    else:
        graph.outputs[:] = _unique(outputs)
    graph.inputs[:] = [
        *(i for i in graph.inputs if i.name in read),
        *(Info(i.name, i.dtype, i.shape) for i in inputs or ()),
    ]
    for name in [n for n in graph.constants if n not in read]:
        editor.remove_initializer(name)
    known = read | made
    ends = {i.name for i in (*graph.inputs, *graph.outputs)}
    for name in [n for n in graph.value_info if n not in known or n in ends]:
        del graph.value_info[name]


def _unique(infos: Iterable[Info]) -> list[Info]:
    """Each name once."""
    return list({i.name: i for i in infos}.values())

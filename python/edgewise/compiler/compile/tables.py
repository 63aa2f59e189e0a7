"""Tables that an `If` chooses between by the length of the sequence, such as the angles of
LongRoPE: branches of constants with as many rows as each has positions.

They are cut to the rows that a sequence can need, and chosen by `Where`, so that the shape is
known. Source: the builder of ONNX Runtime GenAI (Phi-3.5, Phi-4).
"""

from __future__ import annotations

from dataclasses import replace

from ..declare.dtypes import size_of
from ..ir import Graph, Node, Tensor


def one_size(graph: Graph, rows: int) -> Graph:
    """A graph whose tables have the same shape in both branches; the graph itself where it has
    none.

    Args:
        graph: a model.
        rows: as many as a run can need of a table.
    """
    nodes: list[Node] = []
    constants = dict(graph.constants)
    for node in graph.nodes:
        tables = _tables(graph, node)
        if tables is None:
            nodes.append(node)
            continue
        for output, pair in zip(node.outputs, tables):
            names = []
            most = min(rows, max(t.shape[0] for t in pair))
            for table, branch in zip(pair, ("then", "else")):
                names.append(f"{output}/{branch}")
                constants[names[-1]] = _with_rows(table, names[-1], most)
            nodes.append(Node("Where", [node.inputs[0], *names], [output], name=node.name))
    if len(constants) == len(graph.constants):
        return graph
    return replace(graph, nodes=nodes, constants=constants, values=None)


def _tables(graph: Graph, node: Node) -> list[tuple[Tensor, Tensor]] | None:
    """The constants of both branches for each output, if they differ in rows alone, and do."""
    if node.op != "If" or node.domain:
        return None
    branches = [node.attrs.get(f"{name}_branch") for name in ("then", "else")]
    made = [_constants(graph, g) if isinstance(g, Graph) else None for g in branches]
    if made[0] is None or made[1] is None or len(made[0]) != len(made[1]):
        return None
    pairs = list(zip(*made))
    alike = all(
        a.dtype == b.dtype and len(a.shape) == len(b.shape) > 0 and a.shape[1:] == b.shape[1:]
        for a, b in pairs
    )
    return pairs if alike and any(a.shape != b.shape for a, b in pairs) else None


def _constants(graph: Graph, branch: Graph) -> list[Tensor] | None:
    """What a branch gives, where all of it is constant."""
    made: dict[str, Tensor] = {**graph.constants, **branch.constants}
    for node in branch.nodes:
        value = node.attrs.get("value") if node.op == "Constant" else None
        if node.op == "Identity" and node.inputs[0] in made:
            value = made[node.inputs[0]]
        if not isinstance(value, Tensor):
            return None
        made[node.outputs[0]] = value
    names = [o.name for o in branch.outputs]
    return [made[n] for n in names] if all(n in made for n in names) else None


def _with_rows(table: Tensor, name: str, rows: int) -> Tensor:
    """The first rows, or zeros after the last one, which no run reads."""
    data = table.bytes()
    width = size_of(table.dtype) * table.count // table.shape[0] if table.shape[0] else 0
    data = data[: rows * width].ljust(rows * width, b"\0")
    return Tensor(name, table.dtype, (rows, *table.shape[1:]), data=data, nbytes=len(data))

"""Products of groups of rows with the weights of one expert each: rows are sorted by expert, and
the graph cuts them at numbers that only a run can tell. Source: `grouped_mm` as transformers 5
exports it (gpt-oss, LFM2-MoE and so on).

Here each expert computes all rows, in runs in which it has any, and a mask keeps its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..declare.dtypes import FLOAT, INT64
from ..ir import Graph, Info, Node, Tensor

PREFIX = "grouped/"


@dataclass(frozen=True)
class Group:
    """The rows of one expert.

    Attributes:
        rows: name of all rows.
        start, end: names of the numbers of its first row and of the one after its last.
        product: the node that multiplies them.
    """

    rows: str
    start: str
    end: str
    product: Node


def static_groups(graph: Graph, branches: bool = True) -> Graph:
    """A graph whose grouped products have shapes that are known; the graph itself where it has
    none.

    Args:
        graph: a model.
        branches: whether a product without rows is left out in a run, by `If`.
    """
    groups = _Groups(graph)
    found = {id(n): g for n in graph.nodes if (g := groups.of(n))}
    if not found:
        return graph
    of_products = {id(g.product) for gs in found.values() for g in gs}
    nodes: list[Node] = []
    for node in graph.nodes:
        if id(node) in found:
            nodes += _all_rows(node, found[id(node)], branches)
        elif id(node) not in of_products:
            nodes.append(node)
    constants = dict(graph.constants)
    for name, kind, shape, number in (
        ("zero", INT64, [], 0),
        ("one", INT64, [], 1),
        ("axis", INT64, [1], 1),
        ("nothing", FLOAT, [], 0.0),
    ):
        constants[PREFIX + name] = Tensor.of(PREFIX + name, kind, shape, [number])
    whole = replace(graph, nodes=nodes, constants=constants, values=None)
    needed, _ = whole.needed(o.name for o in graph.outputs)  # without what gathered the rows
    return replace(whole, nodes=needed, values=None)


def _all_rows(concat: Node, groups: list[Group], branches: bool) -> list[Node]:
    """The products of all groups, added up."""
    p = PREFIX + concat.outputs[0] + "/"
    rows = groups[0].rows
    nodes = [
        Node("Shape", [rows], [p + "shape"], {"start": 0, "end": 1}),
        Node("Squeeze", [p + "shape"], [p + "count"]),
        Node("Range", [PREFIX + "zero", p + "count", PREFIX + "one"], [p + "place"]),
    ]
    parts: list[str] = []
    for i, group in enumerate(groups):
        nodes += _rows_of(group, rows, f"{p}{i}/", branches, parts[-1] if parts else "")
        parts.append(f"{p}{i}/sum")
    nodes[-1] = replace(nodes[-1], outputs=[concat.outputs[0]])
    return nodes


def _rows_of(group: Group, rows: str, p: str, branches: bool, before: str) -> list[Node]:
    """The sum of what was before and the products of the group's rows."""
    place = p.rsplit("/", 2)[0] + "/place"
    masked = [
        Node("GreaterOrEqual", [place, group.start], [p + "after"]),
        Node("Less", [place, group.end], [p + "before"]),
        Node("And", [p + "after", p + "before"], [p + "own"]),
        Node("Unsqueeze", [p + "own", PREFIX + "axis"], [p + "mask"]),
        replace(group.product, inputs=[rows, *group.product.inputs[1:]], outputs=[p + "all"]),
    ]
    other = before or PREFIX + "nothing"
    new = Node("Where", [p + "mask", p + "all", other], [p + "new"])
    if not before or not branches:
        return [*masked, replace(new, outputs=[p + "sum"])]
    then = Graph(p, [*masked, new], outputs=[Info(p + "new")])
    same = Node("Identity", [before], [p + "same"])
    otherwise = Graph(p, [same], outputs=[Info(p + "same")])
    branch = {"then_branch": then, "else_branch": otherwise}
    return [
        Node("Greater", [group.end, group.start], [p + "any"]),
        Node("If", [p + "any"], [p + "sum"], branch),
    ]


class _Groups:
    """Finds the groups of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.by_output = {o: n for n in graph.nodes for o in n.outputs if o}
        self.uses: dict[str, int] = {}
        for node in graph.every_node():
            for name in node.inputs:
                self.uses[name] = self.uses.get(name, 0) + 1

    def of(self, concat: Node) -> list[Group] | None:
        """The groups whose rows a node puts together, which are all rows in their order."""
        if concat.op != "Concat" or concat.domain or concat.attrs.get("axis", 1) != 0:
            return None
        if len(concat.inputs) < 2:
            return None
        groups: list[Group] = []
        for name in concat.inputs:
            group = self._group(name)
            if group is None or (groups and group.start != groups[-1].end):
                return None
            groups.append(group)
        first = self._constant(groups[0].start)
        whole = len({g.rows for g in groups}) == 1 and first is not None
        return groups if whole and first is not None and first.numbers() == [0] else None

    def _group(self, name: str) -> Group | None:
        product = self.by_output.get(name)
        if product is None or product.op != "MatMul" or self.uses.get(name) != 1:
            return None
        gather = self.by_output.get(product.inputs[0])
        if gather is None or gather.op != "Gather" or gather.attrs.get("axis", 0) != 0:
            return None
        places = self.by_output.get(gather.inputs[1])
        if places is None or places.op != "Range":
            return None
        step = self._constant(places.inputs[2])
        if step is None or step.numbers() != [1]:
            return None
        start, end = places.inputs[:2]
        return Group(gather.inputs[0], start, end, product)

    def _constant(self, name: str) -> Tensor | None:
        node = self.by_output.get(name)
        if node is not None and node.op == "Constant":
            value = node.attrs.get("value")
            return value if isinstance(value, Tensor) else None
        return self.graph.constants.get(name)

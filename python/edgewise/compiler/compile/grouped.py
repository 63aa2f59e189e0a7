"""Products of groups of rows with the weights of one expert each: rows are sorted by expert, and
the graph cuts them at numbers that only a run can tell. Source: `grouped_mm` as transformers 5
exports it (gpt-oss, LFM2-MoE and so on).

Here the products of all groups are one `ExpertMatMul` (ops/product/experts.py), whose index is the
expert of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..bind.operators import check_operators
from ..declare.dtypes import INT64
from ..ir import Graph, Node, Tensor

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


def static_groups(graph: Graph) -> Graph:
    """A graph whose grouped products have shapes that are known; the graph itself where it has
    none.

    Raises:
        UnsupportedOp: Edgewise lacks an operator of the graph.
    """
    groups = _Groups(graph)
    found = {id(n): g for n in graph.nodes if (g := groups.of(n))}
    if not found:
        return graph
    check_operators(graph)  # the graph that follows may have operators that no file has
    of_products = {id(g.product) for gs in found.values() for g in gs}
    nodes: list[Node] = []
    for node in graph.nodes:
        if id(node) in found:
            nodes += _product(node, found[id(node)], groups)
        elif id(node) not in of_products:
            nodes.append(node)
    constants = dict(graph.constants)
    for name, shape, number in (
        ("zero", [], 0),
        ("one", [], 1),
        ("first", [1], 0),
        ("second", [1], 1),
    ):
        constants[PREFIX + name] = Tensor.of(PREFIX + name, INT64, shape, [number])
    whole = replace(graph, nodes=nodes, constants=constants, values=None, ours=True)
    needed, _ = whole.needed(o.name for o in graph.outputs)  # without what gathered the rows
    return replace(whole, nodes=needed, values=None)


def _product(concat: Node, groups: list[Group], graph: _Groups) -> list[Node]:
    """The products of all groups. A row's expert is the number of groups that end before it."""
    p = PREFIX + concat.outputs[0] + "/"
    rows = groups[0].rows
    ends, joined = graph.stacked([g.end for g in groups], p + "end")
    weights, stacked = graph.stacked([g.product.inputs[1] for g in groups], p + "weight")
    index = p + "index"
    return [
        *joined,
        *stacked,
        Node("Shape", [rows], [p + "shape"], {"start": 0, "end": 1}),
        Node("Squeeze", [p + "shape"], [p + "count"]),
        Node("Range", [PREFIX + "zero", p + "count", PREFIX + "one"], [p + "place"]),
        Node("Unsqueeze", [p + "place", PREFIX + "second"], [p + "column"]),
        Node("GreaterOrEqual", [p + "column", ends], [p + "passed"]),
        Node("Cast", [p + "passed"], [p + "each"], {"to": INT64}),
        Node("ReduceSum", [p + "each", PREFIX + "second"], [index], {"keepdims": 0}),
        Node("ExpertMatMul", [rows, weights, index], [concat.outputs[0]], domain="edgewise"),
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

    def stacked(self, names: Sequence[str], p: str) -> tuple[str, list[Node]]:
        """A tensor of these, along a new first dimension, and the nodes that make it. It is there
        already where they are its parts.
        """
        nodes = [self.by_output.get(n) for n in names]
        splits = [self._split_of(n) for n in nodes]
        first = splits[0]
        if first is not None and all(s is first for s in splits):
            parts = [n.inputs[0] for n in nodes if n is not None]
            if parts == first.outputs:
                return first.inputs[0], []
        each = [f"{p}/{i}" for i in range(len(names))]
        made = [Node("Unsqueeze", [n, PREFIX + "first"], [e]) for n, e in zip(names, each)]
        return p, [*made, Node("Concat", each, [p], {"axis": 0})]

    def _split_of(self, squeeze: Node | None) -> Node | None:
        """The node that cuts a tensor along its first dimension, of which this takes a part."""
        if squeeze is None or squeeze.op != "Squeeze" or len(squeeze.inputs) < 2:
            return None
        axis = self._constant(squeeze.inputs[1])
        if axis is None or axis.numbers() != [0]:
            return None
        split = self.by_output.get(squeeze.inputs[0])
        whole = split is not None and split.op == "Split" and split.attrs.get("axis", 0) == 0
        return split if whole else None

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

"""Mixtures of experts that exporters write by `NonZero`: for each expert the rows of the tokens
that chose it are gathered, computed, and scattered back. How many they are is known only in a run,
which no plan can express.

Here each expert computes the rows of all tokens, and those that did not choose it keep what they
were: the same numbers, and shapes that are known. Source: `Qwen3MoeSparseMoeBlock` and
`DeepseekV3MoE` of transformers as torch.onnx.export traces them (optimum).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..declare.dtypes import BOOL, FLOAT, INT64
from ..ir import Graph, Info, Node, Tensor

# Ops whose rows depend on the same rows of their inputs alone, or that only rearrange.
ROWWISE = frozenset(
    "Add Sub Mul Div Pow Min Max Where Neg Abs Sqrt Exp Log Erf Tanh Sigmoid Relu LeakyRelu Elu"
    " Clip Gelu FastGelu QuickGelu Swish Softplus Cast CastLike Identity Expand Reshape Squeeze"
    " Unsqueeze Flatten Transpose Split".split()
)
PRODUCTS = frozenset(("MatMul", "Gemm", "MatMulNBits", "MatMulBnb4", "MatMulInteger"))
SCATTERS = ("ScatterElements", "Scatter")


@dataclass(frozen=True)
class Expert:
    """One expert of a mixture.

    Attributes:
        rows: the NonZero node.
        mask: name of its input, 1 where a token chose the expert.
        token_axis: of the mask; the other axis counts the choices of a token, at most one of which
            is this expert.
        scatter: the node that writes the rows back.
        inner: the nodes between, in the graph's order.
    """

    rows: Node
    mask: str
    token_axis: int
    scatter: Node
    inner: list[Node]


def static_mixtures(graph: Graph, branches: bool = True) -> Graph:
    """A graph whose mixtures have shapes that are known; the graph itself where it has none.

    Args:
        graph: a model.
        branches: whether an expert that no token chose is left out in a run, by `If`.
    """
    if not any(n.op == "NonZero" and not n.domain for n in graph.nodes):
        return graph
    found = _Mixtures(graph).experts()
    if not found:
        return graph
    of = {id(e.rows): e for e in found} | {id(e.scatter): e for e in found}
    inner = {id(n) for e in found for n in e.inner} if branches else set()
    nodes: list[Node] = []
    constants = dict(graph.constants)
    for name, numbers in (("zero", [0]), ("one", [1])):
        constants[_own(name)] = Tensor.of(_own(name), INT64, [], numbers)
        constants[_own(f"[{name}]")] = Tensor.of(_own(f"[{name}]"), INT64, [1], numbers)
    for node in graph.nodes:
        expert = of.get(id(node))
        if expert is None:
            if id(node) not in inner:
                nodes.append(node)
        elif node is expert.rows:
            nodes += _all_rows(expert)
        elif branches:
            nodes += _if_chosen(expert)
        else:
            nodes.append(_chosen_rows(expert, node.outputs[0]))
    return replace(graph, nodes=nodes, constants=constants, values=None)


def _own(name: str) -> str:
    return f"mixture/{name}"


def _all_rows(expert: Expert) -> list[Node]:
    """What `NonZero` gives if each token counts once: its number, and which choice may be the
    expert; and which tokens chose it.
    """
    out = expert.rows.outputs[0]
    slot_axis = 1 - expert.token_axis
    p = out + "/"
    numbers = [p + "slot", p + "slot"]
    numbers[expert.token_axis] = p + "token"
    return [
        Node("Cast", [expert.mask], [p + "mask"], {"to": FLOAT}),
        Node("ArgMax", [p + "mask"], [p + "slot"], {"axis": slot_axis, "keepdims": 0}),
        Node("Size", [p + "slot"], [p + "count"]),
        Node("Range", [_own("zero"), p + "count", _own("one")], [p + "token"]),
        *(Node("Unsqueeze", [name, _own("[zero]")], [f"{p}{i}"]) for i, name in enumerate(numbers)),
        Node("Concat", [p + "0", p + "1"], [out], {"axis": 0}),
        Node("Cast", [expert.mask], [p + "chosen"], {"to": INT64}),
        Node(
            "Transpose", [p + "chosen"], [p + "by_token"], {"perm": [expert.token_axis, slot_axis]}
        ),
        Node("TopK", [p + "by_token", _own("[one]")], [p + "most", ""], {"axis": 1}),
        Node("Cast", [p + "most"], [p + "hit"], {"to": BOOL}),
    ]


def _chosen_rows(expert: Expert, out: str) -> Node:
    """The new rows of the tokens that chose the expert, and the old ones of the others."""
    data, _, updates = expert.scatter.inputs
    hit = expert.rows.outputs[0] + "/hit"
    return Node("Where", [hit, updates, data], [out], name=expert.scatter.name)


def _if_chosen(expert: Expert) -> list[Node]:
    """The rows, computed where a token chose the expert."""
    (out,), data = expert.scatter.outputs, expert.scatter.inputs[0]
    p = expert.rows.outputs[0] + "/"
    new, old = out + "/new", out + "/old"
    then = Graph(out, [*expert.inner, _chosen_rows(expert, new)], outputs=[Info(new)])
    otherwise = Graph(out, [Node("Identity", [data], [old])], outputs=[Info(old)])
    return [
        Node("ReduceMax", [p + "most"], [p + "any"], {"keepdims": 0}),
        Node("Cast", [p + "any"], [p + "chosen_at_all"], {"to": BOOL}),
        Node("If", [p + "chosen_at_all"], [out], {"then_branch": then, "else_branch": otherwise}),
    ]


class _Mixtures:
    """Finds the experts of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.by_output = {o: n for n in graph.nodes for o in n.outputs if o}
        self.users: dict[str, list[Node]] = {}
        for node in graph.nodes:
            inner = [n for g in node.subgraphs() for m in g.every_node() for n in m.inputs]
            for name in {*node.inputs, *inner} - {""}:
                self.users.setdefault(name, []).append(node)
        self.outputs = {o.name for o in graph.outputs}

    def experts(self) -> list[Expert]:
        """Those that can be computed for all tokens."""
        found = (self._expert(n) for n in self.graph.nodes if n.op == "NonZero" and not n.domain)
        return [e for e in found if e is not None]

    def _expert(self, rows: Node) -> Expert | None:
        axis, inner = self._token_axis(rows.inputs[0]), set[int]()
        scatter = self._scatter(rows, inner)
        if axis is None or scatter is None:
            return None
        between = [n for n in self.graph.nodes if id(n) in inner]
        return Expert(rows, rows.inputs[0], axis, scatter, between)

    def _made_by(self, name: str, ops: Sequence[str]) -> Node | None:
        """The node of one of these ops that makes a tensor; casts are passed."""
        node = self.by_output.get(name)
        while node is not None and node.op in ("Cast", "Identity"):
            node = self.by_output.get(node.inputs[0])
        return node if node is not None and node.op in ops else None

    def _token_axis(self, mask: str) -> int | None:
        """The axis of the tokens of a mask that holds, for one expert, which of the choices of
        each token (indices of TopK, which differ) it is. None: the mask is another.
        """
        gather = self._made_by(mask, ["Gather"])
        index = self._constant(gather.inputs[1]) if gather is not None else None
        if gather is None or index is None or index.shape or gather.attrs.get("axis", 0) != 0:
            return None
        turned = self._made_by(gather.inputs[0], ["Transpose"])
        perm = turned.attrs.get("perm") if turned is not None else None
        if turned is None or not isinstance(perm, list) or perm[:1] != [2]:
            return None
        one_hot = self._made_by(turned.inputs[0], ["OneHot"])
        if one_hot is None or one_hot.attrs.get("axis", -1) not in (-1, 2):
            return None
        top = self._made_by(one_hot.inputs[0], ["TopK"])
        if top is None or top.attrs.get("axis", -1) not in (-1, 1):
            return None
        return perm[1:].index(0) if sorted(perm) == [0, 1, 2] else None

    def _constant(self, name: str) -> Tensor | None:
        node = self.by_output.get(name)
        if node is not None and node.op == "Constant":
            value = node.attrs.get("value")
            return value if isinstance(value, Tensor) else None
        return self.graph.constants.get(name)

    def _scatter(self, rows: Node, seen: set[int]) -> Node | None:
        """The one node to which all that follows from the rows leads; None where something else
        depends on them, or on several rows at once.

        Args:
            rows: the NonZero node.
            seen: gets the nodes between, by id.
        """
        reached, sizes = {rows.outputs[0]}, set[str]()
        waiting, ends = [rows.outputs[0]], []
        while waiting:
            name = waiting.pop()
            if name in self.outputs:
                return None
            for node in self.users.get(name, ()):
                if node.op in SCATTERS and not node.domain:
                    ends.append(node)
                    continue
                if id(node) not in seen and not self._is_rowwise(node, name, sizes):
                    return None
                seen.add(id(node))
                if node.op == "Shape" or (
                    name in sizes and node.op in ("Gather", "Slice", "Concat")
                ):
                    sizes.update(node.outputs)
                waiting += [o for o in node.outputs if o and o not in reached]
                reached.update(node.outputs)
        if not ends or any(e is not ends[0] for e in ends):
            return None
        end = ends[0]
        plain = end.attrs.get("reduction", "none") == "none" and end.attrs.get("axis", 0) == 0
        apart = end.inputs[0] not in reached and set(end.inputs[1:]) <= reached
        return end if plain and apart else None

    def _is_rowwise(self, node: Node, name: str, sizes: set[str]) -> bool:
        if node.op in PRODUCTS:
            return name == node.inputs[0] and name not in node.inputs[1:]
        if node.op == "Gather":  # rows by their numbers
            return name in sizes or (name == node.inputs[1] and name != node.inputs[0])
        if node.op in ("Concat", "Slice"):
            return name in sizes
        return node.op == "Shape" or node.op in ROWWISE

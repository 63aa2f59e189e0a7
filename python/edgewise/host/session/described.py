"""Describes split graphs ("programs") as JSON for the driver in a page, which reads them in
web/src/worker/inference/program.ts.

The names of programs and parts depend on the model alone, so that a page can use what it stored in
an earlier visit. A tensor is {"dtype", "shape"} and one of "data" (its bytes in hexadecimal
digits), "strings" and "weight" (a name in the manifest). A value that JSON cannot represent is an
object with one key: `int`, `float`, `tensor`, `graph` or `other`.
"""

from __future__ import annotations

import math
from hashlib import sha256
from json import dumps
from typing import TYPE_CHECKING, Any

from ...compiler.bind import overridden
from ...compiler.compile import add_weight
from ...compiler.declare.dtypes import CODE, NAME, pack
from ...compiler.ir import Graph, Tensor
from ...compiler.ops import OPS
from .split_graph import HostNode, SplitGraph, single_node

if TYPE_CHECKING:
    from ...compiler.ir import Node, Value
    from ...compiler.package import Package
    from .split_graph import Part, Units

MAX_SAFE = (1 << 53) - 1  # maximum integer that JavaScript represents exactly


class Programs:
    """The programs of one model by name.

    Args:
        graph: the model.
        package: the weights that host operators read are added to its manifest.

    Attributes:
        programs: {name: program}.
        origins: {name: `origin` of the program}.
        names: {id of a program: name}.
    """

    programs: dict[str, SplitGraph]
    origins: dict[str, dict[str, Any]]
    names: dict[int, str]

    def __init__(self, graph: Graph, package: Package) -> None:
        self.graph, self.package = graph, package
        self.programs, self.origins, self.names = {}, {}, {}

    def program(self, origin: dict[str, Any]) -> str:
        """Creates a program if it does not exist.

        Args:
            origin: {"outputs": names} of the model, and {"fed": names} of the initializers that the
                caller feeds, if any; {"parent": name of a program, "node": index,
                "body": name of an attribute} of a subgraph; {"parent", "node", "function": True}
                of the model-local function that a node calls; {"op": {...}} of one node, with the
                arguments of `_single`.

        Returns:
            its name
        """
        what = (
            {"op": {k: v for k, v in origin["op"].items() if k != "label"}}
            if "op" in origin
            else origin
        )
        name = "program/" + sha256(dumps(what, sort_keys=True).encode()).hexdigest()[:24]
        if name not in self.programs:
            made = self._make(origin)
            self.programs[name], self.origins[name], self.names[id(made)] = made, origin, name
        return name

    def _make(self, origin: dict[str, Any]) -> SplitGraph:
        if "outputs" in origin:
            graph = overridden(self.graph, origin.get("fed", ()))
            return SplitGraph(graph, names=origin["outputs"])
        if "op" in origin:
            return self._single(**origin["op"])
        parent = self.programs[origin["parent"]]
        node = parent.nodes[origin["node"]]
        if "body" in origin:
            return parent.body(node.attrs[origin["body"]])
        inputs = parent.like.functions[node.domain, node.op].inputs
        return parent.function(
            node, {name: None for name, given in zip(inputs, node.inputs) if given}
        )

    def _single(
        self,
        op: str,
        domain: str,
        present: list[int],
        wanted: list[Any],
        attrs: dict[str, Any],
        opset: int,
        dtype: str = "",
        label: str = "",
        like: Any = None,
    ) -> SplitGraph:
        """The program of one node.

        Args:
            op, domain, attrs, opset: of the node.
            present: for each input 0 if it is absent, 2 if it is a tensor of numbers, otherwise 1.
            wanted: whether each output is computed.
            dtype: name of the declared type of the first output; "": not declared.
            label: name of the node, for errors.
            like: [name of a program, index of a node]: that node's attributes are added.
        """
        functions: Any
        functions, attrs = (
            None,
            {k: float(v["float"]) if isinstance(v, dict) else v for k, v in attrs.items()},
        )
        if like is not None:
            parent = self.programs[like[0]]
            functions, attrs = parent.like.functions, {**parent.nodes[like[1]].attrs, **attrs}
        return single_node(
            op, domain, present, wanted, attrs, opset, CODE.get(dtype, 0), label, functions
        )

    def restore(self, kept: dict[str, Any]) -> None:
        """Restores the state of a program from its description in an earlier visit.

        Args:
            kept: what `describe` returned.
        """
        p = self.programs[self.program(kept["origin"])]
        state = kept["state"]
        p.hosts |= {id(p.nodes[i]) for i in state["hosts"]}
        p.alone |= {id(p.nodes[i]) for i in state["alone"]}
        p.cuts |= set(state["cuts"])
        p.units = p.split(p.nodes)
        parts = {u["part"]: u for u in kept["units"] if "part" in u}
        for unit, _ in p.units:
            described = parts.get(self.unit_name(p, unit))
            if described is not None:
                unit.needs = list(described["needs"])
                unit.beyond = {i: (j, axis) for i, j, axis in described.get("beyond", ())}
                unit.askers = [p.nodes[i] for i in described["askers"]]

    def unit_name(self, p: SplitGraph, unit: Part | HostNode) -> str:
        """The name of a unit of a program."""
        index = {id(n): i for i, n in enumerate(p.nodes)}
        kind = "host" if isinstance(unit, HostNode) else "part"
        what = [
            self.names[id(p)],
            kind,
            [index[id(n)] for n in unit.nodes],
            list(getattr(unit, "outputs", ())),
        ]
        return sha256(dumps(what).encode()).hexdigest()[:24]

    def part(self, name: str, part_name: str) -> Any:
        """The Part with a name, in the program `name`."""
        p = self.programs[name]
        return next(u for u in p.parts.values() if self.unit_name(p, u) == part_name)

    def describe(self, name: str) -> dict[str, Any]:
        """Describes a program: its current units, and the state from which `restore` creates
        them.
        """
        p = self.programs[name]
        index = {id(n): i for i, n in enumerate(p.nodes)}
        units = self.units(p, p.units)
        wanted = {r for u in units if "op" in u for r in u["reads"]} | set(p.names)
        constants = {n: self.constant(p.values[n]) for n in sorted(wanted) if n in p.values}
        inputs = p.graph.input_names() if p.parent is None else p.graph.inputs
        state = {
            "hosts": sorted(index[i] for i in p.hosts),
            "alone": sorted(index[i] for i in p.alone),
            "cuts": sorted(p.cuts),
        }
        return {
            "program": name,
            "origin": self.origins[name],
            "inputs": [i.name for i in inputs],
            "outputs": p.names,
            "where": p.graph.name or "graph",
            "units": units,
            "constants": constants,
            "state": state,
        }

    def units(self, p: SplitGraph, units: Units) -> list[dict[str, Any]]:
        """Describes units in execution order. `dead`: names that no later unit reads."""
        index = {id(n): i for i, n in enumerate(p.nodes)}
        out = []
        for unit, dead in units:
            hidden: set[str] = set()  # values that never leave the unit's plan
            if not isinstance(unit, HostNode):
                hidden = {o for n in unit.nodes for o in n.outputs} - set(unit.outputs)
            common = {
                "nodes": [index[id(n)] for n in unit.nodes],
                "dead": [name for name in dead if name not in hidden],
            }
            if isinstance(unit, HostNode):
                out.append({**self.node(p, unit.node), **common})
            else:
                asked = [index[id(n)] for n in unit.askers]
                read = [
                    r
                    for r in dict.fromkeys(r for n in unit.nodes for r in p.reads[id(n)])
                    if r in unit.inputs
                ]
                out.append(
                    {
                        "part": self.unit_name(p, unit),
                        "inputs": unit.inputs,
                        "outputs": list(unit.outputs),
                        "needs": unit.needs,
                        "beyond": beyond(unit),
                        "askers": asked,
                        "where": next(
                            (n.where for n in unit.nodes if read and read[0] in p.reads[id(n)]), ""
                        ),
                        **common,
                    }
                )
        return out

    def node(self, p: SplitGraph, node: Node) -> dict[str, Any]:
        """Describes a host node. `known`: whether Edgewise has the operator; `host`: whether it has
        a `host` rule.
        """
        decl = OPS.get((node.domain, node.op))
        opset = p.like.opsets.get(node.domain, p.opset if node.domain == "" else 1)
        return {
            "op": node.op,
            "domain": node.domain,
            "name": node.name,
            "where": node.where,
            "inputs": node.inputs,
            "outputs": node.outputs,
            "reads": p.reads[id(node)],
            "opset": opset,
            "known": decl is not None,
            "host": decl is not None and decl.host_fn is not None,
            "function": (node.domain, node.op) in p.like.functions,
            "attrs": {k: self.attribute(v) for k, v in node.attrs.items()},
        }

    def attribute(self, v: Any) -> Any:
        """Describes an attribute of a node."""
        if isinstance(v, (list, tuple)):
            return [self.attribute(x) for x in v]
        if isinstance(v, bool) or v is None or isinstance(v, str):
            return v
        if isinstance(v, int):
            return v if abs(v) <= MAX_SAFE else {"int": str(v)}
        if isinstance(v, float):
            return v if math.isfinite(v) else {"float": str(v)}
        if isinstance(v, Tensor):
            return {"tensor": self.tensor(v, whole=True)}
        if isinstance(v, Graph):
            outputs = [
                {
                    "dtype": NAME.get(o.dtype, ""),
                    "shape": o.shape and [d if isinstance(d, int) else -1 for d in o.shape],
                }
                for o in v.outputs
            ]
            return {"graph": {"inputs": len(v.inputs), "outputs": outputs}}
        return {"other": type(v).__name__}

    def constant(self, value: Value) -> dict[str, Any]:
        """Describes a constant of a graph."""
        if value.tensor is not None:
            return self.tensor(value.tensor)
        return {
            "dtype": NAME[value.dtype],
            "shape": list(value.shape),
            "data": pack(value.dtype, value.numbers).hex(),  # type: ignore[arg-type]  # not None
        }

    def tensor(self, t: Tensor, whole: bool = False) -> dict[str, Any]:
        """Describes a tensor. whole: include its bytes even if they are in a file of the model."""
        described: dict[str, Any] = {"dtype": NAME[t.dtype], "shape": list(t.shape)}
        if t.strings is not None:
            return {**described, "strings": list(t.strings)}
        if t.data is None and not whole:
            add_weight(self.package, t)
            return {**described, "weight": t.name}
        return {**described, "data": bytes(t.bytes()).hex()}


def beyond(part: Part) -> list[list[int]]:
    """Part.beyond for a page: [[input, other input, axis]]."""
    return [[i, j, axis] for i, (j, axis) in part.beyond.items()]

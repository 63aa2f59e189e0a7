"""Programs (program.py) as JSON for a page's driver: web/src/worker/inference/program.ts reads
them.

Programs and parts are called by names that follow from the model alone: what a page has kept of an
earlier visit finds its program again. A tensor is {"dtype", "shape"} and "data" (its bytes in
hexadecimal digits), "strings" or "weight" (a name in the manifest); what JSON cannot say is an
object with one key, `int`, `float`, `tensor`, `graph` or `other`.
"""

from __future__ import annotations

import math
from hashlib import sha256
from json import dumps

from ..compile import add_weight
from ..declare.dtypes import CODE, NAME, pack
from ..ir import Graph, Tensor
from ..ops import OPS
from .split_graph import HostNode, SplitGraph, single_node

MAX_SAFE = (1 << 53) - 1  # JavaScript's largest whole number


class Programs:
    """The programs of one model by name. package: where weights that host operators read are
    noted.
    """

    def __init__(self, graph, package):
        self.graph, self.package = graph, package
        self.programs, self.origins, self.names = {}, {}, {}

    def program(self, origin: dict) -> str:
        """Makes the program that `origin` speaks of, where it is not there yet, and gives its name.

        origin: {"outputs": [names]} of the model; {"parent": a program's name, "node": index,
        "body": attribute} of a subgraph, or with "function": True of the model-local function that
        the node calls; {"op": {...}} of one node (see _single).
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

    def _make(self, origin):
        if "outputs" in origin:
            return SplitGraph(self.graph, names=origin["outputs"])
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

    def _single(self, op, domain, present, wanted, attrs, opset, dtype="", label="", like=None):
        """present: 0 where an input is absent, 2 where it is a tensor of numbers, else 1. dtype:
        the name of its first output's declared type. like: [program's name, node's index] of the
        node whose attributes it has.
        """
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

    def restore(self, kept: dict):
        """Brings a program to the state in which it was described in an earlier visit: `kept` is
        what `describe` gave.
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
                unit.askers = [p.nodes[i] for i in described["askers"]]

    def unit_name(self, p: SplitGraph, unit) -> str:
        """What a unit of a program is called."""
        index = {id(n): i for i, n in enumerate(p.nodes)}
        kind = "host" if isinstance(unit, HostNode) else "part"
        what = [
            self.names[id(p)],
            kind,
            [index[id(n)] for n in unit.nodes],
            list(getattr(unit, "outputs", ())),
        ]
        return sha256(dumps(what).encode()).hexdigest()[:24]

    def part(self, name: str, part_name: str):
        """The Part of this name."""
        p = self.programs[name]
        return next(u for u in p.parts.values() if self.unit_name(p, u) == part_name)

    def describe(self, name: str) -> dict:
        """A program: its units as they are now, and what restores them."""
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

    def units(self, p: SplitGraph, units) -> list:
        """Units in the order in which they are run, with the names that each is the last to
        read.
        """
        index = {id(n): i for i, n in enumerate(p.nodes)}
        out = []
        for unit, dead in units:
            hidden = set()  # values that never leave the unit's plan
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
                        "askers": asked,
                        "where": next(
                            (n.where for n in unit.nodes if read and read[0] in p.reads[id(n)]), ""
                        ),
                        **common,
                    }
                )
        return out

    def node(self, p: SplitGraph, node) -> dict:
        """A node between plans.

        `known`: whether there is such an operator, `host`: whether Python has a function for it.
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

    def attribute(self, v):
        """An attribute of a node."""
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

    def constant(self, value) -> dict:
        """A constant of a graph: a Value."""
        if value.tensor is not None:
            return self.tensor(value.tensor)
        return {
            "dtype": NAME[value.dtype],
            "shape": list(value.shape),
            "data": pack(value.dtype, value.numbers).hex(),
        }

    def tensor(self, t: Tensor, whole: bool = False) -> dict:
        """whole: with its bytes even where they lie in one of the model's files."""
        described = {"dtype": NAME[t.dtype], "shape": list(t.shape)}
        if t.strings is not None:
            return {**described, "strings": list(t.strings)}
        if t.data is None and not whole:
            add_weight(self.package, t)
            return {**described, "weight": t.name}
        return {**described, "data": bytes(t.bytes()).hex()}

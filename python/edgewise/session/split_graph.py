"""Graphs as a session runs them: nodes in parts that are compiled as a whole, and between them what
only the host can do.

A graph that no data decides anything about is one part. What binding cannot know ahead splits it: a
number that a shape depends on is computed by one part and known to the next; a loop, a sequence,
strings stand between parts. Where the cuts are is found by trying, and kept for the runs that
follow.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from ..bind import function_body, prepared
from ..declare.dtypes import STRING
from ..declare.symbolic import NeedsHost, NotStatic
from ..declare.values import RunTensor
from ..errors import ModelError, UnsupportedOp
from ..ir import Graph, Info, NeedsValue, Node
from ..ops import OPS
from ..plan.explain import SESSION
from ..session_limits import MAX_SHAPE_NUMBERS
from .lengths import compile_lengths, find_lengths

MOST_FIXED = 64  # kinds of inputs that are known to need a plan for each length
SEEN = 8  # shapes that are remembered to find dimensions that change
# plans of a part in one run that differ in such numbers only: then who asks for them is compiled
# alone
MOST_VARIANTS = 4


class Split(Exception):
    """The parts of a program are others than it was thought; what is not done yet is split anew."""


class Scope:
    """Names and their values; what is not here is in `parent`, the scope around a subgraph."""

    __slots__ = ("values", "parent")

    def __init__(self, values, parent=None):
        self.values, self.parent = values, parent

    def find(self, name):
        """The value of a name here or around; None where there is none."""
        s = self
        while s is not None:
            v = s.values.get(name)
            if v is not None:
                return v
            s = s.parent
        return None


class SplitGraph:
    """A graph, or the body of a loop, branch or function.

    graph: Graph. parent: the SplitGraph around a subgraph, whose constants it sees; None for a
    whole model or a function. names: outputs, default all. like: a Graph with the model's opsets
    and functions. ours: whether nodes may be of the domain 'edgewise'.
    """

    def __init__(self, graph, parent=None, names=None, like=None, ours=False):
        self.graph, self.parent, self.ours = graph, parent, ours
        self.like = like or graph
        self.opset = self.like.opsets.get("", 1)
        self.names = [o.name for o in graph.outputs] if names is None else list(names)
        own = prepared(graph, inner=parent is not None or like is not None)
        nodes, _ = graph.needed(self.names)
        self.reads = {id(n): _reads(n) for n in nodes}
        self.values = own
        if parent is not None:
            hidden = {i.name for i in graph.inputs} | {o for n in nodes for o in n.outputs}
            self.values = {**{k: v for k, v in parent.values.items() if k not in hidden}, **own}
        self.nodes = nodes
        self.hosts = {id(n) for n in nodes if self._is_host(n)}
        self.alone, self.cuts = set(), set()
        self.parts, self.bodies = {}, {}
        self.units = self.split(nodes)

    def _is_host(self, n):
        decl = OPS.get((n.domain, n.op))
        return (
            decl is not None
            and decl.host_only
            and not decl.static
            or any(getattr(self.values.get(r), "dtype", 0) == STRING for r in self.reads[id(n)])
        )

    def body(self, graph):
        """The SplitGraph of a subgraph of one of its nodes."""
        p = self.bodies.get(id(graph))
        if p is None:
            p = self.bodies[id(graph)] = SplitGraph(graph, self, like=self.like)
        return p

    def function(self, node, given):
        """The SplitGraph of the model-local function that a node calls."""
        key = (id(node), tuple(given))
        p = self.bodies.get(key)
        if p is None:
            f = self.like.functions[node.domain, node.op]
            like = Graph(
                f.name, opsets={**self.like.opsets, **f.opsets}, functions=self.like.functions
            )
            p = self.bodies[key] = SplitGraph(function_body(f, node.attrs, given), like=like)
        return p

    def every_part(self):
        """Its Parts and those of its bodies."""
        yield from (p for p in self.parts.values() if isinstance(p, Part))
        for body in self.bodies.values():
            yield from body.every_part()

    def free(self):
        """Frees all plans; it stays usable."""
        for part in self.every_part():
            part.free()

    def split(self, nodes):
        """[Part or HostNode] that compute these nodes, in an order that can be run.

        What is ready is computed as early as it can be, so that parts are few.
        """
        plain, host = {}, {}  # name: the stage in which a plain node, a host node can read it
        stages = {}
        for n in nodes:
            reads, alone = self.reads[id(n)], id(n) in self.hosts or id(n) in self.alone
            ready = host if alone else plain
            at = max([ready[r] for r in reads if r in ready], default=0)
            for o in n.outputs:
                host[o], plain[o] = at, at + 1 if alone or o in self.cuts else at
            stages.setdefault(at, ([], []))[alone].append(n)
        groups = []
        for at in sorted(stages):
            together, each = stages[at]
            groups += ([together] if together else []) + [[n] for n in each]
        last = {}  # name: the last group that reads it
        for i, group in enumerate(groups):
            for n in group:
                for r in self.reads[id(n)]:
                    last[r] = i
        wanted, units = set(self.names), []
        for i, group in enumerate(groups):
            made = [o for n in group for o in n.outputs if o]
            keep = tuple(o for o in made if o in wanted or last.get(o, -1) > i)
            is_host = id(group[0]) in self.hosts
            key = (is_host, tuple(map(id, group)), keep)
            unit = self.parts.get(key)
            if unit is None:
                unit = self.parts[key] = (
                    HostNode(self, group[0]) if is_host else Part(self, group, keep)
                )
            units.append(
                (
                    unit,
                    [
                        r
                        for n in group
                        for r in self.reads[id(n)]
                        if last[r] == i and r not in wanted
                    ],
                )
            )
        return units


class HostNode:
    """A node that the driver runs."""

    def __init__(self, program, node):
        self.program, self.node, self.nodes = program, node, [node]

    def run(self, driver, scope):
        """Leaves the node's outputs in the scope. Raises as Driver.host."""
        driver.host(self.program, self.node, scope)


class Part:
    """Nodes that are compiled together, once for each set of shapes (and of numbers that shapes
    depend on) of what they read.
    """

    def __init__(self, program, nodes, outputs):
        self.program, self.nodes, self.outputs = program, nodes, outputs
        made = {o for n in nodes for o in n.outputs}
        self.inputs = list(
            dict.fromkeys(
                r
                for n in nodes
                for r in program.reads[id(n)]
                if r not in made and r not in program.values
            )
        )
        declared = (
            {o.name: o for o in program.graph.outputs} if program.parent is None else {}
        )  # what a body gives stays float32
        like = program.like
        self.graph = Graph(
            like.name,
            nodes,
            [Info(i) for i in self.inputs],
            [declared[o] for o in outputs if o in declared],
            {},
            {},
            like.opsets,
            like.functions,
            ours=program.ours,
        )
        self.graph.values = program.values
        self.needs, self.askers = (
            [],
            [],
        )  # inputs whose numbers binding asks for, and the nodes that do
        self.plans, self.variants = OrderedDict(), (None, 0)  # (run, how many were compiled in it)
        self.last = None  # what `compile` gave for the last run, and its key
        # plans for ranges are in `plans`, too, with their Lengths as keys
        self.ranges, self.latest = (
            [],
            None,
        )  # latest: the Lengths of what was compiled last, or None
        self.seen, self.fixed = deque(maxlen=SEEN), set()  # fixed: skeletons without such a plan

    def run(self, driver, scope):
        """Leaves the outputs in the scope, by the plan for these shapes, which is compiled where
        there is none yet. Split: the program's parts are others than thought.
        """
        values, local = [], scope.values
        for name in self.inputs:
            v = local.get(name)
            if v is None and (v := scope.find(name)) is None:
                self.missing(name)
            values.append(v)
        key = keys = tuple([v.key for v in values])
        if None in key:
            self.not_plain({name for name, v in zip(self.inputs, values) if v.key is None})
        numbers = ()
        if self.needs:
            numbers = tuple([self.numbers(i, values[i]) for i in self.needs])
            key = (keys, numbers)
        found = self.plans.get(key)
        if found is not None:
            self.plans.move_to_end(key)
        elif (found := self.in_range(keys, numbers)) is None:
            found, key = self.compile(driver, values, key)
        self.last = found, key
        passed, compiled = found
        if passed.passed or passed.numbers:
            for name, source in passed.passed.items():
                local[name] = values[self.inputs.index(source)]
            local.update(passed.numbers)
        if compiled is not None:
            local.update(compiled.run(dict(zip(self.inputs, values))))

    def in_range(self, keys, numbers):
        """The plan for a range of lengths that these inputs are of, with its length set; None where
        there is none.
        """
        for lengths in self.ranges:
            length = lengths.length(keys, numbers)
            if length is not None:
                found = self.plans[lengths]
                self.plans.move_to_end(lengths)
                if found[1] is not None:
                    found[1].set_length(length)
                return found
        return None

    def numbers(self, i, v):
        """The numbers of input i, which a shape depends on, as a tuple; UnsupportedOp beyond
        MAX_SHAPE_NUMBERS.
        """
        if v.count > MAX_SHAPE_NUMBERS:
            raise UnsupportedOp(
                f"a shape depends on its {v.count} numbers",
                f"value '{self.inputs[i]}'",
                "Check what is fed; if it is right, report this model.",
            )
        return tuple(v.numbers)

    def missing(self, name):
        """Raises the ModelError for an input that no node computes."""
        node = next(n for n in self.nodes if name in self.program.reads[id(n)])
        raise ModelError(
            f"its input '{name}' is computed by no node",
            node.where,
            "The graph is broken; export it again.",
        )

    def not_plain(self, names):
        """Nodes that read strings, sequences and so on are not for plans."""
        p = self.program
        p.hosts |= {id(n) for n in self.nodes if not names.isdisjoint(p.reads[id(n)])}
        raise Split

    def compile(self, driver, values, key):
        """Compiles for these values and keeps the plan, the oldest one beyond MAX_PLANS is freed.

        Returns (what it keeps, its key). Raises Split, UnsupportedOp.
        """
        tensors = dict(zip(self.inputs, values))
        driver.budget.compilation(len(self.inputs), self.nodes[0].where)
        found = self.compile_range(driver, values)
        while found is None:
            known = {self.inputs[i]: list(self.numbers(i, values[i])) for i in self.needs}
            try:
                found = driver.compile_part(self.graph, tensors, known, list(self.outputs))
                break
            except NeedsValue as e:
                self.ask(e, known)
            except NeedsHost as e:
                self.give_away(e.node)
            except NotStatic as e:
                raise SESSION.error(e, self.graph.name) from None
        key, numbers = tuple([v.key for v in values]), ()
        if self.needs:
            if len(self.nodes) > 1:
                run, count = self.variants
                count = count + 1 if run == driver.runs else 1
                self.variants = (driver.runs, count)
                if count > MOST_VARIANTS and len(self.askers) < len(self.nodes):
                    self.program.alone |= {id(n) for n in self.askers}
                    if found[1] is not None:
                        found[1].free()
                    raise Split
            numbers = tuple([self.numbers(i, values[i]) for i in self.needs])
            key = (key, numbers)
        self.seen.append((key[0] if self.needs else key, numbers))
        self.keep(self.latest or key, found)
        while len(self.plans) > driver.session.MAX_PLANS:
            self.drop(next(iter(self.plans)))
        return found, key

    def compile_range(self, driver, values):
        """Compiles for a range of lengths, if a dimension of the inputs changes and the nodes allow
        it. Returns what it keeps, the length set; None where shapes are to be fixed.
        """
        self.latest = None
        keys = tuple([v.key for v in values])
        numbers = tuple([self.numbers(i, values[i]) for i in self.needs])
        lengths = find_lengths(self.seen, keys, numbers, self.needs)
        if lengths is None or lengths.skeleton in self.fixed:
            return None
        known = {self.inputs[i]: list(n) for i, n in zip(self.needs, numbers)}
        now = keys[lengths.first[0]][1][lengths.first[1]]

        def compile_one(lengths):
            shapes = zip(self.inputs, lengths.types, lengths.symbolic())
            tensors = {name: RunTensor(dtype, shape) for name, dtype, shape in shapes}
            return driver.compile_part(
                self.graph, tensors, known, list(self.outputs), lengths.registers
            )

        made = compile_lengths(lengths, now, compile_one)
        if made is None:
            self.fix(lengths)
            return None
        self.latest, found = made
        if found[1] is not None:
            found[1].set_length(now)
        return found

    def fix(self, lengths):
        """Has a plan for each length from now on where there would be one for such a range."""
        if len(self.fixed) >= MOST_FIXED:
            self.fixed.clear()
        self.fixed.add(lengths.skeleton)

    def keep(self, key, found):
        """Keeps a plan. One for a range of lengths takes the place of that for a shorter range."""
        if key is self.latest:
            for old in [r for r in self.ranges if r.skeleton == key.skeleton]:
                self.drop(old)
            self.ranges.append(key)
        self.plans[key] = found

    def drop(self, key):
        """Frees a plan."""
        if key in self.ranges:
            self.ranges.remove(key)
        compiled = self.plans.pop(key)[1]
        if compiled is not None:
            compiled.free()

    def give_away(self, node):
        """Makes a node the driver's (Split); UnsupportedOp where it is already."""
        if node is None or id(node) in self.program.hosts:
            raise UnsupportedOp(
                "it could not be split from what is around it",
                node.where if node is not None else self.graph.name or "graph",
                "Report this model.",
            )
        self.program.hosts.add(id(node))
        raise Split

    def ask(self, e, known):
        """A shape depends on data: on an input of this part, whose numbers it is then compiled for;
        on what one of its own nodes computes, behind which it is cut; or on something inside of a
        node, which is then asked for in terms of what the node reads, or given to the driver.
        """
        p, node, name = self.program, e.node, e.value.name
        made = {o for n in self.nodes for o in n.outputs if o}
        ours = made | set(self.inputs)
        nested = node is not None and (
            node.op == "If" and not node.domain or (node.domain, node.op) in p.like.functions
        )
        names = [name] if name in ours else [] if nested else sorted(_origins(e.value, ours))
        names = [n for n in names if n not in known and n not in p.cuts - set(self.inputs)]
        if not names:
            if nested:
                self.give_away(node)
            raise UnsupportedOp(
                "a shape inside of it depends on data",
                node.where if node is not None else f"value '{name}'",
                "Report this model.",
            )
        if node is not None and node not in self.askers:
            self.askers.append(node)
        cut = [n for n in names if n in made]
        if cut:
            p.cuts.update(cut)
            raise Split
        self.needs += [self.inputs.index(n) for n in names]

    def free(self):
        """Frees its plans."""
        for _, compiled in self.plans.values():
            if compiled is not None:
                compiled.free()
        self.plans.clear()
        self.ranges.clear()
        self.last = None


def single_node(op, domain, present, wanted, attrs, opset, dtype=0, label="", functions=None):
    """The SplitGraph of one node: inputs x0, x1, ..., outputs y0, y1, ...

    Args:
        present, wanted: lists of bools, whether each input and output is there. dtype: what its
        first output is declared as. label: the node's name, for errors. functions: the model-local
        functions that it may call.
    """
    names = [f"x{i}" if there else "" for i, there in enumerate(present)]
    outs = [f"y{i}" if there else "" for i, there in enumerate(wanted)]
    node = Node(op, names, outs, dict(attrs), domain, label)
    infos = [Info(i) for i in names if i], [Info(o, dtype) for o in outs if o]
    g = Graph(
        op, [node], *infos, opsets={"": opset, domain: opset}, functions=functions or {}, ours=True
    )
    return SplitGraph(g, ours=True)


def _origins(value, names):
    """Which of these names a Value is computed from."""
    found, stack, seen = set(), [value], set()
    while stack:
        v = stack.pop()
        if v is None or id(v) in seen:
            continue
        seen.add(id(v))
        if v.name in names:
            found.add(v.name)
        elif v.producer is not None:
            stack += v.producer.inputs
    return found


def _reads(node):
    """Names that a node reads, those inside of its subgraphs that come from around it included."""
    names = [i for i in node.inputs if i]
    for g in node.subgraphs():
        names += _free(g)
    return list(dict.fromkeys(names))


def _free(graph):
    own = (
        {i.name for i in graph.inputs}
        | set(graph.constants)
        | {o for n in graph.nodes for o in n.outputs}
        | set(graph.values or ())
    )
    return [
        r
        for r in dict.fromkeys(
            [r for n in graph.nodes for r in _reads(n)] + [o.name for o in graph.outputs]
        )
        if r not in own
    ]

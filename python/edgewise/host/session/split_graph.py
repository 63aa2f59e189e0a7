"""Splits a graph into parts that are compiled as a whole, and nodes that the host runs in between.

A graph whose shapes and branches do not depend on data is one part. Otherwise it is split: a number
that a shape depends on is computed by one part and known when the next one is compiled; loops,
sequences and strings are handled between parts. Where to split is found when parts are compiled,
and remembered for later runs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, NoReturn

from ...compiler.bind import fits_a_plan, function_body, prepared
from ...compiler.declare.dtypes import INT32, INT64, STRING
from ...compiler.declare.symbolic import NeedsHost, NotStatic
from ...compiler.declare.values import RunTensor
from ...compiler.ir import Graph, Growth, Info, NeedsValue, Node
from ...compiler.ops import OPS
from ...compiler.plan.explain import SESSION
from ...compiler.session_limits import MAX_SHAPE_NUMBERS
from ...errors import ModelError, UnsupportedOp
from .lengths import compile_lengths, find_lengths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ...compiler.ir import Value
    from ...compiler.onnx.reader import Function
    from .compiled import Compiled, Compiler, Known
    from .driver import Driver
    from .lengths import Key, Lengths, Numbers

    # [(Part or HostNode, names of values that no later unit reads)]
    Units = list[tuple[Any, list[str]]]
    Found = tuple[Known, Compiled | None]

MAX_FIXED = 64  # maximum number of kinds of inputs remembered as needing a plan for each length
SEEN = 8  # number of past shapes that are searched for changing dimensions
# If more plans of a part differ only in numbers within a run, the nodes that need these numbers are
# compiled alone.
MAX_VARIANTS = 4


class Split(Exception):
    """A program must be split differently; the nodes that have not run yet are split again."""


class Scope:
    """Values by name. parent: the scope around a subgraph, which is searched next."""

    __slots__ = ("values", "parent")

    def __init__(self, values: dict[str, Any], parent: Scope | None = None) -> None:
        self.values, self.parent = values, parent

    def find(self, name: str) -> Any:
        """The value of a name here or in an enclosing scope; None if there is none."""
        s: Scope | None = self
        while s is not None:
            v = s.values.get(name)
            if v is not None:
                return v
            s = s.parent
        return None


class SplitGraph:
    """A graph, or the body of a loop, branch or function, split into units.

    Args:
        graph: the graph.
        parent: the SplitGraph around a subgraph, whose constants are visible; None for a model or
            a function.
        names: outputs to compute; by default all.
        like: a graph with the model's opsets and functions; by default `graph`.
        ours: whether nodes may be of the domain "edgewise".
    """

    def __init__(
        self,
        graph: Graph,
        parent: SplitGraph | None = None,
        names: Iterable[str] | None = None,
        like: Graph | None = None,
        ours: bool = False,
    ) -> None:
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
        self.alone: set[int] = set()  # ids of nodes that are compiled alone
        self.cuts: set[str] = set()  # names of values that end a part
        self.parts: dict[Any, Part | HostNode] = {}
        self.bodies: dict[Any, SplitGraph] = {}
        self.units = self.split(nodes)

    def _is_host(self, n: Node) -> bool:
        decl = OPS.get((n.domain, n.op))
        return (
            decl is not None
            and decl.host_only
            and not decl.static
            and not (decl.jumps and fits_a_plan(n, self.opset))
            or any(getattr(self.values.get(r), "dtype", 0) == STRING for r in self.reads[id(n)])
        )

    def body(self, graph: Graph) -> SplitGraph:
        """The SplitGraph of a subgraph of one of its nodes."""
        p = self.bodies.get(id(graph))
        if p is None:
            p = self.bodies[id(graph)] = SplitGraph(graph, self, like=self.like)
        return p

    def function(self, node: Node, given: Mapping[str, Any]) -> SplitGraph:
        """The SplitGraph of a model-local function. given: inputs that the node has, by name."""
        key = (id(node), tuple(given))
        p = self.bodies.get(key)
        if p is None:
            f = self.like.functions[node.domain, node.op]
            like = Graph(
                f.name, opsets={**self.like.opsets, **f.opsets}, functions=self.like.functions
            )
            p = self.bodies[key] = SplitGraph(function_body(f, node.attrs, given), like=like)
        return p

    def every_part(self) -> Iterator[Part]:
        """Its parts and those of its bodies."""
        yield from (p for p in self.parts.values() if isinstance(p, Part))
        for body in self.bodies.values():
            yield from body.every_part()

    def free(self) -> None:
        """Frees all plans. Later runs compile them again."""
        for part in self.every_part():
            part.free()

    def split(self, nodes: Sequence[Node]) -> Units:
        """Splits nodes into units, in execution order. Each node runs as early as possible, so that
        there are few parts.

        Returns:
            [(Part or HostNode, names of values that no later unit reads)]
        """
        # {name: first stage in which nodes of parts, or host nodes, can read it}
        plain: dict[str, int] = {}
        host: dict[str, int] = {}
        stages: dict[int, tuple[list[Node], list[Node]]] = {}
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
        last: dict[str, int] = {}  # {name: index of the last group that reads it}
        for i, group in enumerate(groups):
            for n in group:
                for r in self.reads[id(n)]:
                    last[r] = i
        units: Units
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

    def __init__(self, program: SplitGraph, node: Node) -> None:
        self.program, self.node, self.nodes = program, node, [node]

    def run(self, driver: Driver, scope: Scope) -> None:
        """Adds the node's outputs to the scope. Raises as Driver.host."""
        driver.host(self.program, self.node, scope)


class Bits(float):
    """A float in a plan's key: 0.0 differs from -0.0, since quotients do, and NaN equals NaN."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bits) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class Part:
    """Nodes that are compiled together, once for each combination of input shapes and of numbers
    that shapes depend on.

    Attributes:
        needs: indices of the inputs whose numbers shapes depend on.
        beyond: {index of such an input: (index of another one, axis)}, where it is enough to know
            by how much its number exceeds that dimension. This is its number then.
        askers: the nodes that need these numbers.
        plans: by (dtype, shape) of the inputs and numbers, or by Lengths.
        variants: (run, number of plans compiled in it).
        last: what `compile` returned for the last run.
        latest: the Lengths of the last compilation; None: it was for fixed shapes.
        fixed: skeletons of Lengths for which there is no plan.
    """

    def __init__(self, program: SplitGraph, nodes: list[Node], outputs: Sequence[str]) -> None:
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
        # The outputs of a body stay float32.
        declared = {o.name: o for o in program.graph.outputs} if program.parent is None else {}
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
        self.needs: list[int] = []
        self.beyond: dict[int, tuple[int, int]] = {}
        self.askers: list[Node] = []
        self.plans: OrderedDict[Any, Found] = OrderedDict()
        self.variants: tuple[int | None, int] = (None, 0)
        self.last: Any = None
        self.ranges: list[Lengths] = []
        self.latest: Lengths | None = None
        self.seen: deque[tuple[tuple[Key, ...], Numbers]] = deque(maxlen=SEEN)
        self.fixed: set[Any] = set()

    def run(self, driver: Driver, scope: Scope) -> None:
        """Adds the outputs to the scope. A plan is compiled on the first run with these shapes.

        Raises:
            Split: the program must be split differently.
        """
        values: list[Any] = []
        local = scope.values
        for name in self.inputs:
            v = local.get(name)
            if v is None and (v := scope.find(name)) is None:
                self.missing(name)
            values.append(v)
        key: Any
        key = keys = tuple([v.key for v in values])
        if None in key:
            self.not_plain({name for name, v in zip(self.inputs, values) if v.key is None})
        numbers: Numbers = ()
        if self.needs:
            numbers = tuple([self.numbers(i, values) for i in self.needs])
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

    def in_range(self, keys: Sequence[Key], numbers: Numbers) -> Found | None:
        """The plan for a range of lengths that contains these inputs, with its length set; None if
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

    def numbers(self, i: int, values: Sequence[Any]) -> tuple[int | Bits, ...]:
        """What shapes depend on of input i: its elements, or its growth beyond a dimension. Raises
        UnsupportedOp if there are too many for a plan's key.
        """
        v = values[i]
        if v.count > MAX_SHAPE_NUMBERS:
            raise UnsupportedOp(
                f"a shape depends on its {v.count} numbers",
                f"value '{self.inputs[i]}'",
                "Check what is fed; if it is right, report this model.",
            )
        if i in self.beyond:
            j, axis = self.beyond[i]
            return (max(v.numbers[0] - values[j].shape[axis], 0),)
        return tuple([Bits(x) if isinstance(x, float) else x for x in v.numbers])

    def known(self, numbers: Numbers, shapes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """What is known of inputs, as `compile_part` takes it.

        Args:
            numbers: what `numbers` gives for each input in `needs`.
            shapes: of all inputs; they may contain Syms.
        """
        found: dict[str, Any] = {}
        for i, each in zip(self.needs, numbers):
            found[self.inputs[i]] = [float(x) if isinstance(x, Bits) else x for x in each]
            if i in self.beyond:
                j, axis = self.beyond[i]
                found[self.inputs[i]] = Growth(shapes[j][axis], int(each[0]))
        return found

    def missing(self, name: str) -> NoReturn:
        """Raises the ModelError for an input that no node computes."""
        node = next(n for n in self.nodes if name in self.program.reads[id(n)])
        raise ModelError(
            f"its input '{name}' is computed by no node",
            node.where,
            "The graph is broken; export it again.",
        )

    def not_plain(self, names: set[str]) -> NoReturn:
        """Makes the nodes that read these values host nodes: strings, sequences, ... Raises
        Split.
        """
        p = self.program
        p.hosts |= {id(n) for n in self.nodes if not names.isdisjoint(p.reads[id(n)])}
        raise Split

    def compile(self, driver: Compiler, values: Sequence[Any], key: Any) -> tuple[Found, Any]:
        """Compiles and keeps a plan. Beyond MAX_PLANS the least recently used plan is freed.

        Returns:
            (plan, its key)

        Raises:
            Split, UnsupportedOp
        """
        tensors = dict(zip(self.inputs, values))
        driver.budget.compilation(len(self.inputs), self.nodes[0].where)
        found = self.compile_range(driver, values)
        while found is None:
            given = tuple([self.numbers(i, values) for i in self.needs])
            known = self.known(given, [v.shape for v in values])
            try:
                found = driver.compile_part(self.graph, tensors, known, list(self.outputs))
                break
            except NeedsValue as e:
                self.ask(e, known)
            except NeedsHost as e:
                self.give_away(e.node)
            except NotStatic as e:
                raise SESSION.error(e, self.graph.name) from None
        numbers: Numbers
        key, numbers = tuple([v.key for v in values]), ()
        if self.needs:
            if len(self.nodes) > 1:
                run, count = self.variants
                count = count + 1 if run == driver.runs else 1
                self.variants = (driver.runs, count)
                if count > MAX_VARIANTS and len(self.askers) < len(self.nodes):
                    self.program.alone |= {id(n) for n in self.askers}
                    if found[1] is not None:
                        found[1].free()
                    raise Split
            numbers = tuple([self.numbers(i, values) for i in self.needs])
            key = (key, numbers)
        self.seen.append((key[0] if self.needs else key, numbers))
        self.keep(self.latest or key, found)
        while len(self.plans) > driver.session.MAX_PLANS:
            self.drop(next(iter(self.plans)))
        return found, key

    def compile_range(self, driver: Compiler, values: Sequence[Any]) -> Found | None:
        """Compiles a plan for a range of lengths, and sets its length; None if no dimension of the
        inputs changes or there is no such plan.
        """
        self.latest = None
        keys = tuple([v.key for v in values])
        numbers = tuple([self.numbers(i, values) for i in self.needs])
        lengths = find_lengths(self.seen, keys, numbers, self.needs)
        if lengths is None or lengths.skeleton in self.fixed:
            return None
        known = self.known(numbers, lengths.symbolic())
        now = keys[lengths.first[0]][1][lengths.first[1]]

        def compile_one(lengths: Lengths) -> Found:
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

    def fix(self, lengths: Lengths) -> None:
        """From now on compiles a plan for each length instead of one for this range."""
        if len(self.fixed) >= MAX_FIXED:
            self.fixed.clear()
        self.fixed.add(lengths.skeleton)

    def keep(self, key: Any, found: Found) -> None:
        """Keeps a plan. A plan for a range of lengths replaces that for a shorter range."""
        if key is self.latest:
            # `latest`, and so the key, is not None here: None is no key.
            for old in [r for r in self.ranges if r.skeleton == key.skeleton]:  # type: ignore
                self.drop(old)
            self.ranges.append(key)  # type: ignore[arg-type]
        self.plans[key] = found

    def drop(self, key: Any) -> None:
        """Frees a plan."""
        if key in self.ranges:
            self.ranges.remove(key)
        compiled = self.plans.pop(key)[1]
        if compiled is not None:
            compiled.free()

    def give_away(self, node: Any) -> NoReturn:
        """Makes a node a host node. Raises Split, or UnsupportedOp if it is one already."""
        if node is None or id(node) in self.program.hosts:
            raise UnsupportedOp(
                "it could not be separated from the graph around it",
                node.where if node is not None else self.graph.name or "graph",
                "Report this model.",
            )
        self.program.hosts.add(id(node))
        raise Split

    def ask(self, e: NeedsValue, known: Mapping[str, Any]) -> None:
        """Handles a shape that depends on data: of an input of this part, which is then compiled
        for its numbers; of one of its nodes, after which the program is split; or inside of a node,
        which then needs the numbers of its inputs or becomes a host node. Raises Split.
        """
        node: Any
        p, node, name = self.program, e.node, e.value.name
        if self._ask_growth(e, known):
            return
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

    def _ask_growth(self, e: NeedsValue, known: Mapping[str, Any]) -> bool:
        """Whether it is enough to know by how much an input's number exceeds a dimension, or it was
        and no longer is: then the number itself is needed.
        """
        name, at = e.value.name, {n: i for i, n in enumerate(self.inputs)}
        if name in known and at[name] in self.beyond:
            del self.beyond[at[name]]
            self.free()  # the keys of its plans hold the growth
            self.seen.clear()
            return True
        if e.beyond is None or name in known or name not in at or e.beyond[0] not in at:
            return False
        if e.value.dtype not in (INT32, INT64):
            return False
        self.beyond[at[name]] = (at[e.beyond[0]], e.beyond[1])
        self.needs.append(at[name])
        if e.node is not None and e.node not in self.askers:
            self.askers.append(e.node)
        return True

    def free(self) -> None:
        """Frees its plans."""
        for _, compiled in self.plans.values():
            if compiled is not None:
                compiled.free()
        self.plans.clear()
        self.ranges.clear()
        self.last = None


def single_node(
    op: str,
    domain: str,
    present: Iterable[Any],
    wanted: Iterable[Any],
    attrs: Mapping[str, Any],
    opset: int,
    dtype: int = 0,
    label: str = "",
    functions: dict[tuple[str, str], Function] | None = None,
) -> SplitGraph:
    """The SplitGraph of one node with inputs x0, x1, ... and outputs y0, y1, ...

    Args:
        op, domain, attrs, opset: of the node.
        present, wanted: whether each input and each output exists.
        dtype: declared type of the first output; 0: not declared.
        label: name of the node, for errors.
        functions: the model-local functions that it may call.
    """
    names = [f"x{i}" if there else "" for i, there in enumerate(present)]
    outs = [f"y{i}" if there else "" for i, there in enumerate(wanted)]
    node = Node(op, names, outs, dict(attrs), domain, label)
    infos = [Info(i) for i in names if i], [Info(o, dtype) for o in outs if o]
    g = Graph(
        op, [node], *infos, opsets={"": opset, domain: opset}, functions=functions or {}, ours=True
    )
    return SplitGraph(g, ours=True)


def _origins(value: Value, names: set[str]) -> set[str]:
    """Which of these names a Value is computed from."""
    found: set[str]
    stack: list[Any]
    seen: set[int]
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


def _reads(node: Node) -> list[str]:
    """Names that a node reads, including those that its subgraphs read from outside."""
    names = [i for i in node.inputs if i]
    for g in node.subgraphs():
        names += _free(g)
    return list(dict.fromkeys(names))


def _free(graph: Graph) -> list[str]:
    """Names that a subgraph reads from outside."""
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

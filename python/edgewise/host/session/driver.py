"""Runs split graphs: compiled parts, and in between the nodes that only the host can run, such as
loops, branches, and operators on sequences and strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...compiler.bind import HALF
from ...compiler.bind.operators import REMEDY, operator_name
from ...compiler.declare.dtypes import BITS, FLOAT, pack
from ...compiler.declare.symbolic import NeedsHost, NotStatic, product
from ...compiler.declare.values import Map, RunTensor, Sequence, StringTensor, is_plain
from ...compiler.ir import BoundNode, Graph, NeedsValue, Value
from ...compiler.ops import OPS
from ...compiler.ops.host.strings import moved
from ...compiler.session_limits import LATEST_OPSET, MAX_NESTING
from ...errors import EdgewiseError, ModelError, OutOfMemory, UnsupportedOp
from ...seeds import RunSeeds
from ..engine import Buffer
from .budget import WORDS, strings_bytes
from .compiled import compile_part
from .memory import Elsewhere
from .split_graph import Scope, Split, single_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Sequence as Items

    from ...compiler.ir import Info, Node
    from ...compiler.plan.builder import Register
    from .budget import Budget
    from .compiled import Compiled, Known, Session
    from .feeds import RunValue
    from .split_graph import SplitGraph


class Driver:
    """Runs the split graphs of one session.

    Args:
        session: has the memory, plans and signals that runs need.
        budget: limits of a run.

    Attributes:
        ops: split graphs of single nodes that host operators ran.
        constants: {id of a Value of a graph: value of a run}.
        runs: number of the current run.
        depth: how deep functions and subgraphs are nested at present.
        seeds: of the current run.
    """

    ops: dict[Any, SplitGraph]
    constants: dict[int, RunTensor | StringTensor]

    def __init__(self, session: Session, budget: Budget) -> None:
        self.session, self.budget, self.ends = session, budget, session.ends
        self.ops, self.constants = {}, {}
        self.runs = self.depth = 0
        self.seeds = RunSeeds()

    device = property(lambda self: self.session.device)
    store = property(lambda self: self.session.store)
    pool = property(lambda self: self.session.pool)
    watch = property(lambda self: self.session.watch)
    direct = property(lambda self: self.session.direct)

    def start(
        self, program: SplitGraph, feeds: dict[str, RunValue], seed: int | None = None
    ) -> list[RunValue]:
        """Runs a model.

        Args:
            program: the model.
            feeds: {name: value} of its inputs; values are removed when no node needs them.
            seed: of its random numbers; None: unpredictable.

        Returns:
            the outputs

        Raises:
            EdgewiseError: a node cannot run, or a limit is exceeded.
        """
        self.runs += 1
        self.depth = 0
        self.seeds = RunSeeds(seed)
        self.budget.start()
        outputs = {o.name: o for o in program.graph.outputs}
        return [
            self.declared(v, outputs[name])
            for name, v in zip(program.names, self.call(program, feeds))
        ]

    def call(
        self, program: SplitGraph, values: dict[str, Any], around: Scope | None = None
    ) -> list[Any]:
        """Runs a model, a subgraph or a function.

        Args:
            program: to be run.
            values: {name: value} of its inputs. Other values are added and removed.
            around: the scope around a subgraph.

        Returns:
            the outputs
        """
        if self.depth >= MAX_NESTING:
            raise ModelError(
                "its functions and subgraphs are nested too deeply",
                program.graph.name or "graph",
                "Export the model again.",
            )
        scope = Scope(values, around)
        done: set[int]
        units, done, ends = program.units, set(), self.ends
        self.depth += 1
        while True:
            i = 0
            try:
                for i, (unit, dead) in enumerate(units):  # noqa: B007 (used after a Split)
                    if ends.reason is not None:
                        ends.check()
                    unit.run(self, scope)
                    for name in dead:
                        values.pop(name, None)
                break
            except Split:
                done |= {id(n) for unit, _ in units[:i] for n in unit.nodes}
                program.units = program.split(program.nodes)
                units = program.split([n for n in program.nodes if id(n) not in done])
        self.depth -= 1
        out = []
        for name in program.names:
            v = self.find(program, scope, name)
            if v is None:
                raise ModelError(
                    "no node computes it",
                    f"output '{name}'"
                    + (f" of '{program.graph.name}'" if program.graph.name else ""),
                    "Export the model again.",
                )
            out.append(v)
        return out

    def find(self, program: SplitGraph, scope: Scope, name: str) -> Any:
        """The value of a name in a scope or among the program's constants; None if there is
        none.
        """
        v = scope.find(name)
        if v is None and name in program.values:
            return self.constant(program.values[name])
        return v

    def constant(self, value: Value) -> RunTensor | StringTensor:
        """A constant of a graph as a value of a run."""
        v = self.constants.get(id(value))
        if v is None:
            t = value.tensor
            if t is not None and t.strings is not None:
                v = StringTensor(t.shape, t.strings)
            elif t is not None and t.data is None:
                v = RunTensor(t.dtype, t.shape, memory=Elsewhere(self.store.weight(t), self.pool))
            else:  # a small constant, with known numbers
                v = RunTensor(
                    value.dtype,
                    value.shape,
                    t.data if t is not None else pack(value.dtype, value.numbers),  # type: ignore
                )
            self.constants[id(value)] = v
        return v

    def compile_part(
        self,
        graph: Graph,
        tensors: Mapping[str, RunTensor],
        known: Mapping[str, Items[Any]],
        names: Items[str],
        registers: Items[Register] = (),
    ) -> tuple[Known, Compiled | None]:
        """Compiles a part of a program. See compiled.compile_part."""
        return compile_part(self, graph, tensors, known, names, registers)

    def host(self, program: SplitGraph, node: Node, scope: Scope) -> None:
        """Runs a node that no plan computes, and adds its outputs to the scope.

        Raises:
            EdgewiseError: it cannot run.
            Split, NeedsHost, NotStatic: a program inside of it must be split differently.
        """
        inputs = []
        for name in node.inputs:
            v = self.find(program, scope, name) if name else None
            if v is None and name:
                raise ModelError(
                    f"its input '{name}' is computed by no node",
                    node.where,
                    "The graph is broken; export it again.",
                )
            inputs.append(v)
        while inputs and inputs[-1] is None:
            inputs.pop()
        decl = OPS.get((node.domain, node.op))
        opset = program.like.opsets.get(node.domain, program.opset if node.domain == "" else 1)
        n = BoundNode(
            node.op,
            node.domain,
            node.name,
            inputs,
            [Value(o, 0, ()) if o else None for o in node.outputs],
            node.attrs,
            opset,
            decl,
            node.module,
            node,
        )
        run = HostContext(self, program, scope, n)
        try:
            outs = self.outputs(n, run, inputs, node, scope)
        except EdgewiseError as e:
            if not e.where:
                e.where = node.where
            raise
        except NeedsValue as e:
            raise ModelError(
                f"{e.value} where numbers are needed",
                n.where,
                "Check what is fed; if it is right, export the model again.",
            ) from None
        except (Split, NeedsHost, NotStatic):
            raise
        except Exception as e:  # anything that an operator raises for an invalid or large model
            raise n.broken(e) from e
        if len(outs) < sum(1 for o in node.outputs if o):
            raise ModelError(
                f"it has {len(node.outputs)} outputs, {node.op} gives {len(outs)}",
                node.where,
                "Export the model again.",
            )
        for name, v in zip(node.outputs, outs):
            if name and v is not None:
                if not isinstance(v, RunTensor):
                    self.count(v, inputs, node.where)
                scope.values[name] = v

    def count(self, v: Any, inputs: Iterable[Any], where: str) -> None:
        """Counts the memory of a value on the host while the value is alive.

        Args:
            v: output of a node.
            inputs: inputs of the node. A sequence that shares its list with one of them counts as
                one more item.
            where: the node, for errors.

        Raises:
            OutOfMemory: the limit is exceeded.
        """
        if isinstance(v, StringTensor):
            nbytes = strings_bytes(v.strings)
        elif isinstance(v, Sequence):  # its elements are counted separately
            nbytes = WORDS if any(v.shares_list_with(x) for x in inputs) else WORDS * len(v)
        elif isinstance(v, Map):
            nbytes = 16 * WORDS * len(v)
        else:
            return
        if v.held is None and nbytes:
            try:
                v.held = self.pool.hold(nbytes)
            except OutOfMemory as e:
                e.where = e.where or where
                raise

    def outputs(
        self, n: BoundNode, run: HostContext, inputs: list[Any], node: Node, scope: Scope
    ) -> list[Any]:
        """The outputs of a host node, in order: of the body of a model-local function, of the op's
        `host` rule, of an op that only moves strings, or of a plan of this node alone.

        Args:
            n: the node with its declaration.
            run: the interface of host rules.
            inputs: values of its inputs, None if absent.
            node: the node in the graph.
            scope: values around it.

        Raises:
            UnsupportedOp: there is no such operator.
        """
        if n.decl is None:
            if (n.domain, n.op) not in run.program.like.functions:
                raise UnsupportedOp(
                    f"the operator {operator_name(n.domain, n.op, n.opset)} is not supported",
                    n.where,
                    REMEDY,
                )
            f = run.program.like.functions[n.domain, n.op]
            given = {name: v for name, v in zip(f.inputs, inputs) if v is not None}
            body = run.program.function(node, given)
            return list(self.call(body, given))
        outs = n.decl.host_fn(n, run, inputs) if n.decl.host_fn is not None else None
        if outs is None and not all(map(is_plain, inputs)):
            outs = moved(n, run, inputs)
        return (
            outs
            if outs is not None
            else run.plain(
                n.op, n.domain, inputs, [o is not None for o in n.outputs], n.attrs, n.opset
            )
        )

    def declared(self, v: Any, info: Info) -> Any:
        """Converts an output of a model from float32, which all plans compute, to the
        half-precision type that the model declares.
        """
        if isinstance(v, Sequence):
            inner: Any = info.elem if info.kind in ("sequence", "optional") else None
            return (
                Sequence(
                    self.declared(
                        x,
                        (
                            inner.elem
                            if inner.kind == "sequence" and info.kind == "optional"
                            else inner
                        ),
                    )
                    for x in v
                )
                if inner is not None
                else v
            )
        if info.kind == "optional" and info.elem is not None:
            info = info.elem
        if info.dtype in HALF and isinstance(v, RunTensor) and v.dtype == FLOAT:
            return HostContext(self).plain(
                "Identity", "", [v], [True], {}, LATEST_OPSET, info.dtype
            )[0]
        return v

    def free(self) -> None:
        """Frees constants and plans in engine memory. Later runs load and compile again."""
        self.constants.clear()
        for p in self.ops.values():
            p.free()


class HostContext:
    """The argument `run` of host rules: what they compute with.

    Args:
        driver: the driver.
        program: the graph that contains the node.
        scope: values around the node.
        n: the node.
    """

    program: Any
    n: Any

    def __init__(
        self,
        driver: Driver,
        program: SplitGraph | None = None,
        scope: Scope | None = None,
        n: BoundNode | None = None,
    ) -> None:
        self.driver, self.program, self.scope, self.n = driver, program, scope, n

    def op(
        self,
        name: str,
        *inputs: Any,
        domain: str = "",
        outputs: int = 1,
        opset: int = LATEST_OPSET,
        **attrs: Any,
    ) -> Any:
        """Runs an operator.

        Args:
            name, domain, opset, attrs: of the operator.
            inputs: values, None if absent.
            outputs: number of outputs.

        Returns:
            the output, or a list if outputs > 1
        """
        outs = self.plain(name, domain, inputs, [True] * outputs, attrs, opset)
        return outs[0] if outputs == 1 else outs

    def plain(
        self,
        name: str,
        domain: str,
        inputs: Items[Any],
        wanted: Items[bool],
        attrs: Mapping[str, Any],
        opset: int,
        dtype: int = 0,
    ) -> list[Any]:
        """Runs one node as a program of its own.

        Args:
            name, domain, attrs, opset: of the operator.
            inputs: values, None if absent.
            wanted: whether each output is computed.
            dtype: declared type of the first output; 0: not declared.

        Returns:
            the outputs, None for those that are not wanted
        """
        ops, key = (
            self.driver.ops,
            (
                name,
                domain,
                tuple([v is None or 1 + is_plain(v) for v in inputs]),
                tuple(wanted),
                repr(sorted(attrs.items(), key=str)),
                opset,
                dtype,
            ),
        )
        program = ops.get(key)
        if program is None:
            functions = self.program.like.functions if self.program is not None else None
            label = self.n.name if self.n is not None else ""
            program = ops[key] = single_node(
                name,
                domain,
                [v is not None for v in inputs],
                wanted,
                attrs,
                opset,
                dtype,
                label,
                functions,
            )
        given = {f"x{i}": v for i, v in enumerate(inputs) if v is not None}
        try:
            values = iter(self.driver.call(program, given))
        except EdgewiseError as e:
            if self.n is not None:  # the program is that of any node that runs this operator
                e.where = self.n.where
            raise
        return [next(values) if w else None for w in wanted]

    def constant(self, dtype: int, shape: Iterable[int], numbers: list[Any]) -> RunTensor:
        """A tensor of known numbers. dtype: ONNX code; numbers: flat list."""
        return RunTensor.of(dtype, shape, numbers)

    def body(self, graph: Any) -> Callable[..., list[Any]]:
        """A subgraph of this node as a function from the values of its inputs to a list of its
        outputs. Values around the node are visible to it.
        """
        if not isinstance(graph, Graph):
            raise ModelError("a subgraph is missing", self.n.where, "Export the model again.")
        program, driver, scope, names, where = (
            self.program.body(graph),
            self.driver,
            self.scope,
            [i.name for i in graph.inputs],
            self.n.where,
        )

        def call(*values: Any) -> list[Any]:
            if len(values) != len(names):
                raise ModelError(
                    f"its body takes {len(names)} inputs, it gives {len(values)}",
                    where,
                    "Export the model again.",
                )
            return driver.call(program, dict(zip(names, values)), scope)

        return call

    def trip(self) -> None:
        """Counts an iteration of a loop.

        Raises:
            ModelError: there were too many.
            Aborted: the caller has ended the run.
        """
        d = self.driver
        d.budget.trip(self.n.where)
        if d.ends.reason is not None:
            d.ends.check()

    def check_room(self, nbytes: int) -> None:
        """Raises OutOfMemory if `nbytes` more bytes on the host would exceed the limit."""
        self.driver.pool.check_host_room(nbytes)

    def copies(self, node: BoundNode, items: int) -> None:
        """Counts items of sequences that a node copies. Raises ModelError above the limit."""
        self.driver.budget.copy(items, node.where)

    def buffer(self, v: RunTensor) -> Buffer:
        """The device memory of a tensor, which is copied there if necessary."""
        if v.memory is None:
            v.memory, v.offset = self.driver.pool.take(v.nbytes), 0
            if v.nbytes:
                self.driver.device.write(v.memory.buffer, v.data)
        return v.memory.buffer.part(v.offset)

    def stack(self, values: Items[Any]) -> RunTensor | StringTensor:
        """Joins at least one tensor along a new first dimension, like numpy.stack.

        Raises:
            ModelError: shapes or types differ.
        """
        first = values[0]
        if any(v.key != first.key or list(v.shape) != list(first.shape) for v in values):
            other = next(
                v for v in values if v.key != first.key or list(v.shape) != list(first.shape)
            )
            raise ModelError(
                f"{first} and {other} cannot be concatenated",
                self.n.where,
                "Check the shapes that were fed; if they are right, export the model again.",
            )
        shape = [len(values), *first.shape]
        if first.dtype in BITS and product(first.shape) * BITS[first.dtype] % 8:
            raise ModelError(
                f"tensors like {first} do not end at a whole byte",
                self.n.where,
                "Export the model with 8-bit elements.",
            )
        if isinstance(first, StringTensor):
            return StringTensor(shape, [s for v in values for s in v.strings])
        if all(v.data is not None for v in values):
            return RunTensor(first.dtype, shape, b"".join([v.data for v in values]))
        step: int
        step, device = first.nbytes, self.driver.device
        memory = self.driver.pool.take(step * len(values))
        if step:
            for i, v in enumerate(values):
                device.copy(self.buffer(v), memory.buffer.part(i * step), step)
        return RunTensor(first.dtype, shape, memory=memory)

    def front(self, v: RunTensor, shape: Items[int]) -> RunTensor:
        """The first elements of a tensor as a tensor of this shape. They are copied if they are
        less than half of it, so that the rest can be freed.
        """
        y = RunTensor(v.dtype, shape, memory=v.memory, offset=v.offset)
        if v.memory is not None and 2 * y.nbytes < v.nbytes:
            memory = self.driver.pool.take(y.nbytes)
            if y.nbytes:
                self.driver.device.copy(v.memory.buffer.part(v.offset), memory.buffer, y.nbytes)
            return RunTensor(v.dtype, shape, memory=memory)
        return (
            y if v.memory is not None else RunTensor(v.dtype, shape, memoryview(v.data)[: y.nbytes])
        )

"""Runs programs (program.py): compiled parts, and between them what only the host can do: loops,
branches, sequences, strings.
"""

from __future__ import annotations

from ..bind import HALF
from ..declare.dtypes import BITS, FLOAT, pack
from ..declare.symbolic import NeedsHost, NotStatic, product
from ..declare.values import Map, RunTensor, Sequence, StringTensor, is_plain
from ..engine import Buffer
from ..errors import EdgewiseError, ModelError, OutOfMemory, UnsupportedOp
from ..ir import BoundNode, Graph, NeedsValue, Value
from ..ops import OPS
from ..ops.host.strings import moved
from ..seeds import RunSeeds
from ..session_limits import LATEST_OPSET, MAX_NESTING
from .budget import WORDS, strings_bytes
from .compiled import compile_part
from .memory import Elsewhere
from .split_graph import Scope, Split, single_node


class Driver:
    """session: has engine, store, pool, watch, ends, direct and MAX_PLANS. budget: Budget."""

    def __init__(self, session, budget):
        self.session, self.budget, self.ends = session, budget, session.ends
        self.ops, self.constants = {}, {}
        self.runs = self.depth = 0
        self.seeds = RunSeeds()

    device = property(lambda self: self.session.device)
    store = property(lambda self: self.session.store)
    pool = property(lambda self: self.session.pool)
    watch = property(lambda self: self.session.watch)
    direct = property(lambda self: self.session.direct)

    def start(self, program, feeds, seed=None):
        """Runs a whole model. feeds: {name: value}; seed: what its random numbers follow from,
        None: an unpredictable one. Returns the values of the program's outputs.
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

    def call(self, program, values, around=None):
        """The outputs of a program. around: the Scope around it."""
        if self.depth >= MAX_NESTING:
            raise ModelError(
                "its functions and subgraphs are nested too deeply",
                program.graph.name or "graph",
                "Export the model again.",
            )
        scope = Scope(values, around)
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

    def find(self, program, scope, name):
        """The value of a name: of the run, else of the program's constants; None where there is
        neither.
        """
        v = scope.find(name)
        if v is None and name in program.values:
            return self.constant(program.values[name])
        return v

    def constant(self, value):
        """A constant of a graph as a value of a run."""
        v = self.constants.get(id(value))
        if v is None:
            t = value.tensor
            if t is not None and t.strings is not None:
                v = StringTensor(t.shape, t.strings)
            elif t is not None and t.data is None:
                v = RunTensor(t.dtype, t.shape, memory=Elsewhere(self.store.weight(t), self.pool))
            else:
                v = RunTensor(
                    value.dtype,
                    value.shape,
                    t.data if t is not None else pack(value.dtype, value.numbers),
                )
            self.constants[id(value)] = v
        return v

    def compile_part(self, graph, tensors, known, names, registers=()):
        """Compiles a part of a program: as compiled.compile_part."""
        return compile_part(self, graph, tensors, known, names, registers)

    def host(self, program, node, scope):
        """Runs a node that no plan computes."""
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
        )
        run = Host(self, program, scope, n)
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
        except (
            Exception
        ) as e:  # whatever an operator meets in a model that makes no sense, or that is too large
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

    def count(self, v, inputs, where):
        """Counts the memory that a value of the host takes while it is alive. Raises
        OutOfMemory.
        """
        if isinstance(v, StringTensor):
            nbytes = strings_bytes(v.strings)
        elif isinstance(v, Sequence):  # its elements are counted by themselves
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

    def outputs(self, n, run, inputs, node, scope):
        """What a host node gives, in the order of its outputs: by its function's body, its op's
        `host`, strings moved by places, or a plan of this node alone. Raises UnsupportedOp,
        ModelError.
        """
        if n.decl is None:
            if (n.domain, n.op) not in run.program.like.functions:
                raise UnsupportedOp(
                    f"the operator {n.domain + '.' if n.domain else ''}{n.op} (opset {n.opset}) is"
                    " not supported",
                    n.where,
                    "`edgewise inspect` lists what a model needs; another exporter, opset or"
                    " optimization level may avoid it.",
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

    def declared(self, v, info):
        """An output of a model, in half precision where its file says so: values are float32 on the
        way.
        """
        if isinstance(v, Sequence):
            inner = info.elem if info.kind in ("sequence", "optional") else None
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
            return Host(self).plain("Identity", "", [v], [True], {}, LATEST_OPSET, info.dtype)[0]
        return v

    def free(self):
        """Forgets what is in engine memory; programs stay."""
        self.constants.clear()
        for p in self.ops.values():
            p.free()


class Host:
    """`run` of host operators."""

    def __init__(self, driver, program=None, scope=None, n=None):
        self.driver, self.program, self.scope, self.n = driver, program, scope, n

    def op(self, name, *inputs, domain="", outputs=1, opset=LATEST_OPSET, **attrs):
        """Computes with any operator; its output, or a list where outputs > 1."""
        outs = self.plain(name, domain, inputs, [True] * outputs, attrs, opset)
        return outs[0] if outputs == 1 else outs

    def plain(self, name, domain, inputs, wanted, attrs, opset, dtype=0):
        """The outputs of one node, by a program of its own. dtype: what its first output is
        declared as.
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
        values = iter(
            self.driver.call(program, {f"x{i}": v for i, v in enumerate(inputs) if v is not None})
        )
        return [next(values) if w else None for w in wanted]

    def constant(self, dtype, shape, numbers):
        """A tensor of known numbers. dtype: ONNX code; numbers: flat list."""
        return RunTensor.of(dtype, shape, numbers)

    def body(self, graph):
        """A subgraph of this node as a function of the values of its inputs, which returns a list;
        it sees what is around it.
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

        def call(*values):
            if len(values) != len(names):
                raise ModelError(
                    f"its body takes {len(names)} inputs, it gives {len(values)}",
                    where,
                    "Export the model again.",
                )
            return driver.call(program, dict(zip(names, values)), scope)

        return call

    def trip(self):
        """One more round of a loop.

        Raises ModelError where there were too many, Aborted where the caller wants an end.
        """
        d = self.driver
        d.budget.trip(self.n.where)
        if d.ends.reason is not None:
            d.ends.check()

    def check_room(self, nbytes):
        """Raises OutOfMemory where a value of so many bytes on the host is not allowed."""
        self.driver.pool.check_host_room(nbytes)

    def copies(self, node, items):
        """Counts items of sequences that node n copies. Raises ModelError."""
        self.driver.budget.copy(items, node.where)

    def buffer(self, v: RunTensor) -> Buffer:
        """A tensor's memory on the device, to which it is copied if it is not there yet."""
        if v.memory is None:
            v.memory, v.offset = self.driver.pool.take(v.nbytes), 0
            if v.nbytes:
                self.driver.device.write(v.memory.buffer, v.data)
        return v.memory.buffer.part(v.offset)

    def stack(self, values):
        """Tensors of one shape and type, at least one, as a tensor with one dimension more, before
        theirs.
        """
        first = values[0]
        if any(v.key != first.key or list(v.shape) != list(first.shape) for v in values):
            other = next(
                v for v in values if v.key != first.key or list(v.shape) != list(first.shape)
            )
            raise ModelError(
                f"{first} and {other} are to become one tensor",
                self.n.where,
                "Check the shapes that were fed; if they are right, export the model again.",
            )
        shape = [len(values), *first.shape]
        if first.dtype in BITS and product(first.shape) * BITS[first.dtype] % 8:
            raise ModelError(
                f"tensors like {first} do not fill whole bytes",
                self.n.where,
                "Export the model with 8-bit elements.",
            )
        if isinstance(first, StringTensor):
            return StringTensor(shape, [s for v in values for s in v.strings])
        if all(v.data is not None for v in values):
            return RunTensor(first.dtype, shape, b"".join([v.data for v in values]))
        step, device = first.nbytes, self.driver.device
        memory = self.driver.pool.take(step * len(values))
        if step:
            for i, v in enumerate(values):
                device.copy(self.buffer(v), memory.buffer.part(i * step), step)
        return RunTensor(first.dtype, shape, memory=memory)

    def front(self, v, shape):
        """The first elements of a tensor's memory as a tensor of this shape; a small part of a
        large block moves to memory of its own.
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

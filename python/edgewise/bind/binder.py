"""Binding: a Graph with concrete shapes becomes a BoundGraph, in which every tensor has a dtype and
a shape.

Shape arithmetic is evaluated away here, model-local functions and `If` with a known condition are
inlined, composite ops are replaced by what they are made of, and half precision is widened: stored
as half, computed in float32.
"""

from __future__ import annotations

import zlib

from ..declare.dtypes import BFLOAT16, BITS, BOOL, FLOAT, FLOAT16, FLOATS, INT64, NAME, STRING
from ..declare.symbolic import NotStatic, Sym, most, product
from ..declare.values import Nothing, Sequence, check_copied, is_plain
from ..element_types import DTYPES
from ..errors import EdgewiseError, InputError, ModelError, UnsupportedOp
from ..ir import BROKEN, BoundNode, Graph, Info, NeedsHost, NeedsValue, Tensor, Value
from ..onnx.reader import AttributeReference
from ..ops import OPS, declared
from ..ops.promotion import PROMOTIONS
from ..session_limits import LATEST_OPSET, MAX_NESTING
from .autodiff import add_gradients

HALF = (FLOAT16, BFLOAT16)
FOLD_INTEGERS, FOLD_FLOATS = 512, 64  # elements up to which constants are computed in Python
MAX_NODES = (
    1 << 16
    # bound nodes of functions and subgraphs: functions that call each other twice and twice again
    # grow without end
)
MAX_RANK = 64
FILE_INPUTS = declared("file_inputs")  # passes give these ops more inputs
RUN_SEED = "seed of the run"  # an input's name where random numbers are drawn without a seed


class BoundGraph:
    """nodes in an order that can be run; inputs and outputs by name.

    states: {name: Value} of what runs may write and later runs read (parameters, optimizer state).
    effects: Values that are written states: kept alive though nobody reads them. writes_after: name
    of an output before which no step writes a state (what data can be wrong with a run is found by
    then, and nothing is lost), or None. binder: adds nodes (`binder.op`) behind all others.
    """

    def __init__(self, binder=None):
        self.nodes, self.inputs, self.outputs = [], {}, {}
        self.states, self.effects, self.binder = {}, [], binder
        self.writes_after = None

    def users(self):
        """{id of value: [nodes that read it]}; outputs count as one user each, given as None."""
        users = {}
        for n in self.nodes:
            for v in n.inputs:
                if v is not None:
                    users.setdefault(id(v), []).append(n)
        for v in [*self.outputs.values(), *self.effects]:
            users.setdefault(id(v), []).append(None)
        return users

    def prune(self):
        """Drops nodes that no output depends on."""
        live, kept = {id(v) for v in [*self.outputs.values(), *self.effects]}, []
        for n in reversed(self.nodes):
            if any(o is not None and id(o) in live for o in n.outputs):
                kept.append(n)
                for i, o in enumerate(n.outputs):
                    if o is not None and id(o) not in live and i:
                        n.outputs[i] = None
                live.update(id(v) for v in n.inputs if v is not None)
        kept.reverse()
        self.nodes = kept
        return self

    def replace(self, old, new):
        """Lets all users of `old` read `new`."""
        for n in self.nodes:
            n.inputs = [new if v is old else v for v in n.inputs]
        for k, v in self.outputs.items():
            if v is old:
                self.outputs[k] = new

    def take_passed(self):
        """Takes away the outputs that are inputs. Returns {name of the output: name of the
        input}.
        """
        names = {id(v): name for name, v in self.inputs.items()}
        passed = {name: names[id(v)] for name, v in self.outputs.items() if id(v) in names}
        for name in passed:
            del self.outputs[name]
        return passed

    def state(self, name, dtype, shape):
        """The state of this name, made on first use."""
        if name not in self.states:
            self.states[name] = Value(name, dtype, shape, role="state")
        return self.states[name]


def bind(
    graph,
    shapes,
    dtypes=None,
    known=None,
    roles=None,
    outputs=None,
    computed=None,
    float_outputs=False,
    trainable=(),
    training=False,
    run_seed=False,
    max_bytes=None,
):
    """Makes a BoundGraph.

    Args:
        graph: Graph.
        shapes: {input name: list of ints or Syms}, for every input.
        dtypes: {input name: dtype code} where the file does not say.
        known: {value name: flat numbers} of inputs or inner values that are fixed for this binding.
        roles: {input name: "cache"} marks inputs that live in a cache with room behind them.
        outputs: names to compute; default all.
        float_outputs: outputs that the file declares as float16 stay float32.
        computed: {input name: function(binder) -> Value} for inputs that the plan computes itself
        instead of being fed. trainable: names of constants that are parameters: states of the bound
        graph (float32), which runs may change. training: whether Dropout is active; its random
        numbers follow from an input `seed`, int64 [1]. run_seed: whether the caller gives each run
        a seed of its own, int64 [1], in an input RUN_SEED, which is there where a node wants random
        numbers. max_bytes: most bytes of a tensor, for ops whose binding takes long for large ones;
        None: any.
    Raises:
        ModelError, UnsupportedOp: with the node.
        NeedsValue: a shape depends on a value that only a run can tell. NeedsHost: a node is none
        that plans compute. NotStatic: a shape depends on a register in a way a plan can't express.
    """
    return _Binder(
        graph,
        shapes,
        dtypes or {},
        known or {},
        roles or {},
        computed or {},
        trainable,
        training,
        run_seed,
        max_bytes,
    ).run(outputs, float_outputs)


class _Binder:
    def __init__(
        self,
        graph,
        shapes,
        dtypes,
        known,
        roles,
        computed,
        trainable,
        training,
        run_seed,
        max_bytes,
    ):
        self.graph, self.known = graph, known
        self.bound = BoundGraph(self)
        self.training, self.run_seed, self.seed = training, run_seed, None
        self.max_bytes = max_bytes
        self.module = ""  # that the node being bound belongs to
        self.streams = 0  # of random numbers so far
        self.widened, self.count, self.depth, self.nodes, self.copied = {}, 0, 0, 0, 0
        self.scope = (
            self.here
        ) = {}  # what names of the graph mean, and of the (sub)graph whose node is being bound
        self.opset = graph.opsets.get("", 1)
        for info in graph.input_names():
            if info.kind != "tensor":
                raise UnsupportedOp(
                    f"its type is {info.kind}",
                    f"input '{info.name}'",
                    "Edgewise takes tensors as inputs.",
                )
            if info.name in computed:
                continue
            dtype = info.dtype or dtypes.get(info.name)
            if info.name not in shapes:
                raise InputError(
                    "its shape is not given", f"input '{info.name}'", "Feed every input."
                )
            shape = shapes[info.name]
            value = Value(info.name, dtype, shape, role=roles.get(info.name, "input"))
            if info.name in known:
                value.numbers = list(known[info.name])
            self.bound.inputs[info.name] = value
            self.scope[info.name] = self.widen_input(value)
        self.scope.update(prepared(graph))
        for name in trainable:
            self.scope[name] = self.parameter(name)
        for name, make in computed.items():
            self.scope[name] = make(self)

    def random_stream(self, always=False):
        """(seed, number) of a new stream of random numbers; None where dropout is not active,
        unless they are wanted `always` and each run has a seed.
        """
        name = "seed" if self.training else RUN_SEED if always and self.run_seed else None
        if name is None:
            return None
        if self.seed is None:
            self.seed = self.bound.inputs[name] = Value(name, INT64, [1], role="input")
        self.streams += 1
        return self.seed, self.streams

    def parameter(self, name):
        constant = self.graph.values.get(name)
        if constant is None or constant.dtype not in (FLOAT, *HALF):
            raise InputError(
                (
                    "it is no float32 or float16 initializer of the model"
                    if constant is not None
                    else "the model has no initializer of this name"
                ),
                f"parameter '{name}'",
                "`edgewise inspect --parameters` lists a model's parameters.",
            )
        return self.bound.state(name, FLOAT, constant.shape)

    def widen_input(self, value):
        if value.dtype not in HALF:
            return value
        if value.role == "cache":  # a cache of ours: float32 from the start
            value.dtype = FLOAT
            return value
        return self.op("Cast", value, to=FLOAT)

    def run(self, outputs, float_outputs):
        self.block(self.graph, self.scope)
        wanted = outputs if outputs is not None else [o.name for o in self.graph.outputs]
        declared = {o.name: o for o in self.graph.outputs}
        for name in wanted:
            if name not in self.scope:
                raise ModelError(
                    "no node computes it", f"output '{name}'", "Export the model again."
                )
            v = self.scope[name]
            if not is_plain(v):
                raise NeedsHost(next((n for n in self.graph.nodes if name in n.outputs), None))
            info = declared.get(name)
            if (
                not float_outputs
                and info is not None
                and info.dtype in HALF
                and v.dtype == FLOAT
                and not (v.role == "cache" or self._is_cache_present(v))
            ):
                v = self.narrow(v, info.dtype)
            elif float_outputs and v.dtype in HALF:
                v = self.widen(v)
            self.bound.outputs[name] = v
        return self.bound.prune()

    def _is_cache_present(self, v):
        return v.producer is not None and any(
            i is not None and i.role == "cache" for i in v.producer.inputs
        )

    def narrow(self, v, dtype):
        """A float32 value as a half one; `op("Cast")` would leave it as it is.

        An input that was widened is itself.
        """
        fed = (
            v.producer.inputs[0]
            if v.producer is not None and v.producer.op == "Cast" and v.producer.domain == ""
            else None
        )
        if (
            fed is not None
            and fed.dtype == dtype
            and fed.role == "input"
            and fed.producer is None
            and fed.tensor is None
        ):
            return fed
        out = Value(self.fresh(v.name), dtype, v.shape, constant=v.constant)
        node = BoundNode("Cast", "", "", [v], [out], {"to": dtype}, self.opset, OPS[("", "Cast")])
        out.producer = node
        self.bound.nodes.append(node)
        return out

    def fresh(self, base):
        self.count += 1
        return f"{base}~{self.count}"

    # what composite ops use to say what they are made of
    def op(self, name, *inputs, domain=None, outputs=1, **attrs):
        """Adds one node; returns its output Value, or a list when outputs > 1."""
        if domain is None:
            domain = ""  # composite ops are written in the newest opset of the default domain
        outs = self.node(
            name,
            domain,
            "",
            list(inputs),
            [self.fresh(name) for _ in range(outputs)],
            attrs,
            LATEST_OPSET,
        )
        return outs[0] if outputs == 1 else outs

    def copies(self, node, items):
        """As session.driver.Host.copies."""
        self.copied += items
        check_copied(self.copied, node.where)

    def constant(self, dtype, shape, numbers):
        return Value(self.fresh("constant"), dtype, shape, numbers=list(numbers))

    def ints(self, values):
        """An int64 vector."""
        return self.constant(INT64, [len(values)], values)

    def reshape(self, v, shape):
        """v itself where that is its shape."""
        return (
            v
            if list(v.shape) == list(shape)
            else self.op("Reshape", v, self.ints(shape), allowzero=1)
        )

    def block(self, graph, scope):
        """Binds the nodes of a (sub)graph or function body whose constants are already in scope."""
        depth = self.depth
        for node in graph.nodes:
            try:
                self.graph_node(node, scope)
            except (NeedsValue, NeedsHost) as e:
                if (
                    not depth
                ):  # which one it is inside of a branch or function nobody outside can tell
                    e.node = node
                raise

    def graph_node(self, node, scope):
        """Binds a node of a file: its outputs come into scope."""
        outer = self.module
        inputs = []
        for name in node.inputs:
            if name == "":
                inputs.append(None)
            else:
                v = self.lookup(name, scope)
                if v is None:
                    raise ModelError(
                        f"its input '{name}' is computed by no node",
                        node.where,
                        "The graph is broken; export it again.",
                    )
                inputs.append(v)
        while inputs and inputs[-1] is None:
            inputs.pop()
        if node.op == "If" and node.domain == "":
            self.if_node(node, inputs, scope)
            return
        decl = OPS.get((node.domain, node.op))
        if (
            decl is not None
            and decl.host_only
            or not all(map(is_plain, inputs))
            and (node.domain, node.op) not in self.graph.functions
        ):
            for name, v in zip(node.outputs, self.static(decl, node, inputs)):
                if name:
                    scope[name] = v
            return
        if node.domain == "edgewise" and not self.graph.ours:
            raise UnsupportedOp(
                "operators of the domain 'edgewise' are made by passes, not found in files",
                node.where,
                "Export the model again.",
            )
        file_inputs = FILE_INPUTS.get(node.op)
        if file_inputs is not None and (len(inputs) > file_inputs or "activation" in node.attrs):
            raise ModelError(
                f"it has {len(inputs)} inputs and attributes {', '.join(sorted(node.attrs))}, more"
                f" than {node.op} takes",
                node.where,
                "Export the model again.",
            )
        if node.domain == "" and "" not in self.graph.opsets:
            raise ModelError(
                f"the model names no version of the operator set that {node.op} belongs to",
                node.where,
                "Export the model again.",
            )
        opset = self.graph.opsets.get(node.domain, self.opset if node.domain == "" else 1)
        self.module, self.here = node.module or outer, scope
        outs = self.node(node.op, node.domain, node.name, inputs, node.outputs, node.attrs, opset)
        self.module = outer
        for name, v in zip(node.outputs, outs):
            if name:
                scope[name] = v

    def static(self, decl, node, inputs):
        """Outputs of a node that no plan computes, where what it does is known by now."""
        if (
            decl is None
            or not decl.static
            or not all(is_plain(v) or isinstance(v, (Sequence, Nothing)) for v in inputs)
        ):
            raise NeedsHost(node)
        n = BoundNode(
            node.op,
            node.domain,
            node.name,
            inputs,
            [Value(o, 0, ()) if o else None for o in node.outputs],
            node.attrs,
            self.opset,
            decl,
            self.module,
        )
        try:
            outs = decl.host_fn(n, self, inputs)
        except BROKEN as e:
            raise n.broken(e) from e
        if outs is None:
            raise NeedsHost(node)
        return outs

    def lookup(self, name, scope):
        while scope is not None:
            if name in scope:
                return scope[name]
            scope = scope.get(PARENT)
        return None

    def if_node(self, node, inputs, scope):
        condition = inputs[0] if inputs else None
        if condition is None or condition.dtype != BOOL:
            raise ModelError(
                "its condition is not a bool tensor", node.where, "Export the model again."
            )
        if condition.numbers is None:
            raise NeedsValue(condition)
        if len(condition.numbers) != 1:
            raise ModelError(
                f"its condition has {len(condition.numbers)} elements",
                node.where,
                "Export the model again.",
            )
        branch = node.attrs.get("then_branch" if condition.numbers[0] else "else_branch")
        if not isinstance(branch, Graph):
            raise ModelError("a branch is missing", node.where, "Export the model again.")
        for name, v in zip(node.outputs, self.subgraph(branch, scope, node)):
            if name:
                scope[name] = v

    def differentiate(self, seeds, sources):
        """Adds the gradients of what is bound by now; as autodiff.add_gradients."""
        return add_gradients(self.bound, seeds, sources)

    def body(self, graph, node, *values):
        """The outputs of a subgraph among the attributes of the node that is being bound, given the
        Values of its inputs.
        """
        here = self.here
        if len(values) != len(graph.inputs):
            raise ModelError(
                f"the subgraph '{graph.name}' takes {len(graph.inputs)} inputs, not {len(values)}",
                node.where,
                "Export the model again.",
            )
        outs = self.subgraph(graph, here, node, {i.name: v for i, v in zip(graph.inputs, values)})
        self.here = here
        return outs

    def subgraph(self, graph, scope, node, values=()):
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ModelError("subgraphs nested too deeply", node.where, "Export the model again.")
        inner = {PARENT: scope, **dict(values)}
        inner.update(prepared(graph, inner=True))
        self.block(graph, inner)
        outs = []
        for o in graph.outputs:
            v = self.lookup(o.name, inner)
            if v is None:
                raise ModelError(
                    f"its branch does not compute '{o.name}'", node.where, "Export the model again."
                )
            outs.append(v)
        self.depth -= 1
        return outs

    def inline(self, graph, values):
        """Binds another graph, with its own opsets and functions, behind what is there. values:
        {name of an input: Value}. Returns {name of an output: Value}.
        """
        mine = self.graph, self.opset
        self.graph, self.opset = graph, graph.opsets.get("", 1)
        try:
            inner = {**values, **prepared(graph, inner=True)}
            self.block(graph, inner)
            outs = {o.name: self.lookup(o.name, inner) for o in graph.outputs}
        finally:
            self.graph, self.opset = mine
        missing = next((n for n, v in outs.items() if v is None), None)
        if missing is not None:
            raise ModelError(
                "no node computes it", f"output '{missing}'", "Export the model again."
            )
        return outs

    def function(self, f, node_where, inputs, outputs, attrs):
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ModelError("functions nested too deeply", node_where, "Export the model again.")
        inner = {name: v for name, v in zip(f.inputs, inputs) if v is not None}
        body = function_body(f, attrs, inner)
        inner.update(prepared(body, inner=True))
        self.block(body, inner)
        self.depth -= 1
        return [self.lookup(o, inner) for o in f.outputs]

    def node(self, name, domain, label, inputs, outputs, attrs, opset):
        """Binds one node; returns its output Values."""
        self.nodes += self.depth > 0
        if self.nodes > MAX_NODES:
            raise ModelError(
                f"its functions and subgraphs expand to more than {MAX_NODES} nodes",
                self.graph.name or "graph",
                "They repeat each other without end; export it again.",
            )
        decl = OPS.get((domain, name))
        n = BoundNode(name, domain, label, inputs, [], attrs, opset, decl, self.module)
        n.outputs = [
            Value(o, 0, ()) if o else None for o in outputs
        ]  # so that errors can name them
        if decl is None:
            f = self.graph.functions.get((domain, name))
            if f is not None:
                return self.function(f, n.where, inputs, outputs, attrs)
            raise UnsupportedOp(
                f"the operator {domain + '.' if domain else ''}{name} (opset {opset}) is not"
                " supported",
                n.where,
                "`edgewise inspect` lists what a model needs; another exporter, opset or"
                " optimization level may avoid it.",
            )
        n.inputs = inputs = [
            self.widen(v) if v is not None and v.dtype in HALF and i not in decl.half else v
            for i, v in enumerate(inputs)
        ]
        try:
            made = self.instead(n, inputs, outputs)
            if made is not None:
                return made
            results = decl.infer_fn(n)
            numbers = self.fold(decl, n, results)
        except (ModelError, UnsupportedOp) as e:
            if decl.decompose_fn:  # the file knows this node, not those that it is made of
                e.where = n.where
            raise
        except EdgewiseError:
            raise
        except BROKEN as e:
            raise n.broken(e) from e
        constant = all(v is None or v.constant for v in inputs)
        outs = []
        for i, out in enumerate(outputs):
            if not out or i >= len(results):
                if out:
                    raise ModelError(
                        f"it has an output '{out}' too many", n.where, "Export the model again."
                    )
                outs.append(None)
                continue
            r = results[i]
            if isinstance(r, Value):
                outs.append(r)
                continue
            if r[0] == STRING:
                raise NeedsHost
            if r[0] not in DTYPES and r[0] not in BITS:
                raise UnsupportedOp(
                    f"its output would have the element type {NAME.get(r[0], r[0])}",
                    n.where,
                    "Export the model with standard element types.",
                )
            if (
                len(r[1]) > MAX_RANK
                or not all(isinstance(d, Sym) or type(d) is int and d >= 0 for d in r[1])
                or product_most(r[1]) >= 1 << 40
            ):
                raise ModelError(
                    f"its output would have the shape {str(r[1])[:200]}",
                    n.where,
                    "Check the shapes that were fed; if they are right, export the model again.",
                )
            v = Value(
                out,
                r[0],
                r[1],
                numbers=numbers[i] if numbers else None,
                constant=constant and not any(isinstance(d, Sym) for d in r[1]),
            )
            if out in self.known and not self.depth:
                v.numbers = list(self.known[out])
            v.producer = n
            outs.append(v)
        n.outputs = outs
        if not numbers and any(
            v is not None and v.producer is n and v.numbers is None for v in outs
        ):
            self.bound.nodes.append(n)
        return outs

    def instead(self, n, inputs, outputs):
        """The outputs of what stands for a node: what it is made of, or itself on other element
        types. None where it is bound as it is.
        """
        decl = n.decl
        if decl.moves and any(v is not None and v.dtype in BITS for v in inputs):
            dtype, *others = {v.dtype for v in inputs if v is not None and v.dtype in BITS}
            if others:
                raise ModelError(
                    f"its inputs have different element types ({NAME[dtype]} and"
                    f" {NAME[others[0]]})",
                    n.where,
                    "Export the model again.",
                )
            codes = [
                self.op("Codes", v, domain="edgewise") if v is not None and v.dtype == dtype else v
                for v in inputs
            ]
            made = self.node(
                n.op,
                n.domain,
                n.name,
                codes,
                [o and self.fresh(o) for o in outputs],
                n.attrs,
                n.opset,
            )
            return [
                (
                    self.node("OfCodes", "edgewise", n.name, [v], [o], {"to": dtype}, LATEST_OPSET)[
                        0
                    ]
                    if v is not None
                    else None
                )
                for v, o in zip(made, outputs)
            ]
        for way in PROMOTIONS.get((n.domain, n.op), ()):
            mine = next(
                (
                    v.dtype
                    for i, v in enumerate(inputs)
                    if v is not None and (way.inputs is None or i in way.inputs)
                ),
                None,
            )
            other = way.types.get(mine)
            if other is not None:
                cast = [
                    (
                        self.op("Cast", v, to=other)
                        if v is not None
                        and v.dtype == mine
                        and (way.inputs is None or i in way.inputs)
                        else v
                    )
                    for i, v in enumerate(inputs)
                ]
                back = [way.outputs is None or i in way.outputs for i in range(len(outputs))]
                made = self.node(
                    n.op,
                    n.domain,
                    n.name,
                    cast,
                    [self.fresh(o) if o and of_it else o for o, of_it in zip(outputs, back)],
                    n.attrs,
                    n.opset,
                )
                return [
                    (
                        self.node("Cast", "", n.name, [v], [o], {"to": mine}, LATEST_OPSET)[0]
                        if of_it and v is not None and v.dtype == other
                        else v
                    )
                    for v, o, of_it in zip(made, outputs, back)
                ]
        return decl.decompose_fn(n, self) if decl.decompose_fn else None

    def fold(self, decl, node, results):
        f = decl.fold_fn
        if f is None or isinstance(results[0], Value):
            return None
        for dtype, shape in results:
            limit = FOLD_FLOATS if dtype in FLOATS else FOLD_INTEGERS
            if any(isinstance(d, Sym) for d in shape) or product(shape) > limit:
                return None
        if not getattr(decl, "folds_without_numbers", False):
            for v in node.inputs:
                if v is not None and v.numbers is None:
                    return None
        try:
            return f(node, results)
        except NotStatic:
            return None

    def widen(self, v):
        """A float16 value as float32, converted once."""
        if id(v) not in self.widened:
            self.widened[id(v)] = (v, self.op("Cast", v, to=FLOAT))  # v is kept alive with its id
        return self.widened[id(v)][1]


PARENT = object()


def function_body(f, attrs, given):
    """A model-local function as a Graph of its own, for a node with these attributes. given: names
    of its inputs that the node has.
    """
    values, missing = {**f.defaults, **attrs}, set(f.inputs) - set(given)

    def nodes_of(nodes):
        out = []
        for n in nodes:
            a = {
                k: values.get(v.name, v) if isinstance(v, AttributeReference) else v
                for k, v in n.attrs.items()
            }
            a = {
                k: inner(v) if isinstance(v, Graph) else v
                for k, v in a.items()
                if not isinstance(v, AttributeReference)
            }
            out.append(
                type(n)(
                    n.op,
                    ["" if i in missing else i for i in n.inputs],
                    n.outputs,
                    a,
                    n.domain,
                    n.name,
                )
            )
        return out

    def inner(g):
        return Graph(g.name, nodes_of(g.nodes), g.inputs, g.outputs, g.constants, g.value_info)

    return Graph(
        f.name,
        nodes_of(f.nodes),
        [Info(i) for i in f.inputs if i not in missing],
        [Info(o) for o in f.outputs],
    )


def prepared(graph, inner=False):
    """Once per graph: nodes in an order that can be run, and its constants as {name: Value}, which
    all bindings share.
    """
    if graph.values is None:
        values = {
            name: Value(name, t.dtype, t.shape, tensor=_inner(t, name) if inner else t)
            for name, t in graph.constants.items()
        }
        nodes = []
        for n in _sorted(graph.nodes, {i.name for i in graph.inputs} | set(values)):
            if n.op == "Constant" and n.domain == "":
                if n.outputs and n.outputs[0]:
                    values[n.outputs[0]] = _constant_node(n)
            else:
                nodes.append(n)
        graph.nodes, graph.values = nodes, values
    return graph.values


def _sorted(nodes, given=()):
    """The nodes as they stand if that order can be run, else sorted; a cycle, or a value computed
    twice or given and computed, is an error.
    """
    names = [o for n in nodes for o in n.outputs if o]
    produced = set(names)
    if len(names) != len(produced):
        counts = {}
        for o in names:
            counts[o] = counts.get(o, 0) + 1
        twice = next(o for o, c in counts.items() if c > 1)
        raise ModelError(
            f"two nodes compute '{twice}'", "graph", "The graph is broken; export it again."
        )
    clash = next((n for n in nodes for o in n.outputs if o in given), None)
    if clash is not None:
        raise ModelError(
            "it computes a value that is an input or a constant already",
            clash.where,
            "The graph is broken; export it again.",
        )
    seen = set()
    for n in nodes:
        if any(i in produced and i not in seen for i in n.inputs):
            break
        seen.update(n.outputs)
    else:
        return nodes
    by_output = {o: n for n in nodes for o in n.outputs if o}
    needs = {id(n): {id(by_output[i]) for i in n.inputs if i in by_output} for n in nodes}
    waiting, readers = {k: len(v) for k, v in needs.items()}, {}
    for n in nodes:
        for p in needs[id(n)]:
            readers.setdefault(p, []).append(n)
    ready, out = [n for n in nodes if not waiting[id(n)]], []
    while ready:
        n = ready.pop()
        out.append(n)
        for r in readers.get(id(n), []):
            waiting[id(r)] -= 1
            if not waiting[id(r)]:
                ready.append(r)
    if len(out) != len(nodes):
        stuck = next(n for n in nodes if waiting[id(n)])
        raise ModelError(
            "it depends on its own output", stuck.where, "The graph has a cycle; export it again."
        )
    return out


def _constant_node(node):
    a, name = node.attrs, node.outputs[0]
    t = a.get("value", a.get("sparse_value"))
    if isinstance(t, Tensor):
        return Value(name, t.dtype, t.shape, tensor=_inner(t, name))
    for key, dtype, kind in (
        ("value_float", FLOAT, float),
        ("value_int", INT64, int),
        ("value_string", STRING, (str, bytes)),
    ):
        for many in (False, True):
            value = a.get(key + "s" * many)
            if value is None:
                continue
            numbers = value if many else [value]
            if not isinstance(numbers, list) or not all(isinstance(x, kind) for x in numbers):
                raise ModelError(
                    f"its attribute '{key}{'s' * many}' is of the wrong kind"
                    f" ({type(value).__name__})",
                    node.where,
                    "The file is damaged or not valid ONNX; export it again.",
                )
            shape = [len(numbers)] if many else []
            if dtype == STRING:
                return Value(
                    name,
                    STRING,
                    shape,
                    tensor=Tensor(name, STRING, tuple(shape), strings=list(numbers)),
                )
            return Value(name, dtype, shape, numbers=list(numbers))
    raise UnsupportedOp(
        "its value is of a kind that cannot be read (sparse)",
        node.where,
        "Export the model without it.",
    )


def _inner(t, name):
    """A constant of a node or subgraph under a name that is its own: branches reuse names, weights
    are stored by name.
    """
    if t.strings is not None:
        return t
    return Tensor(
        f"{name}@{t.offset}" if t.source is not None else f"{name}@{zlib.crc32(t.data):x}",
        t.dtype,
        t.shape,
        t.source,
        t.offset,
        t.nbytes,
        t.data,
    )


def product_most(dims):
    """Elements of such a shape at most; sizes of 0 count as 1, since no array library takes a shape
    like [0, 1 << 62].
    """
    n = 1
    for d in dims:
        n *= most(d) or 1
        if n > 1 << 62:
            return 1 << 62
    return n

"""Binding: a Graph with concrete shapes becomes a BoundGraph, in which every tensor has an element
type and a shape.

Shape arithmetic is evaluated, model-local functions and `If` with a known condition are inlined,
composite ops are replaced by what they are made of, and half precision is widened: stored as half,
computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from ...errors import InputError, ModelError, UnsupportedOp
from ..declare.dtypes import BOOL, FLOAT
from ..declare.symbolic import NeedsHost, Sym
from ..declare.values import Nothing, is_plain
from ..declare.values import Sequence as SequenceValue
from ..ir import BROKEN, BoundNode, Graph, Growth, Info, NeedsValue, Node, Value
from ..ops import OPS, declared
from ..session_limits import MAX_NESTING
from .constants import function_body, prepared
from .graph import BoundGraph
from .jumps import bind_branches, bind_repetition
from .nodes import NodeBinder
from .operators import REMEDY, operator_name
from .rounding import HALF, rounded_casts

FILE_INPUTS = declared("file_inputs")  # passes give these ops more inputs
Scope = dict[Any, Any]  # {name: Value; PARENT: the scope around it}
PARENT = object()


class BindOptions(TypedDict, total=False):
    """Options of `bind`.

    Attributes:
        roles: {input name: "cache"} marks inputs that are stored in a cache with more capacity,
            {input name: "kept"} those that the next run of a sequence gets from this one.
        outputs: names to compute; default: all.
        computed: {input name: function(binder) -> Value} of inputs that the plan computes itself
            instead of being fed.
        float_outputs: whether outputs that the file declares as float16 stay float32.
        trainable: names of constants that are parameters: states of the bound graph (float32),
            which runs may change.
        training: whether Dropout is active; its random numbers follow from an input `seed`, int64
            [1].
        run_seed: whether the caller gives each run a seed, int64 [1], in an input RUN_SEED. The
            input is there only where a node needs random numbers.
        max_bytes: most bytes of a tensor, for ops whose binding takes long for large ones; None:
            any.
        jumps: whether the plan may have loops and branches.
    """

    roles: Mapping[str, str] | None
    outputs: Sequence[str] | None
    computed: Mapping[str, Callable[[Binder], Value]] | None
    float_outputs: bool
    trainable: Sequence[str]
    training: bool
    run_seed: bool
    max_bytes: int | None
    jumps: bool


def bind(
    graph: Graph,
    shapes: Mapping[str, Sequence[int | Sym]],
    dtypes: Mapping[str, int] | None = None,
    known: Mapping[str, Sequence[Any]] | None = None,
    **options: Unpack[BindOptions],
) -> BoundGraph:
    """Makes a BoundGraph.

    Args:
        graph: the model.
        shapes: {input name: shape}, for every input.
        dtypes: {input name: ONNX code} where the file does not say.
        known: {value name: flat numbers} of inputs and inner values that are fixed; of an input
            also a Growth.
        options: see BindOptions.

    Raises:
        ModelError, UnsupportedOp: with the node.
        InputError: an input has no shape, or a parameter does not exist.
        NeedsValue: a shape depends on a value that only a run can tell.
        NeedsHost: a node is none that plans compute.
        NotStatic: a shape depends on a register in a way that a plan cannot express.
    """
    binder = Binder(graph, shapes, dtypes or {}, known or {}, options)
    return binder.run(options.get("outputs"), options.get("float_outputs", False))


class Binder(NodeBinder):
    """Binds the nodes of a graph and of its functions and subgraphs.

    Attributes:
        scope: {name: Value} of the graph.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, Sequence[int | Sym]],
        dtypes: Mapping[str, int],
        known: Mapping[str, Sequence[Any]],
        options: BindOptions,
    ) -> None:
        super().__init__(
            graph,
            known,
            options.get("training", False),
            options.get("run_seed", False),
            options.get("max_bytes"),
        )
        self.jumps = options.get("jumps", False)
        self.scope: Scope = {}
        self._here = self.scope  # of the (sub)graph whose node is being bound
        self._rounding: dict[str, int] = {}  # casts of that graph that round: rounded_casts
        roles, computed = options.get("roles") or {}, options.get("computed") or {}
        for info in graph.input_names():
            if info.kind != "tensor":
                raise UnsupportedOp(
                    f"its type is {info.kind}",
                    f"input '{info.name}'",
                    "Edgewise takes tensors as inputs.",
                )
            if info.name not in computed:
                self._bind_input(info, shapes, dtypes, roles.get(info.name, "input"))
        self.scope.update(prepared(graph))
        for name in options.get("trainable", ()):
            self.scope[name] = self._parameter(name)
        for name, make in computed.items():
            self.scope[name] = make(self)

    def _bind_input(
        self,
        info: Info,
        shapes: Mapping[str, Sequence[int | Sym]],
        dtypes: Mapping[str, int],
        role: str,
    ) -> None:
        if info.name not in shapes:
            raise InputError("its shape is not given", f"input '{info.name}'", "Feed every input.")
        dtype: Any = info.dtype or dtypes.get(info.name)
        value = Value(info.name, dtype, shapes[info.name], role=role)
        known = self.known.get(info.name)
        if isinstance(known, Growth):
            value.growth = known
        elif known is not None:
            value.numbers = list(known)
        self.bound.inputs[info.name] = value
        self.scope[info.name] = self.widen_input(value)

    def _parameter(self, name: str) -> Value:
        constant = (self.graph.values or {}).get(name)
        if constant is None or constant.dtype not in (FLOAT, *HALF):
            raise InputError(
                (
                    "it is not a float32 or float16 initializer"
                    if constant is not None
                    else "the model has no initializer of this name"
                ),
                f"parameter '{name}'",
                "`edgewise inspect --parameters` lists a model's parameters.",
            )
        return self.bound.state(name, FLOAT, constant.shape)

    # ---- graphs
    def run(self, outputs: Sequence[str] | None, float_outputs: bool) -> BoundGraph:
        """Binds the whole graph.

        Args:
            outputs: names to compute; None: all.
            float_outputs: as of BindOptions.
        """
        self._block(self.graph, self.scope)
        declared_outputs = {o.name: o for o in self.graph.outputs}
        for name in declared_outputs if outputs is None else outputs:
            if name not in self.scope:
                raise ModelError(
                    "no node computes it", f"output '{name}'", "Export the model again."
                )
            v = self.scope[name]
            if not is_plain(v):
                raise NeedsHost(next((n for n in self.graph.nodes if name in n.outputs), None))
            info = declared_outputs.get(name)
            if float_outputs:
                v = self.widen(v) if v.dtype in HALF else v
            elif info is not None and info.dtype in HALF and v.dtype == FLOAT:
                v = v if _is_cache(v) else self.narrow(v, info.dtype)
            self.bound.outputs[name] = v
        return self.bound.prune()

    def inline(self, graph: Any, values: Mapping[str, Value]) -> dict[str, Value]:
        """Binds another graph, with its own opsets and functions, after all other nodes.

        Args:
            graph: the other graph.
            values: {name of an input: Value}.

        Returns:
            {name of an output: Value}
        """
        around = self.graph, self.opsets
        self.graph, self.opsets = graph, graph.opsets
        try:
            inner: Scope = {**values, **prepared(graph, inner=True)}
            self._block(graph, inner)
            outs = {o.name: _lookup(o.name, inner) for o in graph.outputs}
        finally:
            self.graph, self.opsets = around
        missing = next((n for n, v in outs.items() if v is None), None)
        if missing is not None:
            raise ModelError(
                "no node computes it", f"output '{missing}'", "Export the model again."
            )
        return outs

    def body(self, graph: Graph, node: BoundNode, *values: Value) -> list[Value]:
        """Binds a subgraph of the node that is being bound.

        Args:
            graph: the subgraph, an attribute of the node.
            node: the node.
            values: the subgraph's inputs.

        Returns:
            its outputs
        """
        here = self._here
        if len(values) != len(graph.inputs):
            raise ModelError(
                f"the subgraph '{graph.name}' takes {len(graph.inputs)} inputs, not {len(values)}",
                node.where,
                "Export the model again.",
            )
        inputs = {i.name: v for i, v in zip(graph.inputs, values)}
        outs = self._subgraph(graph, here, node.where, inputs)
        self._here = here
        return outs

    def _subgraph(
        self, graph: Graph, scope: Scope, where: str, values: Mapping[str, Value]
    ) -> list[Value]:
        self._enter("subgraphs", where)
        inner: Scope = {PARENT: scope, **values}
        inner.update(prepared(graph, inner=True))
        self._block(graph, inner)
        outs = []
        for o in graph.outputs:
            v = _lookup(o.name, inner)
            if v is None:
                raise ModelError(
                    f"its branch does not compute '{o.name}'", where, "Export the model again."
                )
            outs.append(v)
        self.depth -= 1
        return outs

    def call_function(
        self, node: BoundNode, inputs: Sequence[Value | None], outputs: Sequence[str]
    ) -> list[Any]:
        f = self.graph.functions.get((node.domain, node.op))
        if f is None:
            raise UnsupportedOp(
                f"the operator {operator_name(node.domain, node.op, node.opset)} is not supported",
                node.where,
                REMEDY,
            )
        self._enter("functions", node.where)
        inner: Scope = {name: v for name, v in zip(f.inputs, inputs) if v is not None}
        body = function_body(f, node.attrs, inner)
        inner.update(prepared(body, inner=True))
        around, self.opsets = self.opsets, {**self.graph.opsets, **f.opsets}
        try:
            self._block(body, inner)
        finally:
            self.opsets = around
        self.depth -= 1
        return [_lookup(o, inner) for o in f.outputs]

    def lookup(self, name: str, scope: Scope) -> Any:
        """The value of a name in a scope or around it; None where there is none."""
        return _lookup(name, scope)

    def _enter(self, what: str, where: str) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ModelError(f"{what} nested too deeply", where, "Export the model again.")

    # ---- nodes of graphs
    def _block(self, graph: Graph, scope: Scope) -> None:
        """Binds the nodes of a (sub)graph or function body, whose constants are in scope."""
        outermost = not self.depth
        around, self._rounding = (
            self._rounding,
            rounded_casts(graph, self.bound.inputs if outermost else {}),
        )
        for node in graph.nodes:
            try:
                self._graph_node(node, scope)
            except (NeedsValue, NeedsHost) as e:
                # Callers know the nodes of the graph, not those of branches and functions.
                if outermost:
                    e.node = node
                raise
        self._rounding = around

    def _graph_node(self, node: Node, scope: Scope) -> None:
        """Binds a node of a file and puts its outputs into the scope."""
        inputs = _inputs(node, scope)
        if node.op == "If" and node.domain == "":
            outs: Iterable[Any] = self._if(node, inputs, scope)
        elif self.jumps and node.op in ("Loop", "Scan") and node.domain == "":
            outs = bind_repetition(self, node, inputs, scope)
        elif self._is_for_host(node, inputs):
            outs = self._static(node, inputs)
        else:
            self._check(node, inputs)
            around = self.module, self.origin
            opset = self.opsets.get(node.domain, 1)
            self.module, self.origin, self._here = node.module or around[0], node, scope
            outs = self.node(
                node.op, node.domain, node.name, inputs, node.outputs, node.attrs, opset
            )
            if node.outputs and (to := self._rounding.get(node.outputs[0])):
                outs = [v if _is_cache(v) else self.rounded(v, to) for v in outs]
            self.module, self.origin = around
        for name, v in zip(node.outputs, outs):
            if name:
                scope[name] = v

    def _is_for_host(self, node: Node, inputs: Sequence[Any]) -> bool:
        """Whether no plan computes what a node does."""
        decl = OPS.get((node.domain, node.op))
        if decl is not None and decl.host_only:
            return True
        return not all(map(is_plain, inputs)) and (
            (node.domain, node.op) not in self.graph.functions
        )

    def _check(self, node: Node, inputs: Sequence[Any]) -> None:
        """Raises where a file's node has inputs, attributes or a domain that only passes give."""
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
        if node.domain == "" and "" not in self.opsets:
            raise ModelError(
                f"the model names no version of the operator set that {node.op} belongs to",
                node.where,
                "Export the model again.",
            )

    def _static(self, node: Node, inputs: Sequence[Any]) -> list[Any]:
        """Outputs of a node that no plan computes, where all that it depends on is known."""
        decl = OPS.get((node.domain, node.op))
        if (
            decl is None
            or not decl.static
            or not all(is_plain(v) or isinstance(v, (SequenceValue, Nothing)) for v in inputs)
        ):
            raise NeedsHost(node)
        n = BoundNode(
            node.op,
            node.domain,
            node.name,
            list(inputs),
            [Value(o, 0, ()) if o else None for o in node.outputs],
            node.attrs,
            self.opsets.get("", 1),
            decl,
            self.module,
            node,
        )
        try:
            outs = decl.host_fn(n, self, inputs)  # type: ignore[misc]
        except BROKEN as e:
            raise n.broken(e) from e
        if outs is None:
            raise NeedsHost(node)
        return outs

    def _if(self, node: Node, inputs: Sequence[Any], scope: Scope) -> list[Value]:
        """Outputs of the branch that a known condition chooses."""
        condition = inputs[0] if inputs else None
        if condition is None or condition.dtype != BOOL:
            raise ModelError(
                "its condition is not a bool tensor", node.where, "Export the model again."
            )
        if condition.numbers is None:
            branches = [node.attrs.get(name) for name in ("then_branch", "else_branch")]
            if self.jumps and all(isinstance(g, Graph) for g in branches):
                return bind_branches(self, node, condition, scope, branches)
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
        return self._subgraph(branch, scope, node.where, {})


def _lookup(name: str, scope: Scope | None) -> Any:
    """The value of a name in a scope or around it; None where there is none."""
    while scope is not None:
        if name in scope:
            return scope[name]
        scope = scope.get(PARENT)
    return None


def _inputs(node: Node, scope: Scope) -> list[Any]:
    """Values of a node's inputs, without absent ones at the end."""
    inputs: list[Any] = []
    for name in node.inputs:
        v = _lookup(name, scope) if name else None
        if name and v is None:
            raise ModelError(
                f"its input '{name}' is computed by no node",
                node.where,
                "The graph is broken; export it again.",
            )
        inputs.append(v)
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs


def _is_cache(v: Value) -> bool:
    """Whether a value is a cache, or what a node makes of one."""
    return v.role == "cache" or (
        v.producer is not None
        and any(i is not None and i.role == "cache" for i in v.producer.inputs)
    )

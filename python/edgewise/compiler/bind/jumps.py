"""Binding of If, Loop and Scan as nodes of a plan, whose bodies are bound graphs of their own.

That takes bodies whose shapes are the same in each iteration, and branches that agree on the shapes
of their outputs. A subgraph of other shapes, or with nodes that no plan computes, is run by the
session between plans: everything here that does not fit raises NeedsHost (Loop, Scan) or NeedsValue
(If), and the session's rules say what is wrong with a node that is not valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import EdgewiseError
from ..declare.dtypes import BITS, BOOL, INT64, STRING
from ..declare.symbolic import NeedsHost, NotStatic, Sym, most, product
from ..declare.values import is_plain
from ..ir import Body, BoundNode, Graph, NeedsValue, Node, Repetition, Value
from ..ops import OPS
from .graph import BoundGraph
from .rounding import HALF

if TYPE_CHECKING:
    from .binder import Binder, Scope

FOREVER = (1 << 31) - 1  # iterations of a loop without a number of them; the engine stops before
REFUSALS = (NeedsValue, NeedsHost, NotStatic, EdgewiseError)


def fits_a_plan(node: Node, opset: int) -> bool:
    """Whether a Loop or Scan may fit a plan, as far as its nodes alone tell: no node of its body is
    for the host, and slices are collected only where the body does not decide about their number.
    """
    body = node.attrs.get("body")
    if not isinstance(body, Graph) or node.op == "Scan" and opset < 9:
        return False
    decls = [OPS.get((n.domain, n.op)) for n in body.every_node()]
    if any(d is not None and d.host_only and not (d.static or d.jumps) for d in decls):
        return False
    if node.op == "Scan" or len(body.outputs) <= max(len(node.inputs) - 1, 1):
        return True
    makers = {o: n for n in body.nodes for o in n.outputs}
    name = body.outputs[0].name
    while (maker := makers.get(name)) is not None and maker.op == "Identity" and maker.inputs:
        name = maker.inputs[0]
    return maker is None or maker.op == "Constant" or not maker.inputs


class Around(dict[Any, Any]):
    """The scope around a subgraph, as the subgraph sees it: a value that a node computes becomes an
    input of the subgraph; constants, and numbers that are known, are what they are.

    Attributes:
        outer, inner: the values around the subgraph, and its inputs for them.
    """

    def __init__(self, find: Any) -> None:
        super().__init__()
        self._find = find
        self._found: dict[int, Value] = {}
        self.outer: list[Value] = []
        self.inner: list[Value] = []

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __getitem__(self, name: str) -> Value:
        v = self._find(name)
        if not is_plain(v) or v.dtype == STRING or v.role == "cache":
            raise NeedsHost
        if v.tensor is not None or v.numbers is not None:
            return v
        if id(v) not in self._found:
            inner = Value(v.name, v.dtype, v.shape, constant=v.constant)
            self._found[id(v)] = inner
            self.outer.append(v)
            self.inner.append(inner)
        return self._found[id(v)]


def bind_body(
    binder: Binder, graph: Graph, scope: Scope, where: str, inputs: Sequence[Value]
) -> tuple[Body, list[Value]]:
    """Binds a subgraph as a graph of its own.

    Args:
        binder: of the graph around it.
        graph, scope, where: the subgraph, the scope around it, and its node.
        inputs: Values of its own inputs.

    Returns:
        (the body, values around it that it reads)
    """
    if len(inputs) != len(graph.inputs):
        raise NeedsHost
    around = Around(lambda name: binder.lookup(name, scope))
    kept = binder.bound, binder._widened, binder._here, binder.inside
    binder.bound, binder._widened, binder.inside = BoundGraph(binder), {}, True
    try:
        values = {i.name: v for i, v in zip(graph.inputs, inputs)}
        outs = binder._subgraph(graph, around, where, values)
        for i, v in enumerate(outs):
            if not is_plain(v) or v.dtype == STRING or v.dtype in BITS:
                raise NeedsHost
            binder.bound.outputs[str(i)] = binder.widen(v) if v.dtype in HALF else v
        bound = binder.bound.prune()
    finally:
        binder.bound, binder._widened, binder._here, binder.inside = kept
    return Body(bound, [*inputs, *around.inner]), around.outer


def bind_branches(
    binder: Binder, node: Node, condition: Value, scope: Scope, graphs: Sequence[Any]
) -> list[Any]:
    """Outputs of an If whose condition is known in a run. graphs: the branches.

    Raises:
        NeedsValue: the session has to choose the branch.
    """
    depth = binder.depth
    try:
        if product(condition.shape) != 1:
            raise NeedsHost
        bodies, read = [], []
        for graph in graphs:
            body, outer = bind_body(binder, graph, scope, node.where, [])
            bodies.append(body)
            read += outer
        one, other = ([(v.dtype, list(v.shape)) for v in b.outputs] for b in bodies)
        if one != other or len(one) < len(node.outputs):
            raise NeedsHost
    except REFUSALS:
        binder.depth = depth
        raise NeedsValue(condition) from None
    return _add(binder, node, "Branch", [condition, *read], one, {"bodies": bodies})


def bind_repetition(binder: Binder, node: Node, inputs: Sequence[Any], scope: Scope) -> list[Any]:
    """Outputs of a Loop or a Scan.

    Raises:
        NeedsHost: the session has to run it.
    """
    try:
        if not all(v is None or is_plain(v) for v in inputs):
            raise NeedsHost
        inputs = [binder.widen(v) if v is not None and v.dtype in HALF else v for v in inputs]
        if any(v is not None and (v.dtype in BITS or v.dtype == STRING) for v in inputs):
            raise NeedsHost
        graph = node.attrs.get("body")
        if not isinstance(graph, Graph):
            raise NeedsHost
        bind_node = _loop if node.op == "Loop" else _scan
        return bind_node(binder, node, graph, inputs, scope)
    except NeedsHost as e:
        e.node = node
        raise
    except REFUSALS:
        raise NeedsHost(node) from None


def _loop(
    binder: Binder, node: Node, graph: Graph, inputs: Sequence[Any], scope: Scope
) -> list[Any]:
    limit, condition = (inputs[i] if i < len(inputs) else None for i in range(2))
    carried = list(inputs[2:])
    if any(v is None for v in carried):
        raise NeedsHost
    trips: Any = FOREVER
    if limit is not None:
        if limit.dtype != INT64 or product(limit.shape) != 1:
            raise NeedsHost
        if limit.numbers is not None:
            trips, limit = limit.numbers[0], None
            trips = trips if isinstance(trips, Sym) else min(max(trips, 0), FOREVER)
    if condition is not None:
        if condition.dtype != BOOL or product(condition.shape) != 1:
            raise NeedsHost
        if condition.numbers is not None:
            trips = trips if condition.numbers[0] else 0
            condition = None
    states = [Value(i.name, v.dtype, v.shape) for i, v in zip(graph.inputs[2:], carried)]
    # While the body runs, its condition is true.
    counter = Value("iteration", INT64, [])
    own = [counter, binder.constant(BOOL, [], [True]), *states]
    body, read = bind_body(binder, graph, scope, node.where, own)
    if len(body.outputs) < 1 + len(carried):
        raise NeedsHost
    again, *outs = body.outputs
    if again.dtype != BOOL or product(again.shape) != 1:
        raise NeedsHost
    tested = again.numbers is None or not again.numbers[0]
    stacked = outs[len(carried) :]
    # The number of rows of what is collected has to be known.
    if stacked and (tested or limit is not None or condition is not None or trips == FOREVER):
        raise NeedsHost
    rule = Repetition(trips, len(carried), counter, tested, [], [(0, False)] * len(stacked))
    return _repeat(binder, node, rule, [limit, condition, *carried, *read], body, outs)


def _scan(
    binder: Binder, node: Node, graph: Graph, inputs: Sequence[Any], scope: Scope
) -> list[Any]:
    count = node.attrs.get("num_scan_inputs", 0)
    if binder.opsets.get("", 1) < 9 or any(v is None for v in inputs):
        raise NeedsHost
    if type(count) is not int or not 0 < count <= len(inputs):
        raise NeedsHost
    carried, scanned = list(inputs[:-count]), list(inputs[-count:])
    scans = [
        (_axis(axis, v.rank), back)
        for v, axis, back in zip(
            scanned, _list(node, "scan_input_axes", count), _back(node, "input", count)
        )
    ]
    trips = scanned[0].shape[scans[0][0]]
    if any(v.shape[axis] != trips for v, (axis, _) in zip(scanned, scans)):
        raise NeedsHost
    states = [Value(i.name, v.dtype, v.shape) for i, v in zip(graph.inputs, carried)]
    slices = [
        Value(i.name, v.dtype, [*v.shape[:axis], *v.shape[axis + 1 :]])
        for i, v, (axis, _) in zip(graph.inputs[len(carried) :], scanned, scans)
    ]
    body, read = bind_body(binder, graph, scope, node.where, [*states, *slices])
    outs = body.outputs
    stacked = outs[len(carried) :]
    stacks = [
        (_axis(axis, v.rank + 1), back)
        for v, axis, back in zip(
            stacked,
            _list(node, "scan_output_axes", len(stacked)),
            _back(node, "output", len(stacked)),
        )
    ]
    rule = Repetition(trips, len(carried), None, False, scans, stacks)
    return _repeat(binder, node, rule, [None, None, *carried, *scanned, *read], body, outs)


def _repeat(
    binder: Binder, node: Node, rule: Repetition, inputs: list[Any], body: Body, outs: list[Value]
) -> list[Any]:
    """Adds the node. outs: what the body computes for the outputs."""
    count = rule.carried
    types = [(v.dtype, list(v.shape)) for v in inputs[2 : 2 + count]]
    if types != [(v.dtype, list(v.shape)) for v in outs[:count]] or len(outs) < len(node.outputs):
        raise NeedsHost
    # Without an iteration, what is collected has the shape that the body declares.
    if rule.stacks and not isinstance(rule.trips, Sym) and not rule.trips:
        raise NeedsHost
    if most(rule.trips) > FOREVER:
        raise NeedsHost
    for v, (axis, _) in zip(outs[count:], rule.stacks):
        types.append((v.dtype, [*v.shape[:axis], rule.trips, *v.shape[axis:]]))
    return _add(binder, node, "Repeat", inputs, types, {"bodies": [body], "rule": rule})


def _add(
    binder: Binder,
    node: Node,
    op: str,
    inputs: list[Any],
    types: Sequence[tuple[int, list[Any]]],
    attrs: dict[str, Any],
) -> list[Any]:
    """Adds a node with outputs of these types. Returns them."""
    decl, opset = OPS["edgewise", op], binder.opsets.get("", 1)
    n = BoundNode(op, "edgewise", node.name, inputs, [], attrs, opset, decl, node.module, node)
    n.outputs = binder._outputs(n, node.outputs, types, None)
    for v in n.outputs:
        if v is not None:
            v.constant = False
    binder.bound.nodes.append(n)
    return n.outputs


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise NeedsHost
    return axis % rank


def _list(node: Node, name: str, count: int) -> list[int]:
    values = node.attrs.get(name, [0] * count)
    if (
        not isinstance(values, list)
        or len(values) != count
        or any(type(v) is not int for v in values)
    ):
        raise NeedsHost
    return values


def _back(node: Node, which: str, count: int) -> list[bool]:
    return [bool(v) for v in _list(node, f"scan_{which}_directions", count)]

"""If, Loop and Scan, which the session runs between plans.

An If whose condition is known is bound in place instead (bind/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ...declare.dtypes import FLOAT
from ...declare.op import Op, axis_of, fail, product
from ...declare.values import RunTensor, StringTensor, is_plain, scalar

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, HostContext, Subgraph
    from ...ir import Info

FOREVER = (1 << 63) - 1


def subgraph(node: BoundNode, name: str) -> Subgraph:
    """The subgraph that is the attribute `name`. Raises ModelError where it is missing."""
    graph = node.attrs.get(name)
    if graph is None:
        fail(node, "a subgraph is missing", "Export the model again.")
    return graph


if_ = Op("If")


@if_.host(static=True)
def if_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    (condition,) = node.need(0)
    return run.body(subgraph(node, "then_branch" if condition else "else_branch"))()


constant = Op("Constant")


# Binding turns constants into Values; what remains has no attribute that can be read.
@constant.host(static=True)
def constant_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> NoReturn:
    fail(node, "its value cannot be read")


loop = Op("Loop", jumps=True)


@loop.host
def loop_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """Inputs: the trip count and the condition, both optional, and the carried values.

    The body: (iteration, condition, carried values) -> (condition, carried values, one slice of
    each scan output).
    """
    graph = subgraph(node, "body")
    body, carried = run.body(graph), list(inputs[2:])
    trips = _one(node, 0) if node.has(0) else FOREVER
    condition = scalar(bool(_one(node, 1)) if node.has(1) else True)
    collected: list[list[Any]] = [[] for _ in range(len(graph.outputs) - 1 - len(carried))]
    if len(graph.outputs) < 1 + len(carried) or any(v is None for v in carried):
        fail(
            node,
            f"its body returns {len(graph.outputs)} values for {len(carried)} loop-carried values",
            "Export the model again.",
        )
    i = 0
    while i < trips and condition.numbers[0]:
        run.trip()
        condition, *outs = body(scalar(i), condition, *carried)
        if condition.dtype == -1 or condition.count != 1:
            fail(node, f"its body's condition is {condition}", "Export the model again.")
        carried = outs[: len(carried)]
        for kept, v in zip(collected, outs[len(carried) :]):
            kept.append(v)
        i += 1
    return carried + [
        _stacked(node, run, kept, info)
        for kept, info in zip(collected, graph.outputs[1 + len(carried) :])
    ]


def _one(node: BoundNode, i: int) -> Any:
    """The one number of input i."""
    numbers = node.need(i)
    if len(numbers) != 1:
        fail(node, f"its input {i} is {node.inputs[i]}; a single number is expected")
    return numbers[0]


def _stacked(
    node: BoundNode, run: HostContext, values: list[Any], info: Info
) -> RunTensor | StringTensor:
    """Slices as one tensor.

    Without slices it is empty, of the type and shape that the body declares
    in `info`, with 0 for unknown dimensions.
    """
    if values:
        if not all(isinstance(v, (RunTensor, StringTensor)) for v in values):
            fail(node, f"{values[0]} cannot be a slice of a tensor", "Export the model again.")
        return run.stack(values)
    shape = [0, *(d if isinstance(d, int) and d >= 0 else 0 for d in info.shape or ())]
    return (
        StringTensor(shape, []) if info.dtype == 8 else RunTensor(info.dtype or FLOAT, shape, b"")
    )


scan = Op("Scan", jumps=True)


@scan.host
def scan_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """Inputs: states, then tensors that are scanned along an axis. The body: (states, slices) ->
    (states, slices).
    """
    graph, count = subgraph(node, "body"), node.attr("num_scan_inputs", 0)
    body = run.body(graph)
    if node.opset >= 9:
        return _scan(node, run, graph, body, inputs, count)
    # Opset 8: all tensors begin with a batch dimension; input 0 may give a length for each element
    # of the batch.
    lengths = node.inputs[0] if inputs else None
    inputs = list(inputs[1:])
    if not inputs or any(v is None or not is_plain(v) or not v.rank for v in inputs):
        fail(node, "its inputs are not tensors with a batch dimension")
    batch = inputs[0].shape[0]
    if (
        any(v.shape[0] != batch for v in inputs)
        or lengths is not None
        and list(lengths.shape) != [batch]
        or not 0 < count <= len(inputs)
    ):
        fail(node, f"its inputs {inputs} have different batch sizes")
    columns = [v.rows() for v in inputs]
    out = [
        _scan(
            node,
            run,
            graph,
            body,
            [c[i] for c in columns],
            count,
            lengths.numbers[i] if lengths is not None else None,
        )
        for i in range(batch)
    ]
    if not batch:
        fail(node, "its batch is empty")
    return [run.stack(list(each)) for each in zip(*out)]


def _check_scan(node: BoundNode, graph: Subgraph, inputs: list[Any], count: int) -> None:
    """Raises ModelError where the inputs or the body do not fit."""
    if not 0 < count <= len(inputs) or any(v is None for v in inputs):
        fail(node, f"its num_scan_inputs is {count}, but it has {len(inputs)} inputs")
    states = len(inputs) - count
    if len(graph.outputs) < states:
        fail(
            node,
            f"its body returns {len(graph.outputs)} values for {states} states",
            "Export the model again.",
        )


def _slices(
    node: BoundNode, run: HostContext, scanned: list[Any], length: int | None
) -> tuple[int, int, list[list[Any]]]:
    """(steps, slices along the axis, the slices of each scanned tensor in the order of the steps).
    length: of this element of the batch; None: all.
    """
    count, old = len(scanned), node.opset < 9
    axes = [
        axis_of(node, a, v.rank) for a, v in zip(_list(node, "scan_input_axes", count), scanned)
    ]
    back = _list(node, "directions" if old else "scan_input_directions", count)
    sizes = {v.shape[a] for v, a in zip(scanned, axes)}
    if len(sizes) != 1:
        fail(node, f"it scans {scanned} along axes {axes}, which have different lengths")
    (size,) = sizes
    steps = size if length is None else length
    if not 0 <= steps <= size:
        fail(node, f"its sequence length is {steps}; 0 to {size} is expected")
    rows = []
    for v, a, reverse in zip(scanned, axes, back):
        if a:
            v = run.op("Transpose", v, perm=[a, *(i for i in range(v.rank) if i != a)])
        slices = v.rows()[:steps]
        rows.append(slices[::-1] if reverse else slices)
    return steps, size, rows


def _scan(
    node: BoundNode,
    run: HostContext,
    graph: Subgraph,
    body: Callable[..., list[Any]],
    inputs: list[Any],
    count: int,
    length: int | None = None,
) -> list[Any]:
    """One scan.

    Args:
        graph: the body; body: the function that runs it.
        inputs: states, then `count` tensors to scan.
        length: how many steps there are; None: as many as there are slices.
    """
    _check_scan(node, graph, inputs, count)
    states, scanned = list(inputs[:-count]), list(inputs[-count:])
    outs = len(graph.outputs) - len(states)
    out_axes, out_back = (
        _list(node, "scan_output_axes", outs),
        _list(node, "scan_output_directions", outs),
    )
    steps, size, rows = _slices(node, run, scanned, length)
    collected: list[list[Any]] = [[] for _ in range(outs)]
    for i in range(steps):
        run.trip()
        got = body(*states, *[r[i] for r in rows])
        states = got[: len(states)]
        for kept, v in zip(collected, got[len(states) :]):
            kept.append(v)
    result = []
    for kept, axis, reverse, info in zip(
        collected, out_axes, out_back, graph.outputs[len(states) :]
    ):
        if kept and steps < size:  # zeros after the end of a shorter sequence
            zeros = RunTensor(kept[0].dtype, kept[0].shape, bytes(kept[0].nbytes))
            kept += [zeros] * (size - steps)
        y = _stacked(node, run, kept[::-1] if reverse else kept, info)
        axis = axis_of(node, axis, y.rank)
        if axis and product(y.shape):
            y = run.op("Transpose", y, perm=[*range(1, axis + 1), 0, *range(axis + 1, y.rank)])
        result.append(y)
    return states + result


def _list(node: BoundNode, name: str, count: int) -> list[int]:
    """An attribute with one number for each of `count` tensors; zeros where it is absent."""
    values = node.attr(name, [0] * count)
    if len(values) != count or any(type(v) is not int for v in values):
        fail(
            node,
            f"its attribute '{name}' is {values}, for {count} tensors",
            "Export the model again.",
        )
    return values

"""VarlenCausalConvWithState: the causal convolution of requests whose tokens stand one after the
other, without padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT32, INT64
from ...declare.op import MS, Op, fail, takes, unsupported
from ..attention.attention_kernel import shaped
from .slicing import counted, cut, owners

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Dim, Value

MAX_UPDATES = 8

convolution = Op("VarlenCausalConvWithState", MS, parameters=(1, 3))


def _checked(node: BoundNode) -> tuple[Dim, int, int]:
    """(requests, positions of the state, slots of state_update), once the node is valid."""
    x, w, ends, _, state, _ = [*node.inputs, *[None] * 6][:6]
    takes(node, (FLOAT,), 0, 1, 3, 4)
    activation, dilation = node.attr("activation", "none"), node.attr("dilation", 1)
    if activation not in ("none", "silu", "swish"):
        unsupported(node, f"the activation {activation!r}")
    if x.rank != 2 or w.rank != 3 or w.shape[1] != 1 or w.shape[2] < 1 or dilation < 1:
        fail(node, f"{x} and the kernel {w} with a dilation of {dilation} are incompatible")
    if w.shape[0] != x.shape[1]:
        fail(node, f"{x} and the kernel {w} have different numbers of channels")
    if ends.dtype != INT32 or ends.rank != 1 or ends.shape[0] < 2:
        fail(node, f"its cumulative lengths are {ends}; int32 [requests + 1] is expected")
    if state is None:
        fail(node, "its initial_state is missing", "Export the model again.")
    batch, kept = ends.shape[0] - 1, (w.shape[2] - 1) * dilation
    shaped(node, 3, "bias", w.shape[0])
    shaped(node, 4, "initial_state", batch, w.shape[0], kept)
    shaped(node, 5, "capture_count", batch)
    slots = node.attr("state_update_capacity", 0)
    if not 0 <= slots <= MAX_UPDATES or bool(slots) != node.has(5):
        fail(
            node,
            f"its state_update_capacity is {slots}, and its capture_count {node.input(5)}; 0"
            f" without a count or 1 to {MAX_UPDATES} with one is expected",
            "Export the model again.",
        )
    return batch, kept, slots


@convolution.decompose
def convolution_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The tokens that each kernel tap reads, from the state or from the request itself, times the
    tap; the state after each request; the tokens of the updates.
    """
    batch, kept, slots = _checked(node)
    op = graph.op
    x, w, ends, bias, state, captured = [*node.inputs, *[None] * 6][:6]
    (tokens, channels), taps = x.shape, w.shape[2]
    ends = op("Cast", ends, to=INT64)
    starts = cut(graph, ends, 0, 0, batch)
    lengths = op("Sub", cut(graph, ends, 0, 1, batch + 1), starts)
    # rows of the states of all requests, then of all tokens
    states = graph.reshape(op("Transpose", state, perm=[0, 2, 1]), [batch * kept, channels])
    rows = op("Concat", states, x, axis=0)

    def places(request: Value, local: Value) -> Value:
        """The rows of positions within requests; those before a request are in its state."""
        own = op("Add", op("Gather", starts, request), op("Add", local, number(batch * kept)))
        before = op("Add", op("Mul", request, number(kept)), op("Add", local, number(kept)))
        return op("Where", op("Less", local, number(0)), before, own)

    def number(n: Dim) -> Value:
        return graph.constant(INT64, [], [n])

    request = owners(graph, ends, tokens)
    local = op("Sub", counted(graph, tokens), op("Gather", starts, request))
    dilation = node.attr("dilation", 1)
    offsets = graph.constant(INT64, [taps], [(i - taps + 1) * dilation for i in range(taps)])
    request, local = (graph.reshape(v, [tokens, 1]) for v in (request, local))
    read = op("Gather", rows, places(request, op("Add", local, offsets)))
    kernel = op("Transpose", graph.reshape(w, [channels, taps]), perm=[1, 0])
    y = op("ReduceSum", op("Mul", read, kernel), graph.ints([1]), keepdims=0)
    y = op("Add", y, bias) if bias is not None else y
    if node.attr("activation", "none") != "none":
        y = op("Mul", y, op("Sigmoid", y))
    each = graph.reshape(counted(graph, batch), [batch, 1])
    last = op("Add", graph.reshape(lengths, [batch, 1]), counted(graph, kept))
    after = op("Gather", rows, places(each, op("Sub", last, number(kept))))
    outs = [y, op("Transpose", after, perm=[0, 2, 1])]
    if node.wants(2):
        if not slots:
            fail(node, "state_update is an output, but state_update_capacity is 0")
        slot = counted(graph, slots)
        count = graph.reshape(op("Min", op("Cast", captured, to=INT64), lengths), [batch, 1])
        taken = op("Less", slot, count)
        first = op("Where", taken, places(each, slot), number(0))
        zero = graph.constant(FLOAT, [], [0.0])
        outs.append(
            op("Where", graph.reshape(taken, [batch, slots, 1]), op("Gather", rows, first), zero)
        )
    return outs[: len(node.outputs)]

"""Gradient checkpointing: activations are computed again in the backward pass instead of being kept
(Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost).

The forward part is cut into segments where little crosses the cut (in a transformer: the residual
stream between two layers). What crosses is kept. What the backward pass needs from inside a segment
is computed again, directly before the first node that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..declare.dtypes import bytes_for
from ..declare.symbolic import product
from ..ir import BoundNode, Value

if TYPE_CHECKING:
    from ..bind import BoundGraph


def recompute(bound: BoundGraph, last: Value, segments: int) -> BoundGraph:
    """Recomputes activations.

    Args:
        bound: a graph with gradients.
        last: the value that the forward part ends in (the loss).
        segments: number of segments of the forward part; 1 changes nothing.

    Returns:
        bound
    """
    forward, backward = _parts(bound, last)
    cuts = _cuts(forward, segments)
    if not cuts:
        return bound
    segmented = _ForwardSegments(forward, cuts)
    for n in backward:
        n.inputs = [segmented.again(v) if v is not None else None for v in n.inputs]
        segmented.nodes.append(n)
    bound.nodes = forward + segmented.nodes
    return bound


def _parts(bound: BoundGraph, last: Value) -> tuple[list[BoundNode], list[BoundNode]]:
    """(nodes of the forward part, nodes of the backward part)"""
    end = next(i for i, n in enumerate(bound.nodes) if any(o is last for o in n.outputs)) + 1
    return bound.nodes[:end], bound.nodes[end:]


class _ForwardSegments:
    """The segments of the forward part.

    Attributes:
        nodes: the backward part so far, with the nodes that compute activations again.
    """

    def __init__(self, forward: list[BoundNode], cuts: list[int]) -> None:
        self.nodes: list[BoundNode] = []
        self._segment_of: dict[int, int] = {}
        self._made_by: dict[int, BoundNode] = {}
        self._crossing: set[int] = set()  # values that a later segment reads: they are kept
        self._copies: dict[int, tuple[Value, Value]] = {}  # keeps values alive with their id
        self._final = len(cuts)  # values of the last segment were computed just before
        for i, n in enumerate(forward):
            s = sum(1 for c in cuts if c <= i)
            for v in n.inputs:
                if v is not None and self._segment_of.get(id(v), s) < s:
                    self._crossing.add(id(v))
            for o in n.outputs:
                if o is not None:
                    self._segment_of[id(o)], self._made_by[id(o)] = s, n

    def again(self, v: Value) -> Value:
        """A value computed again; itself where it is kept."""
        if not self._is_inner(v, self._segment_of.get(id(v))):
            return v
        stack = [] if id(v) in self._copies else [self._made_by[id(v)]]
        while stack:
            n = stack[-1]
            segment = self._segment_of[id(v)]
            missing = [
                self._made_by[id(i)]
                for i in n.inputs
                if i is not None and self._is_inner(i, segment) and id(i) not in self._copies
            ]
            if missing:
                stack += missing
                continue
            stack.pop()
            if not any(o is not None and id(o) in self._copies for o in n.outputs):
                self._copy(n)
        return self._copies[id(v)][1]

    def _is_inner(self, v: Value, segment: int | None) -> bool:
        """Whether a value belongs to this segment alone, so that it is computed again."""
        return (
            segment is not None
            and segment != self._final
            and self._segment_of.get(id(v)) == segment
            and id(v) not in self._crossing
            and not v.constant
        )

    def _copy(self, n: BoundNode) -> None:
        inputs = [
            self._copies[id(i)][1] if i is not None and id(i) in self._copies else i
            for i in n.inputs
        ]
        outputs = [_copy_of(o) if o is not None else None for o in n.outputs]
        copy = BoundNode(
            n.op, n.domain, n.name, inputs, list(outputs), n.attrs, n.opset, n.decl, "", n.origin
        )
        for o, c in zip(n.outputs, outputs):
            if o is not None and c is not None:
                c.producer = copy
                self._copies[id(o)] = (o, c)
        self.nodes.append(copy)


def _copy_of(v: Value) -> Value:
    return Value(v.name + "~again", v.dtype, v.shape)


def _cuts(forward: list[BoundNode], segments: int) -> list[int]:
    """Positions before which to cut, so that little crosses and the activations of all segments
    have similar sizes.
    """
    if segments < 2 or len(forward) < 2 * segments:
        return []
    crossing, weight, total = _crossing_bytes(forward)
    # Nothing crosses after nodes that only compute constants: that is no place to cut.
    middle = crossing[len(forward) // 8 : -len(forward) // 8]
    least = min((c for c in middle if c), default=0)
    good = [i for i in range(1, len(forward)) if 0 < crossing[i] <= 1.25 * least]
    cuts: list[int] = []
    for k in range(1, segments):
        goal = total * k / segments
        best = min(good, key=lambda i: abs(weight[i] - goal), default=None)
        if best is not None and best not in cuts:
            cuts.append(best)
    return sorted(cuts)


def _crossing_bytes(forward: list[BoundNode]) -> tuple[list[int], list[int], int]:
    """(bytes that live across a cut before each node, bytes of activations before each node, bytes
    of all activations)
    """
    size = {
        id(o): bytes_for(o.dtype, product(o.shape))
        for n in forward
        for o in n.outputs
        if o is not None and not o.constant
    }
    last: dict[int, int] = {}  # {value: the last node that reads it}
    for i, n in enumerate(forward):
        for v in n.inputs:
            if v is not None and id(v) in size:
                last[id(v)] = i
    alive = total = 0
    freed: dict[int, int] = {}  # {node: bytes that it reads last}
    crossing: list[int] = []
    weight: list[int] = []
    for i, n in enumerate(forward):
        crossing.append(alive)
        weight.append(total)
        for o in n.outputs:
            if o is not None and id(o) in last:
                alive += size[id(o)]
                total += size[id(o)]
                freed[last[id(o)]] = freed.get(last[id(o)], 0) + size[id(o)]
        alive -= freed.get(i, 0)
    return crossing, weight, total


# Ops that take one pass over memory.
CHEAP = {
    "Gelu",
    "FastGelu",
    "QuickGelu",
    "SiLU",
    "Relu",
    "Tanh",
    "Sigmoid",
    "SiLUMul",
    "GeluMul",
    "GeluTanhMul",
    "LayerNormalization",
    "RMSNormalization",
    "SimplifiedLayerNormalization",
    "Dropout",
    "Cast",
    "Mul",
}


def recompute_cheap(bound: BoundGraph, last: Value) -> BoundGraph:
    """Recomputes the outputs of cheap ops (activations, norms) from values that are kept anyway.

    The output of such a node is kept for the weight gradient after it, its input for its own
    gradient; one of them is enough. Nodes stay as they are where the backward part would not need
    their inputs otherwise, or where only the backward part reads them.

    Args:
        bound: a graph with gradients.
        last: the value that the forward part ends in (the loss).

    Returns:
        bound
    """
    forward, backward = _parts(bound, last)
    again = _cheap_nodes(forward, backward)
    backward = _along_with_gradients(backward, again)
    rest: list[BoundNode] = []
    copies: dict[int, Value] = {}
    for n in backward:
        for i, v in enumerate(n.inputs):
            if v is None or id(v) not in again:
                continue
            if id(v) not in copies:
                copies[id(v)] = out = _copy_of(v)
                s = again[id(v)]
                inputs = list(s.inputs)
                out.producer = BoundNode(
                    s.op, s.domain, s.name, inputs, [out], s.attrs, s.opset, s.decl, "", s.origin
                )
                rest.append(out.producer)
            n.inputs[i] = copies[id(v)]
        rest.append(n)
    bound.nodes = forward + rest
    return bound


def _cheap_nodes(forward: list[BoundNode], backward: list[BoundNode]) -> dict[int, BoundNode]:
    """{id of a value: its node} for the values computed again from kept values."""
    made = {id(o) for n in forward for o in n.outputs if o is not None}
    needed = {id(v) for n in backward for v in n.inputs if v is not None and id(v) in made}
    again: dict[int, BoundNode] = {}
    for n in forward:
        o = n.outputs[0]
        if (
            n.op in CHEAP
            and o is not None
            and id(o) in needed
            and not o.constant
            and all(x is None for x in n.outputs[1:])
            and all(
                v is None or v.fixed or v.role == "input" or id(v) in needed and id(v) not in again
                for v in n.inputs
            )
        ):
            again[id(o)] = n
    return again


def _along_with_gradients(
    backward: list[BoundNode], again: dict[int, BoundNode]
) -> list[BoundNode]:
    """Lets nodes that compute gradients of gated activations give these activations, too.

    Nodes that read an activation move after the node that gives it.

    Args:
        backward: the backward part.
        again: {id of a value: its node} for the values computed again; removes the given ones.

    Returns:
        the backward part
    """
    for step in [n for n in backward if n.op == "GatedGrad"]:
        found = next(
            (
                k
                for k, n in again.items()
                if n.op == step.attrs["of"]
                and all(x is y for x, y in zip(n.inputs, step.inputs[1:]))
            ),
            None,
        )
        if found is None:
            continue
        at, value = backward.index(step), again[found].outputs[0]
        early: list[BoundNode] = []
        late: list[BoundNode] = []
        after = {found}
        for n in backward[:at]:
            reads = any(v is not None and id(v) in after for v in n.inputs)
            (late if reads else early).append(n)
            after.update(id(o) for o in n.outputs if reads and o is not None)
        if any(id(v) in after for v in step.inputs):
            continue  # the gradient itself reads it
        del again[found]
        step.outputs[2] = _copy_of(value)
        step.outputs[2].producer = step
        backward = [*early, step, *late, *backward[at + 1 :]]
        for n in backward:
            n.inputs = [step.outputs[2] if v is value else v for v in n.inputs]
    return backward

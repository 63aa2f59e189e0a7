"""Gradient checkpointing: activations are computed again in the backward pass instead of being kept
(Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost).

The forward part is cut into segments where little crosses the cut (in a transformer: the residual
stream between two layers). What crosses is kept; what the backward pass wants from inside a segment
is computed again, right before the first node that wants it.
"""

from __future__ import annotations

from ..declare.dtypes import bytes_for
from ..declare.symbolic import product
from ..ir import BoundNode, Value


def recompute(bound, last, segments):
    """Recomputes activations.

    Args:
        bound: BoundGraph with gradients. last: the Value that the forward part ends in (the loss).
        segments: into how many the forward part is cut; 1 changes nothing.
    Returns:
        bound
    """
    end = next(i for i, n in enumerate(bound.nodes) if any(o is last for o in n.outputs)) + 1
    forward, backward = bound.nodes[:end], bound.nodes[end:]
    cuts = _cuts(forward, segments)
    if not cuts:
        return bound
    segment_of, made_by = {}, {}
    for i, n in enumerate(forward):
        s = sum(1 for c in cuts if c <= i)
        for o in n.outputs:
            if o is not None:
                segment_of[id(o)], made_by[id(o)] = s, n
    final = len(cuts)  # the last segment's values were computed a moment ago
    crossing = set()  # values that a later segment reads: they are kept
    for i, n in enumerate(forward):
        s = sum(1 for c in cuts if c <= i)
        crossing.update(id(v) for v in n.inputs if v is not None and segment_of.get(id(v), s) < s)
    copies = {}

    def again(v, out):
        """The recomputed twin of a value; nodes that compute it are added to `out`."""
        s = segment_of.get(id(v))
        if s is None or s == final or id(v) in crossing or v.constant:
            return v
        if id(v) in copies:
            return copies[id(v)][1]
        stack = [made_by[id(v)]]
        while stack:
            n = stack[-1]
            wait = [
                made_by[id(i)]
                for i in n.inputs
                if i is not None
                and segment_of.get(id(i)) == s
                and id(i) not in crossing
                and id(i) not in copies
                and not i.constant
            ]
            if wait:
                stack += wait
                continue
            stack.pop()
            if any(o is not None and id(o) in copies for o in n.outputs):
                continue
            twin = BoundNode(
                n.op,
                n.domain,
                n.name,
                [copies[id(i)][1] if i is not None and id(i) in copies else i for i in n.inputs],
                [],
                n.attrs,
                n.opset,
                n.decl,
            )
            twin.outputs = [
                Value(o.name + "~again", o.dtype, o.shape) if o is not None else None
                for o in n.outputs
            ]
            for o, t in zip(n.outputs, twin.outputs):
                if o is not None:
                    t.producer = twin
                    copies[id(o)] = (o, t)  # o is kept alive with its id
            out.append(twin)
        return copies[id(v)][1]

    rest = []
    for n in backward:
        n.inputs = [again(v, rest) if v is not None else None for v in n.inputs]
        rest.append(n)
    bound.nodes = forward + rest
    return bound


def _cuts(forward, segments):
    """Positions before which to cut, so that little crosses and the segments' activations are of
    like size.
    """
    if segments < 2 or len(forward) < 2 * segments:
        return []
    size = {
        id(o): bytes_for(o.dtype, product(o.shape))
        for n in forward
        for o in n.outputs
        if o is not None and not o.constant
    }
    last = {}
    for i, n in enumerate(forward):
        for v in n.inputs:
            if v is not None and id(v) in size:
                last[id(v)] = i
    alive, dies, crossing, weight, total = 0, {}, [], [], 0
    for i, n in enumerate(forward):
        crossing.append(alive)  # bytes that live across a cut before node i
        weight.append(total)
        for o in n.outputs:
            if o is not None and id(o) in last:
                alive += size[id(o)]
                total += size[id(o)]
                dies.setdefault(last[id(o)], []).append(size[id(o)])
        alive -= sum(dies.get(i, ()))
    least = min(
        (c for c in crossing[len(forward) // 8 : -len(forward) // 8] if c), default=0
    )  # nothing crosses behind what is computed of constants alone: that is no place to cut
    good = [i for i in range(1, len(forward)) if 0 < crossing[i] <= 1.25 * least]
    cuts = []
    for k in range(1, segments):
        want = total * k / segments
        best = min(good, key=lambda i: abs(weight[i] - want), default=None)
        if best is not None and best not in cuts:
            cuts.append(best)
    return sorted(cuts)


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


def recompute_cheap(bound, last):
    """Recomputes what one pass over memory gives (activations, norms) from values that are kept
    anyway.

    What such a node gives is kept for the weight gradient behind it, what goes in for its own: to
    keep one of them is enough. Nodes whose inputs the backward part would otherwise not need stay
    as they are, and so do those that nobody but the backward part reads.
    """
    end = next(i for i, n in enumerate(bound.nodes) if any(o is last for o in n.outputs)) + 1
    forward, backward = bound.nodes[:end], bound.nodes[end:]
    made_by = {id(o): n for n in forward for o in n.outputs if o is not None}
    wanted = {id(v) for n in backward for v in n.inputs if v is not None and id(v) in made_by}
    again = {}
    for n in forward:
        o = n.outputs[0]
        if (
            n.op in CHEAP
            and o is not None
            and id(o) in wanted
            and not o.constant
            and all(x is None for x in n.outputs[1:])
            and all(
                v is None or v.fixed or v.role == "input" or id(v) in wanted and id(v) not in again
                for v in n.inputs
            )
        ):
            again[id(o)] = n
    backward = _along_with_gradients(backward, again)
    rest, twins = [], {}
    for n in backward:
        for i, v in enumerate(n.inputs):
            if v is None or id(v) not in again:
                continue
            if id(v) not in twins:
                source = again[id(v)]
                twin = BoundNode(
                    source.op,
                    source.domain,
                    source.name,
                    list(source.inputs),
                    [Value(v.name + "~again", v.dtype, v.shape)],
                    source.attrs,
                    source.opset,
                    source.decl,
                )
                twin.outputs[0].producer = twin
                twins[id(v)] = twin
                rest.append(twin)
            n.inputs[i] = twins[id(v)].outputs[0]
        rest.append(n)
    bound.nodes = forward + rest
    return bound


def _along_with_gradients(backward, again):
    """The backward part, where the steps that compute gradients of gated activations give what
    those computed, too, and who wants that comes after them.

    again: {id of a value: its node} of what is to be computed again; what is found here leaves it.
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
        early, late, behind = [], [], {found}
        for n in backward[:at]:
            reads = any(v is not None and id(v) in behind for v in n.inputs)
            (late if reads else early).append(n)
            behind.update(id(o) for o in n.outputs if reads and o is not None)
        if any(id(v) in behind for v in step.inputs):
            continue  # the gradient itself wants it
        del again[found]
        step.outputs[2] = Value(value.name + "~again", value.dtype, value.shape)
        step.outputs[2].producer = step
        backward = [*early, step, *late, *backward[at + 1 :]]
        for n in backward:
            n.inputs = [step.outputs[2] if v is value else v for v in n.inputs]
    return backward

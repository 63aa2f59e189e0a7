"""What a profile says of a plan's steps: the node that each comes from, the work it does, the
memory in use while it runs. The engine needs nothing of it.
"""

from __future__ import annotations

from ..declare.dtypes import bytes_for
from ..declare.kernel import evaluate
from ..declare.symbolic import Sym


class StepNotes:
    """Of the steps after the init steps, in order.

    Attributes:
        node, op: names of the node that a step belongs to, and of its operator as it was compiled;
        "" for what no node asked for. operations, bytes: what it computes and what it reads and
        writes, [at the lowest, at the highest values of the registers], between which it grows
        linearly. integer: whether it may multiply bytes instead of floats. in_use: bytes of the
        arena that hold something while it runs.
    """

    def __init__(self, node=(), op=(), operations=(), bytes=(), in_use=(), integer=()):
        self.node, self.op, self.operations, self.bytes, self.in_use, self.integer = (
            list(node),
            list(op),
            list(operations),
            list(bytes),
            list(in_use),
            list(integer),
        )

    def __len__(self):
        return len(self.node)

    @staticmethod
    def of(steps):
        """steps: builder.Step, placed in the arena."""
        n = StepNotes()
        for s in steps:
            n.node.append(
                ""
                if s.label is None
                else s.label.name or next((o.name for o in s.label.outputs if o is not None), "")
            )
            n.op.append("" if s.label is None else s.label.op)
            n.operations.append(_operations(s))
            n.bytes.append(_moved(s))
            n.integer.append(_integer(s))
        n.in_use = _in_use(steps)
        return n


def _operations(step):
    """[at the lowest, at the highest values of the registers]"""
    cost = step.kernel.cost
    if cost is None:
        return [0, 0]
    # Only elementwise kernels, which have no cost, have Syms in lists of dimensions.
    if not any(isinstance(x, Sym) for x in step.params.values()):
        count = evaluate(cost.operations, step.params)
        return [count, count]
    return [evaluate(cost.operations, _at(step.params, end)) for end in ("min", "max")]


def _integer(step):
    cost = step.kernel.cost
    return bool(
        cost is not None and cost.integer and evaluate(cost.integer, _at(step.params, "max"))
    )


def _at(params, end):
    """Parameters at the lowest ("min") or highest ("max") values of the registers."""
    return {k: getattr(x, end) if isinstance(x, Sym) else x for k, x in params.items()}


def _moved(step):
    k, total = step.kernel, [0, 0]
    for o, v in zip(k.operands, step.operands):
        if v is None or o.scratch:
            continue
        if o.touches:
            v = step.operands[k.index[o.touches]]
        low = high = 1
        for d, s in zip(v.shape, v.strides):
            if isinstance(d, Sym):
                low, high = low * d.min, high * d.max
            elif (
                s and d != 1
            ):  # broadcast dimensions are read again from where they were read before
                low, high = low * d, high * d
        times = 2 if o.updated else 1  # read and written
        total[0] += (n := times * bytes_for(v.dtype, low))
        total[1] += n if low == high else times * bytes_for(v.dtype, high)
    return total


def _in_use(steps):
    roots = {}
    for step in steps:
        for v in step.operands:
            if v is not None and v.buffer.kind == "arena":
                b = v.buffer
                while b.owner is not None:
                    b = b.owner
                roots[id(b)] = b
    change = [0] * (len(steps) + 1)
    for b in roots.values():
        change[b.first] += b.nbytes
        change[b.last + 1] -= b.nbytes
    used, out = 0, []
    for c in change[:-1]:
        used += c
        out.append(used)
    return out


# ---- in packages ----


def add_notes(blob, plans):
    """The bytes of a package's part NOTES: those of `blob` (bytes or None) with more plans in it.
    plans: {file: StepNotes}.

    JSON, deflated, which takes a seventh. Names stand there once; pairs that are equal as one
    number.
    """
    import json
    import zlib

    out = json.loads(zlib.decompress(blob)) if blob else {"names": [], "plans": {}}
    place = {name: i for i, name in enumerate(out["names"])}

    def at(name):
        return place.setdefault(name, len(place))

    for file, n in plans.items():
        out["plans"][file] = {
            "node": [at(x) for x in n.node],
            "op": [at(x) for x in n.op],
            "operations": [x[0] if x[0] == x[1] else x for x in n.operations],
            "bytes": [x[0] if x[0] == x[1] else x for x in n.bytes],
            "in_use": n.in_use,
            "integer": [int(x) for x in n.integer],
        }
    out["names"] = list(place)
    return zlib.compress(json.dumps(out, separators=(",", ":")).encode(), 9)


def read_notes(blob):
    """{file: StepNotes} of what add_notes wrote; {} where there is none, or it makes no sense:
    profiles then go without.
    """
    import json
    import zlib

    if not blob:
        return {}
    try:
        root = json.loads(zlib.decompressobj().decompress(bytes(blob), MOST))
        names = root["names"]

        def pair(x):
            return [int(x[0]), int(x[1])] if isinstance(x, list) else [int(x)] * 2

        return {
            file: StepNotes(
                [str(names[i]) for i in p["node"]],
                [str(names[i]) for i in p["op"]],
                [pair(x) for x in p["operations"]],
                [pair(x) for x in p["bytes"]],
                [int(x) for x in p["in_use"]],
                [bool(x) for x in p["integer"]],
            )
            for file, p in root["plans"].items()
        }
    except (
        zlib.error,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ):
        return {}


MOST = 64 << 20  # bytes that a package's notes may unpack to
NOTES = "//notes"  # part of a package: no file of a model is called so

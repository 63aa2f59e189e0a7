"""Notes on the steps of a plan, for profiles: the node that a step belongs to, the operations and
bytes that it takes, and the memory in use while it runs. The engine does not read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..declare.dtypes import bytes_for
from ..declare.kernel import evaluate
from ..declare.symbolic import Sym

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .steps import Step
    from .view import Storage


class StepNotes:
    """Lists with one item for each step after the init steps, in order.

    Attributes:
        node: name of the node that a step belongs to; "" if it belongs to none.
        op: the node's operator as it was compiled; "" if there is no node.
        operations: multiplications and additions of a step as [number at the minimum, number at
            the maximum of the registers]. In between it grows linearly.
        bytes: bytes that a step reads and writes, as `operations`.
        in_use: bytes of the arena that are in use while a step runs.
        integer: whether a step may use integer dot products instead of those of floats.
        endless: whether only data decide how often a loop runs; its steps are noted for one
            iteration.
    """

    endless = False

    def __init__(
        self,
        node: Iterable[str] = (),
        op: Iterable[str] = (),
        operations: Iterable[list[int]] = (),
        bytes: Iterable[list[int]] = (),
        in_use: Iterable[int] = (),
        integer: Iterable[bool] = (),
    ) -> None:
        self.node, self.op, self.operations, self.bytes, self.in_use, self.integer = (
            list(node),
            list(op),
            list(operations),
            list(bytes),
            list(in_use),
            list(integer),
        )

    def __len__(self) -> int:
        return len(self.node)

    @staticmethod
    def of(steps: Sequence[Step]) -> StepNotes:
        """The notes on steps whose buffers have their places in the arena."""
        n, times = StepNotes(), _times(steps)
        n.endless = any(t is None for t in times)
        for s, t in zip(steps, times):
            n.node.append("" if s.label is None else s.label.title)
            n.op.append("" if s.label is None else s.label.op)
            n.operations.append([x * y for x, y in zip(_operations(s), t or (1, 1))])
            n.bytes.append([x * y for x, y in zip(_moved(s), t or (1, 1))])
            n.integer.append(_integer(s))
        n.in_use = _in_use(steps)
        return n


def _times(steps: Sequence[Step]) -> list[tuple[int, int] | None]:
    """How often each step runs at most, at the minimum and the maximum of the registers; None where
    only data decide that.
    """
    out: list[tuple[int, int] | None] = []
    around: list[tuple[int, int] | None] = [(1, 1)]
    tested = {s.params["counter"] for s in steps if s.kernel.jumps == "end" and any(s.operands)}
    for s in steps:
        out.append(around[-1])
        if s.kernel.jumps == "begin":
            now, low, high = (around[-1], *(_at(s.params, end)["trips"] for end in ("min", "max")))
            data = now is None or s.params["counter"] in tested
            around.append(None if now is None or data else (now[0] * low, now[1] * high))
        elif s.kernel.jumps == "end":
            around.pop()
    return out


def _operations(step: Step) -> list[int]:
    """[number at the minimum, number at the maximum of the registers]"""
    cost = step.kernel.cost
    if cost is None:
        return [0, 0]
    return [evaluate(cost.operations, _at(step.params, end)) for end in ("min", "max")]


def _integer(step: Step) -> bool:
    cost = step.kernel.cost
    return bool(
        cost is not None and cost.integer and evaluate(cost.integer, _at(step.params, "max"))
    )


def _at(params: Mapping[str, Any], end: Literal["min", "max"]) -> dict[str, Any]:
    """Parameters at the minimum or the maximum of the registers."""

    def number(x: Any) -> Any:
        return getattr(x, end) if isinstance(x, Sym) else x

    return {
        k: [number(y) for y in x] if isinstance(x, list) else number(x) for k, x in params.items()
    }


def _moved(step: Step) -> list[int]:
    """Bytes that a step reads and writes, as `_operations`."""
    v: Any  # a View: operands that others refer to are present
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
            elif s and d != 1:  # repeated dimensions (stride 0) are read once
                low, high = low * d, high * d
        times = 2 if o.updated else 1  # read and written
        total[0] += (n := times * bytes_for(v.dtype, low))
        total[1] += n if low == high else times * bytes_for(v.dtype, high)
    return total


def _in_use(steps: Sequence[Step]) -> list[int]:
    """Bytes of the arena that are in use during each step."""
    roots: dict[int, Storage] = {}
    for step in steps:
        for v in step.operands:
            if v is not None and v.buffer.kind == "arena":
                b = v.buffer
                while b.owner is not None:
                    b = b.owner
                roots[id(b)] = b
    change = [0] * (len(steps) + 1)
    for b in roots.values():
        # Buffers that steps use have a first and a last step.
        change[b.first] += b.nbytes  # type: ignore[index]
        change[b.last + 1] -= b.nbytes  # type: ignore[operator]
    used, out = 0, []
    for c in change[:-1]:
        used += c
        out.append(used)
    return out


# ---- in packages ----


def add_notes(blob: bytes | None, plans: Mapping[str, StepNotes]) -> bytes:
    """Adds the notes on plans to a package's part NOTES.

    The part is JSON, compressed by zlib to about a seventh. Each name is stored once, and a pair of
    equal numbers as one number.

    Args:
        blob: bytes of the part; None: there is none yet.
        plans: {file of the plan: its notes}.

    Returns:
        bytes of the new part
    """
    import json
    import zlib

    out = json.loads(zlib.decompress(blob)) if blob else {"names": [], "plans": {}}
    place = {name: i for i, name in enumerate(out["names"])}

    def at(name: str) -> int:
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


def read_notes(blob: bytes | None) -> dict[str, StepNotes]:
    """Reads what `add_notes` wrote.

    Returns:
        {file of the plan: its notes}; {} if there is no such part or it is damaged: profiles work
        without notes.
    """
    import json
    import zlib

    if not blob:
        return {}
    try:
        root = json.loads(zlib.decompressobj().decompress(bytes(blob), MAX))
        names = root["names"]

        def pair(x: Any) -> list[int]:
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


MAX = 64 << 20  # maximum size of a package's notes when they are decompressed, in bytes
NOTES = "//notes"  # part of a package; no file of a model has this name

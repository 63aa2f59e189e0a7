"""Places buffers in one arena: a buffer lives from the step that first touches it to the one that
last does.
"""

from __future__ import annotations

from bisect import insort

ALIGN = 64


def _same_memory(a, b):
    return a.offset == b.offset and a.shape == b.shape and a.strides == b.strides


def _reuse_inputs(steps):
    """In-place: an output takes over the buffer of an input that nothing reads afterwards, where
    the kernel allows it.
    """
    for i, step in enumerate(steps):
        for o, y in zip(step.kernel.operands, step.operands):
            if (
                not o.output
                or not o.inplace
                or y is None
                or y.buffer.kind != "arena"
                or y.buffer.first != i
                or y.buffer.owner is not None
            ):
                continue
            for name in o.inplace:
                x = step.operands[step.kernel.index[name]]
                if (
                    x is None
                    or x.buffer.kind != "arena"
                    or x.buffer is y.buffer
                    or _owner(x.buffer).last != i
                    or x.buffer.nbytes != y.buffer.nbytes
                    or not _same_memory(x, y)
                    or x.dtype != y.dtype
                ):
                    continue
                root = _owner(x.buffer)
                others = [
                    v
                    for k, v in zip(step.kernel.operands, step.operands)
                    if v is not None
                    and v is not y
                    and v is not x
                    and v.buffer.kind == "arena"
                    and _owner(v.buffer) is root
                    and not (k.name in o.inplace and _same_memory(v, y))
                ]
                if others:
                    continue
                y.buffer.owner = root
                root.last = y.buffer.last
                break


def _owner(buffer):
    while buffer.owner is not None:
        buffer = buffer.owner
    return buffer


def plan_memory(steps):
    """Sets the offset of every arena buffer of these steps.

    Returns:
        (bytes needed, the lower bound: the most bytes that are alive at any one step, in-place
        outputs in the place of their inputs)
    """
    buffers = []
    for i, step in enumerate(steps):
        for v in step.operands:
            if v is not None and v.buffer.kind == "arena":
                b = v.buffer
                if b.first is None:
                    b.first = i
                    buffers.append(b)
                b.last = i
    _reuse_inputs(steps)
    blocks = [
        (b, -(-b.nbytes // ALIGN) * ALIGN, b.first, b.last) for b in buffers if b.owner is None
    ]
    least = _least(blocks, len(steps))
    total, offsets = _best(blocks, least)
    for (b, *_), at in zip(blocks, offsets):
        b.offset = at
    for b in buffers:
        if b.owner is not None:
            b.offset = _owner(b).offset
    return total, least


def _least(blocks, count):
    """The most bytes of blocks (buffer, size, first, last) that live at the same step."""
    change = [0] * (count + 1)
    for _, size, first, last in blocks:
        change[first] += size
        change[last + 1] -= size
    now = most = 0
    for c in change:
        now += c
        most = max(most, now)
    return most


ORDERS = (
    lambda b: -b[1],
    lambda b: -b[1] * (b[3] - b[2] + 1),
    lambda b: (b[2] - b[3], -b[1]),
)  # largest first, largest area first, longest life first
TRIES, WORK, ENOUGH = (
    12,
    6000,
    1.02,
    # placements at most; blocks that they may place in all, since binding is to stay fast; the
    # share of the bound with which the search ends
)


def _best(blocks, least):
    """(bytes, offsets) of the smallest of several placements, in which blocks come in different
    orders: by ORDERS, then with whoever reaches the top of the last one (first of the best one) in
    front.
    """
    best = last = (0, [], [])
    for n in range(min(TRIES, 1 + WORK // max(1, len(blocks)))):
        if n < len(ORDERS):
            key = ORDERS[n]
            order = sorted(range(len(blocks)), key=lambda i: key(blocks[i]))
        else:
            total, offsets, order = best if n == len(ORDERS) else last
            order = sorted(order, key=lambda i: offsets[i] + blocks[i][1] != total)
        last = (*_place(blocks, order), order)
        if not n or last[0] < best[0]:
            best = last
        if best[0] <= ENOUGH * least:
            break
    return best[:2]


def _place(blocks, order):
    """(bytes, offsets): each block, in this order, at the lowest offset where it meets nobody who
    lives at the same time.
    """
    placed, total, offsets = [], 0, [0] * len(blocks)
    for i in order:
        _, size, first, last = blocks[i]
        at = 0
        for start, end, begin, finish in placed:  # sorted by start
            if finish < first or begin > last:
                continue
            if start - at >= size:
                break
            if end > at:
                at = end
        offsets[i] = at
        insort(placed, (at, at + size, first, last))
        total = max(total, at + size)
    return total, offsets

"""Places buffers in one arena. A buffer lives from the first step that touches it to the last."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ..targets import CPU, MemoryRules
from .steps import Step
from .view import Storage, View

# (buffer, bytes with alignment, first step, last step)
Block = tuple[Storage, int, int, int]


def plan_memory(steps: Sequence[Step], rules: MemoryRules = CPU.memory) -> tuple[int, int]:
    """Sets the offset of every arena buffer of these steps.

    Args:
        steps: in the order in which they run.
        rules: alignment, and whether outputs may reuse the memory of inputs.

    Returns:
        (bytes needed, the lower bound: the largest sum of the buffers that are alive at one step,
        in-place outputs counted with their inputs)
    """
    buffers, blocks = blocks_of(steps, rules)
    least = least_bytes(blocks, len(steps))
    total = place(blocks, least)
    for b in buffers:
        if b.owner is not None:
            b.offset = owner_of(b).offset
    return total, least


def blocks_of(
    steps: Sequence[Step], rules: MemoryRules, times: Sequence[int] | None = None
) -> tuple[list[Storage], list[Block]]:
    """The buffers of steps, and when they live.

    Args:
        steps: in the order in which they run.
        rules: whether outputs may reuse the memory of inputs.
        times: when each runs; several at the same time must not share memory that one of them
            writes. By default each runs at its own.

    Returns:
        (all arena buffers, those that need memory of their own)
    """
    buffers: list[Storage] = []
    times = times or range(len(steps))
    for i, step in zip(times, steps):
        for v in step.operands:
            if v is not None and v.buffer.kind == "arena":
                if v.buffer.first is None:
                    v.buffer.first = i
                    buffers.append(v.buffer)
                v.buffer.last = i
    for first, end in _loops(steps, times):
        for b in buffers:
            begin, last = _life(b)
            # Another iteration may read what was there before the loop, and what comes after it
            # may read what any iteration has written.
            if begin <= end and last >= first and (begin < first or last > end):
                b.first, b.last = min(begin, first), max(last, end)
    if rules.in_place:
        _reuse_inputs(steps, times)
    align = rules.arena_alignment
    return buffers, [
        (b, -(-b.nbytes // align) * align, *_life(b)) for b in buffers if b.owner is None
    ]


def _loops(steps: Sequence[Step], times: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(time of the first step, time of the last one) of each loop, inner ones before outer ones."""
    begun: list[int] = []
    for i, step in zip(times, steps):
        if step.kernel.jumps == "begin":
            begun.append(i)
        elif step.kernel.jumps == "end":
            yield begun.pop(), i


def place(blocks: Sequence[Block], least: int) -> int:
    """Sets the offsets of blocks in one arena. Returns its bytes. least: of `least_bytes`."""
    total, offsets = _best(blocks, least)
    for (b, *_), at in zip(blocks, offsets):
        b.offset = at
    return total


def _life(buffer: Storage) -> tuple[int, int]:
    assert buffer.first is not None and buffer.last is not None
    return buffer.first, buffer.last


# ---- in place
def _reuse_inputs(steps: Sequence[Step], times: Sequence[int]) -> None:
    """Lets an output take over the buffer of an input that nothing reads afterwards, where the
    kernel's contract allows it.
    """
    users = Counter(  # steps that use a buffer at a time
        use
        for i, step in zip(times, steps)
        for use in {(i, id(v.buffer)) for v in step.operands if v is not None}
    )
    for i, step in zip(times, steps):
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
                if x is None or users[i, id(x.buffer)] > 1:
                    continue
                if _dies_here(x, y, i) and not _others(step, o.inplace, x, y):
                    root = owner_of(x.buffer)
                    y.buffer.owner = root
                    root.last = y.buffer.last
                    break


def _dies_here(x: View, y: View, step: int) -> bool:
    """Whether x is read by no later step, and y fits exactly into its memory."""
    return (
        x.buffer.kind == "arena"
        and x.buffer is not y.buffer
        and owner_of(x.buffer).last == step
        and x.buffer.nbytes == y.buffer.nbytes
        and _same_memory(x, y)
        and x.dtype == y.dtype
    )


def _others(step: Step, allowed: Sequence[str], x: View, y: View) -> bool:
    """Whether the step has another operand in x's buffer that y must not overwrite."""
    root = owner_of(x.buffer)
    return any(
        v is not None
        and v is not y
        and v is not x
        and v.buffer.kind == "arena"
        and owner_of(v.buffer) is root
        and not (k.name in allowed and _same_memory(v, y))
        for k, v in zip(step.kernel.operands, step.operands)
    )


def _same_memory(a: View, b: View) -> bool:
    return a.offset == b.offset and a.shape == b.shape and a.strides == b.strides


def owner_of(buffer: Storage) -> Storage:
    """The buffer whose memory an in-place step reuses for this one, or the buffer itself."""
    while buffer.owner is not None:
        buffer = buffer.owner
    return buffer


# ---- placement
def least_bytes(blocks: Sequence[Block], count: int) -> int:
    """The largest sum of the sizes of blocks that live at one of `count` steps."""
    change = [0] * (count + 1)
    for _, size, first, last in blocks:
        change[first] += size
        change[last + 1] -= size
    now = most = 0
    for c in change:
        now += c
        most = max(most, now)
    return most


# Orders of placement: largest first, largest size times lifetime first, longest life first.
ORDERS: tuple[Callable[[Block], float | tuple[float, float]], ...] = (
    lambda b: -b[1],
    lambda b: -b[1] * (b[3] - b[2] + 1),
    lambda b: (b[2] - b[3], -b[1]),
)
TRIES = 12  # placements at most
WORK = 6000  # blocks that all placements together may place: binding has to stay fast
ENOUGH = 1.02  # the search ends at this multiple of the lower bound


def _best(blocks: Sequence[Block], least: int) -> tuple[int, list[int]]:
    """(bytes, offsets) of the smallest of several placements.

    They place blocks in the ORDERS, then in the order of the last placement (first: of the best)
    with the blocks in front that reached the top.
    """
    best: tuple[int, list[int], list[int]] = (0, [], [])
    last = best
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


def _place(blocks: Sequence[Block], order: Sequence[int]) -> tuple[int, list[int]]:
    """(bytes, offsets): places each block, in this order, at the lowest offset where it overlaps
    no block with an intersecting lifetime.
    """
    placed: list[tuple[int, int, int, int]] = []  # (start, end, first, last), sorted by start
    total, offsets = 0, [0] * len(blocks)
    for i in order:
        _, size, first, last = blocks[i]
        at = 0
        for start, end, begin, finish in placed:
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

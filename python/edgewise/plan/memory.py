"""Places buffers in one arena: a buffer lives from the step that first touches it to the one that last does."""
from __future__ import annotations

ALIGN = 64


def _same_memory(a, b):
    return a.offset == b.offset and a.shape == b.shape and a.strides == b.strides


def _reuse_inputs(steps):
    """In-place: an output takes over the buffer of an input that nothing reads afterwards, where the kernel allows it."""
    for i, step in enumerate(steps):
        for o, y in zip(step.kernel.operands, step.operands):
            if not o.output or not o.inplace or y is None or y.buffer.kind != "arena" or y.buffer.first != i or y.buffer.owner is not None:
                continue
            for name in o.inplace:
                x = step.operands[step.kernel.index[name]]
                if x is None or x.buffer.kind != "arena" or x.buffer is y.buffer or _owner(x.buffer).last != i or x.buffer.nbytes != y.buffer.nbytes or not _same_memory(x, y) or x.dtype != y.dtype:
                    continue
                root = _owner(x.buffer)
                others = [v for k, v in zip(step.kernel.operands, step.operands) if v is not None and v is not y and v is not x and v.buffer.kind == "arena" and _owner(v.buffer) is root
                          and not (k.name in o.inplace and _same_memory(v, y))]
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
    """Sets the offset of every arena buffer of these steps; returns the bytes needed."""
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
    roots = [b for b in buffers if b.owner is None]
    # largest first, each at the lowest offset where it meets nobody who lives at the same time
    placed, total = [], 0
    for b in sorted(roots, key=lambda b: -b.nbytes):
        size = -(-b.nbytes // ALIGN) * ALIGN
        at = 0
        first, last = b.first, b.last
        for start, end, f, l in placed:  # sorted by start
            if l < first or f > last:
                continue
            if start - at >= size:
                break
            if end > at:
                at = end
        b.offset = at
        entry = (at, at + size, first, last)
        lo, hi = 0, len(placed)
        while lo < hi:
            mid = (lo + hi) // 2
            if placed[mid][0] < at:
                lo = mid + 1
            else:
                hi = mid
        placed.insert(lo, entry)
        total = max(total, at + size)
    for b in buffers:
        if b.owner is not None:
            b.offset = _owner(b).offset
    return total

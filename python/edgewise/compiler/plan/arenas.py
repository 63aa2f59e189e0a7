"""Places buffers in several arenas, so that no step reads one of them and writes the same one.

Some devices track hazards by whole buffers: WebGPU refuses a buffer that one step binds as an input
and as an output. Each arena is a slot of kind "temp", which the device binds, so that neither the
format of plans nor the loader knows about it. What C functions need as working memory stays in the
engine's own arena.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..declare.dtypes import UINT8
from ..targets import MemoryRules
from .memory import blocks_of, least_bytes, owner_of, place
from .plan import Slot
from .steps import Step
from .view import Storage

if TYPE_CHECKING:
    from .builder import Builder


Batches = Sequence[Sequence[Step]]  # steps of one batch run at once


def place_in_slots(builder: Builder, phases: Sequence[Batches]) -> tuple[int, int]:
    """Places the buffers of a plan whose target has several arenas, and adds the arenas' slots.

    Args:
        builder: the plan.
        phases: lists of batches that run one after the other and share the arenas.

    Returns:
        (bytes of the engine's arena, lower bound of the bytes of all arenas together)
    """
    rules, first = builder.target.memory, len(builder.slots)
    sizes: list[int] = []
    own = least = 0
    for batches in phases:
        own_bytes, phase_least = _place(batches, rules, sizes, first)
        own, least = max(own, own_bytes), max(least, phase_least)
    for i, nbytes in enumerate(sizes):
        builder.target.check_buffer(nbytes, "memory between steps")
        builder.slots.append(Slot(f"temp/{i}", "temp", UINT8, [nbytes], nbytes))
    return own, least


def _place(batches: Batches, rules: MemoryRules, sizes: list[int], first: int) -> tuple[int, int]:
    """Places the buffers of one phase; sizes[i], of slot first + i, grows to what it needs.

    Returns:
        as `place_in_slots`
    """
    steps = [step for batch in batches for step in batch]
    times = [time for time, batch in enumerate(batches) for _ in batch]
    buffers, blocks = blocks_of(steps, rules, times)
    scratch = {  # of C functions, which run one by one
        id(v.buffer): i
        for i, step in enumerate(steps)
        for o, v in step.bound()
        if o.name == "scratch" and v.buffer.kind == "arena"
    }
    own = [
        (b, nbytes, scratch[id(b)], scratch[id(b)]) for b, nbytes, *_ in blocks if id(b) in scratch
    ]
    arena_of = colours([b[0] for b in blocks if id(b[0]) not in scratch], batches)
    for arena in range(max(arena_of.values(), default=-1) + 1):
        part = [b for b in blocks if arena_of.get(id(b[0])) == arena]
        nbytes = place(part, least_bytes(part, len(batches)))
        sizes.extend([0] * (arena + 1 - len(sizes)))
        sizes[arena] = max(sizes[arena], nbytes)
        for block, *_ in part:
            block.index = first + arena
    for b in buffers:
        root = owner_of(b)
        b.offset, b.index = root.offset, root.index
    between = [b for b in blocks if id(b[0]) not in scratch]
    own_bytes = place(own, least_bytes(own, len(steps)))
    return own_bytes, own_bytes + least_bytes(between, len(batches))


def colours(blocks: Sequence[Storage], batches: Batches) -> dict[int, int]:
    """Assigns blocks to as many arenas as that takes: four in most plans.

    Args:
        blocks: buffers with memory of their own.
        batches: the batches that use them.

    Returns:
        {id of a block: number of its arena}; those that one batch reads and writes differ.
    """
    conflicts = conflicts_of(blocks, batches)
    out: dict[int, int] = {}
    for block in sorted(conflicts, key=lambda k: -len(conflicts[k])):
        taken = {out[other] for other in conflicts[block] if other in out}
        # The first arenas are filled first: fewer, larger arenas reuse memory best.
        out[block] = next(c for c in range(len(taken) + 1) if c not in taken)
    return out


def conflicts_of(blocks: Sequence[Storage], batches: Batches) -> dict[int, set[int]]:
    """{id of a block: ids of the blocks that some batch writes where it reads this one, or reads
    where it writes this one}, in the order of `blocks`.
    """
    out: dict[int, set[int]] = {id(b): set() for b in blocks}
    for batch in batches:
        sides: tuple[set[int], set[int]] = (set(), set())
        for o, v in (bound for step in batch for bound in step.bound()):
            if v.buffer.kind == "arena" and id(owner_of(v.buffer)) in out:
                sides[o.output].add(id(owner_of(v.buffer)))
        for a in sides[0]:
            for b in sides[1]:
                if a != b:
                    out[a].add(b)
                    out[b].add(a)
    return out


__all__ = ["colours", "conflicts_of", "place_in_slots"]

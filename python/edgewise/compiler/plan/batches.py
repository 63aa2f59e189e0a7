"""Puts steps side by side that a device can run at once: the same kernel on other memory.

Steps wait for others of their kind, and so do updates of states. A device that runs steps one by
one gains nothing, so only some targets ask for it. The plan's format does not know about batches: a
device recognises neighbours that can run together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from ..declare.kernel import evaluate
from ..declare.symbolic import Sym, most
from ..targets.target import Alike
from .steps import Step
from .view import Storage

WINDOW = 48  # steps among which the next one is chosen
WAITING = 1 << 24  # bytes of gradients that updates of states may keep alive


def in_batches(
    steps: Sequence[Step], alike: Mapping[str, Alike], is_state: Callable[[Storage], bool]
) -> list[list[Step]]:
    """Orders steps so that those which can run at once are neighbours.

    Of the steps whose inputs are there, the first runs that waits for no step of its kind, with all
    others of its kind. Only a window of steps is looked at, so that results live not much longer.

    Args:
        steps: in an order that can run.
        alike: {kernel: which of its steps can run at once}.
        is_state: whether a buffer is the slot of a state.

    Returns:
        batches of steps that do not depend on each other, in their new order
    """
    steps = late_updates(steps, alike, is_state)
    kinds = _kinds(steps, alike)
    needs, followers = _dependencies(steps)
    after = _descendants(followers)
    missing = [len(n) for n in needs]
    done = [False] * len(steps)
    out: list[list[Step]] = []
    first = 0
    while first < len(steps):
        window = [i for i in range(first, min(first + WINDOW, len(steps))) if not done[i]]
        ready = [i for i in window if not missing[i]]
        waited = [i for i in window if missing[i]]
        chosen = next((i for i in ready if not _waits(i, waited, kinds, after)), ready[0])
        batch = [i for i in ready if i == chosen or kinds[i] == kinds[chosen] >= 0]
        for i in batch:
            done[i] = True
            for j in followers[i]:
                missing[j] -= 1
        out.append([steps[i] for i in batch])
        while first < len(steps) and done[first]:
            first += 1
    return out


def _waits(i: int, waited: Sequence[int], kinds: Sequence[int], after: Sequence[int]) -> bool:
    """Whether a step that cannot run yet may later run together with step i."""
    return kinds[i] >= 0 and any(
        kinds[j] == kinds[i] and (j < i or not after[i] >> (j - i) & 1) for j in waited
    )


def _kinds(steps: Sequence[Step], alike: Mapping[str, Alike]) -> list[int]:
    """A number for each step; steps with the same one are alike, -1 is alone."""
    numbers: dict[Hashable, int] = {}
    out = []
    for step in steps:
        common = common_of(step, alike)
        out.append(-1 if common is None else numbers.setdefault(common, len(numbers)))
    return out


def _dependencies(steps: Sequence[Step]) -> tuple[list[set[int]], list[set[int]]]:
    """(numbers of the steps that each step must follow, numbers of those that must follow it)"""
    needs: list[set[int]] = [set() for _ in steps]
    followers: list[set[int]] = [set() for _ in steps]
    writer: dict[Hashable, int] = {}
    readers: dict[Hashable, list[int]] = {}
    for i, step in enumerate(steps):
        for output, k in _operands(step):
            before = (
                [*readers.get(k, ()), *([writer[k]] if k in writer else [])]
                if output
                else ([writer[k]] if k in writer else [])
            )
            needs[i] |= {j for j in before if j != i}
        for output, k in _operands(step):
            if output:
                writer[k], readers[k] = i, []
            else:
                readers.setdefault(k, []).append(i)
        for j in needs[i]:
            followers[j].add(i)
    return needs, followers


def _operands(step: Step) -> list[tuple[bool, Hashable]]:
    """(whether it is written, its buffer) of each operand but the C function's own memory."""
    return [(o.output, key_of(v.buffer)) for o, v in step.bound() if o.name != "scratch"]


def _descendants(followers: Sequence[set[int]]) -> list[int]:
    """For each step i a mask: bit j - i is set where step j, in its window, depends on it."""
    out = [0] * len(followers)
    for i in range(len(followers) - 1, -1, -1):
        for j in followers[i]:
            if j - i < WINDOW:
                out[i] |= 1 << (j - i) | out[j] << (j - i)
        out[i] &= (1 << WINDOW) - 1
    return out


def late_updates(
    steps: Sequence[Step], alike: Mapping[str, Alike], is_state: Callable[[Storage], bool]
) -> list[Step]:
    """Moves updates of states after each other, as far as steps between them allow it, and as
    long as the gradients that wait for them take little memory.
    """
    out: list[Step] = []
    waiting: list[Step] = []
    reads: set[Hashable] = set()
    writes: set[Hashable] = set()
    nbytes = 0
    for step in steps:
        operands = [(o.output, v.buffer) for o, v in step.bound() if o.name != "scratch"]
        update = step.kernel.name in alike and any(o and is_state(b) for o, b in operands)
        clash = any(
            key_of(b) in writes or (output and key_of(b) in reads) for output, b in operands
        )
        if clash or nbytes > WAITING:
            out += waiting
            waiting, reads, writes, nbytes = [], set(), set(), 0
        if not update:
            out.append(step)
            continue
        waiting.append(step)
        reads |= {key_of(b) for output, b in operands if not output}
        writes |= {key_of(b) for output, b in operands if output}
        nbytes += sum(b.nbytes for output, b in operands if not output and b.kind == "arena")
    return out + waiting


def common_of(step: Step, alike: Mapping[str, Alike]) -> Hashable:
    """What steps that can run at once have in common; None where a step runs alone."""
    rule = alike.get(step.kernel.name)
    if rule is None:
        return None
    return (
        step.kernel.name,
        common_params(step.params, rule),
        tuple(
            None if v is None or o.name == "scratch" else (v.dtype, v.buffer.kind)
            for o, v in zip(step.kernel.operands, step.operands)
        ),
    )


def common_params(params: Mapping[str, object], rule: Alike) -> Hashable:
    """The parameters in which steps that can run at once agree."""
    fixed = tuple(repr(value) for name, value in params.items() if name not in rule.vary)
    numbers = {name: most(value) for name, value in params.items() if isinstance(value, (int, Sym))}
    return fixed, tuple(bool(evaluate(condition, numbers)) for condition in rule.same)


def key_of(buffer: Storage) -> Hashable:
    """A key for a buffer: two of one slot are the same memory."""
    return (buffer.kind, buffer.index) if buffer.kind == "slot" else id(buffer)

"""Moves updates of states as early as possible.

A parameter is updated as soon as its gradient is there and its old value is read no more, so that
the memory of the gradient is free for what follows. Nodes leave updates at the end of the graph.
They are moved as steps, since only steps say exactly what memory they read (a transposed weight is
a view).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from .steps import Step
from .view import Storage


def hoist_updates(
    steps: Sequence[Step], is_state: Callable[[Storage], bool], least: int = -1
) -> list[Step]:
    """Moves steps that write states forward, after the last step that they depend on.

    Args:
        steps: in an order that can run.
        is_state: whether a buffer is the slot of a state.
        least: the step before which no state is written.

    Returns:
        the steps in their new order
    """
    # {buffer: place of its last writer}, {buffer: place of its last reader or writer}
    written: dict[Hashable, int] = {}
    touched: dict[Hashable, int] = {}
    placed: list[tuple[int, int]] = []
    for i, step in enumerate(steps):
        operands = [(o.output, _key(v.buffer), v.buffer) for o, v in step.bound()]
        place = i
        if i > least and any(output and is_state(b) for output, _, b in operands):
            place = max(
                [least]
                + [
                    touched.get(k, -1) if output else written.get(k, -1)
                    for output, k, _ in operands
                ]
            )
        placed.append((place, i))
        for output, k, _ in operands:
            touched[k] = max(touched.get(k, -1), place)
            if output:
                written[k] = max(written.get(k, -1), place)
    # An update follows the step of its place directly; several of one place keep their order.
    return [steps[i] for _, i in sorted(placed)]


def _key(buffer: Storage) -> Hashable:
    return (buffer.kind, buffer.index) if buffer.kind == "slot" else id(buffer)

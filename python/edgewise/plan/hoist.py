"""Updates as early as they can be: a parameter is updated once its gradient is there and nobody
reads its old value any more, so that the gradient's memory is free for what comes next. Nodes leave
them at the end of the graph; this moves their steps, since only steps say exactly what memory they
read (a transposed weight is a view).
"""

from __future__ import annotations


def hoist_updates(steps, is_state, least=-1):
    """Moves steps that write states forward, behind the last step that they depend on.

    Args:
        steps: [Step] in an order that is right. is_state(buffer): whether a buffer is a state's
        slot. least: the step before which no state is written.
    Returns:
        the steps in their new order
    """

    def key(buffer):
        return (buffer.kind, buffer.index) if buffer.kind == "slot" else id(buffer)

    written, touched, placed = (
        {},
        {},
        [],
    )  # key -> place of its last writer, of its last reader or writer
    for i, s in enumerate(steps):
        operands = [
            (o.output, v.buffer) for o, v in zip(s.kernel.operands, s.operands) if v is not None
        ]
        place = i
        if i > least and any(out and is_state(b) for out, b in operands):
            place = max(
                [least]
                + [
                    touched.get(key(b), -1) if out else written.get(key(b), -1)
                    for out, b in operands
                ]
            )
        placed.append((place, i))
        for out, b in operands:
            k = key(b)
            touched[k] = max(touched.get(k, -1), place)
            if out:
                written[k] = max(written.get(k, -1), place)
    # an update stands right behind the step of its place; several of one place keep their order
    return [steps[i] for _, i in sorted(placed)]

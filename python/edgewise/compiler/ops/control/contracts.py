"""Contracts of the steps that decide which step is next. core/jumps.c checks where they lead."""

from __future__ import annotations

from ...declare.dtypes import BOOL, INT64
from ...declare.kernel import Kernel, params, read

Kernel(
    "branch",
    params("counter steps"),
    [read("condition", BOOL, "1", optional=True)],
    require=["counter == -1", "steps >= 0"],
    grid="1",
    jumps="branch",
    doc="Skips `steps` steps unless the condition is true. Without a condition it always does.",
)

Kernel(
    "loop_begin",
    params("counter steps trips"),
    [read("limit", INT64, "1", optional=True), read("condition", BOOL, "1", optional=True)],
    require=["counter >= 0", "steps >= 0", "trips >= 0"],
    grid="1",
    jumps="begin",
    doc=(
        "Sets a counter, the number of a register, to 0. Skips `steps` steps unless the counter is "
        "below trips and limit, and the condition is true."
    ),
)

Kernel(
    "loop_end",
    params("counter steps trips"),
    [read("limit", INT64, "1", optional=True), read("condition", BOOL, "1", optional=True)],
    require=["counter >= 0", "steps >= 1", "trips >= 0"],
    grid="1",
    jumps="end",
    doc=(
        "Adds 1 to a counter. Goes back to the first of the last `steps` steps, of which it is the "
        "last, if the counter is below trips and limit, and the condition is true."
    ),
)

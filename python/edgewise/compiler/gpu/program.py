"""The GPU program of a plan: which of its steps run in one dispatch, for each class of devices.

It is the last section of a plan for a GPU, after the steps: MAGIC, and JSON. What only a device
knows that opens a plan is not in it: where memory lies, how many buffers it binds, whether it has
subgroups. WGSL is not in it either, since nothing bounds how long a text runs that a package could
choose: a host composes it of its own shaders, with the numbers of the plan that the engine in C has
checked.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence

from ...errors import PlanError
from ...logic.gpu.variants import most_of
from ..schema.plan_format import HEADER
from .batches import Group, Grouping
from .grouped import Facts, Grouped
from .steps import HEADER_INIT, end_of_steps

MAGIC = b"EDGEGPU1"  # the last character is the version
CLASSES = {False: "hardware", True: "serial"}  # by whether the GPU is one in software
HEAD, TAIL, CHAIN = 1, 2, 4  # bits of a group's flags

WITHOUT = (
    "has no GPU program: its steps run one by one, which takes longer. Build the package again."
)

# What a program counts on; where a device has less, steps run one by one (Launch.members).
BINDINGS, BINDING_BYTES = 10, 1 << 27


def with_program(data: bytes, kinds: Sequence[str]) -> bytes:
    """A plan and its program. kinds: of its slots."""
    found = {}
    for serial, name in CLASSES.items():
        groups = groups_of(Facts(data, kinds, serial, BINDINGS, BINDING_BYTES), data)
        found[name] = [_packed(group) for group in groups]
    return joined(data, json.dumps(found, separators=(",", ":")).encode())


def joined(data: bytes, program: bytes) -> bytes:
    """A plan with a program in the place of its own."""
    out = bytearray(data[: end_of_steps(data)])
    out += bytes(-len(out) % 16) + MAGIC + program
    out += b" " * (-len(out) % 16)
    header = list(HEADER.unpack_from(out))
    header[-1] = len(out)
    HEADER.pack_into(out, 0, *header)
    return bytes(out)


def groups_of(facts: Facts, data: bytes) -> list[Group]:
    """The groups of more than one step, in order; init steps are none with others."""
    temporary = [False, False, *(kind == "temp" for kind in facts.kinds)]
    kept = [False, False, *(kind in ("state", "computed") for kind in facts.kinds)]
    grouping = Grouping(facts.steps, facts.touched, facts.largest, temporary, kept)
    init, count = HEADER.unpack_from(data)[HEADER_INIT], len(facts.steps)
    alone = [
        facts.operations[i] > most_of(facts.steps[i].serial)
        or bool(Grouped(facts, Group(i, i + 1)).reason)
        for i in range(count)
    ]
    out: list[Group] = []
    first = 0
    while first < count:
        end = init if first < init else count
        end = next((i for i in range(first, end) if alone[i]), end)
        group = _largest(facts, grouping, first, end)
        if group is not None:
            out.append(group)
        first = group.end if group is not None else first + 1
    return out


def _largest(facts: Facts, grouping: Grouping, first: int, end: int) -> Group | None:
    """The most steps from step `first` on that one dispatch runs; None: it alone."""
    while end > first + 1:
        group = grouping.at(first, end)
        size = group.end - first
        if size == 1:
            break
        if not Grouped(facts, group).reason:
            return group
        end = first + size // 2  # fewer, as they need too many bindings
    return None


def _packed(group: Group) -> list[int]:
    flags = HEAD * group.head + TAIL * group.tail + CHAIN * group.chain
    return [group.first, group.end, flags, group.takers, *group.ends]


def read_program(data: bytes, facts: Facts, where: str) -> list[Group]:
    """The groups of a plan that the engine has checked, for a device of a class.

    A program is compared with what the compiler would write, so that a damaged package runs
    nothing that its plan would not.

    Args:
        data: the plan.
        facts: of the plan on the device.
        where: name of the plan, for errors.

    Returns:
        [] where the plan has none, of which it warns: steps run one by one then.

    Raises:
        PlanError: the program is damaged.
    """
    total, at = HEADER.unpack_from(data)[-1], end_of_steps(data)
    at += -at % 16
    if data[at : at + len(MAGIC)] != MAGIC:
        if len(facts.steps) > 1:
            warnings.warn(f"{where or 'a plan'} {WITHOUT}", stacklevel=2)
        return []
    serial = any(step.serial for step in facts.steps)
    try:
        packed = json.loads(data[at + len(MAGIC) : total])[CLASSES[serial]]
        found = [_group(*numbers) for numbers in packed]
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        raise _damaged(where) from e
    planned = Facts(data, facts.kinds, serial, BINDINGS, BINDING_BYTES)
    if found != groups_of(planned, data):
        raise _damaged(where)
    return found


def _group(first: int, end: int, flags: int, takers: int, *ends: int) -> Group:
    head, tail, chain = (bool(flags & bit) for bit in (HEAD, TAIL, CHAIN))
    return Group(first, end, head, tail, ends, takers, chain)


def _damaged(where: str) -> PlanError:
    return PlanError(
        "its GPU program does not fit its steps", where, "The package is damaged: build it again."
    )

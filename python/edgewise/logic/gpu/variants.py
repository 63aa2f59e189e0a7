"""Shaders of kernels: their declarations, which of them run a step, and how much a GPU is given at
once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .wgsl import FOLD

# Operations of steps that share a dispatch, and of a step whose workgroups are too much; and the
# same of a GPU in software.
MAX = 1 << 40
MAX_IN_SOFTWARE = 1 << 33
# Operations that are submitted at once until times were measured (pace.py): about 50 ms of an
# integrated GPU of 0.5 TFLOPS that reaches a third of it, and of two cores of a processor.
FIRST = 8_000_000_000
FIRST_IN_SOFTWARE = 500_000_000
# Operations of an invocation, which computes one after the other.
MAX_EACH = 1 << 28

BEGIN = re.compile(r"\n(?=(?:fn|var|const|struct|alias)[ <])")
NAMED = re.compile(
    r"^[ \t\n]*(?:fn|var(?:<[A-Za-z0-9_]+>)?|const|struct|alias)[ \t\n]+([A-Za-z0-9_]+)"
)
LANES = re.compile(r"[A-Za-z0-9_]+_of_lanes\(lane, ?")  # in a built page no space follows a comma
FIELD = re.compile(r"\{([A-Za-z0-9_]+)\}")
INDEXED = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*)\[(?![0-9])")

ENTRY = "@builtin(local_invocation_index) lane: u32) { "
BUILT_IN = (
    "@builtin(local_invocation_index) lane: u32, @builtin(subgroup_id) subgroup_: u32,"
    " @builtin(num_subgroups) subgroups_: u32) { subgroup = subgroup_; subgroups = subgroups_; "
)


def parts_of(text: str) -> dict[str, str]:
    """{name: text} of the declarations of a WGSL text without comments."""
    out: dict[str, str] = {}
    pieces: list[str] = BEGIN.split("\n" + text)
    for declaration in pieces:
        found = NAMED.search(declaration)
        if found is not None:
            out[found[1]] = declaration.strip()
    return out


def alone(body: str) -> str:
    """The form of a shader in which an invocation does the work of a workgroup, for rows that are
    short and many: it needs no barriers. Neighbours read other rows then, not other elements of
    one; up to 64 columns, the cache lines of their rows fit the first cache of a core, and each is
    read from memory once.
    """
    pieces: list[str] = LANES.split(body)
    return "(".join(pieces).replace("GROUP", "1u") + "\nfn element(i: u32) { run(i, 0u); }"


def folded(count: int) -> tuple[int, int]:
    """A number of workgroups in two dimensions."""
    return (count, 1) if count <= FOLD else (FOLD, -(-count // FOLD))


def applied(rules: Sequence[tuple[str, str]], named: Callable[[str], str]) -> dict[str, str]:
    """Functions of other shaders that names of a body stand for.

    Args:
        rules: (name in the body, function with {parameter} in its name).
        named: what stands for a parameter.
    """
    out: dict[str, str] = {}
    for name, text in rules:
        pieces: list[str] = FIELD.split(text)
        out[name] = "".join([named(piece) if i % 2 else piece for i, piece in enumerate(pieces)])
    return out


def is_fixed(body: str, following: Sequence[str]) -> bool:
    """Whether arrays that follow registers are only indexed by constants: they are values of
    functions then, and not every compiler of WGSL indexes those by variables.

    Args:
        body: of the shader.
        following: names of parameters that follow registers.
    """
    indexed: list[str] = INDEXED.findall(body)
    return not any(name in indexed for name in following)


class Place(NamedTuple):
    """Where an operand of a shader begins: at an offset, and at multiples of a scale beyond."""

    name: str
    offset: int
    scale: int


def is_aligned(body: str, operands: Sequence[Place]) -> bool:
    """Whether operands that are read as words begin with one.

    Args:
        body: of the shader.
        operands: those that the step has.
    """
    return all(
        f"{one.name}_word(" not in body or (one.offset % 4 == 0 and one.scale % 4 == 0)
        for one in operands
    )


def staged(fit: Sequence[str], before: Sequence[str]) -> list[int]:
    """Which of the shaders that fit a step run it, one after the other; none: there is no last one.

    Args:
        fit: names of shaders that fit, special ones first.
        before: names of those that run before another one.
    """
    last = [i for i, name in enumerate(fit) if name not in before][:1]
    return [*(i for i, name in enumerate(fit) if name in before), *last] if last else []


def most_of(serial: bool) -> int:
    """Operations that share a dispatch. serial: whether the GPU is one in software."""
    return MAX_IN_SOFTWARE if serial else MAX


def first_of(serial: bool) -> int:
    """Operations that are given to a GPU at once until it is known how long they take. serial:
    whether it is one in software.
    """
    return FIRST_IN_SOFTWARE if serial else FIRST


def excess(operations: Sequence[int], invocations: Sequence[int], groups: int, serial: bool) -> str:
    """Why steps are too much for a GPU; "" if they are not. A dispatch of more than it is given at
    once is divided between its workgroups (pace.py), but a workgroup is not.

    Args:
        operations: of each step.
        invocations: of each step.
        groups: workgroups of a step that runs alone; 1: several share a dispatch.
        serial: whether the GPU is one in software.
    """
    total = sum(operations)
    most = most_of(serial)
    if total > most and (groups == 1 or total > first_of(serial) * groups):
        return f"{total} operations: at most {most} run in one dispatch"
    for i, n in enumerate(operations):
        count = max(1, invocations[i])
        if n > MAX_EACH * count:
            return f"{n // count} operations of an invocation: at most {MAX_EACH} run"
    return ""


def in_subgroups(text: str, common: dict[str, str], forms: dict[str, str]) -> str:
    """A program with the reductions of subgroups; the same text where it has none.

    A body names a reduction (core/kernels/common.wgsl) and nothing of how it is done. A program is
    printed with the form that any GPU runs, in workgroup memory; here each one that it has is
    replaced by the form of core/kernels/common.subgroups.wgsl, which takes fewer barriers.

    Args:
        text: of the program.
        common: declarations that all shaders share.
        forms: those for subgroups.
    """
    found = text
    own = ""
    for name, form in forms.items():
        if form.startswith("var<private>"):
            own += form + "\n"
        elif name in common:
            found = found.replace(common[name], form)
    if found == text:
        return text
    return f"enable subgroups;\n{own}{found.replace(ENTRY, BUILT_IN)}"

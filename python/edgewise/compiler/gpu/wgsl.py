"""Whole WGSL programs for the steps of plans, from the bodies beside the kernels in C.

A body (core/kernels/*/*.wgsl) names the parameters and operands of the kernel's contract and
nothing of WebGPU. What it refers to is put in front of it: constants, accessors of the element
types that a step has, index arithmetic for its strides, bindings, and the entry point. A program
depends on nothing that differs between the layers of a model: offsets are in a record of the step.

What a body may use, besides the functions in core/kernels/common.wgsl:

    rows            parameters; abstract integers or u32 if they follow a register, else f32
    x(i), y_set(i, v)   element i of an operand; types: accessors.py
    x_at(i)         the element of an operand with layout `dims:strides` that index i stands for
    x_int(i)        an integer element as i32; an int64 beyond it saturates
    x_word(i)       a word of its memory
    has_x           whether a step has the operand
    type_code       the parameter `type`, a reserved word of WGSL
    fail(index)     an index from data is out of range
    PANEL, TOGETHER, dot_of_bytes(v, w)     packed weights of bytes, and their products
    GROUP           invocations in a workgroup

and defines `element(i: u32)`, called for each i below `threads`, or `run(group: u32, lane: u32)`,
called by each invocation of `groups` workgroups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..declare.kernel import evaluate
from .accessors import TYPES, class_of
from .link import (
    RECORD_BYTES,
    START,
    TOTAL,
    Binding,
    Linker,
    Role,
    declarations,
    record_word,
    unsigned,
)
from .steps import Linear, PlanStep, element_dtype
from .variants import FOLD, Variant, variants_of

REGISTERS = 32  # that a plan may have
FIRST_BINDING = 3  # 0 is the record, 1 the registers, 2 the error
MACHINE = declarations(32, 4, True)


@dataclass
class Program:
    """The program of a step.

    Attributes:
        text: WGSL.
        bindings: of the operands.
        registers: whether it reads registers.
        fails: whether it can report an index that is out of range.
        guarded: whether it does nothing once an index was out of range.
        records: steps that it runs.
    """

    text: str
    bindings: tuple[Binding, ...]
    registers: bool
    fails: bool
    guarded: bool
    records: int = 1


class Kind(NamedTuple):
    """Steps with a body of their own in a dispatch: the first of them, its shader, the roles of its
    operands, parameters in which they differ, and its number.
    """

    step: PlanStep
    variant: Variant
    roles: Sequence[Role]
    varied: Sequence[str]
    first: int


class Taker(NamedTuple):
    """A step behind products that takes the result of one of them, an element or two at a time,
    instead of reading it: its shader, and the roles of its operands.
    """

    step: PlanStep
    variant: Variant
    roles: Sequence[Role]


@dataclass(frozen=True)
class Batch:
    """What a dispatch of several steps runs.

    Attributes:
        records: number of its steps.
        varied: parameters in which those that its body runs differ.
        head: whether the first step computes an operand of the others, instead of writing it.
        tail: whether the last one joins the results of the two before it, instead of reading them.
        head_roles, tail_roles: of their operands.
        swapped: whether the first of these two is the second operand of the last step.
        others: further kinds of steps, behind those of the program's own body.
        takers: the last steps, one for each that the body runs.
        chain: whether one workgroup runs one kind after the other.
        apart, columns: a workgroup computes elements that are so far apart, so many of each.
    """

    records: int
    varied: Sequence[str] = ()
    head: PlanStep | None = None
    tail: PlanStep | None = None
    head_roles: Sequence[Role] = ()
    tail_roles: Sequence[Role] = ()
    swapped: bool = False
    others: Sequence[Kind] = ()
    takers: Sequence[Taker] = ()
    apart: int = 0
    columns: int = 0
    chain: bool = False


def program_of(
    step: PlanStep,
    variant: Variant,
    roles: Sequence[Role],
    bindings: Sequence[Binding],
    guarded: bool,
    batch: Batch | None = None,
    machine: Mapping[str, str] = MACHINE,
) -> Program:
    """The program of a step, or of several.

    Args:
        step, variant: the step, or the first one that the body runs, and its shader.
        roles: of its operands.
        bindings: that the roles name.
        guarded: whether it must do nothing once an index was out of range.
        batch: what else the dispatch runs; None: the step alone.
        machine: link.declarations of the machine.
    """
    varied, row = (batch.varied, "batch_part") if batch else ((), "")
    linker = Linker(step, variant, roles, bindings, varied, row, machine)
    parts = [linker]
    if batch is not None:
        parts += [*_ends(linker, batch), *_others(linker, batch), *_takers(linker, batch)]
    linker.need("element" if "element" in variant.parts else "run")
    body = _body(step, variant, linker, batch)
    registers, fails = (any(getattr(p, name) for p in parts) for name in ("registers", "fails"))
    count = batch.records if batch else 1
    records = RECORD_BYTES // 16 * count
    lines = [f"@group(0) @binding(0) var<uniform> record: array<vec4u, {records}>;"]
    if registers:
        lines.append(
            f"@group(0) @binding(1) var<uniform> registers: array<vec4i, {REGISTERS // 4}>;"
        )
    if fails:
        lines.append("@group(0) @binding(2) var<storage, read_write> errors: array<atomic<u32>>;")
    elif guarded:
        lines.append("@group(0) @binding(2) var<storage, read> errors: array<u32>;")
    for i, b in enumerate(bindings):
        mode = "read_write" if b.written else "read"
        lines.append(
            f"@group(0) @binding({FIRST_BINDING + i}) var<storage, {mode}> bound{i}:"
            f" array<{b.stored}>;"
        )
    if guarded and fails and "element" in variant.parts and not (batch and batch.chain):
        body = f"if (atomicLoad(&errors[0]) != 0u) {{ return; }} {body}"
    elif guarded and fails:  # others write the error meanwhile: one of the group reads it
        lines.append("var<workgroup> seen_error: u32;")
        body = (
            "if (lane == 0u) { seen_error = atomicLoad(&errors[0]); }"
            f" if (workgroupUniformLoad(&seen_error) != 0u) {{ return; }} {body}"
        )
    elif guarded:
        body = f"if (errors[0] != 0u) {{ return; }} {body}"
    lines += [f"const GROUP = {variant.group}u;", *(t for t in linker.out.values() if t)]
    if batch is not None:  # compilers do not all move reads out of loops
        words = sorted(int(name[4:]) for name in linker.out if re.fullmatch(r"word\d+", name))
        reads = (f" word{i} = {record_word('batch_part', i)};" for i in words)
        lines.append(f"fn begin_part(part: u32) {{ batch_part = part;{''.join(reads)} }}")
    lines += [
        f"@compute @workgroup_size({variant.group}) fn main(@builtin(workgroup_id) wg: vec3u,"
        f" @builtin(local_invocation_index) lane: u32) {{ {body} }}",
        "",
    ]
    return Program("\n".join(lines), tuple(bindings), registers, fails, guarded, count)


def _ends(linker: Linker, batch: Batch) -> list[Linker]:
    """Adds what the first and the last step of a batch compute; returns their linkers."""
    out = []
    if batch.head is not None:
        variant = next(v for v in variants_of(batch.head.kernel.name) if "computes" in v.declared)
        head = Linker(batch.head, variant, batch.head_roles, linker.bindings, row="0u")
        head.need("prepare")
        head.need("value")
        name = linker.variant.declared["before"].partition(" if ")[0]
        linker.out.update(head.renamed("before_"))
        linker.out[name] = f"fn {name}(i: u32) -> f32 {{ return before_value(i); }}"
        out.append(head)
    if batch.tail is not None:
        variant = next(v for v in variants_of(batch.tail.kernel.name) if "joins" in v.declared)
        row = f"{batch.records - 1}u"
        tail = Linker(batch.tail, variant, batch.tail_roles, linker.bindings, row=row)
        result = variant.declared["joins"].split()[2]
        apply = tail.add("apply")
        tail.need(f"{result}_set")
        name = linker.variant.declared["after"].partition(" if ")[0]
        both = "v, batch_kept" if batch.swapped else "batch_kept, v"
        linker.out.update(tail.renamed("after_"))
        linker.add("batch_part")
        linker.out["batch_kept"] = "var<private> batch_kept: f32;"
        linker.out[f"{name}_set"] = (
            f"fn {name}_set(i: u32, v: f32) {{ if (batch_part == {batch.records - 3}u)"
            f" {{ batch_kept = v; }} else {{ after_{result}_set(i, after_{apply}({both})); }} }}"
        )
        out.append(tail)
    return out


def _others(linker: Linker, batch: Batch) -> list[Linker]:
    """Links the bodies of further kinds of steps: kind1_element, kind1_total, ..."""
    out = []
    for number, kind in enumerate(batch.others, 1):
        bindings, machine = linker.bindings, linker.machine
        other = Linker(
            kind.step, kind.variant, kind.roles, bindings, kind.varied, "batch_part", machine
        )
        other.need("element")
        total = _count(kind.variant, kind.step, other)
        other.out["total"] = f"fn total() -> u32 {{ return {total}; }}"
        linker.out.update(other.renamed(f"kind{number}_"))
        out.append(other)
    return out


def _takers(linker: Linker, batch: Batch) -> list[Linker]:
    """Links the bodies of the steps that take results: take0_element, ... A workgroup computes
    elements twice; with the second ones these bodies run.
    """
    out, calls = [], []
    first = batch.records - len(batch.takers)
    for number, (step, variant, roles) in enumerate(batch.takers):
        row = f"{first + number}u"
        taker = Linker(step, variant, roles, linker.bindings, row=row, machine=linker.machine)
        name = variant.declared["takes"].partition(" if ")[0]
        type_ = TYPES[class_of(*element_dtype(step.kernel, step.kernel.index[name], step.params))]
        taken = f"bitcast<{type_}>(select(batch_last, batch_kept, i == batch_at))"
        taker.out[name] = f"fn {name}(i: u32) -> {type_} {{ return {taken}; }}"
        taker.need("element")
        linker.out.update(taker.renamed(f"take{number}_"))
        two = 2 * batch.apart
        run = f"take{number}_element("
        pair = f"{run}batch_at / {two}u * {batch.apart}u + batch_at % {two}u);"
        calls.append(pair if "apart" in variant.declared else f"{run}batch_at); {run}i);")
        out.append(taker)
    if out:
        linker.add("batch_part")
        for name, type_ in (("kept", "f32"), ("last", "f32"), ("at", "u32"), ("second", "bool")):
            linker.out[f"batch_{name}"] = f"var<private> batch_{name}: {type_};"
        name = linker.variant.declared["after"].partition(" if ")[0]
        low = 1 if batch.head is not None else 0
        cases = [f"if (batch_part == {low + i}u) {{ {call} }}" for i, call in enumerate(calls)]
        linker.out[f"{name}_set"] = (
            f"fn {name}_set(i: u32, v: f32) {{ if (!batch_second) {{ batch_kept = v; batch_at = i;"
            f" return; }} batch_last = v; {' else '.join(cases)} }}"
        )
    return out


def _body(step: PlanStep, variant: Variant, linker: Linker, batch: Batch | None) -> str:
    """The statements of a program's entry point."""
    count = _count(variant, step, linker)
    element = "element" in variant.parts
    at = f"wg.y * {FOLD}u + wg.x"
    if batch is None:
        if element:
            return f"let i = ({at}) * {variant.group}u + lane; if (i < {count}) {{ element(i); }}"
        return f"let at = {at}; if (at >= {count}) {{ return; }} run(at, lane);"
    linker.add("batch_part")
    prepare = "before_prepare(lane); " if batch.head is not None else ""
    if batch.tail is not None:  # both results by one invocation, one after the other
        first = batch.records - 3
        return (
            f"let at = {at}; if (at >= {count}) {{ return; }} {prepare}begin_part({first}u);"
            f" run(at, lane); workgroupBarrier(); begin_part({first + 1}u); run(at, lane);"
        )
    # No barrier may depend on `batch_part`: compilers take it to differ between invocations.
    low = 1 if batch.head is not None else 0
    row = RECORD_BYTES // 16
    search = (
        f"let place = {at};"
        f" if (place >= record[{low * row + TOTAL // 4}][{TOTAL % 4}]) {{ return; }}"
        f" {prepare}var low = {low}u; var high = {batch.records}u;"
        f" while (high - low > 1u) {{ let middle = (low + high) / 2u;"
        f" if (record[middle * {row}u + {START // 4}u][{START % 4}] <= place)"
        " { low = middle; } else { high = middle; } }"
        f" begin_part(low); let at = place - {linker.word(START)};"
    )
    if batch.chain:
        return _chain(count, batch)
    if batch.takers:
        many = batch.apart // batch.columns
        return (
            f"{search} let own = at / {many}u * {2 * many}u + at % {many}u; run(own, lane);"
            f" workgroupBarrier(); batch_second = true; run(own + {many}u, lane);"
        )
    if not element:
        return f"{search} run(at, lane);"
    text = f"{search} let i = at * {variant.group}u + lane; "
    ends = [kind.first for kind in batch.others]
    if ends:
        text += f"if (batch_part < {ends[0]}u) {{ "
    text += f"if (i < {count}) {{ element(i); }}"
    for number, end in enumerate([*ends[1:], 0], 1):
        if ends:
            body = f"if (i < kind{number}_total()) {{ kind{number}_element(i); }}"
            text += f" }} else {f'if (batch_part < {end}u) ' if end else ''}{{ {body}"
    return text + " }" * bool(ends)


def _chain(count: str, batch: Batch) -> str:
    """The statements with which one workgroup runs one kind after the other."""
    out = []
    firsts = [0, *(kind.first for kind in batch.others), batch.records]
    for number, (begin, end) in enumerate(zip(firsts, firsts[1:])):
        prefix = f"kind{number}_" if number else ""
        most = f"{prefix}total()" if number else count
        out.append(
            f"for (var p = {begin}u; p < {end}u; p++) {{ begin_part(p);"
            f" for (var i = lane; i < {most}; i += GROUP) {{ {prefix}element(i); }} }}"
        )
    return " storageBarrier(); ".join(out)


def _count(variant: Variant, step: PlanStep, linker: Linker) -> str:
    """The number of threads or groups as a u32 expression."""
    expression = variant.declared.get("threads") or variant.declared["groups"]

    def chosen(found: re.Match[str]) -> str:
        fixed = {k: v for k, v in step.params.items() if not isinstance(v, Linear)}
        return found[1] if evaluate(found[2], fixed) else found[3]

    def volume(found: re.Match[str]) -> str:
        sizes = step.params[found[1]]
        assert isinstance(sizes, list)
        return f"({' * '.join([unsigned(x) for x in sizes if x != 1] or ['1u'])})"

    def name(found: re.Match[str]) -> str:
        value = step.params.get(found[0])
        if found[0] in linker.varied:
            return f"{found[0]}_()"
        return found[0] if not isinstance(value, (int, Linear)) else unsigned(value)

    expression = re.sub(r"(\w+) if (.+?) else (\w+)", chosen, expression)
    expression = re.sub(r"(?<![\w.])(\d+)(?![\w.])", r"\1u", expression).replace("//", "/")
    fixed = re.sub(r"volume\((\w+)\)", volume, expression)
    text = re.sub(r"(?<![\w.])[a-z]\w*(?!\w*\()", name, fixed)
    return linker.add(text)

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
from collections.abc import Sequence
from typing import NamedTuple

from .accessors import TYPES, class_of
from .link import RECORD_BYTES, START, TOTAL, WORD, Binding, Linker, Role, record_word, unsigned
from .steps import Linear, Shader, Step

REGISTERS = 32  # that a plan may have
FIRST_BINDING = 3  # 0 is the record, 1 the registers, 2 the error
FOLD = 65535  # workgroups in the first dimension of a grid, all that WebGPU promises

# Numbers, calls of `volume` and names of an expression, and what is between them.
NUMBER = re.compile(r"((?<![A-Za-z0-9_.])[0-9]+(?![A-Za-z0-9_.]))")
VOLUME = re.compile(r"volume\(([A-Za-z0-9_]+)\)")
PARAMETER = re.compile(r"((?<![A-Za-z0-9_.])[a-z][A-Za-z0-9_]*)")


class Program(NamedTuple):
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
    bindings: Sequence[Binding]
    registers: bool
    fails: bool
    guarded: bool
    records: int


class Part(NamedTuple):
    """A step whose body is a part of a program: its shader, and the roles of its operands; of
    several steps of a kind the first one, parameters in which they differ, and its number.
    """

    step: Step
    shader: Shader
    roles: Sequence[Role]
    varied: Sequence[str] = ()
    first: int = 0


class Batch(NamedTuple):
    """What a dispatch of several steps runs.

    Attributes:
        records: number of its steps.
        varied: parameters in which those that its body runs differ.
        head: the first step, where it computes an operand of the others, instead of writing it.
        tail: the last one, where it joins the results of the two before it, instead of reading
            them.
        swapped: whether the first of these two is the second operand of the last step.
        others: further kinds of steps, after those of the program's own body.
        takers: the last steps, one for each that the body runs, each of which takes the result of
            one of them, an element or two at a time, instead of reading it.
        apart, columns: a workgroup computes elements that are so far apart, so many of each.
        chain: whether one workgroup runs one kind after the other.
    """

    records: int
    varied: Sequence[str]
    head: Part | None
    tail: Part | None
    swapped: bool
    others: Sequence[Part]
    takers: Sequence[Part]
    apart: int
    columns: int
    chain: bool


def program_of(
    step: Step,
    shader: Shader,
    roles: Sequence[Role],
    bindings: Sequence[Binding],
    guarded: bool,
    batch: Batch | None,
    machine: dict[str, str],
) -> Program:
    """The program of a step, or of several.

    Args:
        step, shader: the step, or the first one that the body runs, and its shader.
        roles: of its operands.
        bindings: that the roles name.
        guarded: whether it must do nothing once an index was out of range.
        batch: further steps of the dispatch; None: the step alone.
        machine: link.declarations of the machine.
    """
    varied: Sequence[str] = [] if batch is None else batch.varied
    row = "" if batch is None else "batch_part"
    linker = Linker(step, shader, roles, bindings, varied, row, machine)
    parts = [linker]
    if batch is not None:
        parts.extend(_ends(linker, batch))
        parts.extend(_others(linker, batch))
        parts.extend(_takers(linker, batch))
    linker.need("element" if shader.element else "run")
    body = _body(step, shader, linker, batch)
    registers = any(part.registers for part in parts)
    fails = any(part.fails for part in parts)
    count = 1 if batch is None else batch.records
    lines = _bound(bindings, RECORD_BYTES // 16 * count, registers, fails, guarded)
    chained = batch is not None and batch.chain
    if guarded and fails and shader.element and not chained:
        body = f"if (atomicLoad(&errors[0]) != 0u) {{ return; }} {body}"
    elif guarded and fails:  # others write the error meanwhile: one of the group reads it
        lines.append("var<workgroup> seen_error: u32;")
        body = (
            "if (lane == 0u) { seen_error = atomicLoad(&errors[0]); }"
            f" if (workgroupUniformLoad(&seen_error) != 0u) {{ return; }} {body}"
        )
    elif guarded:
        body = f"if (errors[0] != 0u) {{ return; }} {body}"
    lines.append(f"const GROUP = {shader.group}u;")
    lines.extend([text for text in linker.out.values() if text])
    if batch is not None:  # compilers do not all move reads out of loops
        words: list[int] = []
        for name in linker.out:
            found = WORD.fullmatch(name)
            if found is not None:
                words.append(int(found.group(1)))
        reads = [f" word{i} = {record_word('batch_part', i)};" for i in sorted(words)]
        lines.append(f"fn begin_part(part: u32) {{ batch_part = part;{''.join(reads)} }}")
    lines.append(
        f"@compute @workgroup_size({shader.group}) fn main(@builtin(workgroup_id) wg: vec3u,"
        f" @builtin(local_invocation_index) lane: u32) {{ {body} }}"
    )
    lines.append("")
    return Program("\n".join(lines), bindings, registers, fails, guarded, count)


def _bound(
    bindings: Sequence[Binding], records: int, registers: bool, fails: bool, guarded: bool
) -> list[str]:
    """Declarations of what a program binds. records: vectors of them."""
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
    return lines


def _linker(within: Linker, part: Part, row: str, machine: dict[str, str]) -> Linker:
    """The linker of a part of a program."""
    return Linker(part.step, part.shader, part.roles, within.bindings, part.varied, row, machine)


def _ends(linker: Linker, batch: Batch) -> list[Linker]:
    """Adds what the first and the last step of a batch compute; returns their linkers."""
    out: list[Linker] = []
    if batch.head is not None:
        head = _linker(linker, batch.head, "0u", {})
        head.need("prepare")
        head.need("value")
        linker.take(head, "before_")
        name = linker.shader.before
        linker.out[name] = f"fn {name}(i: u32) -> f32 {{ return before_value(i); }}"
        out.append(head)
    if batch.tail is not None:
        tail = _linker(linker, batch.tail, f"{batch.records - 1}u", {})
        result = batch.tail.shader.joins.split(" ")[2]
        apply = tail.add("apply")
        tail.need(f"{result}_set")
        linker.take(tail, "after_")
        both = "v, batch_kept" if batch.swapped else "batch_kept, v"
        linker.add("batch_part")
        linker.out["batch_kept"] = "var<private> batch_kept: f32;"
        name = linker.shader.after
        linker.out[f"{name}_set"] = (
            f"fn {name}_set(i: u32, v: f32) {{ if (batch_part == {batch.records - 3}u)"
            f" {{ batch_kept = v; }} else {{ after_{result}_set(i, after_{apply}({both})); }} }}"
        )
        out.append(tail)
    return out


def _others(linker: Linker, batch: Batch) -> list[Linker]:
    """Links the bodies of further kinds of steps: kind1_element, kind1_total, ..."""
    out: list[Linker] = []
    for i, kind in enumerate(batch.others):
        other = _linker(linker, kind, "batch_part", linker.machine)
        other.need("element")
        total = _count(kind.shader, kind.step, other)
        other.out["total"] = f"fn total() -> u32 {{ return {total}; }}"
        linker.take(other, f"kind{i + 1}_")
        out.append(other)
    return out


def _takers(linker: Linker, batch: Batch) -> list[Linker]:
    """Links the bodies of the steps that take results: take0_element, ... A workgroup computes
    elements twice; with the second ones these bodies run.
    """
    out: list[Linker] = []
    calls: list[str] = []
    first = batch.records - len(batch.takers)
    for number, part in enumerate(batch.takers):
        taker = _linker(linker, part, f"{first + number}u", linker.machine)
        name = part.shader.takes
        operand = part.step.operands[taker.operands[name]]
        type_ = TYPES[class_of(operand.dtype, operand.nbytes)]
        taken = f"bitcast<{type_}>(select(batch_last, batch_kept, i == batch_at))"
        taker.out[name] = f"fn {name}(i: u32) -> {type_} {{ return {taken}; }}"
        taker.need("element")
        linker.take(taker, f"take{number}_")
        two = 2 * batch.apart
        run = f"take{number}_element("
        pair = f"{run}batch_at / {two}u * {batch.apart}u + batch_at % {two}u);"
        calls.append(pair if part.shader.paired else f"{run}batch_at); {run}i);")
        out.append(taker)
    if out:
        linker.add("batch_part")
        linker.out["batch_kept"] = "var<private> batch_kept: f32;"
        linker.out["batch_last"] = "var<private> batch_last: f32;"
        linker.out["batch_at"] = "var<private> batch_at: u32;"
        linker.out["batch_second"] = "var<private> batch_second: bool;"
        name = linker.shader.after
        low = 0 if batch.head is None else 1
        cases = [f"if (batch_part == {low + i}u) {{ {call} }}" for i, call in enumerate(calls)]
        linker.out[f"{name}_set"] = (
            f"fn {name}_set(i: u32, v: f32) {{ if (!batch_second) {{ batch_kept = v; batch_at = i;"
            f" return; }} batch_last = v; {' else '.join(cases)} }}"
        )
    return out


def _body(step: Step, shader: Shader, linker: Linker, batch: Batch | None) -> str:
    """The statements of a program's entry point."""
    count = _count(shader, step, linker)
    first = f"record[{START // 4}][{START % 4}]"
    place = f"wg.y * {FOLD}u + wg.x"
    at = f"{place} - {first}"  # the first record's is 0, or, of a piece, less
    if batch is None:
        if shader.element:
            return f"let i = ({at}) * {shader.group}u + lane; if (i < {count}) {{ element(i); }}"
        return f"let at = {at}; if (at >= {count}) {{ return; }} run(at, lane);"
    linker.add("batch_part")
    low = 0 if batch.head is None else 1
    prepare = "" if batch.head is None else "before_prepare(lane); "
    if batch.tail is not None:  # both results by one invocation, one after the other
        part = batch.records - 3
        return (
            f"let at = {at}; if (at >= {count}) {{ return; }} {prepare}begin_part({part}u);"
            f" run(at, lane); workgroupBarrier(); begin_part({part + 1}u); run(at, lane);"
        )
    # No barrier may depend on `batch_part`: compilers take it to differ between invocations.
    row = RECORD_BYTES // 16
    search = (
        f"let place = {place};"
        f" if (place >= record[{low * row + TOTAL // 4}][{TOTAL % 4}]) {{ return; }}"
        f" {prepare}var low = {low}u; var high = {batch.records}u;"
        f" while (high - low > 1u) {{ let middle = (low + high) / 2u;"
        f" if (i32(record[middle * {row}u + {START // 4}u][{START % 4}]) <= i32(place))"
        " { low = middle; } else { high = middle; } }"
        f" begin_part(low); let at = place - {linker.word(START)};"
    )
    if batch.chain:
        return _chain(count, batch)
    if len(batch.takers) > 0:
        many = batch.apart // batch.columns
        return (
            f"{search} let own = at / {many}u * {2 * many}u + at % {many}u; run(own, lane);"
            f" workgroupBarrier(); batch_second = true; run(own + {many}u, lane);"
        )
    if not shader.element:
        return f"{search} run(at, lane);"
    return f"{search} let i = at * {shader.group}u + lane; {_elements(count, batch)}"


def _elements(count: str, batch: Batch) -> str:
    """The statements that run the body of a step's kind."""
    own = f"if (i < {count}) {{ element(i); }}"
    ends = [kind.first for kind in batch.others]
    if not ends:
        return own
    text = f"if (batch_part < {ends[0]}u) {{ {own}"
    for number in range(1, len(ends) + 1):
        body = f"if (i < kind{number}_total()) {{ kind{number}_element(i); }}"
        test = f"if (batch_part < {ends[number]}u) " if number < len(ends) else ""
        text += f" }} else {test}{{ {body}"
    return text + " }"


def _chain(count: str, batch: Batch) -> str:
    """The statements with which one workgroup runs one kind after the other."""
    out: list[str] = []
    firsts = [0, *[kind.first for kind in batch.others], batch.records]
    for number in range(len(firsts) - 1):
        prefix = f"kind{number}_" if number > 0 else ""
        total = f"{prefix}total()" if number > 0 else count
        out.append(
            f"for (var p = {firsts[number]}u; p < {firsts[number + 1]}u; p++) {{ begin_part(p);"
            f" for (var i = lane; i < {total}; i += GROUP) {{ {prefix}element(i); }} }}"
        )
    return " storageBarrier(); ".join(out)


def _count(shader: Shader, step: Step, linker: Linker) -> str:
    """The number of threads or groups as a u32 expression."""
    numbers: list[str] = NUMBER.split(shader.total)
    for i in range(1, len(numbers), 2):
        numbers[i] += "u"
    volumes: list[str] = VOLUME.split("".join(numbers).replace("//", "/"))
    for i in range(1, len(volumes), 2):
        sizes = [unsigned(x) for x in linker.numbers(volumes[i]) if x != 1]
        volumes[i] = f"({' * '.join(sizes or ['1u'])})"
    names: list[str] = PARAMETER.split("".join(volumes))
    for i in range(1, len(names), 2):
        name = names[i]
        if names[i + 1].startswith("("):
            continue
        value = step.params.get(name)
        if name in linker.varied:
            names[i] = f"{name}_()"
        elif isinstance(value, Linear):
            names[i] = unsigned(value)
        elif value is not None and not isinstance(value, list) and name not in step.floats:
            names[i] = unsigned(int(value))
    return linker.add("".join(names))

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
    GROUP           invocations in a workgroup

and defines `element(i: u32)`, called for each i below `threads`, or `run(group: u32, lane: u32)`,
called by each invocation of `groups` workgroups.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from ..declare.kernel import dimensions, evaluate
from .accessors import TYPES, Access, class_of
from .gen.shaders import COMMON, SHADERS
from .steps import Linear, Number, PlanStep, element_dtype

FOLD = 65535  # workgroups in the first dimension of a grid, all that WebGPU promises
# Words of a step's record: offsets of operands, floats that WGSL has no constants for, the step's
# number for errors; and, of a step in a batch, its first workgroup, the workgroups of the batch (in
# the first record), which of several bindings each operand has (two bits), parameters that vary.
OFFSETS, FLOATS, STEP_WORD, START, TOTAL, CHOICES, VARIED, RECORD_BYTES = (
    16,
    16,
    32,
    33,
    34,
    35,
    36,
    256,
)
MOST_VARIED, MOST_CHOICES, MOST_STEPS = 28, 4, 256
REGISTERS = 32  # that a plan may have
FIRST_BINDING = 3  # 0 is the record, 1 the registers, 2 the error

RESERVED = {"type", "as", "mod", "filter", "from", "final", "target", "set"}
BUILT_IN = {"cos", "sin"}  # operands of these names have accessors with an underscore


class Role(NamedTuple):
    """How an operand is bound: the numbers of its bindings. None where it is absent, several where
    that of a step in a batch lies in one of several buffers.
    """

    bindings: tuple[int, ...]
    written: bool


class Binding(NamedTuple):
    """A buffer of a step. stored: "f32", "u32" or "atomic<u32>"."""

    written: bool
    stored: str


@dataclass(frozen=True)
class Variant:
    """A shader of a kernel.

    Attributes:
        name: of the file.
        declared: what its first lines say: threads or groups, group, when, apply.
        parts: {name: text} of its functions and variables.
    """

    name: str
    declared: Mapping[str, str]
    parts: Mapping[str, str]

    @property
    def group(self) -> int:
        """Invocations in a workgroup."""
        return int(self.declared.get("group", "64"))


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


@cache
def variants_of(kernel: str) -> tuple[Variant, ...]:
    """The shaders of a kernel, special ones first; none where it has none."""
    return tuple(
        Variant(name, declared, parts_of(text)) for name, declared, text in SHADERS.get(kernel, ())
    )


@cache
def parts_of(text: str) -> dict[str, str]:
    """{name: text} of the declarations of a WGSL text without comments."""
    out: dict[str, str] = {}
    for declaration in re.split(r"\n(?=(?:fn|var|const|struct|alias)\b)", "\n" + text):
        found = re.match(r"\s*(?:fn|var(?:<\w+>)?|const|struct|alias)\s+(\w+)", declaration)
        if found:
            out[found[1]] = declaration.strip()
    return out


def count_of(variant: Variant, values: Mapping[str, object]) -> int:
    """Workgroups of a step."""
    if "threads" in variant.declared:
        return -(-int(evaluate(variant.declared["threads"], values)) // variant.group)
    return int(evaluate(variant.declared["groups"], values))


def folded(count: int) -> tuple[int, int]:
    """A number of workgroups in two dimensions."""
    return (count, 1) if count <= FOLD else (FOLD, -(-count // FOLD))


def grid_of(variant: Variant, values: Mapping[str, object]) -> tuple[int, int]:
    """Workgroups of a step, in two dimensions."""
    return folded(count_of(variant, values))


def stages_of(step: PlanStep, largest: Sequence[int]) -> list[Variant]:
    """The shaders that run a step, one after the other; none where the kernel has none for these
    parameters and types.

    Args:
        step: the step.
        largest: the highest values of the plan's registers.
    """
    present = {f"has_{o.name}": v is not None for o, v in zip(step.kernel.operands, step.operands)}
    values = {**step.values(largest), **present}
    for i, v in enumerate(step.operands):
        if v is not None and step.kernel.operands[i].name != "scratch":
            if not class_of(*element_dtype(step.kernel, i, step.params)):
                return []
    fit = [
        variant
        for variant in variants_of(step.kernel.name)
        if evaluate(variant.declared.get("when", "True"), values)
        and all(name in _all_parts(variant) for name in _applied(variant, step).values())
        and _aligned(variant, step)
        and _fixed(variant, step)
    ]
    before = [
        n for v in variants_of(step.kernel.name) for n in v.declared.get("stages", "").split()
    ]
    names = [f"{step.kernel.name}.{name}" for name in before]
    last = next((v for v in fit if v.name not in names), None)
    return [] if last is None else [*(v for v in fit if v.name in names), last]


def _fixed(variant: Variant, step: PlanStep) -> bool:
    """Whether arrays that follow registers are only indexed by constants: they are values of
    functions then, and not every compiler of WGSL indexes those by variables.
    """
    text = "".join(variant.parts.values())
    return not any(
        _follows(value) and re.search(rf"\b{name}\[(?!\d)", text)
        for name, value in step.params.items()
    )


def _follows(value: object) -> bool:
    """Whether a parameter follows a register."""
    if isinstance(value, list):
        return any(isinstance(x, Linear) for x in value)
    return isinstance(value, Linear)


def _aligned(variant: Variant, step: PlanStep) -> bool:
    """Whether operands that are read as words begin with one."""
    text = "".join(variant.parts.values())
    return all(
        v is None or f"{o.name}_word(" not in text or v.offset % 4 == v.scale % 4 == 0
        for o, v in zip(step.kernel.operands, step.operands)
    )


def _all_parts(variant: Variant) -> dict[str, str]:
    return {**parts_of(COMMON), **variant.parts}


def _applied(variant: Variant, step: PlanStep) -> dict[str, str]:
    """{name in the body: function of a variant that depends on parameters}"""
    if "apply" not in variant.declared:
        return {}
    out = {}
    for rule in variant.declared["apply"].split(";"):
        name, _, pattern = (word.strip() for word in rule.partition("="))
        out[name] = re.sub(r"\{(\w+)\}", lambda m: _named(step, m[1]), pattern)
    return out


def _named(step: PlanStep, parameter: str) -> str:
    """What stands for a parameter in the name of a function: the item of an enum, or the class of
    an element type.
    """
    code = step.params[parameter]
    if parameter in step.kernel.enums and isinstance(code, int):
        return step.kernel.enums[parameter].items[code]
    if "type" in parameter and isinstance(code, int):
        return class_of(code, 0)
    return str(code)


@dataclass
class _Linker:
    """Collects what a body refers to."""

    step: PlanStep
    variant: Variant
    roles: Sequence[Role]
    bindings: Sequence[Binding]
    varied: Sequence[str] | None = None  # of a batch: parameters that vary
    out: dict[str, str] = field(default_factory=dict)
    registers: bool = False
    fails: bool = False

    def __post_init__(self) -> None:
        self.parts = _all_parts(self.variant)
        self.applied = _applied(self.variant, self.step)
        self.operands = {o.name: i for i, o in enumerate(self.step.kernel.operands)}
        self.calls = {  # parameters that are functions
            name: f"{name}_()"
            for name, value in self.step.params.items()
            if _follows(value)
            or (isinstance(value, float) and not math.isfinite(value))
            or name in (self.varied or ())
        }
        self.fixed = {  # constants that the shader declares
            name.strip(): condition.strip()
            for rule in filter(None, self.variant.declared.get("const", "").split(";"))
            for name, _, condition in [rule.partition(" = ")]
        }

    def word(self, index: int) -> str:
        """A word of the step's record."""
        if self.varied is None:
            return f"record[{index // 4}][{index % 4}]"
        self.add("batch_part")
        return f"record[batch_part * {RECORD_BYTES // 16}u + {index // 4}u][{index % 4}]"

    def add(self, text: str, own: bool = True) -> str:
        """The text with the names that stand for others replaced; adds what it refers to.

        own: whether parameters may be named in it; not so in common functions.
        """
        for name, target in self.applied.items():
            text = re.sub(rf"\b{name}\b", target, text)
        for name, target in self.calls.items() if own else ():
            text = re.sub(rf"(?<![.\w]){name}\b(?!\s*\()", target, text)
        for name in dict.fromkeys(re.findall(r"(?<![.\w])[A-Za-z_]\w*", text)):
            if name not in self.out:
                self.need(name)
        return text

    def need(self, name: str) -> None:
        """Adds a declaration by name, if it is none of WGSL's own."""
        if name in self.parts:
            self.out[name] = ""  # it may refer to itself through others
            text = self.add(self.parts[name], name in self.variant.parts)
            del self.out[name]
            self.out[name] = text
        elif name in self.step.params and name not in RESERVED:
            self.parameter(name)
        elif name == "type_code" and "type" in self.step.params:
            self.out[name] = f"const type_code = {self.step.params['type']};"
        elif name in self.fixed:
            plain = {k: v for k, v in self.step.params.items() if isinstance(v, int)}
            self.out[name] = (
                f"const {name} = {str(bool(evaluate(self.fixed[name], plain))).lower()};"
            )
        elif name.endswith("_") and name[:-1] in self.calls:
            self.called(name[:-1])
        elif name in ("fail", "reg", "batch_part", "batch_choice"):
            self.special(name)
        else:
            self.accessor(name)

    def parameter(self, name: str) -> None:
        value = self.step.params[name]
        if name in self.calls:
            return
        if isinstance(value, list):
            self.out[name] = f"const {name} = {_array(value)};"
        elif isinstance(value, float):
            self.out[name] = f"const {name} = {value!r}f;"
        else:
            self.out[name] = f"const {name} = {value};"

    def called(self, name: str) -> None:
        value = self.step.params[name]
        if name in (self.varied or ()):
            at = VARIED + list(self.varied or ()).index(name)
            body = f"-> u32 {{ return {self.word(at)}; }}"
        elif isinstance(value, list):
            self.add("reg")
            body = f"-> array<i32, {len(value)}> {{ return {_array(value)}; }}"
        elif isinstance(value, Linear):
            self.add("reg")
            body = f"-> u32 {{ return u32({linear(value)}); }}"
        else:
            at = FLOATS + floats_of(self.step).index(name)
            body = f"-> f32 {{ return bitcast<f32>({self.word(at)}); }}"
        self.out[name + "_"] = f"fn {name}_() {body}"

    def special(self, name: str) -> None:
        if name == "reg":
            self.registers = True
            self.out[name] = "fn reg(r: u32) -> i32 { return registers[r / 4u][r % 4u]; }"
            return
        if name == "batch_part":
            self.out[name] = "var<private> batch_part: u32;"
            return
        if name == "batch_choice":
            text = f"return ({self.word(CHOICES)} >> (2u * k)) & 3u;"
            self.out[name] = f"fn batch_choice(k: u32) -> u32 {{ {text} }}"
            return
        self.fails = True
        at = self.word(STEP_WORD)
        self.out[name] = (
            "fn fail(index: i32) {"
            f" loop {{ let seen = atomicCompareExchangeWeak(&errors[0], 0u, {at});"
            " if (seen.exchanged) { atomicStore(&errors[1], bitcast<u32>(index)); break; }"
            " if (seen.old_value != 0u) { break; } } }"
        )

    def accessor(self, name: str) -> None:
        """Adds a function of an operand."""
        if name.startswith("has_") and name[4:] in self.operands:
            present = bool(self.roles[self.operands[name[4:]]].bindings)
            self.out[name] = f"const {name} = {str(present).lower()};"
            return
        for suffix in ("", "_set", "_int", "_word", "_at"):
            operand = name.removesuffix(suffix) if suffix else name
            if operand.removesuffix("_") in BUILT_IN:
                operand = operand.removesuffix("_")
                if suffix or name == operand:
                    continue
                self.out[name] = self.function_of(self.operands[operand], "").replace(
                    f"fn {operand}(", f"fn {name}("
                )
                return
            if operand in self.operands and operand + suffix == name:
                self.out[name] = ""
                text = self.function_of(self.operands[operand], suffix)
                del self.out[name]
                self.out[name] = text
                return

    def function_of(self, index: int, suffix: str) -> str:
        operand, role = self.step.kernel.operands[index], self.roles[index]
        if suffix == "_at":
            return self.index_function(index)
        dtype, nbytes = element_dtype(self.step.kernel, index, self.step.params)
        type_ = TYPES[class_of(dtype, nbytes) or "w"]
        if not role.bindings:
            if suffix == "_set":
                return f"fn {operand.name}_set(i: u32, v: {type_}) {{}}"
            kind = {"_int": "i32", "_word": "u32"}.get(suffix, type_)
            return f"fn {operand.name}{suffix}(i: u32) -> {kind} {{ return {kind}(); }}"
        base = self.base(index, nbytes)
        texts = []
        for way, binding in enumerate(role.bindings):
            name = operand.name if way == 0 else f"{operand.name}_way{way}"
            stored = self.bindings[binding].stored
            access = Access(name, dtype, nbytes, f"bound{binding}", stored, base)
            made = access.function(suffix)
            assert made is not None, suffix
            text, needs = made
            self.add(needs)
            texts.append(self.add(text) if suffix == "_int" else text)
        if len(texts) > 1 and suffix != "_int":  # which reads by the other accessor
            texts = [self.chosen(index, texts)]
        return texts[0]

    def chosen(self, index: int, texts: Sequence[str]) -> str:
        """The accessor of an operand that lies in one of several bindings. texts: of the accessors
        of each; the first gets a name of its own.
        """
        self.add("batch_choice")
        found = re.match(r"fn (\w+)\((.*?)\)( -> \w+)? ", texts[0])
        assert found is not None
        name, arguments, result = found[1], found[2], found[3] or ""
        names = [name + "_way0", *(re.findall(r"fn (\w+)", text)[0] for text in texts[1:])]
        given = ", ".join(a.split(":")[0] for a in arguments.split(", "))
        returns = "return " if result else ""
        cases = [
            f"if (batch_choice({index}u) == {way}u) {{ {returns}{names[way]}({given});"
            f" {'' if result else 'return; '}}}"
            for way in range(1, len(texts))
        ]
        body = f"{' '.join(cases)} {returns}{names[0]}({given});"
        first = texts[0].replace(f"fn {name}(", f"fn {names[0]}(", 1)
        return "\n".join([first, *texts[1:], f"fn {name}({arguments}){result} {{ {body} }}"])

    def base(self, index: int, nbytes: int) -> str:
        """The offset of an operand's element 0, in elements."""
        v = self.step.operands[index]
        assert v is not None
        fixed = self.word(index)
        if v.register < 0 or not v.scale:
            return fixed
        self.add("reg")
        return f"({fixed} + u32(reg({v.register}u) * {v.scale // nbytes}))"

    def index_function(self, index: int) -> str:
        """The function from a linear index to an element of a strided operand."""
        name = self.step.kernel.operands[index].name
        dims, strides = dimensions(self.step.kernel.operands[index].layout)[0]
        text = strided(self.step.params[dims], self.step.params[strides])  # type: ignore[arg-type]
        if "reg(" in text:
            self.add("reg")
        return f"fn {name}_at(i: u32) -> u32 {{ {text} }}"


def linear(x: Number) -> str:
    """A number of a plan as an i32 expression."""
    if isinstance(x, int):
        return str(x)
    return f"(reg({x.register}u) * {x.scale} + {x.add})"


def _array(values: Sequence[Number]) -> str:
    return f"array<i32, {len(values)}>({', '.join(linear(x) for x in values)})"


def floats_of(step: PlanStep) -> list[str]:
    """Names of the parameters that are infinite or NaN, in the order of their words in the
    record: WGSL has no such constants.
    """
    return [
        name
        for name, value in step.params.items()
        if isinstance(value, float) and not math.isfinite(value)
    ]


def strided(dims: Sequence[Number], strides: Sequence[Number]) -> str:
    """Statements that return the element which linear index i stands for."""
    merged: list[tuple[Number, Number]] = []
    for d, s in zip(dims, strides):
        if d == 1:
            continue
        if merged and isinstance(d, int) and isinstance(s, int):
            outer, outer_stride = merged[-1]
            if isinstance(outer, int) and isinstance(outer_stride, int) and outer_stride == s * d:
                merged[-1] = (outer * d, s)
                continue
        merged.append((d, s))
    if not merged:
        return "return 0u;"
    text, rest = ["var at = 0u;", "var r = i;"], len(merged)
    for d, s in reversed(merged):
        rest -= 1
        extent, stride = _u32(d), _u32(s)
        if rest:
            text.append(f"let q{rest} = r / {extent};")
            if s != 0:
                text.append(f"at += (r - q{rest} * {extent}) * {stride};")
            text.append(f"r = q{rest};")
        elif s != 0:
            text.append(f"at += r * {stride};")
    return " ".join([*text, "return at;"])


def _u32(x: Number) -> str:
    return f"{x & 0xFFFFFFFF}u" if isinstance(x, int) else f"u32({linear(x)})"


def _count(variant: Variant, step: PlanStep, linker: _Linker) -> str:
    """The number of threads or groups as a u32 expression."""
    expression = variant.declared.get("threads") or variant.declared["groups"]

    def chosen(found: re.Match[str]) -> str:
        fixed = {k: v for k, v in step.params.items() if not isinstance(v, Linear)}
        return found[1] if evaluate(found[2], fixed) else found[3]

    def volume(found: re.Match[str]) -> str:
        sizes = step.params[found[1]]
        assert isinstance(sizes, list)
        return f"({' * '.join([_u32(x) for x in sizes if x != 1] or ['1u'])})"

    def name(found: re.Match[str]) -> str:
        value = step.params.get(found[0])
        if found[0] in (linker.varied or ()):
            return f"{found[0]}_()"
        return found[0] if not isinstance(value, (int, Linear)) else _u32(value)

    expression = re.sub(r"(\w+) if (.+?) else (\w+)", chosen, expression)
    expression = re.sub(r"(?<![\w.])(\d+)(?![\w.])", r"\1u", expression).replace("//", "/")
    fixed = re.sub(r"volume\((\w+)\)", volume, expression)
    text = re.sub(r"(?<![\w.])[a-z]\w*(?!\w*\()", name, fixed)
    return linker.add(text)


def program_of(
    step: PlanStep,
    variant: Variant,
    roles: Sequence[Role],
    bindings: Sequence[Binding],
    guarded: bool,
    batch: tuple[int, Sequence[str]] | None = None,
) -> Program:
    """The program of a step, or of a batch of steps.

    Args:
        step, variant: the step, or the first one, and its shader.
        roles: of the operands.
        bindings: that the roles name.
        guarded: whether it must do nothing once an index was out of range.
        batch: (number of steps, parameters in which they differ); None: a step alone.
    """
    linker = _Linker(step, variant, roles, bindings, batch[1] if batch else None)
    element = "element" in variant.parts
    linker.need("element" if element else "run")
    body = _body(step, variant, linker, batch)
    records = RECORD_BYTES // 16 * (batch[0] if batch else 1)
    lines = [f"@group(0) @binding(0) var<uniform> record: array<vec4u, {records}>;"]
    if linker.registers:
        lines.append(
            f"@group(0) @binding(1) var<uniform> registers: array<vec4i, {REGISTERS // 4}>;"
        )
    if linker.fails:
        lines.append("@group(0) @binding(2) var<storage, read_write> errors: array<atomic<u32>>;")
    elif guarded:
        lines.append("@group(0) @binding(2) var<storage, read> errors: array<u32>;")
    for i, b in enumerate(bindings):
        mode = "read_write" if b.written else "read"
        lines.append(
            f"@group(0) @binding({FIRST_BINDING + i}) var<storage, {mode}> bound{i}:"
            f" array<{b.stored}>;"
        )
    if guarded and linker.fails:  # others write the error meanwhile: one of the group reads it
        lines.append("var<workgroup> seen_error: u32;")
        body = (
            "if (lane == 0u) { seen_error = atomicLoad(&errors[0]); }"
            f" if (workgroupUniformLoad(&seen_error) != 0u) {{ return; }} {body}"
        )
    elif guarded:
        body = f"if (errors[0] != 0u) {{ return; }} {body}"
    lines += [f"const GROUP = {variant.group}u;", *(t for t in linker.out.values() if t)]
    lines += [
        f"@compute @workgroup_size({variant.group}) fn main(@builtin(workgroup_id) wg: vec3u,"
        f" @builtin(local_invocation_index) lane: u32) {{ {body} }}",
        "",
    ]
    count = batch[0] if batch else 1
    text = "\n".join(lines)
    return Program(text, tuple(bindings), linker.registers, linker.fails, guarded, count)


def _body(
    step: PlanStep, variant: Variant, linker: _Linker, batch: tuple[int, Sequence[str]] | None
) -> str:
    """The statements of a program's entry point."""
    count = _count(variant, step, linker)
    element = "element" in variant.parts
    at = f"wg.y * {FOLD}u + wg.x"
    if batch is None:
        if element:
            return f"let i = ({at}) * {variant.group}u + lane; if (i < {count}) {{ element(i); }}"
        return f"let at = {at}; if (at >= {count}) {{ return; }} run(at, lane);"
    linker.add("batch_part")
    # No barrier may depend on `batch_part`: compilers take it to differ between invocations.
    search = (
        f"let place = {at}; if (place >= record[{TOTAL // 4}][{TOTAL % 4}]) {{ return; }}"
        f" var low = 0u; var high = {batch[0]}u;"
        f" while (high - low > 1u) {{ let middle = (low + high) / 2u;"
        f" if (record[middle * {RECORD_BYTES // 16}u + {START // 4}u][{START % 4}] <= place)"
        " { low = middle; } else { high = middle; } }"
        f" batch_part = low; let at = place - {linker.word(START)};"
    )
    if element:
        return f"{search} let i = at * {variant.group}u + lane; if (i < {count}) {{ element(i); }}"
    return f"{search} run(at, lane);"

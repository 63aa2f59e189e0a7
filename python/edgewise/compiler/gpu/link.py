"""Collects what the body of a shader refers to: constants, accessors, functions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..declare.kernel import dimensions
from .accessors import TYPES, Access, class_of
from .gen.shaders import COMMON
from .steps import Linear, Number, PlanStep, element_dtype
from .variants import Variant, all_parts, applied_in, follows, parts_of

# Words of a step's record: offsets of operands, floats that WGSL has no constants for, the step's
# number for errors; and, of a step in a batch, its first workgroup, the workgroups of the batch (in
# the first record), which of several bindings each operand has (two bits), parameters that vary.
OFFSETS, FLOATS, STEP_WORD = 16, 16, 32
START, TOTAL, CHOICES, VARIED = 33, 34, 35, 36
RECORD_BYTES = 256
MOST_VARIED, MOST_CHOICES, MOST_STEPS = 28, 4, 256
RESERVED = {"type", "as", "mod", "filter", "from", "final", "target", "set"}
BUILT_IN = {"cos", "sin"}  # operands of these names have accessors with an underscore

DOTS = {  # sum of four products of signed bytes: whether WGSL has a function for it
    True: "fn dot_of_bytes(v: vec4i, w_: u32) -> i32 { return dot4I8Packed(pack4xI8(v), w_); }",
    False: "fn dot_of_bytes(v: vec4i, w_: u32) -> i32 {"
    " return v.x * (bitcast<i32>(w_ << 24u) >> 24u) + v.y * (bitcast<i32>(w_ << 16u) >> 24u)"
    " + v.z * (bitcast<i32>(w_ << 8u) >> 24u) + v.w * (bitcast<i32>(w_) >> 24u); }",
}


def declarations(columns: int, together: int, dots: bool) -> dict[str, str]:
    """What shaders may refer to beside the contract of their kernel."""
    return {
        "PANEL": f"const PANEL = {columns}u;",
        "TOGETHER": f"const TOGETHER = {together}u;",
        "dot_of_bytes": DOTS[dots],
    }


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


@dataclass
class Linker:
    """Collects what a body refers to."""

    step: PlanStep
    variant: Variant
    roles: Sequence[Role]
    bindings: Sequence[Binding]
    varied: Sequence[str] = ()  # parameters that vary in a batch
    row: str = ""  # of several records: expression of the number of the step's own
    machine: Mapping[str, str] = field(default_factory=dict)  # declarations
    out: dict[str, str] = field(default_factory=dict)
    registers: bool = False
    fails: bool = False

    def __post_init__(self) -> None:
        absent = Role((), False)  # others of its batch may have the operand
        self.roles = [absent if v is None else r for r, v in zip(self.roles, self.step.operands)]
        self.parts = all_parts(self.variant)
        self.applied = applied_in(self.variant, self.step)
        self.operands = {o.name: i for i, o in enumerate(self.step.kernel.operands)}
        self.calls = {  # parameters that are functions
            name: f"{name}_()"
            for name, value in self.step.params.items()
            if follows(value)
            or (isinstance(value, float) and not math.isfinite(value))
            or name in self.varied
        }

    def word(self, index: int) -> str:
        """A word of the step's record."""
        if not self.row:
            return f"record[{index // 4}][{index % 4}]"
        self.add(self.row)
        if self.row == "batch_part" and index != START:
            self.out[f"word{index}"] = f"var<private> word{index}: u32;"
            return f"word{index}"
        return record_word(self.row, index)

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

    def renamed(self, prefix: str) -> dict[str, str]:
        """What it has collected, with a prefix before all names but those that shaders share."""
        shared = parts_of(COMMON)
        special = {"reg", "batch_part"}
        if self.row == "batch_part":  # others have a record of their own
            special |= {"fail", "batch_choice"}
        own = [name for name in self.out if name not in shared and name not in special]
        own = [name for name in own if not re.fullmatch(r"word\d+", name)]
        texts = "\n".join(self.out[name] for name in own)
        own += [name for name in re.findall(r"\bfn (\w+)", texts) if name not in self.out]
        names = "|".join(map(re.escape, dict.fromkeys(own)))
        out = {}
        for name, text in self.out.items():
            if names:
                text = re.sub(rf"(?<![.\w])({names})\b", rf"{prefix}\1", text)
            out[prefix + name if name in own else name] = text
        return out

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
        elif name.endswith("_") and name[:-1] in self.calls:
            self.called(name[:-1])
        elif name in ("fail", "reg", "batch_part", "batch_choice"):
            self.special(name)
        elif name in self.machine:
            self.out[name] = self.machine[name]
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
        if name in self.varied:
            at = VARIED + list(self.varied).index(name)
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


def record_word(row: str, index: int) -> str:
    """A word of one of several records. row: expression of its number."""
    return f"record[{row} * {RECORD_BYTES // 16}u + {index // 4}u][{index % 4}]"


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
        extent, stride = unsigned(d), unsigned(s)
        if rest:
            text.append(f"let q{rest} = r / {extent};")
            if s != 0:
                text.append(f"at += (r - q{rest} * {extent}) * {stride};")
            text.append(f"r = q{rest};")
        elif s != 0:
            text.append(f"at += r * {stride};")
    return " ".join([*text, "return at;"])


def unsigned(x: Number) -> str:
    """A number of a plan as a u32 expression."""
    return f"{x & 0xFFFFFFFF}u" if isinstance(x, int) else f"u32({linear(x)})"

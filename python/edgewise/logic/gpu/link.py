"""Collects what the body of a shader refers to: constants, accessors, functions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from .accessors import TYPES, Access, class_of
from .steps import Linear, Param, Shader, Size, Step, follows

# Words of a step's record: offsets of operands, floats that WGSL has no constants for, the step's
# number for errors; its first workgroup in the dispatch, below 0 where earlier dispatches have run
# workgroups of it; and, of a step in a batch, the workgroups that are left (in the first record),
# which of several bindings each operand has (two bits), parameters that vary.
OFFSETS = 16
FLOATS = 16
STEP_WORD = 32
START = 33
TOTAL = 34
CHOICES = 35
VARIED = 36
RECORD_BYTES = 256
MAX_VARIED = 28
MAX_CHOICES = 4
MAX_STEPS = 256

RESERVED = {"type", "as", "mod", "filter", "from", "final", "target", "set"}
SPECIAL = {"reg", "fail", "batch_part", "batch_choice"}
BUILT_IN = {"cos", "sin"}  # operands of these names have accessors with an underscore
SUFFIXES = ("", "_set", "_int", "_word", "_at")

# Names of a text, and what is between them where it is split by them.
NAME = re.compile(r"((?<![.A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*)")
WORD = re.compile(r"word([0-9]+)")
DEFINED = re.compile(r"(?<![A-Za-z0-9_])fn ([A-Za-z0-9_]+)")
HEAD = re.compile(r"fn ([A-Za-z0-9_]+)\((.*?)\)( -> [A-Za-z0-9_]+)? ")

# Sum of four products of signed bytes, where WGSL has a function for it and where it has none.
DOT = "fn dot_of_bytes(v: vec4i, w_: u32) -> i32 { return dot4I8Packed(pack4xI8(v), w_); }"
NO_DOT = (
    "fn dot_of_bytes(v: vec4i, w_: u32) -> i32 {"
    " return v.x * (bitcast<i32>(w_ << 24u) >> 24u) + v.y * (bitcast<i32>(w_ << 16u) >> 24u)"
    " + v.z * (bitcast<i32>(w_ << 8u) >> 24u) + v.w * (bitcast<i32>(w_) >> 24u); }"
)

DOT_OF_PACKED = "fn dot_of_packed(v: u32, w_: u32) -> i32 { return dot4I8Packed(v, w_); }"
NO_DOT_OF_PACKED = (
    "fn dot_of_packed(v: u32, w_: u32) -> i32 { let s = vec4u(24u, 16u, 8u, 0u);"
    " let x = (bitcast<vec4i>(vec4u(v) << s) >> vec4u(24u))"
    " * (bitcast<vec4i>(vec4u(w_) << s) >> vec4u(24u)); return x.x + x.y + x.z + x.w; }"
)


def packed_dots(dots: bool) -> str:
    """The function `dot_of_packed`. dots: whether WGSL has products of four packed bytes."""
    return DOT_OF_PACKED if dots else NO_DOT_OF_PACKED


def declarations(columns: int, together: int, dots: bool) -> dict[str, str]:
    """What shaders may refer to besides the contract of their kernel.

    Args:
        columns, together: how the engine in C packs weights of bytes.
        dots: whether WGSL has products of four packed bytes.
    """
    return {
        "PANEL": f"const PANEL = {columns}u;",
        "TOGETHER": f"const TOGETHER = {together}u;",
        "dot_of_bytes": DOT if dots else NO_DOT,
        "dot_of_packed": packed_dots(dots),
    }


class Role(NamedTuple):
    """How an operand is bound: the numbers of its bindings. None where it is absent, several where
    that of a step in a batch lies in one of several buffers.
    """

    bindings: Sequence[int]
    written: bool


class Binding(NamedTuple):
    """A buffer of a step. stored: "f32", "u32" or "atomic<u32>"."""

    written: bool
    stored: str


class Accessor(NamedTuple):
    """A function of an operand: its number, and the end of the function's name; "has": whether the
    step has the operand.
    """

    operand: int
    suffix: str


class Linker:
    """Collects what a body refers to.

    Args:
        step, shader: the step, and what runs it.
        roles: of its operands; others of its batch may have operands that it has not.
        bindings: that the roles name.
        varied: parameters that vary in a batch.
        row: of several records: expression of the number of the step's own.
        machine: as of `declarations`.
    """

    def __init__(
        self,
        step: Step,
        shader: Shader,
        roles: Sequence[Role],
        bindings: Sequence[Binding],
        varied: Sequence[str],
        row: str,
        machine: dict[str, str],
    ) -> None:
        self.step = step
        self.shader = shader
        self.bindings = bindings
        self.varied = varied
        self.row = row
        self.machine = machine
        self.out: dict[str, str] = {}
        self.registers = False
        self.fails = False
        absent = Role([], False)
        self.roles = [r if o.present else absent for r, o in zip(roles, step.operands)]
        self.operands: dict[str, int] = {}
        self.accessors: dict[str, Accessor] = {}
        for i, o in enumerate(step.operands):
            self.operands[o.name] = i
            self.accessors[f"has_{o.name}"] = Accessor(i, "has")
            if o.name in BUILT_IN:
                self.accessors[f"{o.name}_"] = Accessor(i, "")
            else:
                for suffix in SUFFIXES:
                    self.accessors[o.name + suffix] = Accessor(i, suffix)
        self.calls: dict[str, str] = {}  # by the name that stands for it
        for name, value in step.params.items():
            if follows(value):
                self.calls[f"{name}_"] = name
        for name in [*floats_of(step), *varied]:
            self.calls[f"{name}_"] = name
        self.called_for = set(self.calls.values())

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
        parts: list[str] = NAME.split(text)
        names: list[str] = []
        for i in range(1, len(parts), 2):
            name = parts[i]
            if name in self.shader.applied:
                name = self.shader.applied[name]
                parts[i] = name
            elif own and name in self.called_for and not parts[i + 1].lstrip().startswith("("):
                name += "_"
                parts[i] = f"{name}()"
            names.append(name)
        for name in names:
            if name not in self.out:
                self.need(name)
        return "".join(parts)

    def renamed(self, prefix: str) -> list[tuple[str, str]]:
        """(name, text) of what it has collected, with a prefix before all names but those that
        shaders share.
        """
        apart = self.row != "batch_part"  # it has a record of its own
        own: set[str] = set()
        for name in self.out:
            if apart and (name == "fail" or name == "batch_choice"):
                own.add(name)
            elif name not in self.shader.shared and name not in SPECIAL:
                if WORD.fullmatch(name) is None:
                    own.add(name)
        within: set[str] = set()
        for name in own:
            for defined in DEFINED.findall(self.out[name]):
                if defined not in self.out:
                    within.add(defined)
        out: list[tuple[str, str]] = []
        for name, text in self.out.items():
            parts: list[str] = NAME.split(text)
            for i in range(1, len(parts), 2):
                if parts[i] in own or parts[i] in within:
                    parts[i] = prefix + parts[i]
            out.append((prefix + name if name in own else name, "".join(parts)))
        return out

    def take(self, other: Linker, prefix: str) -> None:
        """Adds what another one has collected, renamed."""
        for name, text in other.renamed(prefix):
            self.out[name] = text

    def need(self, name: str) -> None:
        """Adds a declaration by name, if it is none of WGSL's own."""
        params = self.step.params
        if name in self.shader.parts:
            self.make(name, self.shader.parts[name], True)
        elif name in self.shader.shared:
            self.make(name, self.shader.shared[name], False)
        elif name in params and name not in RESERVED:
            self.parameter(name, params[name])
        elif name == "type_code" and "type" in params:
            self.out[name] = f"const type_code = {plain(params['type'])};"
        elif name in self.calls:
            self.called(self.calls[name])
        elif name in SPECIAL:
            self.special(name)
        elif name in self.machine:
            self.out[name] = self.machine[name]
        elif name in self.accessors:
            self.accessor(name, self.accessors[name])

    def make(self, name: str, text: str, own: bool) -> None:
        """Adds a declaration after what it refers to; it may refer to itself through others."""
        self.out[name] = ""
        made = self.add(text, own)
        del self.out[name]
        self.out[name] = made

    def parameter(self, name: str, value: Param) -> None:
        """Adds a parameter as a constant."""
        if name in self.called_for:
            return
        if isinstance(value, list):
            self.out[name] = f"const {name} = {_array(value)};"
        elif name in self.step.floats:
            self.out[name] = f"const {name} = {plain(value, True)}f;"
        else:
            self.out[name] = f"const {name} = {plain(value)};"

    def called(self, name: str) -> None:
        """Adds a parameter as a function."""
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
        """Adds what a program has of its own."""
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

    def accessor(self, name: str, accessor: Accessor) -> None:
        """Adds a function of an operand."""
        index, suffix = accessor.operand, accessor.suffix
        if suffix == "has":
            present = "true" if len(self.roles[index].bindings) > 0 else "false"
            self.out[name] = f"const {name} = {present};"
            return
        operand = self.step.operands[index].name
        self.out[name] = ""
        text = self.function_of(index, suffix)
        del self.out[name]
        if operand in BUILT_IN:
            text = text.replace(f"fn {operand}(", f"fn {name}(")
        self.out[name] = text

    def function_of(self, index: int, suffix: str) -> str:
        """The text of an accessor."""
        operand = self.step.operands[index]
        role = self.roles[index]
        if suffix == "_at":
            return self.index_function(index)
        name = operand.name
        type_ = TYPES[class_of(operand.dtype, operand.nbytes) or "w"]
        if len(role.bindings) == 0:
            if suffix == "_set":
                return f"fn {name}_set(i: u32, v: {type_}) {{}}"
            kind = "i32" if suffix == "_int" else "u32" if suffix == "_word" else type_
            return f"fn {name}{suffix}(i: u32) -> {kind} {{ return {kind}(); }}"
        base = self.base(index)
        texts: list[str] = []
        for way, binding in enumerate(role.bindings):
            own = name if way == 0 else f"{name}_way{way}"
            stored = self.bindings[binding].stored
            access = Access(own, operand.dtype, operand.nbytes, f"bound{binding}", stored, base)
            text, needs = access.function(suffix)
            self.add(needs)
            texts.append(self.add(text) if suffix == "_int" else text)
        if len(texts) > 1 and suffix != "_int":  # which reads by the other accessor
            return self.chosen(index, texts)
        return texts[0]

    def chosen(self, index: int, texts: Sequence[str]) -> str:
        """The accessor of an operand that lies in one of several bindings. texts: of the accessors
        of each; the first gets a name of its own.
        """
        self.add("batch_choice")
        found = HEAD.match(texts[0])
        assert found is not None
        name, arguments, result = _group(found, 1), _group(found, 2), _group(found, 3)
        names: list[str] = [name + "_way0", *[DEFINED.findall(text)[0] for text in texts[1:]]]
        given = ", ".join([a.split(":")[0] for a in arguments.split(", ")])
        returns = "return " if result else ""
        leaves = "" if result else "return; "
        cases: list[str] = []
        for way in range(1, len(texts)):
            call = f"{returns}{names[way]}({given});"
            cases.append(f"if (batch_choice({index}u) == {way}u) {{ {call} {leaves}}}")
        body = f"{' '.join(cases)} {returns}{names[0]}({given});"
        first = texts[0].replace(f"fn {name}(", f"fn {names[0]}(")
        return "\n".join([first, *texts[1:], f"fn {name}({arguments}){result} {{ {body} }}"])

    def base(self, index: int) -> str:
        """The offset of an operand's element 0, in elements."""
        operand = self.step.operands[index]
        fixed = self.word(index)
        if operand.register < 0 or operand.scale == 0:
            return fixed
        self.add("reg")
        return f"({fixed} + u32(reg({operand.register}u) * {operand.scale // operand.nbytes}))"

    def index_function(self, index: int) -> str:
        """The function from a linear index to an element of a strided operand."""
        operand = self.step.operands[index]
        text = strided(self.numbers(operand.dims), self.numbers(operand.strides))
        if "reg(" in text:
            self.add("reg")
        return f"fn {operand.name}_at(i: u32) -> u32 {{ {text} }}"

    def numbers(self, name: str) -> list[Size]:
        """A parameter that is a list."""
        value = self.step.params[name]
        return value if isinstance(value, list) else []


def _group(found: re.Match[str], number: int) -> str:
    """A group of a match; "" where it has no part in it."""
    text: str | None = found.group(number)
    return "" if text is None else text


def record_word(row: str, index: int) -> str:
    """A word of one of several records. row: expression of its number."""
    return f"record[{row} * {RECORD_BYTES // 16}u + {index // 4}u][{index % 4}]"


def decimal(x: float) -> str:
    """A float as Python writes it."""
    return repr(x)


def plain(value: Param, point: bool = False) -> str:
    """A parameter that is one number. point: whether it is a float."""
    if isinstance(value, list) or isinstance(value, Linear):
        return ""
    return decimal(float(value)) if point else str(int(value))


def linear(x: Size) -> str:
    """A number of a plan as an i32 expression."""
    if isinstance(x, Linear):
        return f"(reg({x.register}u) * {x.scale} + {x.add})"
    return str(x)


def _array(values: Sequence[Size]) -> str:
    return f"array<i32, {len(values)}>({', '.join([linear(x) for x in values])})"


def floats_of(step: Step) -> list[str]:
    """Names of the parameters that are infinite or NaN, in the order of their words in the
    record: WGSL has no such constants.
    """
    out: list[str] = []
    for name, value in step.params.items():
        if isinstance(value, list) or isinstance(value, Linear):
            continue
        if name in step.floats and not math.isfinite(value):
            out.append(name)
    return out


class _Dim(NamedTuple):
    """A dimension of a strided operand."""

    extent: Size
    stride: Size


def strided(dims: Sequence[Size], strides: Sequence[Size]) -> str:
    """Statements that return the element which linear index i stands for."""
    merged: list[_Dim] = []
    for d, s in zip(dims, strides):
        if d == 1:
            continue
        if merged and not isinstance(d, Linear) and not isinstance(s, Linear):
            outer = merged[-1].extent
            stride = merged[-1].stride
            if not isinstance(outer, Linear) and not isinstance(stride, Linear):
                if stride == s * d:
                    merged[-1] = _Dim(outer * d, s)
                    continue
        merged.append(_Dim(d, s))
    if not merged:
        return "return 0u;"
    text = ["var at = 0u;", "var r = i;"]
    for rest in range(len(merged) - 1, -1, -1):
        extent = unsigned(merged[rest].extent)
        stride_text = unsigned(merged[rest].stride)
        if rest > 0:
            text.append(f"let q{rest} = r / {extent};")
            if merged[rest].stride != 0:
                text.append(f"at += (r - q{rest} * {extent}) * {stride_text};")
            text.append(f"r = q{rest};")
        elif merged[rest].stride != 0:
            text.append(f"at += r * {stride_text};")
    text.append("return at;")
    return " ".join(text)


def unsigned(x: Size) -> str:
    """A number of a plan as a u32 expression."""
    if isinstance(x, Linear):
        return f"u32({linear(x)})"
    return f"{x % 4294967296}u"

"""Contracts of kernels: the arguments that a step may pass to a kernel, in all implementations.

A contract is all that the compiler, the plan loader and the profiler know of a kernel: its
parameters, its operands as typed tensors, the rules between them, which outputs may overwrite which
inputs, its cost, and the index space over which its work is parallel. The contracts of a family of
operators are in the family's `contracts.py`; `make gen` generates the declarations in C and
TypeScript from them. The C function of a kernel is `ew_k_<name>` in core/kernels/.

    Kernel(
        "softmax",
        params("rows cols x_row y_row log"),
        [
            read("x", FLOAT, "rows:x_row, cols"),
            write("y", FLOAT, "rows:y_row, cols", inplace=["x"]),
        ],
        empty=["rows", "cols"],
        grid="rows",
        doc="Softmax or LogSoftmax over the last axis.",
    )

A *layout* names a tensor's dimensions, outermost first, as `extent` or `extent:stride`; extents are
expressions over the parameters, strides are parameters, in elements. Dimensions after the last
stride are contiguous. The layout determines the operand's *reach*: the lowest and the highest
element (relative to the operand's offset, highest exclusive) that the kernel may access. The plan
loader compares it once with the memory that a step binds, so that kernels need no checks.

Contracts also bound the work of a step by the memory that it accesses: elements of strided outputs
are `distinct`, and the length of a sum is that of an operand, or bounded by a rule. This rejects
plans that are made to run forever.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import CodeType

from ...element_types import DTYPES
from .dtypes import BITS, INT4, INT8, UINT4, UINT8

# Dimensions of a strided kernel, after merging of neighbouring dimensions.
MAX_DIMS = 6

# Element types of quantized weights and zero points: a byte each, or two to a byte.
BYTES = (UINT8, INT8, UINT4, INT4)


# ---- element types


@dataclass(frozen=True)
class ElementType:
    """The element type of an operand, fixed or given by the parameters of a step.

    Attributes:
        codes: ONNX codes that are allowed; empty: all of the right size.
        parameter: The name of the parameter that holds the code, or "".
        size: Bytes per element, an expression over the parameters.
        bool_if: A condition over the parameters under which elements are bool instead.
    """

    codes: tuple[int, ...] = ()
    parameter: str = ""
    size: str = ""
    bool_if: str = ""

    def accepts(self, dtype: int, params: Mapping[str, object]) -> bool:
        """Whether a step with these parameters may bind a tensor of this element type."""
        if self.bool_if and evaluate(self.bool_if, params):
            return DTYPES.get(dtype, ("", 0))[1] == 1
        if self.parameter:
            code = params[self.parameter]
            return dtype == code or code in BITS and dtype == UINT8  # unpacked: a byte each
        return not self.codes or dtype in self.codes


def element_type(of: ElementType | int | str | Sequence[int]) -> ElementType:
    """The ElementType of a declaration.

    Args:
        of: An ONNX code, several codes of one size, the name of the parameter that holds the code,
            or an ElementType.
    """
    if isinstance(of, ElementType):
        return of
    if isinstance(of, str):
        return ElementType(parameter=of, size=f"bytes_of({of})")
    codes = (of,) if isinstance(of, int) else tuple(of)
    return ElementType(codes, size=str(max(DTYPES.get(c, ("", 1))[1] for c in codes)))


def typed(parameter: str, *codes: int) -> ElementType:
    """The type in `parameter`, which must be one of these ONNX codes."""
    return ElementType(codes, parameter, f"bytes_of({parameter})")


def sized(size: str) -> ElementType:
    """Any element type of `size` bytes, a parameter, for elements that are only moved."""
    return ElementType(size=size)


def unpacked(parameter: str) -> ElementType:
    """The type in `parameter`; elements of less than a byte take a byte each."""
    return ElementType(parameter=parameter, size=f"bytes_of_any({parameter})")


def packed(parameter: str) -> ElementType:
    """The type in `parameter`, of a byte or less, stored without gaps; its layout counts bytes."""
    return ElementType(parameter=parameter, size="1")


def bool_if(condition: str, otherwise: str) -> ElementType:
    """bool where `condition` holds, else the type in the parameter `otherwise`."""
    size = f"1 if {condition} else bytes_of({otherwise})"
    return ElementType(parameter=otherwise, size=size, bool_if=condition)


# ---- operands


@dataclass(frozen=True)
class Operand:
    """One operand of a kernel.

    Attributes:
        name: Its name; in C `EW_<KERNEL>_<NAME>` is its index in the list of operands.
        type: The type of its elements.
        layout: Its dimensions and strides (see the module's text).
        output: Whether the kernel writes it.
        updated: Whether the kernel reads an output's old elements before it writes new ones.
        optional: Whether a step may omit it.
        inplace: Names of inputs that may be exactly the same memory as this output.
        touches: Where data determine which part is accessed (gather, scatter), the name of the
            operand that has as many elements as the kernel accesses of this one.
        reach: The highest element, exclusive, where it does not follow from the layout.
        size, lo, hi: Bytes per element and the reach in elements, expressions over the parameters;
            set by the Kernel.
        scratch: Whether it is working memory of an implementation and no part of the contract.
        pages: Whether it consists of equal parts, along its first dimension, of which the kernel
            needs one at a time (`ew_page` of core/kernel.h).
    """

    name: str
    type: ElementType
    layout: str
    output: bool = False
    optional: bool = False
    inplace: tuple[str, ...] = ()
    touches: str = ""
    reach: str = ""
    size: str = ""
    lo: str = "0"
    hi: str = ""
    scratch: bool = False
    updated: bool = False
    pages: bool = False

    @property
    def access(self) -> str:
        """What a kernel does with it: "read", "write", "update" (both) or "scratch"."""
        if self.scratch:
            return "scratch"
        return "update" if self.updated else "write" if self.output else "read"


def read(
    name: str,
    type: ElementType | int | str | Sequence[int],
    layout: str = "",
    *,
    reach: str = "",
    optional: bool = False,
    touches: str = "",
    pages: bool = False,
) -> Operand:
    """Declares an input; the arguments are attributes of Operand."""
    kind = element_type(type)
    return Operand(name, kind, layout, optional=optional, touches=touches, reach=reach, pages=pages)


def write(
    name: str,
    type: ElementType | int | str | Sequence[int],
    layout: str = "",
    *,
    reach: str = "",
    optional: bool = False,
    inplace: Sequence[str] = (),
    touches: str = "",
) -> Operand:
    """Declares an output; the arguments are attributes of Operand."""
    return Operand(name, element_type(type), layout, True, optional, tuple(inplace), touches, reach)


def update(
    name: str,
    type: ElementType | int | str | Sequence[int],
    layout: str,
    *,
    optional: bool = False,
    touches: str = "",
) -> Operand:
    """A tensor that the kernel changes: a single operand, both input and output."""
    return Operand(name, element_type(type), layout, True, optional, touches=touches, updated=True)


def room(name: str, type: ElementType | int | str | Sequence[int], layout: str) -> Operand:
    """Working memory with a layout; its contents have no meaning after the step."""
    return Operand(name, element_type(type), layout, True, scratch=True)


def params(names: str) -> dict[str, str]:
    """Parameters of a kernel in the order of its C struct.

    Args:
        names: Separated by spaces, by default of int32 parameters: "m n dims[6] alpha:f32".
    Returns:
        {name: "i32", "i32[6]" or "f32"}
    """
    out = {}
    for word in names.split():
        match = re.fullmatch(r"(\w+)(?::(f32))?(\[\d+\])?", word)
        if match is None:
            raise ValueError(f"'{word}' is not NAME, NAME[COUNT] or NAME:f32")
        name, kind, count = match.groups()
        out[name] = (kind or "i32") + (count or "")
    return out


# ---- contracts


@dataclass(frozen=True)
class Cost:
    """The operations of a kernel, for profiles. Kernels without it are measured by the bytes they
    move.

    Attributes:
        operations: Multiplications and additions of a step, an expression over the parameters.
        integer: A condition over the parameters under which they may be integer dot products, which
            are several times as fast as those of floats.
    """

    operations: str
    integer: str = ""


@dataclass(frozen=True)
class CImplementation:
    """Properties of a kernel's C function alone.

    Attributes:
        scratch: Floats of working memory, an expression over the parameters: an operand `scratch`
            after those of the contract. "": none.
        optional_scratch: Whether the function also works without it.
        rare: Whether few models need the kernel and its code is large: of the engines for the web
            only the full ones include it (wasm/Makefile).
        variants: {parameter: name}. Each value (0 to 63) of such a parameter has its own code,
            marked in C with EW_CHOICE and EW_USES (kernel.h) and this name. Engines for given
            models omit the code of values that no plan has. Kernels that share code share the name.
    """

    scratch: str = ""
    optional_scratch: bool = False
    rare: bool = False
    variants: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Enum:
    """Named integer codes shared by Python and C (`EW_<NAME>_<ITEM>`)."""

    name: str
    names: str  # separated by spaces

    def __post_init__(self) -> None:
        ENUMS[self.name] = self
        self.items = self.names.split()
        self.code = {item: i for i, item in enumerate(self.items)}

    def __getitem__(self, item: str) -> int:
        return self.code[item]

    def __contains__(self, item: str) -> bool:
        return item in self.code

    def is_one_of(self, parameter: str, *items: str) -> str:
        """A condition: `parameter` holds the code of one of these items."""
        return f"{parameter} in ({', '.join(str(self.code[i]) for i in items)})"

    def is_between(self, parameter: str, first: str, last: str) -> str:
        """A condition: `parameter` holds a code from `first` to `last`, inclusive."""
        return f"{parameter} >= {self.code[first]} and {parameter} <= {self.code[last]}"


@dataclass
class Kernel:
    """The contract of a kernel.

    Attributes:
        name: Its name; the C function is `ew_k_<name>`.
        params: {name: "i32" | "f32" | "i32[n]"}, in the order of the C struct; see `params`.
        operands: In the order in which steps bind them; the C function's scratch is the last.
        require: Conditions over the parameters that must hold.
        enums: {parameter: the Enum of its codes}.
        empty: Parameters that are counts: they are not negative, and where one is 0 a step does
            nothing.
        grid: The index space over which the work of a step is parallel, as extents; by default the
            extents of the first output.
        cost: The operations that it computes, for profiles.
        c: Properties of its C function alone.
        jumps: What it is if it decides which step is next: a "branch", or the "begin" or "end" of a
            loop.
        doc: What it computes, with shapes.
    """

    name: str
    params: dict[str, str]
    operands: list[Operand]
    require: list[str] = field(default_factory=list)
    enums: dict[str, Enum] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    grid: str = ""
    cost: Cost | None = None
    c: CImplementation = CImplementation()
    jumps: str = ""
    doc: str = ""
    id: int = -1

    def __post_init__(self) -> None:
        KERNELS[self.name] = self
        if self.c.scratch:
            self.operands = [
                *self.operands,
                Operand(
                    "scratch",
                    ElementType(size="4"),
                    self.c.scratch,
                    True,
                    self.c.optional_scratch,
                    reach=self.c.scratch,
                    scratch=True,
                ),
            ]
        self.operands = [self._resolved(o) for o in self.operands]
        self.index = {o.name: i for i, o in enumerate(self.operands)}
        self.require = [
            *self.require,
            *(
                rule
                for name, enum in self.enums.items()
                for rule in (f"{name} >= 0", f"{name} < {len(enum.items)}")
            ),
            *dict.fromkeys(
                f"{o.type.parameter} in ({', '.join(map(str, o.type.codes))})"
                for o in self.operands
                if o.type.parameter and o.type.codes
            ),
            *(
                f"distinct({o.hi[3:-1]})"
                for o in self.operands
                if o.output and re.fullmatch(r"hi\(\w+, \w+\)", o.hi)
            ),
        ]
        if not self.grid:
            first = next(o for o in self.operands if o.output)
            self.grid = ", ".join(extent for extent, _ in dimensions(first.layout))

    def _resolved(self, o: Operand) -> Operand:
        """The operand with its size and reach as expressions."""
        if o.reach:
            return replace(o, size=o.type.size, hi=o.reach)
        terms, lo, contiguous = [], "0", []
        for extent, stride in dimensions(o.layout):
            kind = self.params.get(extent, "")
            if stride and kind == f"i32[{MAX_DIMS}]":
                terms.append(f"hi({extent}, {stride})")
                lo = f"lo({extent}, {stride})"
            elif stride:
                count = f"{extent}-1" if extent in self.empty else f"max({extent}-1,0)"
                terms.append(f"({count})*{stride}" if extent in self.empty else f"{count}*{stride}")
            elif kind == f"i32[{MAX_DIMS}]":
                contiguous += [f"{extent}[{i}]" for i in range(MAX_DIMS)]
            elif kind == "i32[3]":
                contiguous.append(f"volume({extent})")
            else:
                simple = re.fullmatch(r"\w+|\w+\([^()]*\)", extent)
                contiguous.append(extent if simple else f"({extent})")
        last = "*".join(contiguous) or "1"
        if lo == "0":
            terms.append(last)
        elif contiguous:  # hi() is exclusive already
            terms.append(f"{last} - 1")
        return replace(o, size=o.type.size, lo=lo, hi=" + ".join(terms))


KERNELS: dict[str, Kernel] = {}
ENUMS: dict[str, Enum] = {}


# ---- the language of expressions

# Besides arithmetic, comparisons, `in`, `and`, `or`, `not` and `a if c else b`:
#
# lo(dims, s), hi(dims, s): the reach of a strided tensor: the sum of its negative spans, and 1 +
#     the sum of its positive spans.
# distinct(dims, s) or distinct(d0, s0, d1, s1, ...): no two indices are the same element, since
#     each stride is at least the span of all smaller strides.
# volume(s) of an i32[3]: the product, or 0 where one is below 1 or the product is 2^31 or more.
# bytes_of(type): bytes per element of a type of whole bytes; bytes_of_any: 1 for all others.
# ceil_div(a, b), min(...), max(...)
FUNCTIONS = ("lo", "hi", "distinct", "volume", "min", "max", "bytes_of", "bytes_of_any", "ceil_div")


@cache
def dimensions(layout: str) -> tuple[tuple[str, str], ...]:
    """A layout's dimensions as (extent, stride); the stride of a contiguous dimension is ""."""
    out, depth, start = [], 0, 0
    for i, c in enumerate(layout + ","):
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            extent, _, stride = layout[start:i].partition(":")
            out.append((extent.strip(), stride.strip()))
            start = i + 1
    return tuple(out)


def parse(expression: str) -> ast.expr:
    """The ast of a declared expression.

    Parameters may be called `as` and `is` (strides of a, of i): they come out as `as_`, `is_`.
    """
    return ast.parse(re.sub(r"\b(as|is)\b", r"\1_", str(expression)), mode="eval").body


def _volume(sizes: Sequence[int]) -> int:
    out = 1
    for n in sizes:
        out *= n
    return out


def _lo(dims: Sequence[int], strides: Sequence[int]) -> int:
    return sum((d - 1) * s for d, s in zip(dims, strides) if s < 0)


def _hi(dims: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((d - 1) * s for d, s in zip(dims, strides) if s > 0)


def _bytes_of(code: int) -> int:
    return DTYPES.get(code, ("", 1))[1]


_PYTHON = {
    "__builtins__": {},
    "lo": _lo,
    "hi": _hi,
    "bytes_of": _bytes_of,
    "bytes_of_any": _bytes_of,
    "volume": _volume,
    "ceil_div": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
}


@cache
def _compiled(expression: str) -> CodeType:
    return compile(ast.Expression(parse(expression)), expression, "eval")


def evaluate(expression: str, params: Mapping[str, object]) -> int:
    """The value of a declared expression.

    Args:
        expression: one without `distinct`.
        params: {parameter: int, list of ints or float}.
    """
    names = {f"{name}_": params[name] for name in ("as", "is") if name in params}
    return eval(_compiled(expression), _PYTHON, {**params, **names})

"""How a C kernel is declared: its parameters, its operands and how far each operand reaches.

A kernel is a C function `ew_k_<name>` in core/kernels/. Its declaration stands in the Python file
of the op family it serves, and from all declarations `make gen` writes what
C and TypeScript need: ids, parameter structs, the dispatch table and, from each operand's *reach*,
the checks that the plan loader makes once so that kernels need none.

A reach is a pair of Python expressions over the parameters: the lowest and the highest element
(relative to the operand's offset, highest exclusive) that the kernel may touch. The generator turns
them into overflow-checked C. If any dimension named in `empty` is zero the step touches nothing.

Contracts also bound the work of a step by the memory it touches: elements of strided outputs are
`distinct`, and what is summed over is as long as an operand or a bound of the contract says. So a
plan that was made to run without an end is refused.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from .dtypes import PACKED

# dimensions of a strided kernel after neighbouring dimensions that can be merged have been merged
MAX_DIMS = 6


@dataclass(frozen=True)
class Operand:
    """One operand of a kernel.

    `size` is bytes per element, a number or an expression over the parameters.
    """

    name: str
    size: object
    lo: str
    hi: str
    output: bool = False
    optional: bool = False
    inplace: tuple = ()  # names of inputs that may be exactly the same memory as this output


def read(name, size, hi, lo="0", optional=False):
    return Operand(name, size, lo, hi, False, optional)


def write(name, size, hi, lo="0", optional=False, inplace=()):
    return Operand(name, size, lo, hi, True, optional, tuple(inplace))


BYTES = (2, 3, 21, 22)  # what weights and zero points of one byte or two in one may be
_EXACT = {
    ("attention", "lengths"): (6,),
    ("recurrent", "lengths"): (6,),
    ("recurrent_grad", "lengths"): (6,),
    ("recurrent_bytes", "lengths"): (6,),
    ("integer_product", "sum_bias"): (6,),
    ("integer_depthwise", "sum_bias"): (6,),
    ("where", "condition"): (9,),
    ("dynamic_quantize", "y"): (2,),
    ("dynamic_quantize", "zero"): (2,),
    ("pack", "x"): (2, *PACKED),
    ("pack", "y"): (2, *PACKED),
    ("dequantize", "x"): "type",
    ("dequantize", "zero"): "type",
    ("attention", "mask"): "mask_type",
}


def _types(kernel, operand):
    """Element types that an operand may have: codes, the name of the parameter that says it, or
    None (any of its size).

    A comparison's output is bool, whatever is compared: the builder allows it where a parameter
    says the type.
    """
    if operand.name == "scratch":
        return None
    exact = _EXACT.get((kernel, operand.name))
    if exact is not None:
        return exact
    if isinstance(operand.size, int):
        return {4: (1,), 8: (7,), 1: BYTES}[operand.size]
    named = re.search(r"bytes_of(?:_any)?\((\w+)\)", operand.size)
    return named[1] if named else None


@dataclass
class Kernel:
    """`params`: {name: "i32" | "f32" | "i32[6]"}, in struct order.

    `require`: conditions over the parameters that must hold. `rare`: few models need it, and it is
    large: only the full engines for the web have it (wasm/Makefile), and all native ones.
    `variants`: {parameter: name}: its values (0 to 63) have code of their own, which C marks with
    EW_CHOICE and EW_USES (kernel.h) by that name, and which engines made for given models leave out
    where no plan has the value. Kernels that share such code share the name.
    """

    name: str
    params: dict
    operands: list
    require: list = field(default_factory=list)
    empty: list = field(default_factory=list)
    doc: str = ""
    rare: bool = False
    variants: dict = field(default_factory=dict)
    id: int = -1

    def __post_init__(self):
        KERNELS[self.name] = self
        self.index = {o.name: i for i, o in enumerate(self.operands)}
        self.types = [_types(self.name, o) for o in self.operands]
        strided = [re.fullmatch(r"hi\((\w+), (\w+)\)", o.hi) for o in self.operands if o.output]
        self.require = [*self.require, *(f"distinct({m[1]}, {m[2]})" for m in strided if m)]


@dataclass
class Enum:
    """Named integer codes shared by Python and C (`EW_<NAME>_<ITEM>`)."""

    name: str
    items: list

    def __post_init__(self):
        ENUMS[self.name] = self
        self.code = {item: i for i, item in enumerate(self.items)}

    def __getitem__(self, item):
        return self.code[item]

    def __contains__(self, item):
        return item in self.code


KERNELS: dict[str, Kernel] = {}
ENUMS: dict[str, Enum] = {}

# Reach of a strided operand: `lo(dims, s)` = sum of negative spans, `hi(dims, s)` = 1 + sum of
# positive spans. `distinct(dims, s)` or `distinct(d0, s0, d1, s1, ...)`: no element is there twice,
# since each stride is as large as all that smaller strides span. `volume(s)` of an i32[3]: the
# product, or 0 where one is below 1 or the product is about 2^31 or more.
FUNCTIONS = ("lo", "hi", "distinct", "volume", "min", "max", "bytes_of", "bytes_of_any", "ceil_div")


def parse(expression):
    """The ast of a declared expression.

    Parameters may be called `as` and `is` (strides of a, of i): they come out as `as_`, `is_`.
    """
    return ast.parse(re.sub(r"\b(as|is)\b", r"\1_", str(expression)), mode="eval").body

"""An engine's .wasm, as far as removing functions needs it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import TypeVar

from ..ops.table import kernel_table, variant_names, variants
from .encoding import (
    CODE,
    CONST,
    DATA,
    ELEMENT,
    END,
    EXPORT,
    FUNCTION,
    IMPORT,
    START,
    Broken,
    Reader,
    instruction,
    signed,
    unsigned,
    vector,
)
from .function import FunctionBody

MARK = b"EDGEWISE KERNELS"  # EW_CODE_MARK
HEAD = struct.Struct("<16sII")
# Number of a kernel, word of its parameters, bits of the values that there is code for
VARIANT = struct.Struct("<HHQ")
MEDIA = (b"ew_resize_", b"ew_resample_")  # the exports of core/media
T = TypeVar("T")


class WasmModule:
    """The sections of an engine.

    Attributes:
        imported: number of imported functions.
        slots: {slot: function} of the function table.
        functions: bodies of the functions that are not imported.
        kernels: {name: function pointers} of the kernels that the engine has.

    Raises:
        Broken: it is not an engine of this version.
    """

    def __init__(self, wasm: bytes) -> None:
        if wasm[:8] != b"\0asm\1\0\0\0":
            raise Broken("it is not a WebAssembly module")
        r = Reader(wasm, 8, len(wasm))
        self.sections: dict[int, Reader] = {}
        while r.at < r.end:
            kind, section = r.byte(), r.part()
            if kind:  # 0: notes of tools
                if kind in self.sections:
                    raise Broken(f"it has two sections {kind}")
                self.sections[kind] = section
        self.wasm = wasm
        self._allowed: list[set[int] | None] = []  # values of each (kernel, parameter)
        self.imported = self._read(IMPORT, _imports) or 0
        types = self._read(FUNCTION, lambda r: [r.unsigned() for _ in r.items()])
        exports = self._read(
            EXPORT, lambda r: [(r.part().rest(), r.byte(), r.unsigned()) for _ in r.items()]
        )
        self.start = self._read(START, lambda r: r.unsigned())
        slots = self._read(ELEMENT, _elements)
        functions = self._read(CODE, lambda r: [FunctionBody(r.part()) for _ in r.items()])
        if (
            not functions
            or types is None
            or len(types) != len(functions)
            or slots is None
            or exports is None
        ):
            raise Broken("it has no functions that could be taken out")
        self.types, self.exports, self.slots, self.functions = types, exports, slots, functions
        self._find_block()

    def _read(self, kind: int, f: Callable[[Reader], T]) -> T | None:
        if kind not in self.sections:
            return None
        r = Reader(self.wasm, self.sections[kind].at, self.sections[kind].end)
        result = f(r)
        r.done()
        return result

    def _find_block(self) -> None:
        """Finds ew_code in the data."""
        data, table = self.sections.get(DATA), kernel_table()
        at = self.wasm.find(MARK, data.at, data.end) if data else -1
        if data is None or at < 0 or at + HEAD.size > data.end:
            raise Broken("it is not an engine of this version: it has no list of its kernels")
        _, version, count = HEAD.unpack_from(self.wasm, at)
        if (
            version != table.hash
            or count != len(table.kernels)
            or at + HEAD.size + 8 * count > data.end
        ):
            raise Broken(f"its kernel table is {version:#010x}, this version's {table.hash:#010x}")
        self.block = at + HEAD.size
        pairs = struct.iter_unpack("<II", self.wasm[self.block : self.block + 8 * count])
        self.kernels = {k.name: pair for k, pair in zip(table.kernels, pairs) if pair[0]}
        self.variants = self.block + 8 * count
        functions = {name: index for name, kind, index in self.exports if kind == 0}
        choice, uses = functions.get(b"ew_choice"), functions.get(b"ew_uses")
        end = self.variants + VARIANT.size * len(variants())
        if end > data.end or choice is None or uses is None:
            raise Broken("its list of kernels is truncated")
        self.markers = choice, uses
        self.data_numbers = {
            n
            for part in ((data.at, at), (end, data.end))
            for at in range(part[0], part[1] - 3)
            if (n := int.from_bytes(self.wasm[at : at + 4], "little")) in self.slots
        }

    def reached(self, kernels: Iterable[str]) -> tuple[set[int], set[int]]:
        """(functions, slots of the table) that these kernels and the exports need."""
        functions: set[int] = set()
        slots: set[int] = set()
        waiting = [index for _, kind, index in self.exports if kind == 0] + (
            [self.start] if self.start is not None else []
        )
        pointers = set(self.data_numbers).union(*(self.kernels[k] for k in kernels))
        while waiting or pointers:
            for n in pointers - slots:
                slots.add(n)
                waiting.append(self.slots[n])
            pointers = set()
            while waiting:
                index = waiting.pop()
                if index in functions or index < self.imported:
                    continue
                functions.add(index)
                f = self.functions[index - self.imported]
                waiting += [function for _, _, function in f.calls]
                pointers |= f.numbers & self.slots.keys()
        return functions, slots

    def narrow(
        self, kernels: Container[str], values: Mapping[tuple[str, str], set[int] | None]
    ) -> None:
        """Removes the code for values that parameters do not have.

        Args:
            kernels: names of the kernels that stay.
            values: {(kernel, parameter): its values, or None for any}.
        """
        names = variant_names()
        allowed: list[set[int] | None] = [set() for _ in names]
        for k, parameter, name in variants():
            own = values.get((k.name, parameter)) if k.name in kernels else set()
            i = names.index(name)
            before = allowed[i]
            allowed[i] = None if own is None or before is None else before | own
        self._allowed = [allowed[names.index(name)] for _, _, name in variants()]
        marked = set(self.markers)
        self.functions = [
            f.specialized(*self.markers, allowed) if any(c in marked for _, _, c in f.calls) else f
            for f in self.functions
        ]

    def without(self, kernels: Collection[str], media: bool = True) -> bytes:
        """The bytes of the module with these kernels alone, and with core/media if `media`."""
        if not media:
            self.exports = [e for e in self.exports if not e[0].startswith(MEDIA)]
        functions, slots = self.reached(kernels)
        kept = sorted(functions)
        new = {index: self.imported + i for i, index in enumerate(kept)} | {
            i: i for i in range(self.imported)
        }
        body = {
            FUNCTION: vector(unsigned(self.types[i - self.imported]) for i in kept),
            EXPORT: vector(
                unsigned(len(name))
                + name
                + bytes([kind])
                + unsigned(new[index] if kind == 0 else index)
                for name, kind, index in self.exports
            ),
            ELEMENT: vector(
                b"\0\x41"
                + signed(run[0])
                + b"\x0b"
                + vector(unsigned(new[self.slots[n]]) for n in run)
                for run in _runs(slots)
            ),
            CODE: vector(self.functions[i - self.imported].renumbered(new) for i in kept),
            DATA: self._data(kernels),
        }
        if self.start is not None:
            body[START] = unsigned(new[self.start])
        out = bytearray(b"\0asm\1\0\0\0")
        for kind, section in self.sections.items():
            part = body.get(kind, section.rest())
            out += bytes([kind]) + unsigned(len(part)) + part
        return bytes(out)

    def _data(self, kernels: Container[str]) -> bytes:
        """The data with zeros for other kernels, and the values that there is code for."""
        data = bytearray(self.sections[DATA].rest())
        start = self.sections[DATA].at
        for i, k in enumerate(kernel_table().kernels):
            if k.name not in kernels:
                at = self.block - start + 8 * i
                data[at : at + 8] = bytes(8)
        for i, values in enumerate(self._allowed):
            if values is not None:
                at = self.variants - start + i * VARIANT.size
                kernel, word, _ = VARIANT.unpack_from(data, at)
                VARIANT.pack_into(data, at, kernel, word, sum(1 << v for v in values))
        return bytes(data)


def _imports(r: Reader) -> int:
    """The number of imported functions."""
    count = 0
    for _ in r.items():
        r.part()  # module
        r.part()  # name
        kind = r.byte()
        if kind == 0:  # a function, of a type
            r.unsigned()
            count += 1
        elif kind == 2:  # a memory: flags, minimum, maximum
            for _ in range(1 + (r.byte() & 1)):
                r.unsigned()
        else:
            raise Broken("it imports more than functions and a memory")
    return count


def _elements(r: Reader) -> dict[int, int]:
    """{slot: function} of the function table."""
    slots = {}
    for _ in r.items():
        flags = r.unsigned()
        op, first = instruction(r) if not flags else (END, None)
        if op != CONST or first is None or r.byte() != END:
            raise Broken("its function table is filled in a way that the linker does not use")
        for i in r.items():
            slots[first + i] = r.unsigned()
    return slots


def _runs(slots: Iterable[int]) -> list[list[int]]:
    """Slots in runs of neighbours."""
    runs: list[list[int]] = []
    for slot in sorted(slots):
        if not runs or runs[-1][-1] != slot - 1:
            runs.append([])
        runs[-1].append(slot)
    return runs

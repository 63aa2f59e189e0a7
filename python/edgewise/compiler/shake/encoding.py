"""Reading and writing the parts of a WebAssembly module: numbers, vectors, instructions."""

from __future__ import annotations

from collections.abc import Iterable

# Identifiers of sections
IMPORT, FUNCTION, EXPORT, START, ELEMENT, CODE, DATA = 2, 3, 7, 8, 9, 10, 11

# Opcodes that are looked at; all others are only skipped.
UNREACHABLE, BLOCK, LOOP, IF, ELSE, END = 0x00, 0x02, 0x03, 0x04, 0x05, 0x0B
BRANCH, BRANCH_IF, BRANCH_TABLE, RETURN = 0x0C, 0x0D, 0x0E, 0x0F
CALL, RETURN_CALL, RETURN_CALL_INDIRECT, DROP, SELECT_TYPED = 0x10, 0x12, 0x13, 0x1A, 0x1C
LOCAL_GET, LOCAL_SET, LOCAL_TEE, CONST, REF_FUNC = 0x20, 0x21, 0x22, 0x41, 0xD2
EQUAL_ZERO, EQUAL, NOT_EQUAL, ADD, SUBTRACT = 0x45, 0x46, 0x47, 0x6A, 0x6B


class Broken(Exception):
    """What is wrong with the file."""


class Reader:
    """Reads data[at:end]."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def skip(self, n: int) -> None:
        """Skips n bytes."""
        self.at += n
        if self.at > self.end:
            raise Broken(f"it is truncated at byte {self.end}")

    def byte(self) -> int:
        """The next byte."""
        self.skip(1)
        return self.data[self.at - 1]

    def unsigned(self) -> int:
        """A number in unsigned LEB128."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise Broken(f"a number at byte {self.at} is too long")

    def signed(self) -> int:
        """A number in signed LEB128."""
        first, value = self.at, self.unsigned()
        bits = 7 * (self.at - first)
        return value - (1 << bits) if value >> (bits - 1) else value

    def items(self) -> range:
        """The indices of a vector, whose items follow."""
        return range(self.unsigned())

    def part(self) -> Reader:
        """A stretch that begins with its size, as a reader of its own."""
        size = self.unsigned()
        self.skip(size)
        return Reader(self.data, self.at - size, self.at)

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.data[self.at : self.end]

    def done(self) -> None:
        """Raises Broken unless all is read."""
        if self.at != self.end:
            raise Broken(f"something ends at byte {self.at} instead of {self.end}")


def unsigned(n: int) -> bytes:
    """A number as unsigned LEB128."""
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def signed(n: int) -> bytes:
    """A number as signed LEB128."""
    out = bytearray()
    while not -64 <= n < 64:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n & 127])


def vector(items: Iterable[bytes]) -> bytes:
    """Items after their number."""
    items = list(items)
    return unsigned(len(items)) + b"".join(items)


# ---- instructions

# Immediates of each opcode: u(nsigned), s(igned), m(emory: alignment and offset), or a 1 for each
# byte. Opcodes after a prefix have tables of their own.
_PLAIN = {
    **dict.fromkeys((0, 1, 5, 11, 15, 26, 27, 209, *range(69, 197)), ""),
    **dict.fromkeys((2, 3, 4, 65, 66, 208), "s"),
    **dict.fromkeys((12, 13, 16, 18, *range(32, 39), 63, 64, 210), "u"),
    0x11: "uu",
    0x13: "uu",
    **dict.fromkeys(range(40, 63), "m"),
    0x43: "1" * 4,
    0x44: "1" * 8,
}
_SATURATING_BULK_AND_TABLES = {
    **dict.fromkeys(range(8), ""),
    **dict.fromkeys((9, 11, 13, 15, 16, 17), "u"),
    **dict.fromkeys((8, 10, 12, 14), "uu"),
}
_SIMD = {
    **dict.fromkeys(range(276), ""),
    **dict.fromkeys((*range(12), 92, 93), "m"),
    **dict.fromkeys(range(21, 35), "1"),
    12: "1" * 16,
    13: "1" * 16,
    **dict.fromkeys(range(84, 92), "m1"),
}
_THREADS = {**dict.fromkeys((0, 1, 2, *range(16, 79)), "m"), 3: "1"}
_PREFIXED = {0xFC: _SATURATING_BULK_AND_TABLES, 0xFD: _SIMD, 0xFE: _THREADS}


def instruction(r: Reader, targets: list[int] | None = None) -> tuple[int, int | None]:
    """Reads an instruction.

    Args:
        r: where it begins; afterwards, where the next one begins.
        targets: a list that gets the labels that it may branch to.

    Returns:
        (opcode, its immediate where it has only one)
    """
    op = r.byte()
    if op == BRANCH_TABLE:
        for _ in range(r.unsigned() + 1):
            label = r.unsigned()
            if targets is not None:
                targets.append(label)
        return op, None
    if op == SELECT_TYPED:
        for _ in r.items():
            r.byte()
        return op, None
    number = _immediates(r, op)
    if targets is not None and op in (BRANCH, BRANCH_IF):
        assert number is not None
        targets.append(number)
    return op, number


def _immediates(r: Reader, op: int) -> int | None:
    sub = r.unsigned() if op in _PREFIXED else None
    kinds = _PLAIN.get(op) if sub is None else _PREFIXED[op].get(sub)
    if kinds is None:
        name = f"{op:#x}" + (f" {sub}" if sub is not None else "")
        raise Broken(f"the instruction {name} at byte {r.at} is unknown")
    number = None
    for kind in kinds:
        if kind == "u":
            number = r.unsigned()
        elif kind == "s":
            number = r.signed()
        elif kind == "1":
            r.skip(1)
        else:
            more_than_one_memory = r.unsigned() & 64
            r.unsigned()
            if more_than_one_memory:
                r.unsigned()
    return number

"""Reading of the protobuf wire format (https://protobuf.dev/programming-guides/encoding/) through
a window of the file: no library is needed, and fields that nobody reads cost nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ...errors import ModelError
from .source import Source

MAX_DEPTH = 64  # of nested messages
MAX_NAME = 1 << 12  # bytes of the name of a tensor, node or operator
MAX_TEXT = 1 << 20  # bytes of a text in metadata
MAX_ATTRIBUTE = 1 << 26  # bytes of a text or a list of numbers in an attribute

# Wire types.
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5

# A varint, the bytes of a fixed-width number, or (offset, size) of a length-delimited field.
FieldValue = int | bytes | tuple[int, int]


class CachedReader:
    """Random access to a source through one cached block.

    Args:
        source: the file.
        block: size of the block in bytes.
    """

    def __init__(self, source: Source, block: int = 1 << 16) -> None:
        self.source = source
        self.block = block
        self.start = 0
        self.data = b""

    def at(self, offset: int, size: int) -> bytes:
        """Bytes of the file; ModelError if it ends before."""
        lo = offset - self.start
        if lo < 0 or lo + size > len(self.data):
            if size > self.block:
                return self.source.read(offset, size)
            self.start = offset
            self.data = self.source.read(offset, min(self.block, self.source.size - offset))
            lo = 0
            if size > len(self.data):
                raise ModelError(
                    f"the file ends inside a field at byte {offset}",
                    self.source.name,
                    "It is truncated; fetch it again.",
                )
        return self.data[lo : lo + size]


class Message:
    """A message, iterated as (field number, wire type, value).

    A message that fits into a block is read as a whole, and the messages inside it share its
    bytes; larger ones are walked through the window.

    Args:
        window: access to the file.
        start: offset in the file.
        size: size in bytes.
        depth: number of messages around it.
        data: bytes of the file from offset `base` on that contain the message, if they were read.
        base: offset of `data` in the file.
    """

    __slots__ = ("window", "start", "size", "depth", "data", "base")

    def __init__(
        self,
        window: CachedReader,
        start: int,
        size: int,
        depth: int = 0,
        data: bytes | None = None,
        base: int = 0,
    ) -> None:
        self.window, self.start, self.size, self.depth = window, start, size, depth
        if depth > MAX_DEPTH:
            raise self.broken(start, "messages nested too deeply")
        if data is None and size <= window.block:
            data, base = window.at(start, size) if size else b"", start
        self.data, self.base = data, base

    @classmethod
    def of(cls, source: Source) -> Message:
        """The message that a whole file contains."""
        return cls(CachedReader(source), 0, source.size)

    def broken(self, at: int, what: str = "not valid protobuf") -> ModelError:
        """The error for byte `at` of the file."""
        return ModelError(
            f"{what} at byte {at}",
            self.window.source.name,
            "The file is damaged or not an ONNX model; fetch or export it again.",
        )

    def __iter__(self) -> Iterator[tuple[int, int, FieldValue]]:
        if self.data is None:
            return self._walk_window()
        return self._walk_bytes(self.data, self.base)

    def _walk_bytes(self, data: bytes, base: int) -> Iterator[tuple[int, int, FieldValue]]:
        i = self.start - base
        end = i + self.size
        value: FieldValue
        while i < end:
            at = i
            key = data[i]
            i += 1
            if key > 127:
                key, i = self._varint(data, at, base, end)
            number, wire = key >> 3, key & 7
            if wire == VARINT:
                if i < end and data[i] < 128:
                    value = data[i]
                    i += 1
                else:
                    value, i = self._varint(data, i, base, end)
            elif wire == DELIMITED:
                if i < end and data[i] < 128:
                    length = data[i]
                    i += 1
                else:
                    length, i = self._varint(data, i, base, end)
                if i + length > end:
                    raise self.broken(base + at, "a field longer than the message around it")
                value = (base + i, length)
                i += length
            elif wire == FIXED32 or wire == FIXED64:
                width = 4 if wire == FIXED32 else 8
                if i + width > end:
                    raise self.broken(base + at)
                value = data[i : i + width]
                i += width
            else:
                raise self.broken(base + at)
            if number == 0:
                raise self.broken(base + at)
            yield number, wire, value

    def _walk_window(self) -> Iterator[tuple[int, int, FieldValue]]:
        window, at, end = self.window, self.start, self.start + self.size
        value: FieldValue
        while at < end:
            head = window.at(at, min(20, end - at))
            n = len(head)
            key, i = self._varint(head, 0, at, n)
            number, wire = key >> 3, key & 7
            if number == 0:
                raise self.broken(at)
            if wire == VARINT:
                value, i = self._varint(head, i, at, n)
            elif wire == DELIMITED:
                length, i = self._varint(head, i, at, n)
                if at + i + length > end:
                    raise self.broken(at, "a field longer than the message around it")
                value = (at + i, length)
                i += length
            elif wire in (FIXED64, FIXED32):
                width = 8 if wire == FIXED64 else 4
                if i + width > n:
                    raise self.broken(at)
                value = head[i : i + width]
                i += width
            else:
                raise self.broken(at)
            yield number, wire, value
            at += i

    def _varint(self, data: bytes, i: int, base: int, end: int) -> tuple[int, int]:
        """(value, index of the next byte) of the varint at data[i]."""
        result = shift = 0
        while True:
            if i >= end or shift > 63:
                raise self.broken(base + i)
            b = data[i]
            i += 1
            result |= (b & 127) << shift
            if b < 128:
                return result & 0xFFFFFFFFFFFFFFFF, i
            shift += 7

    # The methods below read a value of a known type; they raise ModelError for a value of another
    # wire type.

    def sub(self, value: FieldValue) -> Message:
        """A nested message; ModelError if it is nested deeper than MAX_DEPTH."""
        if not isinstance(value, tuple):
            raise self.broken(self.start)
        return Message(self.window, value[0], value[1], self.depth + 1, self.data, self.base)

    def raw(self, value: FieldValue) -> bytes:
        """Bytes of a length-delimited value."""
        if not isinstance(value, tuple):
            raise self.broken(self.start)
        at, size = value
        if self.data is not None:
            at -= self.base
            return self.data[at : at + size]
        return self.window.at(at, size) if size else b""

    def text(self, value: FieldValue, most: int = MAX_NAME) -> str:
        """UTF-8 text of at most `most` bytes."""
        if isinstance(value, tuple) and value[1] > most:
            kind = "name" if most == MAX_NAME else "text"
            raise self.broken(value[0], f"a {kind} of {value[1]} bytes")
        data = self.raw(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            at = value[0] if isinstance(value, tuple) else self.start
            raise self.broken(at, "a name that is not UTF-8") from None

    def integer(self, value: FieldValue) -> int:
        """A varint as int64."""
        if not isinstance(value, int):
            raise self.broken(self.start)
        return value - (1 << 64) if value >> 63 else value

    def limited(self, value: FieldValue) -> bytes:
        """Bytes of an attribute's text or list, at most MAX_ATTRIBUTE."""
        if isinstance(value, tuple) and value[1] > MAX_ATTRIBUTE:
            raise self.broken(value[0], f"a list of numbers of {value[1]} bytes")
        return self.raw(value)

    def integers(self, wire: int, value: FieldValue) -> list[int]:
        """The int64 numbers of one field of a repeated varint, packed or not."""
        if wire == VARINT:
            return [self.integer(value)]
        data = self.limited(value)
        at = value[0] if isinstance(value, tuple) else self.start
        out, i = [], 0
        while i < len(data):
            v, i = self._varint(data, i, at, len(data))
            out.append(v - (1 << 64) if v >> 63 else v)
        return out

    def numbers(self, wire: int, value: FieldValue, code: str) -> list[float]:
        """The numbers of one field of a repeated fixed-width type, packed or not.

        Args:
            wire: wire type of the field.
            value: value of the field.
            code: format of a number, as in `struct`.
        """
        data = value if isinstance(value, bytes) else self.limited(value)
        width = struct.calcsize("<" + code)
        if len(data) % width:
            raise self.broken(self.start)
        return list(struct.unpack(f"<{len(data) // width}{code}", data))

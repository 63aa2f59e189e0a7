"""Protobuf messages that are written as parts: new bytes, and ranges copied from Sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..declare.dtypes import BytesLike
from .protobuf import DELIMITED, VARINT, FieldValue
from .sink import Stored, pieces, source_pieces
from .source import Source

_JOINED = 1 << 16  # bytes up to which new bytes are joined into one part


class _Range(NamedTuple):
    """Bytes of a Source."""

    source: Source
    offset: int
    size: int


class _StoredPart(NamedTuple):
    """Data of a tensor. where: its name, for errors when it is written."""

    stored: Stored
    where: str


def encode_varint(n: int) -> bytes:
    """A varint; negative numbers as their two's complement in 64 bits."""
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


class Segments:
    """Bytes to be written: an ordered list of parts.

    Attributes:
        items: the parts.
        size: number of bytes.
    """

    def __init__(self) -> None:
        self.items: list[bytearray | _Range | _StoredPart] = []
        self.size = 0

    def put(self, data: BytesLike) -> None:
        """Appends bytes."""
        last = self.items[-1] if self.items else None
        if isinstance(last, bytearray) and len(last) < _JOINED:
            last += data
        else:
            self.items.append(bytearray(data))
        self.size += len(data)

    def copy(self, source: Source, offset: int, size: int) -> None:
        """Appends bytes of a source; adjacent ranges are joined."""
        last = self.items[-1] if self.items else None
        if isinstance(last, _Range) and last.source is source and last.offset + last.size == offset:
            self.items[-1] = _Range(source, last.offset, last.size + size)
        elif size:
            self.items.append(_Range(source, offset, size))
        self.size += size

    def put_stored(self, stored: Stored, where: str) -> None:
        """Appends the data that `sink.as_stored` returned. where: its name, for errors."""
        self.items.append(_StoredPart(stored, where))
        self.size += stored.nbytes

    def key(self, number: int, wire: int) -> None:
        """Appends the key of a field."""
        self.put(encode_varint(number << 3 | wire))

    def varint(self, number: int, n: int) -> None:
        """Appends an integer field."""
        self.key(number, VARINT)
        self.put(encode_varint(n))

    def data(self, number: int, data: BytesLike) -> None:
        """Appends a field of bytes."""
        self.key(number, DELIMITED)
        self.put(encode_varint(len(data)))
        self.put(data)

    def text(self, number: int, text: str) -> None:
        """Appends a field of text; bytes that were not UTF-8 in the file are written unchanged."""
        self.data(number, text.encode("utf-8", "surrogateescape"))

    def message(self, number: int, segments: Segments) -> None:
        """Appends a nested message."""
        self.key(number, DELIMITED)
        self.put(encode_varint(segments.size))
        for item in segments.items:
            if isinstance(item, bytearray):
                self.put(item)
            elif isinstance(item, _Range):
                self.copy(*item)
            else:
                self.put_stored(*item)

    def field(self, source: Source, number: int, wire: int, value: FieldValue) -> None:
        """Appends a field that was read from `source`."""
        self.key(number, wire)
        if isinstance(value, tuple):
            self.put(encode_varint(value[1]))
            self.copy(source, *value)
        else:
            self.put(encode_varint(value) if isinstance(value, int) else value)

    def parts(self) -> Iterator[BytesLike]:
        """The bytes in order, in chunks; ranges are read one at a time."""
        for item in self.items:
            if isinstance(item, bytearray):
                yield item
            elif isinstance(item, _Range):
                yield from source_pieces(*item)
            else:
                yield from pieces(*item)


def string_pair(key: str, value: str) -> Segments:
    """A StringStringEntryProto."""
    out = Segments()
    out.text(1, key)
    out.text(2, value)
    return out

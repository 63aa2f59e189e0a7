"""GGUF files (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), version 3,
little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..declare.dtypes import BytesLike

ALIGNMENT = 32
BLOCK = 32  # numbers of a row that share a scale

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
_NUMBERS = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}


@dataclass(frozen=True)
class Type:
    """A type of tensors. code: ggml_type; bytes: of `block` numbers; file: general.file_type."""

    name: str
    code: int
    block: int
    bytes: int
    file: int


F32 = Type("f32", 0, 1, 4, 0)
F16 = Type("f16", 1, 1, 2, 1)
Q4_0 = Type("q4_0", 2, BLOCK, 18, 2)
Q8_0 = Type("q8_0", 8, BLOCK, 34, 7)
TYPES = {t.name: t for t in (F32, F16, Q8_0, Q4_0)}


@dataclass(frozen=True)
class Entry:
    """A tensor of a file.

    Attributes:
        type: of its numbers.
        shape: row-major, as in NumPy; the file has the dimensions in reverse.
        data: returns its bytes, when they are written.
    """

    type: Type
    shape: Sequence[int]
    data: Callable[[], Iterable[BytesLike]]

    @property
    def nbytes(self) -> int:
        """Bytes in the file, without padding."""
        count = 1
        for d in self.shape:
            count *= d
        return count // self.type.block * self.type.bytes


def type_named(name: str) -> Type:
    """The Type of a name, upper or lower case.

    Raises:
        InputError: there is none.
    """
    found = TYPES.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise InputError(
            f"{name!r} is not a type of GGUF's tensors that is written here",
            "quantization",
            f"Use one of {', '.join(TYPES)}.",
        )
    return found


def gguf_parts(metadata: Mapping[str, Any], tensors: Mapping[str, Entry]) -> Iterator[BytesLike]:
    """A file as bytes-like parts.

    Args:
        metadata: str, bool, float (as float32), int (as uint32), lists of str and int (as int32)
            and float.
        tensors: in the order of the file.

    Raises:
        InputError: a tensor's data has another number of bytes than its shape needs.
    """
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, value in metadata.items():
        head += [_text(key), _value(value)]
    offset = 0
    for name, t in tensors.items():
        head += [_text(name), struct.pack("<I", len(t.shape))]
        head += [struct.pack("<Q", d) for d in reversed(t.shape)]
        head.append(struct.pack("<IQ", t.type.code, offset))
        offset += t.nbytes + _padding(t.nbytes)
    start = b"".join(head)
    yield start + bytes(_padding(len(start)))
    for name, t in tensors.items():
        written = 0
        for part in t.data():
            written += memoryview(part).nbytes
            yield part
        if written != t.nbytes:
            raise InputError(
                f"{written} bytes of {t.type.name} for shape {list(t.shape)}, which takes"
                f" {t.nbytes}",
                f"tensor '{name}'",
                "Report this model.",
            )
        yield bytes(_padding(written))


def _padding(n: int) -> int:
    return -n % ALIGNMENT


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    kind = _kind(value)
    return struct.pack("<I", kind) + _plain(kind, value)


def _kind(value: Any) -> int:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return UINT32
    if isinstance(value, float):
        return FLOAT32
    return STRING if isinstance(value, str) else ARRAY


def _plain(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return _text(value)
    if kind != ARRAY:
        return struct.pack(_NUMBERS[kind], value)
    inner = _kind(value[0]) if value else STRING
    inner = INT32 if inner == UINT32 else inner
    head = struct.pack("<IQ", inner, len(value))
    if inner == STRING:
        return head + b"".join(map(_text, value))
    return head + struct.pack(f"<{len(value)}{_NUMBERS[inner][1]}", *value)


def interleaved(scales: bytes, numbers: bytes, type_: Type) -> bytes:
    """Blocks of Q8_0 or Q4_0: a float16 scale, then the numbers of the block.

    Args:
        scales: float16 of each block.
        numbers: bytes of each block, one block after another.
        type_: of the blocks.
    """
    size = type_.bytes - 2
    out = bytearray(len(scales) // 2 * type_.bytes)
    for i in range(2):
        out[i :: type_.bytes] = scales[i::2]
    for i in range(size):
        out[2 + i :: type_.bytes] = numbers[i::size]
    return bytes(out)

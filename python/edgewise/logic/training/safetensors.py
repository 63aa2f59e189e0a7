"""The header of safetensors files (https://huggingface.co/docs/safetensors): u64 little-endian
length of a JSON object, the object, then the tensors' bytes.

What the format forbids is refused: overlapping tensors, gaps between them, bytes after the last
one, a header above 100 MB. Headers are written as the reference implementation does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ...errors import InputError, ModelError

MAX_HEADER = 100_000_000
MAX_RANK = 64
REMEDY = "The file is damaged or not a safetensors file; fetch it again."
METADATA = "__metadata__"
# {code: (name of the element type, bytes)}, in the order in which the reference implementation
# lays out tensors: widest first, so that all are aligned.
WIDTHS: dict[str, tuple[str, int]] = {
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "BF16": ("bfloat16", 2),
    "F16": ("float16", 2),
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}


@dataclass(frozen=True)
class TensorInfo:
    """A tensor: the name of its element type as in NumPy, or bfloat16; its shape; its bytes."""

    dtype: str
    shape: list[int]
    bytes: int


@dataclass(frozen=True)
class TensorEntry:
    """A tensor and its position in the file, in bytes."""

    dtype: str
    shape: list[int]
    bytes: int
    offset: int


@dataclass(frozen=True)
class Contents:
    """The tensors of a file, in the order of their bytes, and its metadata."""

    tensors: dict[str, TensorEntry]
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class Layout:
    """The header of a file, and the order in which the tensors' bytes follow it."""

    header: dict[str, Any]
    order: list[str]


def check_length(claimed: int, size: int, where: str) -> None:
    """Checks the length of the header that a file of `size` bytes claims.

    Raises:
        ModelError: the file is shorter, or the header is too long.
    """
    if claimed > MAX_HEADER or claimed > size - 8:
        raise ModelError(f"its header claims {claimed} bytes, the file has {size}", where, REMEDY)


def read_header(header: object, start: int, size: int, where: str) -> Contents:
    """The contents of a file.

    Args:
        header: values of the JSON.
        start: offset of the first tensor's bytes.
        size: of the file.
        where: name of the file, for errors.

    Raises:
        ModelError: the file is damaged.
    """
    if not isinstance(header, dict):
        raise ModelError("its header is not a JSON object", where, REMEDY)
    entries: dict[str, Any] = header
    none: dict[str, Any] = {}
    found: object = entries.get(METADATA, none)
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise ModelError("its metadata does not map strings to strings", where, REMEDY)
    tensors: list[tuple[str, TensorEntry]] = []
    for name, entry in entries.items():
        if name != METADATA:
            tensors.append((name, _entry(name, entry, start, where)))
    tensors.sort(key=lambda x: (x[1].offset, x[1].bytes))
    at = start
    for name, tensor in tensors:
        if tensor.offset != at:
            raise ModelError(
                f"tensor '{name}' begins at byte {tensor.offset}, the one before it ends at {at}",
                where,
                REMEDY,
            )
        at += tensor.bytes
    if at != size:
        raise ModelError(
            f"its tensors end at byte {at}, the file has {size}",
            where,
            "The file is truncated or was overwritten; fetch it again.",
        )
    return Contents(dict(tensors), cast("Mapping[str, str]", found))


def _entry(name: str, entry: object, start: int, where: str) -> TensorEntry:
    """A tensor of the header. start: offset of the first tensor's bytes."""
    fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
    code: object = fields.get("dtype")
    shape = _sizes(fields.get("shape"))
    span = _sizes(fields.get("data_offsets"))
    if not isinstance(code, str) or shape is None or len(shape) > MAX_RANK:
        raise _incomplete(name, where)
    if span is None or len(span) != 2:
        raise _incomplete(name, where)
    width = WIDTHS.get(code)
    if width is None:
        raise ModelError(
            f"tensor '{name}' has the element type {code}",
            where,
            f"Edgewise reads {', '.join(WIDTHS)}.",
        )
    count = span[1] - span[0]
    huge = 0 not in shape and max(shape, default=0) >= 2**48
    if huge or count != math.prod(shape) * width[1]:
        raise ModelError(
            f"tensor '{name}' has {count} bytes, which do not match its shape "
            f"[{', '.join(str(d) for d in shape)}] of {code}",
            where,
            REMEDY,
        )
    return TensorEntry(width[0], shape, count, start + span[0])


def _incomplete(name: str, where: str) -> ModelError:
    return ModelError(f"tensor '{name}' needs dtype, shape and data_offsets", where, REMEDY)


def _sizes(x: object) -> list[int] | None:
    """A list of sizes; None for anything else."""
    if isinstance(x, list) and all(type(d) is int and d >= 0 for d in x):
        return cast("list[int]", x)
    return None


def layout(tensors: dict[str, TensorInfo], metadata: Mapping[str, str] | None = None) -> Layout:
    """Lays out a file.

    Args:
        tensors: by name.
        metadata: of the file.

    Raises:
        InputError: the format does not have a tensor's type.
    """
    codes = {dtype: (rank, code) for rank, (code, (dtype, _)) in enumerate(WIDTHS.items())}
    for known, info in tensors.items():
        if info.dtype not in codes:
            raise InputError(
                f"safetensors cannot store {info.dtype}",
                known,
                f"Convert it to one of {', '.join(codes)}.",
            )
    order = sorted(tensors, key=lambda n: (codes[tensors[n].dtype][0], n))
    header: dict[str, Any] = {}
    if metadata is not None and len(metadata):
        header[METADATA] = metadata
    at = 0
    for name in order:
        tensor = tensors[name]
        entry: dict[str, Any] = {
            "dtype": codes[tensor.dtype][1],
            "shape": tensor.shape,
            "data_offsets": [at, at + tensor.bytes],
        }
        header[name] = entry
        at += tensor.bytes
    return Layout(header, order)

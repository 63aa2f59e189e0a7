"""The safetensors format: u64 little-endian length of a JSON header, the header, then the tensors'
bytes (https://huggingface.co/docs/safetensors).

Tensors that are read stay in the Source, and files are written in parts: no tensor is copied. The
reader refuses what the format forbids: overlapping tensors, gaps between them, bytes after the last
one, a header above 100 MB.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import InputError, ModelError, memory_in_words
from ...json_text import parse_json, written_json
from ..declare.dtypes import (
    BFLOAT16,
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    NAME,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    bytes_for,
)
from ..ir import Tensor
from ..onnx.sink import as_stored, pieces, write_parts
from ..onnx.source import Source, as_source

TYPES = {
    "U64": UINT64,
    "I64": INT64,
    "F64": DOUBLE,
    "F32": FLOAT,
    "U32": UINT32,
    "I32": INT32,
    "BF16": BFLOAT16,
    "F16": FLOAT16,
    "U16": UINT16,
    "I16": INT16,
    "I8": INT8,
    "U8": UINT8,
    "BOOL": BOOL,
}
NAMES = {code: name for name, code in TYPES.items()}
# The reference implementation writes the widest types first, so that all are aligned.
RANK = {code: i for i, code in enumerate(TYPES.values())}
MAX_HEADER = 100_000_000
MAX_RANK = 64


REMEDY = "The file is damaged or not a safetensors file; fetch it again."


@memory_in_words
def load_safetensors(
    source: Source | str | os.PathLike[str] | bytes,
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Reads the header of a file.

    Args:
        source: path, bytes or Source.

    Returns:
        ({name: Tensor in the source}, in the order of their bytes; metadata, {} if there is none)

    Raises:
        ModelError: the file is damaged, or not a safetensors file.
    """
    file = as_source(source, "model.safetensors")
    if file.size < 8:
        raise ModelError(f"{file.size} bytes are not a safetensors file", file.name, REMEDY)
    (size,) = struct.unpack("<Q", file.read(0, 8))
    if size > MAX_HEADER or size > file.size - 8:
        raise ModelError(
            f"its header claims {size} bytes, the file has {file.size}", file.name, REMEDY
        )
    header = parse_json(
        file.read(8, size), file.name, remedy=REMEDY, most_bytes=MAX_HEADER, pairs=_unique
    )
    if not isinstance(header, dict):
        raise ModelError("its header is not a JSON object", file.name, REMEDY)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ModelError("its metadata does not map strings to strings", file.name, REMEDY)
    tensors = [_tensor(file, 8 + size, name, entry) for name, entry in header.items()]
    tensors.sort(key=lambda t: (t.offset, t.nbytes))
    _check_offsets(file, 8 + size, tensors)
    return {t.name: t for t in tensors}, metadata


def _tensor(file: Source, start: int, name: str, entry: object) -> Tensor:
    """A tensor of the header. start: position of the first tensor's bytes."""
    fields = entry if isinstance(entry, dict) else {}
    kind: Any
    shape: Any
    span: Any
    kind, shape, span = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if (
        not isinstance(kind, str)
        or not _sizes(shape)
        or len(shape) > MAX_RANK
        or not _sizes(span)
        or len(span) != 2
    ):
        raise ModelError(f"tensor '{name}' needs dtype, shape and data_offsets", file.name, REMEDY)
    if kind not in TYPES:
        raise ModelError(
            f"tensor '{name}' has the element type {kind}",
            file.name,
            f"Edgewise reads {', '.join(TYPES)}.",
        )
    t = Tensor(name, TYPES[kind], tuple(shape), file, start + span[0], span[1] - span[0])
    if (
        0 not in shape
        and max((d.bit_length() for d in shape), default=0) > 48
        or t.nbytes != bytes_for(t.dtype, t.count)
    ):
        raise ModelError(
            f"tensor '{name}' has {t.nbytes} bytes, which do not match its shape {shape} of {kind}",
            file.name,
            REMEDY,
        )
    return t


def _check_offsets(file: Source, start: int, tensors: list[Tensor]) -> None:
    """Checks that the tensors, sorted by offset, fill the file after the header."""
    at = start
    for t in tensors:
        if t.offset != at:
            raise ModelError(
                f"tensor '{t.name}' begins at byte {t.offset}, the one before it ends at {at}",
                file.name,
                REMEDY,
            )
        at += t.nbytes
    if at != file.size:
        raise ModelError(
            f"its tensors end at byte {at}, the file has {file.size}",
            file.name,
            "The file is truncated or was overwritten; fetch it again.",
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises ValueError for a repeated name."""
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name twice")
    return out


def _sizes(x: Any) -> bool:
    return isinstance(x, list) and all(type(d) is int and d >= 0 for d in x)


def safetensors_parts(
    tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """A file as bytes-like parts; the same bytes as the reference implementation writes.

    Args:
        tensors: {name: Tensor, array, or (dtype, shape, bytes or chunks)}, see
            `edgewise.compiler.onnx.sink.as_stored`.
        metadata: {str: str}.

    Raises:
        InputError: the format does not have a tensor's type, its bytes do not match its shape, or
            metadata is not text.
    """
    stored = {}
    for name, x in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise InputError(
                f"{name!r} is not a valid tensor name", "safetensors", "Give it another name."
            )
        stored[name] = as_stored(x, name)
        if stored[name][0] not in NAMES:
            raise InputError(
                f"safetensors cannot store {NAME[stored[name][0]]}",
                name,
                f"Convert it to one of {', '.join(NAME[c] for c in NAMES)}.",
            )
    if metadata is not None and not all(
        isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()
    ):
        raise InputError(
            "safetensors' metadata maps strings to strings",
            "metadata",
            "Write numbers and lists as text.",
        )
    order = sorted(stored, key=lambda name: (RANK[stored[name][0]], name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name in order:
        dtype, shape, nbytes, _ = stored[name]
        header[name] = {
            "dtype": NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [at, at + nbytes],
        }
        at += nbytes
    text = written_json(header, separators=(",", ":"))
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in order:
        yield from pieces(stored[name], name)


@memory_in_words
def save_safetensors(
    tensors: Mapping[str, Any], target: Any = None, metadata: Mapping[str, str] | None = None
) -> bytes | None:
    """Writes a safetensors file.

    Args:
        tensors, metadata: as safetensors_parts'.
        target: a path (the file is complete or not written at all), an object with `write`, or
            None: returns the bytes.
    """
    return write_parts(target, safetensors_parts(tensors, metadata))

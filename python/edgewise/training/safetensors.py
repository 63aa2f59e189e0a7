"""The safetensors format: u64 little-endian length of a JSON header, the header, then the tensors'
bytes (https://huggingface.co/docs/safetensors).

Reading gives references into the Source, writing makes parts: no tensor is copied on the way. What
the reader refuses is what the format forbids: overlapping tensors, holes between them, bytes behind
the last, a header above 100 MB.
"""

from __future__ import annotations

import json
import struct

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
from ..errors import InputError, ModelError
from ..ir import Tensor
from ..json_text import parse_json
from ..onnx.sink import as_stored, pieces, write_parts
from ..onnx.source import as_source

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
RANK = {
    code: i
    for i, code in enumerate(TYPES.values())
    # the order in which the reference implementation lays types out: widest first, so that all lie
    # aligned
}
MAX_HEADER = 100_000_000
MAX_RANK = 64


def load_safetensors(source):
    """Reads a file's header.

    Args:
        source: path, bytes, or Source of a safetensors file.
    Returns:
        (tensors, metadata): {name: `Tensor` that lies in the source}, in the order of their bytes;
        {str: str}, empty when the file has none.
    Raises:
        ModelError: it is damaged, or not a safetensors file.
    """
    source = as_source(source, "model.safetensors")

    def broken(what, remedy="The file is damaged or not a safetensors file; fetch it again."):
        return ModelError(what, source.name, remedy)

    if source.size < 8:
        raise broken(f"{source.size} bytes are no safetensors file")
    (size,) = struct.unpack("<Q", source.read(0, 8))
    if size > MAX_HEADER or size > source.size - 8:
        raise broken(f"its header claims {size} bytes, the file has {source.size}")
    header = parse_json(
        source.read(8, size),
        source.name,
        remedy="The file is damaged or not a safetensors file; fetch it again.",
        most_bytes=MAX_HEADER,
        pairs=_unique,
    )
    if not isinstance(header, dict):
        raise broken("its header is not a JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise broken("its metadata is not text by name")
    start = 8 + size
    tensors = []
    for name, entry in header.items():
        entry = entry if isinstance(entry, dict) else {}
        kind, shape, span = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if (
            not isinstance(kind, str)
            or not _sizes(shape)
            or len(shape) > MAX_RANK
            or not _sizes(span)
            or len(span) != 2
        ):
            raise broken(f"tensor '{name}' needs dtype, shape and data_offsets")
        if kind not in TYPES:
            raise broken(
                f"tensor '{name}' has the element type {kind}",
                f"Edgewise reads {', '.join(TYPES)}.",
            )
        t = Tensor(name, TYPES[kind], tuple(shape), source, start + span[0], span[1] - span[0])
        if (
            0 not in shape
            and max((d.bit_length() for d in shape), default=0) > 48
            or t.nbytes != bytes_for(t.dtype, t.count)
        ):
            raise broken(
                f"tensor '{name}' has {t.nbytes} bytes, its shape {shape} of {kind} needs others"
            )
        tensors.append(t)
    tensors.sort(key=lambda t: (t.offset, t.nbytes))
    at = start
    for t in tensors:
        if t.offset != at:
            raise broken(
                f"tensor '{t.name}' begins at byte {t.offset}, the one before it ends at {at}"
            )
        at += t.nbytes
    if at != source.size:
        raise broken(
            f"its tensors end at byte {at}, the file has {source.size}",
            "The file is truncated or was written over; fetch it again.",
        )
    return {t.name: t for t in tensors}, metadata


def _unique(pairs):
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name twice")
    return out


def _sizes(x):
    return isinstance(x, list) and all(type(d) is int and d >= 0 for d in x)


def safetensors_parts(tensors, metadata=None):
    """The file as bytes-like parts, to be written one after the other; the same bytes as the
    reference implementation's.

    Args:
        tensors: {name: Tensor, array, or (dtype, shape, bytes or chunks)}, see
        `edgewise.onnx.sink.as_stored`. metadata: {str: str}.
    Raises:
        InputError: a tensor of a type that the format does not have, or whose bytes are not those
        of its shape; metadata that is not text.
    """
    stored = {}
    for name, x in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise InputError(
                f"{name!r} is no name for a tensor", "safetensors", "Give it another name."
            )
        stored[name] = as_stored(x, name)
        if stored[name][0] not in NAMES:
            raise InputError(
                f"safetensors have no {NAME[stored[name][0]]}",
                name,
                f"Convert it to one of {', '.join(NAME[c] for c in NAMES)}.",
            )
    if metadata is not None and not all(
        isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()
    ):
        raise InputError(
            "safetensors' metadata is text by name", "metadata", "Write numbers and lists as text."
        )
    order = sorted(stored, key=lambda name: (RANK[stored[name][0]], name))
    header, at = {"__metadata__": dict(metadata)} if metadata else {}, 0
    for name in order:
        dtype, shape, nbytes, _ = stored[name]
        header[name] = {
            "dtype": NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [at, at + nbytes],
        }
        at += nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in order:
        yield from pieces(stored[name], name)


def save_safetensors(tensors, target=None, metadata=None):
    """Writes a safetensors file to a path (complete or not at all) or an object with `write`; with
    target None returns its bytes. Arguments as `safetensors_parts`.
    """
    return write_parts(target, safetensors_parts(tensors, metadata))

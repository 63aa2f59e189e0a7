"""Safetensors files. logic/training/safetensors.py has the rules of the format.

Tensors that are read stay in the Source, and files are written in parts: no tensor is copied.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import InputError, ModelError, memory_in_words
from ...json_text import parse_json, written_json
from ...logic.training.safetensors import (
    MAX_HEADER,
    REMEDY,
    WIDTHS,
    TensorInfo,
    check_length,
    layout,
    read_header,
)
from ..declare.dtypes import CODE, NAME
from ..ir import Tensor
from ..onnx.sink import as_stored, pieces, write_parts
from ..onnx.source import Source, as_source

TYPES = {code: CODE[dtype] for code, (dtype, _) in WIDTHS.items()}
NAMES = {code: name for name, code in TYPES.items()}
RANK = {code: i for i, code in enumerate(TYPES.values())}


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
    check_length(size, file.size, file.name)
    header = parse_json(
        file.read(8, size), file.name, remedy=REMEDY, most_bytes=MAX_HEADER, pairs=_unique
    )
    found = read_header(header, 8 + size, file.size, file.name)
    return {
        name: Tensor(name, CODE[t.dtype], tuple(t.shape), file, t.offset, t.bytes)
        for name, t in found.tensors.items()
    }, dict(found.metadata)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises ValueError for a repeated name."""
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name twice")
    return out


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
    if metadata is not None and not all(
        isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()
    ):
        raise InputError(
            "safetensors' metadata maps strings to strings",
            "metadata",
            "Write numbers and lists as text.",
        )
    infos = {n: TensorInfo(NAME[x[0]], list(x[1]), x[2]) for n, x in stored.items()}
    made = layout(infos, metadata)
    text = written_json(made.header, separators=(",", ":"))
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in made.order:
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

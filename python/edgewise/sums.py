"""Checksums of weights, one for every PIECE bytes: XXH64 as 16 hexadecimal digits, computed by the
engine (core/sum.c) in both hosts.

They detect damaged files and mixed downloads. They do not protect against deliberate changes: for
that a page has the option `integrity`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .errors import PackageError
from .manifest_limits import PIECE
from .onnx.source import Source

if TYPE_CHECKING:
    from .engine.browser import BrowserEngine
    from .engine.native import NativeEngine

    Engine = NativeEngine | BrowserEngine


def sum_at(engine: Engine, address: int, nbytes: int) -> str:
    """Checksum of bytes in engine memory."""
    out = engine.alloc(8)
    try:
        engine.call("ew_xxh64", address, nbytes, out)
        return f"{struct.unpack('<Q', engine.read(out, 8))[0]:016x}"
    finally:
        engine.free(out)


def source_sums(source: Source, offset: int, nbytes: int) -> list[str]:
    """Checksums of bytes of a Source, which are read piece by piece."""
    from .engine import default_engine

    engine, sums = default_engine(), []
    buffer = engine.alloc(min(PIECE, nbytes))
    try:
        for at in range(0, nbytes, PIECE):
            size = min(PIECE, nbytes - at)
            engine.write(buffer, source.read(offset + at, size))
            sums.append(sum_at(engine, buffer, size))
    finally:
        engine.free(buffer)
    return sums


def check_sums(
    engine: Engine, address: int, nbytes: int, sums: list[str], weight: str, file: str
) -> None:
    """Checks a weight in engine memory.

    Args:
        engine: that owns the memory.
        address: of the weight.
        nbytes: of the weight.
        sums: expected checksum of each piece.
        weight: its name, for errors.
        file: its file, for errors.

    Raises:
        PackageError: a checksum does not match.
    """
    for i, expected in enumerate(sums):
        at = i * PIECE
        if sum_at(engine, address + at, min(PIECE, nbytes - at)) != expected:
            raise PackageError(
                f"bytes {at} to {min(at + PIECE, nbytes)} of the weight '{weight}' are not what"
                " their checksum says",
                file,
                "The file is damaged: fetch it again, or build it again with `edgewise build`.",
            )

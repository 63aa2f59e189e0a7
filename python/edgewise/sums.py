"""Sums of weights, one for every PIECE of a weight's bytes: XXH64 as 16 hexadecimal digits,
computed by the engine (core/sum.c) in both hosts.

They tell damaged bytes and mixed downloads from whole ones. They are no protection against those
who want to deceive: for that a page has the option `integrity`.
"""

from __future__ import annotations

import struct

from .errors import PackageError
from .manifest_limits import PIECE


def sum_at(engine, address: int, nbytes: int) -> str:
    """The sum of bytes in engine memory."""
    out = engine.alloc(8)
    try:
        engine.call("ew_xxh64", address, nbytes, out)
        return f"{struct.unpack('<Q', engine.read(out, 8))[0]:016x}"
    finally:
        engine.free(out)


def source_sums(source, offset: int, nbytes: int) -> list[str]:
    """The sums of a stretch of a Source, which is read piece by piece."""
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


def check_sums(engine, address: int, nbytes: int, sums: list[str], weight: str, file: str) -> None:
    """Raises PackageError where a weight in engine memory is not what its sums say. weight, file:
    names, for the error.
    """
    for i, want in enumerate(sums):
        at = i * PIECE
        if sum_at(engine, address + at, min(PIECE, nbytes - at)) != want:
            raise PackageError(
                f"bytes {at} to {min(at + PIECE, nbytes)} of the weight '{weight}' are not what"
                " their checksum says",
                file,
                "The file is damaged: fetch it again, or build it again with `edgewise build`.",
            )

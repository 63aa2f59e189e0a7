"""Checksums of weights, one for every PIECE bytes: XXH64 as 16 hexadecimal digits, computed by the
engine (core/sum.c) in both hosts.

They detect damaged files and mixed downloads. They do not protect against deliberate changes: for
that a page has the option `integrity`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import PackageError
from .manifest_limits import PIECE
from .onnx.source import Source

if TYPE_CHECKING:
    from ..host.engine.device import Buffer, Device


def source_sums(source: Source, offset: int, nbytes: int) -> list[str]:
    """Checksums of bytes of a Source, which are read piece by piece."""
    from ..host.engine import default_engine

    device, sums = default_engine().device, []
    buffer = device.allocate(min(PIECE, nbytes))
    try:
        for at in range(0, nbytes, PIECE):
            size = min(PIECE, nbytes - at)
            device.write(buffer, source.read(offset + at, size))
            sums.append(device.checksum(buffer, 0, size))
    finally:
        device.release(buffer)
    return sums


def check_sums(device: Device, buffer: Buffer, sums: list[str], weight: str, file: str) -> None:
    """Checks a weight in a device's memory.

    Args:
        device: that owns the memory.
        buffer: the weight's bytes.
        sums: expected checksum of each piece.
        weight: its name, for errors.
        file: its file, for errors.

    Raises:
        PackageError: a checksum does not match.
    """
    nbytes = buffer.nbytes
    for i, expected in enumerate(sums):
        at = i * PIECE
        if device.checksum(buffer, at, min(PIECE, nbytes - at)) != expected:
            raise PackageError(
                f"bytes {at} to {min(at + PIECE, nbytes)} of the weight '{weight}' do not match"
                " their checksum",
                file,
                "The file is damaged: fetch it again, or build it again with `edgewise build`.",
            )

"""Checksums of weights, one for every PIECE bytes: XXH64 as 16 hexadecimal digits, computed by the
engine (core/sum.c) in both hosts.

They detect damaged files and mixed downloads. They do not protect against deliberate changes: for
that a page has the option `integrity`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..logic.manifest.limits import PIECE

if TYPE_CHECKING:
    from ..host.engine.device import Device
    from .onnx.source import Source

_devices: list[Callable[[], Device]] = []


def compute_with(device: Callable[[], Device]) -> None:
    """Sets what computes checksums: host/engine does, the compiler has no device."""
    _devices[:] = [device]


def source_sums(source: Source, offset: int, nbytes: int) -> list[str]:
    """Checksums of bytes of a Source, which are read piece by piece."""
    device, sums = _devices[0](), list[str]()
    buffer = device.allocate(min(PIECE, nbytes))
    try:
        for at in range(0, nbytes, PIECE):
            size = min(PIECE, nbytes - at)
            device.write(buffer, source.read(offset + at, size))
            sums.append(device.checksum(buffer, 0, size))
    finally:
        device.release(buffer)
    return sums

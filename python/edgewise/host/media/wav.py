"""WAV files: PCM of 8 to 32 bits and floats of 32 and 64 bits."""

from __future__ import annotations

import array
import struct
import sys
from dataclasses import dataclass
from typing import Any

from ...errors import InputError

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
MAX_CHANNELS = 64


@dataclass(frozen=True)
class Wav:
    """A WAV file's format and its samples as bytes.

    Attributes:
        offset: of the samples in the file.
    """

    kind: int
    channels: int
    rate: int
    bits: int
    data: memoryview
    offset: int = 0

    def samples(self) -> array.array[float]:
        """The samples of all channels in turn, from -1 to 1: int16 is divided by 32768."""
        data = self.data[: len(self.data) // self.frame * self.frame]
        if self.kind == FLOAT:
            values = array.array("f" if self.bits == 32 else "d", data.tobytes())
            return _native(values) if self.bits == 32 else array.array("f", _native(values))
        if self.bits == 8:  # unsigned
            return array.array("f", map([(b - 128) / 128 for b in range(256)].__getitem__, data))
        if self.bits == 24:
            wide = bytearray(len(data) // 3 * 4)
            wide[1::4], wide[2::4], wide[3::4] = data[0::3], data[1::3], data[2::3]
            return _scaled(_native(array.array("i", bytes(wide))), 2.0**-31)
        ints = _native(array.array("h" if self.bits == 16 else "i", data.tobytes()))
        return _scaled(ints, 1 / (1 << (self.bits - 1)))

    @property
    def frame(self) -> int:
        """Bytes of a sample of all channels."""
        return self.channels * self.bits // 8


def _scaled(values: array.array[int], factor: float) -> array.array[float]:
    """values * factor, without a list of numbers, which takes 8 times the memory."""
    return array.array("f", map(factor.__mul__, values))


def _native(values: array.array[Any]) -> array.array[Any]:
    if sys.byteorder == "big":
        values.byteswap()
    return values


def read_wav(data: bytes | memoryview, where: str) -> Wav | None:
    """The format and samples of a WAV file; None where the encoding needs a library.

    Raises:
        InputError: it is damaged.
    """
    view = memoryview(data).cast("B")
    form: tuple[int, ...] | None = None
    at = 12
    while at + 8 <= len(view):
        name, size = bytes(view[at : at + 4]), struct.unpack_from("<I", view, at + 4)[0]
        body = view[at + 8 : at + 8 + size]  # a stream's last chunk may be shorter than it says
        if name == b"fmt ":
            if len(body) < 16:
                raise _damaged("its format is truncated", where)
            form = struct.unpack_from("<HHIIHH", body)
            if form[0] == EXTENSIBLE and len(body) >= 26:
                form = (struct.unpack_from("<H", body, 24)[0], *form[1:])
        elif name == b"data":
            if form is None:
                raise _damaged("it has no format", where)
            return _checked(form, body, at + 8, where)
        at += 8 + size + size % 2
    raise _damaged("it has no samples", where)


def _checked(form: tuple[int, ...], body: memoryview, offset: int, where: str) -> Wav | None:
    kind, channels, rate, _, _, bits = form
    known = (kind == PCM and bits in (8, 16, 24, 32)) or (kind == FLOAT and bits in (32, 64))
    if not 1 <= channels <= MAX_CHANNELS:
        raise _damaged(f"it has {channels} channels", where)
    return Wav(kind, channels, rate, bits, body, offset) if known else None


def _damaged(what: str, where: str) -> InputError:
    return InputError(f"the WAV file is damaged: {what}", where, "Convert the recording again.")

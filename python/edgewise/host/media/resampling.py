"""Resampling of pictures and sound in the engine (core/media/media.h), natively and in Pyodide.

The source is passed in pieces of about 1 MB. web/src/worker/media/ has the same functions.
"""

from __future__ import annotations

import struct
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import FLOAT
from ...compiler.processors.resampling import (
    FILTERS,
    MAX_CHANNELS,
    MAX_RATE,
    MAX_RATIO,
    MAX_SIDE,
    PIECE,
)
from ...errors import EngineError, InputError, OutOfMemory
from ..engine import default_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...compiler.declare.dtypes import BytesLike
    from ..engine import Engine

_ARGUMENT, _MEMORY = -12, -1  # -EW_E_ARGUMENT, -EW_E_MEMORY

Box = tuple[float, float, float, float]


def resize_image(
    pixels: BytesLike,
    height: int,
    width: int,
    channels: int,
    out_height: int,
    out_width: int,
    filter: str,  # noqa: A002
    box: Sequence[float] | None = None,
) -> bytes:
    """Resizes a picture of bytes: the same bytes as Pillow's `Image.resize`.

    Channels are independent, as in Pillow's modes L, RGB and CMYK. (Pillow multiplies LA and RGBA
    by alpha first, except for "nearest".)

    Args:
        pixels: uint8 [height, width, channels] in row-major order.
        height, width: of the source, 1 to 2^20.
        channels: 1 to 1024.
        out_height, out_width: of the result, 1 to 2^20.
        filter: "nearest", "bilinear", "bicubic", "lanczos", "box" or "hamming".
        box: (left, top, right, bottom) of the part that becomes the result, in pixels and
            fractions of pixels; by default everything.

    Returns:
        uint8 [out_height, out_width, channels].

    Raises:
        InputError: a size, the box or the filter is not allowed, or `pixels` has another size.
        OutOfMemory: the result or the rows that are combined at a time exceed memory.
    """
    sizes = (height, width, channels, out_height, out_width)
    return _resize(pixels, sizes, filter, box, is_float=False)


def resize_float(
    values: Any,
    height: int,
    width: int,
    out_height: int,
    out_width: int,
    filter: str,  # noqa: A002
    box: Sequence[float] | None = None,
    channels: int = 1,
) -> bytes:
    """Resizes float32 values, such as a mask: Pillow's `Image.resize` in mode F.

    Args:
        values: float32 bytes, an array or an `Array`, [height, width, channels].
        height, width, out_height, out_width, filter, box, channels: see `resize_image`.

    Returns:
        float32 [out_height, out_width, channels] as bytes.

    Raises:
        InputError, OutOfMemory: see `resize_image`.
    """
    if not isinstance(values, (bytes, bytearray)):
        values = _floats(values, "resize_float")
    sizes = (height, width, channels, out_height, out_width)
    return _resize(values, sizes, filter, box, is_float=True)


def resample_audio(samples: Any, rate: int, to_rate: int) -> Array:
    """Changes the sampling rate of sound by a windowed sinc, without delay.

    Frequencies up to 0.9 of the lower rate's Nyquist frequency keep their amplitude; those above
    that frequency are attenuated by more than 80 dB. The sound is zero outside of its samples.

    Args:
        samples: float32 [n], an array, an `Array` or a list of numbers.
        rate: Hz, 1 to 2^20.
        to_rate: Hz, 1 to 2^20 and at most 256 times higher or lower.

    Returns:
        float32 [ceil(n * to_rate / rate)].

    Raises:
        InputError: the rates are not allowed, or `samples` is not one-dimensional.
    """
    data = memoryview(_floats(samples, "resample_audio", dimensions=1)).cast("B")
    rate, to_rate = sampling_rate(rate, "rate"), sampling_rate(to_rate, "to_rate")
    if max(rate, to_rate) > MAX_RATIO * min(rate, to_rate):
        raise InputError(
            f"the rates {rate} and {to_rate} differ by more than {MAX_RATIO} times",
            "resample_audio",
            "Give the sampling rate of the sound.",
        )
    if rate == to_rate:
        return Array((len(data) // 4,), "float32", bytes(data))
    with Resampler(rate, to_rate) as stream:
        out = stream.feed(data) + stream.end()
    return Array((len(out) // 4,), "float32", out)


def sampling_rate(value: object, where: str = "sampling_rate") -> int:
    """`value` as an int. Raises InputError where it is not a possible sampling rate in Hz."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise InputError(f"{value!r} is not a sampling rate", where, "Give it in Hz.")
    if not 1 <= value <= MAX_RATE or int(value) != value:
        raise InputError(
            f"the sampling rate {value} is not a whole number of Hz from 1 to {MAX_RATE}",
            where,
            "Give the rate at which the sound was recorded.",
        )
    return int(value)


class Resampler:
    """`resample_audio` for sound that arrives in pieces. Its result does not depend on how the
    sound is divided. A context manager; `close` frees its memory.

    Args:
        rate: Hz.
        to_rate: Hz.
        engine: by default that of the process.
    """

    def __init__(self, rate: int, to_rate: int, engine: Engine | None = None) -> None:
        self.engine, self.memory = engine or default_engine(), ExitStack()
        nbytes = _checked(self.engine, "ew_resample_bytes", rate, to_rate)
        self.work = _allocate(self.engine, self.memory, nbytes)
        self.input = _allocate(self.engine, self.memory, PIECE)
        _checked(self.engine, "ew_resample_open", self.work, rate, to_rate)

    def feed(self, samples: BytesLike) -> bytes:
        """The samples that are complete after these.

        Args:
            samples: float32 bytes.
        """
        data = memoryview(samples).cast("B")
        pieces = []
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            self.engine.write(self.input, piece)
            pieces.append(self._run(self.input, len(piece) // 4))
        return b"".join(pieces)

    def end(self) -> bytes:
        """The samples that were waiting for later ones. Call it once, after the last piece."""
        return self._run(0, 0)

    def _run(self, address: int, count: int) -> bytes:
        most = _checked(self.engine, "ew_resample_most", self.work, count)
        with ExitStack() as memory:
            out = _allocate(self.engine, memory, 4 * most)
            done = _checked(self.engine, "ew_resample_feed", self.work, address, count, out, most)
            return self.engine.read(out, 4 * done)

    def close(self) -> None:
        """Frees engine memory."""
        self.memory.close()

    def __enter__(self) -> Resampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _allocate(engine: Engine, memory: ExitStack, nbytes: int) -> int:
    """Engine memory that is freed with `memory`."""
    address = engine.alloc(max(nbytes, 1))
    memory.callback(engine.free, address)
    return address


def _checked(engine: Engine, name: str, *args: int) -> int:
    """Calls a function of core/media. Returns its int32; raises for negative ones."""
    code = engine.call(name, *args) & 0xFFFFFFFF
    if code < 2**31:
        return code
    if code - 2**32 == _MEMORY:
        raise OutOfMemory(
            "the picture needs more than 2 GB", "resize", "Resize it in two steps, or crop it."
        )
    if code - 2**32 == _ARGUMENT:
        raise InputError("the sizes are not allowed", name, "Check the sizes and the box.")
    raise EngineError(f"error {code - 2**32}", name, "This is a bug in Edgewise.")


def _floats(values: Any, where: str, dimensions: int | None = None) -> BytesLike:
    """The bytes of float32 values."""
    if isinstance(values, memoryview) and values.format == "B":
        return values
    dtype, shape, data = as_input(values, where, FLOAT)
    if dtype != FLOAT or dimensions not in (None, len(shape)):
        raise InputError(
            f"values of type {dtype} and shape {list(shape)}" if dtype == FLOAT else "not float32",
            where,
            f"Pass float32{' values of one dimension' if dimensions == 1 else ''}.",
        )
    return memoryview(data).cast("B")


def _check_sizes(sizes: tuple[int, ...], box: Sequence[float]) -> None:
    """Raises InputError for sizes or boxes that the engine would refuse."""
    height, width, channels = sizes[:3]
    names = ("height", "width", "channels", "out_height", "out_width")
    for name, size in zip(names, sizes, strict=True):
        most = MAX_CHANNELS if name == "channels" else MAX_SIDE
        if type(size) is not int or not 1 <= size <= most:
            raise InputError(
                f"{name} is {size!r}", "resize", f"It must be an integer from 1 to {most}."
            )
    left, top, right, bottom = box
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise InputError(
            f"the box {tuple(box)} is empty or not inside of {width} x {height} pixels",
            "resize",
            "Give left, top, right and bottom in pixels.",
        )


def _resize(
    values: BytesLike,
    sizes: tuple[int, int, int, int, int],
    filter_name: str,
    box: Sequence[float] | None,
    is_float: bool,
) -> bytes:
    """See resize_image and resize_float. sizes: height, width, channels, out_height, out_width."""
    height, width, channels, out_height, out_width = sizes
    if filter_name not in FILTERS:
        raise InputError(f"there is no filter {filter_name!r}", "resize", f"Use {[*FILTERS]}.")
    if box is not None and len(box) != 4:
        raise InputError(f"a box of {len(box)} numbers", "resize", "Give four.")
    _check_sizes(sizes, box := (0, 0, width, height) if box is None else box)
    data, row = memoryview(values).cast("B"), (4 if is_float else 1) * width * channels
    if len(data) != row * height:
        raise InputError(
            f"{len(data)} bytes for {height} x {width} pixels of {channels} channels, which take"
            f" {row * height}",
            "resize",
            "Pass as many bytes as the sizes need.",
        )
    spec = struct.pack("<7I4f", *sizes, FILTERS.index(filter_name), is_float, *box)
    engine, out_bytes = default_engine(), (4 if is_float else 1) * out_height * out_width * channels
    with ExitStack() as memory:
        spec_at = _allocate(engine, memory, len(spec))
        engine.write(spec_at, spec)
        work = _allocate(engine, memory, _checked(engine, "ew_resize_bytes", spec_at))
        rows = max(1, min(height, PIECE // row))
        piece, out = _allocate(engine, memory, rows * row), _allocate(engine, memory, out_bytes)
        _checked(engine, "ew_resize_open", spec_at, work)
        done = first = 0
        while done < out_height:
            count = min(rows, height - first)
            engine.write(piece, data[first * row : (first + count) * row])
            done = _checked(engine, "ew_resize_feed", work, piece, count, out)
            first += count
        return engine.read(out, out_bytes)

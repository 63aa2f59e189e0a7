"""Pictures: from files and arrays to bytes, and the operations on them that are no arithmetic."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import NAME, UINT8
from ...errors import InputError, file_error, memory_in_words
from ...logic.images.geometry import MAX_PIXELS, Layout, Resize, Step, Window
from .resampling import resize_image

__all__ = ["Picture", "apply", "apply_step", "read_picture", "to_pillow"]

# Formats that Pillow reads itself. Others run programs (EPS), or are not pictures of pixels.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM", "ICO", "TGA", "JPEG2000")


@dataclass
class Picture:
    """A picture of 8 bits per channel.

    Attributes:
        pixels: [height, width, channels].
        height, width: in pixels.
        channels: 3: red, green, blue; 4: and alpha; 1: a mask.
    """

    pixels: bytes
    height: int
    width: int
    channels: int = 3


@memory_in_words
def read_picture(source: Any) -> Picture:
    """Reads a picture as red, green, blue, upright as its EXIF orientation says.

    Args:
        source: path of a file, or its bytes (both need Pillow); a PIL.Image; a Picture; or an
            array of uint8: [height, width], [height, width, 1], [height, width, 3], or
            [height, width, 4], whose alpha is left out.

    Raises:
        InputError: it is none of these, is damaged, empty, or has more than MAX_PIXELS pixels.
    """
    if isinstance(source, Picture):
        return _checked(source)
    if isinstance(source, (str, os.PathLike, bytes, bytearray)):
        return _read_file(source)
    if type(source).__module__.partition(".")[0] == "PIL":
        return _from_pillow(source)
    return _from_array(source)


def _checked(picture: Picture) -> Picture:
    """Raises InputError for an empty or too large picture."""
    _check_size(picture.height, picture.width)
    return picture


def _check_size(height: int, width: int) -> None:
    if height < 1 or width < 1:
        raise InputError(f"the picture has {height} x {width} pixels", "image", "Give another one.")
    if height * width > MAX_PIXELS:
        raise InputError(
            f"the picture has {height} x {width} pixels, at most {MAX_PIXELS} are read",
            "image",
            "Reduce it before.",
        )


def _read_file(source: Any) -> Picture:
    try:
        from PIL import Image
    except ImportError:
        raise InputError(
            "reading of files needs Pillow",
            "image",
            "Run `pip install edgewise[images]`, or pass the pixels as an array of uint8.",
        ) from None
    if isinstance(source, (bytes, bytearray)):
        where, file = "image", BytesIO(source)
    else:
        where = os.fsdecode(source)
        if where.startswith(("http://", "https://", "data:")):
            raise InputError(
                "addresses are not read", where[:80], "Fetch the file and pass its bytes or path."
            )
        file = source
    Image.init()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(file, formats=[f for f in FORMATS if f in Image.OPEN]) as image:
                return _from_pillow(image)
    except (FileNotFoundError, IsADirectoryError, PermissionError, NotADirectoryError) as error:
        what = f"cannot be read ({error.strerror})"
        raise file_error(error)(what, where, "Check the path.") from None
    except Image.DecompressionBombError:
        raise InputError(
            f"the picture has more than {MAX_PIXELS} pixels", where, "Reduce it before."
        ) from None
    except InputError:
        raise
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise InputError(
            f"it is not a picture that can be read ({type(error).__name__}: {error})",
            where,
            f"Give a file of one of these formats: {', '.join(FORMATS)}.",
        ) from None


def _from_pillow(image: Any) -> Picture:
    from PIL import ImageOps

    _check_size(image.height, image.width)
    try:
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16"):  # convert("RGB") makes white of all that is above 255
            image = image.convert("I").point(lambda value: value * (1 / 256))
        image = image.convert("RGB")
        return Picture(image.tobytes(), image.height, image.width)
    except Exception as error:
        raise InputError(
            f"the picture is damaged ({type(error).__name__}: {error})", "image", "Copy it again."
        ) from None


def _from_array(source: Any) -> Picture:
    dtype, shape, data = as_input(source, "image", UINT8)
    if dtype != UINT8 or len(shape) not in (2, 3) or shape[2:] not in ([], [1], [3], [4]):
        raise InputError(
            f"an array of {NAME.get(dtype, dtype)} {list(shape)} is not a picture",
            "image",
            "Pass uint8 [height, width, 3].",
        )
    height, width = shape[:2]
    _check_size(height, width)
    pixels, channels = bytes(data), shape[2] if len(shape) == 3 else 1
    if channels != 3:
        rgb = bytearray(3 * height * width)
        for c in range(3):
            rgb[c::3] = pixels[c if channels == 4 else 0 :: channels]
        pixels = bytes(rgb)
    return Picture(pixels, height, width)


def to_pillow(picture: Picture) -> Any:
    """A PIL.Image, of mode L, RGB or RGBA; without Pillow an array of uint8."""
    try:
        from PIL import Image
    except ImportError:
        shape = [picture.height, picture.width, picture.channels]
        return Array(shape if picture.channels > 1 else shape[:2], "uint8", picture.pixels)
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[picture.channels]
    return Image.frombytes(mode, (picture.width, picture.height), picture.pixels)


def apply(picture: Picture, done: Layout) -> Picture:
    """Applies the operations of a layout to a picture of three channels."""
    for step in done.steps:
        picture = apply_step(picture, step)
    return picture


def apply_step(picture: Picture, step: Step) -> Picture:
    """Applies one operation to a picture of three channels."""
    if step["op"] == "resize":
        return _resize(picture, step)
    return _window(picture, step) if step["op"] == "window" else _rotate(picture)


def _resize(picture: Picture, step: Resize) -> Picture:
    height, width = step["height"], step["width"]
    pixels = resize_image(
        picture.pixels, picture.height, picture.width, 3, height, width, step["filter"]
    )
    return Picture(bytes(pixels), height, width)


def _window(picture: Picture, step: Window) -> Picture:
    top, left, height, width = step["top"], step["left"], step["height"], step["width"]
    color, source = step["color"], picture.pixels
    if color == "symmetric":
        rows = [_mirrored(top + y, picture.height) for y in range(height)]
        columns = [_mirrored(left + x, picture.width) for x in range(width)]
        pixels = b"".join(_pick(source, picture.width, y, columns) for y in rows)
        return Picture(pixels, height, width)
    edge = bytes(color)
    first, last = max(left, 0), max(min(left + width, picture.width), max(left, 0))
    before, after = edge * (first - left), edge * (left + width - last)
    lines = []
    for y in range(top, top + height):
        if 0 <= y < picture.height and last > first:
            at = 3 * picture.width * y
            lines.append(before + source[at + 3 * first : at + 3 * last] + after)
        else:
            lines.append(edge * width)
    return Picture(b"".join(lines), height, width)


def _mirrored(i: int, size: int) -> int:
    """Index in a row of `size` that is continued by its mirror image, with the edge repeated."""
    i %= 2 * size
    return i if i < size else 2 * size - 1 - i


def _pick(source: bytes, width: int, y: int, columns: list[int]) -> bytes:
    line = source[3 * width * y : 3 * width * (y + 1)]
    return b"".join(line[3 * x : 3 * x + 3] for x in columns)


def _rotate(picture: Picture) -> Picture:
    height, width, source = picture.height, picture.width, picture.pixels
    out = bytearray(len(source))
    for x in range(width):  # a column from the bottom up becomes a row
        at = 3 * height * x
        for c in range(3):
            column = source[3 * x + c :: 3 * width][:height]
            out[at + c : at + 3 * height : 3] = column[::-1]
    return Picture(bytes(out), width, height)

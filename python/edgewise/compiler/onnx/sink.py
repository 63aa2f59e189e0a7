"""Writing of files as a sequence of parts (bytes-like objects), so that no file is ever in memory
as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, cast

from ...atomic_file import atomic_file
from ...errors import InputError
from ..arrays import as_input
from ..declare.dtypes import CODE, NAME, BytesLike, bytes_for
from ..ir import Tensor
from .source import Source

CHUNK = 1 << 22  # bytes that are copied at once

# A Tensor, bytes, chunks of bytes, or a function that returns chunks.
Data = Tensor | BytesLike | Iterable[BytesLike] | Callable[[], Iterable[BytesLike]]


class Writable(Protocol):
    """A binary file object."""

    def write(self, data: BytesLike, /) -> object:
        """Appends bytes."""


class Stored(NamedTuple):
    """The type, shape and data of a tensor that is to be written.

    Attributes:
        dtype: ONNX code.
        shape: dimensions.
        nbytes: size of the data in bytes.
        data: where the bytes come from.
    """

    dtype: int
    shape: tuple[int, ...]
    nbytes: int
    data: Any


def as_stored(x: object, where: str) -> Stored:
    """Describes a tensor that is to be written.

    Args:
        x: a Tensor, whose bytes are read when they are written; a NumPy array, `edgewise.Array` or
            other array; or (dtype, shape, data), where dtype is an ONNX code or NumPy's name and
            data is bytes-like, an iterable of bytes-like chunks, or a function that returns one.
        where: name of the tensor, for errors.

    Raises:
        InputError: it is none of these, or the number of bytes does not match the shape.
    """
    data: Any
    nbytes = None
    if isinstance(x, Tensor):
        dtype, shape, data, nbytes = x.dtype, tuple(x.shape), x, x.nbytes
        if dtype not in NAME or NAME[dtype] == "string":
            raise InputError(
                f"a tensor of {NAME.get(dtype, dtype)} cannot be written",
                where,
                "Use a numeric type.",
            )
    else:
        if (
            isinstance(x, tuple)
            and len(x) == 3
            and isinstance(x[0], (int, str))
            and isinstance(x[1], (list, tuple))
        ):
            dtype, shape, data = _check_triple(*x, where)
        else:
            dtype, dims, data = as_input(x, where)
            shape = tuple(dims)
        if not callable(data):
            try:
                data = memoryview(data).cast("B")
                nbytes = len(data)
            except TypeError:
                pass  # an iterable: its size is known only after it was written
    expected = bytes_for(dtype, Tensor("", dtype, shape).count)
    if nbytes is not None and nbytes != expected:
        raise InputError(
            f"{nbytes} bytes for shape {list(shape)} of {NAME[dtype]}, which takes {expected}",
            where,
            "Pass as many bytes as the shape needs.",
        )
    return Stored(dtype, shape, expected, data)


def _check_triple(
    dtype: int | str, shape: Iterable[int], data: Data, where: str
) -> tuple[int, tuple[int, ...], Data]:
    code = CODE.get(dtype, dtype) if isinstance(dtype, str) else dtype
    if (
        not isinstance(code, int)
        or code not in NAME
        or NAME[code] == "string"
        or any(type(d) is not int or d < 0 for d in shape)
    ):
        raise InputError(
            f"no tensor has the element type {dtype!r} and the shape {shape!r}",
            where,
            "Pass an ONNX element type and sizes.",
        )
    return code, tuple(shape), data


def pieces(stored: Stored, where: str) -> Iterator[BytesLike]:
    """The bytes of a tensor in chunks.

    Raises:
        InputError: the number of bytes does not match the shape.
    """
    data = stored.data
    if isinstance(data, Tensor):
        if data.data is None:
            yield from source_pieces(cast(Source, data.source), data.offset, data.nbytes)
            return
        data = memoryview(data.data).cast("B")
    if isinstance(data, memoryview):
        yield data
        return
    written = 0
    for part in data() if callable(data) else data:
        chunk = memoryview(part).cast("B")
        written += len(chunk)
        if written > stored.nbytes:
            break
        yield chunk
    if written != stored.nbytes:
        found = f"more than {stored.nbytes}" if written > stored.nbytes else str(written)
        raise InputError(
            f"its chunks hold {found} bytes, its shape {list(stored.shape)} takes {stored.nbytes}",
            where,
            "Pass as many bytes as the shape needs.",
        )


def source_pieces(source: Source, offset: int, size: int) -> Iterator[bytes]:
    """Bytes of a Source in chunks."""
    for at in range(offset, offset + size, CHUNK):
        yield source.read(at, min(CHUNK, offset + size - at))


def write_parts(
    target: str | os.PathLike[str] | Writable | None, parts: Iterable[BytesLike]
) -> bytes | None:
    """Writes parts to a path or to an object with `write`; returns them as bytes if target is None.

    A file appears under its name only when it is complete and on the disk; an existing file stays
    until then, also when an error occurs.

    Raises:
        InputError: the file cannot be written.
    """
    if target is None:
        return b"".join(parts)
    if not isinstance(target, (str, os.PathLike)):
        for part in parts:
            target.write(part)
        return None
    path = os.fspath(target)
    try:
        with atomic_file(path) as file:
            for part in parts:
                file.write(part)
    except (OSError, ValueError) as e:
        if isinstance(e, InputError):
            raise
        raise InputError(
            f"cannot write it ({getattr(e, 'strerror', None) or e})",
            str(path),
            "Check the folder and the free disk space.",
        ) from None
    return None


def write_folder(
    files: Mapping[str, Iterable[BytesLike]], folder: str | os.PathLike[str] | None
) -> dict[str, bytes] | None:
    """Writes files, each of which is complete or not written at all.

    Args:
        files: {name: bytes-like parts}.
        folder: made if it is missing. None: returns {name: bytes}.

    Raises:
        InputError: the folder or a file cannot be written.
    """
    if folder is None:
        return {name: cast(bytes, write_parts(None, p)) for name, p in files.items()}
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as e:
        raise InputError(
            f"cannot make the folder ({e.strerror})", str(folder), "Check the path."
        ) from None
    for name, p in files.items():
        write_parts(os.path.join(folder, name), p)
    return None

"""Where bytes go.

What is written is made as parts (bytes-like objects, one after the other), so that no file is ever
in memory as a whole.
"""

from __future__ import annotations

import os

from ..arrays import as_input
from ..declare.dtypes import CODE, NAME, bytes_for
from ..errors import InputError
from ..ir import Tensor

CHUNK = 1 << 22


def as_stored(x, where):
    """(dtype code, shape, bytes it takes, data) of what is to be written under the name `where`.

    Args:
        x: a `Tensor` (its bytes stay where they are until they are written), a NumPy array,
        `edgewise.Array` or other array, or
            (dtype, shape, data) with dtype a code or NumPy's name, data bytes-like, an iterable of
            bytes-like chunks, or a function that gives one.
    Raises:
        InputError: it is none of those, or its bytes are not those of its shape.
    """
    if isinstance(x, Tensor):
        dtype, shape, data, nbytes = x.dtype, tuple(x.shape), x, x.nbytes
        if dtype not in NAME or NAME[dtype] == "string":
            raise InputError(
                f"a tensor of {NAME.get(dtype, dtype)} is not written",
                where,
                "Take a numeric type.",
            )
    else:
        if (
            isinstance(x, tuple)
            and len(x) == 3
            and isinstance(x[0], (int, str))
            and isinstance(x[1], (list, tuple))
        ):
            dtype, shape, data = x
            dtype = CODE.get(dtype, dtype)
            if (
                dtype not in NAME
                or NAME[dtype] == "string"
                or any(type(d) is not int or d < 0 for d in shape)
            ):
                raise InputError(
                    f"no tensor has the element type {dtype!r} and the shape {shape!r}",
                    where,
                    "Give an ONNX element type and sizes.",
                )
            shape = tuple(shape)
        else:
            dtype, shape, data = as_input(x, where)
            shape = tuple(shape)
        nbytes = None
        if not callable(data):
            try:
                data = memoryview(data).cast("B")
                nbytes = len(data)
            except TypeError:
                pass
    want = bytes_for(dtype, Tensor("", dtype, shape).count)
    if nbytes is not None and nbytes != want:
        raise InputError(
            f"{nbytes} bytes for shape {list(shape)} of {NAME[dtype]}, which takes {want}",
            where,
            "Give as many bytes as the shape needs.",
        )
    return dtype, shape, want, data


def pieces(stored, where):
    """The bytes of what `as_stored` gave, in bytes-like chunks.

    Raises InputError when they turn out to be more or fewer than its shape needs.
    """
    _, shape, want, data = stored
    if isinstance(data, Tensor):
        if data.data is not None:
            data = memoryview(data.data).cast("B")
        else:
            yield from source_pieces(data.source, data.offset, data.nbytes)
            return
    if isinstance(data, memoryview):
        yield data
        return
    written = 0
    for chunk in data() if callable(data) else data:
        chunk = memoryview(chunk).cast("B")
        written += len(chunk)
        if written > want:
            break
        yield chunk
    if written != want:
        raise InputError(
            f"its chunks hold {'more than ' if written > want else ''}{min(written, want)} bytes,"
            f" its shape {list(shape)} takes {want}",
            where,
            "Give as many bytes as the shape needs.",
        )


def source_pieces(source, offset, size):
    """A stretch of a Source, in chunks."""
    for at in range(offset, offset + size, CHUNK):
        yield source.read(at, min(CHUNK, offset + size - at))


def write_parts(target, parts):
    """Writes parts to a path, to anything with `write`, or, when target is None, returns them as
    one bytes object.

    A file appears under its name only when it is complete and on the disk; what was there before
    stays until then, and when something fails. Raises InputError when the system refuses.
    """
    if target is None:
        return b"".join(parts)
    if hasattr(target, "write"):
        for part in parts:
            target.write(part)
        return None
    path = os.fspath(target)
    part_path = f"{path}.{os.getpid()}.part"
    try:
        try:
            with open(part_path, "wb") as f:
                for part in parts:
                    f.write(part)
                f.flush()
                os.fsync(f.fileno())
            os.replace(part_path, path)
        except BaseException:
            if os.path.exists(part_path):
                os.unlink(part_path)
            raise
    except (OSError, ValueError) as e:
        if isinstance(e, InputError):
            raise
        raise InputError(
            f"cannot write it ({getattr(e, 'strerror', None) or e})",
            str(path),
            "Check the folder and the free space.",
        ) from None
    return None

"""Writing of files that are replaced as a whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

SUFFIX = ".part"  # of files that are being written


@contextlib.contextmanager
def atomic_file(path: str, private: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which appears under `path` when the block ends without an error, complete
    and on the disk. An existing file stays until then.

    Until then its name is `path`, the number of the process and SUFFIX. Only a process that is
    killed leaves it.

    Args:
        path: of the file. Its folder exists.
        private: only its owner may read it.

    Raises:
        OSError: the file cannot be written.
    """
    part = f"{path}.{os.getpid()}{SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(part, flags, 0o600 if private else 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise

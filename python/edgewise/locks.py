"""Locks between processes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from .errors import StorageError


@contextlib.contextmanager
def locked(
    path: str,
    what: str = "another process is changing the folder",
    remedy: str = "Wait until it has ended.",
) -> Iterator[None]:
    """Keeps other processes out, until the end of this one at the latest.

    Args:
        path: of the lock; the file is made, and stays.
        what, remedy: of the error.

    Raises:
        StorageError: another process is in.
    """
    with open(path, "ab") as file:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StorageError(what, path, remedy) from None
        yield

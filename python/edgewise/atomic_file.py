"""Writing of files that are replaced as a whole."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO

SUFFIX = ".part"  # of files that are being written
UNFINISHED = re.compile(rf"\.(json|safetensors)\.[0-9]{{1,15}}\{SUFFIX}$", re.ASCII)


@contextlib.contextmanager
def atomic_file(path: str, private: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which appears under `path` when the block ends without an error, complete
    and on the disk. An existing file stays until then, and gives its permissions to the new one; of
    a symbolic link the file that it leads to. What is no file, such as a pipe or /dev/stdout, is
    written to as it is.

    Until then its name is `path`, a random number and SUFFIX. Only a process that is killed leaves
    it, see remove_unfinished.

    Args:
        path: of the file. Its folder exists.
        private: only its owner may read it.

    Raises:
        OSError: the file cannot be written.
    """
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            with open(path, "wb") as file:
                yield file
            return
    path = os.path.realpath(path)
    part = f"{path}.{secrets.randbits(48)}{SUFFIX}"
    # exclusively: in a folder of others, that name may be a link of theirs
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    made = os.open(part, flags, 0o600 if private else 0o666)
    try:
        with open(made, "wb") as file:
            if mode is not None and not private:
                with contextlib.suppress(OSError):  # a file system without permissions
                    os.chmod(part, stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    _sync_folder(os.path.dirname(path))


def remove_unfinished(folder: str) -> None:
    """Removes what killed processes left of files of a folder that nothing else writes to now."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if UNFINISHED.search(entry.name) and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)


def _sync_folder(path: str) -> None:
    """Writes the names of a folder to the disk, where the system can."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

"""Ends processes when the one that started them is gone, however it ended.

A process that is killed (SIGKILL, out of memory) cannot end what it has started. A guard is a
process of its own with a pipe whose other end its starter alone holds: the pipe ends when the
starter does, and then the guard ends the processes that it was told of.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

PATIENCE = 0.7  # seconds in which a process may end by itself


class Guard:
    """A guard for the length of a block. Its process begins with the first that it is told of."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()

    def watch(self, process: subprocess.Popen[bytes], group: bool) -> None:
        """Ends a process when the starter is gone; with `group`, its process group."""
        self._tell("watch", process, group)

    def forget(self, process: subprocess.Popen[bytes], group: bool) -> None:
        """To be called when a process has ended: its number may be another's soon."""
        self._tell("forget", process, group)

    def _tell(self, what: str, process: subprocess.Popen[bytes], group: bool) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],  # this file alone, without the package
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for others
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody has ended the guard
            self._process.stdin.write(f"{what} {process.pid} {int(group)}\n".encode())
            self._process.stdin.flush()


def _send(pid: int, group: bool, number: int) -> bool:
    """Whether the process was there."""
    try:
        (os.killpg if group and os.name == "posix" else os.kill)(pid, number)
    except OSError:
        return False
    return True


def main() -> None:
    """The guard's process."""
    watched: set[tuple[int, bool]] = set()
    for line in sys.stdin:
        what, pid, group = line.split()
        change = watched.add if what == "watch" else watched.discard
        change((int(pid), group == "1"))
    for pid, group in watched:
        _send(pid, group, signal.SIGTERM)
    if os.name != "posix":  # SIGTERM was the end of them
        return
    end = time.monotonic() + PATIENCE
    while watched and time.monotonic() < end:
        watched = {(pid, group) for pid, group in watched if _send(pid, group, 0)}
        time.sleep(0.02)
    for pid, group in watched:
        _send(pid, group, signal.SIGKILL)


if __name__ == "__main__":
    main()

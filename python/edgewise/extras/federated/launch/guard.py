"""Ends processes when the one that started them is gone, however it ended.

A process that is killed (SIGKILL, out of memory) cannot end the processes it has started. A guard
is a separate process that holds one end of a pipe. When its parent dies, the pipe closes, and the
guard kills the processes it was given.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, Any

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

    def popen(self, command: Sequence[str], group: bool, **options: Any) -> subprocess.Popen[bytes]:
        """Starts a process that ends when the starter is gone.

        Args:
            command: with the path of its program.
            group: whether it is the first of a process group, which ends as a whole.
            options: of subprocess.Popen.
        """
        if os.name != "posix":
            process = subprocess.Popen(command, **options)
            self._tell("watch", process, group)
            return process
        # The process itself says that it is there, before it becomes the command: a starter that is
        # killed before it could say so leaves nothing either. The guard's pipe does not end before.
        pipe = self._pipe().fileno()
        first = [sys.executable, "-I", "-S", __file__, str(pipe), str(int(group))]
        return subprocess.Popen(
            [*first, *command], pass_fds=[pipe], start_new_session=group, **options
        )

    def forget(self, process: subprocess.Popen[bytes], group: bool) -> None:
        """To be called when a process has ended: its number may be another's soon."""
        self._tell("forget", process, group)

    def _tell(self, what: str, process: subprocess.Popen[bytes], group: bool) -> None:
        with contextlib.suppress(BrokenPipeError):  # somebody has ended the guard
            self._pipe().write(_line(what, process.pid, group))
            self._pipe().flush()

    def _pipe(self) -> IO[bytes]:
        """To the guard's process, which is started if it is not there."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],  # this file alone, without the package
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for others
            )
        assert self._process.stdin is not None
        return self._process.stdin


def _line(what: str, pid: int, group: bool) -> bytes:
    return f"{what} {pid} {int(group)}\n".encode()


def become(pipe: int, group: bool, command: Sequence[str]) -> None:
    """Tells the guard of this process, which becomes a command."""
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, _line("watch", os.getpid(), group))
    os.close(pipe)
    os.execv(command[0], list(command))


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
    if len(sys.argv) > 1:
        become(int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3:])
    main()

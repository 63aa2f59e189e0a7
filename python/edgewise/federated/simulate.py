"""Clients in processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import EngineError


class Clients:
    """Processes of `edgewise federate`, which end with the block.

    Args:
        commands: arguments of each.
    """

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self.commands = commands
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Clients:
        package = str(Path(__file__).parents[2])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        for command in self.commands:
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "edgewise.cli", "federate", *command],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                )
            )
        return self

    def check(self) -> None:
        """Raises EngineError if a client has failed."""
        for number, process in enumerate(self.processes, 1):
            if process.poll():
                raise EngineError(
                    f"it ended with {process.returncode}", f"client {number}", "Read its message."
                )

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

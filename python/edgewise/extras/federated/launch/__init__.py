"""Starts Flower for a run: a SuperLink on the loopback interface, and the app that serves the hub;
and clients in processes of this machine.

The SuperLink is for this process alone and ends with it. Clients never reach it.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ....errors import EngineError, InputError
from ..run_folder import RunFolder
from ..settings import FAREWELL
from .guard import PATIENCE, Guard

APP = Path(__file__).parents[1] / "app"
STARTING = 60.0  # seconds
ERROR = re.compile(r"[\w.]*?(\w*(?:Error|Exception|Refusal): .+)")
ENDING = FAREWELL + 15.0  # seconds in which the app gives clients the last weights, and says bye


def _command(name: str) -> str:
    """The path of a command of Flower, beside this Python or on the path.

    Raises:
        InputError: Flower is not installed.
    """
    found = shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)
    if found is None:
        raise InputError("Flower is not installed", name, "Run `pip install edgewise[federated]`.")
    return found


def free_port() -> int:
    """A port of the loopback interface that nothing uses now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _environment(home: Path) -> dict[str, str]:
    """Flower's settings: its files in `home`, no telemetry, no look-up of versions."""
    package = str(Path(__file__).parents[4])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]),
    }


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + STARTING
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None or time.monotonic() > end:
            raise EngineError(
                f"Flower's SuperLink does not start: {_last_line(log)}", str(log), "Read its log."
            )
        time.sleep(0.1)


def _last_line(log: Path) -> str:
    """The last error of a log of Flower's, which adds lines of its own; else its last line."""
    lines = log.read_text(errors="replace").strip().split("\n") if log.exists() else [""]
    errors = [m[1] for line in lines if (m := ERROR.match(line))]
    return (errors or lines)[-1][:300]


@contextlib.contextmanager
def superlink(home: Path, guard: Guard) -> Iterator[dict[str, str]]:
    """A SuperLink that ends with the block.

    Args:
        home: folder for its files.
        guard: ends it with this process.

    Yields:
        The environment of commands that use it.

    Raises:
        InputError: Flower is not installed. EngineError: it does not start.
    """
    home.mkdir(parents=True, exist_ok=True)
    port, environment = free_port(), _environment(home)
    address = f"127.0.0.1:{port}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "own"\n\n[superlink.own]\naddress = "{address}"\ninsecure = true\n'
    )
    log = home / "superlink.log"
    command = [_command("flower-superlink"), "--insecure", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--disable-runtime-dependency-installation"]
    with _started(command, environment, log, guard) as process:
        _wait_for(port, process, log)
        yield environment


@contextlib.contextmanager
def _started(
    command: Sequence[str], environment: dict[str, str], log: Path, guard: Guard
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a group of its own, which ends with the block."""
    with open(log, "wb") as out:
        process = guard.popen(
            command, group=True, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        _end(process)
        guard.forget(process, group=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process with those that it has started. What they have not said after PATIENCE seconds
    is lost, but nothing of the run: its folder is whole at any time.
    """
    if not hasattr(os, "killpg"):
        process.terminate()
        process.wait()
        return
    import signal

    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def serve(
    folder: str,
    after: Callable[[dict[str, Any]], object] | None = None,
    watch: Callable[[], object] | None = None,
) -> None:
    """Runs the rounds of a run folder to the end.

    Args:
        folder: of RunFolder.create.
        after: called with the line of the log of each round, when its state is written.
        watch: called several times a second; what it raises ends the rounds.

    Raises:
        EngineError: the rounds ended early; the folder can be resumed.
    """
    run = RunFolder(folder)
    settings, seen = run.settings(), run.state_number()
    home = Path(folder).resolve() / "flower"
    config = f'folder="{Path(folder).resolve().as_posix()}"'
    log = home / "run.log"
    command = [_command("flwr"), "run", str(APP), "own", "--stream", "-c", config]
    with (
        Guard() as guard,
        superlink(home, guard) as environment,
        _started(command, environment, log, guard) as flwr,
    ):
        end = math.inf
        ended = False
        while not ended:
            if run.state_number() >= settings.rounds or run.budget()[1]:
                end = min(end, time.monotonic() + ENDING)
            ended = flwr.poll() is not None or time.monotonic() > end
            for line in run.lines():
                if line["round"] > seen:
                    seen = line["round"]
                    if after is not None:
                        after(line)
            if watch is not None:
                watch()
            time.sleep(0.2)
    if run.state_number() < settings.rounds and not run.budget()[1]:
        raise EngineError(
            f"the run ended after {run.state_number()} of {settings.rounds} rounds:"
            f" {_last_line(log)}",
            str(folder),
            f"Read {log}; continue with --resume.",
        )


class Clients:
    """Processes of `edgewise federate`, which end with the block.

    Args:
        commands: arguments of each.
    """

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self.commands = commands
        self.processes: list[subprocess.Popen[bytes]] = []
        self._guard = Guard()

    def __enter__(self) -> Clients:
        package = str(Path(__file__).parents[4])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        for command in self.commands:
            client = [sys.executable, "-m", "edgewise.cli", "federate", *command]
            self.processes.append(
                self._guard.popen(client, group=False, env=environment, stdout=subprocess.DEVNULL)
            )
        return self

    def check(self) -> None:
        """Raises EngineError if a client has failed."""
        for number, process in enumerate(self.processes, 1):
            if process.poll() is not None:
                self._guard.forget(process, group=False)
            if process.returncode:
                raise EngineError(
                    f"it ended with {process.returncode}", f"client {number}", "Read its message."
                )

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:  # nobody will end them
            for process in self.processes:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(10 if kind is None else PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._guard.forget(process, group=False)
        self._guard.__exit__()

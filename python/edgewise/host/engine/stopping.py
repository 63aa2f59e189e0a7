"""Ends runs early: on Ctrl-C, at a time limit, or when another thread asks for it.

The C engine reads its stop word (`ew_stop`) between steps and between the tasks of a step. It is
set

- on Ctrl-C: Python calls signal handlers in the main thread, between bytecodes. Therefore the main
  thread passes runs that may take long to the Runner's thread, and waits;
- in all other cases by the Watcher, which asks every INTERVAL seconds whether a current run must
  end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .base import Engine

Reason = Callable[[], Exception | None]
Function = Callable[..., int]
Call = Callable[..., int]

INTERVAL = 0.02  # seconds between two checks
LONG = 0.1  # seconds; a plan whose last run took less is not passed to the Runner


class Ends:
    """When the runs of one session must end.

    Attributes:
        reason: returns the error with which to end, or None. Also called from other threads. None
            if nothing can end the run.
        error: the error that `reason` returned.
        engine: the engine that runs at present.
        stopped: whether the Watcher has set its stop word.
    """

    __slots__ = ("reason", "error", "engine", "stopped")

    def __init__(self) -> None:
        self.reason: Reason | None = None
        self.error: Exception | None = None
        self.engine: Engine | None = None
        self.stopped = False

    def check(self) -> None:
        """Raises the error if there is one. Called between plans."""
        if self.reason is not None and (error := self.error or self.reason()) is not None:
            raise error

    def watch(self, reason: Reason | None) -> _Watched:
        """`with ends.watch(reason):` ends what the session runs soon after reason() returns an
        error.
        """
        return _Watched(self, reason)

    def run(
        self, call: Call, engine: Engine, function: Function, args: tuple[Any, ...], patience: float
    ) -> int:
        """call(engine, function, args, patience): a run in `engine`. The caller holds its lock."""
        watcher = _watcher
        with watcher.mutex:
            self.engine = engine
        try:
            return call(engine, function, args, patience)
        finally:
            with watcher.mutex:  # the Watcher no longer stops the engine for this session
                self.engine = None
                if self.stopped:
                    self.stopped = False
                    engine.call("ew_stop", engine.handle, 0)


class _Watched:
    __slots__ = ("ends", "reason", "watcher")

    def __init__(self, ends: Ends, reason: Reason | None) -> None:
        self.ends, self.reason = ends, reason
        self.watcher: Watcher | None = None

    def __enter__(self) -> None:
        self.ends.reason, self.ends.error = self.reason, None
        if self.reason is not None:
            try:
                _watcher.add(self.ends)
                self.watcher = _watcher
            except RuntimeError:  # no threads here: only `check` asks
                pass

    def __exit__(self, *_: object) -> None:
        if self.watcher is not None:
            self.watcher.remove(self.ends)
        self.ends.reason = self.ends.error = None


class Watcher:
    """A thread that watches the runs that may be ended early, and sleeps while there are none."""

    def __init__(self) -> None:
        self.mutex, self.awake = threading.Lock(), threading.Event()
        self.watched: set[Ends] = set()
        self.thread: threading.Thread | None = None

    def add(self, ends: Ends) -> None:
        """Watches the runs of `ends` until `remove`."""
        with self.mutex:
            if self.thread is None:
                thread = threading.Thread(target=self._serve, name="edgewise-watcher", daemon=True)
                thread.start()
                self.thread = thread
            self.watched.add(ends)
            self.awake.set()

    def remove(self, ends: Ends) -> None:
        """Stop watching `ends`."""
        with self.mutex:
            self.watched.discard(ends)

    def _serve(self) -> None:
        while True:
            self.awake.wait()
            time.sleep(INTERVAL)
            with self.mutex:
                if not self.watched:
                    self.awake.clear()
                for ends in self.watched:
                    try:
                        ends.error = ends.error or ends.reason()  # type: ignore[misc]  # not None
                    except Exception:  # raised again where the run itself calls `reason`
                        continue
                    if ends.error is not None and ends.engine is not None:
                        ends.stopped = True
                        ends.engine.call("ew_stop", ends.engine.handle, 1)


class _Job:
    __slots__ = ("function", "args", "begun", "cancelled", "finished", "done", "result")

    def __init__(self, function: Function, args: tuple[Any, ...]) -> None:
        self.function, self.args = function, args
        self.begun = self.cancelled = self.finished = False
        self.result: Any = None  # what the function returned
        self.done = threading.Lock()
        self.done.acquire()


class Runner:
    """A thread that makes long C calls for the main thread."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=self._serve, name="edgewise-runner", daemon=True).start()

    def _serve(self) -> None:
        while True:
            job = self.jobs.get()
            if not job.begun:
                job.begun = True
                if not job.cancelled:
                    job.result = job.function(*job.args)
            if not job.finished:
                job.finished = True
                job.done.release()
            del job

    def call(
        self, engine: Engine, function: Function, args: tuple[Any, ...], patience: float
    ) -> int:
        """function(*args): a run in `engine`.

        Raises what a signal handler raises, after the run has ended. The run is stopped if it does
        not end by itself within `patience` seconds.
        """
        job = _Job(function, args)
        try:
            self.jobs.put(job)
            # With a timeout: on Windows, Ctrl-C does not interrupt a wait without one.
            while not job.done.acquire(timeout=0.25):
                pass
        except BaseException:
            end = time.monotonic() + patience
            while True:
                try:
                    job.cancelled = True
                    self.jobs.put(job)  # in case it was not queued yet; twice does no harm
                    while not job.finished and time.monotonic() < end:
                        job.done.acquire(timeout=0.05)
                    engine.call("ew_stop", engine.handle, 1)
                    while not job.finished:
                        job.done.acquire(timeout=0.25)
                    break
                except BaseException:
                    # Ctrl-C again. The run must end before its memory can be used.
                    continue
            engine.call("ew_stop", engine.handle, 0)
            engine.interrupted = job.result
            raise
        return job.result


_watcher = Watcher()
_runner: Runner | Literal[False] | None = None  # False: this process cannot have one


def call_directly(
    engine: Engine, function: Function, args: tuple[Any, ...], patience: float = 0.0
) -> int:
    """function(*args): a run in `engine`."""
    return function(*args)


def call_interruptibly(
    engine: Engine, function: Function, args: tuple[Any, ...], patience: float = 0.0
) -> int:
    """function(*args): a run in `engine` during which signals are handled.

    If a handler raises, `engine.interrupted` is what the function returned, or None if it did not
    start.
    """
    global _runner
    if _runner is False or threading.get_ident() != threading.main_thread().ident:
        return function(*args)
    if _runner is None:
        try:
            _runner = Runner()
        except RuntimeError:
            # No threads (Pyodide handles interrupts itself), or the interpreter is shutting down.
            _runner = False
            return function(*args)
    engine.running = True
    try:
        return _runner.call(engine, function, args, patience)
    finally:
        engine.running = False


def in_child() -> None:
    """Called in a child process after a fork: it has none of its parent's threads."""
    global _watcher, _runner
    _watcher, _runner = Watcher(), None

"""Runs that end early: by Ctrl-C, by a time limit, or by a request of another thread.

The C engine reads one word between steps and between the tasks of a step (`ew_stop`). It is set

- for Ctrl-C: Python's signal handlers run in the main thread and only between bytecodes, so the
  main thread gives runs that may take long to the Runner's thread, and waits;
- for everything else: a Watcher polls every INTERVAL seconds whether one of the current runs is
  to end.
"""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue

INTERVAL = 0.02  # seconds between two looks
LONG = 0.1  # seconds: a run of a plan that took less is not given to the Runner the next time


class Ends:
    """Why what one session runs is to end. reason: function that returns the error with which it is
    to end, or None; None: nobody asks. It is asked from another thread, too.
    """

    __slots__ = ("reason", "error", "engine", "stopped")

    def __init__(self):
        self.reason = self.error = self.engine = None
        self.stopped = False

    def check(self):
        """Raises the error where there is one: to be called between plans."""
        if self.reason is not None and (error := self.error or self.reason()) is not None:
            raise error

    def watch(self, reason):
        """`with ends.watch(reason):` what the session runs ends soon after reason() has returned an
        error.
        """
        return _Watched(self, reason)

    def run(self, call, engine, function, args, patience):
        """call(engine, function, args, patience), a run in `engine`, the lock of which is held."""
        watcher = _watcher
        with watcher.mutex:
            self.engine = engine
        try:
            return call(engine, function, args, patience)
        finally:
            with watcher.mutex:  # from here on nobody stops the engine on behalf of this session
                self.engine = None
                if self.stopped:
                    self.stopped = False
                    engine.call("ew_stop", engine.handle, 0)


class _Watched:
    __slots__ = ("ends", "reason", "watcher")

    def __init__(self, ends, reason):
        self.ends, self.reason, self.watcher = ends, reason, None

    def __enter__(self):
        self.ends.reason, self.ends.error = self.reason, None
        if self.reason is not None:
            try:
                _watcher.add(self.ends)
                self.watcher = _watcher
            except RuntimeError:  # no threads here: reasons are asked for between plans only
                pass

    def __exit__(self, *_):
        if self.watcher is not None:
            self.watcher.remove(self.ends)
        self.ends.reason = self.ends.error = None


class Watcher:
    """A thread of this process that looks after runs that may have to end.

    It sleeps while there are none.
    """

    def __init__(self):
        self.mutex, self.awake, self.watched, self.thread = (
            threading.Lock(),
            threading.Event(),
            set(),
            None,
        )

    def add(self, ends):
        """Looks after what `ends` belongs to, until `remove`."""
        with self.mutex:
            if self.thread is None:
                thread = threading.Thread(target=self._serve, name="edgewise-watcher", daemon=True)
                thread.start()
                self.thread = thread
            self.watched.add(ends)
            self.awake.set()

    def remove(self, ends):
        """Stop watching `ends`."""
        with self.mutex:
            self.watched.discard(ends)

    def _serve(self):
        while True:
            self.awake.wait()
            time.sleep(INTERVAL)
            with self.mutex:
                if not self.watched:
                    self.awake.clear()
                for ends in self.watched:
                    try:
                        ends.error = ends.error or ends.reason()
                    except Exception:  # the caller's object; the run asks it, too, and fails there
                        continue
                    if ends.error is not None and ends.engine is not None:
                        ends.stopped = True
                        ends.engine.call("ew_stop", ends.engine.handle, 1)


class _Job:
    __slots__ = ("function", "args", "begun", "cancelled", "finished", "done", "result")

    def __init__(self, function, args):
        self.function, self.args, self.begun, self.cancelled, self.finished, self.result = (
            function,
            args,
            False,
            False,
            False,
            None,
        )
        self.done = threading.Lock()
        self.done.acquire()


class Runner:
    """A thread of this process that makes long C calls for the main thread."""

    def __init__(self):
        self.jobs = SimpleQueue()
        threading.Thread(target=self._serve, name="edgewise-runner", daemon=True).start()

    def _serve(self):
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

    def call(self, engine, function, args, patience):
        """function(*args), a run in `engine`.

        Raises what a signal handler raises, after the run has ended: by itself within `patience`
        seconds, or else stopped.
        """
        job = _Job(function, args)
        try:
            self.jobs.put(job)
            while not job.done.acquire(
                timeout=0.25
            ):  # with a timeout, since Windows hears no Ctrl-C in a wait without
                pass
        except BaseException:
            end = time.monotonic() + patience
            while True:
                try:
                    job.cancelled = True
                    self.jobs.put(job)  # where it was not in the queue yet; twice does no harm
                    while not job.finished and time.monotonic() < end:
                        job.done.acquire(timeout=0.05)
                    engine.call("ew_stop", engine.handle, 1)
                    while not job.finished:
                        job.done.acquire(timeout=0.25)
                    break
                except (
                    BaseException
                ):  # pressed again: the run must have ended before its memory can be used
                    continue
            engine.call("ew_stop", engine.handle, 0)
            engine.interrupted = job.result
            raise
        return job.result


_watcher, _runner = Watcher(), None


def call_directly(engine, function, args, patience=0.0):
    """function(*args), a run in `engine`."""
    return function(*args)


def call_interruptibly(engine, function, args, patience=0.0):
    """function(*args), a run in `engine`, so that signals are heard meanwhile.

    Where a handler raises, `engine.interrupted` is what the function returned: None where it did
    not begin.
    """
    global _runner
    if _runner is False or threading.get_ident() != threading.main_thread().ident:
        return function(*args)
    if _runner is None:
        try:
            _runner = Runner()
        except (
            RuntimeError
        ):  # no threads here (Pyodide hears interrupts by itself), or not any more
            _runner = False
            return function(*args)
    engine.running = True
    try:
        return _runner.call(engine, function, args, patience)
    finally:
        engine.running = False


def in_child():
    """After a fork: the threads are the parent's."""
    global _watcher, _runner
    _watcher, _runner = Watcher(), None

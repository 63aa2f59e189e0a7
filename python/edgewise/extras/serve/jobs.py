"""The queue of requests, and the thread that computes them one after the other.

The engine uses all cores for one request, so that several at once would only share them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from .refusals import Cancelled, Refusal

WINDOW = 256  # events that wait for a slow client; then its request waits
STALL = 60.0  # seconds of a request that may be such waiting: all others wait as well


class Job:
    """A request that waits, or is computed.

    Args:
        work: called in the computing thread; yields events.
        loop: of the server.
    """

    def __init__(
        self, work: Callable[[Job], Iterator[Any]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.work, self.loop = work, loop
        self.events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.room = threading.Semaphore(WINDOW)
        self.cancelled = threading.Event()
        self.patience = STALL

    def is_set(self) -> bool:
        """Whether the work is to end: a job is the `signal` of its generation."""
        return self.cancelled.is_set()

    def run(self) -> None:
        """Does the work, in the computing thread."""
        try:
            for event in self.work(self):
                begun = time.monotonic()
                if not self.room.acquire(timeout=max(self.patience, 0.0)):
                    self.cancel()
                self.patience -= time.monotonic() - begun
                if self.is_set():
                    return
                self._tell("event", event)
            self._tell("end", None)
        except BaseException as e:
            self._tell("error", e)

    def _tell(self, kind: str, value: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(self.events.put_nowait, (kind, value))
        except RuntimeError:  # the server has ended
            self.cancelled.set()

    def cancel(self) -> None:
        """Ends the work soon: `results` raises Cancelled."""
        if not self.is_set():
            self.cancelled.set()
            self.room.release()
            self._tell("error", Cancelled("the request was cancelled"))

    async def results(self) -> AsyncGenerator[Any, None]:
        """The events. Raises what the work raised."""
        try:
            while True:
                kind, value = await self.events.get()
                if kind == "end":
                    return
                if kind == "error":
                    raise value
                self.room.release()
                yield value
        finally:
            self.cancel()


class Worker:
    """The thread that computes.

    Args:
        waiting: requests that may wait.
    """

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.jobs: deque[Job] = deque()
        self.current: Job | None = None
        self.changed = threading.Condition()
        self.ended = False
        self.thread = threading.Thread(target=self._serve, name="edgewise-serve", daemon=True)
        self.thread.start()

    def submit(self, work: Callable[[Job], Iterator[Any]]) -> Job:
        """Queues work. Raises Refusal if too many wait, or the server ends."""
        job = Job(work, asyncio.get_running_loop())
        with self.changed:
            # A client that has gone gives its place to the next one.
            self.jobs = deque(j for j in self.jobs if not j.is_set())
            if self.ended:
                raise Refusal("the server ends", 503, code="shutting_down")
            if len(self.jobs) >= self.waiting:
                raise Refusal(
                    f"{len(self.jobs)} requests wait already; try again later", 429, code="busy"
                )
            self.jobs.append(job)
            self.changed.notify()
        return job

    def _serve(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.jobs or self.ended)
                if self.ended:
                    return
                self.current = job = self.jobs.popleft()
            if not job.is_set():
                job.run()
            self.current = None

    def cancel(self) -> None:
        """Cancels everything, and takes nothing new."""
        with self.changed:
            self.ended = True
            for job in (*self.jobs, *([self.current] if self.current else [])):
                job.cancel()
            self.changed.notify()

    def end(self) -> None:
        """Cancels everything and waits for the thread."""
        self.cancel()
        self.thread.join()

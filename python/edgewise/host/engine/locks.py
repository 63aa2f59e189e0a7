"""Locks of engines and sessions, and what happens to them in a fork.

There are two kinds of locks. The lock of an engine is held during one C call that uses its arena,
its threads or its `cell`, such as loading or running a plan. The lock of a session (or a language
model, or a training session) is held from writing inputs to reading outputs. A thread that needs
both acquires the session's first. Finalizers acquire neither: no other thread uses an unreachable
object, and the C side can free memory from any thread.

Before a fork all locks are acquired, waiting for at most FORK_WAIT seconds, and afterwards they are
released. So in the child no object is in use. The child has none of the parent's threads; an engine
starts new ones on first use. An object whose lock could not be acquired raises EngineError in the
child.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from _thread import RLock
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ...errors import EngineError
from . import stopping

if TYPE_CHECKING:
    from collections.abc import Callable

    Self = TypeVar("Self", bound="Owner")
    Arguments = ParamSpec("Arguments")
    Result = TypeVar("Result")

FORK_WAIT = 5.0  # seconds

_owners: weakref.WeakSet[Owner] = weakref.WeakSet()
_registering = threading.Lock()
_taken: list[tuple[Owner, RLock]] = []


class Owner:
    """An object with a lock: `with owner.lock:`.

    Attributes:
        lock: held while the object is used.
        rank: owners of a lower rank are locked first.
    """

    lock: Any  # an RLock; after a fork possibly an object that raises or starts threads first
    rank = 0

    @property
    def root(self) -> Owner:
        """The owner whose lock the methods marked `locked` acquire."""
        return self

    def start_lock(self) -> None:
        """Creates the lock. A subclass calls this in its constructor."""
        self.lock = RLock()
        with _registering:
            _owners.add(self)

    @property
    def lost(self) -> bool:
        """Whether it cannot be used because another thread of the parent process was using it
        during the fork.
        """
        return isinstance(self.lock, _Lost)

    def in_child(self) -> None:
        """Called in a child process after a fork, if it was not in use."""


def locked(
    method: Callable[Concatenate[Self, Arguments], Result],
) -> Callable[Concatenate[Self, Arguments], Result]:
    """Decorates a method of an Owner so that it holds the lock of `self.root`."""

    @wraps(method)
    def call(self: Self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with self.root.lock:
            return method(self, *args, **kwargs)

    return call


class _Lost:
    """Replaces a lock that another thread held when the process was forked."""

    def __init__(self, owner: Owner) -> None:
        self.words = type(owner).__name__

    def __enter__(self) -> None:
        raise EngineError(
            f"another thread was using this {self.words} when the process was forked",
            "fork",
            "Make a new one in the child, or start processes by 'spawn' or 'forkserver'.",
        )

    def __exit__(self, *_: object) -> None:
        pass


def _before() -> None:
    """Acquires all locks, those of sessions first."""
    end = time.monotonic() + FORK_WAIT
    with _registering:
        owners = sorted(_owners, key=lambda o: o.rank)
    _taken[:] = [
        (o, o.lock)
        for o in owners
        if isinstance(o.lock, RLock) and o.lock.acquire(timeout=max(0.0, end - time.monotonic()))
    ]


def _release() -> None:
    taken, _taken[:] = _taken[::-1], []
    for _, lock in taken:
        lock.release()


def _in_child() -> None:
    global _registering
    _registering = threading.Lock()
    stopping.in_child()
    held = {id(o) for o, _ in _taken}
    _release()
    for o in list(_owners):
        if isinstance(o.lock, RLock):
            o.lock = RLock() if id(o) in held else _Lost(o)
        if id(o) in held:
            o.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_in_child)

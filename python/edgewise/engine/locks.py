"""Which thread may use an engine or a session, and what a fork does to both.

Two kinds of locks. An engine's is held for one C call that uses its arena, its threads or its
`cell`: loading a plan, running one. A session's (a language model's, a training session's) is held
from writing inputs to reading outputs. Whoever takes both takes the session's first. Finalizers
take neither: what is unreachable is used by nobody, and the C side frees from any thread.

fork: the locks are taken before (for at most FORK_WAIT seconds) and released behind it, so that the
child finds every object between two runs. The child has none of the parent's threads; an engine
starts its own when it is used first. What another thread was using all the time raises EngineError
in the child.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from _thread import RLock
from functools import wraps

from ..errors import EngineError
from . import stopping

FORK_WAIT = 5.0  # seconds

_owners: weakref.WeakSet = weakref.WeakSet()
_registering = threading.Lock()
_taken: list = []


class Owner:
    """What has a lock: `with owner.lock:`. rank: owners of a lower rank are locked first."""

    rank = 0

    @property
    def root(self):
        """The owner whose lock methods marked `locked` take."""
        return self

    def start_lock(self):
        """To be called before the first use of `lock`."""
        self.lock = RLock()
        with _registering:
            _owners.add(self)

    @property
    def lost(self):
        """Whether this is a child process and another thread of its parent was using it at the
        fork: then it can be used no more.
        """
        return isinstance(self.lock, _Lost)

    def in_child(self):
        """Called in a child process after a fork between two uses."""


def locked(method):
    """A method that runs with the lock of `self.root`, an Owner."""

    @wraps(method)
    def call(self, *args, **kwargs):
        with self.root.lock:
            return method(self, *args, **kwargs)

    return call


class _Lost:
    """In the place of a lock that another thread held while the process was forked."""

    def __init__(self, owner):
        self.words = type(owner).__name__

    def __enter__(self):
        raise EngineError(
            f"another thread was using this {self.words} when the process was forked",
            "fork",
            "Make a new one in the child, or start processes by 'spawn' or 'forkserver'.",
        )

    def __exit__(self, *_):
        pass


def _before():
    """Takes all locks, those of sessions first."""
    end = time.monotonic() + FORK_WAIT
    with _registering:
        owners = sorted(_owners, key=lambda o: o.rank)
    _taken[:] = [
        (o, o.lock)
        for o in owners
        if isinstance(o.lock, RLock) and o.lock.acquire(timeout=max(0.0, end - time.monotonic()))
    ]


def _release():
    taken, _taken[:] = _taken[::-1], []
    for _, lock in taken:
        lock.release()


def _in_child():
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

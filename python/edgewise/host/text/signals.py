"""Signals with which a caller stops work."""

from __future__ import annotations

from typing import Any

from ...errors import Aborted, wrong_type

__all__ = ["check_signal", "is_set"]


def is_set(signal: Any) -> bool:
    """Whether signal.aborted, signal.is_set() or signal() is true. None is never set."""
    if signal is not None and not (
        callable(signal) or hasattr(signal, "aborted") or hasattr(signal, "is_set")
    ):
        raise wrong_type(signal, "signal", "an Event, a function or None")
    return signal is not None and bool(
        signal.aborted
        if hasattr(signal, "aborted")
        else signal.is_set()
        if hasattr(signal, "is_set")
        else signal()
    )


def check_signal(signal: Any, where: str) -> None:
    """Raises Aborted if the signal is set. where: the stopped call."""
    if is_set(signal):
        raise Aborted("it was aborted", where)

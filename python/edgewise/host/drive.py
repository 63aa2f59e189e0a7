"""Runs logic that waits: generators of edgewise.logic, which yield requests."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")


def drive(steps: Generator[Request, Any, Result], answer: Callable[[Request], Any]) -> Result:
    """What a generator returns.

    Args:
        steps: the generator.
        answer: does what a request asks for, and returns the answer. What it raises ends all.
    """
    try:
        request = next(steps)
        while True:
            request = steps.send(answer(request))
    except StopIteration as over:
        result: Result = over.value
        return result
    finally:
        steps.close()

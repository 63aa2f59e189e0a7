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
        answer: does what a request asks for, and returns the answer. What it raises is raised in
            the generator, which may handle it.
    """
    try:
        request = next(steps)
        while True:
            try:
                given = answer(request)
            except BaseException as e:
                request = steps.throw(e)
            else:
                request = steps.send(given)
    except StopIteration as over:
        result: Result = over.value
        return result
    finally:
        steps.close()

"""Errors as OpenAI's API tells them."""

from __future__ import annotations

import logging
from typing import Any

from ...errors import EdgewiseError, OutOfMemory, RequestError
from ...logic.openai.answers import error_body, status_of

LOG = logging.getLogger(__name__)


class Cancelled(Exception):
    """The client has gone, takes nothing any more, or the server ends."""


class Refusal(Exception):
    """A request that is not answered.

    Args:
        message: what is wrong, and what to do.
        status: of HTTP.
        param: name of the field, if one is wrong.
        code: a word for programs.
    """

    def __init__(
        self, message: str, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    @property
    def body(self) -> dict[str, Any]:
        """The answer's body."""
        return error_body(str(self), self.status, self.param, self.code)


def refusal_of(error: BaseException) -> Refusal:
    """An exception as a Refusal. Texts of unexpected ones are logged, and not told."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, Cancelled):
        return Refusal("the request was cancelled", 503, code="cancelled")
    if isinstance(error, RequestError):
        return Refusal(error.what, 400, error.param or None, error.code or None)
    if isinstance(error, EdgewiseError):
        names = [c.__name__ for c in type(error).__mro__]
        code = "out_of_memory" if isinstance(error, OutOfMemory) else None
        return Refusal(str(error), status_of(names), code=code)
    LOG.error("a request failed", exc_info=error)
    return Refusal(f"the server failed: {type(error).__name__}", 500, code="internal_error")

"""Errors as OpenAI's API tells them."""

from __future__ import annotations

import logging
from typing import Any

from ...errors import EdgewiseError, InputError, OutOfMemory, TokenizerError, UnsupportedField

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


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
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "error": {
                "message": str(self),
                "type": TYPES.get(self.status, kind),
                "param": self.param,
                "code": self.code,
            }
        }


def refusal_of(error: BaseException) -> Refusal:
    """An exception as a Refusal. Texts of unexpected ones are logged, and not told."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, Cancelled):
        return Refusal("the request was cancelled", 503, code="cancelled")
    if isinstance(error, OutOfMemory):
        return Refusal(str(error), 503, code="out_of_memory")
    if isinstance(error, (InputError, UnsupportedField, TokenizerError)):
        return Refusal(str(error))
    if isinstance(error, EdgewiseError):
        return Refusal(str(error), 500)
    LOG.error("a request failed", exc_info=error)
    return Refusal(f"the server failed: {type(error).__name__}", 500, code="internal_error")

"""Checks of the source of a chat template, before a host reads it: limits.py has the limits."""

from __future__ import annotations

import re

from ...errors import TokenizerError
from .limits import COPY, LIMITS

# White space of Python and of JavaScript.
_SPACES = re.compile(
    r"[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]{100,}"
)


def check_template(source: str, where: str) -> None:
    """Checks the source of a chat template.

    Args:
        source: the template's text.
        where: for errors.

    Raises:
        TokenizerError: it is longer than LIMITS.template_chars, or has more spaces in a row than
            LIMITS.template_spaces.
    """
    if len(source) > LIMITS.template_chars:
        raise TokenizerError(
            f"the chat template has {len(source)} characters, at most"
            f" {LIMITS.template_chars} are read",
            where,
            COPY,
        )
    spaces = 0
    for found in _SPACES.findall(source):
        spaces = max(spaces, len(found))
    if spaces > LIMITS.template_spaces:
        raise TokenizerError(
            f"the chat template has {spaces} spaces and line ends in a row, at most"
            f" {LIMITS.template_spaces} are read",
            where,
            COPY,
        )

"""The error of releases."""

from __future__ import annotations

from ...errors import EdgewiseError

__all__ = ["ReleaseError"]


class ReleaseError(EdgewiseError):
    """A release, or what signs it, is not what it should be. What was installed stays."""

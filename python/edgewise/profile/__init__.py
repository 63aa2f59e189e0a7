"""Public names of host/profile/__init__.py."""

from ..host.profile import Profile, Watch

__all__ = ["Profile", "Watch"]

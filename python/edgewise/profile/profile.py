"""Public names of host/profile/profile.py."""

from ..host.profile.profile import CACHED, Profile, Watch

__all__ = ["CACHED", "Profile", "Watch"]

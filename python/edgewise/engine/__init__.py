"""Public names of host/engine/__init__.py."""

from ..host.engine import (
    LONG,
    Buffer,
    Device,
    Ends,
    Engine,
    LoadedPlan,
    Owner,
    default_engine,
    locked,
    open_engine,
)

__all__ = [
    "Buffer",
    "Device",
    "Ends",
    "Engine",
    "LONG",
    "LoadedPlan",
    "Owner",
    "default_engine",
    "locked",
    "open_engine",
]

"""Public names of host/devices.py."""

from .host.devices import available_devices, open_engine

__all__ = ["available_devices", "open_engine"]

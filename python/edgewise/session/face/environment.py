"""Public names of host/session/face/environment.py."""

from ...host.session.face.environment import (
    LEVELS,
    PROVIDERS,
    checked_providers,
    default_seed,
    disable_telemetry_events,
    enable_telemetry_events,
    engine_of,
    get_all_providers,
    get_available_providers,
    get_device,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)

__all__ = [
    "LEVELS",
    "PROVIDERS",
    "checked_providers",
    "default_seed",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "engine_of",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

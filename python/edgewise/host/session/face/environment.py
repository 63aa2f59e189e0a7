"""What onnxruntime's module has for the whole process: providers, device, seed, logs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ....errors import EngineError, InputError
from ....seeds import check_seed
from ...devices import available_devices, open_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...engine import Engine

CPU, GPU = "CPUExecutionProvider", "WebGpuExecutionProvider"
PROVIDERS = {"cpu": [CPU], "webgpu": [GPU, CPU]}  # by target of the engine
LEVELS = range(5)

_seed: int | None = None


def get_all_providers() -> list[str]:
    """The providers that Edgewise has, on this machine or others. Mirrors onnxruntime's."""
    return [GPU, CPU]


def get_available_providers() -> list[str]:
    """The providers that can be asked for. Mirrors onnxruntime.get_available_providers.

    "CPUExecutionProvider", and before it "WebGpuExecutionProvider" where `edgewise[gpu]` is
    installed; whether there is a GPU turns out when a session asks for it.
    """
    return [GPU, CPU] if "webgpu" in available_devices() else [CPU]


def get_device() -> str:
    """The device that sessions use by default: "CPU". Mirrors onnxruntime.get_device."""
    return "CPU"


def set_seed(seed: int) -> None:
    """Sets the seed of sessions made from now on whose SessionOptions.seed is None. Mirrors
    onnxruntime.set_seed.

    Raises:
        InputError: it is not an integer from 0 to 2^63 - 1.
    """
    global _seed
    _seed = check_seed(seed, "set_seed")


def default_seed() -> int | None:
    """What `set_seed` was given last; None: nothing."""
    return _seed


def set_default_logger_severity(severity: int) -> None:
    """Checks a level, 0 to 4. It has no effect: Edgewise writes no log; it raises errors."""
    if type(severity) is not int or severity not in LEVELS:
        raise InputError(f"{severity!r} is not a level", "severity", "Pass 0 to 4.")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Has no effect: see `set_default_logger_severity`."""


def disable_telemetry_events() -> None:
    """Does nothing: Edgewise sends no telemetry."""


def enable_telemetry_events() -> None:
    """Does nothing: Edgewise sends no telemetry."""


def checked_providers(
    providers: Any, options: Any = None
) -> tuple[list[str], list[dict[str, str]]]:
    """Checks a list of providers.

    Args:
        providers: names, or pairs of a name and a dict of options; None: none.
        options: a dict for each name instead of the pairs.

    Returns:
        (names, options of each), without duplicates

    Raises:
        InputError: they are something else.
    """
    if providers is None:
        return [], []
    if not isinstance(providers, (list, tuple)) or not isinstance(options or [], (list, tuple)):
        raise _no_list(providers if options is None else options)
    given = list(options) if options else [{}] * len(providers)
    pairs = any(isinstance(p, tuple) for p in providers)
    if len(given) != len(providers) or options and pairs:
        raise _no_list(options)
    found: dict[str, dict[str, str]] = {}
    for p, more in zip(providers, given):
        name, more = p if isinstance(p, tuple) and len(p) == 2 else (p, more)
        if not isinstance(name, str) or not isinstance(more, dict):
            raise _no_list(p)
        if name in found:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=5)
            continue
        found[name] = {str(k): str(v) for k, v in more.items()}
    return list(found), list(found.values())


def _no_list(value: object) -> InputError:
    return InputError(
        f"{value!r} is not a list of names, or of names and dicts",
        "providers",
        'Pass ["CPUExecutionProvider"], or leave it out.',
    )


def engine_of(names: Sequence[str], threads: int) -> Engine | None:
    """The engine that a list of providers asks for: that of the first one that is available.

    Args:
        names: of providers. Those that are not available are left out with a warning.
        threads: of an engine that is opened; 0: one per core.

    Returns:
        the engine; None: that of the process
    """
    available = [CPU] if set(names) <= {CPU} else get_available_providers()
    for name in names:
        if name not in available:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. Available "
                f"providers: '{', '.join(available)}'",
                stacklevel=5,
            )
    first = next((name for name in names if name in available), CPU)
    if first == GPU:
        try:
            return open_engine("webgpu", threads or None)
        except EngineError as e:
            warnings.warn(f"{GPU} cannot be used, {CPU} is: {e}", stacklevel=5)
    return open_engine("cpu", threads) if threads else None

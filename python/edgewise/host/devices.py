"""Opens engines by the name of a device."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..errors import EngineError, InputError
from . import engine

if TYPE_CHECKING:
    from .engine import Engine


def available_devices() -> list[str]:
    """The devices that can be asked for: "cpu", and "webgpu" where `edgewise[gpu]` is installed;
    whether there is a GPU turns out when it is opened.
    """
    try:
        from .webgpu.gpu import LIBRARIES
    except ModuleNotFoundError:  # the wheel for Pyodide does not contain it
        return ["cpu"]
    return ["cpu", "webgpu"] if any(map(find_spec, LIBRARIES)) else ["cpu"]


def open_engine(device: str = "cpu", threads: int | None = None) -> Engine:
    """Opens an engine, for the argument `engine` of sessions, models and trainers.

    Args:
        device: "cpu", or "webgpu": a GPU, which needs `edgewise[gpu]`. Steps that have no shader
            run on the processor; `engine.info` says which.
        threads: maximum number of threads that compute on the processor; by default one per core.

    Raises:
        InputError: there is no such device, or `threads` is not a positive integer.
        EngineError: there is no implementation of WebGPU, or no GPU.
    """
    if device == "cpu":
        return engine.open_engine(threads)
    if device != "webgpu":
        raise InputError(
            f"{device!r} is not a device", "open_engine", "The devices are 'cpu' and 'webgpu'."
        )
    try:
        from .webgpu import WebGPUEngine
    except ModuleNotFoundError:  # the wheel for Pyodide does not contain it
        raise EngineError(
            "the device 'webgpu' is not available in pages yet", "open_engine", "Use 'cpu'."
        ) from None
    return WebGPUEngine(threads)

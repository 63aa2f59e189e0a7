"""Devices that plans are compiled for: `CPU` (C, natively and as WebAssembly), and WebGPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cpu import CPU
from .target import Limits, LoweringRules, MemoryRules, Target, WinogradRange

if TYPE_CHECKING:
    from ...host.engine import Device

__all__ = [
    "CPU",
    "Limits",
    "LoweringRules",
    "MemoryRules",
    "Target",
    "target_named",
    "target_of",
    "WinogradRange",
]

TARGETS = {CPU.name: CPU}  # and "webgpu", on first use


def target_of(device: Device) -> Target:
    """What plans for a device are compiled for. Raises KeyError for an unknown target."""
    return target_named(device.target)


def target_named(name: str) -> Target:
    """The target "cpu" or "webgpu". Raises KeyError for another name."""
    if name == "webgpu" and name not in TARGETS:
        from .webgpu import WEBGPU

        TARGETS[name] = WEBGPU
    return TARGETS[name]

"""Devices that plans are compiled for: `CPU` (C, natively and as WebAssembly), and WebGPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cpu import CPU
from .target import Limits, LoweringRules, MemoryRules, Target, WinogradRange

if TYPE_CHECKING:
    from ..engine import Device

__all__ = ["CPU", "Limits", "LoweringRules", "MemoryRules", "Target", "target_of", "WinogradRange"]

TARGETS = {CPU.name: CPU}  # and "webgpu", on first use


def target_of(device: Device) -> Target:
    """What plans for a device are compiled for. Raises KeyError for an unknown target."""
    if device.target == "webgpu" and "webgpu" not in TARGETS:
        from .webgpu import WEBGPU

        TARGETS["webgpu"] = WEBGPU
    return TARGETS[device.target]

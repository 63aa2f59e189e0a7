"""Devices that plans are compiled for: `CPU` (C, natively and as WebAssembly) is the only one."""

from .cpu import CPU
from .target import Limits, LoweringRules, MemoryRules, Target, WinogradRange

__all__ = ["CPU", "Limits", "LoweringRules", "MemoryRules", "Target", "WinogradRange"]

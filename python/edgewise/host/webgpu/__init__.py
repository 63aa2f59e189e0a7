"""Plans on a GPU, through WebGPU: `pip install edgewise[gpu]`.

The compiler makes plans for the target "webgpu". The engine in C checks them, and its steps run as
compute shaders whose bodies are beside the kernels in C (core/kernels). docs/architecture/webgpu.md
describes it.
"""

from __future__ import annotations

from .compare import Difference, compare
from .engine import WebGPUEngine

__all__ = ["Difference", "WebGPUEngine", "compare"]

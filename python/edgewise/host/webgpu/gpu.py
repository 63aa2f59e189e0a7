"""The adapter: which WebGPU implementation there is, its limits, and what is said where none is.

`wgpudawn` (Dawn, the implementation of Chromium) and `wgpu` (wgpu-native) have the same API. Both
are optional: `pip install edgewise[gpu]`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...compiler.gpu import subgroups as forms
from ...errors import EdgewiseError, EngineError

LIBRARIES = ("wgpudawn", "wgpu")
# What is asked for of the adapter's own limits, where it has more than the default.
WANTED = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
)
SUBGROUPS = ("subgroups", "subgroup")  # the feature, as the libraries call it
DOTS = "fn products(v: vec4i, w: u32) -> i32 { return dot4I8Packed(pack4xI8(v), w); }"


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """Raises EngineError in the place of a library's own errors. what: was done."""
    try:
        yield
    except EdgewiseError:
        raise
    except Exception as e:
        raise EngineError(
            f"the GPU ended {what} ({e})",
            "webgpu",
            "The GPU may be lost or out of memory: open a new engine.",
        ) from e


class Gpu:
    """A device of WebGPU.

    Args:
        library: "wgpudawn" or "wgpu"; by default the environment variable EDGEWISE_WEBGPU, or the
            first of them that is installed.
        subgroups: whether to use subgroups where the adapter and the library have them.

    Attributes:
        wgpu: the library.
        device: its GPUDevice.
        dots: whether WGSL has products of four packed bytes here.
        subgroups: whether programs use subgroups.
        software: whether the adapter is one in software.
        name: of the adapter, its driver and the library, for `info`.
        limits: {name: number} of the device.

    Raises:
        EngineError: there is no library, or no adapter.
    """

    def __init__(self, library: str | None = None, subgroups: bool = True) -> None:
        self.wgpu = _library(library or os.environ.get("EDGEWISE_WEBGPU"))
        adapter = _adapter(self.wgpu)
        wanted = {n: adapter.limits[n] for n in WANTED if adapter.limits.get(n)}
        features = [n for n in SUBGROUPS if subgroups and n in adapter.features]
        try:
            self.device = adapter.request_device_sync(
                required_limits=wanted, required_features=features
            )
        except Exception as e:
            raise EngineError(
                f"the GPU gives no device ({e})", "webgpu", "Use the device 'cpu'."
            ) from e
        info = adapter.info
        self.name = f"{info['device']}, {info['description']} ({self.wgpu.__name__})"
        self.software = str(info.get("adapter_type", "")).upper() == "CPU"
        self.limits: dict[str, int] = dict(self.device.limits)
        self.dots = self._compiles(DOTS)
        self.subgroups = bool(features) and self._compiles(forms.TEST)

    def _compiles(self, text: str) -> bool:
        """Whether the library's compiler takes a text, which may use what not all have."""
        try:
            self.device.create_shader_module(code=text)
        except Exception:
            return False
        return True

    @property
    def binding_bytes(self) -> int:
        """Largest range of a buffer that a step can bind."""
        return self.limits["max-storage-buffer-binding-size"]

    @property
    def bindings(self) -> int:
        """Buffers that a step can bind besides uniforms."""
        return self.limits["max-storage-buffers-per-shader-stage"]

    @property
    def buffer_bytes(self) -> int:
        """Largest buffer."""
        return self.limits["max-buffer-size"]

    def buffer(self, nbytes: int, uniform: bool = False) -> Any:
        """A new zeroed GPUBuffer.

        Raises:
            Exception: the library's own, where there is no memory.
        """
        usage = self.wgpu.BufferUsage
        kind = usage.UNIFORM if uniform else usage.STORAGE
        return self.device.create_buffer(
            size=-(-max(nbytes, 16) // 16) * 16, usage=kind | usage.COPY_SRC | usage.COPY_DST
        )


def _library(name: str | None) -> Any:
    missing = []
    for library in (name,) if name else LIBRARIES:
        try:
            return importlib.import_module(library)
        except (ImportError, OSError, RuntimeError) as e:
            missing.append(f"{library}: {e}")
    raise EngineError(
        f"no implementation of WebGPU can be imported ({'; '.join(missing)})",
        "webgpu",
        "pip install edgewise[gpu], or use the device 'cpu'.",
    )


def _adapter(wgpu: Any) -> Any:
    try:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    except Exception as e:  # libraries raise RuntimeError, or their own errors
        raise EngineError(
            f"{wgpu.__name__} finds no GPU ({e})",
            "webgpu",
            "Install the driver of the GPU (Vulkan, Metal or Direct3D 12), or use the device"
            " 'cpu'.",
        ) from e
    if adapter is None:
        raise EngineError(
            f"{wgpu.__name__} finds no GPU",
            "webgpu",
            "Install the driver of the GPU (Vulkan, Metal or Direct3D 12), or use the device"
            " 'cpu'.",
        )
    return adapter

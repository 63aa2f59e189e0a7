"""A GPU is tested before it is used: one that computes wrongly is refused."""

import pytest
from edgewise.errors import EngineError
from edgewise.host.webgpu import WebGPUEngine, gpu, self_test

from .adapters import gpu as working


@pytest.fixture
def untested(monkeypatch):
    working()  # skips where there is no GPU
    monkeypatch.setattr(self_test, "_TESTED", set())


def open_with(monkeypatch, change):
    """A WebGPUEngine on a driver that takes shaders for other ones."""
    opened = gpu.Gpu.__init__

    def broken(self, *args, **kwargs):
        opened(self, *args, **kwargs)
        make = self.device.create_shader_module
        self.device.create_shader_module = lambda *, code, **more: make(code=change(code), **more)

    monkeypatch.setattr(gpu.Gpu, "__init__", broken)
    return WebGPUEngine(threads=1, library="wgpudawn", serial=False)


@pytest.mark.parametrize(
    "before, after, named",
    [
        ("sqrt(", "abs(", {"RMSNormalization", "LayerNormalization"}),
        ("exp(", "exp2(", {"Softmax", "MultiHeadAttention"}),
    ],
)
def test_a_gpu_that_computes_wrongly_is_refused(untested, monkeypatch, before, after, named):
    with pytest.raises(EngineError, match="computes wrongly") as e:
        open_with(monkeypatch, lambda code: code.replace(before, after))
    assert all(f"{name} by " in str(e.value) for name in named), str(e.value)
    assert "Gather by" not in str(e.value)


def test_a_gpu_that_computes_rightly_is_tested_once(untested, monkeypatch):
    open_with(monkeypatch, lambda code: code)
    assert len(self_test._TESTED) == 1
    monkeypatch.setattr(self_test, "self_test", None)  # is not called again
    open_with(monkeypatch, lambda code: code)

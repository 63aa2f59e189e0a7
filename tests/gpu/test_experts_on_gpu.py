"""Mixtures of experts and their gradients on a GPU, against PyTorch."""

import pytest
from edgewise.host.webgpu.device import WebGPUDevice
from ops.gradients import test_moe as cases

from .adapters import gpu


@pytest.fixture
def plans(monkeypatch):
    """The plans that a test loads, every step of which must run on the GPU."""
    seen, load = [], WebGPUDevice.load_plan

    def loaded(self, plan):
        found = load(self, plan)
        seen.append(found.info["why"])
        return found

    monkeypatch.setattr(WebGPUDevice, "load_plan", loaded)
    yield
    assert seen == [{}]


@pytest.mark.parametrize("tokens", [1, 6])
def test_floats(plans, tokens):
    cases.test_moe(gpu(), tokens, "gated")


@pytest.mark.parametrize("bits", [4, 8])
def test_bits(plans, bits):
    cases.test_qmoe(gpu(), bits, 6)

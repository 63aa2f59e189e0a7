"""The choice of tokens on a GPU: the same as core/sampling's from all logits."""

import numpy as np
import pytest
from bench import models
from edgewise import CausalLM
from edgewise.engine.native import NativeEngine
from edgewise.errors import EdgewiseError
from edgewise.host.webgpu.device import WebGPUDevice
from edgewise.text import generate

from .adapters import gpu

SPECIAL = {
    "ties": lambda x: np.round(x),
    "zeros of both signs": lambda x: np.where(x > 0, -0.0, np.where(x < -1, x, 0.0)),
    "minus infinity": lambda x: np.where(x > 0, -np.inf, x),
}


def on_device(values):
    device = gpu().device
    buffer = device.allocate(4 * len(values))
    device.write(buffer, values.astype(np.float32).tobytes())
    return buffer


@pytest.mark.parametrize("count", [3, 256, 1025, 9000])
@pytest.mark.parametrize("special", ["", *SPECIAL])
def test_highest_logits(count, special):
    x = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    x = SPECIAL.get(special, lambda v: v)(x).astype(np.float32)
    buffer, device = on_device(x), gpu().device
    assert device.highest(buffer) == int(np.argmax(x))
    order = np.argsort(-x, kind="stable")[:256]  # numpy: equal zeros, ties by index
    found = device.top(buffer)
    assert [token for token, _ in found] == order.tolist()
    assert [logit for _, logit in found] == x[order].tolist()
    device.release(buffer)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_finite(bad):
    x = np.zeros(5000, np.float32)
    x[4321] = bad
    buffer = on_device(x)
    assert gpu().device.highest(buffer) is None and gpu().device.top(buffer) is None
    buffer_of_none = on_device(np.full(5, -np.inf))
    assert gpu().device.highest(buffer_of_none) is None


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """A model with a vocabulary of 1,200 on the processor and on the GPU."""
    path = tmp_path_factory.mktemp("lm") / "model.onnx"
    shape = {**models.SMOLLM2, "vocab": 1200, "layers": 1}
    path.write_bytes(models.language_model(**shape).SerializeToString())
    made = [CausalLM(path, capacity=32, engine=e) for e in (NativeEngine(threads=1), gpu())]
    yield made
    for lm in made:
        lm.free()


FIELDS = [
    {},
    {"do_sample": True, "top_k": 20, "seed": 3},
    {"do_sample": True, "top_k": 200, "temperature": 1.7, "top_p": 0.9, "seed": 4},
    {"do_sample": True, "top_k": 5, "min_p": 0.05, "num_return_sequences": 2, "seed": 5},
    {"do_sample": True, "top_k": 0, "seed": 6},
    {"repetition_penalty": 1.2},
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_tokens_are_those_of_the_processor(loaded, fields, monkeypatch):
    cpu, on_gpu = loaded
    want = generate(cpu, [3, 17, 5], max_new_tokens=8, **fields)
    read, original = [], WebGPUDevice.hosted

    def hosted(self, buffer):
        read.append(buffer)
        return original(self, buffer)

    monkeypatch.setattr(WebGPUDevice, "hosted", hosted)
    assert generate(on_gpu, [3, 17, 5], max_new_tokens=8, **fields) == want
    whole = fields.get("top_k") == 0 or "repetition_penalty" in fields
    assert bool(read) == whole  # whether all logits were read


def test_errors_are_those_of_the_processor(loaded, monkeypatch):
    _, on_gpu = loaded
    original = on_gpu._checked_forward

    def broken(*args):
        logits = original(*args)
        on_gpu.device.write(logits, np.float32(np.nan).tobytes(), 8)
        return logits

    monkeypatch.setattr(on_gpu, "_checked_forward", broken)
    for fields in ({}, {"do_sample": True, "top_k": 9}):
        with pytest.raises(EdgewiseError, match=r"(?i)nan"):
            generate(on_gpu, [3, 17, 5], max_new_tokens=4, **fields)

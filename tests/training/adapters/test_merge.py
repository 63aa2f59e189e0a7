"""merge_adapter: adapters of 4-bit models in the float model, run by onnxruntime and PyTorch."""

import numpy as np
import onnxruntime
import pytest
import torch
from edgewise import LoraConfig, Trainer, merge_adapter
from edgewise.cli import main
from edgewise.errors import InputError
from edgewise.training.peft import load_adapter

from .. import llama
from .models import close, run_ort

IDS = [5, 9, 77, 130, 20]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the model in two precisions, and an adapter trained on the 4-bit one."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(llama.base("fp32"))
    (folder / "onnx" / "model_q4.onnx").write_bytes(llama.base("q4"))
    trainer = Trainer(
        folder / "onnx" / "model_q4.onnx",
        adapters=LoraConfig(r=4, lora_alpha=8, rank_pattern={"down_proj": 2}),
        learning_rate=1e-2,
        batch_size=2,
        sequence_length=16,
    )
    for seed in range(3):
        trainer.step(llama.batch(seed))
    trainer.save_adapter(folder / "adapter")
    trainer.free()
    return folder


def pytorch_logits(adapter):
    """Logits of transformers' model with W + scaling * B A as its weights."""
    lm = llama.pytorch()
    for module, (a, b) in adapter.lora.items():
        a, b = (
            torch.tensor(np.frombuffer(x.bytes(), np.float32).reshape(x.shape).copy())
            for x in (a, b)
        )
        lm.get_submodule(module).weight += adapter.config.scaling_of(module) * (b @ a)
    return lm(torch.tensor([IDS])).logits[0, -1].numpy()


def test_merges_into_the_float_model(folder, tmp_path):
    want = pytorch_logits(load_adapter(folder / "adapter"))
    merged = merge_adapter(folder / "onnx" / "model.onnx", folder / "adapter")
    close(run_ort(onnxruntime.InferenceSession(merged), IDS), want, 1e-5)
    assert np.abs(want - llama.pytorch()(torch.tensor([IDS])).logits[0, -1].numpy()).max() > 0.1
    command = ["merge", str(folder / "onnx" / "model.onnx"), str(folder / "adapter")]
    assert main([*command, "-o", str(tmp_path / "merged.onnx")]) == 0
    assert (tmp_path / "merged.onnx").read_bytes() == merged


def test_quantized_weights_stay(folder):
    """The adapter becomes nodes beside the 4-bit weights."""
    merged = merge_adapter(folder / "onnx" / "model_q4.onnx", folder / "adapter")
    session = onnxruntime.InferenceSession(merged)
    close(run_ort(session, IDS), pytorch_logits(load_adapter(folder / "adapter")), 1e-4)


def test_another_model_is_refused(folder, tmp_path):
    other = tmp_path / "adapter"
    other.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        data = (folder / "adapter" / name).read_bytes()
        (other / name).write_bytes(data.replace(b"q_proj", b"x_proj"))
    with pytest.raises(InputError, match="x_proj|no layer"):
        merge_adapter(folder / "onnx" / "model.onnx", other)

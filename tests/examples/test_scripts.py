"""The example scripts, with few steps; what they write runs in onnxruntime."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import wave
from pathlib import Path

import edgewise
import numpy as np
import onnxruntime
import pytest

ROOT = Path(__file__).parents[2]
BASE = ROOT / "web" / "demo" / "model" / "onnx" / "model_q4.onnx"


def run(script: str, *arguments: str, folder: Path) -> str:
    """The output of a script of examples/."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / script, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def losses(output: str) -> tuple[float, float]:
    """The first and the last loss that a script printed."""
    first, last = re.search(r"loss ([\d.]+) -> ([\d.]+)", output).groups()
    return float(first), float(last)


def logits_of(path: Path, session_type: type) -> np.ndarray:
    """Logits of a few tokens, with empty caches."""
    session = session_type(str(path))
    ids = np.array([[5, 60, 700, 8]])
    given = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.arange(4)[None],
    }
    feeds = {}
    for info in session.get_inputs():
        if info.name in given:
            feeds[info.name] = given[info.name]
        else:
            feeds[info.name] = np.zeros([1, info.shape[1], 0, info.shape[3]], np.float32)
    return session.run(["logits"], feeds)[0]


def test_python_train(tmp_path: Path) -> None:
    output = run("python-train/train.py", "--epochs", "60", folder=tmp_path)
    first, last = losses(output)
    assert last < first / 2
    accuracy = float(re.search(r"accuracy ([\d.]+) %", output)[1])
    assert accuracy > 90
    session = onnxruntime.InferenceSession(tmp_path / "spirals.onnx")
    [logits] = session.run(None, {"points": np.zeros((3, 2), np.float32)})
    assert logits.shape == (3, 2)


def test_python_finetune(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text(
        "Dear sea stop here is the owl stop all is well stop " * 20
    )
    model = str(ROOT / "web" / "demo" / "model")
    output = run(
        "python-finetune/finetune.py", model, "letters.txt", "--steps", "12", folder=tmp_path
    )
    first, last = losses(output)
    assert last < first
    assert {p.name for p in (tmp_path / "style").iterdir()} == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "merged.onnx",
    }
    merged, base = (
        logits_of(path, onnxruntime.InferenceSession)
        for path in (tmp_path / "style" / "merged.onnx", BASE)
    )
    assert np.abs(merged - base).max() > 0.1  # it has learned something
    ours = logits_of(tmp_path / "style" / "merged.onnx", edgewise.InferenceSession)
    np.testing.assert_allclose(ours, merged, atol=1e-3 * np.abs(merged).max())


@pytest.mark.slow("test_python_finetune")
def test_smollm2_merge(tmp_path: Path) -> None:
    """A small Llama in the hub's layout: the script itself compares onnxruntime, transformers and
    PEFT.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from training import llama
    from transformers import PreTrainedTokenizerFast

    folder, adapter = tmp_path / "model", tmp_path / "adapter"
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model.onnx").write_bytes(llama.base("fp32"))
    (folder / "onnx" / "model_q4.onnx").write_bytes(llama.base("q4"))
    llama.pytorch().save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())  # 256 characters, one for each byte
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=alphabet[0],
        chat_template="{% for m in messages %}{{ m.content }}{% endfor %}",
    ).save_pretrained(folder)
    trainer = edgewise.Trainer(
        folder,
        dtype="q4",
        adapters=edgewise.LoraConfig(r=4),
        learning_rate=1e-2,
        batch_size=2,
        sequence_length=16,
    )
    for seed in range(3):
        trainer.step(llama.batch(seed))
    trainer.save_adapter(adapter)
    trainer.free()
    output = run("smollm2/merge.py", str(folder), str(adapter), folder=tmp_path)
    assert output.count("in onnxruntime") == output.count("in transformers") == 1
    assert (tmp_path / "merged.onnx").exists()


def test_my_voice(tmp_path: Path) -> None:
    """Tones of two pitches stand for two voices; the model has random weights."""
    from tests.pipelines import tiny_audio

    model = tiny_audio.make(tmp_path / "model", "AST")
    rng, time = np.random.default_rng(0), np.arange(12000) / 16000
    for name, pitch in (("mine", 200), ("others", 2000)):
        (tmp_path / name).mkdir()
        for i in range(4):
            sound = 0.3 * np.sin(2 * np.pi * pitch * time + i) + rng.normal(0, 0.01, 12000)
            with wave.open(str(tmp_path / name / f"{i}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(16000)
                file.writeframes((sound * 32767).astype("<i2").tobytes())
    given = [str(model), "mine", "others", "--task", "audio-classification"]
    output = run("personalize/my_voice.py", *given, "--check", "mine/0.wav", folder=tmp_path)
    first, last = losses(output)
    assert last < first / 5 and "100% right" in output
    assert float(re.search(r"mine/0.wav: ([\d.]+)", output)[1]) > 0.9
    session = onnxruntime.InferenceSession(str(tmp_path / "my-voice.onnx"))
    assert json.loads(session.get_modelmeta().custom_metadata_map["id2label"])["0"] == "me"
    assert (tmp_path / "my-voice.safetensors").stat().st_size < 20_000

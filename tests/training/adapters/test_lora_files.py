"""Adapters that are exported, loaded by PEFT, kept in packages and switched by name; and
configurations that are not valid.
"""

import json
import os
import subprocess

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.errors import InputError
from edgewise.onnx import FileSource, read_model
from edgewise.training.peft import LoraConfig
from edgewise.training.program import Program

from .. import llama
from .models import close, logits, run_ort, session_of


@pytest.mark.parametrize("kind", ["fp32", "fp16", "q4", "q4f16_llama", "tied"])
def test_export(kind, tmp_path):
    """The exported file gives in onnxruntime what we give, and what the file gave before plus the
    adapters.
    """
    path = tmp_path / "model.onnx"
    path.write_bytes(
        (llama.MODELS / kind / "model.onnx").read_bytes()
        if (llama.MODELS / kind).exists()
        else llama.base("fp32" if kind == "tied" else kind)
    )
    targets = ["embed_tokens", "lm_head", "up_proj"] if kind == "tied" else "all-linear"
    trainer = edgewise.Trainer(
        path,
        adapters=LoraConfig(r=4, lora_alpha=16, target_modules=targets),
        batch_size=2,
        sequence_length=16,
        learning_rate=5e-3,
    )
    before = run_ort(onnxruntime.InferenceSession(str(path)), [5, 9, 77])
    trainer.fit([[1, 5, 9, 77, 30, 22, 9, 4] * 20], epochs=3, progress=False)
    if kind != "q4f16_llama":  # that file's own nodes are not in order
        onnx.checker.check_model(onnx.load_from_string(trainer.export()), full_check=True)
    trainer.export(tmp_path / "out.onnx", external_data="out.data" if kind == "fp32" else None)
    after = run_ort(onnxruntime.InferenceSession(str(tmp_path / "out.onnx")), [5, 9, 77])
    ours = logits(trainer.language_model(), [5, 9, 77])
    assert np.abs(after - before).max() > 0.05 * np.abs(before).max(), "it has learned"
    close(
        ours, after, 3e-3 if "16" in kind else 1e-4
    )  # float16: weights are rounded to it when they are merged, and onnxruntime computes in it
    trainer.free()


def test_peft_loads_the_folder(tmp_path):
    """PEFT itself loads the folder into transformers' model, and gives our logits."""
    python = next(
        (p for p in (os.environ.get("PEFT_PYTHON", ""),) if p and os.path.exists(p)), None
    )
    if python is None:
        pytest.skip("PEFT is not here; set PEFT_PYTHON to a Python that has it")
    path = tmp_path / "model.onnx"
    path.write_bytes(llama.base("q4"))
    trainer = edgewise.Trainer(
        path,
        adapters=LoraConfig(
            r=4, use_rslora=True, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        batch_size=2,
        sequence_length=16,
        learning_rate=1e-2,
    )
    trainer.fit([[1, 5, 9, 77, 30, 22, 9, 4] * 20], progress=False)
    trainer.save_adapter(tmp_path / "adapter")
    llama.pytorch().save_pretrained(tmp_path / "base")
    script = f"""
import json, torch
from peft import PeftModel
from transformers import LlamaForCausalLM
base = LlamaForCausalLM.from_pretrained({str(tmp_path / "base")!r})
m = PeftModel.from_pretrained(base, {str(tmp_path / "adapter")!r})
print(json.dumps(m(torch.tensor([[5, 9, 77]])).logits[0, -1].tolist()))
"""
    done = subprocess.run([python, "-c", script], capture_output=True, text=True)
    if "No module named 'transformers'" in done.stderr:
        pytest.skip("no transformers beside PEFT")
    assert done.returncode == 0, done.stderr[-1500:]
    close(
        logits(trainer.language_model(), [5, 9, 77]),
        json.loads(done.stdout.strip().splitlines()[-1]),
        1e-4,
    )
    trainer.free()


def test_only_what_adapters_need():
    """The backward pass of adapters computes no gradient of the base, ends at the first adapter,
    and never expands the 4-bit base.
    """

    def plan(kind, lora, trainable=()):
        p = session_of(kind, lora, trainable=list(trainable), sequence=32).program
        return p.plan("train"), p

    full, _ = plan("fp32", None, ["onnx::MatMul_*", "model.*"])
    lora, _ = plan("fp32", LoraConfig(r=4, target_modules="all-linear"))
    last, _ = plan("fp32", LoraConfig(r=4, target_modules=["layers.1.mlp.down_proj"]))
    forward = session_of(
        "fp32", LoraConfig(r=4, target_modules=["layers.1.mlp.down_proj"]), sequence=32
    ).program.plan("evaluate")
    products = {
        name: sum(k.startswith(("gemm", "matmul")) for k in p.kernels)
        for name, p in (("full", full), ("lora", lora), ("last", last), ("forward", forward))
    }
    # forward: 14 linears, the head, an adapter's two. Backward after the last down_proj: the
    # head's input, B, the adapter's middle, A
    assert products["last"] - products["forward"] <= 4, products
    assert products["full"] - products["last"] > 20
    assert last.arena_bytes < lora.arena_bytes
    quantized, program = plan("q4", LoraConfig(r=4, target_modules="all-linear"))
    weights = {s.name: s for s in quantized.slots if s.kind == "weight"}
    assert not any(s.kind == "computed" and s.nbytes >= 64 * 64 * 4 for s in quantized.slots)
    q4 = [n for n in weights if n.endswith("_Q4")]
    assert len(q4) == 14 and all(
        weights[n].nbytes * 8
        == next(t.count for k, t in llama.graph("fp32").constants.items() if k == n[:-3]) * 4
        for n in q4
    )


def test_adapters_by_name(tmp_path):
    """Several adapters on one base: loaded, switched, weighed and switched off without compiling;
    smaller ranks fit, larger ones and other layers are refused.
    """
    path, data = tmp_path / "model.onnx", [[1, 5, 9, 77, 30, 22, 9, 4] * 20]
    path.write_bytes(llama.base("q4"))
    want = {}
    for name, config in (
        ("a", LoraConfig(r=4, lora_alpha=4, target_modules="all-linear")),
        (
            "b",
            LoraConfig(r=2, lora_alpha=16, use_rslora=True, target_modules=["q_proj", "down_proj"]),
        ),
    ):
        trainer = edgewise.Trainer(
            path,
            adapters=config,
            batch_size=2,
            sequence_length=16,
            learning_rate=1e-2,
            seed=len(want),
        )
        trainer.fit(data, progress=False)
        trainer.save_adapter(tmp_path / name)
        want[name] = logits(trainer.language_model(), [5, 9, 77])
        trainer.free()
    base = edgewise.CausalLM(path)
    want[None] = logits(base, [5, 9, 77])
    with pytest.raises(InputError, match="compiled without adapters"):
        base.load_adapter(tmp_path / "a")
    lm = edgewise.CausalLM(path, lora=LoraConfig(r=4, target_modules="all-linear"))
    close(logits(lm, [5, 9, 77]), want[None], 1e-6)
    for name in ("a", "b"):
        lm.load_adapter(tmp_path / name, name)
    plans = [p.loaded.handle for p in lm.plans]
    for name in ("a", "b", None, "b", "a", None):
        lm.set_adapter(name)
        assert lm.adapter == name
        close(logits(lm, [5, 9, 77]), want[name], 1e-5, str(name))
    lm.set_adapter("a", 0.0)
    close(logits(lm, [5, 9, 77]), want[None], 1e-6)
    lm.set_adapter("a", 0.5)
    assert np.abs(logits(lm, [5, 9, 77]) - want["a"]).max() > 1e-3 * np.abs(want["a"]).max()
    assert [p.loaded.handle for p in lm.plans] == plans
    with pytest.raises(InputError, match="no adapter 'c'"):
        lm.set_adapter("c")
    for bad in (float("nan"), "1", None):
        with pytest.raises(InputError, match="scale"):
            lm.set_adapter("a", bad)
    small = edgewise.CausalLM(path, lora=LoraConfig(r=2, target_modules="all-linear"))
    with pytest.raises(InputError, match=r"rank is 4.*r=4"):
        small.load_adapter(tmp_path / "a")
    narrow = edgewise.CausalLM(path, lora=LoraConfig(r=8, target_modules=["q_proj"]))
    with pytest.raises(InputError, match="target_modules"):
        narrow.load_adapter(tmp_path / "b")
    close(logits(narrow, [5, 9, 77]), want[None], 1e-6)
    one = edgewise.CausalLM(path, lora=tmp_path / "a")
    close(logits(one, [5, 9, 77]), want["a"], 1e-5)
    for x in (base, lm, small, narrow, one):
        x.free()


@pytest.mark.parametrize(
    "config, whole",
    [
        ({}, False),
        ({"is_encoder_decoder": False}, False),
        ({"is_encoder_decoder": True}, True),
        ({"vision_config": {"model_type": "siglip_vision_model"}}, True),
    ],
)
def test_names_of_a_part_of_a_model_are_whole(tmp_path, monkeypatch, config, whole):
    """The folder's configuration says that there are an encoder or a tower beside the decoder."""
    monkeypatch.setattr("edgewise.logic.training.adapters.MANY", 14)  # modules of two layers
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.onnx").write_bytes(llama.base("fp32"))
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    trainer = edgewise.Trainer(tmp_path / "model", adapters={"r": 2}, sequence_length=16)
    trainer.save_adapter(tmp_path / "adapter")
    trainer.free()
    written = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert len(written["target_modules"]) == (14 if whole else 7)
    assert all(("." in name) == whole for name in written["target_modules"])


def test_package_with_adapters(tmp_path):
    """A package built for training takes adapters by name, too."""
    from edgewise.compiler.training.package import compile_training_package
    from edgewise.host.session.open import folder_files

    path = tmp_path / "model.onnx"
    path.write_bytes(llama.base("q4"))
    trainer = edgewise.Trainer(
        path,
        adapters=LoraConfig(r=4, target_modules="all-linear"),
        batch_size=2,
        sequence_length=16,
        learning_rate=1e-2,
    )
    trainer.fit([[1, 5, 9, 77, 30, 22, 9, 4] * 20], progress=False)
    trainer.save_adapter(tmp_path / "a")
    want = logits(trainer.language_model(), [5, 9, 77])
    package = compile_training_package(
        folder_files(path)[0],
        [{"name": "lora", "batch": 1, "sequence": 16, "lora": {"r": 8}}],
        model_file="model.onnx",
    )
    with open(tmp_path / "model.edge", "wb") as f:
        package.write(f)
    lm = edgewise.CausalLM(tmp_path / "model.edge")
    lm.load_adapter(tmp_path / "a", "a")
    lm.set_adapter("a")
    close(logits(lm, [5, 9, 77]), want, 1e-5)
    lm.free(), trainer.free()


def test_package_with_whole_modules(tmp_path):
    """A package that trains modules as a whole takes them from adapters."""
    from edgewise.compiler.training.package import compile_training_package
    from edgewise.host.session.open import folder_files

    path = tmp_path / "folder"
    path.mkdir()
    (path / "model.onnx").write_bytes(llama.base("fp32"))
    fields = {"r": 2, "target_modules": ["q_proj"], "modules_to_save": ["down_proj", "norm"]}
    trainer = edgewise.Trainer(
        path / "model.onnx",
        adapters=LoraConfig(**fields),
        batch_size=2,
        sequence_length=16,
        learning_rate=1e-2,
    )
    trainer.step(llama.batch())
    trainer.save_adapter(tmp_path / "a")
    package = compile_training_package(
        folder_files(path)[0],
        [{"name": "lora", "batch": 1, "sequence": 16, "lora": fields}],
        model_file="model.onnx",
    )
    with open(tmp_path / "model.edge", "wb") as f:
        package.write(f)
    lm = edgewise.CausalLM(tmp_path / "model.edge")
    base = logits(lm, [5, 9, 77])
    lm.load_adapter(tmp_path / "a", "a")
    lm.set_adapter("a")
    close(logits(lm, [5, 9, 77]), logits(trainer.language_model(), [5, 9, 77]), 1e-4)
    lm.set_adapter(None)
    close(logits(lm, [5, 9, 77]), base, 1e-6)
    lm.free(), trainer.free()


@pytest.mark.parametrize(
    "fields",
    [
        {"r": 0},
        {"r": 1 << 30},
        {"r": 2.5},
        {"lora_alpha": float("nan")},
        {"lora_dropout": 1.0},
        {"target_modules": []},
        {"target_modules": [""]},
        {"target_modules": "("},
        {"modules_to_save": ["x"]},
        {"init_lora_weights": "pissa"},
        {"bias": "some"},
        {"layers_to_transform": [99]},
        {"rank_pattern": {"q_proj": 0}},
    ],
)
def test_absurd_configurations(fields):
    with pytest.raises(edgewise.EdgewiseError):
        edgewise.Trainer(
            llama.base("q4"),
            adapters={"target_modules": ["q_proj"], **fields},
            batch_size=1,
            sequence_length=8,
        ).estimate()


def test_model_of_others():
    """Names of layers, as far as each exporter preserves them."""
    for name in ("fp16merge_gpt2", "genai_llama_int4_webgpu", "dynamo_gemma3_op23"):
        g = read_model(FileSource(llama.MODELS / name / "model.onnx"))
        program = Program(
            g,
            **llama.shapes(g, 1, 8),
            loss="causal_lm",
            lora=LoraConfig(r=2, target_modules="all-linear"),
            trainable=[],
        )
        program.plan("train")
        names = [x.name for x in program.lora_layers]
        assert len(set(names)) == len(names) >= 2 and (
            all("." in n for n in names) or name.startswith("dynamo")
        ), names  # that file does not tell

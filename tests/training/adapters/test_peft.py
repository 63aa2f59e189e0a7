"""Adapters as PEFT writes and reads them; tests/training/data holds some that PEFT made
(make_adapters.py).
"""

import json
import math
import random
import shutil
import subprocess
import sys
from pathlib import Path

import edgewise
import numpy as np
import peft
import pytest
import safetensors.numpy
import torch
from edgewise.errors import EdgewiseError, InputError, ModelError, UnsupportedField
from edgewise.training.peft import CONFIG, WEIGHTS, Adapter, LoraConfig, load_adapter, save_adapter
from edgewise.training.safetensors import save_safetensors
from peft import get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from tests.logic.forms import both
from tests.logic.forms import module as rules_of

DATA = Path(__file__).parents[1] / "data"
MATCHING = json.loads((DATA / "matching.json").read_text())


@pytest.mark.parametrize("row", MATCHING["rows"], ids=lambda row: json.dumps(row["config"]))
def test_modules_match_as_in_peft(row):
    config = LoraConfig(**row["config"])
    assert [n for n in MATCHING["names"] if config.matches(n)] == row["matched"]


@both
@pytest.mark.parametrize("layers", [2, 3])
def test_names_of_all_layers_are_those_that_peft_writes(form, layers):
    """Whole names of 14 modules, the last parts of 21."""
    sizes = dict(hidden_size=16, intermediate_size=16, num_attention_heads=2, vocab_size=32)
    lm = LlamaForCausalLM(LlamaConfig(num_hidden_layers=layers, **sizes))
    modules = [n for n, m in lm.named_modules() if isinstance(m, torch.nn.Linear)][:-1]
    theirs = get_peft_model(lm, peft.LoraConfig(target_modules="all-linear")).peft_config["default"]
    rules = rules_of(form, "training.adapters")
    made = rules.written_config({"target_modules": "all-linear"}, modules)
    assert made["target_modules"] == sorted(theirs.target_modules)
    # of a part of a model, whole names, which PEFT gives to these layers alone
    whole = rules.whole_names({"target_modules": "all-linear"}, modules)
    assert rules.written_config(whole, modules)["target_modules"] == sorted(modules)
    assert rules.whole_names({"target_modules": ["q_proj"]}, modules) == {
        "target_modules": ["q_proj"]
    }
    numbers = [f"block.{i}" for i in range(30)]
    made = rules.written_config({"target_modules": "all-linear"}, numbers)
    assert made["target_modules"] == sorted(numbers)


@both
@pytest.mark.parametrize("name", ["adapter_all", "adapter_rs"])
def test_names_and_configurations_of_peft(form, name):
    """Of its files: what the tensors are, the scaling, and what the modules are called."""
    rules = rules_of(form, "training.adapters")
    config = json.loads((DATA / name / CONFIG).read_text())
    expected = json.loads((DATA / name / "expected.json").read_text())["scaling"]
    modules = []
    for key, x in safetensors.numpy.load_file(DATA / name / WEIGHTS).items():
        assert key.startswith(rules.PREFIX)
        half = rules.half_of(key.removeprefix(rules.PREFIX))
        assert (half is None) == ("lora_" not in key)
        axis = rules.rank_axis(key)
        if half is None:
            assert axis is None
            continue
        modules.append(half.module)
        assert half.embedding == ("lora_embedding" in key) and half.is_a == ("_A" in key)
        known = config["rank_pattern"].get(half.module, config["r"])
        assert x.shape[axis] == known
        if not config["rank_pattern"] and not config["alpha_pattern"]:
            made = rules.scaling(config["lora_alpha"], config["r"], config["use_rslora"])
            assert made == pytest.approx(expected[half.module])
    assert set(modules) == set(expected)
    theirs = {k: v for k, v in config.items() if k != "exclude_modules"}
    assert rules.written_config({**config, "inference_mode": False}, modules) == theirs
    assert list(rules.written_config(theirs, [])) == sorted(theirs)
    for targets in (None, "all-linear", "All-Linear"):
        made = rules.written_config({**config, "target_modules": targets}, modules)
        assert made["target_modules"] == sorted(expected)
    made = rules.written_config({"target_modules": ".*q", "exclude_modules": ["k"]}, modules)
    assert made == {"exclude_modules": ["k"], "inference_mode": True, "target_modules": ".*q"}


@both
def test_names_of_tensors(form):
    half_of = rules_of(form, "training.adapters").half_of
    half = half_of("a.q.lora_B.default.weight")
    assert (half.module, half.is_a, half.embedding) == ("a.q", False, False)
    half = half_of("e.lora_embedding_A.default")
    assert (half.module, half.is_a, half.embedding) == ("e", True, True)
    for name in ("lora_A.weight", "q.lora_A.bias", "q.lora_C.weight", "q.lora_A.weight.x", ""):
        assert half_of(name) is None


@pytest.mark.parametrize("name", ["adapter_all", "adapter_rs"])
def test_peft_files(name, tmp_path):
    adapter = load_adapter(DATA / name)
    expected = json.loads((DATA / name / "expected.json").read_text())
    assert {
        m: adapter.config.scaling_of(m) for m in [*adapter.lora, *adapter.embeddings]
    } == pytest.approx(expected["scaling"])
    raw = safetensors.numpy.load_file(DATA / name / WEIGHTS)
    for module, (a, b) in adapter.lora.items():
        assert (
            a.bytes() == raw[f"base_model.model.{module}.lora_A.weight"].tobytes()
            and b.bytes() == raw[f"base_model.model.{module}.lora_B.weight"].tobytes()
        )
    save_adapter(adapter, tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder" / WEIGHTS).read_bytes() == (
        DATA / name / WEIGHTS
    ).read_bytes()
    theirs, mine = (
        json.loads((p / CONFIG).read_text()) for p in (DATA / name, tmp_path / "new" / "folder")
    )
    assert {k: v for k, v in mine.items() if k in theirs} == {
        k: theirs[k] for k in mine if k in theirs
    } and set(mine) <= set(theirs)
    again = load_adapter(save_adapter(adapter))
    assert (
        again.config == adapter.config
        and again.saved.keys() == adapter.saved.keys()
        and again.embeddings.keys() == adapter.embeddings.keys()
    )
    assert load_adapter(DATA / name / WEIGHTS).lora.keys() == adapter.lora.keys()


def test_peft_loads_ours(tmp_path):
    """With PEFT at hand, a model wrapped by it loads what Edgewise wrote and computes base +
    scaling * B A.
    """
    peft = pytest.importorskip("peft")
    import torch

    a, b = (
        np.random.default_rng(0).normal(size=(2, 6)).astype("f4"),
        np.random.default_rng(1).normal(size=(4, 2)).astype("f4"),
    )
    save_adapter(
        Adapter(LoraConfig(r=2, lora_alpha=6, use_rslora=True), lora={"0": (a, b)}), tmp_path
    )
    base = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU())
    want = torch.relu(base[0](torch.eye(6)) + torch.tensor(6 / math.sqrt(2) * (b @ a).T))
    model = peft.PeftModel.from_pretrained(base, tmp_path)
    assert torch.allclose(model(torch.eye(6)), want, atol=1e-5)


def test_selection():
    modules = {
        "embed": "embedding",
        "layers.0.q": "linear",
        "layers.0.conv": "conv",
        "layers.0.up": "linear",
        "lm_head": "linear",
        "score": "linear",
    }
    assert (
        LoraConfig().select(modules, heads=["lm_head"])
        == LoraConfig(target_modules="ALL-linear").select(modules, heads=["lm_head"])
        == ["layers.0.q", "layers.0.up", "score"]
    )
    assert LoraConfig(task_type="SEQ_CLS", exclude_modules=["up"]).select(modules) == [
        "layers.0.q",
        "lm_head",
    ]
    assert LoraConfig(target_modules=["embed", "conv"]).select(modules) == [
        "embed",
        "layers.0.conv",
    ]
    assert LoraConfig(target_modules=["nothing"], modules_to_save=["embed"]).select(modules) == []
    assert LoraConfig(modules_to_save=["layers"]).saves("layers.0.q") and not LoraConfig(
        modules_to_save=["layer"]
    ).saves("layers.0.q")
    with pytest.raises(InputError, match="match no module.*embed"):
        LoraConfig(target_modules=["nothing"]).select(modules)
    written = save_adapter(
        Adapter(
            LoraConfig(r=1, target_modules="all-linear"),
            lora={"x.q": (np.ones((1, 3), "f4"), np.ones((2, 1), "f4"))},
        )
    )
    assert json.loads(written[CONFIG])["target_modules"] == ["x.q"]


def test_scaling():
    assert (
        LoraConfig(r=8, lora_alpha=16).scaling == 2
        and LoraConfig(r=4, lora_alpha=6, use_rslora=True).scaling == 3
    )
    config = LoraConfig(r=8, lora_alpha=8, rank_pattern={"q": 4}, alpha_pattern={"layers.0.*": 2})
    assert (
        config.scaling_of("layers.0.q"),
        config.scaling_of("layers.1.q"),
        config.scaling_of("layers.1.v"),
    ) == (0.5, 2, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"r": 0},
        {"r": 2.5},
        {"r": True},
        {"lora_alpha": "8"},
        {"lora_alpha": math.inf},
        {"lora_dropout": 1},
        {"lora_dropout": -0.1},
        {"bias": "some"},
        {"target_modules": "("},
        {"target_modules": 3},
        {"target_modules": [1]},
        {"modules_to_save": "lm_head"},
        {"modules_to_save": ["("]},
        {"rank_pattern": {"q": 0}},
        {"rank_pattern": ["q"]},
        {"alpha_pattern": {"(": 1}},
        {"layers_to_transform": "0"},
        {"layers_to_transform": 0, "target_modules": "q"},
        {"layers_pattern": "h"},
        {"use_rslora": 1},
        {"peft_type": "IA3"},
        {"init_lora_weights": "pissa"},
        {"target_modules": "a" * 1001},
    ],
    ids=str,
)
def test_wrong_fields(fields):
    with pytest.raises((InputError, UnsupportedField)) as e:
        LoraConfig(**fields)
    assert e.value.where and e.value.remedy
    with pytest.raises((ModelError, UnsupportedField)) as e:
        LoraConfig.from_dict({"peft_type": "LORA"} | fields)
    assert CONFIG in str(e.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"use_qalora": True},
        {"lora_bias": True},
        {"target_parameters": ["x"]},
        {"something_new": 1},
        {"layer_replication": [[0, 1]]},
        {"trainable_token_indices": [1]},
    ],
    ids=str,
)
def test_variants_of_lora_are_refused_by_name(fields):
    with pytest.raises(UnsupportedField, match=next(iter(fields))):
        LoraConfig.from_dict({"peft_type": "LORA"} | fields)


def test_broken_folders(tmp_path):
    a = np.ones((2, 3), "f4")

    def folder(tensors, **config):
        return {
            CONFIG: json.dumps({"peft_type": "LORA", "r": 2} | config).encode(),
            WEIGHTS: save_safetensors(tensors),
        }

    for files, words in (
        ({CONFIG: b"{}"}, "adapter_model.safetensors missing"),
        (folder({"base_model.model.q.lora_A.weight": a}), "lora_A alone"),
        (folder({"q.lora_A.weight": a, "q.lora_B.weight": a}), "are incompatible"),
        (
            folder({"q.lora_A.weight": a, "q.lora_B.weight": a.T.copy()}, r=3),
            "rank 2, the configuration says 3",
        ),
        (
            folder(
                {"q.lora_A.weight": a, "q.lora_B.weight": a.T.copy(), "q.lora_magnitude_vector": a}
            ),
            "lora_magnitude",
        ),
        (folder({"q.lora_A.weight": a.astype("i4")}), "floating"),
        (folder({}) | {CONFIG: b"[" * 9999}, "nested too deeply"),
        (folder({}) | {CONFIG: b"[]"}, "not a JSON object"),
        (folder({}) | {CONFIG: b"{}"}, "peft_type"),
        (folder({}) | {WEIGHTS: b"x"}, "safetensors"),
    ):
        with pytest.raises((ModelError, UnsupportedField), match=words):
            load_adapter(files)
    with pytest.raises(ModelError, match="cannot open"):
        load_adapter(tmp_path)
    (tmp_path / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="pickle"):
        load_adapter(tmp_path)
    shutil.copy(DATA / "adapter_rs" / WEIGHTS, tmp_path)
    with pytest.raises(ModelError, match=CONFIG):
        load_adapter(tmp_path)


def test_random_damage():
    random.seed(1)
    files = save_adapter(load_adapter(DATA / "adapter_all"))
    for i in range(2000):
        name = (CONFIG, WEIGHTS)[i % 2]
        data = bytearray(files[name])
        for _ in range(random.choice((1, 1, 3))):
            data[random.randrange(min(len(data), 1500))] = random.choice(
                (0, 34, 44, 45, 48, 57, 91, 123, random.randrange(256))
            )
        try:
            load_adapter(files | {name: bytes(data)})
        except EdgewiseError:
            pass


def test_by_names():
    config, a, b = LoraConfig(r=2), np.ones((2, 3), "f4"), np.ones((4, 2), "f4")
    states = {
        "l.q.lora_A.weight": a,
        "l.q.lora_B.weight": b,
        "e.lora_embedding_A": a,
        "e.lora_embedding_B": b,
        "head.weight": a,
        "l.q.base_layer.bias": b,
    }
    adapter = Adapter.of(config, states)
    assert (
        list(adapter.lora) == ["l.q"]
        and list(adapter.embeddings) == ["e"]
        and list(adapter.saved) == ["head.weight", "l.q.bias"]
        and adapter.tensors().keys() == states.keys()
    )
    assert load_adapter(save_adapter(adapter)).tensors().keys() == states.keys()


def test_without_numpy():
    """Adapters, checkpoints and models are read and written on plain Python."""
    script = """
import sys
sys.modules["numpy"] = None
from edgewise.onnx import ModelEditor
from edgewise.extras.onnxruntime_training.artifact_files.odtc import (
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from edgewise.training.peft import load_adapter, save_adapter
adapter = load_adapter(sys.argv[1])
files = save_adapter(adapter)
c = Checkpoint(adapter.saved, {"x": [[1.0, 2.0]]}, properties={"a": 1})
c = read_checkpoint(write_checkpoint(c))
e = ModelEditor()
e.set_initializer("w", c.frozen["x"])
same = load_adapter(files).saved.keys() == adapter.saved.keys()
print(sorted(c.parameters), same, len(e.write()) > 8)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(DATA / "adapter_all")],
        env={"PYTHONPATH": str(Path(edgewise.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert "'x'" in done.stdout and "True True" in done.stdout, done.stderr

"""Models and adapters for transformers, llama.cpp and MLX: weights and logits are those of PyTorch,
transformers and PEFT, blocks those of the gguf package. llama.cpp itself runs them in
tests/browser/training/test_formats.py.
"""

import json
import shutil

import gguf
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from edgewise import LoraConfig, Trainer, convert_adapter, merge_adapter
from edgewise.cli import main
from edgewise.compiler.formats.architectures import dims_of
from edgewise.compiler.formats.metadata import rope_frequencies
from edgewise.compiler.formats.vocabulary import vocabulary
from edgewise.errors import EdgewiseError, InputError, ModelError, UnsupportedField
from edgewise.training.peft import Adapter, load_adapter
from onnx import helper, numpy_helper
from peft import PeftModel
from safetensors.torch import load_file, save
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from .. import llama
from .models import close, run_ort
from .test_merge import IDS, pytorch_logits

TOKENIZER = {
    "model": {
        "type": "BPE",
        "vocab": {chr(65 + i): i for i in range(26)} | {"AB": 26},
        "merges": ["A B"],
    },
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "added_tokens": [{"id": 27, "content": "<end>", "special": True}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder in two precisions, and an adapter trained on the 4-bit one."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(llama.base("fp32"))
    (folder / "onnx" / "model_q4.onnx").write_bytes(llama.base("q4"))
    config = {**llama.CONFIG, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
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


def transformers_logits(path, **more):
    lm = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **more).eval()
    with torch.no_grad():
        return lm(torch.tensor([IDS])).logits[0, -1].double().numpy()


@pytest.mark.parametrize("dtype", ["fp32", "q4"])
@pytest.mark.parametrize("format", ["safetensors", "mlx"])
def test_folder(folder, tmp_path, dtype, format):
    adapter = folder / "adapter"
    assert merge_adapter(folder, adapter, tmp_path, dtype=dtype, format=format) is None
    names = {p.name for p in tmp_path.iterdir()}
    assert names == {"README.md", "config.json", "model.safetensors", "tokenizer.json"}
    close(transformers_logits(tmp_path), pytorch_logits(load_adapter(adapter)), 1e-5)
    merged = onnxruntime.InferenceSession(merge_adapter(folder, adapter, dtype=dtype))
    close(transformers_logits(tmp_path), run_ort(merged, IDS), 1e-5 if dtype == "fp32" else 2e-2)


def test_gguf(folder, tmp_path):
    """Names, order of rows and numbers: transformers reads the file back."""
    path = tmp_path / "model.gguf"
    merge_adapter(folder, folder / "adapter", path, dtype="fp32", quantization="f32")
    want = pytorch_logits(load_adapter(folder / "adapter"))
    close(transformers_logits(tmp_path, gguf_file="model.gguf"), want, 1e-5)


@pytest.mark.parametrize("kind", ["f16", "Q8_0", "q4_0"])
def test_blocks(folder, tmp_path, kind):
    """The blocks are those that the gguf package makes of the float32 file."""
    floats, blocks = tmp_path / "f32.gguf", tmp_path / "blocks.gguf"
    merge_adapter(folder, folder / "adapter", floats, dtype="fp32", quantization="f32")
    assert main(
        [
            "merge",
            str(folder),
            str(folder / "adapter"),
            "-o",
            str(blocks),
            "--dtype=fp32",
            f"--quantization={kind}",
        ]
    ) in (0, None)
    numbers = {t.name: np.array(t.data) for t in gguf.GGUFReader(floats).tensors}
    kinds = {}
    for t in gguf.GGUFReader(blocks).tensors:
        kinds[t.name] = t.tensor_type.name
        if t.tensor_type.name != "F32":
            made = gguf.quants.quantize(numbers[t.name].astype(np.float32), t.tensor_type)
            assert np.array_equal(made.view(np.uint8), np.array(t.data).view(np.uint8)), t.name
    matrix = kind.upper()
    assert kinds["blk.0.attn_q.weight"] == matrix and kinds["output_norm.weight"] == "F32"
    assert kinds["token_embd.weight"] == ("Q8_0" if kind == "q4_0" else matrix)


def fused(folder, tmp_path):
    """A folder of the model as the model builder names it, in which queries, keys and values are
    one matrix.
    """
    model = onnx.load(folder / "onnx" / "model.onnx")
    arrays = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    for layer in range(2):
        stem = f"/model/layers.{layer}/self_attn/"
        three = [
            next(n for n in model.graph.node if n.name == f"{stem}{part}_proj/MatMul")
            for part in "qkv"
        ]
        name = f"model.layers.{layer}.attn.qkv_proj"
        weight = np.concatenate([arrays[n.input[1]] for n in three], 1)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"{name}.MatMul.weight"))
        sizes = np.array([arrays[n.input[1]].shape[1] for n in three])
        model.graph.initializer.append(numpy_helper.from_array(sizes, f"{name}.sizes"))
        made = [
            helper.make_node(
                "MatMul",
                [three[0].input[0], f"{name}.MatMul.weight"],
                [name],
                f"/{name.replace('.', '/')}/MatMul",
            ),
            helper.make_node(
                "Split", [name, f"{name}.sizes"], [n.output[0] for n in three], axis=-1
            ),
        ]
        at = min(list(model.graph.node).index(n) for n in three)
        nodes = [n for n in model.graph.node if n not in three]
        del model.graph.node[:]
        model.graph.node.extend([*nodes[:at], *made, *nodes[at:]])
    out = tmp_path / "fused"
    out.mkdir()
    onnx.save(model, out / "model.onnx")
    shutil.copy(folder / "config.json", out)
    return out


def test_fused(folder, tmp_path):
    """An adapter of the fused matrix becomes one of each part, in PEFT on transformers' model."""
    folder = fused(folder, tmp_path)
    want = pytorch_logits(Adapter(LoraConfig()))
    trainer = Trainer(
        folder,
        adapters=LoraConfig(r=4, lora_alpha=8, use_rslora=True),
        learning_rate=1e-2,
        batch_size=2,
        sequence_length=16,
    )
    trainer.fit([[5, 9, 77, 130, 20, 11, 3, 40] * 12], epochs=1, max_steps=3)
    trainer.save_adapter(tmp_path / "adapter")
    trainer.free()
    assert main(
        [
            "merge",
            str(folder),
            str(tmp_path / "adapter"),
            "-o",
            str(tmp_path / "peft"),
            "--adapter-only",
            "--format=peft",
        ]
    ) in (0, None)
    merge_adapter(folder, None, tmp_path / "base", format="safetensors", quantization="f32")
    merge_adapter(
        folder, tmp_path / "adapter", tmp_path / "whole", format="safetensors", quantization="f32"
    )
    close(transformers_logits(tmp_path / "base"), want, 1e-5)
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    with torch.no_grad():
        lm = PeftModel.from_pretrained(base, tmp_path / "peft").eval()
        adapted = lm(torch.tensor([IDS])).logits[0, -1].double().numpy()
    close(transformers_logits(tmp_path / "whole"), adapted, 1e-5)
    assert np.abs(adapted - transformers_logits(tmp_path / "base")).max() > 1e-3


def test_adapters_of_others(folder, tmp_path):
    convert_adapter(folder / "adapter", folder, tmp_path / "a.gguf")
    loaded = load_adapter(folder / "adapter")
    reader = gguf.GGUFReader(tmp_path / "a.gguf")
    alpha = float(reader.fields["adapter.lora.alpha"].parts[-1][0])
    tensors = {t.name: np.array(t.data) for t in reader.tensors}
    a, b = (
        np.frombuffer(x.bytes(), np.float32).reshape(x.shape)
        for x in loaded.lora["model.layers.1.mlp.down_proj"]
    )
    low, high = (tensors[f"blk.1.ffn_down.weight.lora_{half}"] for half in "ab")
    np.testing.assert_allclose(
        alpha / 2 * (high @ low),
        loaded.config.scaling_of("model.layers.1.mlp.down_proj") * (b @ a),
        rtol=1e-5,
        atol=1e-7,
    )
    with pytest.raises(UnsupportedField, match="one rank"):
        convert_adapter(folder / "adapter", folder, format="mlx")
    files = {
        n: (folder / "adapter" / n).read_bytes()
        for n in ("adapter_config.json", "adapter_model.safetensors")
    }
    tensors = load_file(folder / "adapter" / "adapter_model.safetensors")
    kept = {k: v for k, v in tensors.items() if "down_proj" not in k}
    config = {**json.loads(files["adapter_config.json"]), "rank_pattern": {}}
    files = {
        "adapter_config.json": json.dumps(config).encode(),
        "adapter_model.safetensors": save(kept),
    }
    made = convert_adapter(files, folder, format="mlx")
    (tmp_path / "m.safetensors").write_bytes(made["adapters.safetensors"])
    mlx = load_file(tmp_path / "m.safetensors")
    told = json.loads(made["adapter_config.json"])["lora_parameters"]
    for name, x in kept.items():
        stem, half = name.removeprefix("base_model.model.").removesuffix(".weight").split(".lora_")
        assert torch.equal(mlx[f"{stem}.lora_{half.lower()}"], x.T)
    assert told["rank"] == 4 and told["scale"] == 2.0 and "self_attn.q_proj" in told["keys"]


@pytest.mark.parametrize("version", [4, 5])
def test_frequencies(version):
    """Those of transformers' Llama 3 scaling."""
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    }
    config = LlamaConfig(hidden_size=256, num_attention_heads=4, rope_theta=5e5, rope_scaling=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 1 / 5e5 ** (torch.arange(0, 64, 2).double() / 64)
    fields = config.to_dict() | {"head_dim": 64, "vocab_size": 8}
    if version == 5:
        del fields["rope_scaling"], fields["rope_theta"]
        fields["rope_parameters"] = rope | {"rope_theta": 5e5}
    got = rope_frequencies(fields, dims_of(fields))
    np.testing.assert_allclose(got, plain / scaled.double(), rtol=1e-5)


def test_pieces():
    """A tokenizer of pieces with bytes: the order of merges as scores."""
    tokens = ["<unk>", "<s>", "</s>", "<0x41>", "\u2581", "a", "b", "\u2581a", "ab"]
    tokenizer = {
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": ["\u2581 a", "a b"],
        },
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend"}]},
        "added_tokens": [{"id": 1, "content": "<s>", "special": True}],
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
        },
    }
    made = vocabulary(tokenizer, {"bos_token_id": 1, "eos_token_id": [2, 1]}, {}, None, 11)
    assert made["tokenizer.ggml.model"] == "llama" and made["tokenizer.ggml.add_bos_token"]
    assert made["tokenizer.ggml.scores"][7:9] == [-1.0, -2.0]
    assert made["tokenizer.ggml.token_type"] == [2, 3, 1, 6, 1, 1, 1, 1, 1, 5, 5]
    assert made["tokenizer.ggml.eos_token_id"] == 2 and made["tokenizer.ggml.bos_token_id"] == 1


def edited(folder, tmp_path, name, **fields):
    made = tmp_path / "edited"
    shutil.copytree(folder, made)
    path = made / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return made


@pytest.mark.parametrize(
    ("name", "fields", "error", "words"),
    [
        ("config.json", {"model_type": "gpt2"}, UnsupportedField, "model_type is 'gpt2'"),
        ("config.json", {"hidden_size": -1}, ModelError, "hidden_size is -1"),
        ("config.json", {"hidden_size": 1 << 40}, ModelError, "hidden_size"),
        ("config.json", {"num_hidden_layers": 2_000_000_000}, ModelError, "num_hidden_layers"),
        ("config.json", {"model_type": "qwen2"}, ModelError, "q_proj.bias"),
        ("config.json", {"attention_bias": True}, ModelError, "q_proj.bias"),
        ("config.json", {"partial_rotary_factor": 0.5}, UnsupportedField, "partial_rotary_factor"),
        ("config.json", {"hidden_act": "gelu"}, UnsupportedField, "hidden_act"),
        (
            "config.json",
            {"model_type": "smollm3", "no_rope_layers": [1, 0]},
            UnsupportedField,
            "no_rope_layers",
        ),
        ("config.json", {"rope_scaling": {"rope_type": "linear"}}, ModelError, "factor"),
        (
            "config.json",
            {"rope_scaling": {"rope_type": "llama3", "high_freq_factor": 0}},
            ModelError,
            "high_freq_factor",
        ),
        ("tokenizer.json", {"added_tokens": 5}, ModelError, "added_tokens"),
        ("tokenizer.json", {"model": {**TOKENIZER["model"], "merges": [1]}}, ModelError, "merge"),
        ("config.json", {"num_hidden_layers": 3}, ModelError, "layers.2"),
        ("config.json", {"num_hidden_layers": 1}, UnsupportedField, "layers.1"),
        ("config.json", {"intermediate_size": 96}, ModelError, "config.json says"),
        ("config.json", {"sliding_window": 4}, UnsupportedField, "sees 4 tokens"),
        ("config.json", {"rms_norm_eps": "x"}, ModelError, "rms_norm_eps"),
        ("config.json", {"rope_scaling": {"rope_type": "longrope"}}, UnsupportedField, "longrope"),
        ("tokenizer.json", {"model": {"type": "Unigram"}}, UnsupportedField, "Unigram"),
        ("tokenizer.json", {"model": None}, ModelError, "no model"),
        ("tokenizer.json", {"pre_tokenizer": None}, UnsupportedField, "pre_tokenizer"),
        ("tokenizer.json", {"added_tokens": [{"id": 999, "content": "x"}]}, ModelError, "999"),
    ],
)
def test_refused(folder, tmp_path, name, fields, error, words):
    """In words, and without a file."""
    model = edited(folder, tmp_path, name, **fields)
    with pytest.raises(error, match=words):
        merge_adapter(model, model / "adapter", tmp_path / "out.gguf", dtype="fp32")
    assert not (tmp_path / "out.gguf").exists()


def test_refused_options(folder, tmp_path):
    cases = [
        dict(format="tf"),
        dict(format="gguf", quantization="q5_k"),
        dict(format="safetensors", quantization="q8_0"),
        dict(format="onnx", quantization="f16"),
    ]
    for options in cases:
        with pytest.raises(InputError):
            merge_adapter(folder, folder / "adapter", dtype="fp32", **options)
    with pytest.raises(InputError, match="no adapter"):
        merge_adapter(folder, None, dtype="fp32")
    with pytest.raises(InputError):
        convert_adapter(folder / "adapter", folder, format="onnx")
    with pytest.raises(EdgewiseError):
        convert_adapter(folder / "adapter", tmp_path / "nothing")


def test_trained_parameters_that_have_no_place(folder, tmp_path):
    """Of a tied model there is no lm_head to replace; it would be left out silently."""
    files = {p.name: p.read_bytes() for p in (folder / "adapter").iterdir()}
    (tmp_path / "a.safetensors").write_bytes(files["adapter_model.safetensors"])
    tensors = load_file(tmp_path / "a.safetensors")
    tensors["base_model.model.lm_head.weight"] = torch.zeros(256, 64)
    files["adapter_model.safetensors"] = save(tensors)
    with pytest.raises(InputError, match="lm_head.weight"):
        merge_adapter(folder, files, dtype="fp32", format="gguf")


def test_adapters_of_other_models(folder, tmp_path):
    config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    for module, a, b in (
        ("model.layers.0.self_attn.q_proj", (4, 7), (64, 4)),
        ("model.layers.9.self_attn.q_proj", (4, 64), (64, 4)),
        ("MatMul_12", (4, 64), (64, 4)),
    ):
        stem = f"base_model.model.{module}.lora_"
        tensors = {stem + "A.weight": torch.zeros(a), stem + "B.weight": torch.zeros(b)}
        files = {
            "adapter_config.json": json.dumps(config).encode(),
            "adapter_model.safetensors": save(tensors),
        }
        for format in ("gguf", "peft", "mlx"):
            with pytest.raises(InputError, match=module):
                convert_adapter(files, folder, format=format)


def test_refused_arguments(folder, tmp_path):
    adapter = str(folder / "adapter")
    out = ["-o", str(tmp_path / "x")]
    for more in (["--format=peft"], ["--adapter-only", "--dtype=fp32"]):
        assert main(["merge", str(folder), adapter, *out, *more]) != 0
    with pytest.raises(InputError, match="external data"):
        merge_adapter(folder, adapter, format="gguf", external_data="weights")


@pytest.mark.parametrize("dtype", ["fp32", "q4"])
def test_dora(folder, tmp_path, dtype):
    """Merged weights are those of PEFT's merge_and_unload; adapters for others are LoRA alone."""
    trainer = Trainer(
        folder / "onnx" / "model_q4.onnx",
        adapters=LoraConfig(r=4, lora_alpha=8, use_dora=True, rank_pattern={"down_proj": 2}),
        learning_rate=1e-2,
        batch_size=2,
        sequence_length=16,
    )
    for seed in range(3):
        trainer.step(llama.batch(seed))
    trainer.save_adapter(tmp_path / "dora")
    trainer.free()
    merge_adapter(folder, tmp_path / "dora", tmp_path / "hub", dtype=dtype, format="safetensors")
    want = PeftModel.from_pretrained(llama.pytorch(), tmp_path / "dora").merge_and_unload()
    made = load_file(tmp_path / "hub" / "model.safetensors")
    for name, p in want.named_parameters():
        close(made[name], p.detach(), 1e-5, name)
    path = tmp_path / "dora.gguf"
    merge_adapter(folder, tmp_path / "dora", path, dtype=dtype, quantization="f32")
    close(transformers_logits(tmp_path, gguf_file="dora.gguf"), run(want), 1e-4)
    again = load_adapter(convert_adapter(tmp_path / "dora", folder, format="peft"))
    assert again.config.use_dora and len(again.magnitudes) == len(again.lora) == 14
    for format in ("gguf", "mlx"):
        with pytest.raises(UnsupportedField, match="it is DoRA, and adapters for .* are LoRA"):
            convert_adapter(tmp_path / "dora", folder, format=format)


def run(model):
    """The last token's logits."""
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0, -1].double().numpy()

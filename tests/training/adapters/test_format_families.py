"""Models of further families for transformers, llama.cpp and MLX: transformers generates the same
tokens from the folders, tensors have the names of the gguf package and the numbers of transformers,
and adapters are those that PEFT computes. llama.cpp itself runs the files in
tests/browser/training/test_formats.py.
"""

import json

import gguf
import numpy as np
import pytest
import torch
from edgewise import LoraConfig, Trainer, convert_adapter, merge_adapter
from edgewise.compiler.formats.architectures import ARCHITECTURES
from edgewise.compiler.formats.vocabulary import vocabulary
from edgewise.errors import ModelError, UnsupportedField
from edgewise.training.peft import load_adapter
from generation.family_folders import TOKENIZER, config_of, hub_folder
from generation.test_families import EXPECTED, PROMPTS
from peft import PeftModel
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from .models import close

# {model: architecture in llama.cpp}
MODELS = {
    "optimum_gemma2": "GEMMA2",
    "optimum_gemma3_six": "GEMMA3",
    "optimum_phi4": "PHI3",
    "GenAI_phi4": "PHI3",
    "GenAI_phi4_long": "PHI3",
    "optimum_glm4": "GLM4",
    "optimum_cohere": "COMMAND_R",
    "transformers_cohere2_tied": "COHERE2",
    "optimum_exaone4_full": "EXAONE4",
    "optimum_mixtral": "LLAMA",
    "optimum_qwen3_moe_real": "QWEN3MOE",
}
EAGER = {"attn_implementation": "eager"}  # with Gemma 2's caps


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder(name):
        if name not in made:
            made[name] = hub_folder(name, tmp_path_factory.mktemp(name))
        return made[name]

    return folder


def loaded(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **EAGER).eval()


@pytest.mark.parametrize("name", MODELS)
def test_folder_and_file(folders, tmp_path, name):
    """The folder's weights are transformers', and those of the GGUF file have llama.cpp's names."""
    merge_adapter(folders(name), None, tmp_path, format="safetensors", quantization="f32")
    lm = loaded(tmp_path)
    if name != "GenAI_phi4_long":  # transformers changes tables in mid-text, test_families.py
        ids = torch.tensor([PROMPTS[1]])
        mask = torch.ones_like(ids)
        made = lm.generate(
            ids, attention_mask=mask, max_new_tokens=24, do_sample=False, eos_token_id=None
        )
        assert made[0].tolist()[len(PROMPTS[1]) :] == EXPECTED[name]["greedy"][1]
    path = tmp_path / "model.gguf"
    merge_adapter(folders(name), None, path, quantization="f32")
    tensors = {t.name: np.array(t.data) for t in gguf.GGUFReader(path).tensors}
    want = renamed(lm, gguf.MODEL_ARCH[MODELS[name]])
    rest = set(tensors) - set(want)
    assert rest == ({"rope_factors_long.weight", "rope_factors_short.weight"} & set(tensors))
    for tensor, numbers in want.items():
        close(tensors[tensor].reshape(numbers.shape), numbers, 1e-6, tensor)


def renamed(lm, architecture):
    """{name in llama.cpp: numbers} of a model of transformers, as its convert_hf_to_gguf.py has
    them; rows of queries and keys are those of transformers where they stay.
    """
    config, found, groups = lm.config, {}, {}
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    for name, x in lm.state_dict().items():
        if name not in tied:
            parts = name.split(".experts.")
            if len(parts) == 2:  # experts.N.w1: all are one tensor
                name = f"{parts[0]}.experts.{parts[1].partition('.')[2]}"
                if "block_sparse_moe" in name:  # as that script renames Mixtral's
                    name = name.replace("model.", "").replace("block_sparse_moe", "feed_forward")
            groups.setdefault(name, []).append(x.numpy())
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, group in groups.items():
        x = np.stack(group) if ".experts." in name else group[0]
        module = name.split(".")[-2]
        if architecture == gguf.MODEL_ARCH.LLAMA and module in heads:
            n, (rows, columns) = heads[module], x.shape
            x = x.reshape(n, 2, rows // n // 2, columns).swapaxes(1, 2).reshape(x.shape)
        if "gemma" in config.model_type and name.endswith("norm.weight"):
            x = x + 1
        made = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert made is not None, name
        found[made] = x
    return found


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "F16"])
@pytest.mark.parametrize("name", ["optimum_gemma3_six", "GenAI_phi4", "optimum_mixtral"])
def test_blocks(folders, tmp_path, name, kind):
    """The blocks are those that the gguf package makes of the float32 file."""
    floats, blocks = tmp_path / "f32.gguf", tmp_path / "blocks.gguf"
    for path, type_ in ((floats, "f32"), (blocks, kind)):
        merge_adapter(folders(name), None, path, quantization=type_)
    numbers = {t.name: np.array(t.data) for t in gguf.GGUFReader(floats).tensors}
    kinds = set()
    for t in gguf.GGUFReader(blocks).tensors:
        if t.tensor_type.name != "F32":
            kinds.add(t.tensor_type.name)
            made = gguf.quants.quantize(numbers[t.name].astype(np.float32), t.tensor_type)
            assert np.array_equal(made.view(np.uint8), np.array(t.data).view(np.uint8)), t.name
        else:
            assert len(t.shape) == 1 or "ffn_gate_inp" in t.name
    assert kinds == ({kind} if kind != "Q4_0" else {"Q4_0", "Q8_0"})


def metadata(path):
    fields = gguf.GGUFReader(path).fields
    return {name: f.contents() for name, f in fields.items() if not name.startswith("tokenizer")}


@pytest.mark.parametrize(
    ("name", "want"),
    [
        (
            "optimum_gemma2",
            {
                "gemma2.attention.sliding_window": 8,
                "gemma2.attn_logit_softcapping": 2.0,
                "gemma2.final_logit_softcapping": 10.0,
                "gemma2.attention.key_length": 16,
            },
        ),
        (
            "optimum_gemma3_six",
            {
                "gemma3.attention.sliding_window": 8,
                "gemma3.rope.freq_base": 1e6,
                "gemma3.rope.freq_base_swa": 1e4,
            },
        ),
        (
            "GenAI_phi4_long",
            {
                "phi3.rope.scaling.type": "longrope",
                "phi3.rope.scaling.original_context_length": 24,
                "phi3.rope.dimension_count": 16,
                "phi3.attention.sliding_window": 0,
            },
        ),
        ("optimum_glm4", {"glm4.rope.dimension_count": 8}),
        (
            "optimum_cohere",
            {
                "command-r.logit_scale": 0.25,
                "command-r.rope.scaling.type": "none",
                "command-r.attention.layer_norm_epsilon": pytest.approx(1e-5),
            },
        ),
        (
            "optimum_qwen3_moe_real",
            {
                "qwen3moe.expert_count": 4,
                "qwen3moe.expert_used_count": 2,
                "qwen3moe.expert_feed_forward_length": 32,
            },
        ),
    ],
)
def test_metadata(folders, tmp_path, name, want):
    """Keys and values of llama.cpp's convert_hf_to_gguf.py for the same folder."""
    merge_adapter(folders(name), None, tmp_path / "m.gguf", quantization="q8_0")
    made = metadata(tmp_path / "m.gguf")
    assert {key: made[key] for key in want} == want


def trained(folder, tmp_path, targets):
    """An adapter of three steps, with B of a size that matters."""
    trainer = Trainer(
        folder,
        adapters=LoraConfig(r=4, lora_alpha=8, target_modules=targets, rank_pattern={"up_proj": 2}),
        learning_rate=5e-2,
        batch_size=2,
        sequence_length=12,
    )
    for seed in range(3):
        ids = np.random.default_rng(seed).integers(3, 90, (2, 12))
        trainer.step({"input_ids": ids, "labels": ids})
    trainer.save_adapter(tmp_path / "adapter")
    trainer.free()
    return tmp_path / "adapter"


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("GenAI_phi4", ["qkv_proj", "gate_proj", "up_proj"]),
        ("optimum_phi4", ["qkv_proj", "gate_up_proj"]),
        ("optimum_gemma3_six", ["q_proj", "down_proj"]),
        ("optimum_qwen3_moe_real", ["q_proj", "gate_proj", "up_proj", "down_proj"]),
        ("optimum_mixtral", ["w1", "w2"]),
    ],
)
def test_adapters(folders, tmp_path, name, targets):
    """Merged, and beside the model in PEFT, under transformers' names; llama.cpp's file has the
    same product of matrices.
    """
    adapter = trained(folders(name), tmp_path, targets)
    merge_adapter(folders(name), adapter, tmp_path / "whole", format="safetensors")
    merge_adapter(folders(name), None, tmp_path / "base", format="safetensors")
    convert_adapter(adapter, folders(name), tmp_path / "peft", format="peft")
    ids = torch.tensor([PROMPTS[0]])
    base = loaded(tmp_path / "base")
    with torch.no_grad():
        plain = base(ids).logits
        beside = PeftModel.from_pretrained(base, tmp_path / "peft").eval()(ids).logits
        merged = loaded(tmp_path / "whole")(ids).logits
    close(merged.numpy(), beside.numpy(), 1e-4)
    assert (merged - plain).abs().max() > 1e-2
    convert_adapter(adapter, folders(name), tmp_path / "a.gguf", quantization="f32")
    files = {}
    for file, base_adapter in (("whole", adapter), ("base", None)):
        path = tmp_path / f"{file}.gguf"
        merge_adapter(folders(name), base_adapter, path, quantization="f32")
        files[file] = {t.name: np.array(t.data) for t in gguf.GGUFReader(path).tensors}
    reader = gguf.GGUFReader(tmp_path / "a.gguf")
    alpha = float(reader.fields["adapter.lora.alpha"].parts[-1][0])
    halves = {t.name: np.array(t.data) for t in reader.tensors}
    stems = {n.removesuffix(".lora_a") for n in halves if n.endswith(".lora_a")}
    for stem in stems:
        low, high = halves[f"{stem}.lora_a"], halves[f"{stem}.lora_b"]
        change = files["whole"][stem] - files["base"][stem]
        close(alpha / low.shape[-2] * (high @ low), change, 1e-4, stem)
    assert stems and len(stems) == sum(
        bool(np.any(files["whole"][n] != x)) for n, x in files["base"].items()
    )


def edited(folder, tmp_path, **fields):
    made = tmp_path / "edited"
    made.mkdir()
    for file in folder.iterdir():
        (made / file.name).write_bytes(file.read_bytes())
    config = {**json.loads((folder / "config.json").read_text()), **fields}
    config = {name: value for name, value in config.items() if value is not ...}
    (made / "config.json").write_text(json.dumps(config))
    return made


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("optimum_gemma3", {}, "sliding windows in other layers"),
        ("optimum_gemma2", {"attn_logit_softcapping": None}, "attn_logit_softcapping is None"),
        ("optimum_gemma2", {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ("optimum_gemma3_six", {"query_pre_attn_scalar": 64}, "query_pre_attn_scalar"),
        ("optimum_cohere", {"use_qk_norm": True}, "use_qk_norm"),
        ("optimum_qwen3_moe_real", {"norm_topk_prob": False}, "norm_topk_prob"),
        ("optimum_qwen3_moe_real", {"norm_topk_prob": ...}, "norm_topk_prob is False"),
        (
            "optimum_gemma3_six",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
            "sliding_attention.rope_type is 'linear'",
        ),
        ("optimum_exaone4_full", {"sliding_window": 8}, "sees 8 tokens"),
    ],
)
def test_refused(folders, tmp_path, name, fields, words):
    """Models that llama.cpp would compute in another way, in words."""
    with pytest.raises(UnsupportedField, match=words):
        merge_adapter(edited(folders(name), tmp_path, **fields), None, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_defaults_are_those_of_transformers():
    """Of fields that llama.cpp has one value for, where config.json does not say."""
    for kind, architecture in ARCHITECTURES.items():
        config = CONFIG_MAPPING[kind]()
        for name, value in architecture.fixed.items():
            default = architecture.defaults.get(name, value)
            assert getattr(config, name, default) == default, (kind, name)


def test_window_layers_rope_of_transformers_5(folders, tmp_path):
    """A base for each kind of layers, where transformers 4 has rope_local_base_freq."""
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
    }
    without = {"rope_theta": ..., "rope_local_base_freq": ..., "rope_scaling": ...}
    folder = edited(folders("optimum_gemma3_six"), tmp_path, **without, rope_parameters=rope)
    merge_adapter(folder, None, tmp_path / "m.gguf", quantization="q8_0")
    made = metadata(tmp_path / "m.gguf")
    assert made["gemma3.rope.freq_base_swa"] == 5e3 and made["gemma3.rope.freq_base"] == 2e6
    assert made["gemma3.rope.scaling.factor"] == 8


@pytest.mark.parametrize("length", [1, 0.5, -3, None, "a", float("nan")])
def test_lengths_before_scaling(folders, tmp_path, length):
    name = "GenAI_phi4_long"
    rope = json.loads((folders(name) / "config.json").read_text())["rope_scaling"]
    rope = {**rope, "original_max_position_embeddings": length}
    fields = {"rope_scaling": rope, "original_max_position_embeddings": length}
    if length is None:  # then it is that of the model
        fields["max_position_embeddings"] = 1
    folder = edited(folders(name), tmp_path, **fields)
    with pytest.raises(ModelError, match="original_max_position_embeddings is"):
        merge_adapter(folder, None, tmp_path / "m.gguf")


def test_experts_are_not_for_mlx(folders, tmp_path):
    name = "optimum_mixtral"
    adapter = trained(folders(name), tmp_path, ["w1"])
    assert len(load_adapter(adapter).lora) == 2 * config_of(name).num_local_experts
    with pytest.raises(UnsupportedField, match="adapts experts"):
        convert_adapter(adapter, folders(name), format="mlx")


def test_splitting():
    """The expression of o200k_base in tokenizer.json, as llama-vocab.cpp quotes it."""
    upper, lower = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
    expression = (
        r"[^\r\n\p{L}\p{N}]?[UPPER]*[LOWER]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[UPPER]+[LOWER]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    expression = expression.replace("UPPER", upper).replace("LOWER", lower)
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated"}
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    tokenizer = {
        **TOKENIZER,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes_]},
    }
    made = vocabulary(tokenizer, {}, {}, None, 96)
    assert made["tokenizer.ggml.pre"] == "gpt-4o"

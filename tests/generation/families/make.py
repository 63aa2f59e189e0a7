"""Makes the models of this folder: tiny random language models of the real classes of transformers,
as their exporters write them, with the tokens that transformers generates.

    python make.py optimum NAME...       # torch, transformers 4.57, optimum-onnx 0.1
    python make.py GenAI NAME...         # torch, transformers 5.24, onnxruntime-genai 0.18
    python make.py transformers NAME...  # torch 2.13, transformers 5.24, onnxscript
    python make.py torch NAME...         # the same; community.py, and rwkv7.py

Weights are multiples of 1/8, so that the files are small. A file is EXPORTER_NAME.onnx.xz, its
tokens and config.json are in expected.json under the same name. The graph that embeds token ids,
where the decoder has none, is EXPORTER_NAME.embed.onnx.xz.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import lzma
import shutil
import sys
import tempfile
from pathlib import Path

import onnx
import torch
import transformers

HERE = Path(__file__).parent
VOCAB = 96
PROMPTS = ([1, *range(5, 15)], [1, *(3 + (i * i * 7 + i * 3) % 90 for i in range(36))])
BASE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
}
HEAD = {"head_dim": 16}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "kv_lora_rank": 16,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_key_value_heads": 2,
}
MAMBA = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
    "mamba_chunk_size": 8,
}
SLIDING, FULL = "sliding_attention", "full_attention"
WIDE = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
ROTARY = {
    "type": "longrope",
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [2.0 + i for i in range(8)],
}
MROPE = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "mrope_section": [2, 1, 1],
    "mrope_interleaved": True,
    "partial_rotary_factor": 0.5,
}
WITH_PICTURES = {
    "vision_config": {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_heads": 2,
        "patch_size": 8,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 32,
        "num_position_embeddings": 16,
    },
    "image_token_id": 92,
    "video_token_id": 93,
    "vision_start_token_id": 94,
    "vision_end_token_id": 95,
    "tie_word_embeddings": False,
}
# By name: the classes without their ends, and fields of the configuration besides BASE.
MODELS: dict[str, tuple[str, str, dict]] = {
    "qwen2": ("Qwen2", "Qwen2", {}),
    "qwen3": ("Qwen3", "Qwen3", {**HEAD, "tie_word_embeddings": True}),
    "qwen3_moe": ("Qwen3Moe", "Qwen3Moe", {**HEAD, **MIXTURE}),
    "qwen3_moe_real": (  # weights of a token's experts add up to 1, as those of Qwen's models do
        "Qwen3Moe",
        "Qwen3Moe",
        {**HEAD, **MIXTURE, "norm_topk_prob": True},
    ),
    "qwen3_next": (
        "Qwen3Next",
        "Qwen3Next",
        {
            **HEAD,
            **MIXTURE,
            **LINEAR,
            "num_hidden_layers": 4,
            "shared_expert_intermediate_size": 32,
            "partial_rotary_factor": 0.5,
        },
    ),
    "qwen3_5": (
        "Qwen3_5",
        "Qwen3_5Text",
        {**HEAD, **LINEAR, "num_hidden_layers": 4, "partial_rotary_factor": 0.5},
    ),
    "qwen3_5_text": (  # without a class of the configuration: the model with pictures
        "Qwen3_5",
        "",
        {**HEAD, **LINEAR, "num_hidden_layers": 4, "rope_parameters": MROPE},
    ),
    "qwen3_5_moe": (
        "Qwen3_5Moe",
        "",
        {
            **HEAD,
            **LINEAR,
            **MIXTURE,
            "num_hidden_layers": 4,
            "shared_expert_intermediate_size": 32,
            "rope_parameters": MROPE,
        },
    ),
    "gemma3": (
        "Gemma3",
        "Gemma3Text",
        {
            **HEAD,
            "num_hidden_layers": 3,
            "sliding_window": 8,
            "layer_types": [SLIDING, SLIDING, FULL],
            "query_pre_attn_scalar": 16,
            "tie_word_embeddings": True,
        },
    ),
    "gemma3_six": (  # with windows in the layers that llama.cpp has them in
        "Gemma3",
        "Gemma3Text",
        {
            **HEAD,
            "num_hidden_layers": 6,
            "sliding_window": 8,
            "query_pre_attn_scalar": 16,
            "rope_theta": 1000000.0,
            "tie_word_embeddings": True,
        },
    ),
    "gemma2": (
        "Gemma2",
        "Gemma2",
        {
            **HEAD,
            "sliding_window": 8,
            "query_pre_attn_scalar": 16,
            "attn_implementation": "eager",  # the only one with attn_logit_softcapping
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 10.0,
            "tie_word_embeddings": True,
        },
    ),
    "glm4": ("Glm4", "Glm4", {**HEAD, "attention_bias": True}),
    "cohere": ("Cohere", "Cohere", {"logit_scale": 0.25, "tie_word_embeddings": True}),
    "mixtral": (
        "Mixtral",
        "Mixtral",
        {**HEAD, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    ),
    "gemma3n": (
        "Gemma3n",
        "Gemma3nText",
        {
            **HEAD,
            "num_hidden_layers": 4,
            "intermediate_size": [32] * 4,
            "vocab_size_per_layer_input": VOCAB,
            "hidden_size_per_layer_input": 16,
            "altup_num_inputs": 2,
            "num_kv_shared_layers": 2,
            "laurel_rank": 8,
            "sliding_window": 8,
            "layer_types": [SLIDING, FULL] * 2,
            "activation_sparsity_pattern": [0.0] * 4,
        },
    ),
    "gemma4": (
        "Gemma4",
        "Gemma4Text",
        {
            **HEAD,
            "num_hidden_layers": 4,
            "sliding_window": 8,
            "layer_types": [SLIDING, FULL] * 2,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": VOCAB,
            "num_kv_shared_layers": 2,
            "global_head_dim": 32,
            "tie_word_embeddings": True,
        },
    ),
    "llama3": (
        "Llama",
        "Llama",
        {
            **HEAD,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "mistral": ("Mistral", "Mistral", {**HEAD, "sliding_window": None}),
    "mistral_window": ("Mistral", "Mistral", {**HEAD, "sliding_window": 8}),
    "ministral3": ("Ministral3", "Ministral3", HEAD),
    "smollm3": ("SmolLM3", "SmolLM3", {"num_hidden_layers": 4}),
    "lfm2": (
        "Lfm2",
        "Lfm2",
        {
            **WIDE,
            "num_hidden_layers": 4,
            "layer_types": ["conv", FULL] * 2,
            "block_auto_adjust_ff_dim": False,
        },
    ),
    "lfm2_moe": (
        "Lfm2Moe",
        "Lfm2Moe",
        {
            **WIDE,
            **MIXTURE,
            "num_hidden_layers": 3,
            "layer_types": ["conv", FULL, "conv"],
            "num_dense_layers": 1,
        },
    ),
    "granite": ("Granite", "Granite", {}),
    "granite4": (
        "GraniteMoeHybrid",
        "GraniteMoeHybrid",
        {
            **MAMBA,
            "layer_types": ["attention", "attention"],
            "position_embedding_type": "rope",
            "num_local_experts": 0,
            "shared_intermediate_size": 32,
        },
    ),
    "granite4h": (
        "GraniteMoeHybrid",
        "GraniteMoeHybrid",
        {
            **MAMBA,
            "num_hidden_layers": 3,
            "layer_types": ["mamba", "attention", "mamba"],
            "num_local_experts": 0,
            "shared_intermediate_size": 32,
        },
    ),
    "phi4": (
        "Phi3",
        "Phi3",
        {"hidden_size": 64, "partial_rotary_factor": 0.5, "original_max_position_embeddings": 256},
    ),
    "phi4_long": ("Phi3", "Phi3", {"original_max_position_embeddings": 24, "rope_scaling": ROTARY}),
    "gpt_oss": (
        "GptOss",
        "GptOss",
        {
            **HEAD,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 8,
            "layer_types": [SLIDING, FULL],
        },
    ),
    "olmo2": ("Olmo2", "Olmo2", {}),
    "olmo3": ("Olmo3", "Olmo3", {"sliding_window": 8}),
    "olmo_hybrid": ("OlmoHybrid", "OlmoHybrid", {**LINEAR, "num_hidden_layers": 4}),
    "ernie4_5": ("Ernie4_5", "Ernie4_5", HEAD),
    "hunyuan": ("HunYuanDenseV1", "HunYuanDenseV1", HEAD),
    "exaone4": ("Exaone4", "Exaone4", {**HEAD, "sliding_window": 8, "sliding_window_pattern": 2}),
    "exaone4_full": (  # as the small ones: without windows
        "Exaone4",
        "Exaone4",
        {**HEAD, "sliding_window": None, "layer_types": [FULL, FULL]},
    ),
    "nemotron": ("Nemotron", "Nemotron", {"head_dim": 32}),
    "apertus": ("Apertus", "Apertus", {}),
    "cohere2": ("Cohere2", "Cohere2", {"num_hidden_layers": 4, "sliding_window": 8}),
    "cohere2_tied": (
        "Cohere2",
        "Cohere2",
        {"num_hidden_layers": 4, "sliding_window": 8, "tie_word_embeddings": True},
    ),
    "minicpm3": ("MiniCPM3", "MiniCPM3", LATENT),
    "deepseek_v3": (
        "DeepseekV3",
        "DeepseekV3",
        {
            **LATENT,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
        },
    ),
    "falcon_h1": ("FalconH1", "FalconH1", {**MAMBA, **HEAD, "mamba_d_ssm": 64, "mamba_expand": 1}),
    "bamba": ("Bamba", "Bamba", {**MAMBA, "num_hidden_layers": 3, "attn_layer_indices": [1]}),
    "nemotron_h": (
        "NemotronH",
        "NemotronH",
        {
            **HEAD,
            "num_hidden_layers": 4,
            "layers_block_type": ["mamba", "attention", "mamba", "mlp"],
            "mamba_num_heads": 4,
            "mamba_head_dim": 16,
            "ssm_state_size": 16,
            "n_groups": 1,
            "chunk_size": 8,
        },
    ),
    "mamba2": (
        "Mamba2",
        "Mamba2",
        {
            "num_heads": 4,
            "head_dim": 16,
            "state_size": 16,
            "conv_kernel": 4,
            "expand": 2,
            "n_groups": 1,
            "chunk_size": 8,
        },
    ),
    "zamba2": (
        "Zamba2",
        "Zamba2",
        {
            "num_hidden_layers": 4,
            "layers_block_type": ["mamba", "hybrid"] * 2,
            "num_key_value_heads": 2,
            "mamba_d_state": 16,
            "mamba_expand": 2,
            "mamba_ngroups": 1,
            "n_mamba_heads": 4,
            "mamba_headdim": 16,
            "num_mem_blocks": 1,
            "chunk_size": 8,
            "adapter_rank": 8,
            "hybrid_layer_ids": [1, 3],
        },
    ),
    "mamba": ("Mamba", "Mamba", {"state_size": 8, "conv_kernel": 4}),
    "jamba": (
        "Jamba",
        "Jamba",
        {
            "num_hidden_layers": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
    ),
    "kimi_linear": (
        "KimiLinear",
        "KimiLinear",
        {
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention", FULL] * 2,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
            "num_key_value_heads": 2,
            "linear_head_dim": 16,
            "linear_num_heads": 2,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
        },
    ),
    "lfm3": (
        "Lfm3",
        "Lfm3",
        {**HEAD, "num_hidden_layers": 4, "conv_L_cache": 5, "sliding_window": 8},
    ),
    "xlstm": (
        "xLSTM",
        "xLSTM",
        {
            "hidden_size": 64,
            "embedding_dim": 64,
            "num_heads": 2,
            "chunk_size": 8,
            "qk_dim_factor": 1.0,
            "autocast_kernel_dtype": "float32",
        },
    ),
    "zaya": (
        "Zaya",
        "Zaya",
        {
            **HEAD,
            **WIDE,
            "num_hidden_layers": 4,
            "num_experts": 4,
            "num_experts_per_tok": 1,
            "moe_intermediate_size": 32,
            "router_hidden_size": 16,
        },
    ),
}


def make(name: str) -> torch.nn.Module:
    """A random model, whose weights are multiples of 1/8."""
    torch.manual_seed(0)
    if name == "rwkv7":
        from rwkv7 import Rwkv7

        return rounded(Rwkv7(VOCAB).eval())
    model, config, fields = MODELS[name]
    fields = {**BASE, **fields}
    if transformers.__version__ >= "5" and fields.get("rope_scaling") is ROTARY:
        fields["rope_scaling"] = {**ROTARY, "rope_type": "longrope"}
    whole = f"{model}ForCausalLM" if config else f"{model}ForConditionalGeneration"
    made = getattr(transformers, whole)(
        getattr(transformers, f"{config or model}Config")(
            **(fields if config else {**WITH_PICTURES, "text_config": fields})
        )
    )
    made = rounded(made.eval().float())
    options = made.generation_config
    options.eos_token_id, options.pad_token_id, options.do_sample = None, 0, False
    made.config.architectures = [whole]
    return made


def rounded(model: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.ndim == 1 and "A_log" not in key and key.split(".")[-1] not in ("D", "dt_bias"):
                p.add_(noise * 0.1)
            elif p.ndim > 1 and p.std() < 0.1:
                p.add_(noise * 0.2)
            p.copy_((p * 8).round() / 8)
    return model


def expected(model: torch.nn.Module) -> dict[str, object]:
    """What transformers generates: 24 tokens of each prompt, and 10 by 3 beams, where it can."""

    def after(ids: list[int], **options: object) -> list[int]:
        given = torch.tensor([ids])
        out = model.generate(given, attention_mask=torch.ones_like(given), **options)
        return out[0].tolist()[len(ids) :]

    if not hasattr(model, "generate"):
        from rwkv7 import greedy as loop

        return {"greedy": [loop(model, ids, 24) for ids in PROMPTS], "beams": None}
    with torch.no_grad():
        greedy = [after(ids, max_new_tokens=24) for ids in PROMPTS]
        if model.config.model_type in NO_BEAMS:
            return {"greedy": greedy, "beams": None}
        return {"greedy": greedy, "beams": after(PROMPTS[0], max_new_tokens=10, num_beams=3)}


def optimum(model: torch.nn.Module, folder: Path) -> onnx.ModelProto:
    from optimum.exporters.onnx import model_configs, model_patcher, onnx_export_from_model
    from transformers.models.mixtral import modeling_mixtral

    class Mixtral(model_patcher.Qwen3MoeModelPatcher):  # all experts, as for Qwen 3
        def __enter__(self):
            super().__enter__()
            block = modeling_mixtral.MixtralSparseMoeBlock
            block.forward, block.norm_topk_prob = model_patcher.qwen3_moe_forward_patched, True

    names = ("text-generation", "text-generation-with-past")
    for kind in ("glm4", "cohere2", "exaone4", "mixtral"):  # which optimum does not know
        fields = {"_MODEL_PATCHER": Mixtral} if kind == "mixtral" else {}
        made = type(kind, (model_configs.LlamaOnnxConfig,), fields)
        model_configs.register_tasks_manager_onnx(kind, *names)(made)
    task = "text-generation-with-past"
    onnx_export_from_model(model, str(folder), task=task, opset=18, do_validation=False)
    return onnx.load(str(folder / "model.onnx"))


def genai(model: torch.nn.Module, folder: Path) -> onnx.ModelProto:
    from onnxruntime_genai.models import builder
    from tokenizers import Tokenizer, models

    source, out = str(folder / "source"), str(folder / "out")
    model.save_pretrained(source)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCAB)}, "w0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(source)
    with contextlib.redirect_stdout(io.StringIO()):
        options = builder.parse_extra_options(source, source, out, "fp32", "cpu", "cache", [])
        builder.create_model(source, source, out, "fp32", "cpu", "cache", **options)
    return onnx.load(f"{out}/model.onnx")


def transformers5(model: torch.nn.Module, folder: Path) -> onnx.ModelProto:
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter
    from transformers.exporters.utils import decompose_for_generation

    ids = torch.tensor([PROMPTS[0]])
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    several = model.config.model_type not in ONE_TOKEN
    options = copy.deepcopy(model.generation_config)
    if model.static:
        options.cache_implementation, options.max_cache_len = "static", 64
    several = several and not model.static
    parts = decompose_for_generation(model, given, options, multi_token_decode=several)
    exporter = OnnxExporter()
    inputs = copy.deepcopy(parts["decode"][1])
    exported = exporter.export(model, inputs, OnnxConfig(dynamic=True))
    exporter.save_program(exported.program, folder / "model.onnx")
    return onnx.load(str(folder / "model.onnx"))


def torch_export(model: torch.nn.Module, folder: Path) -> onnx.ModelProto:
    if not hasattr(model, "generate"):
        from rwkv7 import export as write

        write(model, str(folder / "model.onnx"))
        return onnx.load(str(folder / "model.onnx"))
    from community import export

    export(model, folder, PROMPTS[0][:8])  # fewer than a window
    file = "decoder_model_merged.onnx" if (folder / "embed_tokens.onnx").exists() else "model.onnx"
    return onnx.load(str(folder / file))


# Types of models whose decoders transformers exports for one token at a time alone.
ONE_TOKEN = (
    "qwen3_next",
    "qwen3_5_text",
    "olmo_hybrid",
    "kimi_linear",
    "xlstm",
    "mamba",
    "jamba",
    "zaya",
)
NO_BEAMS = ("xlstm",)
# Files whose nodes keep the names of their modules.
SCOPES, WITH_SCOPES = "pkg.torch.onnx.name_scopes", ("transformers_cohere2_tied",)
EXPORTERS = {
    "optimum": optimum,
    "GenAI": genai,
    "transformers": transformers5,
    "torch": torch_export,
}


def store(model: onnx.ModelProto, name: str) -> None:
    for node in model.graph.node:
        node.doc_string = ""
        kept = [p for p in node.metadata_props if p.key == SCOPES and name in WITH_SCOPES]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    del model.graph.value_info[:]
    data = lzma.compress(model.SerializeToString(), preset=9)
    (HERE / f"{name}.onnx.xz").write_bytes(data)


def main(exporter: str, names: list[str]) -> None:
    path = HERE / "expected.json"
    for name in names:
        model = make(name.removesuffix("_static"))
        model.static = name.endswith("_static")  # whether its caches have a fixed size
        tokens = expected(model)
        folder = Path(tempfile.mkdtemp())
        store(EXPORTERS[exporter](model, folder), f"{exporter}_{name}")
        if (embedding := folder / "embed_tokens.onnx").exists():
            store(onnx.load(str(embedding)), f"{exporter}_{name}.embed")
        known = json.loads(path.read_text()) if path.exists() else {}
        config = json.loads(model.config.to_json_string()) if hasattr(model, "config") else {}
        kept = ("head_dim", "hidden_size", "num_attention_heads", "max_position_embeddings")
        kept += ("sliding_window",) if model.static else ()
        config = config.get("text_config", config)
        config = {k: config[k] for k in kept if k in config}
        known[f"{exporter}_{name}"] = {"config": config, **tokens}
        lines = (f'"{k}": {json.dumps(v)}' for k, v in sorted(known.items()))
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        shutil.rmtree(folder)
        print(exporter, name, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2:])

"""Families of language models, tiny and random, as four exporters write them (families/make.py):
tokens are those of transformers and of onnxruntime's loop.
"""

import json
import lzma
import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from edgewise import CausalLM, generate
from edgewise.logic.generation.speculation import Pace

HERE = Path(__file__).parent / "families"
EXPECTED = json.loads((HERE / "expected.json").read_text())
PROMPTS = ([1, *range(5, 15)], [1, *(3 + (i * i * 7 + i * 3) % 90 for i in range(36))])
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
# Tables that onnxruntime switches when a sequence grows beyond them, transformers for all tokens.
SWITCHED = {"GenAI_phi4_long"}
# Their chunked scans were traced for a number of tokens: onnxruntime runs others one by one.
ONE_BY_ONE = {
    f"transformers_{name}"
    for name in (
        "falcon_h1",
        "granite4h",
        "nemotron_h",
        "zamba2",
        "bamba",
        "olmo_hybrid",
        "qwen3_next",
        "jamba",
        "kimi_linear",
        "mamba",
        "mamba2",
        "qwen3_5",
        "xlstm",
        "zaya",
    )
} | {"torch_granite4h", "torch_qwen3_5", "torch_rwkv7"}
# Caches of a fixed size, which a loop in onnxruntime would have to choose.
STATIC = {"transformers_gemma3_static"}
MODELS = [
    pytest.param("GenAI_ernie4_5", marks=pytest.mark.family("ERNIE 4.5", exporter="GenAI")),
    pytest.param("GenAI_gpt_oss", marks=pytest.mark.family("gpt-oss", exporter="GenAI")),
    pytest.param("GenAI_granite", marks=pytest.mark.family("Granite", exporter="GenAI")),
    pytest.param("GenAI_granite4", marks=pytest.mark.family("Granite 4", exporter="GenAI")),
    pytest.param("GenAI_hunyuan", marks=pytest.mark.family("HunYuan", exporter="GenAI")),
    pytest.param("GenAI_lfm2", marks=pytest.mark.family("LFM2", exporter="GenAI")),
    pytest.param("GenAI_lfm2_moe", marks=pytest.mark.family("LFM2 MoE", exporter="GenAI")),
    pytest.param("GenAI_llama3", marks=pytest.mark.family("Llama 3", exporter="GenAI")),
    pytest.param("GenAI_mistral", marks=pytest.mark.family("Mistral", exporter="GenAI")),
    pytest.param("GenAI_nemotron", marks=pytest.mark.family("Nemotron", exporter="GenAI")),
    pytest.param("GenAI_phi4", marks=pytest.mark.family("Phi-4", exporter="GenAI")),
    pytest.param("GenAI_phi4_long", marks=pytest.mark.family("Phi-4", exporter="GenAI")),
    pytest.param("GenAI_qwen2", marks=pytest.mark.family("Qwen2", exporter="GenAI")),
    pytest.param("GenAI_qwen3", marks=pytest.mark.family("Qwen3", exporter="GenAI")),
    pytest.param("GenAI_qwen3_5_moe", marks=pytest.mark.family("Qwen3.5 MoE", exporter="GenAI")),
    pytest.param("GenAI_qwen3_5_text", marks=pytest.mark.family("Qwen3.5", exporter="GenAI")),
    pytest.param(
        "optimum_deepseek_v3", marks=pytest.mark.family("DeepSeek V3", exporter="optimum")
    ),
    pytest.param("optimum_gemma3", marks=pytest.mark.family("Gemma 3", exporter="optimum")),
    pytest.param("optimum_cohere", marks=pytest.mark.family("Cohere", exporter="optimum")),
    pytest.param("optimum_exaone4_full", marks=pytest.mark.family("EXAONE 4", exporter="optimum")),
    pytest.param("optimum_gemma2", marks=pytest.mark.family("Gemma 2", exporter="optimum")),
    pytest.param("optimum_glm4", marks=pytest.mark.family("GLM 4", exporter="optimum")),
    pytest.param("optimum_mixtral", marks=pytest.mark.family("Mixtral", exporter="optimum")),
    pytest.param("optimum_gemma3_six", marks=pytest.mark.family("Gemma 3", exporter="optimum")),
    pytest.param(
        "optimum_qwen3_moe_real", marks=pytest.mark.family("Qwen3 MoE", exporter="optimum")
    ),
    pytest.param(
        "transformers_cohere2_tied", marks=pytest.mark.family("Cohere 2", exporter="transformers")
    ),
    pytest.param("optimum_gpt_oss", marks=pytest.mark.family("gpt-oss", exporter="optimum")),
    pytest.param("optimum_granite", marks=pytest.mark.family("Granite", exporter="optimum")),
    pytest.param("optimum_llama3", marks=pytest.mark.family("Llama 3", exporter="optimum")),
    pytest.param("optimum_mistral", marks=pytest.mark.family("Mistral", exporter="optimum")),
    pytest.param("optimum_olmo2", marks=pytest.mark.family("OLMo 2", exporter="optimum")),
    pytest.param("optimum_phi4", marks=pytest.mark.family("Phi-4", exporter="optimum")),
    pytest.param("optimum_qwen2", marks=pytest.mark.family("Qwen2", exporter="optimum")),
    pytest.param("optimum_qwen3", marks=pytest.mark.family("Qwen3", exporter="optimum")),
    pytest.param("optimum_qwen3_moe", marks=pytest.mark.family("Qwen3 MoE", exporter="optimum")),
    pytest.param("optimum_smollm3", marks=pytest.mark.family("SmolLM3", exporter="optimum")),
    pytest.param(
        "transformers_apertus", marks=pytest.mark.family("Apertus", exporter="transformers")
    ),
    pytest.param("transformers_bamba", marks=pytest.mark.family("Bamba", exporter="transformers")),
    pytest.param(
        "transformers_cohere2", marks=pytest.mark.family("Cohere 2", exporter="transformers")
    ),
    pytest.param(
        "transformers_deepseek_v3", marks=pytest.mark.family("DeepSeek V3", exporter="transformers")
    ),
    pytest.param(
        "transformers_exaone4", marks=pytest.mark.family("EXAONE 4", exporter="transformers")
    ),
    pytest.param(
        "transformers_falcon_h1", marks=pytest.mark.family("Falcon-H1", exporter="transformers")
    ),
    pytest.param(
        "transformers_gemma3n", marks=pytest.mark.family("Gemma 3n", exporter="transformers")
    ),
    pytest.param(
        "transformers_gemma4", marks=pytest.mark.family("Gemma 4", exporter="transformers")
    ),
    pytest.param(
        "transformers_granite4h", marks=pytest.mark.family("Granite 4 H", exporter="transformers")
    ),
    pytest.param(
        "transformers_lfm2_moe", marks=pytest.mark.family("LFM2 MoE", exporter="transformers")
    ),
    pytest.param(
        "transformers_ministral3", marks=pytest.mark.family("Ministral 3", exporter="transformers")
    ),
    pytest.param(
        "transformers_mistral_window", marks=pytest.mark.family("Mistral", exporter="transformers")
    ),
    pytest.param(
        "transformers_nemotron_h", marks=pytest.mark.family("Nemotron-H", exporter="transformers")
    ),
    pytest.param("transformers_olmo3", marks=pytest.mark.family("OLMo 3", exporter="transformers")),
    pytest.param(
        "transformers_olmo_hybrid", marks=pytest.mark.family("OLMo Hybrid", exporter="transformers")
    ),
    pytest.param("transformers_phi4", marks=pytest.mark.family("Phi-4", exporter="transformers")),
    pytest.param(
        "transformers_qwen3_next", marks=pytest.mark.family("Qwen3-Next", exporter="transformers")
    ),
    pytest.param(
        "transformers_smollm3", marks=pytest.mark.family("SmolLM3", exporter="transformers")
    ),
    pytest.param(
        "transformers_zamba2", marks=pytest.mark.family("Zamba 2", exporter="transformers")
    ),
    pytest.param("transformers_jamba", marks=pytest.mark.family("Jamba", exporter="transformers")),
    pytest.param(
        "transformers_kimi_linear", marks=pytest.mark.family("Kimi Linear", exporter="transformers")
    ),
    pytest.param("transformers_lfm3", marks=pytest.mark.family("LFM3", exporter="transformers")),
    pytest.param("transformers_mamba", marks=pytest.mark.family("Mamba", exporter="transformers")),
    pytest.param(
        "transformers_mamba2", marks=pytest.mark.family("Mamba 2", exporter="transformers")
    ),
    pytest.param(
        "transformers_minicpm3", marks=pytest.mark.family("MiniCPM", exporter="transformers")
    ),
    pytest.param(
        "transformers_qwen3_5", marks=pytest.mark.family("Qwen3.5", exporter="transformers")
    ),
    pytest.param("transformers_xlstm", marks=pytest.mark.family("xLSTM", exporter="transformers")),
    pytest.param("transformers_zaya", marks=pytest.mark.family("Zaya", exporter="transformers")),
    pytest.param(
        "transformers_gemma3_static", marks=pytest.mark.family("Gemma 3", exporter="transformers")
    ),
    pytest.param(
        "transformers_ernie4_5", marks=pytest.mark.family("ERNIE 4.5", exporter="transformers")
    ),
    pytest.param(
        "transformers_gemma3", marks=pytest.mark.family("Gemma 3", exporter="transformers")
    ),
    pytest.param(
        "transformers_gpt_oss", marks=pytest.mark.family("gpt-oss", exporter="transformers")
    ),
    pytest.param(
        "transformers_granite4", marks=pytest.mark.family("Granite 4", exporter="transformers")
    ),
    pytest.param(
        "transformers_hunyuan", marks=pytest.mark.family("HunYuan", exporter="transformers")
    ),
    pytest.param(
        "transformers_nemotron", marks=pytest.mark.family("Nemotron", exporter="transformers")
    ),
    pytest.param("transformers_olmo2", marks=pytest.mark.family("OLMo 2", exporter="transformers")),
    pytest.param("transformers_qwen3", marks=pytest.mark.family("Qwen3", exporter="transformers")),
    pytest.param(
        "transformers_qwen3_moe", marks=pytest.mark.family("Qwen3 MoE", exporter="transformers")
    ),
    pytest.param("torch_gemma3n", marks=pytest.mark.family("Gemma 3n", exporter="torch")),
    pytest.param("torch_granite4h", marks=pytest.mark.family("Granite 4 H", exporter="torch")),
    pytest.param("torch_lfm2", marks=pytest.mark.family("LFM2", exporter="torch")),
    pytest.param("torch_qwen3_5", marks=pytest.mark.family("Qwen3.5", exporter="torch")),
    pytest.param("torch_rwkv7", marks=pytest.mark.family("RWKV 7", exporter="torch")),
]


def stored(name):
    """{file: bytes} of a model: its graphs and config.json."""
    graph = lzma.decompress((HERE / f"{name}.onnx.xz").read_bytes())
    files = {"config.json": json.dumps(EXPECTED[name]["config"]).encode()}
    if (embedding := HERE / f"{name}.embed.onnx.xz").exists():
        files["embed_tokens.onnx"] = lzma.decompress(embedding.read_bytes())
        return {**files, "decoder_model_merged.onnx": graph}
    return {**files, "model.onnx": graph}


class Loop:
    """A model in onnxruntime, greedily: a prompt at once, then one token after the other.

    Args:
        files: of the model, see `stored`.
        at_once: whether the prompt is; otherwise its tokens go one after the other, too.
    """

    def __init__(self, files, at_once):
        self.at_once, config = at_once, json.loads(files["config.json"])
        graphs = {n: onnxruntime.InferenceSession(d) for n, d in files.items() if "onnx" in n}
        self.embedding = graphs.pop("embed_tokens.onnx", None)
        [self.session] = graphs.values()
        heads = config.get("num_attention_heads", 1)
        self.head = config.get("head_dim") or config.get("hidden_size", 0) // heads
        outputs = [o.name for o in self.session.get_outputs()]
        by_name = {_bare(n): n for n in outputs if n != "logits"}
        self.inputs = {i.name: i for i in self.session.get_inputs()}
        self.pairs = {n: by_name[_bare(n)] for n in self.inputs if _bare(n) in by_name}

    def _first(self, info):
        """A state before the first token; a cache of a window has its rows."""
        shape = []
        for i, d in enumerate(info.shape):
            if info.name.endswith("conv_states.0") and i == 2 and not str(d).isdigit():
                d = 4  # the kernel
            known = isinstance(d, int) or d.isdigit()
            rows = 8 if d == "past_sliding_length" else 0
            shape.append(
                int(d) if known else self.head if d == "kv_cache_dim" else rows if i else 1
            )
        return np.zeros(shape, TYPES[info.type])

    def greedy(self, ids, count):
        states = {n: self._first(self.inputs[n]) for n in self.pairs}
        made, before = [], 0
        waiting = [list(ids)] if self.at_once else [[i] for i in ids]
        while len(made) < count:
            new = waiting.pop(0) if waiting else made[-1:]
            feeds = {"input_ids": [new], "attention_mask": np.ones((1, before + len(new)))}
            feeds["position_ids"] = [range(before, before + len(new))]
            if "position_ids" in self.inputs and len(self.inputs["position_ids"].shape) == 3:
                feeds["position_ids"] = [feeds["position_ids"]] * 3  # time, height and width
            ids = np.array([new], np.int64)
            feeds = {n: np.array(feeds[n], np.int64) for n in feeds if n in self.inputs}
            if self.embedding is not None:
                names = [o.name for o in self.embedding.get_outputs()]
                feeds |= zip(names, self.embedding.run(names, {"input_ids": ids}))
            outputs = ["logits", *self.pairs.values()]
            logits, *after = self.session.run(outputs, feeds | states)
            states, before = dict(zip(self.pairs, after)), before + len(new)
            if not waiting:
                made.append(int(logits.reshape(-1, logits.shape[-1])[-1].argmax()))
        return made


def _bare(name):
    words = r"past_key_values|present_key_values|past|present|input|output|out$|cache"
    return re.sub(r"[^a-z0-9]+", ".", re.sub(words, "", name)).strip(".")


@pytest.mark.parametrize("name", MODELS)
def test_tokens(tmp_path, monkeypatch, name):
    """Greedy ones of two prompts, alone, together and read ahead, and those of beams; of a prompt
    in two parts the logits.
    """
    known, files = EXPECTED[name], stored(name)
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    lm = CausalLM(tmp_path, capacity=96)
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}

    def made(*prompts, **more):
        rows = generate(lm, list(prompts), **options, **more)
        return [list(row[len(ids) :]) for ids, row in zip(prompts, rows)]

    loop = Loop(files, name not in ONE_BY_ONE) if name not in STATIC else None
    prompts = PROMPTS[:1] if name in SWITCHED else PROMPTS
    for ids, greedy in zip(prompts, known["greedy"]):
        assert loop is None or made(ids, max_new_tokens=24) == [loop.greedy(ids, 24)]
        assert name in SWITCHED or made(ids, max_new_tokens=24) == [greedy]
    if name in SWITCHED:
        return
    assert made(*PROMPTS, max_new_tokens=24) == known["greedy"]
    monkeypatch.setattr(Pace, "allows", lambda *_: True)
    ahead = {"max_new_tokens": 24, "prompt_lookup_num_tokens": 15}
    assert made(*PROMPTS, **ahead) == known["greedy"]
    if known["beams"]:
        assert made(PROMPTS[0], max_new_tokens=10, num_beams=3) == [known["beams"]]
    whole, parts = lm.open(), lm.open()
    at_once = np.array(lm.logits(lm.forward(whole, PROMPTS[1])))
    lm.forward(parts, PROMPTS[1][:17])
    np.testing.assert_allclose(lm.logits(lm.forward(parts, PROMPTS[1][17:])), at_once, atol=1e-4)


def test_a_folder_of_genai(tmp_path):
    """Without config.json: sizes and special tokens are in genai_config.json."""
    name = "GenAI_hunyuan"
    (tmp_path / "model.onnx").write_bytes(lzma.decompress((HERE / f"{name}.onnx.xz").read_bytes()))
    greedy = EXPECTED[name]["greedy"][0]
    config = {"model": {"eos_token_id": greedy[5], "decoder": {"head_size": 16}}}
    (tmp_path / "genai_config.json").write_text(json.dumps(config))
    lm = CausalLM(tmp_path, capacity=96)
    [made] = generate(lm, [PROMPTS[0]], max_new_tokens=24, do_sample=False)
    assert list(made[len(PROMPTS[0]) :]) == greedy[:6]


def test_all_files_are_run():
    names = {m.values[0] for m in MODELS}
    assert names == set(EXPECTED) == {p.name.split(".")[0] for p in HERE.glob("*.xz")}

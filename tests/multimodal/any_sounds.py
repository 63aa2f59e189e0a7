"""Tiny language models whose encoders hear sounds of any length, with random weights: folders, and
functions that answer as transformers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from .exporting import write, write_json, write_text
from .sounds import RATE, TEXT
from .tiny import spread, tokenizer

FLAT = (  # a template that takes texts alone
    "<s>{% for message in messages %}{{ message['role'] }} : {{ message['content'] }} \n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'a :' }}{% endif %}"
)
QWEN3_ASR = (  # that of Qwen3-ASR
    "<|im_start|>system\n{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
    "{% endif %}{% endfor %}<|im_end|>\n<|im_start|>user\n"
    "{% for m in messages %}{% if m.content is not string %}{% for c in m.content %}"
    "{% if c.type == 'audio' %}<|audio_start|><|audio_pad|><|audio_end|>{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}<|im_end|>\n"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass
class Told:
    """A model.

    Attributes:
        root: its folder.
        words: its tokenizer.
        token: stands for a sound in a prompt.
        features: from samples to features [count, hidden], by transformers.
        generate: from embeddings [1, n, hidden] and the number of tokens to new tokens.
        embed: from token ids to embeddings.
    """

    root: Path
    words: Any
    token: str
    features: Callable[[Any], Any]
    generate: Callable[[Any, int], list[int]]
    embed: Callable[[Any], Any]

    def answered(self, text: str, sounds: Sequence[Any], count: int) -> list[int]:
        """The tokens of a text with placeholders, prompt included."""
        rows = [self.features(one) for one in sounds]
        parts = text.split(self.token)
        assert len(parts) == len(sounds) + 1
        full = parts[0]
        for one, rest in zip(rows, parts[1:], strict=True):
            full += self.token * len(one) + rest
        ids = self.words(full, add_special_tokens=False, return_tensors="pt")["input_ids"]
        place = self.words.convert_tokens_to_ids(self.token)
        with torch.no_grad():
            embeds = self.embed(ids)
            if rows:
                embeds[0, ids[0] == place] = torch.cat(rows)
            return [*ids[0].tolist(), *self.generate(embeds, count)]


def _language(root: Path, special: Sequence[str], template: str) -> tuple[Any, Any, Any]:
    """A tokenizer, a Llama and its configuration, written to a folder."""
    from transformers import LlamaConfig, LlamaForCausalLM

    words = tokenizer(special, template)
    config = LlamaConfig(**TEXT, vocab_size=len(words))
    model = LlamaForCausalLM(config).eval()
    spread(model)
    write_text(root, model.model, model.lm_head, model.get_input_embeddings(), config)
    words.save_pretrained(root)
    fields = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
    write_json(root, "generation_config.json", fields)
    return words, model, config


def _generate(model: Any) -> Callable[[Any, int], list[int]]:
    def generate(embeds: Any, count: int) -> list[int]:
        mask = torch.ones(embeds.shape[:2], dtype=torch.int64)
        options = {"do_sample": False, "max_new_tokens": count, "eos_token_id": 2}
        out = model.generate(inputs_embeds=embeds, attention_mask=mask, pad_token_id=3, **options)
        found: list[int] = out[0].tolist()
        return found

    return generate


def _configured(root: Path, config: Mapping[str, Any], language: Any) -> None:
    write_json(root, "config.json", {**config, "text_config": language.to_dict()})


class _Stacked(torch.nn.Module):
    """Ultravox' audio tower: Whisper's encoder on what there is, and its projector of eight
    positions at a time.
    """

    def __init__(self, config: Any, hidden: int) -> None:
        super().__init__()
        from transformers.models.llama.modeling_llama import LlamaRMSNorm
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        self.tower, self.stack = WhisperEncoder(config), 8
        self.norm = LlamaRMSNorm(config.d_model * self.stack)
        self.first = torch.nn.Linear(config.d_model * self.stack, 2 * hidden, bias=False)
        self.second = torch.nn.Linear(hidden, hidden, bias=False)

    def forward(self, audio_values: Any) -> Any:
        x = F.gelu(self.tower.conv1(audio_values))
        x = F.gelu(self.tower.conv2(x)).permute(0, 2, 1)
        x = x + self.tower.embed_positions.weight[: x.shape[1]]
        for layer in self.tower.layers:
            x = layer(x, None, None)[0]
        x = self.tower.layer_norm(x)
        count = (x.shape[1] + self.stack - 1) // self.stack
        x = F.pad(x, (0, 0, 0, count * self.stack - x.shape[1]))
        x = self.first(self.norm(x.reshape(1, count, -1)))
        wide, gate = x.chunk(2, dim=-1)
        return self.second(F.silu(gate) * wide)


def ultravox(root: Path) -> Told:
    from transformers import WhisperConfig, WhisperFeatureExtractor

    torch.manual_seed(8)
    words, model, language = _language(root, ["<|audio|>"], FLAT)
    audio = WhisperConfig(
        num_mel_bins=80,
        max_source_positions=100,
        encoder_layers=2,
        encoder_attention_heads=4,
        d_model=16,
        encoder_ffn_dim=32,
    )
    tower = _Stacked(audio, 32).eval()
    spread(tower)
    extractor = WhisperFeatureExtractor(feature_size=80)
    extractor.save_pretrained(root)
    write_json(
        root,
        "processor_config.json",
        {"audio_placeholder": "<|audio|>", "encoder_ds_factor": 320, "stack_factor": 8},
    )
    _configured(root, {"model_type": "ultravox", "audio_config": audio.to_dict()}, language)
    example = {"audio_values": torch.randn(1, 80, 130)}
    axes = {"audio_values": {2: "frames"}}
    write(tower, example, ["audio_features"], axes, root / "onnx/audio_encoder.onnx")

    def features(samples: Any) -> Any:
        """In windows of as many positions as the encoder has."""
        found = []
        for at in range(0, len(samples), 32000):
            part = samples[at : at + 32000]
            if len(part) < 400:
                part = np.pad(part, (0, 400 - len(part)))
            options = {"sampling_rate": RATE, "return_tensors": "pt", "max_length": len(part)}
            values = extractor(part, **options)["input_features"]
            with torch.no_grad():
                found.append(tower(values)[0])
        return torch.cat(found)

    embed = model.get_input_embeddings()
    return Told(root, words, "<|audio|>", features, _generate(model), embed)


GRANITE = {
    "input_dim": 160,
    "num_layers": 2,
    "hidden_dim": 16,
    "feedforward_mult": 2,
    "num_heads": 2,
    "dim_head": 8,
    "output_dim": 10,
    "context_size": 20,
    "max_pos_emb": 32,
    "conv_kernel_size": 5,
}


GRANITE_FEATURES = {
    "feature_extractor_type": "GraniteSpeechFeatureExtractor",
    "melspec_kwargs": {
        "n_fft": 512,
        "win_length": 400,
        "hop_length": 160,
        "n_mels": 80,
        "sample_rate": 16000,
    },
    "processor_class": "GraniteSpeechProcessor",
    "projector_downsample_rate": 5,
    "projector_window_size": 15,
    "sampling_rate": 16000,
}


def _granite_attention(self: Any, hidden_states: Any, attention_dists: Any) -> Any:
    """GraniteSpeechConformerAttention.forward with sizes that are computed from the number of
    frames, where that has branches.
    """
    x = self.pre_norm(hidden_states)
    size, count = self.context_size, x.shape[1]
    blocks = (count + size - 1) // size
    x = F.pad(x, (0, 0, 0, blocks * size - count))
    key, value = self.to_kv(x).chunk(2, dim=-1)
    shape = (1, blocks, size, self.num_heads, self.dim_head)
    query, key, value = (t.reshape(shape).transpose(2, 3) for t in (self.to_q(x), key, value))
    places = self.rel_pos_emb(attention_dists)
    added = torch.einsum("b m h c d, c r d -> b m h c r", query, places) * self.scale
    inside = (torch.arange(blocks * size) < count).reshape(1, blocks, 1, 1, size)
    added = torch.where(inside, added, torch.finfo(torch.float32).min)
    scores = torch.matmul(query, key.transpose(-1, -2)) * self.scale + added
    out = torch.matmul(scores.softmax(-1), value).transpose(2, 3)
    return self.to_out(out.reshape(1, blocks * size, -1)[:, :count])


def _granite_projector(self: Any, hidden_states: Any) -> Any:
    """GraniteSpeechEncoderProjector.forward with sizes that are computed."""
    size, count = self.window_size, hidden_states.shape[1]
    blocks = (count + size - 1) // size
    x = F.pad(hidden_states, (0, 0, 0, blocks * size - count)).reshape(blocks, size, -1)
    found = self.qformer(query_embeds=self.query, encoder_hidden_states=x, return_dict=True)
    return self.linear(found.last_hidden_state.reshape(1, blocks * self.num_queries, -1))


def granite_speech(root: Path) -> Told:
    from transformers import GraniteSpeechConfig, GraniteSpeechForConditionalGeneration

    torch.manual_seed(9)
    words, language_model, language = _language(root, ["<|audio|>"], FLAT)
    projector = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "encoder_hidden_size": 16,
        "cross_attention_frequency": 1,
    }
    config = GraniteSpeechConfig(
        text_config={"model_type": "granite", **TEXT, "vocab_size": len(words)},
        encoder_config=GRANITE,
        projector_config={"model_type": "blip_2_qformer", **projector},
        has_lora_adapter=False,
    )
    model = GraniteSpeechForConditionalGeneration(config).eval()
    spread(model)
    _configured(root, {"model_type": "granite_speech"}, language)
    write_json(root, "preprocessor_config.json", GRANITE_FEATURES)
    write_json(root, "processor_config.json", {"audio_token": "<|audio|>"})

    class Audio(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_features: Any) -> Any:
            return self.model.get_audio_features(input_features)

    before = {}
    kinds = {type(model.encoder.layers[0].attn): _granite_attention}
    kinds[type(model.projector)] = _granite_projector
    for kind, forward in kinds.items():
        before[kind], kind.forward = kind.forward, forward
    try:
        example = {"input_features": torch.randn(1, 47, 160)}
        axes = {"input_features": {1: "frames"}}
        write(Audio(), example, ["audio_features"], axes, root / "onnx/audio_encoder.onnx")
    finally:
        for kind, forward in before.items():
            kind.forward = forward

    def features(samples: Any) -> Any:
        with torch.no_grad():
            found = model.get_audio_features(granite_features(samples))[0]
        # of GraniteSpeechFeatureExtractor._get_num_audio_features
        assert len(found) == -(-((len(samples) // 160 + 1) // 2) // 15) * 3
        return found

    embed = language_model.get_input_embeddings()
    return Told(root, words, "<|audio|>", features, _generate(language_model), embed)


def granite_features(samples: Any) -> Any:
    """GraniteSpeechFeatureExtractor._extract_mel_spectrograms, with torch.stft in the place of
    torchaudio.
    """
    from transformers.audio_utils import mel_filter_bank

    window = torch.hann_window(400)
    found = torch.stft(torch.from_numpy(samples), 512, 160, 400, window, return_complex=True)
    filters = torch.from_numpy(mel_filter_bank(257, 80, 0.0, 8000.0, RATE)).float()
    mel = (found.abs() ** 2).T @ filters
    log = mel[None].clip_(min=1e-10).log10_()
    log = torch.maximum(log, log.amax(dim=(-2, -1), keepdim=True) - 8.0).div_(4).add_(1)
    if log.shape[1] % 2 == 1:
        log = log[:, :-1]
    return log.reshape(1, -1, 160)


class _Omni(torch.nn.Module):
    """The encoder of Qwen3-ASR, which is Qwen3-Omni's, with masks for its windows."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_features: Any, input_features_mask: Any) -> Any:
        e = self.encoder
        size, mels = 2 * e.n_window, input_features.shape[1]
        x = input_features.reshape(mels, -1, size).permute(1, 0, 2).unsqueeze(1)
        for layer in (e.conv2d1, e.conv2d2, e.conv2d3):
            x = F.gelu(layer(x))
        x = x.permute(0, 3, 1, 2)
        per, width = x.shape[1], x.shape[2] * x.shape[3]
        x = e.conv_out(x.reshape(-1, per, width))
        x = x + e.positional_embedding.positional_embedding[:per]
        x = x.reshape(-1, x.shape[2])
        lengths = input_features_mask.reshape(-1, size).sum(-1)
        for _ in range(3):
            lengths = torch.where(lengths > 0, (lengths - 1) // 2 + 1, torch.zeros_like(lengths))
        valid = (torch.arange(per) < lengths[:, None]).reshape(-1)
        window = torch.arange(x.shape[0]) // (per * (e.n_window_infer // size))
        seen = (window[:, None] == window) & valid
        added = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
        for layer in e.layers:
            x = x + self.attention(layer.self_attn, layer.self_attn_layer_norm(x), added)
            inner = layer.fc1(layer.final_layer_norm(x))
            x = x + layer.fc2(layer.activation_fn(inner))
        return e.proj2(e.act(e.proj1(e.ln_post(x))))[None]

    def attention(self, of: Any, x: Any, added: Any) -> Any:
        parts = (of.q_proj(x), of.k_proj(x), of.v_proj(x))
        q, k, v = (t.reshape(-1, of.num_heads, of.head_dim).transpose(0, 1) for t in parts)
        scores = torch.matmul(q, k.transpose(1, 2)) * of.scaling + added
        out = torch.matmul(scores.softmax(-1), v).transpose(0, 1)
        return of.out_proj(out.reshape(-1, of.num_heads * of.head_dim))


def qwen3_asr(root: Path) -> Told:
    from transformers import Qwen3Config, Qwen3ForCausalLM, WhisperFeatureExtractor
    from transformers.models.qwen3_omni_moe import configuration_qwen3_omni_moe as configuration
    from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as modeling

    torch.manual_seed(10)
    special = [f"<|{n}|>" for n in ("audio_start", "audio_pad", "audio_end")]
    special += ["<|im_start|>", "<|im_end|>", "<asr_text>", "language", "English"]
    words = tokenizer(special, QWEN3_ASR)
    words.save_pretrained(root)
    language = Qwen3Config(**TEXT, head_dim=8, vocab_size=len(words))
    model = Qwen3ForCausalLM(language).eval()
    spread(model)
    write_text(root, model.model, model.lm_head, model.get_input_embeddings(), language)
    fields = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
    write_json(root, "generation_config.json", fields)
    audio = configuration.Qwen3OmniMoeAudioEncoderConfig(
        num_mel_bins=80,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=32,
        d_model=16,
        n_window=50,
        n_window_infer=200,
        output_dim=32,
        downsample_hidden_size=4,
    )
    encoder = modeling.Qwen3OmniMoeAudioEncoder(audio).eval()
    spread(encoder)
    _configured(root, {"model_type": "qwen3_asr", "audio_config": audio.to_dict()}, language)
    extractor = WhisperFeatureExtractor(feature_size=80)
    inner = {"feature_extractor_type": "Qwen3ASRFeatureExtractor", "feature_size": 80}
    inner |= {"n_window": 50, "min_length": 8000, "return_attention_mask": True}
    write_json(root, "processor_config.json", {"feature_extractor": inner})
    example = {
        "input_features": torch.randn(1, 80, 300),
        "input_features_mask": torch.ones(1, 300, dtype=torch.int64),
    }
    axes = {name: {len(example[name].shape) - 1: "frames"} for name in example}
    write(_Omni(encoder), example, ["audio_features"], axes, root / "onnx/audio_encoder.onnx")

    def features(samples: Any) -> Any:
        samples = np.pad(samples, (0, max(0, 8000 - len(samples))))
        options = {"sampling_rate": RATE, "return_tensors": "pt", "max_length": len(samples)}
        values = extractor(samples, **options)["input_features"][0]
        with torch.no_grad():
            return encoder(values, feature_lens=torch.tensor([values.shape[1]])).last_hidden_state

    embed = model.get_input_embeddings()
    return Told(root, words, "<|audio_pad|>", features, _generate(model), embed)


TOLD_MODELS: dict[str, Callable[[Path], Told]] = {
    "ultravox": ultravox,
    "granite_speech": granite_speech,
    "qwen3_asr": qwen3_asr,
}

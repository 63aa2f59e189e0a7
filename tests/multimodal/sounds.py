"""Tiny language models that hear, with random weights, as folders and as models of transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .exporting import write, write_text
from .tiny import Tiny, saved, spread, tokenizer

SIZE = 32000  # samples of a window
RATE = 16000
QUESTION = {"type": "text", "text": "what is in this"}
TEMPLATE = (
    "<s>{% for message in messages %}{{ message['role'] }} :"
    "{% if message['content'] is string %} {{ message['content'] }}{% else %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %} {{ line['text'] }}"
    "{% elif line['type'] == 'audio' %} AUDIO {% endif %}{% endfor %}{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'a :' }}{% endif %}"
)
AUDIO = {
    "num_mel_bins": 80,
    "max_source_positions": 100,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 3,
}


def sound(count: int, seed: int) -> np.ndarray[Any, Any]:
    """A changing tone: float32 [count]."""
    generator = np.random.default_rng(seed)
    pitch = np.repeat(generator.uniform(100, 3000, count // 1600 + 1), 1600)[:count]
    return (0.3 * np.sin(np.cumsum(2 * np.pi * pitch / RATE))).astype(np.float32)


def extractor() -> Any:
    """Whisper's, of windows of 2 s."""
    from transformers import WhisperFeatureExtractor

    return WhisperFeatureExtractor(feature_size=80, chunk_length=2)


def _export(root: Path, module: Any, masked: bool) -> None:
    inputs: dict[str, Any] = {"input_features": torch.randn(1, 80, 200)}
    if masked:
        inputs["feature_attention_mask"] = torch.ones(1, 200, dtype=torch.int64)
    else:
        inputs = {"audio_values": inputs["input_features"]}
    axes = {name: {0: "batch_size"} for name in inputs}
    write(module, inputs, ["audio_features"], axes, root / "onnx/audio_encoder.onnx")


class _Processor:
    """What is saved, where the processor of transformers needs other packages."""

    def __init__(self, words: Any) -> None:
        self.tokenizer, self.features = words, extractor()

    def save_pretrained(self, root: Path) -> None:
        self.tokenizer.save_pretrained(root)
        self.features.save_pretrained(root)


def voxtral(root: Path) -> Tiny:
    from transformers import VoxtralConfig, VoxtralForConditionalGeneration

    special = ["[AUDIO]", "[BEGIN_AUDIO]", "[INST]", "[/INST]", "lang:en", "[TRANSCRIBE]"]
    words = tokenizer(special, TEMPLATE.replace("AUDIO", "[AUDIO]"))
    config = VoxtralConfig(
        audio_config={**AUDIO, "hidden_size": 16, "intermediate_size": 64},
        text_config={"model_type": "llama", **TEXT, "vocab_size": len(words)},
        audio_token_id=words.convert_tokens_to_ids("[AUDIO]"),
    )
    torch.manual_seed(6)
    model = VoxtralForConditionalGeneration(config).eval()
    spread(model)

    class Audio(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, audio_values: Any) -> Any:
            return self.model.get_audio_features(audio_values)

    _export(root, Audio(), False)
    text = model.language_model
    write_text(root, text.model, text.lm_head, model.get_input_embeddings(), config.text_config)
    return saved(root, model, _Processor(words))


def qwen2_audio(root: Path) -> Tiny:
    from transformers import Qwen2AudioConfig, Qwen2AudioForConditionalGeneration

    words = tokenizer(["<|AUDIO|>"], TEMPLATE.replace("AUDIO", "<|AUDIO|>"))
    config = Qwen2AudioConfig(
        audio_config={**AUDIO, "d_model": 16, "encoder_ffn_dim": 32},
        text_config={"model_type": "qwen2", **TEXT, "vocab_size": len(words)},
        audio_token_index=words.convert_tokens_to_ids("<|AUDIO|>"),
    )
    torch.manual_seed(7)
    model = Qwen2AudioForConditionalGeneration(config).eval()
    spread(model)

    class Audio(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_features: Any, feature_attention_mask: Any) -> Any:
            """As in Qwen2AudioForConditionalGeneration.forward."""
            count = (feature_attention_mask.sum(-1) - 1) // 2 + 1
            outside = torch.arange(100)[None] >= count[:, None]
            mask = torch.where(outside, -1e9, 0.0)[:, None, None].expand(-1, 1, 100, 100)
            found = self.model.audio_tower(input_features, attention_mask=mask)
            return self.model.multi_modal_projector(found.last_hidden_state)

    _export(root, Audio(), True)
    text = model.language_model
    write_text(root, text.model, text.lm_head, model.get_input_embeddings(), config.text_config)
    return saved(root, model, _Processor(words))


SOUND_MODELS: dict[str, Callable[[Path], Tiny]] = {"voxtral": voxtral, "qwen2_audio": qwen2_audio}


def messages(count: int) -> list[dict[str, Any]]:
    """A question about so many sounds."""
    parts: list[dict[str, Any]] = [{"type": "audio"}] * count
    return [{"role": "user", "content": [*parts, QUESTION]}]


def answered(model: Tiny, sounds: list[Any], count: int, text: str | None = None) -> list[int]:
    """The tokens of transformers, prompt included. text: instead of a chat."""
    words, features = model.processor.tokenizer, model.processor.features
    text = text or words.apply_chat_template(
        messages(len(sounds)), add_generation_prompt=True, tokenize=False
    )
    given: dict[str, Any] = {}
    if type(model.model).__name__.startswith("Voxtral"):
        token, first = "[AUDIO]", "[BEGIN_AUDIO]"
        windows = [[s[i : i + SIZE] for i in range(0, len(s), SIZE)] for s in sounds]
        texts = [first + token * (25 * len(w)) for w in windows]
        flat = [w for of in windows for w in of]
        if flat:
            made = features(flat, sampling_rate=RATE, return_tensors="pt")
            given["input_features"] = made["input_features"]
    else:
        token = "<|AUDIO|>"
        options = {"sampling_rate": RATE, "return_tensors": "pt", "return_attention_mask": True}
        made = features(sounds, **options) if sounds else {}
        texts = []
        if sounds:
            given = {"input_features": made["input_features"]}
            given["feature_attention_mask"] = made["attention_mask"]
            inner = (made["attention_mask"].sum(-1) - 1) // 2 + 1
            texts = [token * int(n) for n in (inner - 2) // 2 + 1]
    parts = text.split(token)
    text = parts[0] + "".join(one + rest for one, rest in zip(texts, parts[1:], strict=True))
    ids = words(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        out = model.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            do_sample=False,
            **given,
        )
    found: list[int] = out[0].tolist()
    return found

"""Tiny vision-language models in which tokens see others that come after them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .any_size import TEXT
from .exporting import write, write_text
from .tiny import IDEFICS3_TEMPLATE, Tiny, saved, spread, tokenizer

VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 64,
    "patch_size": 8,
}
GEMMA_TEMPLATE = IDEFICS3_TEMPLATE.replace("{{ '<image>' }}", "{{ '<start_of_image>' }}")
PALIGEMMA_TEMPLATE = (
    "{% for message in messages %}{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for line in message['content'] %}{% if line['type'] == 'text' %}"
    "{{ line['text'] }}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}"
    "{% endif %}{% endfor %}"
)


class Vision(torch.nn.Module):
    """An encoder of squares, and what makes features of its numbers."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Any) -> Any:
        return self.model.get_image_features(pixel_values)


def write_vision(root: Path, model: Any, side: int = 64) -> None:
    write(
        Vision(model),
        {"pixel_values": torch.randn(1, 3, side, side)},
        ["image_features"],
        {"pixel_values": {0: "batch_size"}, "image_features": {0: "batch_size"}},
        root / "onnx/vision_encoder.onnx",
    )


def own_head(model: Any) -> None:
    """Other weights than those of the embeddings, with which the last token would follow itself."""
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))


def gemma3(root: Path, masks: str) -> Tiny:
    """Gemma 3: the tokens of a picture see each other. masks: as of exporting.Decoder."""
    from transformers import (
        Gemma3Config,
        Gemma3ForConditionalGeneration,
        Gemma3ImageProcessor,
        Gemma3Processor,
    )

    special = ["<start_of_image>", "<image_soft_token>", "<end_of_image>"]
    words = tokenizer(special, GEMMA_TEMPLATE)
    words.boi_token, words.image_token, words.eoi_token = special
    words.image_token_id = words.convert_tokens_to_ids(special[1])
    words.init_kwargs.update(dict(zip(("boi_token", "image_token", "eoi_token"), special)))
    config = Gemma3Config(
        text_config={
            **TEXT,
            "model_type": "gemma3_text",
            "head_dim": 8,
            "vocab_size": len(words),
            "layer_types": ["sliding_attention", "full_attention"],
            # a picture has 16 tokens
            "sliding_window": 20 if masks == "windows" else 4096,
            "query_pre_attn_scalar": 1,
        },
        vision_config=VISION,
        mm_tokens_per_image=16,
        image_token_index=words.image_token_id,
        boi_token_index=words.convert_tokens_to_ids(special[0]),
        eoi_token_index=words.convert_tokens_to_ids(special[2]),
    )
    torch.manual_seed(13)
    model = Gemma3ForConditionalGeneration(config).eval()
    spread(model)
    with torch.no_grad():
        model.model.multi_modal_projector.mm_input_projection_weight.normal_()
    own_head(model)
    pictures = Gemma3ImageProcessor(size={"height": 64, "width": 64})
    processor = Gemma3Processor(pictures, words, image_seq_length=16)
    write_vision(root, model.model)
    write_text(
        root,
        model.model.language_model,
        model.lm_head,
        model.get_input_embeddings(),
        config.text_config,
        masks=masks,
    )
    return saved(root, model, processor)


def paligemma(root: Path, masks: str) -> Tiny:
    """PaliGemma: all tokens of a prompt see each other."""
    from transformers import (
        PaliGemmaConfig,
        PaliGemmaForConditionalGeneration,
        PaliGemmaProcessor,
        SiglipImageProcessor,
    )

    class Processor(PaliGemmaProcessor):  # type: ignore[misc]
        """With any tokenizer."""

        tokenizer_class = "PreTrainedTokenizerFast"

    words = tokenizer(["<image>"], PALIGEMMA_TEMPLATE)
    config = PaliGemmaConfig(
        text_config={
            **TEXT,
            "model_type": "gemma",
            "head_dim": 8,
            "vocab_size": len(words) + 1200,  # the processor adds tokens of places
        },
        vision_config={**VISION, "projection_dim": 32},
        image_token_index=words.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        hidden_size=32,
    )
    torch.manual_seed(17)
    model = PaliGemmaForConditionalGeneration(config).eval()
    spread(model)
    own_head(model)
    pictures = SiglipImageProcessor(size={"height": 64, "width": 64})
    pictures.image_seq_length = 64
    processor = Processor(pictures, words)
    write_vision(root, model.model)
    write_text(
        root,
        model.model.language_model,
        model.lm_head,
        model.get_input_embeddings(),
        config.text_config,
        masks=masks,
    )
    return saved(root, model, processor)


MODELS: dict[str, Callable[[Path], Tiny]] = {
    "gemma3": lambda root: gemma3(root, "types"),
    "gemma3-pairs": lambda root: gemma3(root, "pairs"),
    "gemma3-windows": lambda root: gemma3(root, "windows"),
    "paligemma": lambda root: paligemma(root, "prefix"),
    "paligemma-pairs": lambda root: paligemma(root, "pairs"),
}

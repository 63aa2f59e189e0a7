"""Tiny vision-language models of further families whose encoder sees squares of one size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .any_size import TEXT
from .both_ways import VISION, own_head
from .exporting import write, write_json, write_text
from .tiny import IDEFICS3_TEMPLATE, LLAVA_TEMPLATE, Tiny, idefics3, saved, spread, tokenizer

SIZES = [[32 * rows, 32 * columns] for rows in (1, 2, 3) for columns in (1, 2, 3)]


class Tiles(torch.nn.Module):
    """The encoder of LLaVA-OneVision for squares: the features of each, and the one that ends a
    row, as the exports for transformers.js have it, or as an output of its own.
    """

    def __init__(self, model: Any, apart: bool) -> None:
        super().__init__()
        self.model, self.apart = model, apart

    def forward(self, pixel_values: Any) -> Any:
        model, config = self.model, self.model.config
        found = model.vision_tower(pixel_values, output_hidden_states=True)
        states = found.hidden_states[config.vision_feature_layer]
        if config.vision_feature_select_strategy == "default":
            states = states[:, 1:]
        features = model.multi_modal_projector(states)
        if self.apart:
            return features, model.image_newline * 1.0
        line = model.image_newline.expand(features.shape[0], 1, -1)
        return torch.cat([features, line], 1)


def write_tiles(root: Path, model: Any, apart: bool = False) -> None:
    write(
        Tiles(model, apart),
        {"pixel_values": torch.randn(1, 3, 32, 32)},
        ["image_features", "image_newline"] if apart else ["image_features"],
        {"pixel_values": {0: "batch_size"}, "image_features": {0: "batch_size"}},
        root / "onnx/vision_encoder.onnx",
    )


def made(root: Path, model: Any, processor: Any, apart: bool = False) -> Tiny:
    write_tiles(root, model.model, apart)
    write_text(
        root,
        model.model.language_model,
        model.lm_head,
        model.get_input_embeddings(),
        model.config.text_config,
    )
    return saved(root, model, processor)


def onevision(root: Path) -> Tiny:
    """LLaVA-OneVision: tiles without their padding, and fewer features of those that are many."""
    from transformers import (
        LlavaOnevisionConfig,
        LlavaOnevisionForConditionalGeneration,
        LlavaOnevisionImageProcessor,
        LlavaOnevisionProcessor,
        ProcessorMixin,
    )

    class Processor(LlavaOnevisionProcessor):  # type: ignore[misc]
        """Without videos, which need torchvision."""

        attributes = ("image_processor", "tokenizer")
        tokenizer_class = "PreTrainedTokenizerFast"

        def __init__(self, pictures: Any, words: Any) -> None:
            self.num_image_tokens, self.vision_feature_select_strategy = 16, "full"
            self.image_token, self.video_token = "<image>", "<video>"
            self.image_token_id = words.convert_tokens_to_ids("<image>")
            self.vision_aspect_ratio = "anyres_max_2"
            ProcessorMixin.__init__(self, pictures, words)

    words = tokenizer(["<image>", "<video>"], LLAVA_TEMPLATE)
    config = LlavaOnevisionConfig(
        text_config={**TEXT, "model_type": "qwen2", "vocab_size": len(words)},
        vision_config={**VISION, "image_size": 32, "vision_use_head": False},
        image_token_index=words.convert_tokens_to_ids("<image>"),
        video_token_index=words.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=SIZES,
        vision_aspect_ratio="anyres_max_2",
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    torch.manual_seed(19)
    model = LlavaOnevisionForConditionalGeneration(config).eval()
    spread(model)
    own_head(model)
    pictures = LlavaOnevisionImageProcessor(
        size={"height": 32, "width": 32}, image_grid_pinpoints=SIZES
    )
    return made(root, model, Processor(pictures, words))


def llava_next(root: Path) -> Tiny:
    """LLaVA-NeXT, of whose tiles all features are kept."""
    from transformers import (
        LlavaNextConfig,
        LlavaNextForConditionalGeneration,
        LlavaNextImageProcessor,
        LlavaNextProcessor,
    )

    words = tokenizer(["<image>"], LLAVA_TEMPLATE)
    config = LlavaNextConfig(
        text_config={**TEXT, "model_type": "llama", "vocab_size": len(words)},
        vision_config={
            **VISION,
            "model_type": "clip_vision_model",
            "image_size": 32,
            "projection_dim": 32,
        },
        image_token_index=words.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=SIZES[1:],
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
    )
    torch.manual_seed(23)
    model = LlavaNextForConditionalGeneration(config).eval()
    spread(model)
    pictures = LlavaNextImageProcessor(
        size={"shortest_edge": 32},
        crop_size={"height": 32, "width": 32},
        image_grid_pinpoints=SIZES[1:],
    )
    processor = LlavaNextProcessor(
        pictures,
        words,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    return made(root, model, processor, apart=True)


JANUS_TEMPLATE = IDEFICS3_TEMPLATE.replace("<image>", "<image_placeholder>")


# long: a configuration
def janus(root: Path) -> Tiny:
    """Janus, of which the understanding of pictures."""
    from transformers import (
        JanusConfig,
        JanusForConditionalGeneration,
        JanusImageProcessor,
        JanusProcessor,
    )

    from .both_ways import write_vision

    class Processor(JanusProcessor):  # type: ignore[misc]
        """With any tokenizer, and a picture of few tokens."""

        tokenizer_class = "PreTrainedTokenizerFast"

        def __init__(self, *given: Any, **fields: Any) -> None:
            super().__init__(*given, **fields)
            self.num_image_tokens = 16

    special = ["<image_placeholder>", "<begin_of_image>", "<end_of_image>"]
    words = tokenizer(special, JANUS_TEMPLATE)
    words.image_token, words.boi_token, words.eoi_token = special
    config = JanusConfig(
        text_config={**TEXT, "model_type": "llama", "vocab_size": len(words)},
        vision_config={
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
            "mlp_ratio": 2.0,
            "projection_dim": 32,
            "depth": 2,
            "num_image_tokens": 16,
        },
        vq_config={
            "embed_dim": 8,
            "num_embeddings": 16,
            "latent_channels": 8,
            "num_patches": 4,
            "base_channels": 32,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 1,
            "projection_dim": 32,
            "image_token_embed_dim": 32,
        },
        image_token_id=words.convert_tokens_to_ids(special[0]),
        attn_implementation="eager",  # an exporter has no other for its encoder
    )
    torch.manual_seed(29)
    model = JanusForConditionalGeneration(config).eval()
    spread(model)
    pictures = JanusImageProcessor(size={"height": 32, "width": 32}, min_size=8)
    processor = Processor(pictures, words)
    write_vision(root, model.model, 32)
    write_text(
        root,
        model.model.language_model,
        model.lm_head,
        model.get_input_embeddings(),
        config.text_config,
    )
    return saved(root, model, processor)


class Prepared(torch.nn.Module):
    """Token ids and pictures in one graph, as the exports of Janus for transformers.js have it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Any, pixel_values: Any, images_seq_mask: Any, images_emb_mask: Any
    ) -> Any:
        features = self.model.get_image_features(pixel_values.flatten(0, 1))
        features = features.reshape(pixel_values.shape[0], -1, features.shape[-1])
        ids = torch.where(input_ids < 0, 0, input_ids)
        embeds = self.model.get_input_embeddings()(ids)
        embeds[images_seq_mask] = features[images_emb_mask.flatten(1)]
        return embeds


def janus_parts(root: Path) -> Tiny:
    """Janus as transformers.js divides it, with the files of its first form."""
    found = janus(root)
    model, onnx = found.model, root / "onnx"
    for file in onnx.iterdir():
        file.unlink()
    write_text(
        root,
        model.model.language_model,
        torch.nn.Identity(),
        model.get_input_embeddings(),
        model.config.text_config,
        file="language_model",
        output="last_hidden_state",
    )
    (onnx / "embed_tokens.onnx").unlink()
    write(
        model.lm_head,
        {"hidden_states": torch.randn(1, 3, 32)},
        ["logits"],
        {"hidden_states": {1: "sequence_length"}, "logits": {1: "sequence_length"}},
        onnx / "lm_head.onnx",
    )
    masks = torch.zeros(1, 20, dtype=torch.bool), torch.ones(1, 1, 16, dtype=torch.bool)
    masks[0][:, 2:18] = True
    write(
        Prepared(model.model),
        {
            "input_ids": torch.arange(20)[None],
            "pixel_values": torch.randn(1, 1, 3, 32, 32),
            "images_seq_mask": masks[0],
            "images_emb_mask": masks[1],
        },
        ["inputs_embeds"],
        {
            "input_ids": {0: "batch_size", 1: "sequence_length"},
            "pixel_values": {0: "batch_size", 1: "num_images"},
            "images_seq_mask": {0: "batch_size", 1: "sequence_length"},
            "images_emb_mask": {0: "batch_size", 1: "num_images"},
        },
        onnx / "prepare_inputs_embeds.onnx",
    )
    config = model.config.to_dict()
    fields = {"model_type": "multi_modality", "language_config": config["text_config"]}
    write_json(root, "config.json", {**fields, "vision_config": {"model_type": "vision"}})
    given = found.processor.image_processor
    image = {"image_processor_type": "VLMImageProcessor", "image_size": 32, "min_size": 8}
    image |= {"background_color": list(given.background_color), "rescale_factor": 1 / 255}
    image |= {
        "image_mean": list(given.image_mean),
        "image_std": list(given.image_std),
        "do_normalize": True,
    }
    write_json(root, "preprocessor_config.json", image)
    tags = ("image_tag", "image_start_tag", "image_end_tag")
    words = dict(zip(tags, ("<image_placeholder>", "<begin_of_image>", "<end_of_image>")))
    words |= {"processor_class": "VLChatProcessor"}
    write_json(root, "processor_config.json", {**words, "num_image_tokens": 16})
    return found


GRANITE_TEMPLATE = (
    "{%- for message in messages -%}{{- '<|start_of_role|>' + message['role'] +"
    " '<|end_of_role|>' -}}{%- if message['content'] is string -%}{{- message['content'] -}}"
    "{%- else -%}{%- for part in message['content'] -%}{%- if part['type'] == 'text' -%}"
    "{{- part['text'] -}}{%- elif part['type'] == 'image' -%}{{- '<image>' -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}{{- '<|end_of_text|>' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|start_of_role|>assistant' -}}"
    "{{- '<|end_of_role|>' -}}{%- endif -%}"
)
DOCTAGS = ["<doctag>", "</doctag>", *(f"<loc_{i}>" for i in range(30)), "<text>", "</text>"]


def granite_docling(root: Path) -> Tiny:
    """Granite-Docling: Idefics3 with Granite's messages, whose answers are special tokens."""
    roles = ["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"]
    return idefics3(root, template=GRANITE_TEMPLATE, more=[*roles, *DOCTAGS])


MODELS: dict[str, Callable[[Path], Tiny]] = {
    "onevision": onevision,
    "llava-next": llava_next,
    "janus": janus,
    "janus-parts": janus_parts,
    "granite-docling": granite_docling,
}

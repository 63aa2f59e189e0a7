"""A tiny LFM2-VL: tiles and a thumbnail of patches of SigLIP 2 (NaFlex), which are filled up with
zeros, and a language model with states of convolutions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from .exporting import write, write_json
from .tiny import IDEFICS3_TEMPLATE, Tiny, spread, tokenizer

PATCH, TILE = 8, 32
FIELDS = {
    "image_processor_type": "Lfm2VlImageProcessorFast",
    "encoder_patch_size": PATCH,
    "tile_size": TILE,
    "downsample_factor": 2,
    "min_image_tokens": 2,
    "max_image_tokens": 8,
    "min_tiles": 2,
    "max_tiles": 4,
}
VISION = ("pixel_values", "pixel_attention_mask", "spatial_shapes")


class Vision(torch.nn.Module):
    """The encoder without loops over tiles, which an export would unroll: the features of all
    tiles, one after the other.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Any, pixel_attention_mask: Any, spatial_shapes: Any) -> Any:
        found = self.model.vision_tower(
            pixel_values=pixel_values,
            spatial_shapes=spatial_shapes,
            pixel_attention_mask=pixel_attention_mask,
        ).last_hidden_state
        height, width = spatial_shapes[:, :1], spatial_shapes[:, 1:]
        at = torch.arange(found.shape[1] // 4)[None]
        across = width // 2
        row, column = 2 * torch.div(at, across, rounding_mode="floor"), 2 * (at % across)
        first = row * width + column
        real = at < height // 2 * across
        squares = torch.stack([first, first + 1, first + width, first + width + 1], -1)
        squares = torch.where(real[..., None], squares, 0).flatten(1)
        rows = found.gather(1, squares[..., None].expand(-1, -1, found.shape[-1]))
        rows = rows.reshape(found.shape[0], -1, 4 * found.shape[-1])
        project = self.model.multi_modal_projector
        rows = project.linear_2(project.act(project.linear_1(project.layer_norm(rows))))
        return rows[real]


class Decoder(torch.nn.Module):
    """The language model, of embeddings, with past_conv.N and past_key_values.N."""

    def __init__(self, model: Any, head: Any) -> None:
        super().__init__()
        self.model, self.head, self.kinds = model, head, model.config.layer_types

    def forward(self, embeds: Any, mask: Any, positions: Any, *states: Any) -> tuple[Any, ...]:
        rest, made, past = list(states), {}, {}
        for layer, kind in enumerate(self.kinds):
            past[layer] = [rest.pop(0) for _ in range(2 if kind == "full_attention" else 1)]

        class Cache:
            """What attention asks."""

            def update(self, key: Any, value: Any, layer: int, more: Any = None) -> Any:
                before = past[layer]
                made[layer] = [torch.cat([x, y], 2) for x, y in zip(before, (key, value))]
                return made[layer]

        def convolved(own: Any, layer: int) -> Any:
            def forward(hidden_states: Any, **more: Any) -> Any:
                b, c, x = own.in_proj(hidden_states).transpose(-1, -2).chunk(3, dim=-2)
                whole = torch.cat([past[layer][0], b * x], -1)
                made[layer] = [whole[..., -own.L_cache :]]
                weight = own.conv.weight
                out = torch.nn.functional.conv1d(whole[..., 1:], weight, groups=weight.shape[0])
                return own.out_proj((c * out).transpose(-1, -2))

            return forward

        layers = self.model.layers
        for layer, kind in enumerate(self.kinds):
            if kind == "conv":
                layers[layer].conv.forward = convolved(layers[layer].conv, layer)
        columns = torch.arange(mask.shape[1])
        queries = columns[mask.shape[1] - embeds.shape[1] :]
        seen = (columns[None] <= queries[:, None]) & (mask[:, None, None, :] > 0)
        turned = self.model.pos_emb(embeds, positions)
        x, cache = embeds, Cache()
        for layer in layers:
            x = layer(
                x,
                attention_mask=torch.where(seen, 0.0, torch.finfo(torch.float32).min),
                position_ids=positions,
                past_key_values=cache,
                cache_position=queries,
                position_embeddings=turned,
            )
        for layer, kind in enumerate(self.kinds):
            if kind == "conv":
                del layers[layer].conv.forward
        logits = self.head(self.model.embedding_norm(x))
        return (logits, *[one for layer in range(len(self.kinds)) for one in made[layer]])


def write_decoder(root: Path, model: Any, head: Any, config: Any) -> None:
    """Writes decoder_model_merged.onnx."""
    inputs: dict[str, Any] = {
        "inputs_embeds": torch.randn(1, 3, config.hidden_size),
        "attention_mask": torch.ones(1, 5, dtype=torch.int64),
        "position_ids": torch.tensor([[2, 3, 4]]),
    }
    axes: dict[str, dict[int, str]] = {
        "inputs_embeds": {0: "batch_size", 1: "sequence_length"},
        "attention_mask": {0: "batch_size", 1: "total_sequence_length"},
        "position_ids": {0: "batch_size", 1: "sequence_length"},
        "logits": {0: "batch_size", 1: "sequence_length"},
    }
    names = ["logits"]
    for layer, kind in enumerate(config.layer_types):
        if kind == "conv":
            inputs[f"past_conv.{layer}"] = torch.randn(1, config.hidden_size, config.conv_L_cache)
            axes[f"past_conv.{layer}"] = {0: "batch_size"}
            names.append(f"present_conv.{layer}")
            continue
        size = config.hidden_size // config.num_attention_heads
        for name in ("key", "value"):
            past = f"past_key_values.{layer}.{name}"
            inputs[past] = torch.randn(1, config.num_key_value_heads, 2, size)
            axes[past] = {0: "batch_size", 2: "past_sequence_length"}
            names.append(f"present.{layer}.{name}")
            axes[names[-1]] = {0: "batch_size", 2: "total_sequence_length"}
    write(Decoder(model, head), inputs, names, axes, root / "onnx/decoder_model_merged.onnx")


def processor_of(words: Any, extra: dict[str, str]) -> Any:
    """transformers' processor, with the numbers of Edgewise's own: transformers' needs torchvision,
    from which it differs by up to two levels (tests/conformance/make_picture_prompts.py).
    """
    from edgewise.host.pipelines.images.vision import VisionProcessor
    from transformers import Lfm2VlProcessor

    class Processor(Lfm2VlProcessor):  # type: ignore[misc]
        def __init__(self) -> None:
            self.own = VisionProcessor(FIELDS)
            self.tokenizer, self.image_token = words, extra["image_token"]
            self.image_start_token = extra["image_start_token"]
            self.image_end_token = extra["image_end_token"]
            self.image_thumbnail_token = extra["image_thumbnail"]

        def apply_chat_template(self, chat: Any, **more: Any) -> str:
            return str(words.apply_chat_template(chat, tokenize=False, **more))

        def _get_image_num_tokens(self, size: Any, **more: Any) -> tuple[int, int]:
            high, wide = (side // PATCH // 2 for side in size)
            return high * wide, (TILE // PATCH // 2) ** 2

        def __call__(self, text: str, images: Any, **more: Any) -> dict[str, Any]:
            found: dict[str, list[Any]] = {name: [] for name in VISION}
            grids = []
            for image in images or []:
                for name, value in self.own.inputs(image, VISION).items():
                    found[name].append(torch.tensor(value))
                grids.append(self.own(image)[1])
            if images:
                rows, columns, sizes = zip(
                    *[(g.rows or 1, g.columns or 1, g.resized) for g in grids]
                )
                given = [text], [images], rows, columns, sizes, True
                [text] = self.expand_text_with_placeholders(*given)
            special = more["add_special_tokens"]
            out = dict(words(text, return_tensors="pt", add_special_tokens=special))
            return out | {name: torch.cat(parts) for name, parts in found.items() if parts}

    return Processor()


# long: a configuration
def lfm2_vl(root: Path) -> Tiny:
    """LFM2-VL."""
    from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration
    from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionEmbeddings

    from tests.pipelines.test_naflex import resized_positions

    extra = {
        "image_token": "<image>",
        "image_start_token": "<|image_start|>",
        "image_end_token": "<|image_end|>",
        "image_thumbnail": "<|img_thumbnail|>",
    }
    cells = [f"<|img_row_{r}_col_{c}|>" for r in range(1, 5) for c in range(1, 5)]
    words = tokenizer([*extra.values(), *cells], IDEFICS3_TEMPLATE)
    config = Lfm2VlConfig(
        text_config={
            "model_type": "lfm2",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 3,
            "layer_types": ["conv", "full_attention", "conv"],
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": len(words),
            "max_position_embeddings": 2048,
            "block_auto_adjust_ff_dim": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 3,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_patches": 16,
            "patch_size": PATCH,
            "vision_use_head": False,
        },
        image_token_id=words.convert_tokens_to_ids("<image>"),
        projector_hidden_size=48,
        attn_implementation="eager",
    )
    config._attn_implementation = "eager"
    torch.manual_seed(13)
    model = Lfm2VlForConditionalGeneration(config).eval()
    spread(model)
    embeddings = Siglip2VisionEmbeddings.resize_positional_embeddings
    Siglip2VisionEmbeddings.resize_positional_embeddings = staticmethod(resized_positions)
    given = {
        "pixel_values": torch.randn(2, 32, 3 * PATCH**2),
        "pixel_attention_mask": (torch.arange(32)[None] < torch.tensor([[16], [24]])).long(),
        "spatial_shapes": torch.tensor([[4, 4], [4, 6]]),
    }
    axes: dict[str, dict[int, str]] = {name: {0: "num_tiles"} for name in VISION}
    axes["image_features"] = {0: "num_features"}
    try:
        path = root / "onnx/vision_encoder.onnx"
        write(Vision(model.model), given, ["image_features"], axes, path)
    finally:
        Siglip2VisionEmbeddings.resize_positional_embeddings = staticmethod(embeddings)
    ids, sizes = torch.tensor([[1, 2, 3]]), {0: "batch_size", 1: "sequence_length"}
    write(
        model.get_input_embeddings(),
        {"input_ids": ids},
        ["inputs_embeds"],
        {"input_ids": sizes, "inputs_embeds": sizes},
        root / "onnx/embed_tokens.onnx",
    )
    write_decoder(root, model.model.language_model, model.lm_head, config.text_config)
    words.save_pretrained(root)
    config.save_pretrained(root)
    write_json(root, "preprocessor_config.json", FIELDS)
    write_json(root, "processor_config.json", {"processor_class": "Lfm2VlProcessor"})
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
    write_json(root, "generation_config.json", special)
    for name, value in special.items():
        setattr(model.generation_config, name, value)
    return Tiny(root, model, processor_of(words, extra))

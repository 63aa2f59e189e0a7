"""Tiny vision-language models whose encoder takes pictures of any size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .exporting import write, write_text
from .tiny import IDEFICS3_TEMPLATE, Tiny, saved, spread, tokenizer

QWEN_TEMPLATE = IDEFICS3_TEMPLATE.replace("<image>", "<|vision_start|><|image_pad|><|vision_end|>")
PIXTRAL_TEMPLATE = IDEFICS3_TEMPLATE.replace("<image>", "[IMG]")
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


class QwenVision(torch.nn.Module):
    """The encoder of Qwen2-VL and Qwen2.5-VL for one picture, without loops over pictures, windows
    and rows, which an export would unroll: shapes depend on the numbers of `image_grid_thw`.
    """

    def __init__(self, tower: Any) -> None:
        super().__init__()
        self.tower = tower

    def forward(self, pixel_values: Any, image_grid_thw: Any) -> Any:
        tower = self.tower
        merge = tower.spatial_merge_size
        _, height, width = image_grid_thw[0]

        def in_order(x: Any) -> Any:
            squares = x.reshape(height // merge, merge, width // merge, merge)
            return squares.permute(0, 2, 1, 3).flatten()

        rows = in_order(torch.arange(height).unsqueeze(1).expand(-1, width))
        columns = in_order(torch.arange(width).unsqueeze(0).expand(height, -1))
        inv = tower.rotary_pos_emb.inv_freq
        angles = torch.cat([rows[:, None] * inv, columns[:, None] * inv], -1)
        angles = torch.cat([angles, angles], -1)[:, None]
        x = tower.patch_embed(pixel_values)
        masks = [None] * len(tower.blocks)
        if hasattr(tower, "fullatt_block_indexes"):
            side = tower.window_size // tower.patch_size
            window = rows // side * width + columns // side
            apart = torch.where(window[:, None] == window[None], 0.0, -1e9)
            full = tower.fullatt_block_indexes
            masks = [None if i in full else apart for i in range(len(tower.blocks))]
        for block, mask in zip(tower.blocks, masks):
            x = x + self._attention(block.attn, block.norm1(x), angles, mask)
            x = x + block.mlp(block.norm2(x))
        return tower.merger(x)

    def _attention(self, attention: Any, x: Any, angles: Any, mask: Any) -> Any:
        q, k, v = attention.qkv(x).reshape(-1, 3, attention.num_heads, attention.head_dim).unbind(1)

        def turned(y: Any) -> Any:
            a, b = y.chunk(2, -1)
            return y * angles.cos() + torch.cat([-b, a], -1) * angles.sin()

        scores = turned(q).transpose(0, 1) @ turned(k).permute(1, 2, 0) * attention.scaling
        weights = (scores if mask is None else scores + mask).softmax(-1)
        return attention.proj((weights @ v.transpose(0, 1)).transpose(0, 1).flatten(1))


# long: a configuration
def qwen(root: Path, family: str) -> Tiny:
    """Qwen2-VL, Qwen2.5-VL. family: of the names of their classes."""
    import transformers
    from transformers import Qwen2VLImageProcessor
    from transformers.processing_utils import ProcessorMixin

    of: Callable[[str], Any] = lambda name: getattr(transformers, family + name)  # noqa: E731
    special = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    words = tokenizer(special, QWEN_TEMPLATE)
    image, video, start, end = words.convert_tokens_to_ids(special)
    vision = {"depth": 2, "num_heads": 2, "patch_size": 8}
    if family == "Qwen2VL":
        vision |= {"embed_dim": 32, "hidden_size": 32, "mlp_ratio": 2}
    else:
        vision |= {
            "hidden_size": 32,
            "intermediate_size": 48,
            "out_hidden_size": 32,
            "window_size": 32,
            "fullatt_block_indexes": [1],
        }
    config = of("Config")(
        text_config={
            **TEXT,
            "vocab_size": len(words),
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]},
        },
        vision_config=vision,
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    torch.manual_seed(3)
    model = of("ForConditionalGeneration")(config).eval()
    spread(model)
    sizes = {"patch_size": 8, "min_pixels": 32 * 32, "max_pixels": 96 * 96}

    class Processor(of("Processor")):  # type: ignore[misc]
        """Without videos, which need torchvision."""

        attributes = ("image_processor", "tokenizer")
        tokenizer_class = "AutoTokenizer"

        def __init__(self, pictures: Any, words: Any) -> None:
            self.image_token, self.video_token = special[:2]
            self.image_token_id, self.video_token_id = image, video
            ProcessorMixin.__init__(self, pictures, words)

    processor = Processor(Qwen2VLImageProcessor(**sizes), words)
    write(
        QwenVision(model.model.visual),
        {
            "pixel_values": torch.randn(24, 3 * 2 * 8 * 8),
            "image_grid_thw": torch.tensor([[1, 4, 6]]),
        },
        ["image_features"],
        {"pixel_values": {0: "num_patches"}, "image_features": {0: "num_features"}},
        root / "onnx/vision_encoder.onnx",
    )
    write_text(
        root,
        model.model.language_model,
        model.lm_head,
        model.get_input_embeddings(),
        config.text_config,
        positions=3,
    )
    return saved(root, model, processor)


class PixtralVision(torch.nn.Module):
    """The encoder of Pixtral for one picture, and what makes features of its numbers."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Any) -> Any:
        tower = self.model.vision_tower
        x = tower.patch_conv(pixel_values)
        high, wide = x.shape[-2:]
        side = tower.config.image_size // tower.config.patch_size
        places = (torch.arange(high)[:, None] * side + torch.arange(wide)[None]).flatten()
        x = tower.ln_pre(x.flatten(2).transpose(1, 2))
        found = tower.transformer(
            x,
            attention_mask=torch.zeros(1, 1, 1, 1),
            position_embeddings=tower.patch_positional_embedding(x, places),
            output_hidden_states=True,
            return_dict=True,
        )
        layer = self.model.config.vision_feature_layer
        return self.model.multi_modal_projector(found.hidden_states[layer])


def pixtral(root: Path) -> Tiny:
    """Pixtral, of LLaVA's class."""
    from transformers import (
        LlavaConfig,
        LlavaForConditionalGeneration,
        PixtralImageProcessor,
        PixtralProcessor,
    )

    words = tokenizer(["[IMG]", "[IMG_BREAK]", "[IMG_END]"], PIXTRAL_TEMPLATE)
    config = LlavaConfig(
        text_config={**TEXT, "model_type": "mistral", "head_dim": 8, "vocab_size": len(words)},
        vision_config={
            "model_type": "pixtral",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 64,
            "patch_size": 8,
        },
        image_token_id=words.convert_tokens_to_ids("[IMG]"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    torch.manual_seed(7)
    model = LlavaForConditionalGeneration(config).eval()
    spread(model)
    pictures = PixtralImageProcessor(
        size={"longest_edge": 64}, patch_size={"height": 8, "width": 8}
    )
    processor = PixtralProcessor(pictures, words, patch_size=8)
    write(
        PixtralVision(model.model),
        {"pixel_values": torch.randn(1, 3, 40, 64)},
        ["image_features"],
        {"pixel_values": {2: "height", 3: "width"}, "image_features": {1: "num_features"}},
        root / "onnx/vision_encoder.onnx",
    )
    write_text(
        root,
        model.model.language_model,
        model.lm_head,
        model.get_input_embeddings(),
        config.text_config,
    )
    return saved(root, model, processor)


MODELS: dict[str, Callable[[Path], Tiny]] = {
    "qwen2-vl": lambda root: qwen(root, "Qwen2VL"),
    "qwen2.5-vl": lambda root: qwen(root, "Qwen2_5_VL"),
    "pixtral": pixtral,
}

"""Tiny vision-language models whose encoder takes pictures of any size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .exporting import write, write_text
from .lfm2_vl import lfm2_vl
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
    """The encoder of Qwen2-VL to Qwen3-VL for one picture, without loops over pictures, windows
    and rows, which an export would unroll: shapes depend on the numbers of `image_grid_thw`.
    """

    def __init__(self, tower: Any, stacked: bool = False) -> None:
        super().__init__()
        self.tower, self.stacked = tower, stacked

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
        if hasattr(tower, "pos_embed"):
            x = x + self._positions(rows, height, columns, width)
        masks = [None] * len(tower.blocks)
        if hasattr(tower, "fullatt_block_indexes"):
            side = tower.window_size // tower.patch_size
            window = rows // side * width + columns // side
            apart = torch.where(window[:, None] == window[None], 0.0, -1e9)
            full = tower.fullatt_block_indexes
            masks = [None if i in full else apart for i in range(len(tower.blocks))]
        inner = []
        for i, (block, mask) in enumerate(zip(tower.blocks, masks)):
            x = x + self._attention(block.attn, block.norm1(x), angles, mask)
            x = x + block.mlp(block.norm2(x))
            if i in getattr(tower, "deepstack_visual_indexes", ()):
                inner.append(tower.deepstack_merger_list[len(inner)](x))
        if self.stacked:
            return self._merged(x), torch.stack(inner)
        return (self._merged(x), *inner)

    def _merged(self, x: Any) -> Any:
        return self.tower.merger(x)

    def _positions(self, rows: Any, height: Any, columns: Any, width: Any) -> Any:
        """As fast_pos_embed_interpolate, of one picture."""
        side = self.tower.num_grid_per_side
        sides = []
        for at, size in ((rows, height), (columns, width)):
            place = at * (side - 1) / (size - 1)
            low = place.floor()
            sides.append((low.long(), (low.long() + 1).clip(max=side - 1), (place - low)[:, None]))
        (top, bottom, down), (left, right, across) = sides
        of = self.tower.pos_embed
        upper = of(top * side + left) * (1 - across) + of(top * side + right) * across
        lower = of(bottom * side + left) * (1 - across) + of(bottom * side + right) * across
        return upper * (1 - down) + lower * down

    def _attention(self, attention: Any, x: Any, angles: Any, mask: Any) -> Any:
        q, k, v = attention.qkv(x).reshape(-1, 3, attention.num_heads, attention.head_dim).unbind(1)

        def turned(y: Any) -> Any:
            a, b = y.chunk(2, -1)
            return y * angles.cos() + torch.cat([-b, a], -1) * angles.sin()

        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm(q), attention.k_norm(k)
        scores = turned(q).transpose(0, 1) @ turned(k).permute(1, 2, 0) * attention.scaling
        weights = (scores if mask is None else scores + mask).softmax(-1)
        return attention.proj((weights @ v.transpose(0, 1)).transpose(0, 1).flatten(1))


# long: a configuration
def qwen(root: Path, family: str, stacked: bool = False) -> Tiny:
    """Qwen2-VL, Qwen2.5-VL, Qwen3-VL.

    Args:
        root: the model's folder.
        family: of the names of their classes.
        stacked: whether features of inner layers are one tensor, and the decoder has a mask.
    """
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
        vision |= {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 32}
    if family == "Qwen2_5_VL":
        vision |= {"window_size": 32, "fullatt_block_indexes": [1]}
    layers, kind = 2, {"type": "mrope"}
    if family == "Qwen3VL":
        vision |= {"depth": 3, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 2]}
        layers, kind = 3, {"rope_type": "default"}
    config = of("Config")(
        text_config={
            **TEXT,
            "vocab_size": len(words),
            "num_hidden_layers": layers,
            "head_dim": 8,
            "rope_scaling": {**kind, "mrope_section": [2, 1, 1]},
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
    inner = [f"deepstack_features_{i}" for i in range(layers - 1)] if layers == 3 else []
    outputs = ["image_features", *(["deepstack_features"] if stacked else inner)]
    write(
        QwenVision(model.model.visual, stacked),
        {
            "pixel_values": torch.randn(24, 3 * 2 * 8 * 8),
            "image_grid_thw": torch.tensor([[1, 4, 6]]),
        },
        outputs,
        {
            "pixel_values": {0: "num_patches"},
            **{name: {0: "num_features"} for name in outputs},
            **({"deepstack_features": {1: "num_features"}} if stacked else {}),
        },
        root / "onnx/vision_encoder.onnx",
    )
    write_text(
        root,
        model.model.language_model,
        model.lm_head,
        model.get_input_embeddings(),
        config.text_config,
        positions=3,
        inner=inner,
        masked=stacked,
    )
    return saved(root, model, processor)


class PixtralVision(torch.nn.Module):
    """The encoder of Pixtral for one picture, and what makes features of its numbers."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def _merged(self, x: Any, high: Any, wide: Any) -> Any:
        """As Mistral3MultiModalProjector, of one picture, without `unfold`."""
        project = self.model.multi_modal_projector
        merger, width = project.patch_merger, x.shape[-1]
        side = merger.spatial_merge_size
        x = project.norm(x).view(high // side, side, wide // side, side, width)
        x = merger.merging_layer(x.permute(0, 2, 4, 1, 3).reshape(-1, width * side * side))
        return project.linear_2(project.act(project.linear_1(x)))

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
        if hasattr(self.model.multi_modal_projector, "patch_merger"):
            return self._merged(found.hidden_states[layer][0], high, wide)
        return self.model.multi_modal_projector(found.hidden_states[layer])


def pixtral(root: Path, family: str = "Llava") -> Tiny:
    """Pixtral, of LLaVA's class; Mistral 3, which merges patches. family: Llava or Mistral3."""
    import transformers
    from transformers import PixtralImageProcessor, PixtralProcessor

    merge = 2 if family == "Mistral3" else 1
    words = tokenizer(["[IMG]", "[IMG_BREAK]", "[IMG_END]"], PIXTRAL_TEMPLATE)
    config = getattr(transformers, f"{family}Config")(
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
        **({"spatial_merge_size": 2} if merge == 2 else {"vision_feature_select_strategy": "full"}),
    )
    torch.manual_seed(7)
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    spread(model)
    pictures = PixtralImageProcessor(
        size={"longest_edge": 64}, patch_size={"height": 8, "width": 8}
    )
    processor = PixtralProcessor(pictures, words, patch_size=8, spatial_merge_size=merge)
    write(
        PixtralVision(model.model),
        {"pixel_values": torch.randn(1, 3, 48, 64)},
        ["image_features"],
        {"pixel_values": {2: "height", 3: "width"}, "image_features": {2 - merge: "num_features"}},
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
    "qwen3-vl": lambda root: qwen(root, "Qwen3VL"),
    "qwen3-vl stacked": lambda root: qwen(root, "Qwen3VL", True),
    "pixtral": pixtral,
    "mistral3": lambda root: pixtral(root, "Mistral3"),
    "lfm2-vl": lfm2_vl,
}

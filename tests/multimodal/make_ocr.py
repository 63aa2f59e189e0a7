"""Writes tests/multimodal/lighton_ocr and glm_ocr: tiny models that read documents, with the files
and inputs that transformers.js takes, and transformers' answers. Needs transformers 5 (made with
5.24.0, torch 2.13.0):

    python -m tests.multimodal.make_ocr
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

from .any_size import QWEN_TEMPLATE, TEXT, QwenVision
from .asking import answered, messages, pictures
from .exporting import write
from .make_qwen3_5 import ASKED, keep, write_decoder
from .tiny import Tiny, saved, spread, tokenizer

HERE = Path(__file__).parent
LIGHTON = ["<|image_pad|>", "<|vision_pad|>", "<|vision_end|>", "<|vision_start|>"]
GLM = ["<|image|>", "<|video|>", "<|begin_of_image|>", "<|end_of_image|>"]
GLM_TEMPLATE = (
    QWEN_TEMPLATE.replace("<|vision_start|>", GLM[2])
    .replace("<|image_pad|>", GLM[0])
    .replace("<|vision_end|>", GLM[3])
)


class LightOnVision(torch.nn.Module):
    """The encoder of LightOnOCR for one picture, with its projection."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Any) -> Any:
        tower, project = self.model.vision_encoder, self.model.vision_projection
        x = tower.patch_conv(pixel_values)
        high, wide = x.shape[-2:]
        rows = torch.arange(high)[:, None].expand(-1, wide).flatten()
        columns = torch.arange(wide)[None].expand(high, -1).flatten()
        x = tower.ln_pre(x.flatten(2).transpose(1, 2))
        angles = tower.patch_positional_embedding(x, torch.stack([rows, columns], -1))
        mask = torch.zeros(1, 1, 1, 1)
        x = tower.transformer(x, attention_mask=mask, position_embeddings=angles)[0]
        # as the projection's patch_merger, without `unfold`
        merger, width = project.patch_merger, x.shape[-1]
        side = merger.spatial_merge_size
        down, across = high // side, wide // side
        x = project.norm(x).view(high, wide, width)[: down * side, : across * side]
        x = x.reshape(down, side, across, side, width).permute(0, 2, 4, 1, 3)
        x = merger.merging_layer(x.reshape(-1, width * side * side))
        return project.linear_2(project.act(project.linear_1(x)))


class GlmVision(QwenVision):
    """The encoder of GLM-OCR for one picture."""

    def _merged(self, x: Any) -> Any:
        tower = self.tower
        side = tower.spatial_merge_size
        x = tower.post_layernorm(x).view(-1, side, side, x.shape[-1]).permute(0, 3, 1, 2)
        return tower.merger(tower.downsample(x).flatten(1))


def lighton(root: Path) -> Tiny:
    """LightOnOCR."""
    words = tokenizer(LIGHTON, QWEN_TEMPLATE)
    names = ("image_token", "image_break_token", "image_end_token")
    ids = words.convert_tokens_to_ids(LIGHTON)
    for name, token, id in zip(names, LIGHTON, ids):
        setattr(words, name, token)
        setattr(words, f"{name}_id", id)
    config = transformers.LightOnOcrConfig(
        text_config={**TEXT, "model_type": "qwen3", "head_dim": 8, "vocab_size": len(words)},
        vision_config={
            "model_type": "pixtral",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "head_dim": 16,
            "image_size": 64,
            "patch_size": 8,
        },
        image_token_id=ids[0],
        tie_word_embeddings=False,
    )
    torch.manual_seed(31)
    model = ready(transformers.LightOnOcrForConditionalGeneration(config))
    images = transformers.PixtralImageProcessorPil(
        size={"longest_edge": 64}, patch_size={"height": 8, "width": 8}
    )
    processor = transformers.LightOnOcrProcessor(images, words, patch_size=8, spatial_merge_size=2)
    write(
        LightOnVision(model.model),
        {"pixel_values": torch.randn(1, 3, 48, 64)},
        ["image_features"],
        {"pixel_values": {2: "height", 3: "width"}, "image_features": {0: "num_features"}},
        root / "onnx/vision_encoder.onnx",
    )
    write_decoder(root, model, count=3, rows=0)
    return saved(root, model, processor)


def glm(root: Path) -> Tiny:
    """GLM-OCR."""
    words = tokenizer(GLM, GLM_TEMPLATE)
    image, video, start, end = words.convert_tokens_to_ids(GLM)
    text = {**TEXT, "head_dim": 16, "vocab_size": len(words)}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    config = transformers.GlmOcrConfig(
        text_config={**text, "rope_parameters": rope},
        vision_config={
            "depth": 2,
            "num_heads": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "out_hidden_size": 32,
            "patch_size": 16,
        },
        image_token_id=image,
        video_token_id=video,
        image_start_token_id=start,
        image_end_token_id=end,
    )
    torch.manual_seed(29)
    model = ready(transformers.GlmOcrForConditionalGeneration(config))
    images = transformers.Glm46VImageProcessorPil(
        patch_size=16, size={"shortest_edge": 2 * 48 * 48, "longest_edge": 2 * 96 * 64}
    )
    processor = Glm46VProcessor(images, words)
    write(
        GlmVision(model.model.visual),
        {
            "pixel_values": torch.randn(24, 3 * 2 * 16 * 16),
            "image_grid_thw": torch.tensor([[1, 4, 6]]),
        },
        ["image_features"],
        {"pixel_values": {0: "num_patches"}, "image_features": {0: "num_features"}},
        root / "onnx/vision_encoder.onnx",
    )
    write_decoder(root, model, count=3, rows=3)
    return saved(root, model, processor)


class Glm46VProcessor(transformers.Glm46VProcessor):  # type: ignore[misc]
    """Without videos, which need torchvision."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None) -> None:
        super().__init__(image_processor, tokenizer)


def ready(model: Any) -> Any:
    """A model to be exported and asked."""
    spread(model.eval())
    model.set_attn_implementation("eager")
    return model


def main() -> None:
    images = pictures(3)
    made: dict[str, Callable[[Path], Tiny]] = {"lighton_ocr": lighton, "glm_ocr": glm}
    for name, make in made.items():
        with tempfile.TemporaryDirectory() as folder:
            model = make(Path(folder))
            asked = [[images[i] for i in of] for of in ASKED]
            answers = [answered(model, messages(len(of)), of, 10) for of in asked]
            keep(Path(folder), HERE / name, answers)


if __name__ == "__main__":
    main()

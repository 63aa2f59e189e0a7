"""Writes tests/multimodal/fastvlm: a tiny FastVLM, with the files and inputs that transformers.js
takes, and transformers' answers. Needs transformers 5, torchvision and timm (made with 5.24.0,
torch 2.13.0, torchvision 0.28.0, timm 1.0.31):

    python -m tests.multimodal.make_fastvlm
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

from .any_size import TEXT
from .asking import answered, messages, pictures
from .exporting import write
from .make_ocr import ready
from .make_qwen3_5 import ASKED, keep, write_decoder
from .tiny import IDEFICS3_TEMPLATE, Tiny, saved, tokenizer

HERE = Path(__file__).parent
SIDE, PATCH = 128, 64


class Vision(torch.nn.Module):
    """The encoder of a picture, with the projection."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Any) -> Any:
        return self.model.get_image_features(pixel_values).pooler_output


def fastvlm(root: Path) -> Tiny:
    """The model. root: its folder."""
    words = tokenizer(["<image>"], IDEFICS3_TEMPLATE)
    token = words.convert_tokens_to_ids("<image>")
    config = transformers.FastVlmConfig(
        text_config={**TEXT, "model_type": "qwen2", "vocab_size": len(words)},
        vision_config={
            "model_type": "timm_wrapper",
            "architecture": "fastvit_mci3",
            "do_pooling": True,
            "global_pool": "avg",
            "hidden_size": 64,
            "model_args": {
                "inference_mode": True,
                "layers": [1, 1, 1, 1, 1],
                "embed_dims": [8, 8, 16, 32, 32],
            },
        },
        image_token_id=token,
        image_seq_length=(SIDE // PATCH) ** 2,
    )
    torch.manual_seed(23)
    model = ready(transformers.FastVlmForConditionalGeneration(config))
    with torch.no_grad():
        for p in model.model.vision_tower.parameters():
            if p.dim() > 1:  # so that features differ from picture to picture
                p.normal_(0, (2 / p[0].numel()) ** 0.5)
    images = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
    )
    processor = transformers.LlavaProcessor(
        images, words, patch_size=PATCH, vision_feature_select_strategy="full"
    )
    write(
        Vision(model.model),
        {"pixel_values": torch.randn(1, 3, SIDE, SIDE)},
        ["image_features"],
        {},
        root / "onnx/vision_encoder.onnx",
    )
    write_decoder(root, model, count=3, rows=0)
    return saved(root, model, processor)


def main() -> None:
    images = pictures(3)
    with tempfile.TemporaryDirectory() as folder:
        model = fastvlm(Path(folder))
        asked = [[images[i] for i in of] for of in ASKED]
        answers = [answered(model, messages(len(of)), of, 10) for of in asked]
        keep(Path(folder), HERE / "fastvlm", answers)


if __name__ == "__main__":
    main()

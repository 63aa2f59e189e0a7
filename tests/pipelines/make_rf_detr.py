"""Writes tests/pipelines/rf_detr: a tiny random RF-DETR as ONNX, and what transformers' model and
image processor find in a picture. Run with transformers 5.24, PyTorch 2.13 and torchvision 0.28:

    python -m tests.pipelines.make_rf_detr
"""

from __future__ import annotations

import json
import lzma
import warnings
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "rf_detr"
LABELS = ["cat", "dog", "cup", "tree", "moped"]
THRESHOLDS = (0.5, 0.7)
SIDE = 64


def picture(height: int, width: int) -> np.ndarray:
    """Waves and an edge, the same ones everywhere."""
    y, x = np.mgrid[:height, :width]
    planes = [(x * 37 + y * 11) % 97 + 100 * (x > width // 3), 2 * y, (x * y * 7) % 251]
    return np.stack(planes, -1).clip(0, 255).astype(np.uint8)


# Odd multiples of the side: each pixel of the result is one of the picture, without a rounding that
# differs from one library to another, which could exchange the queries of random weights.
SIZES = [(64, 192), (320, 64)]


def main() -> None:
    import onnx
    import torch
    import transformers

    model = _model(torch, transformers)
    size = {"height": SIDE, "width": SIDE}
    processor = transformers.RfDetrImageProcessor(size=size)

    class Exported(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = self.model(pixel_values)
            return found.logits, found.pred_boxes

    FOLDER.mkdir(exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            Exported(),
            (torch.zeros(1, 3, SIDE, SIDE),),
            input_names=["pixel_values"],
            output_names=["logits", "pred_boxes"],
            opset_version=20,
            dynamo=True,
        )
        found = [_found(torch, model, processor, picture(*size)) for size in SIZES]
    graph = program.model_proto
    for part in (graph, graph.graph, *graph.graph.node):
        del part.metadata_props[:]
    del graph.graph.value_info[:]
    onnx.checker.check_model(graph)
    (FOLDER / "model.onnx.xz").write_bytes(lzma.compress(graph.SerializeToString(), preset=9))
    model.config.architectures = ["RfDetrForObjectDetection"]
    model.config.save_pretrained(FOLDER)
    processor.save_pretrained(FOLDER)
    (FOLDER / "expected.json").write_text(json.dumps(found, indent=1) + "\n")


def _model(torch, transformers):
    """Random weights, strong enough that some scores are high."""
    torch.manual_seed(0)
    backbone = dict(
        model_type="rf_detr_dinov2",
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        mlp_ratio=2,
        image_size=32,
        patch_size=8,
        num_windows=2,
        out_features=["stage1", "stage2"],
    )
    config = transformers.RfDetrConfig(
        d_model=16,
        num_queries=8,
        decoder_layers=1,
        decoder_ffn_dim=16,
        decoder_self_attention_heads=2,
        decoder_cross_attention_heads=2,
        intermediate_size=16,
        group_detr=1,
        backbone_config=backbone,
        id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
    )
    model = transformers.RfDetrForObjectDetection(config).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.15)
    model.class_embed.bias.data.zero_()
    return model


def _found(torch, model, processor, pixels):
    """{threshold: objects}, as the pipeline object-detection gives them."""
    outputs = model(**processor(pixels, return_tensors="pt"))
    made = {}
    for threshold in THRESHOLDS:
        sizes = torch.tensor([pixels.shape[:2]])
        [objects] = processor.post_process_object_detection(outputs, threshold, sizes)
        fields = (objects[name].tolist() for name in ("scores", "labels", "boxes"))
        made[str(threshold)] = [
            {"score": score, "label": LABELS[label], "box": [int(side) for side in box]}
            for score, label, box in zip(*fields)
        ]
    return made


if __name__ == "__main__":
    main()

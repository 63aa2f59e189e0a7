"""Tiny random models that find things by prompts, with the files and names of optimum (SAM) and of
onnx-community (SAM 2, EdgeTAM, SAM 3's tracker).
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

SIDE = 64
PICTURES = {"SamModel": "SamImageProcessor", "Sam2Model": "Sam2ImageProcessor"}


def _sam(transformers):
    return transformers.SamConfig(
        vision_config=dict(
            hidden_size=32,
            output_channels=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=SIDE,
            patch_size=8,
            window_size=4,
            global_attn_indexes=[1],
            mlp_dim=48,
            num_pos_feats=16,
            initializer_range=0.3,
        ),
        prompt_encoder_config=dict(
            hidden_size=32, image_size=SIDE, patch_size=8, mask_input_channels=4
        ),
        mask_decoder_config=dict(
            hidden_size=32, mlp_dim=48, num_attention_heads=2, iou_head_hidden_dim=32
        ),
        initializer_range=0.3,
    )


def _sam2(transformers):
    return transformers.Sam2Config(
        vision_config=dict(
            backbone_config=dict(
                model_type="sam2_hiera_det_model",
                hidden_size=16,
                num_attention_heads=1,
                image_size=[SIDE, SIDE],
                blocks_per_stage=[1, 1, 2, 1],
                embed_dim_per_stage=[16, 32, 64, 128],
                num_attention_heads_per_stage=[1, 2, 4, 8],
                window_size_per_stage=[8, 8, 4, 4],
                global_attention_blocks=[3],
                window_positional_embedding_background_size=[2, 2],
            ),
            backbone_channel_list=[128, 64, 32, 16],
            fpn_hidden_size=32,
            backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]],
        ),
        prompt_encoder_config=dict(hidden_size=32, image_size=SIDE, mask_input_channels=4),
        mask_decoder_config=dict(hidden_size=32, mlp_dim=32, num_attention_heads=2),
    )


def model_of(kind):
    """A random model of transformers, and its image processor."""
    import torch
    import transformers

    torch.manual_seed(4)
    if kind == "sam":
        model = transformers.SamModel(_sam(transformers))
        processor = transformers.SamImageProcessor(
            size={"longest_edge": SIDE}, pad_size={"height": SIDE, "width": SIDE}
        )
    else:
        model = transformers.Sam2Model(_sam2(transformers))
        processor = None
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(torch.randn(p.shape) * 0.1)
            elif float(p.std()) < 0.15:
                p.add_(torch.randn(p.shape) * 0.15)
        # scores near 1, as of a trained model
        head = model.mask_decoder.iou_prediction_head.proj_out
        head.bias.copy_(torch.tensor([0.9, 0.95, 0.88, 0.91]))
        head.weight.mul_(0.02)
    return model.eval(), processor


def make(folder: Path, kind: str) -> Path:
    """Writes a model in a folder: "sam" or "sam2"."""
    import torch

    model, processor = model_of(kind)
    (folder / "onnx").mkdir(parents=True)
    if kind == "sam":
        processor.save_pretrained(folder)
        _export_sam(folder, model)
    else:
        config = {
            "image_processor_type": "Sam2ImageProcessorFast",
            "size": {"height": SIDE, "width": SIDE},
            "mask_size": {"height": SIDE // 4, "width": SIDE // 4},
            "image_mean": [0.485, 0.456, 0.406],
            "image_std": [0.229, 0.224, 0.225],
            "resample": 2,
            "data_format": "channels_first",
        }
        (folder / "preprocessor_config.json").write_text(json.dumps(config))
        _export_sam2(folder, model)
    model.config.save_pretrained(folder)
    torch.manual_seed(0)
    return folder


def _write(module, inputs, outputs, axes, path):
    import torch

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(inputs.values()),
            path,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )


def _export_sam(folder, model):
    """As optimum's SAMModelPatcher with the variant "split"."""
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, pixel_values):
            positions = self.model.get_image_wide_positional_embeddings()
            seen = self.model.vision_encoder(pixel_values, return_dict=True)[0]
            return seen, positions.repeat(pixel_values.shape[0], 1, 1, 1)

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_points, input_labels, image_embeddings, positions):
            sparse, dense = self.model.prompt_encoder(input_points, input_labels, None, None)
            found = self.model.mask_decoder(
                image_embeddings=image_embeddings,
                image_positional_embeddings=positions,
                sparse_prompt_embeddings=sparse,
                dense_prompt_embeddings=dense,
                multimask_output=True,
            )
            return found[1], found[0]

    pixels = torch.zeros(1, 3, SIDE, SIDE)
    names = ["image_embeddings", "image_positional_embeddings"]
    batch = {name: {0: "batch_size"} for name in ["pixel_values", *names]}
    path = folder / "onnx" / "vision_encoder.onnx"
    _write(Encoder(), {"pixel_values": pixels}, names, batch, path)
    with torch.no_grad():
        seen = Encoder()(pixels)
    inputs = {
        "input_points": torch.ones(1, 2, 3, 2) * 9,
        "input_labels": torch.ones(1, 2, 3, dtype=torch.int64),
        **dict(zip(names, seen)),
    }
    points = {0: "batch_size", 1: "point_batch_size", 2: "nb_points_per_image"}
    axes = {
        "input_points": points,
        "input_labels": points,
        "image_embeddings": {0: "batch_size"},
        "image_positional_embeddings": {0: "batch_size"},
        "iou_scores": {0: "batch_size", 1: "point_batch_size"},
        "pred_masks": {0: "batch_size", 1: "point_batch_size"},
    }
    path = folder / "onnx" / "prompt_encoder_mask_decoder.onnx"
    _write(Decoder(), inputs, ["iou_scores", "pred_masks"], axes, path)


def _export_sam2(folder, model):
    """As the files of onnx-community that transformers.js' Sam2Model feeds."""
    import torch

    names = [f"image_embeddings.{i}" for i in range(3)]

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, pixel_values):
            return tuple(self.model.get_image_embeddings(pixel_values))

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_points, input_labels, input_boxes, *embeddings):
            encoder = self.model.prompt_encoder
            # Boxes are two points with labels of their own; the padding point is added to both.
            rows = input_points.shape[1] * 0 + input_labels.shape[1]
            corners = input_boxes.reshape(1, rows, -1, 2)
            kinds = torch.tensor([2, 3]).repeat(corners.shape[2] // 2)
            points = torch.cat([input_points.expand(1, rows, -1, 2), corners], 2)
            kinds = kinds[None, None].expand(1, rows, -1)
            sparse = encoder._embed_points(points, torch.cat([input_labels, kinds], 2), pad=True)
            dense = encoder.no_mask_embed.weight.reshape(1, -1, 1, 1)
            dense = dense.expand(1, -1, *encoder.image_embedding_size)
            found = self.model.mask_decoder(
                image_embeddings=embeddings[-1],
                image_positional_embeddings=self.model.get_image_wide_positional_embeddings(),
                sparse_prompt_embeddings=sparse,
                dense_prompt_embeddings=dense,
                multimask_output=True,
                high_resolution_features=list(embeddings[:-1]),
            )
            return found[1], found[0], found[3]

    pixels = torch.zeros(1, 3, SIDE, SIDE)
    path = folder / "onnx" / "vision_encoder.onnx"
    _write(Encoder(), {"pixel_values": pixels}, names, {}, path)
    with torch.no_grad():
        seen = Encoder()(pixels)
    inputs = {
        "input_points": torch.ones(1, 2, 3, 2) * 9,
        "input_labels": torch.ones(1, 2, 3, dtype=torch.int64),
        "input_boxes": torch.ones(1, 2, 4) * 9,
        **dict(zip(names, seen)),
    }
    points = {1: "num_boxes_or_points_batch", 2: "num_points_per_image"}
    axes = {"input_points": points, "input_labels": points, "input_boxes": {1: "num_boxes"}}
    outputs = ["iou_scores", "pred_masks", "object_score_logits"]
    path = folder / "onnx" / "prompt_encoder_mask_decoder.onnx"
    _write(Decoder(), inputs, outputs, axes, path)

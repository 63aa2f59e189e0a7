"""Tiny random models that find things by prompts, with the files and names of optimum (SAM) and of
onnx-community (SAM 2, EdgeTAM, SAM 3's tracker).
"""

from __future__ import annotations

import json
import warnings
from contextlib import contextmanager
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


def make_owl(folder: Path, kind: str) -> Path:
    """Writes OWL-ViT or OWLv2, as optimum exports them: "owlvit" or "owlv2"."""
    import torch
    import transformers

    from .exporting import export
    from .tiny import tokenizer_of

    torch.manual_seed(len(kind))
    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    name = "OwlViT" if kind == "owlvit" else "Owlv2"
    config = getattr(transformers, f"{name}Config")(
        text_config=dict(**small, vocab_size=400, max_position_embeddings=16, eos_token_id=399),
        vision_config=dict(**small, image_size=32, patch_size=8),
        projection_dim=32,
    )
    model = getattr(transformers, f"{name}ForObjectDetection")(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1 and float(p.std()) < 0.2:
                p.add_(torch.randn(p.shape) * 0.2)
    model.save_pretrained(folder)
    tokenizer = tokenizer_of("bert")
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
    config = {
        "image_processor_type": f"{name}ImageProcessor",
        "size": {"height": 32, "width": 32},
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    inputs = {
        "input_ids": torch.tensor([[3, 5, 6, 2], [3, 7, 8, 2]]),
        "pixel_values": torch.rand(1, 3, 32, 32),
        "attention_mask": torch.ones(2, 4, dtype=torch.int64),
    }
    axes = {"pixel_values": {0: "batch_size", 1: "num_channels", 2: "height", 3: "width"}}
    axes |= dict.fromkeys(("input_ids", "attention_mask"), {0: "text_batch_size", 1: "length"})
    outputs = ["logits", "pred_boxes", "text_embeds", "image_embeds"]
    export(model, inputs, outputs, axes, folder / "onnx" / "model.onnx")
    return folder


@contextmanager
def grounding(tokenizer):
    """Lets Grounding DINO of transformers 4 read the words of a small tokenizer, by operations
    that an exporter can write, as in transformers 5: the original loops over the text.
    """
    import torch
    from transformers.models.grounding_dino import modeling_grounding_dino as module

    marks = [tokenizer.convert_tokens_to_ids(mark) for mark in ("[CLS]", "[SEP]", ".", "?")]

    def masks(input_ids):
        special = (input_ids[..., None] == torch.tensor(marks)).any(-1)
        at = torch.arange(input_ids.shape[1])
        last = at[-1]  # numbers would be constants of the graph
        after, before = at[None, :] >= at[:, None], at[None, :] < at[:, None]
        ends = torch.where(special[:, None] & after[None], at[None, None], last + 1).amin(-1)
        begins = torch.where(special[:, None] & before[None], at[None, None], -1).amax(-1)
        inside = (ends > 0) & (ends < last)
        same = (ends[:, :, None] == ends[:, None, :]) & inside[:, None, :]
        alone = at[:, None] == at[None, :]
        return same | alone[None], torch.where(inside, at - begins - 1, 0)

    ids = tokenizer("a cat. two trees.", return_tensors="pt")["input_ids"]
    before = module.SPECIAL_TOKENS, module.generate_masks_with_special_tokens_and_transfer_map
    module.SPECIAL_TOKENS = marks
    for theirs, ours in zip(before[1](ids), masks(ids)):
        assert torch.equal(theirs, ours)
    module.generate_masks_with_special_tokens_and_transfer_map = masks
    try:
        yield
    finally:
        module.SPECIAL_TOKENS, module.generate_masks_with_special_tokens_and_transfer_map = before


def make_grounded(folder: Path):
    """Writes Grounding DINO with the inputs that transformers.js feeds; returns the model."""
    import torch
    import transformers

    from .exporting import export
    from .tiny import tokenizer_of

    torch.manual_seed(5)
    tokenizer = tokenizer_of("bert")
    config = transformers.GroundingDinoConfig(
        backbone_config=dict(
            model_type="swin",
            image_size=SIDE,
            patch_size=4,
            embed_dim=8,
            depths=[1, 1, 1, 1],
            num_heads=[1, 1, 2, 2],
            window_size=4,
            out_indices=[2, 3, 4],
        ),
        text_config=dict(
            model_type="bert",
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=24,
            max_position_embeddings=256,
        ),
        num_queries=12,
        encoder_layers=1,
        encoder_ffn_dim=32,
        encoder_attention_heads=2,
        decoder_layers=1,
        decoder_ffn_dim=32,
        decoder_attention_heads=2,
        d_model=32,
        encoder_n_points=2,
        decoder_n_points=2,
        init_std=0.2,
        disable_custom_kernels=True,
    )
    model = transformers.GroundingDinoForObjectDetection(config).eval()
    ids = torch.ones(1, 5, dtype=torch.int64)
    inputs = {
        "pixel_values": torch.rand(1, 3, SIDE, 96),
        "input_ids": ids,
        "token_type_ids": ids * 0,
        "attention_mask": ids,
        "pixel_mask": torch.ones(1, SIDE, 96, dtype=torch.int64),
    }
    text = dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), {1: "length"})
    with grounding(tokenizer):
        export(model, inputs, ["logits", "pred_boxes"], text, folder / "onnx" / "model.onnx")
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    size = {"height": SIDE, "width": 96}
    transformers.GroundingDinoImageProcessor(size=size).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.eval()  # the exporter leaves it as for training


def make_eomt(folder: Path, labels: int = 5) -> Path:
    """Writes EoMT with a processor that pads, as for panoptic segmentation."""
    import importlib

    import torch
    import transformers

    # what it is trained with needs SciPy
    module = importlib.import_module("transformers.models.eomt.modeling_eomt")
    module.EomtLoss = lambda *given, **named: None

    from .exporting import export

    torch.manual_seed(6)
    config = transformers.EomtConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        image_size=SIDE,
        patch_size=8,
        num_queries=6,
        num_blocks=1,
        num_register_tokens=2,
        num_upscale_blocks=1,
        mlp_ratio=2,
        num_labels=labels,
    )
    model = transformers.EomtForUniversalSegmentation(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.add_(torch.randn(p.shape) * 0.2)
    model.save_pretrained(folder)
    size = {"shortest_edge": SIDE, "longest_edge": SIDE}
    transformers.EomtImageProcessor(size=size, do_pad=True).save_pretrained(folder)
    inputs = {"pixel_values": torch.rand(1, 3, SIDE, SIDE)}
    outputs = ["class_queries_logits", "masks_queries_logits"]
    export(model, inputs, outputs, {"pixel_values": {0: "batch"}}, folder / "onnx" / "model.onnx")
    return folder

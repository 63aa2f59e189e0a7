"""Tiny random models of image tasks, as transformers saves them and as optimum exports them."""

from __future__ import annotations

import json
from pathlib import Path

LABELS = ["cat", "dog", "cup", "tree", "moped"]
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
SQUARE = {"size": {"height": 32, "width": 32}}
DETR_SIZE = {"size": {"shortest_edge": 64, "longest_edge": 96}}


def _vit(transformers):
    config = transformers.ViTConfig(**SMALL, image_size=32, patch_size=8, initializer_range=0.5)
    return config, "ViTImageProcessor", SQUARE


def _resnet_backbone(transformers):
    return transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 16, 32],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )


def _detr(transformers):
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        backbone=None,
        backbone_config=_resnet_backbone(transformers),
        use_pretrained_backbone=False,
        num_queries=8,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        init_std=1.0,
        init_xavier_std=5.0,
    )
    return config, "DetrImageProcessor", DETR_SIZE


def _yolos(transformers):
    config = transformers.YolosConfig(
        **SMALL, image_size=[48, 64], patch_size=16, num_detection_tokens=8, initializer_range=0.5
    )
    return config, "YolosImageProcessor", {"size": {"height": 48, "width": 64}}


def _rt_detr(transformers):
    config = transformers.RTDetrConfig(
        use_timm_backbone=False,
        backbone=None,
        backbone_config=transformers.RTDetrResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 16, 16, 32],
            depths=[1, 1, 1, 1],
            layer_type="basic",
            out_features=["stage2", "stage3", "stage4"],
        ),
        use_pretrained_backbone=False,
        encoder_in_channels=[16, 16, 32],
        encoder_hidden_dim=32,
        encoder_ffn_dim=32,
        encoder_layers=1,
        d_model=32,
        num_queries=20,
        decoder_in_channels=[32, 32, 32],
        decoder_ffn_dim=32,
        decoder_layers=1,
        decoder_attention_heads=2,
        encoder_attention_heads=2,
        num_denoising=0,
        anchor_image_size=None,
        initializer_range=0.5,
        disable_custom_kernels=True,
    )
    return config, "RTDetrImageProcessor", {"size": {"height": 64, "width": 64}}


def _segformer(transformers):
    config = transformers.SegformerConfig(
        hidden_sizes=[8, 16, 16, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 2],
        decoder_hidden_size=16,
        initializer_range=0.5,
    )
    return config, "SegformerImageProcessor", {"size": {"height": 64, "width": 64}}


def _glpn(transformers):
    config = transformers.GLPNConfig(
        hidden_sizes=[8, 16, 16, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 2],
        decoder_hidden_size=16,
        initializer_range=0.5,
    )
    return config, "GLPNImageProcessor", {}


def _dpt(transformers):
    config = transformers.DPTConfig(
        **SMALL,
        image_size=32,
        patch_size=8,
        backbone_out_indices=[0, 0, 1, 1],
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
        initializer_range=0.5,
        is_hybrid=False,
    )
    config.num_hidden_layers = 4
    config.backbone_out_indices = [0, 1, 2, 3]
    return config, "DPTImageProcessor", SQUARE


def _clip(transformers, kind="CLIP", processor="CLIPImageProcessor"):
    text = dict(**SMALL, vocab_size=400, max_position_embeddings=64 if kind == "Siglip" else 40)
    vision = dict(**SMALL, image_size=32, patch_size=8)
    extra = {"projection_dim": 16} if kind == "CLIP" else {}
    if kind == "CLIP":
        text |= {"eos_token_id": 2, "projection_dim": 16}
        vision["projection_dim"] = 16
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision, **extra)
    size = {"size": {"height": 32, "width": 32}}
    if kind == "CLIP":
        size = {"size": {"shortest_edge": 32}, "crop_size": 32}
    return config, processor, size


def _siglip(transformers):
    return _clip(transformers, "Siglip", "SiglipImageProcessor")


def _vitpose(transformers):
    backbone = transformers.VitPoseBackboneConfig(
        **{k: v for k, v in SMALL.items() if k != "intermediate_size"},
        image_size=[64, 48],
        patch_size=[16, 16],
        mlp_ratio=2,
        out_indices=[2],
        initializer_range=0.3,
    )
    config = transformers.VitPoseConfig(
        backbone_config=backbone, scale_factor=4, use_simple_decoder=True, initializer_range=0.3
    )
    return config, "VitPoseImageProcessor", {"size": {"height": 64, "width": 48}}


def _swin2sr(transformers):
    config = transformers.Swin2SRConfig(
        image_size=24,
        embed_dim=16,
        depths=[2],
        num_heads=[2],
        window_size=8,
        mlp_ratio=2,
        upscale=2,
        upsampler="pixelshuffle",
        initializer_range=0.3,
    )
    return config, "Swin2SRImageProcessor", {}


def _superpoint(transformers):
    config = transformers.SuperPointConfig(
        encoder_hidden_sizes=[8, 8, 16, 16],
        decoder_hidden_size=16,
        keypoint_decoder_dim=65,
        descriptor_decoder_dim=16,
        keypoint_threshold=0.02,
        max_keypoints=-1,
        initializer_range=0.3,
    )
    fields = {"size": {"height": 48, "width": 64}, "do_grayscale": True}
    return config, "SuperPointImageProcessor", fields


# As DINOv3 is saved; its processor needs torchvision, this one computes the same without it.
DINOV3 = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], **SQUARE}


def _dinov3(transformers):
    config = transformers.DINOv3ViTConfig(
        **SMALL,
        image_size=32,
        patch_size=8,
        num_register_tokens=4,
        use_gated_mlp=True,
        initializer_range=0.3,
    )
    return config, "ViTImageProcessor", DINOV3


def _dinov3_convnext(transformers):
    config = transformers.DINOv3ConvNextConfig(
        hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 2, 1], initializer_range=0.3, image_size=32
    )
    return config, "ViTImageProcessor", DINOV3


def _depth_anything(transformers):
    backbone = transformers.Dinov2Config(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        image_size=56,
        patch_size=14,
        mlp_ratio=2,
        out_indices=[1, 2, 3, 4],
        apply_layernorm=True,
        reshape_hidden_states=False,
        initializer_range=0.3,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=32,
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
        head_hidden_size=8,
        initializer_range=0.3,
    )
    fields = {
        "size": {"height": 56, "width": 56},
        "resample": 3,
        "image_mean": DINOV3["image_mean"],
        "image_std": DINOV3["image_std"],
    }
    return config, "DPTImageProcessor", fields


KINDS = {
    "dinov3": (_dinov3, "DINOv3ViTModel", ["last_hidden_state", "pooler_output"]),
    "dinov3-convnext": (
        _dinov3_convnext,
        "DINOv3ConvNextModel",
        ["last_hidden_state", "pooler_output"],
    ),
    "depth-anything": (_depth_anything, "DepthAnythingForDepthEstimation", ["predicted_depth"]),
    "vitpose": (_vitpose, "VitPoseForPoseEstimation", ["heatmaps"]),
    "swin2sr": (_swin2sr, "Swin2SRForImageSuperResolution", ["reconstruction"]),
    "superpoint": (
        _superpoint,
        "SuperPointForKeypointDetection",
        ["keypoints", "scores", "descriptors", "mask"],
    ),
    "vit": (_vit, "ViTForImageClassification", ["logits"]),
    "vit-base": (_vit, "ViTModel", ["last_hidden_state", "pooler_output"]),
    "detr": (_detr, "DetrForObjectDetection", ["logits", "pred_boxes"]),
    "detr-masks": (_detr, "DetrForSegmentation", ["logits", "pred_boxes", "pred_masks"]),
    "yolos": (_yolos, "YolosForObjectDetection", ["logits", "pred_boxes"]),
    "rt-detr": (_rt_detr, "RTDetrForObjectDetection", ["logits", "pred_boxes"]),
    "segformer": (_segformer, "SegformerForSemanticSegmentation", ["logits"]),
    "glpn": (_glpn, "GLPNForDepthEstimation", ["predicted_depth"]),
    "dpt": (_dpt, "DPTForDepthEstimation", ["predicted_depth"]),
    "clip": (_clip, "CLIPModel", ["logits_per_image"]),
    "siglip": (_siglip, "SiglipModel", ["logits_per_image"]),
}


def _inputs(torch, kind):
    """Inputs to export a model with, and their free dimensions."""
    inputs = {"pixel_values": torch.rand(1, 3, 64, 64)}
    if kind in ("vit", "vit-base", "dpt", "clip", "siglip", "dinov3", "dinov3-convnext"):
        inputs["pixel_values"] = torch.rand(1, 3, 32, 32)
    if kind == "depth-anything":  # its export has one size
        return {"pixel_values": torch.rand(1, 3, 56, 56)}, {}
    if kind == "yolos":
        inputs["pixel_values"] = torch.rand(1, 3, 48, 64)
    if kind == "vitpose":
        return {"pixel_values": torch.rand(1, 3, 64, 48)}, {}
    if kind == "swin2sr":  # its masks are those of one size
        return {"pixel_values": torch.rand(1, 3, 24, 24)}, {}
    if kind == "superpoint":
        return {"pixel_values": torch.rand(1, 3, 48, 64)}, {}
    axes = {"pixel_values": {2: "height", 3: "width"}}
    if kind.startswith("detr"):
        inputs["pixel_mask"] = torch.ones(1, 64, 64, dtype=torch.int64)
        axes["pixel_mask"] = {1: "height", 2: "width"}
    if kind in ("clip", "siglip"):
        inputs["input_ids"] = torch.tensor([[0, 5, 6, 2], [0, 7, 8, 2]])
        axes = {"input_ids": {0: "texts", 1: "length"}}
        if kind == "clip":
            inputs["attention_mask"] = torch.ones(2, 4, dtype=torch.int64)
            axes["attention_mask"] = {0: "texts", 1: "length"}
    return inputs, axes


def _export_halves(transformers, folder, kind, inputs, axes):
    """Exports CLIP and SigLIP in two files, as optimum does for transformers.js."""
    from .exporting import export

    name = "CLIP" if kind == "clip" else "Siglip"
    for part, output in (("Vision", "image_embeds"), ("Text", "text_embeds")):
        projected = "WithProjection" if kind == "clip" else ""
        half = getattr(transformers, f"{name}{part}Model{projected}").from_pretrained(folder)
        outputs = [output if kind == "clip" else "pooler_output", "last_hidden_state"]
        own = {n: x for n, x in inputs.items() if (n == "pixel_values") == (part == "Vision")}
        free = {n: a for n, a in axes.items() if n in own}
        export(half.eval(), own, outputs, free, folder / f"onnx/{part.lower()}_model.onnx")


def make(folder: Path, kind: str, separate: bool = False, **changes) -> Path:
    """Makes a model and returns its folder.

    separate: in two files. changes: of its configuration.
    """
    import torch
    import transformers

    from .exporting import export
    from .tiny import tokenizer_of

    configure, model_class, outputs = KINDS[kind]
    torch.manual_seed(len(kind))
    config, processor_class, fields = configure(transformers)
    config.id2label = dict(enumerate(LABELS))
    config.label2id = {label: i for i, label in enumerate(LABELS)}
    for name, value in changes.items():
        setattr(config, name, value)
    model = getattr(transformers, model_class)(config).eval()
    model.save_pretrained(folder)
    processor = getattr(transformers, processor_class)(**fields)
    processor.save_pretrained(folder)
    if kind in ("clip", "siglip"):
        tokenizer = tokenizer_of("roberta")
        if kind == "siglip":
            tokenizer.model_input_names = ["input_ids"]
        tokenizer.save_pretrained(folder)
    inputs, axes = _inputs(torch, kind)
    if separate:
        _export_halves(transformers, folder, kind, inputs, axes)
        return folder
    if kind == "superpoint":  # a MaxPool of three dimensions is no valid ONNX
        from transformers.models.superpoint import modeling_superpoint as module

        plain, module.simple_nms = module.simple_nms, lambda x, radius: plain(x[None], radius)[0]
    export(model, inputs, outputs, axes, folder / "onnx/model.onnx")
    if kind == "superpoint":
        module.simple_nms = plain
    return folder


def yolo(folder: Path, classes: int = 3, size: int = 64) -> Path:
    """A model with YOLO's output: boxes and scores are linear in the colors of a grid of cells."""
    import onnx
    import torch

    torch.manual_seed(1)

    class Yolo(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = torch.nn.Conv2d(3, classes, 8, 8)
            self.sizes = torch.nn.Conv2d(3, 2, 8, 8)
            self.scores.weight.data *= 12
            y, x = torch.meshgrid(torch.arange(size // 8), torch.arange(size // 8), indexing="ij")
            self.register_buffer("centers", torch.stack([x, y])[None] * 8.0 + 4)

        def forward(self, images):
            sizes = 16 + 12 * self.sizes(images).sigmoid()
            found = torch.cat([self.centers, sizes, self.scores(images).sigmoid()], 1)
            return found.flatten(2)

    path = folder / "yolo.onnx"
    with torch.no_grad():
        torch.onnx.export(
            Yolo(),
            torch.rand(1, 3, size, size),
            path,
            input_names=["images"],
            output_names=["output0"],
            opset_version=17,
            dynamo=False,
        )
    model = onnx.load(path)
    entry = model.metadata_props.add()
    entry.key, entry.value = (
        "names",
        json.dumps({}) if not classes else str(dict(enumerate(LABELS[:classes]))),
    )
    onnx.save(model, path)
    return path


def upscaler(folder: Path) -> Path:
    """A model of super-resolution without a configuration: twice the size, of any picture."""
    import torch

    from .exporting import export

    torch.manual_seed(4)

    class Upscaler(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = torch.nn.Conv2d(3, 8, 3, 1, 1), torch.nn.Conv2d(8, 12, 3, 1, 1)

        def forward(self, image):
            return {"output": torch.nn.functional.pixel_shuffle(self.outer(self.inner(image)), 2)}

    axes = {"image": {2: "height", 3: "width"}}
    model = Upscaler().eval()
    export(model, {"image": torch.rand(1, 3, 8, 8)}, ["output"], axes, folder / "model.onnx")
    torch.save(model.state_dict(), folder / "weights.pt")
    return folder


def constant(folder: Path, kind: str, outputs: dict) -> Path:
    """A model of MaskFormer's family with constant outputs (transformers' needs scipy)."""
    import onnx
    import transformers

    h = onnx.helper
    nodes = [h.make_node("ReduceMean", ["pixel_values"], ["mean"], axes=[0, 1, 2, 3], keepdims=0)]
    nodes.append(h.make_node("Mul", ["mean", "zero"], ["nothing"]))
    tensors = [h.make_tensor("zero", 1, [], [0.0])]
    for name, value in outputs.items():
        tensors.append(onnx.numpy_helper.from_array(value, f"{name}_value"))
        nodes.append(h.make_node("Add", [f"{name}_value", "nothing"], [name]))
    graph = h.make_graph(
        nodes,
        "constant",
        [h.make_tensor_value_info("pixel_values", 1, [1, 3, "height", "width"])],
        [h.make_tensor_value_info(n, 1, v.shape) for n, v in outputs.items()],
        tensors,
    )
    folder.mkdir()
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    labels = {str(i): label for i, label in enumerate(LABELS)}
    (folder / "config.json").write_text(json.dumps({"model_type": kind, "id2label": labels}))
    transformers.MaskFormerImageProcessor(**DETR_SIZE).save_pretrained(folder)
    return folder


def cut(pipe, path, options):
    """What a pipeline of a package finds in a picture that the package's frame has padded, if the
    masks are cut by NumPy instead of by the pipeline.
    """
    import numpy as np
    from edgewise.compiler.processors.images import layout
    from edgewise.host.pipelines.post.plane import Plane
    from PIL import Image

    picture, _ = pipe.processor.resized(path)
    image = Image.open(path)
    done = layout(pipe.processor.description.steps, image.height, image.width)
    original = pipe.forward

    def forward(*args, **kwargs):
        logits, masks = original(*args, **kwargs)
        sizes = zip(done.kept, masks.shape[2:], (picture.height, picture.width))
        high, wide = (-(-part * size // whole) for part, size, whole in sizes)
        return [logits, np.ascontiguousarray(np.asarray(masks)[:, :, :high, :wide])]

    pipe.forward, pipe.planes = forward, lambda value, _: Plane(value)
    try:
        return pipe(path, **options)
    finally:
        del pipe.forward, pipe.planes

"""SigLIP 2 for pictures of any proportions (NaFlex) against transformers, from pixels on."""

from __future__ import annotations

import json

import pytest

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from edgewise import pipeline  # noqa: E402
from edgewise.errors import InputError  # noqa: E402
from edgewise.host.pipelines.images.vision import VisionProcessor  # noqa: E402
from edgewise.host.session.open import folder_files  # noqa: E402
from edgewise.task_package import compile_task  # noqa: E402

from . import tiny_images  # noqa: E402
from .exporting import export  # noqa: E402
from .tiny import tokenizer_of  # noqa: E402

PATCH, ROOM, GRID = 8, 24, 4
VISION = ("pixel_values", "pixel_attention_mask", "spatial_shapes")
SIZES = [(64, 96), (90, 61), (17, 200), (4, 5)]


def pictures():
    rng = np.random.default_rng(3)
    for height, width in SIZES:
        yield Image.fromarray(rng.integers(0, 256, (height, width, 3)).astype(np.uint8))


def resized_positions(positions, spatial_shapes, max_length):
    """The same as F.interpolate with antialiasing, of grids that only tensors know, as in the
    transformers 5 that exports them.
    """
    sizes = spatial_shapes.float()[:, None]
    at = torch.arange(max_length, dtype=torch.float32)[None, :, None]
    rows = torch.div(at, sizes[..., 1:], rounding_mode="floor")
    index = torch.cat([rows, at - rows * sizes[..., 1:]], dim=-1)
    index = index * (at < sizes[..., :1] * sizes[..., 1:])
    scale = positions.shape[0] / sizes
    center = (index + 0.5) * scale - 0.5
    source = torch.arange(positions.shape[0], dtype=torch.float32)
    weights = (source - center[..., None]).abs() / scale.clamp(min=1)[..., None]
    weights = (1 - weights).clamp(min=0)
    weights = weights / weights.sum(-1, keepdim=True)
    weights = (weights[..., 0, :, None] * weights[..., 1, None, :]).flatten(-2)
    return weights @ positions.reshape(-1, positions.shape[-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a tiny random model, in one file (onnx/model.onnx) and in two."""
    from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionEmbeddings

    folder = tmp_path_factory.mktemp("naflex")
    torch.manual_seed(6)
    config = transformers.Siglip2Config(
        text_config=dict(**tiny_images.SMALL, vocab_size=400, max_position_embeddings=64),
        vision_config=dict(
            **tiny_images.SMALL, patch_size=PATCH, num_patches=GRID**2, attn_implementation="eager"
        ),
    )
    config._attn_implementation = "eager"
    model = transformers.Siglip2Model(config).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.2)
    model.save_pretrained(folder)
    transformers.Siglip2ImageProcessor(patch_size=PATCH, max_num_patches=ROOM).save_pretrained(
        folder
    )
    tokenizer = tokenizer_of("roberta")
    tokenizer.model_input_names = ["input_ids"]
    tokenizer.save_pretrained(folder)
    seen = {
        "pixel_values": torch.rand(1, ROOM, 3 * PATCH**2),
        "pixel_attention_mask": (torch.arange(ROOM)[None] < 20).long(),
        "spatial_shapes": torch.tensor([[4, 5]]),
    }
    texts = {"input_ids": torch.tensor([[0, 5, 6, 2], [0, 7, 8, 2]])}
    axes = {"input_ids": {0: "texts", 1: "length"}}
    embeddings = Siglip2VisionEmbeddings.resize_positional_embeddings
    Siglip2VisionEmbeddings.resize_positional_embeddings = staticmethod(resized_positions)
    try:
        both = {**texts, **seen}
        export(model, both, ["logits_per_image"], axes, folder / "onnx/model.onnx")
        outputs = ["last_hidden_state", "pooler_output"]
        vision = transformers.Siglip2VisionModel.from_pretrained(
            folder, attn_implementation="eager"
        )
        path = folder / "onnx/vision_model.onnx"
        export(vision.eval(), seen, outputs, {}, path)
    finally:
        Siglip2VisionEmbeddings.resize_positional_embeddings = staticmethod(embeddings)
    text = transformers.Siglip2TextModel.from_pretrained(folder).eval()
    export(text, texts, ["pooler_output"], axes, folder / "onnx/text_model.onnx")
    return folder


def test_processor():
    """The numbers, sizes and masks of pictures of many proportions."""
    for patch, room in ((16, 256), (8, 24), (14, 7)):
        fields = {"patch_size": patch, "max_num_patches": room}
        theirs = transformers.Siglip2ImageProcessor(**fields)
        ours = VisionProcessor({"image_processor_type": "Siglip2ImageProcessor", **fields})
        rng = np.random.default_rng(1)
        for height, width in [*SIZES, (2, 2), (300, 7), (257, 256)]:
            pixels = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
            expected = theirs(Image.fromarray(pixels), return_tensors="np")
            found = ours.inputs(pixels, VISION)
            assert set(found) == set(expected)
            for name, values in expected.items():
                np.testing.assert_allclose(np.asarray(found[name]), values, atol=3e-5)
        ours.close()


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.family("SigLIP 2 NaFlex", exporter="torch")
def test_zero_shot(folder, separate, tmp_path):
    task, labels = "zero-shot-image-classification", ["a cat", "dog", "two very large trees"]
    theirs = transformers.pipeline(task, str(folder), framework="pt", use_fast=False)
    with pipeline(task, _with(folder, tmp_path, *_stems(separate))) as ours:
        for image in pictures():
            found = {one["label"]: one["score"] for one in ours(image, labels)}
            expected = theirs(image, candidate_labels=labels)
            assert found == pytest.approx({x["label"]: x["score"] for x in expected}, abs=1e-4)


@pytest.mark.family("SigLIP 2 NaFlex", exporter="torch")
def test_features(folder, tmp_path):
    model = transformers.Siglip2VisionModel.from_pretrained(folder).eval()
    processor = transformers.Siglip2ImageProcessor.from_pretrained(folder)
    with pipeline("image-feature-extraction", _with(folder, tmp_path, "vision_model")) as ours:
        for image in pictures():
            with torch.no_grad():
                expected = model(**processor(image, return_tensors="pt"))
            for pool, name in ((False, "last_hidden_state"), (True, "pooler_output")):
                found = np.array(ours(image, pool=pool))
                np.testing.assert_allclose(found, expected[name].numpy(), atol=1e-4)


def test_what_cannot_take_patches(folder, tmp_path):
    place = _with(folder, tmp_path, "model")
    with pytest.raises(InputError, match="number depends on the picture"):
        compile_task(folder_files(place)[0], "zero-shot-image-classification")
    config = json.loads((folder / "preprocessor_config.json").read_text())
    with pytest.raises(InputError, match="do_resize"):
        VisionProcessor(config | {"do_resize": False})


def _stems(separate):
    return ("vision_model", "text_model") if separate else ("model",)


def _with(folder, place, *stems):
    """The folder with some of its graphs."""
    made = place / "model"
    (made / "onnx").mkdir(parents=True)
    for path in folder.glob("*.*"):
        (made / path.name).symlink_to(path)
    for stem in stems:
        (made / f"onnx/{stem}.onnx").symlink_to(folder / f"onnx/{stem}.onnx")
    return made

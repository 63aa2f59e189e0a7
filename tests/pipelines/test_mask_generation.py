"""Masks by points and boxes, and of everything, against transformers' models, processors and
pipeline, from pixels on.
"""

import importlib
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from edgewise import pipeline  # noqa: E402
from edgewise.errors import InputError  # noqa: E402
from edgewise.host.session.open import folder_files  # noqa: E402
from edgewise.task_package import compile_task  # noqa: E402

from . import tiny_prompts  # noqa: E402

SIDE = tiny_prompts.SIDE
KINDS = ["sam", "sam2"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """function(kind) that returns (folder, package, transformers' model, its processor)."""
    made = {}

    def get(kind):
        if kind not in made:
            folder = tiny_prompts.make(tmp_path_factory.mktemp(kind) / "model", kind)
            package = folder.parent / "model.edge"
            with package.open("wb") as file:
                compile_task(folder_files(folder)[0], "mask-generation").write(file)
            made[kind] = (folder, package, *tiny_prompts.model_of(kind))
        return made[kind]

    return get


@pytest.fixture(scope="module")
def pipes(models):
    """function(kind, form) that returns our pipeline."""
    made = {}

    def get(kind, form="folder"):
        if (kind, form) not in made:
            at = models(kind)[form == "package"]
            made[kind, form] = pipeline("mask-generation", at)
        return made[kind, form]

    return get


def pictures():
    """Pictures with areas and noise, of several shapes."""
    rng = np.random.default_rng(3)
    for height, width in ((64, 96), (90, 61), (150, 200)):
        pixels = rng.integers(0, 60, (height, width, 3))
        pixels[height // 4 : height // 2, : width // 2] += [180, 20, 40]
        pixels[height // 2 :, width // 3 :] += [10, 150, 190]
        yield Image.fromarray(pixels.astype(np.uint8))


def expected(models, pipe, kind, image, **prompts):
    """The masks and scores of transformers."""
    _, _, model, processor = models(kind)
    if kind == "sam":
        given = transformers.SamProcessor(processor)(
            image, return_tensors="pt", **{name: [value] for name, value in prompts.items()}
        )
        inputs = {k: v.float() if v.dtype == torch.float64 else v for k, v in given.items()}
        sizes = [inputs.pop(name) for name in ("original_sizes", "reshaped_input_sizes")]
        with torch.no_grad():
            out = model(**inputs)
        masks = processor.post_process_masks(out.pred_masks, *sizes)[0]
        return masks.numpy(), out.iou_scores[0].numpy()
    pixels = torch.tensor(np.asarray(pipe.processor(image)["pixel_values"]))
    inputs = {"pixel_values": pixels}
    for name, value in prompts.items():
        tensor = torch.tensor([value])
        if name != "input_labels":
            factors = torch.tensor([SIDE / image.width, SIDE / image.height])
            tensor = tensor.float() * factors.repeat(tensor.shape[-1] // 2)
        inputs[name] = tensor
    with torch.no_grad():
        out = model(**inputs)
    size = (image.height, image.width)
    large = torch.nn.functional.interpolate(out.pred_masks[0], size, mode="bilinear")
    return (large > 0).numpy(), out.iou_scores[0].numpy()


def same(found, masks, scores):
    assert found["masks"].dtype == np.bool_ and found["masks"].shape == masks.shape
    assert 0.02 < masks.mean() < 0.98
    assert (found["masks"] != masks).mean() < 5e-4
    np.testing.assert_allclose(found["iou_scores"], scores, atol=1e-5)


@pytest.mark.parametrize("form", ["folder", "package"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.family("SAM", exporter="torch")
@pytest.mark.family("SAM 2", exporter="torch")
def test_points(models, pipes, kind, form):
    pipe = pipes(kind, form)
    for image in pictures():
        w, h = image.size
        near, far, out = [w * 0.3, h * 0.4], [w * 0.6, h * 0.7], [w * 0.1, h * 0.9]
        opened = pipe.open(image)
        for points, labels in (
            ([[near]], [[1]]),
            ([[near, far, out]], [[1, 1, 0]]),
            ([[near], [far], [out]], [[1], [1], [1]]),
            ([[near, out], [far, near]], [[1, 0], [1, 0]]),
        ):
            prompts = {"input_points": points, "input_labels": labels}
            masks, scores = expected(models, pipe, kind, image, **prompts)
            same(opened.masks(**prompts), masks, scores)
        same(pipe(image, **prompts), masks, scores)
        found = pipe(image, multimask_output=False, **prompts)
        best = scores.argmax(1)
        same(found, masks[range(2), best][:, None], scores[range(2), best][:, None])
        assert ("object_score_logits" in found) == (kind == "sam2")


@pytest.mark.parametrize("form", ["folder", "package"])
def test_boxes(models, pipes, form):
    pipe = pipes("sam2", form)
    for image in pictures():
        w, h = image.size
        opened = pipe.open(image)
        boxes = [[0.1 * w, 0.2 * h, 0.5 * w, 0.9 * h], [0.4 * w, 0, w, 0.5 * h]]
        same(
            opened.masks(input_boxes=boxes),
            *expected(models, pipe, "sam2", image, input_boxes=boxes),
        )
        prompts = {"input_points": [[[0.3 * w, 0.4 * h]]], "input_labels": [[1]]}
        prompts["input_boxes"] = boxes[:1]
        same(opened.masks(**prompts), *expected(models, pipe, "sam2", image, **prompts))


def test_forms_of_prompts(pipes):
    """transformers' and transformers.js' lists, arrays, and fewer lists where one object is
    meant.
    """
    opened = pipes("sam").open(next(pictures()))
    wanted = opened.masks(input_points=[[[30, 20]]], input_labels=[[1]])["masks"]
    for points in ([[[[30, 20]]]], [[30, 20]], [30, 20], np.array([[[30.0, 20.0]]])):
        for labels in ([[[1]]], [[1]], [1], None):
            found = opened.masks(input_points=points, input_labels=labels)
            np.testing.assert_array_equal(found["masks"], wanted)
    uneven = opened.masks(input_points=[[[30, 20], [50, 9]], [[30, 20]]])
    np.testing.assert_array_equal(
        uneven["masks"][:1], opened.masks(input_points=[[30, 20], [50, 9]])["masks"]
    )


def nms(boxes, scores, idxs, iou_threshold):
    """torchvision's batched_nms, by its definition; it is not among the tests' packages."""
    left = torch.argsort(scores, descending=True, stable=True).tolist()
    kept = []
    while left:
        first = left.pop(0)
        kept.append(first)
        a = boxes[first]
        rest = []
        for i in left:
            b = boxes[i]
            sides = torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])
            both = sides.clamp(min=0).prod()
            union = (a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - both
            if not both / union > iou_threshold:
                rest.append(i)
        left = rest
    return torch.tensor(kept, dtype=torch.long)


@pytest.fixture
def torchvision(monkeypatch):
    """transformers imports batched_nms where torchvision is installed."""
    module = importlib.import_module("transformers.models.sam.image_processing_sam")
    monkeypatch.setattr(module, "batched_nms", nms, raising=False)


GRIDS = [
    {"points_per_crop": 8, "pred_iou_thresh": 0.85, "stability_score_thresh": 0.6},
    {"points_per_crop": 5, "pred_iou_thresh": 0.9, "stability_score_thresh": 0.3},
    {
        "points_per_crop": 3,
        "points_per_batch": 4,
        "crops_n_layers": 1,
        "pred_iou_thresh": 0.5,
        "stability_score_thresh": 0.4,
        "crops_nms_thresh": 0.5,
    },
    {"points_per_crop": 4, "pred_iou_thresh": 0, "stability_score_thresh": 0, "mask_threshold": 1},
]


@pytest.mark.parametrize("kind", KINDS)
def test_everything(models, pipes, torchvision, kind):
    pipe = pipes(kind)
    several = 0
    for image, options in zip([*pictures()] * 2, [*GRIDS, GRIDS[2]], strict=False):
        found = pipe(image, output_rle_mask=True, output_bboxes_mask=True, **options)
        theirs = everything(models, pipe, kind, image, options)
        assert len(found["masks"]) == len(theirs["masks"])
        several += len(found["masks"])
        for i, (mask, wanted) in enumerate(zip(found["masks"], theirs["masks"])):
            wanted = np.asarray(wanted)
            assert mask.dtype == np.bool_ and mask.shape == wanted.shape
            assert (mask != wanted).mean() < 1e-3
            assert found["scores"][i] == pytest.approx(float(theirs["scores"][i]), abs=1e-5)
            if (mask == wanted).all():
                assert found["rle_mask"][i] == theirs["rle_mask"][i]
                box = [int(x) for x in theirs["bounding_boxes"][i]]
                assert found["bounding_boxes"][i] == box
    assert several > 20


def everything(models, pipe, kind, image, options):
    """transformers' pipeline; where its version 4 cannot (crops; SAM 2 without torchvision), the
    functions of its processor, crop by crop, as version 5 calls them.
    """
    _, _, model, processor = models(kind)
    if kind == "sam" and options["points_per_crop"] == 8:
        made = transformers.pipelines.MaskGenerationPipeline(
            model=model, image_processor=processor, framework="pt", device="cpu"
        )
        return made(image, output_rle_mask=True, output_bboxes_mask=True, **options)
    helper = transformers.SamImageProcessor(size={"longest_edge": SIDE})
    grid = options.get("crops_n_layers", 0), 512 / 1500, options["points_per_crop"], 1
    boxes, _, crops, _ = helper.generate_crop_boxes(image, SIDE, *grid)
    module = importlib.import_module("transformers.models.sam.image_processing_sam")
    points = module._build_point_grid(options["points_per_crop"])
    threshold = options.get("mask_threshold", 0)
    masks, scores, rectangles = [], [], []
    for c, crop in enumerate(crops):
        seen = pipe.processor(np.asarray(crop))["pixel_values"]
        size = crop.shape[:2]
        # version 4 scales by the picture's size, version 5 by the crop's
        at = module._normalize_coordinates(SIDE, points * np.array(size)[::-1], size)
        with torch.no_grad():
            out = model(
                pixel_values=torch.tensor(np.asarray(seen)),
                input_points=torch.tensor(at)[None, :, None].float(),
                input_labels=torch.ones(1, len(at), 1, dtype=torch.int64),
            )
        if kind == "sam":
            kept = processor(Image.fromarray(np.asarray(crop)))["reshaped_input_sizes"]
            large = processor.post_process_masks(out.pred_masks, [size], kept, binarize=False)[0]
        else:
            large = torch.nn.functional.interpolate(out.pred_masks[0], size, mode="bilinear")
        thresholds = options["pred_iou_thresh"], options["stability_score_thresh"], threshold, 1
        whole = (image.height, image.width)
        one = helper.filter_masks(
            large, out.iou_scores[0], whole, boxes[c].int().tolist(), *thresholds
        )
        masks += one[0]
        scores.append(one[1])
        rectangles.append(one[2])
    made = helper.post_process_for_mask_generation(
        masks, torch.cat(scores), torch.cat(rectangles), options.get("crops_nms_thresh", 0.7)
    )
    return dict(zip(("masks", "scores", "rle_mask", "bounding_boxes"), made))


BAD = [
    ({"input_points": [[[97, 20]]]}, r"\[97, 20\] is outside of the picture, which has 96 x 64"),
    ({"input_points": [[[-1, 20]]]}, "outside"),
    ({"input_points": [[[1, 20, 3]]]}, "input_points"),
    ({"input_points": [[["a", 20]]]}, "input_points"),
    ({"input_points": [[[float("nan"), 20]]]}, "input_points"),
    ({"input_points": []}, "empty"),
    ({"input_points": [[30, 20]] * 3000}, "3000 points"),
    ({"input_points": [[[30, 20]]] * 3000}, "3000 objects"),
    ({"input_points": [[[[30, 20]]], [[[30, 20]]]]}, "2 pictures"),
    ({"input_points": 5}, "input_points"),
    ({"input_points": [[[30, 20]]], "input_labels": []}, "empty"),
    ({"input_points": [[[30, 20]]], "input_labels": [[1, 0]]}, "2 labels for 1 points"),
    ({"input_points": [[[30, 20]]], "input_labels": [[1], [1]]}, "labels of 2 objects"),
    ({"input_points": [[[30, 20]]], "input_labels": [[7]]}, "input_labels"),
    ({"input_labels": [[1]]}, "no points"),
    ({"input_boxes": [[10, 10, 5, 20]]}, "empty"),
    ({"input_boxes": [[10, 10, 50, 200]]}, "outside"),
    ({"input_boxes": [[10, 10, 50]]}, "input_boxes"),
    ({"input_points": [[[30, 20]]], "input_boxes": [[1, 1, 9, 9]] * 2}, "2 boxes"),
    ({"input_points": [[[30, 20]]], "mask_threshold": "high"}, "mask_threshold"),
    ({"input_points": [[[30, 20]]], "multimask_output": 1}, "multimask_output"),
    ({"points_per_crop": 100000}, "points_per_crop"),
    ({"crops_n_layers": 9}, "crops_n_layers"),
    ({"pred_iou_thresh": 2}, "pred_iou_thresh"),
    ({"points": [[1, 2]]}, "no option 'points'"),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=range(len(BAD)))
def test_bad_prompts(pipes, options, words):
    """Each in words, and the pipeline goes on."""
    image = next(pictures())
    pipe = pipes("sam2")
    with pytest.raises(InputError, match=words):
        pipe(image, **options)
    assert pipe(image, input_points=[30, 20])["masks"].shape == (1, 3, 64, 96)


def test_nothing_asked_and_closed(models):
    pipe = pipeline("mask-generation", models("sam")[0])
    opened = pipe.open(next(pictures()))
    with pytest.raises(InputError, match="no prompt"):
        opened.masks()
    with pytest.raises(InputError, match="takes no boxes"):
        opened.masks(input_boxes=[1, 1, 9, 9])
    with pytest.raises(InputError, match="there is no option 'image'"):
        opened.masks(image=1)
    assert opened.masks(input_points=[3, 4])["iou_scores"].shape == (1, 3)
    pipe.close()
    with pytest.raises(InputError, match="closed"):
        opened.masks(input_points=[3, 4])
    with pytest.raises(InputError, match="closed"):
        pipe.open(next(pictures()))


@pytest.mark.parametrize("packaged", [False, True])
def test_files_of_two_models(models, tmp_path, packaged):
    """The encoder of one model and the decoder of another."""
    folder = tmp_path / "mixed"
    (folder / "onnx").mkdir(parents=True)
    sam, sam2 = models("sam")[0], models("sam2")[0]
    for name in ("config.json", "preprocessor_config.json", "onnx/vision_encoder.onnx"):
        (folder / name).write_bytes((sam2 / name).read_bytes())
    name = "onnx/prompt_encoder_mask_decoder.onnx"
    (folder / name).write_bytes((sam / name).read_bytes())
    with pytest.raises(InputError, match="belong together"):
        if packaged:
            compile_task(folder_files(Path(folder))[0], "mask-generation")
        pipeline("mask-generation", folder).open(next(pictures()))

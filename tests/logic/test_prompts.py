"""Prompts and masks of mask-generation on both forms, against transformers' functions."""

import importlib

import pytest
from edgewise.errors import InputError

from .forms import both, module

np = pytest.importorskip("numpy")


@both
def test_grids_and_crops(form):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    pytest.importorskip("PIL.Image")
    masks = module(form, "tasks.masks")
    helper = transformers.SamImageProcessor(size={"longest_edge": 64})
    theirs = importlib.import_module("transformers.models.sam.image_processing_sam")
    for height, width, layers, side in ((90, 61, 0, 4), (150, 200, 1, 3), (333, 100, 2, 1)):
        image = np.zeros((height, width, 3), np.uint8)
        boxes, _, parts, _ = helper.generate_crop_boxes(image, 64, layers, 512 / 1500, side, 1)
        found = masks.crops((height, width), layers, 512 / 1500)
        crops = [(c.left, c.top, c.right, c.bottom) for _, c in found]
        assert crops == [tuple(box) for box in boxes.int().tolist()]
        for i, (_, crop) in enumerate(found):
            grid = masks.grid(crop, side, 64)
            size = (crop.bottom - crop.top, crop.right - crop.left)
            assert parts[i].shape[:2] == size
            # version 4 scales by the picture's size, version 5 by the crop's
            points = theirs._build_point_grid(side) * np.array(size)[::-1]
            wanted = theirs._normalize_coordinates(64, points, size)
            np.testing.assert_allclose(grid, wanted, rtol=1e-6)


@both
def test_prompts_of_objects(form):
    prompts = module(form, "tasks.prompts")
    made = prompts.read_prompts({"input_points": [[[1, 2], [3, 4]], [[5, 6]]]}, (10, 20))
    assert [[list(p) for p in of] for of in made.points] == [[[1, 2], [3, 4]], [[5, 6], [-10, -10]]]
    assert made.labels == [[1, 1], [1, -10]]
    assert len(prompts.batches(made)) == 2
    single = prompts.read_prompts({"input_points": [[[i, 1]] for i in range(20)] * 5}, (10, 20))
    assert [len(b.points) for b in prompts.batches(single)] == [64, 36]
    given = prompts.prompt_inputs(["input_points", "input_labels"], single, True, False)
    assert given["input_points"].dims == [1, 100, 1, 2]
    boxed = prompts.read_prompts({"input_boxes": [[1, 2, 3, 4]]}, (10, 20))
    corners = prompts.prompt_inputs(["input_points", "input_labels"], boxed, True, True)
    assert corners["input_labels"].data == [2, 3]
    assert corners["input_points"].data == [1, 2, 3, 4]
    with pytest.raises(InputError, match="takes no boxes"):
        prompts.prompt_inputs(["input_points", "input_labels"], boxed, True, False)


@both
@pytest.mark.parametrize(
    "given",
    [
        {"input_points": [[[21, 2]]]},
        {"input_points": [[[2, 2]]], "input_labels": [[True]]},
        {"input_points": [[[2, 2]]], "input_labels": []},
        {"input_points": [[[2, None]]]},
        {"input_boxes": [[3, 3, 2, 4]]},
        {},
    ],
)
def test_bad_prompts(form, given):
    with pytest.raises(InputError):
        module(form, "tasks.prompts").read_prompts(given, (10, 20))


@both
def test_files_that_belong_together(form):
    names = module(form, "tasks.prompts").embedding_names
    assert names(["input_points", "a", "b"], ["b", "x"]) == {"b": "b", "a": "x"}
    with pytest.raises(InputError, match="belong together"):
        names(["input_points", "a", "b"], ["b"])


@both
def test_run_lengths(form):
    """As pycocotools: column by column, the first run is of zeros."""
    mask = bytes([1, 0, 0, 1, 1, 0])
    assert module(form, "tasks.masks").run_lengths(mask, 2, 3) == [0, 2, 1, 1, 2]


@both
def test_phrases_of_boxes(form):
    """As post_process_grounded_object_detection of transformers."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    objects, inputs = module(form, "tasks.objects"), module(form, "tasks.inputs")
    rng = np.random.default_rng(1)
    logits = rng.normal(-1, 2, (1, 12, 16)).astype(np.float32)
    boxes = rng.uniform(0.1, 0.9, (1, 12, 4)).astype(np.float32)
    ids = [101, 7, 8, 1012, 9, 1012, 102]
    cut = np.where(np.arange(16) < len(ids), logits, -np.inf).astype(np.float32)

    class Decoder:
        def batch_decode(self, rows):
            return [[int(i) for i in row] for row in rows]

    theirs = transformers.models.grounding_dino.processing_grounding_dino.GroundingDinoProcessor
    out = type("Out", (), {})()
    out.logits, out.pred_boxes = torch.tensor(cut), torch.tensor(boxes)
    wanted = theirs.post_process_grounded_object_detection(
        Decoder(), out, torch.tensor([ids]), 0.4, 0.3, [(40, 60)]
    )[0]
    how = objects.finding({"threshold": 0.4, "text_threshold": 0.3})
    values = [inputs.Values(list(x.shape), x.flatten().tolist()) for x in (cut.clip(-99), boxes)]
    found = objects.grounded(*values, ids, how, (40, 60), "zero-shot-object-detection")
    order = np.argsort(-wanted["scores"].numpy(), kind="stable")
    assert len(found) == len(order) > 3
    for one, i in zip(found, order):
        assert one.score == pytest.approx(float(wanted["scores"][i]), abs=1e-6)
        assert one.tokens == wanted["text_labels"][i]
        box = [int(x) for x in wanted["boxes"][i]]
        assert list(one.found["box"].values()) == box
    assert objects.grounded_text(["A cat", " dog "]) == "a cat. dog."
    assert objects.grounded_text(["a cat. a dog."]) == "a cat. a dog."
    with pytest.raises(InputError, match="dot"):
        objects.grounded_text(["a.b", "c"])

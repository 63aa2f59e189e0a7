"""Objects by any labels against transformers, from pixels on."""

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
from .test_mask_generation import pictures  # noqa: E402

LABELS = ["a cat", "dog", "two very large trees"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """function(kind) that returns (folder, package)."""
    made = {}

    def get(kind):
        if kind not in made:
            folder = tiny_prompts.make_owl(tmp_path_factory.mktemp(kind) / "model", kind)
            package = folder.parent / "model.edge"
            with package.open("wb") as file:
                compile_task(folder_files(folder)[0], "zero-shot-object-detection").write(file)
            made[kind] = folder, package
        return made[kind]

    return get


def expected(folder, kind, pipe, image, threshold):
    """transformers' pipeline, of OWLv2 without its processor, which needs SciPy."""
    if kind == "owlvit":
        theirs = transformers.pipeline(
            "zero-shot-object-detection", str(folder), framework="pt", use_fast=False, device="cpu"
        )
        return theirs(image, candidate_labels=LABELS, threshold=threshold)
    model = transformers.Owlv2ForObjectDetection.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pixels = torch.tensor(np.asarray(pipe.processor(image)["pixel_values"]))
    found = []
    for label in LABELS:
        with torch.no_grad():
            out = model(**tokenizer(label, return_tensors="pt"), pixel_values=pixels)
        scores = torch.sigmoid(out.logits[0, :, 0])
        x, y, w, h = (out.pred_boxes[0] * max(image.size)).unbind(-1)
        boxes = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)
        for score, box in zip(scores, boxes):
            if score > threshold:
                sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), box.int().tolist()))
                found.append({"score": float(score), "label": label, "box": sides})
    return sorted(found, key=lambda one: -one["score"])


@pytest.mark.parametrize("form", ["folder", "package"])
@pytest.mark.parametrize("kind", ["owlvit", "owlv2"])
def test_labels(models, kind, form):
    folder = models(kind)[0]
    pipe = pipeline("zero-shot-object-detection", models(kind)[form == "package"])
    count = 0
    for image in pictures():
        for threshold in (0.1, 0.3):
            wanted = expected(folder, kind, pipe, image, threshold)
            found = pipe(image, candidate_labels=LABELS, threshold=threshold)
            count += len(found)
            assert len(found) == len(wanted)
            for a, b in zip(found, wanted):
                assert a["label"] == b["label"]
                assert a["score"] == pytest.approx(b["score"], abs=1e-4)
                for side, at in b["box"].items():
                    assert type(a["box"][side]) is int and abs(a["box"][side] - at) <= 1
        found = pipe(image, ", ".join(LABELS), top_k=2)
        assert found == pipe(image, LABELS)[:2]
        parts = pipe(image, LABELS, percentage=True)
        assert all(abs(x) <= 3 for one in parts for x in one["box"].values())
    assert count > 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "there are no labels"),
        ({"candidate_labels": []}, "there are no labels"),
        ({"candidate_labels": ["a cat", ""]}, "there are no labels"),
        ({"candidate_labels": ["word " * 40]}, "tokens, the model takes 16"),
        ({"candidate_labels": LABELS, "threshold": 2}, "threshold"),
        ({"candidate_labels": LABELS, "top_k": 0}, "top_k"),
        ({"candidate_labels": LABELS, "labels": 1}, "no option 'labels'"),
    ],
)
def test_bad_options(models, options, words):
    pipe = pipeline("zero-shot-object-detection", models("owlvit")[0])
    image = next(pictures())
    with pytest.raises(InputError, match=words):
        pipe(image, **options)
    assert pipe(image, LABELS, threshold=0)


TEXTS = (["A cat", "two trees"], ["a cat. two trees."], "a cat, two trees")
LIMITS = {"threshold": 0.5, "text_threshold": 0.55}


@pytest.fixture(scope="module")
def grounded(tmp_path_factory):
    """(folder, package, model) of Grounding DINO."""
    folder = tmp_path_factory.mktemp("grounded") / "model"
    model, package = tiny_prompts.make_grounded(folder), folder.parent / "model.edge"
    with package.open("wb") as file:
        compile_task(folder_files(folder)[0], "zero-shot-object-detection").write(file)
    return folder, package, model


@pytest.mark.family("Grounding DINO", exporter="torch")
@pytest.mark.parametrize("form", ["folder", "package"])
def test_phrases(grounded, form):
    """Grounding DINO reads all labels as one text, whose tokens name what is in a box."""
    folder, package, model = grounded
    pipe = pipeline("zero-shot-object-detection", folder if form == "folder" else package)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    processor = transformers.GroundingDinoImageProcessor.from_pretrained(folder)
    image = next(pictures())
    given = tokenizer("a cat. two trees.", return_tensors="pt")
    with torch.no_grad(), tiny_prompts.grounding(tokenizer):
        out = model(**given, **processor(image, return_tensors="pt"))
    theirs = transformers.models.grounding_dino.processing_grounding_dino.GroundingDinoProcessor
    wanted = theirs.post_process_grounded_object_detection(
        tokenizer, out, given["input_ids"], *LIMITS.values(), [image.size[::-1]]
    )[0]
    for labels in TEXTS:
        found = pipe(image, labels, **LIMITS)
        assert len(found) == len(wanted["scores"]) > 3
        scores, left = wanted["scores"].numpy(), set(range(len(found)))
        for one in found:
            near = [i for i in left if abs(scores[i] - one["score"]) <= 1e-5]
            i = min(near, key=lambda i: abs(one["box"]["xmin"] - int(wanted["boxes"][i][0])))
            assert scores[i] >= max(scores[list(left)]) - 1e-5  # nearly equal ones: any order
            left.remove(i)
            assert one["label"] == wanted["text_labels"][i]
            box = [int(x) for x in wanted["boxes"][i]]
            assert all(abs(a - b) <= 1 for a, b in zip(one["box"].values(), box))
    assert len({one["label"] for one in found}) > 1
    limits = {"box_threshold": LIMITS["threshold"], "text_threshold": LIMITS["text_threshold"]}
    assert found[:2] == pipe(image, labels, **limits, top_k=2)
    with pytest.raises(InputError, match="dot"):
        pipe(image, ["a.b", "c"])
    with pytest.raises(InputError, match=r"the model takes (256|64)"):
        pipe(image, ["word"] * 300)

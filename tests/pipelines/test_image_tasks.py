"""Tasks of pictures against transformers' pipelines, from pixels on."""

import json
import lzma
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from edgewise import pipeline  # noqa: E402
from edgewise.compiler.task_package.towers import PICTURES, scale_and_bias  # noqa: E402
from edgewise.errors import InputError  # noqa: E402
from edgewise.host.session.open import folder_files  # noqa: E402
from edgewise.task_package import compile_task  # noqa: E402

from . import make_rf_detr, tiny_images  # noqa: E402

MODEL = "model.onnx.xz"
CONFORMANCE = Path(__file__).parents[1] / "conformance"
REAL = Path(os.environ.get("EDGEWISE_REAL", "/nonexistent"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """function(kind, **changes) that returns the folder of a tiny random model."""
    made = {}

    def get(kind, **changes):
        key = (kind, *sorted(changes.items()))
        if key not in made:
            made[key] = tiny_images.make(tmp_path_factory.mktemp(kind), kind, **changes)
        return made[key]

    return get


def pictures():
    """Pictures with areas and noise, of several shapes."""
    rng = np.random.default_rng(3)
    for height, width in ((64, 96), (90, 61)):
        pixels = rng.integers(0, 60, (height, width, 3))
        pixels[height // 4 : height // 2, : width // 2] += [180, 20, 40]
        pixels[height // 2 :, width // 3 :] += [10, 150, 190]
        yield Image.fromarray(pixels.astype(np.uint8))


def both(task, folder, **options):
    """Our pipeline and transformers'."""
    theirs = transformers.pipeline(
        task, str(folder), framework="pt", use_fast=False, device="cpu", **options
    )
    return pipeline(task, folder), theirs


def same_scores(ours, theirs, atol=1e-4):
    assert [r["label"] for r in ours] == [r["label"] for r in theirs]
    for a, b in zip(ours, theirs):
        assert a["score"] == pytest.approx(b["score"], abs=atol)


@pytest.mark.parametrize("problem", [None, "multi_label_classification"])
def test_classification(tiny, problem):
    ours, theirs = both("image-classification", tiny("vit", problem_type=problem))
    for image in pictures():
        same_scores(ours(image), theirs(image))
        same_scores(ours(image, top_k=2), theirs(image, top_k=2))
        for function in ("softmax", "sigmoid", "none"):
            options = {"top_k": 5, "function_to_apply": function}
            same_scores(ours(image, **options), theirs(image, **options), 1e-3)
    several = ours(list(pictures()))
    assert len(several) == 2 and several[1] == ours(list(pictures())[1])


@pytest.mark.parametrize("kind", ["dinov3", "dinov3-convnext"])
@pytest.mark.family("DINOv3", exporter="torch")
def test_features_of_dinov3(tiny, kind):
    """With the configuration that its processor saves, which needs torchvision."""
    folder = tiny(kind)
    theirs = transformers.pipeline("image-feature-extraction", str(folder), use_fast=False)
    saved = json.loads((CONFORMANCE / "image_configs.json").read_text())
    for version in ("4.57.6", "5.24.0"):
        config = saved[version]["DINOv3ViTImageProcessorFast"] | tiny_images.SQUARE
        ours = pipeline("image-feature-extraction", folder, image_processor=config)
        for image in pictures():
            for pool in (False, True):
                expected = np.array(theirs(image, pool=pool))
                np.testing.assert_allclose(np.array(ours(image, pool=pool)), expected, atol=1e-4)


def test_features(tiny):
    ours, theirs = both("image-feature-extraction", tiny("vit-base"))
    for image in pictures():
        for pool in (False, True):
            expected = np.array(theirs(image, pool=pool))
            np.testing.assert_allclose(np.array(ours(image, pool=pool)), expected, atol=1e-4)
        assert ours(image, return_tensors=True).shape == (1, 17, 32)


@pytest.mark.family("RF-DETR", exporter="torch")
def test_rf_detr(tmp_path):
    """Expected values of make_rf_detr.py: the class is not in the transformers of the tests."""
    files = Path(__file__).parent / "rf_detr"
    folder = shutil.copytree(files, tmp_path / "model")
    (folder / "onnx").mkdir()
    (folder / "onnx/model.onnx").write_bytes(lzma.decompress((files / MODEL).read_bytes()))
    expected = json.loads((files / "expected.json").read_text())
    compile_task(folder_files(folder)[0], "object-detection").save(str(tmp_path / "model.edge"))
    for place in (folder, tmp_path / "model.edge"):
        with pipeline("object-detection", place) as ours:
            for size, wanted in zip(make_rf_detr.SIZES, expected):
                for threshold, objects in wanted.items():
                    image = Image.fromarray(make_rf_detr.picture(*size))
                    found = ours(image, threshold=float(threshold))
                    assert len(objects) > 0
                    same_scores(found, objects)
                    for one, other in zip(found, objects):
                        sides = zip(one["box"].values(), other["box"])
                        assert all(abs(a - b) <= 1 for a, b in sides)


@pytest.mark.parametrize("kind", ["detr", "yolos", "rt-detr"])
def test_detection(tiny, kind):
    ours, theirs = both("object-detection", tiny(kind))
    for image in pictures():
        for threshold in (0.2, 0.5):
            found = ours(image, threshold=threshold)
            expected = theirs(image, threshold=threshold)
            assert threshold > 0.2 or expected
            same_scores(found, expected)
            for a, b in zip(found, expected):
                for side, x in a["box"].items():
                    assert type(x) is int and abs(x - b["box"][side]) <= 1
        parts = ours(image, threshold=0.2, percentage=True)
        assert all(0 <= abs(x) <= 3 for one in parts for x in one["box"].values())


def masks_agree(ours, theirs, part=0.002):
    """Masks may differ where two values are nearly equal."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a["label"] == b["label"]
        assert (a["score"] is None) == (b["score"] is None)
        if a["score"] is not None:
            assert a["score"] == pytest.approx(b["score"], abs=1e-4)
        mask, expected = np.array(a["mask"]), np.array(b["mask"])
        assert a["mask"].mode == "L" and mask.shape == expected.shape
        assert (mask != expected).mean() <= part


def test_semantic_segmentation(tiny):
    ours, theirs = both("image-segmentation", tiny("segformer"))
    count = 0
    for image in pictures():
        expected = theirs(image)
        count += len(expected)
        masks_agree(ours(image), expected)
    assert count > 2
    with pytest.raises(InputError, match="subtask"):
        ours(image, subtask="panoptic")


QUERIES = {"threshold": 0.2, "mask_threshold": 0.1, "overlap_mask_area_threshold": 0.05}


def test_segmentation_with_queries(tiny):
    ours, theirs = both("image-segmentation", tiny("detr-masks"))
    count = 0
    for image in pictures():
        for subtask in (None, "panoptic", "semantic", "instance"):
            options = {"subtask": subtask, **QUERIES}
            expected = theirs(image, **options)
            count += len(expected)
            masks_agree(ours(image, **options), expected)
        assert ours(image, threshold=1.0) == []
    assert count > 4


@pytest.mark.parametrize("kind", ["maskformer", "mask2former"])
@pytest.mark.family("Mask2Former", exporter="torch")
def test_maskformer(tmp_path, kind):
    ours, theirs, tensors = instances_of(tmp_path, kind)
    for image in pictures():
        sizes = [image.size[::-1]]
        for fused in ([], [0, 1]):
            expected = theirs.post_process_panoptic_segmentation(
                tensors, **QUERIES, target_sizes=sizes, label_ids_to_fuse=set(fused)
            )[0]
            found = ours(image, **QUERIES, label_ids_to_fuse=fused)
            ids = {s["id"]: s for s in reversed(expected["segments_info"])}
            if not fused:  # transformers counts on from the id that it fused with
                assert len(found) == len(ids) > 2
            for one, number in zip(found, sorted(ids) if not fused else []):
                mask = np.array(one["mask"]) == 255
                assert (mask != (expected["segmentation"].numpy() == number)).mean() < 0.002
                assert one["score"] == pytest.approx(ids[number]["score"], abs=1e-4)
                assert one["label"] == tiny_images.LABELS[ids[number]["label_id"]]
            if fused:
                assert len([f for f in found if f["label"] in ("cat", "dog")]) <= 2
        classes = theirs.post_process_semantic_segmentation(tensors, target_sizes=sizes)[0].numpy()
        found = ours(image, subtask="semantic")
        assert [f["label"] for f in found] == [tiny_images.LABELS[c] for c in np.unique(classes)]
        for one, c in zip(found, np.unique(classes)):
            assert ((np.array(one["mask"]) == 255) != (classes == c)).mean() < 0.002


@pytest.mark.parametrize("kind", ["maskformer", "mask2former"])
def test_instances(tmp_path, monkeypatch, kind):
    """Masks lie one over the other, in the order of their classes' scores."""
    ours, theirs, tensors = instances_of(tmp_path, kind)
    sort_topk(monkeypatch)
    count = 0
    for image in pictures():
        for threshold in (0.2, 0.5):
            expected = theirs.post_process_instance_segmentation(
                tensors, threshold=threshold, target_sizes=[image.size[::-1]]
            )[0]
            found = ours(image, subtask="instance", threshold=threshold)
            assert len(found) == len(expected["segments_info"])
            count += len(found)
            for one, segment in zip(found, expected["segments_info"]):
                mask = np.array(one["mask"]) == 255
                assert (mask != (expected["segmentation"].numpy() == segment["id"])).mean() < 0.002
                assert one["score"] == pytest.approx(segment["score"], abs=1e-4)
                assert one["label"] == tiny_images.LABELS[segment["label_id"]]
    assert count > 9


def instances_of(folder, kind):
    """(our pipeline, processor of transformers, outputs) of a model with these outputs."""
    rng = np.random.default_rng(5)
    logits = rng.standard_normal((1, 9, 6)).astype(np.float32) * 3
    masks = rng.standard_normal((1, 9, 12, 16)).astype(np.float32) * 2
    outputs = {"class_queries_logits": logits, "masks_queries_logits": masks}
    ours = pipeline("image-segmentation", tiny_images.constant(folder / kind, kind, outputs))
    name = {"maskformer": "MaskFormer", "mask2former": "Mask2Former"}[kind]
    tensors = transformers.utils.ModelOutput(
        {key: torch.tensor(value) for key, value in outputs.items()}
    )
    return ours, getattr(transformers, f"{name}ImageProcessor")(), tensors


def sort_topk(monkeypatch):
    """Instances are in the order of `topk`, which PyTorch sorts for many classes alone."""
    topk = torch.Tensor.topk
    monkeypatch.setattr(torch.Tensor, "topk", lambda x, k, sorted: topk(x, k))


@pytest.mark.parametrize(
    "kind",
    [
        *("glpn", "dpt"),
        pytest.param(
            "depth-anything", marks=pytest.mark.family("Depth Anything", exporter="torch")
        ),
    ],
)
def test_depth(tiny, kind):
    ours, theirs = both("depth-estimation", tiny(kind))
    for image in pictures():
        found, expected = ours(image), theirs(image)
        values = expected["predicted_depth"].numpy()
        scale = np.abs(values).max()
        np.testing.assert_allclose(found["predicted_depth"], values, atol=1e-4 * scale)
        gray, reference = (np.array(x["depth"]).astype(int) for x in (found, expected))
        assert found["depth"].size == image.size and np.abs(gray - reference).max() <= 1


@pytest.mark.parametrize("names", [("pixel_values", "predicted_depth"), ("image", "depth")])
@pytest.mark.family("Depth Anything 3", exporter="hand")
def test_depth_of_one_view_of_a_scene(tiny, tmp_path, names):
    """Depth Anything 3 takes [batch, views, 3, height, width], and has further outputs: its file
    with the arithmetic of Depth Anything 1.
    """
    folder = shutil.copytree(tiny("depth-anything"), tmp_path / "scene")
    path = folder / "onnx/model.onnx"
    model = onnx.load(path)
    h, graph = onnx.helper, model.graph
    shape = [1, 1, 3, 56, 56]
    graph.input[0].CopyFrom(h.make_tensor_value_info(names[0], 1, shape))
    del graph.output[:]
    for name, dims in ((names[1], [1, 1, 56, 56]), (f"{names[1]}_conf", [1, 1, 56, 56])):
        graph.output.append(h.make_tensor_value_info(name, 1, dims))
    for node in graph.node:
        node.input[:] = ["one" if name == "pixel_values" else name for name in node.input]
        node.output[:] = ["plane" if name == "predicted_depth" else name for name in node.output]
    graph.initializer.append(h.make_tensor("axis_1", 7, [1], [1]))
    graph.node.insert(0, h.make_node("Squeeze", [names[0], "axis_1"], ["one"]))
    graph.node.append(h.make_node("Unsqueeze", ["plane", "axis_1"], [names[1]]))
    graph.node.append(h.make_node("Sigmoid", [names[1]], [f"{names[1]}_conf"]))
    onnx.save(model, path)
    _, theirs = both("depth-estimation", tiny("depth-anything"))
    compile_task(folder_files(folder)[0], "depth-estimation").save(str(tmp_path / "scene.edge"))
    for place in (folder, tmp_path / "scene.edge"):
        with pipeline("depth-estimation", place) as ours:
            for image in pictures():
                found, values = ours(image), theirs(image)["predicted_depth"].numpy()
                atol = 1e-4 * np.abs(values).max()
                np.testing.assert_allclose(found["predicted_depth"], values, atol=atol)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("kind", ["clip", "siglip"])
@pytest.mark.family("CLIP", exporter="torch")
def test_zero_shot(tiny, kind, separate, tmp_path):
    ours, theirs = both("zero-shot-image-classification", tiny(kind, separate=separate))
    labels = ["a cat", "dog", "two very large trees"]
    for image in pictures():
        options = {"candidate_labels": labels}
        for extra in ({}, {"hypothesis_template": "{}!"}):
            results = (p(image, **options, **extra) for p in (ours, theirs))
            same_scores(*(sorted(r, key=lambda one: one["label"]) for r in results))
        assert ours(image, ", ".join(labels)) == ours(image, **options)
        scores = [one["score"] for one in ours(image, labels)]
        assert scores == sorted(scores, reverse=True)
    for wrong in (None, [], " , ", ["a", ""], [1]):
        with pytest.raises(InputError, match="candidate_labels"):
            ours(image, wrong)
    if separate:
        check_texts_are_read_once(ours, image, labels)
        folder = tiny(kind, separate=True)
        check_wrong_halves(shutil.copytree(folder, tmp_path / "halves"), image, labels)


def check_texts_are_read_once(pipe, image, labels):
    runs = []
    session = pipe.session("text_model")
    run, session.run = session.run, lambda *given: runs.append(given) or run(*given)
    pipe(image, labels)
    assert not runs
    pipe([image] * 2, [*labels, "moped", "cup"])
    assert len(runs) == 2


def check_wrong_halves(folder, image, labels):
    """Files that are swapped, of two models, or of halves as float16, whose scores are the same."""
    task = "zero-shot-image-classification"
    paths = [folder / f"onnx/{name}_model.onnx" for name in ("vision", "text")]
    vision, text = (path.read_bytes() for path in paths)
    with pipeline(task, folder) as pipe:
        wanted = {x["label"]: x["score"] for x in pipe(image, labels)}
    half = dict(to=onnx.TensorProto.FLOAT16)
    for halves, error in (
        ((with_last(vision, "Cast", **half), with_last(text, "Cast", **half)), None),
        ((text, vision), "vision_model.onnx: its inputs are input_ids.* swapped"),
        ((vision, vision), "text_model.onnx: its inputs are pixel_values.* swapped"),
        ((with_last(vision, "Concat", 2, axis=1), text), "pictures are .* and of texts"),
    ):
        for path, data in zip(paths, halves):
            path.write_bytes(data)
        with pipeline(task, folder) as pipe:
            if error is None:
                got = {x["label"]: x["score"] for x in pipe(image, labels)}
                assert got == pytest.approx(wanted, abs=1e-2)
                continue
            with pytest.raises(InputError, match=error):
                pipe(image, labels)
        with pytest.raises(InputError, match=error):
            compile_task(folder_files(folder)[0], task)


def with_last(model, op, times=1, **attributes):
    """A model whose first output goes through one more node, which takes it so many times."""
    made = onnx.load_from_string(model)
    output = made.graph.output[0]
    for node in made.graph.node:
        for names in (node.input, node.output):
            names[:] = ["inner" if name == output.name else name for name in names]
    node = onnx.helper.make_node(op, ["inner"] * times, [output.name], **attributes)
    made.graph.node.append(node)
    output.type.tensor_type.ClearField("shape")
    output.type.tensor_type.elem_type = attributes.get("to", onnx.TensorProto.FLOAT)
    return made.SerializeToString()


def test_weights_that_separate_files_lack():
    """Of CLIP known where they are not given, of SigLIP from one of two places."""
    clip, siglip = {"model_type": "clip"}, {"model_type": "siglip"}
    assert scale_and_bias(PICTURES, clip, None) == (pytest.approx(100), 0)
    assert scale_and_bias(PICTURES, {**clip, "logit_scale": 1}, None) == (math.e, 0)
    for config, text in (
        (siglip, "lack the weight 'logit_scale'"),
        ({**siglip, "logit_scale": 1}, "lack the weight 'logit_bias'"),
        ({**clip, "logit_scale": "1"}, "logit_scale is '1'"),
        ({**clip, "logit_scale": 1e9}, "logit_scale is 1000000000"),
        ({**clip, "logit_scale": 10**400}, "logit_scale is 10{39}. Give"),
        ({**clip, "logit_bias": float("nan")}, "logit_bias is nan"),
    ):
        with pytest.raises(InputError, match=text):
            scale_and_bias(PICTURES, config, None)


def test_yolo(tmp_path):
    """Boxes against onnxruntime's NonMaxSuppression on the same output."""
    ort = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    path = tiny_images.yolo(tmp_path)
    detect = pipeline("object-detection", path)
    h = onnx.helper
    names = ["boxes", "scores", "most", "iou", "threshold"]
    node = h.make_node("NonMaxSuppression", names, ["chosen"], center_point_box=1)
    kinds = [1, 1, 7, 1, 1]
    shapes = [[1, None, 4], [1, None, None], [1], [1], [1]]
    graph = h.make_graph(
        [node],
        "nms",
        [h.make_tensor_value_info(n, k, s) for n, k, s in zip(names, kinds, shapes)],
        [h.make_tensor_value_info("chosen", 7, [None, 3])],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    suppress = ort.InferenceSession(model.SerializeToString())
    run = ort.InferenceSession(path)
    for image in pictures():
        pixels = detect.processor(image)["pixel_values"]
        assert pixels.shape == (1, 3, 64, 64)
        (output,) = run.run(None, {"images": np.asarray(pixels)})
        boxes, scores = output[:, :4].transpose(0, 2, 1), output[:, 4:].copy()
        best = scores.argmax(1)
        for c in range(scores.shape[1]):  # each box has one class
            scores[0, c, best[0] != c] = 0
        feeds = dict(zip(names, [boxes, scores, np.array([300]), [0.45], [0.5]]))
        feeds = {n: np.asarray(x, dtype=np.int64 if n == "most" else "f") for n, x in feeds.items()}
        chosen = suppress.run(None, feeds)[0]
        scale = min(64 / image.height, 64 / image.width)
        left = round((64 - round(image.width * scale)) / 2 - 0.1)
        top = round((64 - round(image.height * scale)) / 2 - 0.1)
        expected = []
        for _, label, anchor in chosen:
            x, y, w, h_ = boxes[0, anchor]
            box = np.array([x - w / 2 - left, y - h_ / 2 - top, x + w / 2 - left, y + h_ / 2 - top])
            high = [image.width, image.height] * 2
            box = np.clip(box / scale, 0, high)
            expected.append((float(scores[0, label, anchor]), tiny_images.LABELS[label], box))
        expected.sort(key=lambda e: -e[0])
        found = detect(image, percentage=True)
        assert len(found) == len(expected) > 3
        for a, (score, label, box) in zip(found, expected):
            assert a["score"] == pytest.approx(score, abs=1e-4) and a["label"] == label
            np.testing.assert_allclose(list(a["box"].values()) * np.array(high), box, atol=0.1)


def test_background_removal(tiny, tmp_path):
    """A model with one plane: alpha is the plane at the size of the picture."""
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    graph = h.make_graph(
        [h.make_node("ReduceMean", ["pixel_values"], ["alpha"], axes=[1], keepdims=1)],
        "matte",
        [h.make_tensor_value_info("pixel_values", 1, [1, 3, 32, 32])],
        [h.make_tensor_value_info("alpha", 1, [1, 1, 32, 32])],
    )
    path = tmp_path / "matte.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9), path)
    for normalize in (False, True):  # probabilities, then logits
        config = {
            "image_processor_type": "ViTImageProcessor",
            "size": 32,
            "do_normalize": normalize,
        }
        remove = pipeline("background-removal", path, image_processor=config)
        for image in pictures():
            plane = torch.tensor(np.asarray(remove.processor(image)["pixel_values"])).mean(1)
            plane = plane.sigmoid() if normalize else plane
            large = torch.nn.functional.interpolate(
                plane[None], size=image.size[::-1], mode="bilinear", align_corners=False
            )
            result = remove(image)
            assert result.mode == "RGBA" and result.size == image.size
            assert np.array_equal(np.array(result)[:, :, :3], np.array(image))
            expected = (large[0, 0].numpy() * 255).round()
            assert np.abs(np.array(result)[:, :, 3] - expected).max() <= 1


def test_other_models_and_bad_pictures(tiny, tmp_path):
    """An error names what is wrong, and the pipeline goes on working."""
    with pytest.raises(InputError, match="pred_boxes"):
        pipeline("object-detection", tiny("vit"))(next(pictures()))
    with pytest.raises(InputError, match="no preprocessor_config.json"):  # not taken for YOLO
        pipeline("object-detection", shutil.copy(tiny("yolos") / "onnx/model.onnx", tmp_path))
    classify = pipeline("image-classification", tiny("vit"))
    first = classify(next(pictures()))
    for bad in (b"damaged", "missing.png", np.zeros((0, 3, 3), np.uint8), 3):
        with pytest.raises(InputError):
            classify(bad)
    for options in ({"top_k": 0}, {"function_to_apply": "tanh"}, {"other": 1}):
        with pytest.raises(InputError):
            classify(next(pictures()), **options)
    assert classify(next(pictures())) == first
    with pytest.raises(InputError, match="preprocessor_config"):
        pipeline("image-classification", tiny("vit") / "onnx/model.onnx", image_processor=3)


# {task: (model, {option: a value})}
OPTIONS = {
    "image-classification": ("vit", {"top_k": 2, "function_to_apply": "sigmoid"}),
    "image-feature-extraction": ("vit-base", {"pool": True, "return_tensors": True}),
    "object-detection": (
        "yolos",
        {"threshold": 0.1, "percentage": True, "iou": 0.2, "agnostic_nms": True},
    ),
    "image-segmentation": (
        "segformer",
        {
            "subtask": "semantic",
            "threshold": 0.1,
            "mask_threshold": 0.2,
            "overlap_mask_area_threshold": 0.3,
            "label_ids_to_fuse": [1],
        },
    ),
    "depth-estimation": ("glpn", {}),
    "zero-shot-image-classification": (
        "clip",
        {"candidate_labels": ["a", "b"], "hypothesis_template": "{}."},
    ),
}
# Of transformers and transformers.js, without an effect here.
REFUSED = ["timeout", "image_processor_kwargs", "tokenizer_kwargs", "parameters", "target_sizes"]


@pytest.mark.parametrize("task", OPTIONS)
def test_every_option_works_or_raises(tiny, task):
    kind, values = OPTIONS[task]
    pipe, image = pipeline(task, tiny(kind)), next(pictures())
    assert set(values) == set(type(pipe).CALL)
    needed = {k: v for k, v in values.items() if k == "candidate_labels"}
    for name, value in values.items():
        once = pipe(image, **{**needed, name: value})
        again = pipeline(task, tiny(kind), **{name: value})(image, **needed)
        if name != "return_tensors":
            assert agree(*(plain(result) for result in (again, once)))
        with pytest.raises(InputError):
            pipe(image, **{**needed, name: object()})
    for name in REFUSED:
        with pytest.raises(InputError, match=f"no option '{name}'"):
            pipe(image, **needed, **{name: 1})


SCRIPT = """
import json, sys
sys.modules.update({"numpy": None, "PIL": None})
import edgewise
folders = json.loads(sys.argv[1])
image = edgewise.Array((40, 60, 3), "uint8", bytes(i % 251 for i in range(7200)))
out = []
for task, folder in folders.items():
    extra = {"candidate_labels": ["a", "b"]} if task.startswith("zero") else {}
    out.append(edgewise.pipeline(task, folder)(image, **extra))
plain = lambda x: x.tolist() if isinstance(x, edgewise.Array) else str(x)
print(json.dumps(out, default=plain))
"""


def test_without_numpy_and_pillow(tiny):
    """Results are the same; pictures are arrays."""
    folders = {task: str(tiny(kind)) for task, (kind, _) in OPTIONS.items()}
    run = [sys.executable, "-c", SCRIPT, json.dumps(folders)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pixels = np.array([i % 251 for i in range(7200)], np.uint8).reshape(40, 60, 3)
    for (task, folder), result in zip(folders.items(), json.loads(done.stdout)):
        extra = {"candidate_labels": ["a", "b"]} if task.startswith("zero") else {}
        expected = pipeline(task, folder)(pixels, **extra)
        assert agree(result, plain(expected)), task


def plain(result):
    """A result with masks and arrays as lists."""
    return json.loads(json.dumps(result, default=lambda x: np.asarray(x).tolist()))


def agree(a, b):
    if isinstance(a, dict):
        return set(a) == set(b) and all(agree(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(agree, a, b))
    return a == pytest.approx(b, abs=1e-5) if isinstance(a, float) else a == b


@pytest.mark.skipif(not (REAL / "efficientnet-lite0").exists(), reason="EDGEWISE_REAL has no model")
def test_real_classification():
    classify = pipeline("image-classification", REAL / "efficientnet-lite0")
    expected = {
        "chelsea.png": "cat",
        "coffee.png": "espresso",
        "camera.png": "tripod",
        "motorcycle_left.png": "moped",
    }
    for name, word in expected.items():
        best = classify(REAL / "images" / name)[0]
        assert word in best["label"], (name, best)

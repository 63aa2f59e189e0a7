"""Objects, segments, depth and features of pictures in a page: from pixels on the same as
transformers' pipelines, or as ours in Python where transformers has none.
"""

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")  # transformers' image processors need it

import torch  # noqa: E402
import transformers  # noqa: E402
from edgewise import pipeline  # noqa: E402
from edgewise.cli import main  # noqa: E402
from edgewise.compiler.processors.images import Description  # noqa: E402
from edgewise.onnx import BytesSource  # noqa: E402
from edgewise.package import Package  # noqa: E402

from tests.pipelines import tiny_images  # noqa: E402

QUERIES = {"threshold": 0.2, "mask_threshold": 0.1, "overlap_mask_area_threshold": 0.05}
TASKS = {
    "yolos": "object-detection",
    "rt-detr": "object-detection",
    "detr": "object-detection",
    "detr-masks": "image-segmentation",
    "segformer": "image-segmentation",
    "dpt": "depth-estimation",
    "glpn": "depth-estimation",
    "vit-base": "image-feature-extraction",
    "vitpose": "keypoint-detection",
    "clip": "zero-shot-image-classification",
    "siglip": "zero-shot-image-classification",
}
PICTURES = ("a.png", "b.png")


@pytest.fixture(scope="module")
def folder(files):
    """The folder with pictures, models and packages."""
    torch.set_num_threads(1)
    made = files / "vision"
    made.mkdir()
    rng = np.random.default_rng(3)
    for name, (height, width) in zip(PICTURES, ((64, 96), (90, 61))):
        pixels = rng.integers(0, 60, (height, width, 3))
        pixels[height // 4 : height // 2, : width // 2] += [180, 20, 40]
        pixels[height // 2 :, width // 3 :] += [10, 150, 190]
        Image.fromarray(pixels.astype(np.uint8)).save(made / name)
    for kind, task in TASKS.items():
        tiny_images.make(made / kind, kind, separate=kind == "siglip")
        build(made, task, kind)
    return made


def build(folder, task, kind):
    main(["build", "--task", task, str(folder / kind), "-o", str(folder / f"{kind}.edge")])


@pytest.fixture
def page(visit, server, folder):
    return visit(server)


def run(page, task, kind, options=None, names=PICTURES):
    """Results of pictures in the page. Tensors and pictures are {dims or size, data}."""
    found = page.run(
        """
            const p = await ew.pipeline(arg.task, arg.model);
            const plain = (x) => {
              if (x instanceof ew.Tensor) return { dims: x.dims, data: Array.from(x.data) };
              if (x instanceof ew.RawImage)
                return { size: [x.height, x.width, x.channels], data: Array.from(x.data) };
              if (Array.isArray(x)) return x.map(plain);
              if (typeof x !== "object" || x === null) return x;
              return Object.fromEntries(Object.entries(x).map(([k, v]) => [k, plain(v)]));
            };
            const results = [];
            for (const options of arg.options)
              for (const name of arg.names)
                results.push(plain(await p(`/files/vision/${name}`, options)));
            const several = plain(await p(arg.names.map((n) => `/files/vision/${n}`)));
            await p.dispose();
            return [results, several];
        """,
        {
            "task": task,
            "model": f"/files/vision/{kind if kind.endswith('/') else f'{kind}.edge'}",
            "options": options or [{}],
            "names": names,
        },
    )
    assert "error" not in found, found
    return found


def array(found):
    return np.array(found["data"]).reshape(found.get("dims") or found["size"])


def theirs(task, folder, kind):
    """transformers' pipeline."""
    return transformers.pipeline(
        task, str(folder / kind), framework="pt", use_fast=False, device="cpu"
    )


def in_package(task, folder, kind):
    """Our pipeline in Python with the sizes of pictures that the package has."""
    file = BytesSource((folder / f"{kind}.edge").read_bytes(), kind)
    processor = Package.read(file).manifest["processor"]["image"]
    return pipeline(task, folder / kind, processor=Description.from_dict(processor))


def same_objects(found, expected, pixels=1):
    assert [f["label"] for f in found] == [e["label"] for e in expected]
    for a, b in zip(found, expected):
        assert a["score"] == pytest.approx(b["score"], abs=1e-4)
        for side, value in b["box"].items():
            assert a["box"][side] == pytest.approx(value, abs=pixels)


def same_masks(found, expected, part=0.002):
    """Masks may differ where two values are nearly equal."""
    assert [f["label"] for f in found] == [e["label"] for e in expected]
    for a, b in zip(found, expected):
        assert (a["score"] is None) == (b["score"] is None)
        assert a["score"] is None or a["score"] == pytest.approx(b["score"], abs=1e-4)
        mask, reference = array(a["mask"]), np.array(b["mask"])
        assert mask.shape == (*reference.shape, 1)
        assert (mask[..., 0] != reference).mean() <= part


@pytest.mark.parametrize("kind", ["yolos", "rt-detr"])
def test_objects(page, folder, kind):
    pipe = theirs("object-detection", folder, kind)
    thresholds = [0.2, 0.5]
    options = [{"threshold": t} for t in thresholds] + [{"threshold": 0.2, "percentage": True}]
    found, several = run(page, "object-detection", kind, options)
    images = [Image.open(folder / name) for name in PICTURES]
    for i, threshold in enumerate(thresholds):
        for j, image in enumerate(images):
            expected = pipe(image, threshold=threshold)
            assert expected or threshold > 0.2
            same_objects(found[2 * i + j], expected)
    same_objects(several[1], pipe(images[1], threshold=0.5))
    for image, parts in zip(images, found[4:]):
        for one, pixels in zip(parts, pipe(image, threshold=0.2)):
            for side, length in zip(("xmin", "ymin", "xmax", "ymax"), 2 * image.size):
                assert one["box"][side] * length == pytest.approx(pixels["box"][side], abs=2)


@pytest.mark.parametrize("kind", ["yolos", "dpt"])
def test_folder_on_a_server(page, folder, kind):
    """A model that is compiled in the page has its image processor's settings."""
    task, options = TASKS[kind], {"threshold": 0.2} if kind == "yolos" else {}
    found, _ = run(page, task, f"{kind}/", [options], PICTURES[:1])
    expected = theirs(task, folder, kind)(Image.open(folder / PICTURES[0]), **options)
    if kind == "yolos":
        assert expected
        same_objects(found[0], expected)
    else:
        depth = np.asarray(expected["predicted_depth"])
        atol = 1e-4 * np.abs(depth).max()
        np.testing.assert_allclose(array(found[0]["predicted_depth"]), depth, atol=atol)


def test_objects_of_padded_pictures(page, folder):
    """DETR: the package's frame is what transformers makes of pictures of a batch."""
    found, _ = run(page, "object-detection", "detr", [{"threshold": 0.2}])
    ours = in_package("object-detection", folder, "detr")
    sizes = ours.processor.description.steps[-1]["sizes"]
    assert len(sizes) > 1
    model = transformers.DetrForObjectDetection.from_pretrained(folder / "detr")
    processor = transformers.DetrImageProcessor.from_pretrained(folder / "detr")
    for name, objects in zip(PICTURES, found):
        image = Image.open(folder / name)
        values = ours.processor(folder / name)["pixel_values"]
        assert list(values.shape[2:]) in sizes
        pad = {"height": values.shape[2], "width": values.shape[3]}
        inputs = processor(images=image, return_tensors="pt", pad_size=pad)
        with torch.no_grad():
            outputs = model(**inputs)
        [expected] = processor.post_process_object_detection(outputs, 0.2, [image.size[::-1]])
        assert len(objects) == len(expected["scores"]) > 0
        same_objects(objects, ours(folder / name, threshold=0.2))
        for one, score in zip(objects, expected["scores"].tolist()):
            assert one["score"] == pytest.approx(score, abs=1e-4)


def test_yolo(page, folder):
    """A file without configurations: sizes and labels are in the graph."""
    (folder / "yolo").mkdir()
    path = tiny_images.yolo(folder / "yolo")
    build(folder, "object-detection", "yolo/yolo.onnx")
    options = [{}, {"threshold": 0.3, "iou": 0.2}, {"threshold": 0.1, "agnostic_nms": True}]
    found, _ = run(page, "object-detection", "yolo/yolo.onnx", options)
    ours = pipeline("object-detection", path)
    for i, each in enumerate(options):
        for j, name in enumerate(PICTURES):
            same_objects(found[2 * i + j], ours(folder / name, **each))
    assert found[0] and {f["label"] for f in found[0]} <= set(tiny_images.LABELS[:3])
    compiled = page.run(
        """
            const p = await ew.pipeline("object-detection", "/files/vision/yolo/yolo.onnx");
            const found = await p("/files/vision/a.png");
            await p.dispose();
            return found;
        """
    )
    assert compiled == found[0]


def test_classes_of_pixels(page, folder):
    pipe = theirs("image-segmentation", folder, "segformer")
    options = [{}, {"subtask": "semantic"}, {"target_sizes": [[40, 30]]}]
    found, several = run(page, "image-segmentation", "segformer", options)
    assert len(found[0]) + len(found[1]) > 2
    for j, name in enumerate(PICTURES):
        expected = pipe(Image.open(folder / name))
        for one in (found[j], found[2 + j], several[j]):
            same_masks(one, expected)
        assert all(one["mask"]["size"] == [40, 30, 1] for one in found[4 + j])


def test_segments_of_queries(page, folder):
    options = [{"subtask": s, **QUERIES} for s in (None, "panoptic", "semantic", "instance")] + [
        {**QUERIES, "label_ids_to_fuse": [0, 1, 2]},
        {"threshold": 1},
    ]
    found, _ = run(page, "image-segmentation", "detr-masks", options)
    pipe = in_package("image-segmentation", folder, "detr-masks")
    count = 0
    for i, each in enumerate(options):
        for j, name in enumerate(PICTURES):
            expected = tiny_images.cut(pipe, folder / name, each)
            count += len(expected)
            same_masks(found[2 * i + j], expected, 0.01)
    assert count > 8 and found[-1] == []


@pytest.mark.parametrize("kind", ["maskformer", "mask2former"])
@pytest.mark.family("Mask2Former", exporter="torch")
def test_maskformer(page, folder, kind):
    rng = np.random.default_rng(5)
    outputs = {
        "class_queries_logits": rng.standard_normal((1, 9, 6)).astype(np.float32) * 3,
        "masks_queries_logits": rng.standard_normal((1, 9, 12, 16)).astype(np.float32) * 2,
    }
    tiny_images.constant(folder / kind, kind, outputs)
    build(folder, "image-segmentation", kind)
    options = [QUERIES, {"subtask": "semantic"}, {"subtask": "instance", "threshold": 0.3}]
    found, _ = run(page, "image-segmentation", kind, options)
    pipe = pipeline("image-segmentation", folder / kind)
    for i, each in enumerate(options):
        for j, name in enumerate(PICTURES):
            expected = pipe(folder / name, **each)
            assert len(expected) > 2
            same_masks(found[2 * i + j], expected)


@pytest.mark.parametrize("kind", ["dpt", "glpn"])
def test_depth(page, folder, kind):
    """GLPN's sizes depend on the picture: the package has the nearest ones."""
    found, several = run(page, "depth-estimation", kind)
    pipe = (theirs if kind == "dpt" else in_package)("depth-estimation", folder, kind)
    for one, again, name in zip(found, several, PICTURES):
        image = Image.open(folder / name)
        expected = pipe(image)
        values = np.asarray(expected["predicted_depth"])
        depth, gray = array(one["predicted_depth"]), array(one["depth"])
        assert depth.shape == image.size[::-1] and gray.shape == (*depth.shape, 1)
        np.testing.assert_allclose(depth, values, atol=1e-4 * np.abs(values).max())
        reference = np.array(expected["depth"]).astype(int)
        assert np.abs(gray[..., 0] - reference).max() <= 1
        assert again == one


def test_features(page, folder):
    pipe = theirs("image-feature-extraction", folder, "vit-base")
    found, several = run(page, "image-feature-extraction", "vit-base", [{}, {"pool": True}])
    images = [Image.open(folder / name) for name in PICTURES]
    for i, pool in enumerate((False, True)):
        for j, image in enumerate(images):
            expected = np.array(pipe(image, pool=pool))
            np.testing.assert_allclose(array(found[2 * i + j]), expected, atol=1e-4)
    whole = array(several)
    assert whole.shape == (2, 17, 32)
    np.testing.assert_allclose(whole[1], array(found[1])[0], atol=1e-6)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
@pytest.mark.family("CLIP", exporter="torch")
def test_any_labels(page, folder, kind):
    task, labels = "zero-shot-image-classification", ["a cat", "dog", "two very large trees"]
    found = page.run(
        """
            const p = await ew.pipeline(arg.task, `/files/vision/${arg.kind}.edge`);
            const pictures = arg.names.map((n) => `/files/vision/${n}`);
            const several = await p(pictures, arg.labels);
            const one = await p(pictures[1], arg.labels.join(), { hypothesis_template: "{}!" });
            const errors = [];
            for (const labels of [undefined, [], ["very ".repeat(60)]])
              errors.push(await p(pictures[0], labels).then((x) => x.length, (e) => e.what));
            await p.dispose();
            return [...several, one, errors];
        """,
        {"task": task, "kind": kind, "names": PICTURES, "labels": labels},
    )
    assert "error" not in found, found
    assert found[3][0] == found[3][1] == "there are no labels"
    assert found[3][2] == 1 if kind == "siglip" else "the model takes 40" in found[3][2]
    pipe = theirs(task, folder, kind)
    images = [Image.open(folder / name) for name in PICTURES]
    wanted = [*pipe(images, candidate_labels=labels)]
    wanted.append(pipe(images[1], candidate_labels=labels, hypothesis_template="{}!"))
    for got, want in zip(found, wanted):
        scores = {one["label"]: one["score"] for one in want}
        assert {one["label"] for one in got} == scores.keys()
        assert [one["score"] for one in got] == sorted((o["score"] for o in got), reverse=True)
        for one in got:
            assert one["score"] == pytest.approx(scores[one["label"]], abs=1e-5)


@pytest.mark.parametrize("logits", [False, True])
def test_background(page, folder, logits):
    """A model whose foreground is what is red."""
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    kind = f"matte{logits}"
    (folder / kind).mkdir()
    nodes = [
        h.make_node("Slice", ["input", "zero", "one", "one"], ["red"]),
        h.make_node("Mul", ["red", "scale"], ["scaled"]),
        h.make_node("Sub", ["scaled", "shift"], ["shifted"]),
        h.make_node("Identity" if logits else "Sigmoid", ["shifted"], ["output"]),
    ]
    constants = [
        h.make_tensor("zero", 7, [1], [0]),
        h.make_tensor("one", 7, [1], [1]),
        h.make_tensor("scale", 1, [], [8.0]),
        h.make_tensor("shift", 1, [], [3.0]),
    ]
    graph = h.make_graph(
        nodes,
        "matte",
        [h.make_tensor_value_info("input", 1, ["b", 3, "h", "w"])],
        [h.make_tensor_value_info("output", 1, ["b", 1, "h", "w"])],
        constants,
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / kind / "model.onnx")
    (folder / kind / "config.json").write_text("{}")
    transformers.ViTImageProcessor(size={"height": 48, "width": 48}).save_pretrained(folder / kind)
    build(folder, "background-removal", kind)
    found, several = run(page, "background-removal", kind)
    ours = pipeline("background-removal", folder / kind)
    for one, again, name in zip(found, several, PICTURES):
        pixels, expected = array(one), np.array(ours(folder / name)).astype(int)
        assert np.array_equal(pixels[..., :3], expected[..., :3])
        assert np.abs(pixels[..., 3] - expected[..., 3]).max() <= 1
        assert pixels[..., 3].min() < 60 and pixels[..., 3].max() > 200
        assert again == one


def test_processor_and_files(page, folder):
    """`processor` gives the model's inputs; results become canvases and files, and inputs again."""
    found = page.run(
        """
            const p = await ew.pipeline("image-segmentation", "/files/vision/detr-masks.edge");
            const inputs = await p.processor("/files/vision/a.png");
            const kinds = Object.entries(inputs).map(([name, t]) => [name, t.type, t.dims]);
            await p.dispose();
            const q = await ew.pipeline("image-segmentation", "/files/vision/segformer.edge");
            const [{ mask }] = await q("/files/vision/a.png");
            const canvas = mask.toCanvas();
            const file = await mask.toBlob();
            const bitmap = await createImageBitmap(file);
            const context = new OffscreenCanvas(...mask.size).getContext("2d");
            context.drawImage(bitmap, 0, 0);
            const { data } = context.getImageData(0, 0, ...mask.size);
            const kept = mask.data.every((v, i) => data[4 * i] === v && data[4 * i + 3] === 255);
            const own = new ew.RawImage(new Uint8Array(12).fill(9), 2, 2, 3);
            const again = await q(mask);
            const source = document.createElement("canvas");
            const video = document.createElement("video");
            video.muted = true;
            video.srcObject = source.captureStream(10);
            const shown = new Promise((resolve) => video.requestVideoFrameCallback(resolve));
            const draw = () => source.getContext("2d").fillRect(0, 0, 9, 9);
            const drawing = setInterval(draw, 20); // a frame that came too early is not repeated
            await Promise.all([video.play(), shown]);
            clearInterval(drawing);
            const frame = await q(video);
            const small = await q(own, { target_sizes: [[3, 5]] });
            await q.dispose();
            return {
              kinds,
              canvas: [canvas.width, canvas.height, file.type, kept],
              again: again[0].mask.size,
              small: small[0].mask.size,
              frame: frame[0].mask.size,
              values: Array.from(inputs.pixel_values.data),
            };
        """
    )
    assert "error" not in found, found
    ours = in_package("image-segmentation", folder, "detr-masks").processor(folder / "a.png")
    shape = list(ours["pixel_values"].shape)
    assert found["kinds"] == [
        ["pixel_values", "float32", shape],
        ["pixel_mask", "int64", [1, *shape[2:]]],
    ]
    assert np.array_equal(
        np.array(found["values"], np.float32), np.asarray(ours["pixel_values"]).ravel()
    )
    assert found["canvas"] == [96, 64, "image/png", True]
    assert found["again"] == [96, 64] and found["small"] == [5, 3]
    assert found["frame"][0] > 1


# long: a table of cases
def test_refusals(page, folder):
    """Options, pictures and models of other tasks; the pipeline goes on."""
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:200])
    found = page.run(
        """
            const errors = [];
            const caught = (p) => p.then(() => "nothing", (e) => `${e.name} ${e.where}: ${e.what}`);
            const p = await ew.pipeline("image-segmentation", "/files/vision/segformer.edge");
            const url = "/files/vision/a.png";
            for (const options of [
              { threshold: 2 },
              { mask_threshold: "a" },
              { overlap_mask_area_threshold: -1 },
              { subtask: "panoptic" },
              { subtask: "other" },
              { label_ids_to_fuse: ["a"] },
              { target_sizes: [3] },
              { target_sizes: [] },
              { target_sizes: [[20000, 20000]] },
              { unknown: 1 },
            ])
              errors.push(await caught(p(url, options)));
            for (const input of [
              "/files/vision/broken.png",
              { data: new Uint8Array(0), width: 0, height: 0, channels: 3 },
              { data: new Uint8Array(4), width: 20000, height: 20000, channels: 4 },
              "text",
            ])
              errors.push(await caught(p(input)));
            errors.push(await caught(p.processor("/files/vision/broken.png")));
            const result = await p(url);
            await p.dispose();
            const d = await ew.pipeline("object-detection", "/files/vision/yolos.edge");
            for (const options of [{ threshold: -1 }, { percentage: 1 }, { iou: NaN }])
              errors.push(await caught(d(url, options)));
            await d.dispose();
            const f = await ew.pipeline("depth-estimation", "/files/vision/dpt.edge");
            errors.push(await caught(f(url, { top_k: 1 })));
            await f.dispose();
            errors.push(await caught(ew.pipeline("depth-estimation", "/files/vision/yolos.edge")));
            return [errors, result.length];
        """
    )
    assert "error" not in found, found
    errors, count = found
    assert all(e.startswith("InputError") for e in errors[:-1]), errors
    assert errors[-1].startswith("PackageError") and "object-detection" in errors[-1]
    for part, text in zip(
        (
            "threshold",
            "mask_threshold",
            "overlap",
            "subtask",
            "subtask",
            "fuse",
            "target",
            "target",
            "target",
            "unknown",
        ),
        errors,
    ):
        assert part in text
    assert "broken.png" in errors[10] and "20000 x 20000" in errors[12]
    assert count > 1


@pytest.mark.family("ViTPose", exporter="torch")
def test_keypoints(page, folder):
    """Poses of boxes, of a package and of a folder, as in Python; and boxes that are none."""
    boxes = [[10.0, 5.0, 20.0, 30.0], [-6.0, -9.0, 30.5, 20.25]]
    found = page.run(
        """
            const found = [];
            for (const model of ["vitpose.edge", "vitpose/"]) {
              const p = await ew.pipeline("keypoint-detection", "/files/vision/" + model);
              const wrong = await p("/files/vision/a.png", { boxes: [[900, 0, 5, 5]] }).catch(
                (e) => e.message,
              );
              const poses = await p("/files/vision/a.png", { boxes: arg });
              const [whole] = await p("/files/vision/b.png", { threshold: 0.1 });
              found.push({ wrong, poses, whole });
              await p.dispose();
            }
            return found;
        """,
        boxes,
    )
    with pipeline("keypoint-detection", folder / "vitpose") as pipe:
        want = pipe(str(folder / "a.png"), boxes=boxes)
        (whole,) = pipe(str(folder / "b.png"), threshold=0.1)
    for one in found:
        assert "outside of the picture" in one["wrong"]
        for ours, theirs in zip([*one["poses"], one["whole"]], [*want, whole], strict=True):
            assert ours["labels"] == theirs["labels"] and ours["box"] == theirs["box"]
            assert ours["scores"] == pytest.approx(theirs["scores"], abs=2e-2)
            np.testing.assert_allclose(ours["keypoints"], theirs["keypoints"], atol=0.5)


@pytest.mark.family("Swin2SR", exporter="torch")
def test_pictures_of_pictures(page, folder):
    """A model without a configuration, of a package and of a folder; and a large picture."""
    (folder / "upscaler").mkdir()
    tiny_images.upscaler(folder / "upscaler")
    build(folder, "image-to-image", "upscaler")
    found = page.run(
        """
            const found = [];
            for (const [model, subfolder] of [["upscaler.edge", "onnx"], ["upscaler/", ""]]) {
              const path = "/files/vision/" + model;
              const p = await ew.pipeline("image-to-image", path, { subfolder });
              const large = new ew.RawImage(new Uint8Array(3 * 300 * 10), 300, 10, 3);
              const wrong = await p(large).catch((e) => e.message);
              const { data, width, height, channels } = await p("/files/vision/a.png");
              found.push({ wrong, data: Array.from(data), shape: [height, width, channels] });
              await p.dispose();
            }
            return found;
        """
    )
    with pipeline("image-to-image", folder / "upscaler.edge") as pipe:
        want = np.asarray(pipe(str(folder / "a.png"))).astype(int)
    for one in found:
        assert "the largest is 256 x 256" in one["wrong"] and one["shape"] == [*want.shape]
        assert np.abs(np.reshape(one["data"], want.shape) - want).max() <= 1


def test_texts_of_pictures(page, folder):
    """Lines of a package and of a folder, also slanted ones, as in Python."""
    from tests.pipelines import tiny_ocr

    made = tiny_ocr.make(folder / "ocr", metadata=False)
    for part in ("det", "rec", "cls"):
        (made / f"ch_tiny_{part}_infer.onnx").rename(made / f"{part}.onnx")
    build(folder, "optical-character-recognition", "ocr")
    bars = [("rgb", 30, 40, 240, 24), ("gr", 40, 120, 160, 30)]
    whole = Image.fromarray(tiny_ocr.page(bars))
    whole.save(folder / "bars.png")
    whole.rotate(9, fillcolor=(255, 255, 255)).save(folder / "slanted.png")
    found = page.run(
        """
            const found = [];
            for (const [model, subfolder] of [["ocr.edge", "onnx"], ["ocr/", ""]]) {
              const p = await ew.pipeline("ocr", "/files/vision/" + model, { subfolder });
              const wrong = await p("a.png", { thresh: 2 }).catch((e) => e.message);
              const white = new ew.RawImage(new Uint8Array(3).fill(255), 1, 1, 3);
              const none = await p(white);
              const lines = await p(["/files/vision/bars.png", "/files/vision/slanted.png"]);
              found.push({ wrong, none, lines });
              await p.dispose();
            }
            return found;
        """
    )
    with pipeline("ocr", folder / "ocr.edge") as pipe:
        want = [pipe(str(folder / name)) for name in ("bars.png", "slanted.png")]
    assert [one["text"] for one in want[0]] == ["rgb", "rg"]
    for one in found:
        assert "thresh" in one["wrong"] and one["none"] == []
        for ours, theirs in zip(one["lines"], want, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                assert a["text"] == b["text"] and a["score"] == pytest.approx(b["score"], abs=0.02)
                np.testing.assert_allclose(a["box"], b["box"], atol=1)

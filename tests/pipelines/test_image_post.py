"""Post-processing of image tasks: tests/conformance/{detection,segmentation,depth}.json, which the
page's code reads as well. Expected values come from transformers and torch.

To write the files: python -m tests.pipelines.test_image_post
"""

import json

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from edgewise.arrays import Array, as_input  # noqa: E402
from edgewise.host.pipelines.images.image_graphs import ImageGraphs  # noqa: E402
from edgewise.logic.post.segmentation import choose_queries, segments  # noqa: E402

from tests.conformance.vectors import FOLDER, vectors  # noqa: E402

SIZE = (13, 17)  # of the picture: small, since the files contain masks
OPTIONS = {"mask_threshold": 0.4, "overlap_mask_area_threshold": 0.3}


def rounded(values, digits=4):
    """As in the files: float32 of a decimal number with few digits."""
    return np.round(np.asarray(values, dtype=np.float64), digits).astype(np.float32)


def listed(values):
    return [float(f"{x:.7g}") for x in np.asarray(values, dtype=np.float64).reshape(-1)]


def outputs(seed, queries, classes, height=0, width=0):
    rng = np.random.default_rng(seed)
    logits = rounded(rng.standard_normal((1, queries, classes)) * 2)
    boxes = rounded(rng.uniform(0.1, 0.6, (1, queries, 4)))
    masks = rounded(rng.standard_normal((1, queries, height, width)) * 2, 2)
    return logits, boxes, masks


def made_detection():
    """Cases of detection.json."""
    cases = []
    kinds = [
        ("set", transformers.DetrImageProcessor(), 6, 5, None),
        ("set", transformers.YolosImageProcessor(), 4, 3, None),
        ("focal", transformers.RTDetrImageProcessor(), 6, 5, None),
        ("focal", transformers.DeformableDetrImageProcessor(), 30, 5, 100),
    ]
    for seed, (kind, processor, queries, classes, most) in enumerate(kinds):
        logits, boxes, _ = outputs(seed, queries, classes)
        given = transformers.utils.ModelOutput(
            logits=torch.tensor(logits), pred_boxes=torch.tensor(boxes)
        )
        found = processor.post_process_object_detection(given, 0.6, torch.tensor([SIZE]))[0]
        cases.append(
            {
                "kind": kind,
                "logits": listed(logits),
                "boxes": listed(boxes),
                "classes": classes,
                "most": most,
                "threshold": 0.6,
                "size": SIZE,
                "found": [
                    [*listed([s]), int(label), listed(b)]
                    for s, label, b in zip(found["scores"], found["labels"], found["boxes"])
                ],
            }
        )
    return cases


def made_segmentation():
    """The contents of segmentation.json."""
    logits, _, masks = outputs(7, 6, 5, 4, 6)
    given = transformers.utils.ModelOutput(
        logits=torch.tensor(logits), pred_masks=torch.tensor(masks)
    )
    processor = transformers.DetrImageProcessor()
    panoptic = processor.post_process_panoptic_segmentation(
        given, threshold=0.3, **OPTIONS, target_sizes=[SIZE], label_ids_to_fuse=set()
    )[0]
    semantic = processor.post_process_semantic_segmentation(given, [SIZE])[0]
    _, _, planes = outputs(9, 5, 1, 4, 6)
    large = torch.nn.functional.interpolate(
        torch.tensor(planes), size=SIZE, mode="bilinear", align_corners=False
    )
    plane = torch.nn.functional.interpolate(
        torch.tensor(planes[:, :1]).sigmoid(), size=SIZE, mode="bilinear", align_corners=False
    )
    return {
        "logits": listed(logits),
        "masks": listed(masks),
        "planes": listed(planes),
        "classes": 5,
        "from": [4, 6],
        "size": SIZE,
        "threshold": 0.3,
        **OPTIONS,
        "map": panoptic["segmentation"].reshape(-1).tolist(),
        "segments": panoptic["segments_info"],
        "semantic": semantic.reshape(-1).tolist(),
        "plane_classes": large.argmax(1).reshape(-1).tolist(),
        "foreground": (plane * 255 + 0.5).floor().to(torch.uint8).reshape(-1).tolist(),
    }


def made_depth():
    """The contents of depth.json."""
    values = rounded(np.random.default_rng(2).uniform(0, 9, (4, 6)), 2)
    large = torch.nn.functional.interpolate(
        torch.tensor(values)[None, None], size=SIZE, mode="bicubic", align_corners=False
    )[0, 0].numpy()
    gray = (large - large.min()) / (large.max() - large.min()) * 255
    return {
        "values": listed(values),
        "from": [4, 6],
        "size": SIZE,
        "depth": listed(large),
        "picture": gray.astype(np.uint8).reshape(-1).tolist(),
    }


def close(a, b):
    """Whether values of files are equal but for the last digits of float32."""
    if isinstance(a, dict):
        return set(a) == set(b) and all(close(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    return a == b if not isinstance(a, float) else a == pytest.approx(b, abs=1e-4)


def test_files_are_those_of_transformers():
    for name, made in MADE.items():
        assert close(vectors(name), json.loads(json.dumps(made()))), name


def test_segmentation():
    v = vectors("segmentation")
    queries, scores, labels = choose_queries(v["logits"], v["classes"], v["threshold"])
    area, graphs = v["from"][0] * v["from"][1], ImageGraphs()
    kept = [x for q in queries for x in v["masks"][q * area : (q + 1) * area]]

    def array(values, *shape):
        return Array(shape, "float32", np.array(values, "f").tobytes())

    feeds = {
        "x": array(kept, 1, len(queries), *v["from"]),
        "size": v["size"],
        "scores": array(scores, 1, len(queries), 1, 1),
        "threshold": array([v["mask_threshold"]], 1),
    }
    owners, whole = (np.asarray(x) for x in graphs.run("owners", feeds))
    areas = [int((owners == k).sum()) for k in range(len(queries))]
    overlap = v["overlap_mask_area_threshold"]
    numbers, found = segments(scores, labels, areas, whole[0].tolist(), overlap)
    assert close(found, v["segments"]) and len(found) > 1
    assert [numbers[k] for k in owners.reshape(-1)] == v["map"]
    feeds = {"x": array(v["planes"][:area], 1, 1, *v["from"]), "size": v["size"]}
    gray = as_input(graphs.run("foreground", feeds)[0], "gray")[2]
    assert list(bytes(gray)) == v["foreground"]


def made_yolo():
    """The contents of detection_yolo.json: NMS by onnxruntime, of 2 classes in 20 boxes."""
    import onnxruntime as ort
    from onnx import helper as h

    rng = np.random.default_rng(4)
    boxes = rounded(np.concatenate([rng.uniform(20, 40, (2, 20)), rng.uniform(8, 20, (2, 20))]), 1)
    scores = rounded(rng.uniform(0, 1, (2, 20)), 3)
    best = np.where(scores == scores.max(0), scores, 0)
    node = h.make_node("NonMaxSuppression", ["b", "s", "m", "i", "t"], ["o"], center_point_box=1)
    kinds = {"b": 1, "s": 1, "m": 7, "i": 1, "t": 1}
    inputs = [h.make_tensor_value_info(n, k, None) for n, k in kinds.items()]
    graph = h.make_graph([node], "nms", inputs, [h.make_tensor_value_info("o", 7, None)])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString())
    cases = []
    for threshold, iou, agnostic, most in [(0.5, 0.45, False, 300), (0.3, 0.3, True, 3)]:
        given = best.max(0)[None, None] if agnostic else best[None]
        feeds = {
            "b": np.ascontiguousarray(boxes.T[None]),
            "s": given.astype("f"),
            "m": np.array([most]),
            "i": np.array([iou], "f"),
            "t": np.array([threshold], "f"),
        }
        chosen = sorted(session.run(None, feeds)[0], key=lambda c: -given[0, c[1], c[2]])
        found = []
        for _, _, a in chosen[:most]:
            x, y, w, height = boxes[:, a].astype(float)
            box = [x - w / 2, y - height / 2, x + w / 2, y + height / 2]
            label = int(scores[:, a].argmax())
            found.append([*listed([scores[label, a]]), label, listed(box)])
        cases.append({"arguments": [threshold, iou, agnostic, most], "found": found})
    boxes_back = [  # by hand: scale 0.5 with 8 above; scale 2 with 16 on the left
        ([32, 32], [32, 64], [2, 10, 30, 20], [4, 4, 60, 24]),
        ([64, 64], [32, 16], [20, 4, 90, 10], [2, 2, 16, 5]),
    ]
    names = ("xmin", "ymin", "xmax", "ymax")
    return {
        "output": [*listed(boxes), *listed(scores)],
        "anchors": 20,
        "cases": cases,
        "letterbox": [
            {"model": m, "picture": p, "box": b, "expected": e, "named": dict(zip(names, e))}
            for m, p, b, e in boxes_back
        ],
    }


MADE = {
    "detection": made_detection,
    "detection_yolo": made_yolo,
    "segmentation": made_segmentation,
    "depth": made_depth,
}

if __name__ == "__main__":
    for name, made in MADE.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(made()) + "\n")

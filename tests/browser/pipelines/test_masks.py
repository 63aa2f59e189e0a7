"""Masks by points and boxes, and of everything, in a page: the same as in Python, whose results
tests/pipelines/test_mask_generation.py compares with transformers.
"""

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

import torch  # noqa: E402
from edgewise import pipeline  # noqa: E402
from edgewise.cli import main  # noqa: E402

from tests.pipelines import tiny_prompts  # noqa: E402
from tests.pipelines.test_mask_generation import GRIDS, pictures  # noqa: E402

CLICKS = [
    {"input_points": [[[30, 20]]], "input_labels": [[1]]},
    {"input_points": [[30, 20], [50, 50], [9, 40]], "input_labels": [1, 1, 0]},
    {"input_points": [[[30, 20]], [[50, 50]]], "multimask_output": False},
]
BOXES = [
    {"input_boxes": [[5, 5, 40, 50], [9.5, 20, 60, 60]]},
    {"input_points": [30, 20], "input_boxes": [5, 5, 40, 50], "mask_threshold": 0.5},
]


@pytest.fixture(scope="module")
def folder(files):
    """The folder with pictures, models and packages."""
    torch.set_num_threads(1)
    made = files / "masks"
    made.mkdir()
    for name, image in zip("abc", pictures()):
        image.save(made / f"{name}.png")
    for kind in ("sam", "sam2"):
        tiny_prompts.make(made / kind, kind)
        package = str(made / f"{kind}.edge")
        main(["build", "--task", "mask-generation", str(made / kind), "-o", package])
    return made


@pytest.fixture
def page(visit, server, folder):
    return visit(server)


PLAIN = """
    const plain = (x) => {
      if (x instanceof ew.Tensor) return { dims: x.dims, data: Array.from(x.data, Number) };
      if (x instanceof ew.RawImage)
        return { dims: [x.height, x.width], data: Array.from(x.data) };
      if (Array.isArray(x)) return x.map(plain);
      if (typeof x !== "object" || x === null) return x;
      return Object.fromEntries(Object.entries(x).map(([k, v]) => [k, plain(v)]));
    };
    const p = await ew.pipeline("mask-generation", arg.model);
"""


def array(found):
    return np.array(found["data"]).reshape(found["dims"])


@pytest.mark.parametrize("kind", ["sam", "sam2"])
@pytest.mark.family("SAM", exporter="torch")
@pytest.mark.family("SAM 2", exporter="torch")
def test_clicks(page, folder, kind):
    """The encoder runs once for several prompts; bad ones are refused in words."""
    clicks = CLICKS + (BOXES if kind == "sam2" else [])
    found = page.run(
        PLAIN
        + """
            const picture = await p.open("/files/masks/a.png");
            const made = [];
            for (const click of arg.clicks) made.push(plain(await picture.masks(click)));
            const words = [];
            for (const bad of arg.bad)
              words.push(await picture.masks(bad).then(() => "", (e) => e.message));
            const whole = plain(await p("/files/masks/b.png", arg.clicks[0]));
            await picture.close();
            words.push(await picture.masks(arg.clicks[0]).then(() => "", (e) => e.message));
            const size = [picture.height, picture.width];
            await p.dispose();
            return [made, words, whole, size];
        """,
        {
            "model": f"/files/masks/{kind}.edge",
            "clicks": clicks,
            "bad": [
                {"input_points": [[200, 20]]},
                {"input_points": [[20, 20]], "input_labels": [1, 0]},
                {"input_points": [[20, 20]] * 1000},
                {},
            ],
        },
    )
    assert "error" not in found, found
    made, words, whole, size = found
    pipe = pipeline("mask-generation", folder / kind)
    a, b = (Image.open(folder / f"{name}.png") for name in "ab")
    assert size == [a.height, a.width]
    for one, options in zip([*made, whole], [*clicks, clicks[0]]):
        expected = pipe(b if one is whole else a, **options)
        masks = array(one["masks"])
        assert masks.shape == expected["masks"].shape
        assert (masks != expected["masks"]).mean() < 1e-3
        np.testing.assert_allclose(array(one["iou_scores"]), expected["iou_scores"], atol=1e-4)
        assert ("object_score_logits" in one) == (kind == "sam2")
    for text, part in zip(
        words, ("outside", "2 labels for 1 points", "1000 points", "no prompt", "closed")
    ):
        assert part in text


@pytest.mark.parametrize("kind", ["sam", "sam2"])
def test_everything(page, folder, kind):
    cases = [("a", GRIDS[1]), ("c", GRIDS[2]), ("b", GRIDS[3])]
    found = page.run(
        PLAIN
        + """
            const made = [];
            for (const [name, options] of arg.cases)
              made.push(plain(await p(`/files/masks/${name}.png`, options)));
            await p.dispose();
            return made;
        """,
        {
            "model": f"/files/masks/{kind}.edge",
            "cases": [
                [name, {**options, "output_rle_mask": True, "output_bboxes_mask": True}]
                for name, options in cases
            ],
        },
    )
    assert "error" not in found, found
    pipe = pipeline("mask-generation", folder / kind)
    for made, (name, options) in zip(found, cases):
        expected = pipe(Image.open(folder / f"{name}.png"), output_rle_mask=True, **options)
        assert len(made["masks"]) == len(expected["masks"])
        np.testing.assert_allclose(made["scores"], expected["scores"], atol=1e-4)
        for i, (mask, wanted) in enumerate(zip(made["masks"], expected["masks"])):
            drawn = array(mask) == 255
            assert (drawn != wanted).mean() < 1e-3
            if (drawn == wanted).all():
                assert made["rle_mask"][i] == {
                    **expected["rle_mask"][i],
                    "size": list(expected["rle_mask"][i]["size"]),
                }
                ys, xs = np.nonzero(wanted)
                box = [xs.min(), ys.min(), xs.max(), ys.max()] if len(xs) else [0] * 4
                assert made["bounding_boxes"][i] == box
    assert sum(len(made["masks"]) for made in found) > 5


def test_universal_segmentation(visit, server, folder):
    """EoMT, whose masks are enlarged before they are compared."""
    tiny_prompts.make_eomt(folder / "eomt")
    package = str(folder / "eomt.edge")
    main(["build", "--task", "image-segmentation", str(folder / "eomt"), "-o", package])
    options = [
        {"threshold": 0.2, "overlap_mask_area_threshold": 0.1},
        {"threshold": 0.3, "mask_threshold": 0.7, "overlap_mask_area_threshold": 0.05},
        {"subtask": "semantic"},
        {"subtask": "instance", "threshold": 0.1},
    ]
    found = visit(server).run(
        PLAIN.replace("mask-generation", "image-segmentation")
        + """
            const made = [];
            for (const options of arg.options)
              for (const name of ["a", "b", "c"])
                made.push(plain(await p(`/files/masks/${name}.png`, options)));
            await p.dispose();
            return made;
        """,
        {"model": "/files/masks/eomt.edge", "options": options},
    )
    assert "error" not in found, found
    pipe = pipeline("image-segmentation", folder / "eomt")
    wanted = [pipe(Image.open(folder / f"{n}.png"), **o) for o in options for n in "abc"]
    assert sum(map(len, wanted)) > 8
    for one, expected in zip(found, wanted):
        assert [x["label"] for x in one] == [x["label"] for x in expected]
        for a, b in zip(one, expected):
            assert b["score"] is None or a["score"] == pytest.approx(b["score"], abs=1e-4)
            assert (array(a["mask"]) != np.array(b["mask"])).mean() < 2e-3

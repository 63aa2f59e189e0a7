"""Numbers of pictures in runs of a plan, and features of several outputs, beside NumPy."""

import numpy as np
import pytest
from edgewise.errors import InputError, UnsupportedOp
from edgewise.logic.images.views import Seen, View, count_pieces

from .forms import both, module


def whole(kind, temporal, what, pixels):
    """The numbers of all pieces, uint8 [pieces, height, width, 3], at once."""
    if kind == "planes":
        return pixels.transpose(0, 3, 1, 2)
    if kind == "patches":
        pixels = np.repeat(pixels.transpose(0, 3, 1, 2)[:, :, None], temporal, 2)
    rows = pixels.reshape(len(pixels), -1)
    if not what.room:
        return rows
    filled = np.zeros((len(what.views), what.room, rows.shape[1]), rows.dtype)
    at = 0
    for i, view in enumerate(what.views):
        count = (view.height // what.piece[0]) * (view.width // what.piece[1])
        filled[i, :count] = rows[at : at + count]
        at += count
    return filled


@both
@pytest.mark.parametrize(
    "kind, temporal, what",
    [
        ("planes", 1, Seen([View([], 300, 400)], (300, 400), (9, 9), (300, 400))),
        ("planes", 1, Seen([View([], 2, 3)], (2, 3), (9, 9), (2, 3))),
        ("patches", 2, Seen([View([], 280, 700)], (14, 14), (9, 9), (280, 700), merge=2)),
        (
            "rows",
            1,
            Seen([View([], 32, 48), View([], 256, 512)], (16, 16), (9, 9), (9, 9), room=600),
        ),
    ],
)
def test_batches(form, kind, temporal, what):
    logic = module(form, "multimodal.encoder")
    rng = np.random.default_rng(1)
    count = count_pieces(what)
    pixels = rng.integers(0, 255, (count, *what.piece, 3), dtype=np.uint8)
    expected = whole(kind, temporal, what, pixels)
    made = np.zeros(expected.size, np.uint8)
    flat, unit = pixels.ravel(), 3 if kind == "planes" else pixels[0].size
    runs = logic.batches(kind, temporal, what)
    for run in runs:
        data = flat[run.first * unit :][: np.prod(run.dims)].reshape(run.dims)
        found = whole(kind, temporal, Seen([], (0, 0), (0, 0), (0, 0)), data).ravel()
        for part in run.stretches:
            made[part.target : part.target + part.count] = found[part.source :][: part.count]
        assert np.prod(run.dims) <= 3 << 16
    np.testing.assert_array_equal(made, expected.ravel())
    assert (len(runs) > len(what.views)) == (sum(v.height * v.width for v in what.views) > 1 << 16)


def joined(logic, outputs, width):
    """The features that `strips` makes of outputs."""
    parts = logic.strips([list(x.shape) for x in outputs], width, "vision_encoder.onnx")
    rows = np.zeros((outputs[0].size // outputs[0].shape[-1], width), np.float32)
    for part in parts:
        source = outputs[part.output].ravel()
        for i, row in enumerate(rows):
            row[part.to : part.to + part.size] = source[part.at + i * part.step :][: part.size]
    return rows


@both
def test_features_of_inner_layers(form):
    logic = module(form, "multimodal.encoder")
    last, *inner = np.random.default_rng(2).random((4, 7, 5), np.float32)
    expected = np.concatenate([last, *inner], -1)
    for outputs in (
        [last, *inner],
        [last[None], *inner],
        [last, np.stack(inner)],
        [last, np.stack(inner, 1)],
        [expected],
    ):
        np.testing.assert_array_equal(joined(logic, outputs, 20), expected)
    np.testing.assert_array_equal(joined(logic, [last, *inner], 5), last)  # of another decoder
    for outputs in ([last], [last, inner[0]], [last, np.stack(inner)[..., :4]], [expected, last]):
        with pytest.raises(InputError, match="the embeddings of the decoder 15"):
            logic.strips([list(x.shape) for x in outputs], 15, "vision_encoder.onnx")


@both
def test_names(form):
    logic = module(form, "multimodal.encoder")
    assert logic.pixels_of(["grid", "pixel_values"], "f") == "pixel_values"
    assert logic.pixels_of(["images"], "f") == "images"
    with pytest.raises(UnsupportedOp, match="it has no inputs"):
        logic.pixels_of([], "f")
    inner = ["deepstack_features_0", "deepstack_features_1"]
    assert logic.features_of([*inner, "image_features"]) == ["image_features", *inner]
    assert logic.features_of(["states", "image_features"]) == ["image_features"]
    assert logic.features_of(["rows"]) == ["rows"]

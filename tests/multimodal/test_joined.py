"""Features of tiles as one grid, beside pack_image_features of transformers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from edgewise.logic.images.views import seen

from tests.logic.forms import both, module

SIZES = [(32 * rows, 32 * columns) for rows in (1, 2, 3) for columns in (1, 2, 3)]
PICTURES = [(50, 100), (30, 20), (70, 70), (32, 32), (96, 10), (11, 300), (64, 96), (333, 200)]


def wanted(features, line, size, most):
    import torch
    from transformers import LlavaOnevisionModel

    config = SimpleNamespace(
        vision_config=SimpleNamespace(image_size=32, patch_size=8),
        image_grid_pinpoints=[list(one) for one in SIZES],
    )
    packed, _ = LlavaOnevisionModel.pack_image_features(
        SimpleNamespace(config=config),
        [torch.from_numpy(features)],
        torch.tensor([size]),
        torch.from_numpy(line),
        f"anyres_max_{most}",
    )
    return packed[0].numpy()


@both
@pytest.mark.parametrize("most", [1, 2, 9])
@pytest.mark.parametrize("size", PICTURES, ids=str)
def test_features_are_those_of_transformers(form, size, most):
    of = module(form, "multimodal.families.joined")
    rule = {"rule": "anyres", "filter": "bicubic", "tile": 32, "sizes": SIZES}
    what = seen(rule, *size)  # type: ignore[arg-type]
    rng = np.random.default_rng(sum(size))
    count = 1 + what.rows * what.columns
    features = rng.standard_normal((count, 16, 4), dtype=np.float32)
    line = rng.standard_normal(4, dtype=np.float32)
    grid = of.grid_of(16, SIZES, most, what)
    mixed = []
    for run in of.mixes(grid):
        rows = np.stack([features[piece, i] for piece, i in run.sources]).reshape(-1, 4, 4)
        weights = np.float32(run.weights).reshape(-1, 4, 1)
        mixed += list((rows * weights).sum(1)[: run.count])
    found = []
    for one in of.copies(grid):
        source = {of.NEWLINE: [line], of.MIXED: mixed}.get(one.piece)
        source = features[one.piece] if source is None else source
        found += list(source[one.first : one.first + one.count])
    assert np.shape(found) == (16 + grid.rows * grid.across + grid.rows, 4)
    np.testing.assert_allclose(found, wanted(features, line, size, most), atol=1e-5)

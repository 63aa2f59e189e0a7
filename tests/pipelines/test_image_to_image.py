"""image-to-image beside transformers' pipeline, and with models that have no configuration."""

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.cli import main
from edgewise.errors import InputError

Image = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from . import tiny_images  # noqa: E402


def picture(height, width):
    rng = np.random.default_rng(height)
    pixels = rng.integers(0, 60, (height, width, 3))
    pixels[height // 4 : height // 2, : width // 2] += [180, 20, 40]
    return Image.fromarray(pixels.astype(np.uint8))


def same(ours, theirs):
    """Pictures are equal but for rounding."""
    ours, theirs = np.asarray(ours).astype(int), np.asarray(theirs).astype(int)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1 and (ours != theirs).mean() < 0.01


def built(folder, tmp_path):
    out = tmp_path / "model.edge"
    main(["build", "--task", "image-to-image", str(folder), "-o", str(out)])
    return out


@pytest.mark.family("Swin2SR", exporter="torch")
def test_swin2sr(tmp_path):
    folder = tiny_images.make(tmp_path / "swin2sr", "swin2sr")
    theirs = transformers.pipeline("image-to-image", str(folder), device="cpu", use_fast=False)
    for source in (folder, built(folder, tmp_path)):
        with pipeline("image-to-image", source) as ours:
            for size in ((17, 23), (20, 16)):
                same(ours(picture(*size)), theirs(picture(*size)))
            with pytest.raises(InputError):
                ours(picture(40, 16))
            same(ours(picture(17, 23)), theirs(picture(17, 23)))


def test_models_without_configuration(tmp_path):
    folder = tmp_path / "upscaler"
    folder.mkdir()
    tiny_images.upscaler(folder)
    packaged = built(folder, tmp_path)
    weights = torch.load(folder / "weights.pt")

    def want(image):
        x = torch.tensor(np.asarray(image)).permute(2, 0, 1)[None] / 255
        x = torch.nn.functional.conv2d(x, weights["inner.weight"], weights["inner.bias"], padding=1)
        x = torch.nn.functional.conv2d(x, weights["outer.weight"], weights["outer.bias"], padding=1)
        x = torch.nn.functional.pixel_shuffle(x, 2)[0].clamp(0, 1).permute(1, 2, 0)
        return (x * 255).round().numpy()

    with pipeline("image-to-image", folder) as ours:
        for size in ((17, 23), (1, 1), (70, 300)):
            same(ours(picture(*size)), want(picture(*size)))
    with pipeline("image-to-image", packaged) as ours:
        made = np.asarray(ours(picture(100, 90)))
        assert made.shape == (200, 180, 3)
        # Beyond the picture the package has its mirror image, the convolutions have zeros.
        same(made[:196, :176], want(picture(100, 90))[:196, :176])
        same(ours(picture(256, 192)), want(picture(256, 192)))
        with pytest.raises(InputError, match="the largest is 256 x 256"):
            ours(picture(257, 20))
        assert np.asarray(ours(picture(1, 1))).shape == (2, 2, 3)


def test_outputs_that_are_no_pictures(tmp_path):
    folder = tiny_images.make(tmp_path / "vit", "vit")
    with pipeline("image-to-image", folder) as pipe:
        with pytest.raises(InputError, match="is not that of this task"):
            pipe(picture(30, 30))

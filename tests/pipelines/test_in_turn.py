"""One pipeline that is given inputs of other sizes in turn, alone and several at once: each result
is that of a new pipeline.
"""

import random

import pytest

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
pytest.importorskip("transformers")

from edgewise import pipeline  # noqa: E402

from . import tiny, tiny_audio, tiny_images  # noqa: E402

TURNS = 6


def text(r):
    words = " ".join(tiny.TEXTS).split()
    return " ".join(r.choice(words) for _ in range(r.choice([1, 2, 3, 9, 10, 30])))


def masked(r):
    return f"{text(r)} [MASK] {text(r)}"


def picture(r):
    size = r.choice([(64, 96), (96, 64), (33, 40), (64, 64)])
    pixels = np.random.default_rng(r.randrange(99)).integers(0, 255, (*size, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def sound(r):
    count = r.choice([4000, 4001, 9000, 16000])
    return (0.1 * np.random.default_rng(r.randrange(99)).standard_normal(count)).astype(np.float32)


TASKS = {
    "feature-extraction": (lambda f: tiny.make(f, "bert", "base"), text),
    "text-classification": (lambda f: tiny.make(f, "roberta", "sequence"), text),
    "token-classification": (lambda f: tiny.make(f, "bert", "tokens"), text),
    "fill-mask": (lambda f: tiny.make(f, "bert", "mask"), masked),
    "image-classification": (lambda f: tiny_images.make(f, "vit"), picture),
    "object-detection": (lambda f: tiny_images.make(f, "detr"), picture),
    "image-segmentation": (lambda f: tiny_images.make(f, "segformer"), picture),
    "depth-estimation": (lambda f: tiny_images.make(f, "dpt"), picture),
    "audio-classification": (lambda f: tiny_audio.make(f, "Wav2Vec2"), sound),
}


def close(found, wanted, where=""):
    """Whether two results are equal, numbers about."""
    assert type(found) is type(wanted), where
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), where
        for k in wanted:
            close(found[k], wanted[k], f"{where}.{k}")
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted), where
        for i, (a, b) in enumerate(zip(found, wanted)):
            close(a, b, f"{where}[{i}]")
    elif isinstance(wanted, (int, float, np.ndarray, Image.Image)):
        a, b = (np.asarray(x, np.float64) for x in (found, wanted))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * max(1, np.abs(b).max(initial=0)))
    else:
        assert found == wanted, where


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", TASKS)
def test_inputs_in_turn(task, tmp_path):
    make, draw = TASKS[task]
    folder, r = make(tmp_path), random.Random(task)
    pipe = pipeline(task, folder)
    for _ in range(TURNS):
        given = draw(r) if r.random() < 0.6 else [draw(r) for _ in range(r.choice([2, 3]))]
        close(pipe(given), pipeline(task, folder)(given))

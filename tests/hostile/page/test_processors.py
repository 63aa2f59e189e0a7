"""What a package says of its processor: a damaged description is refused alike by both readers, and
a page that uses a package with any damaged part names it.
"""

import copy
import io
import json
import random

import pytest
from edgewise.errors import PackageError
from edgewise.host.session.open import folder_files
from edgewise.logic.manifest.checker import Checker
from edgewise.logic.manifest.rules import check_processor
from edgewise.logic.manifest.schema import records
from edgewise.logic.native import read_json
from edgewise.onnx import BytesSource
from edgewise.task_package import compile_task
from pipelines.sounds.test_damaged_files import ctc
from tiers import ALL

from ..packages import joined, split, task
from ..seeds import F, c, model, node, value
from .page_reader import READ, TASK, framed

SIZE = {"height": 8, "width": 8}
IMAGE = {
    "type": "ViTImageProcessor",
    "steps": [
        {"op": "resize", "rule": "exact", "filter": "bilinear", **SIZE},
        {"op": "frame", "rule": "among", "sizes": [[8, 8], [8, 16]]},
    ],
    "scale": [1.0, 1.0, 1.0],
    "bias": [0.0, 0.0, 0.5],
    "flip": False,
    "frame": True,
    "mask": False,
}
NEAREST = {"op": "resize", "rule": "nearest", "filter": "box", "of": IMAGE["steps"][0]}
LENGTH = {"exact": None, "multiple": 1, "least": 1, "chunk": 0, "stride": 0}
AUDIO = {
    "type": "Wav2Vec2",
    "sampling_rate": 16000,
    "channels": 1,
    "frames": [400, 160],
    "length": {**LENGTH, "truncate": True, "repeat": ""},
    "windows": {"size": 9, "before": 0, "span": 9, "unit": 1, "hop": 4, "coverage": 0.75},
}
CTC = {
    "tokens": ["a", None],
    "blank": "a",
    "unknown": "a",
    "delimiter": "|",
    "space": " ",
    "lower": False,
    "clean_up": False,
    "samples": 40,
    "windows": [],
}
WHOLE = {
    "image": {**IMAGE, "steps": [{**NEAREST, "sizes": [[8, 8]]}, *IMAGE["steps"]]},
    "audio": AUDIO,
    "voice_activity": {"sampling_rates": [8000, 16000]},
    "ctc": CTC,
    "text": {"max_length": 8},
    "moonshine": True,
}
# ... removes a field
VALUES = (..., None, True, -1, 0, 0.5, 1e9, 1e30, "x", "5", [], [1], {}, {"a": 1})


def places(of, path=()):
    for key in of if isinstance(of, dict) else range(len(of)) if isinstance(of, list) else ():
        yield (*path, key)
        yield from places(of[key], (*path, key))


def edited(of, path, value):
    of = at = copy.deepcopy(of)
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return of


def damages(of, share, seed=1):
    """Each value in place of each field, or a share of them."""
    draw = random.Random(seed)
    for path in places(of):
        for new in VALUES:
            if ALL or draw.random() < share:
                yield path, new, edited(of, path, new)


def test_both_readers_refuse_the_same(page):
    target = io.BytesIO()
    task().write(target)
    manifest, data = split(target.getvalue())
    assert "ok" in page.ask(READ, joined({**manifest, "processor": WHOLE}, data))
    refused = 0
    for path, new, processor in damages(WHOLE, 0.35):
        expected = None
        try:
            value, _ = read_json(json.dumps(processor).encode(), "")
            c = Checker("model.edge", records())
            c.check_record(value, "Processor", "processor")
            check_processor(c, value)
        except PackageError as e:
            expected = e.what
        got = page.ask(READ, joined({**manifest, "processor": processor}, data))
        assert got.get("what") == expected, (path, new, got)
        refused += expected is not None
    assert refused > 300


def picture():
    """A package for pictures: labels from the mean of each channel."""
    nodes = [node("ReduceMean", "pixel_values", "logits", axes=[2, 3], keepdims=0)]
    shapes = [value("pixel_values", F, (1, 3, 8, 8))], [value("logits", F, (1, 3))]
    files = {
        "model.onnx": model(nodes, *shapes, [c("unused", [1.0])]),
        "config.json": b"{}",
        "preprocessor_config.json": json.dumps(
            {"image_processor_type": "ViTImageProcessor", "size": SIZE}
        ).encode(),
    }
    sources = {name: BytesSource(content, name) for name, content in files.items()}
    return compile_task(sources, "image-classification")


def sound(folder):
    return compile_task(folder_files(ctc(folder))[0], "automatic-speech-recognition")


@pytest.mark.parametrize("kind", ["picture", "sound"])
def test_damaged_parts_are_named(kind, page, tmp_path):
    made = picture() if kind == "picture" else sound(tmp_path)
    options = {} if kind == "picture" else {"return_timestamps": "word", "chunk_length_s": 0.1}
    call = {
        "task": made.manifest["task"],
        "options": options,
        "input": {"image": [10, 12]} if kind == "picture" else {"sound": 3000},
    }
    target = io.BytesIO()
    made.write(target)
    manifest, data = split(target.getvalue())

    def ask(changed):
        return page.ask(TASK, framed(json.dumps(call).encode(), joined(changed, data)))

    assert "ok" in ask(manifest)
    described = {name: manifest[name] for name in ("processor", "programs")}
    refused = 0
    for path, new, changed in damages(described, 0.08 if kind == "picture" else 0.05):
        got = ask({**manifest, **changed})
        assert got.get("error") not in ("ESCAPED", "DIED"), (path, new, got)
        if "error" in got:
            assert got["what"] and got["where"] and got["remedy"], (path, new, got)
            refused += 1
    assert refused > 50
    for name in manifest["programs"]:  # what a pipeline looks for by name
        program = manifest["programs"][name]
        plans = [{**plan, "outputs": {}} for plan in program["plans"]]
        programs = {**manifest["programs"], name: {**program, "outputs": [], "plans": plans}}
        got = ask({**manifest, "programs": programs})
        assert got["error"] == "PackageError" and f"'{name}'" in got["what"], got

"""Packages of mixtures natively: the file is mapped, and an expert is read and checked when a token
first needs it.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from edgewise.errors import PackageError
from edgewise.host.session.decoder import DecoderModel, open_package

from tests.bench.large import make

SIZES = {"layers": 1, "width": 64, "heads": 4, "kv_heads": 2, "head_dim": 16}


def package(folder, inner, experts, floats=False):
    make(folder, **SIZES, inner=inner, vocab=4096, experts=experts, chosen=1, floats=floats)
    path = folder / "model.edge"
    with path.open("wb") as file:
        open_package(folder, "q4").write(file)
    return path


def logits(model, ids):
    return model.logits(model.forward(model.open(), ids))


@pytest.mark.parametrize("floats", [False, True])
def test_equal(tmp_path, floats):
    """A package, whose experts are checked, and the model's own files, which have no checksums."""
    path = package(tmp_path, 32, 8, floats)
    model, checked = DecoderModel(tmp_path), DecoderModel(path)
    assert len(checked.store.pages) == (2 if floats else 4) and not model.store.pages
    unchecked = DecoderModel(path, verify=False)
    for ids in [[5], [1, 2, 3, 4, 5, 6, 7, 8, 9], [5]]:
        want = logits(model, ids)
        for other in (checked, unchecked):
            assert np.array_equal(logits(other, ids), want)


def test_damaged(tmp_path):
    """Experts that no token needs are not read; of others the error names the weight."""
    path = package(tmp_path, 512, 64, floats=True)  # 8 MB a weight: two pieces
    want = logits(DecoderModel(path), [7])
    (chosen,) = [
        (w["offset"], w["bytes"])
        for w in DecoderModel(path).package.manifest["weights"]
        if w["name"].endswith("up")
    ]
    data = bytearray(path.read_bytes())
    start = len(data) - DecoderModel(path).package.manifest["files"]["weights"][1] + chosen[0]
    texts = []
    for piece in (0, 1):
        damaged = bytearray(data)
        damaged[start + (piece << 22) + 99] ^= 1
        path.write_bytes(damaged)
        model = DecoderModel(path)
        try:
            assert np.array_equal(logits(model, [7]), want)
        except PackageError as e:
            texts.append(str(e))
            with pytest.raises(PackageError):  # and the next call
                logits(model, [7])
    assert len(texts) == 1 and "layers.0.up" in texts[0] and "model.edge" in texts[0], texts


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/smaps")
def test_what_is_read(tmp_path):
    """Of 64 MB of experts, one token's are in memory after it, to the pieces of the checksums."""
    path = package(tmp_path, 1024, 128, floats=True)
    model = DecoderModel(path)
    before = resident(path)
    for _ in range(3):
        logits(model, [7])
    # of two weights of 32 MB one expert each: a piece of 4 MB, and what the system reads ahead
    assert before < 4 << 20 < path.stat().st_size // 12
    assert resident(path) - before < 12 << 20


def resident(path: Path) -> int:
    """Bytes of the mappings of a file that this process has in memory."""
    text = Path("/proc/self/smaps").read_text()
    parts = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.M)
    return sum(
        int(re.search(r"^Rss:\s+(\d+) kB", part, re.M)[1]) * 1024
        for part in parts
        if str(path) in part.split("\n")[0]
    )

"""Prefixes of prompts as files: the page's code in Node beside Python. Logits after a file are
those of reading, bit for bit, files go from one to the other, and both refuse the same ones.
"""

import base64
import io
import json
import random

import onnx
import pytest
from edgewise import CausalLM
from edgewise.compiler.compile import compile_package
from edgewise.compiler.onnx.source import BytesSource
from edgewise.errors import EdgewiseError

from tests.generation.hybrid import VOCAB, hybrid_model
from tests.generation.test_prefix import mutations, tampered
from tests.training import llama

from .page.page_reader import PREFIX, framed

PIECE = 128


def packed(model, dtype):
    """The bytes of a package."""
    files = {"model.onnx": BytesSource(model)}
    compile_package(files, capacity=500, cache_dtype=dtype).write(target := io.BytesIO())
    return target.getvalue()


@pytest.fixture(scope="module")
def packages():
    """The bytes of a package of each kind."""
    made = {}
    for kind, dtype in (("q4", None), ("q4", "int4"), ("fp32", "float16"), ("hybrid", "int8")):
        model = hybrid_model().SerializeToString() if kind == "hybrid" else llama.base(kind)
        made[f"{kind} {dtype}"] = packed(model, dtype)
    return made


def asked(page, package, file, prefix=(), prompts=(), sums=True):
    given = {"prefix": list(prefix), "prompts": list(prompts), "sums": sums}
    return page.ask(PREFIX, framed(package, file, json.dumps(given).encode()))


def model_of(package, tmp_path):
    (tmp_path / "model.edge").write_bytes(package)
    return CausalLM(str(tmp_path / "model.edge"))


@pytest.mark.parametrize("kind", ["q4 None", "q4 int4", "fp32 float16", "hybrid int8"])
def test_pages_and_python(page, packages, tmp_path, kind):
    package, r = packages[kind], random.Random(2)
    lm = model_of(package, tmp_path)
    prefix = [r.randrange(1, min(VOCAB, lm.vocab_size)) for _ in range(300)]
    prompts = [[*prefix, *prefix[:n]] for n in (1, 70, 150)]
    got = asked(page, package, b"", prefix)
    file = base64.b64decode(got["ok"]["file"])
    got = asked(page, package, file, prefix, prompts)
    assert got["ok"]["count"] == 2 * PIECE
    assert all(one == {"past": 2 * PIECE, "same": True} for one in got["ok"]["results"]), got
    assert lm.load_prefix(file) == 2 * PIECE
    own = lm.save_prefix(prefix)
    assert len(own) == len(file)
    assert asked(page, package, own)["ok"]["count"] == 2 * PIECE


def test_models_without_checksums(page):
    """Those that a page compiles: told apart by the beginnings of weights."""
    base = llama.base("fp32")
    model = onnx.load_from_string(base)
    numbers = next(t for t in model.graph.initializer if len(t.raw_data) > 10_000)
    changed = bytearray(numbers.raw_data)
    changed[100] ^= 1
    numbers.raw_data = bytes(changed)
    one, other = (packed(m, None) for m in (base, model.SerializeToString()))
    prefix = [1 + i % 80 for i in range(PIECE + 9)]
    file = base64.b64decode(asked(page, one, b"", prefix, sums=False)["ok"]["file"])
    got = asked(page, one, file, prefix, [prefix], sums=False)
    assert got["ok"] == {"count": PIECE, "results": [{"past": PIECE, "same": True}]}
    got = asked(page, other, file, sums=False)
    assert got["error"] == "InputError" and "another model" in got["what"]


def test_both_refuse_the_same_files(page, packages, tmp_path):
    package = packages["hybrid int8"]
    lm = model_of(package, tmp_path)
    data = lm.save_prefix([1 + i % 60 for i in range(PIECE)])
    assert asked(page, package, data)["ok"]["count"] == PIECE
    refused = 0
    for wrong in [*tampered(data), *mutations(data, 300, seed=1)]:
        if not wrong:
            continue
        try:
            mine = lm.load_prefix(wrong)
        except EdgewiseError as e:
            mine = type(e).__name__
            refused += 1
        theirs = asked(page, package, wrong)
        assert mine == theirs.get("error", theirs.get("ok", {}).get("count")), theirs
    assert refused > 250

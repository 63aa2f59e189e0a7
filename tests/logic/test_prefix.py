"""Prefixes in files, on both forms. Expected values: NumPy's slices, os.path.commonprefix, hashlib;
refused are all changes of a file's description.
"""

import os
import random
from hashlib import sha256

import numpy as np
import pytest
from edgewise.errors import InputError, ModelError
from edgewise.logic.generation.prefix import PrefixModel
from edgewise.logic.personal.files import Stored

from .forms import both, module

CAPACITY, PIECE = 20, 4
CACHES = [
    {"name": "k", "bytes": 3 * CAPACITY * 5, "rows": [3, 5]},
    {"name": "s", "bytes": 7, "fixed": True},
    {"name": "__proto__", "bytes": CAPACITY * 2, "rows": [1, 2]},
]
MODEL = PrefixModel(CAPACITY, 50, "int8", CACHES, None, PIECE, 77, "d", "")


@both
def test_parts_of_caches(form):
    spans = module(form, "generation.sliding").spans
    for cache in CACHES:
        data = np.random.default_rng(0).integers(0, 256, cache["bytes"], np.uint8)
        outer, row = cache.get("rows", (1, 0))
        for count in (4, 8, 20):
            parts = [data[at : at + n] for at, n in spans(cache, None, CAPACITY, count, 0)]
            expected = data.reshape(outer, CAPACITY, row)[:, :count].ravel() if row else data
            assert np.array_equal(np.concatenate(parts), expected)


@both
def test_common_tokens(form):
    common, r = module(form, "generation.prefix").common, random.Random(1)
    for _ in range(100):
        start = [r.randrange(3) for _ in range(r.randrange(5))]
        prompts = [start + [r.randrange(3) for _ in range(r.randrange(4))] for _ in range(3)]
        assert common(prompts) == os.path.commonprefix(prompts)


@both
def test_prompts_that_begin_alike(form):
    continuations = module(form, "generation.prefix").continuations
    texts = continuations("Once")
    assert os.path.commonprefix(texts) == "Once" and len(texts) > 1
    for role, answer in (("system", "user"), ("user", "assistant"), ("assistant", "user")):
        chat = [{"role": "system", "content": "a"}, {"role": role, "content": "b"}]
        found = continuations(chat)
        assert all(one[:-1] == chat and one[-1]["role"] == answer for one in found)
        assert len({one[-1]["content"][0] for one in found}) == len(found) > 1
    with pytest.raises(InputError, match="no messages"):
        continuations([])


@both
def test_digests(form):
    sum_of = module(form, "generation.prefix").sum_of
    assert sum_of([]) == ""
    assert sum_of([("b", "2"), ("\u00e4", "1")]) == sha256("b 2\n\u00e4 1".encode()).hexdigest()


@both
def test_whole_pieces(form):
    whole = module(form, "generation.prefix").whole_pieces
    assert [whole(n, 4, 20) for n in (4, 5, 7, 8, 20)] == [4, 4, 4, 8, 20]
    for wrong in ((3, 4, 20), (21, 4, 20), (8, None, 20)):
        with pytest.raises(InputError):
            whole(*wrong)


@both
def test_files(form):
    prefix = module(form, "generation.prefix")
    metadata = dict(prefix.metadata_of(MODEL, "c"))
    tensors = {n: Stored(t.dtype, list(t.shape)) for n, t in prefix.tensors_of(MODEL, 8)}
    assert {n: (t.dtype, t.shape) for n, t in tensors.items()} == {
        "ids": ("int32", [8]),
        "state.k": ("uint8", [3, 8, 5]),
        "state.s": ("uint8", [7]),
        "state.__proto__": ("uint8", [1, 8, 2]),
    }
    assert prefix.check_file(MODEL, metadata, tensors, "f") == 8
    for key in metadata:
        others = {k: v for k, v in metadata.items() if k != key}
        for wrong in (others, {**metadata, key: metadata[key] + "x"}):
            if key == "sha256":
                with pytest.raises(ModelError, match="checksum"):
                    prefix.check_bytes(MODEL, [1] * 8, "c", wrong, "f")
                continue
            with pytest.raises(ModelError if key == "format" else InputError):
                prefix.check_file(MODEL, wrong, tensors, "f")
    for key, one in tensors.items():
        others = {k: v for k, v in tensors.items() if k != key}
        changes = [Stored("float32", one.shape), Stored(one.dtype, [*one.shape, 1])]
        changes += [Stored(one.dtype, [n, *one.shape[1:]]) for n in (0, 9, 24)]
        for wrong in (others, {**tensors, key + "x": one}, *({**others, key: c} for c in changes)):
            with pytest.raises(ModelError):
                prefix.check_file(MODEL, metadata, wrong, "f")


@both
def test_token_ids(form):
    check = module(form, "generation.prefix").check_bytes
    check(MODEL, [0, 49], "c", {"sha256": "c"}, "f")
    for wrong in ([-1], [1, 50], [2**31 - 1]):
        with pytest.raises(ModelError, match="vocabulary"):
            check(MODEL, wrong, "c", {"sha256": "c"}, "f")

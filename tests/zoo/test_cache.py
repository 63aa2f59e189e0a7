"""`CausalLM`, with a cache that is updated in place, against the same model without a cache."""

import numpy as np
import onnxruntime
import pytest
from edgewise.compile import compile_package
from edgewise.errors import InputError
from edgewise.inspect import every_node
from edgewise.session.decoder import DecoderModel
from edgewise.session.open import folder_files

from .reference import DTYPES, Reference
from .zoo import causal_lms

LMS = causal_lms()
LENGTH, NEW = 12, 24
HALVES = 2e-3  # keys and values rounded to 11 bits, as a share of the largest logit
# Dynamic 8-bit quantization takes its scale from all rows of a run: cutting a sequence otherwise
# gives other numbers, in onnxruntime as here.
DYNAMIC = 0.1


def tolerance_of(model, cache_dtype="float32"):
    """A cache of float32 changes nothing but the order of sums.

    Logits that the file declares as float16 are rounded in the run without a cache. Where the file
    allows 8-bit activations (accuracy_level 4), single tokens and many may take different kernels.
    """
    if any(n.attrs.get("accuracy_level", 0) >= 4 for n in every_node(model.graph)):
        return 2e-2
    if cache_dtype == "float16":
        return DYNAMIC if model.dynamic_quantization else HALVES
    return (
        DYNAMIC
        if model.dynamic_quantization
        else 2e-3
        if model.expected["logits"].dtype == np.float16
        else 1e-4
    )


def package(model, chunks, capacity=LENGTH + NEW + 8, cache_dtype=None):
    files, root = folder_files(model.path)
    return compile_package(
        files, capacity=capacity, chunks=chunks, model_file=model.path.name, cache_dtype=cache_dtype
    )


def prompt(model, length=LENGTH):
    return [
        int(x)
        for x in np.random.default_rng(len(model.name)).integers(
            1, model.expected["logits"].shape[-1] - 1, length
        )
    ]


def close(got, want, tolerance, scale=0.0):
    error = np.abs(np.asarray(got, "f8") - want).max() / max(1.0, scale, np.abs(want).max())
    assert error <= tolerance, f"error {error:.2e} > {tolerance:.0e}"


@pytest.fixture(params=LMS, ids=repr)
def model(request):
    return request.param


@pytest.mark.parametrize("cache_dtype", ["float32", "float16"])
def test_all_ways_to_cut_a_sequence(model, engine, cache_dtype):
    """One run, one by one, padded and unpadded chunks, after copy() and after truncate(): always
    the logits of the run without a cache.
    """
    reference = Reference(model, engine)
    tolerance = tolerance_of(model, cache_dtype)
    ids = prompt(model)
    want = reference.logits(ids)
    scale = np.abs(want).max()  # of the whole output, as check_zoo.py has it
    lm = DecoderModel(package(model, (1, 4, 16), cache_dtype=cache_dtype), engine=engine)
    assert lm.vocab_size == want.shape[1] and lm.max_length == LENGTH + NEW + 8

    def forward(sequence, part):
        return lm.logits(lm.forward(sequence, part))

    whole = lm.open()
    close(forward(whole, ids), want[-1], tolerance, scale)  # a padded chunk of 16
    single = lm.open()
    for i, token in enumerate(ids):
        close(forward(single, [token]), want[i], tolerance, scale)  # one by one
    mixed, at = lm.open(), 0
    for n in (4, 3, 1, 4):  # full, padded, single, full after a gap of padding
        at += n
        close(forward(mixed, ids[at - n : at]), want[at - 1], tolerance, scale)
    assert lm.length(mixed) == LENGTH
    twin = lm.open()
    lm.truncate(mixed, 5)
    lm.copy(mixed, twin)  # a copy of the first five
    assert lm.length(mixed) == lm.length(twin) == 5
    close(
        forward(whole, [ids[0]]), reference.logits(ids + ids[:1])[-1], tolerance, scale
    )  # others do not disturb it
    close(forward(twin, ids[5:]), want[-1], tolerance, scale)
    close(
        forward(mixed, ids[5:7]), want[6], tolerance, scale
    )  # nor does what the copy went on with
    lm.truncate(twin, 0)
    close(forward(twin, ids[:3]), want[2], tolerance, scale)
    lm.close(twin)
    close(forward(mixed, ids[7:8]), want[7], tolerance, scale)
    lm.free()
    reference.session.free()


@pytest.mark.parametrize(
    "model",
    [
        m
        for m in LMS
        if m.feeds and {a.dtype.name for n, a in m.feeds.items() if "past" in n} == {"float16"}
    ],
    ids=repr,
)
def test_declared_halves_as_onnxruntime(model, engine):
    """A model that declares its caches as float16 has them so by default, in half the memory; token
    by token onnxruntime, which is given its own `present` back as `past`, computes the same logits.
    """
    session = onnxruntime.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    types = {i.name: DTYPES[i.type] for i in session.get_inputs()}
    caches = [n for n in types if "past" in n]
    presents = [o.name for o in session.get_outputs() if o.name.startswith("present")]
    past = {
        n: np.zeros((1, model.feeds[n].shape[1], 0, model.feeds[n].shape[3]), np.float16)
        for n in caches
    }
    lm = DecoderModel(package(model, (1, 16)), engine=engine)
    wide = DecoderModel(package(model, (1, 16), cache_dtype="float32"), engine=engine)
    assert (lm.cache_dtype, wide.cache_dtype) == ("float16", "float32") and 2 * sum(
        c["bytes"] for c in lm.caches
    ) == sum(c["bytes"] for c in wide.caches)
    sequence = lm.open()
    for at, token in enumerate(prompt(model)):
        given = {
            "input_ids": [[token]],
            "attention_mask": np.ones((1, at + 1)),
            "position_ids": [[at]],
            "use_cache_branch": [at > 0],
        }
        out = session.run(
            ["logits", *presents],
            {**{n: np.asarray(v, types[n]) for n, v in given.items() if n in types}, **past},
        )
        past = dict(zip(caches, out[1:]))
        close(
            lm.logits(lm.forward(sequence, [token])),
            out[0][0, -1].astype("f4"),
            max(model.tolerance, tolerance_of(model, "float16")),
        )
    lm.free()
    wide.free()


def test_asking_for_another_dtype_of_the_cache(tmp_path):
    with pytest.raises(InputError, match="'int8'.*float32 or float16"):
        package(LMS[0], (1, 16), cache_dtype="int8")
    with open(tmp_path / "m.edge", "wb") as f:
        package(LMS[0], (1, 16), cache_dtype="float16").write(f)
    DecoderModel(str(tmp_path / "m.edge"), cache_dtype="float16").free()
    with pytest.raises(InputError, match="built to keep keys and values as float16.*--cache-dtype"):
        DecoderModel(str(tmp_path / "m.edge"), cache_dtype="float32")


def test_greedy_sequences(model, engine):
    """24 tokens, the likeliest each time: with the cache and without."""
    ids = prompt(model, 5)
    lm = DecoderModel(package(model, (1, 16), cache_dtype="float32"), engine=engine)
    sequence, out = lm.open(), list(ids)
    new = ids
    for _ in range(NEW):
        row = lm.logits(lm.forward(sequence, new))
        new = [int(np.argmax(row))]
        out += new
    lm.free()
    reference = Reference(model, engine)
    if (
        model.dynamic_quantization
    ):  # near ties may fall otherwise: what was chosen is among the best within the tolerance
        rows = reference.logits(out[:-1])[len(ids) - 1 :]
        for row, token in zip(rows, out[len(ids) :]):
            assert row[token] >= row.max() - DYNAMIC * max(1.0, np.abs(row).max())
    elif reference.one_by_one:
        assert [int(x) for x in reference.logits(out[:-1]).argmax(1)[len(ids) - 1 :]] == out[
            len(ids) :
        ]
    # a causal model's rows do not depend on what follows: one run over the sequence tells each
    # choice it would have made
    else:
        rows = reference.logits(out[:-1])
        assert [int(x) for x in rows.argmax(1)[len(ids) - 1 :]] == out[len(ids) :]
        half = len(out) // 2
        assert int(reference.logits(out[:half])[-1].argmax()) == out[half]
    reference.session.free()

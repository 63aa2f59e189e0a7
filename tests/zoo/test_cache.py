"""`CausalLM`, which updates its cache in place, against the same model without a cache."""

import functools

import numpy as np
import onnxruntime
import pytest
from edgewise.compiler.compile import compile_package
from edgewise.errors import InputError
from edgewise.host.session.open import folder_files
from edgewise.inspect import every_node
from edgewise.session.decoder import DecoderModel
from engines import open_engine, quick_engines

from .reference import DTYPES, Reference
from .zoo import causal_lms

LMS = causal_lms()
LENGTH, NEW = 12, 24
HALVES = 2e-3  # keys and values rounded to 11 bits, relative to the largest logit
# Dynamic 8-bit quantization computes its scale over all rows of a run, so splitting a sequence
# differently changes the result, as in onnxruntime.
DYNAMIC = 0.1


def tolerance_of(model, cache_dtype="float32"):
    """The tolerance for a model; a float32 cache changes only the order of additions.

    Logits that the file declares as float16 are rounded in the run without a cache. With
    accuracy_level 4, which permits 8-bit activations, runs of one token and of many may use
    different kernels.
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


class Logits:
    """Logits without a cache, by the native engine; each sequence is run once."""

    def __init__(self, model):
        self.reference, self.known = Reference(model, open_engine("native")), {}

    def __call__(self, ids):
        if tuple(ids) not in self.known:
            self.known[tuple(ids)] = self.reference.logits(ids)
        return self.known[tuple(ids)]


@functools.lru_cache(maxsize=1)
def logits_of(model):
    """The Logits of a model, which the next tests of this model use too."""
    return Logits(model)


def engines_of(model):
    """[(name, engine)] on which a model runs."""
    return [(name, open_engine(name)) for name in quick_engines(LMS.index(model))]


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


# One test for all engines: they share the compiled package and the logits without a cache.
@pytest.mark.parametrize("cache_dtype", ["float32", "float16"])
def test_chunks_of_a_sequence(model, cache_dtype):
    """One run, token by token, padded and full chunks, after copy() and after truncate(): the
    logits always equal those of the run without a cache.
    """
    made = package(model, (1, 4, 16), cache_dtype=cache_dtype)
    for name, engine in engines_of(model):
        try:
            chunks_of_a_sequence(model, made, engine, tolerance_of(model, cache_dtype))
        except Exception as e:
            e.add_note(name)
            raise


def chunks_of_a_sequence(model, made, engine, tolerance):
    reference, ids = logits_of(model), prompt(model)
    want = reference(ids)
    scale = np.abs(want).max()  # of the whole output, as in the zoo's tolerance
    lm = DecoderModel(made, engine=engine)
    assert lm.vocab_size == want.shape[1] and lm.max_length == LENGTH + NEW + 8

    def forward(sequence, part):
        return lm.logits(lm.forward(sequence, part))

    whole = lm.open()
    close(forward(whole, ids), want[-1], tolerance, scale)  # a padded chunk of 16
    single = lm.open()
    for i, token in enumerate(ids):
        close(forward(single, [token]), want[i], tolerance, scale)  # token by token
    mixed, at = lm.open(), 0
    for n in (4, 3, 1, 4):  # full, padded, single, and full after padding
        at += n
        close(forward(mixed, ids[at - n : at]), want[at - 1], tolerance, scale)
    assert lm.length(mixed) == LENGTH
    twin = lm.open()
    lm.truncate(mixed, 5)
    lm.copy(mixed, twin)  # a copy of the first five tokens
    assert lm.length(mixed) == lm.length(twin) == 5
    close(
        forward(whole, [ids[0]]), reference(ids + ids[:1])[-1], tolerance, scale
    )  # other sequences do not change it
    close(forward(twin, ids[5:]), want[-1], tolerance, scale)
    close(forward(mixed, ids[5:7]), want[6], tolerance, scale)  # nor do later runs of the copy
    lm.truncate(twin, 0)
    close(forward(twin, ids[:3]), want[2], tolerance, scale)
    lm.close(twin)
    close(forward(mixed, ids[7:8]), want[7], tolerance, scale)
    lm.free()


@pytest.mark.parametrize(
    "model",
    [
        m
        for m in LMS
        if m.feeds and {a.dtype.name for n, a in m.feeds.items() if "past" in n} == {"float16"}
    ],
    ids=repr,
)
def test_declared_float16_cache(model):
    """A model that declares float16 caches uses them by default, with half the memory; token by
    token, onnxruntime with its own `present` as `past` computes the same logits.
    """
    session = onnxruntime.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    types = {i.name: DTYPES[i.type] for i in session.get_inputs()}
    caches = [n for n in types if "past" in n]
    presents = [o.name for o in session.get_outputs() if o.name.startswith("present")]
    past = {
        n: np.zeros((1, model.feeds[n].shape[1], 0, model.feeds[n].shape[3]), np.float16)
        for n in caches
    }
    made = package(model, (1, 16))
    wide = DecoderModel(package(model, (1, 16), cache_dtype="float32"))
    lms = [DecoderModel(made, engine=engine) for _, engine in engines_of(model)]
    for lm in lms:
        assert (lm.cache_dtype, wide.cache_dtype) == ("float16", "float32") and 2 * sum(
            c["bytes"] for c in lm.caches
        ) == sum(c["bytes"] for c in wide.caches)
    sequences = [lm.open() for lm in lms]
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
        for lm, sequence in zip(lms, sequences):
            close(
                lm.logits(lm.forward(sequence, [token])),
                out[0][0, -1].astype("f4"),
                max(model.tolerance, tolerance_of(model, "float16")),
            )
    for lm in (*lms, wide):
        lm.free()


def test_cache_of_another_dtype(tmp_path):
    with pytest.raises(InputError, match="'int2'.*float32 or float16 or int8 or int4"):
        package(LMS[0], (1, 16), cache_dtype="int2")
    with open(tmp_path / "m.edge", "wb") as f:
        package(LMS[0], (1, 16), cache_dtype="float16").write(f)
    DecoderModel(str(tmp_path / "m.edge"), cache_dtype="float16").free()
    with pytest.raises(InputError, match="built to keep keys and values as float16.*--cache-dtype"):
        DecoderModel(str(tmp_path / "m.edge"), cache_dtype="float32")


def test_greedy_sequences(model):
    """24 greedy tokens, with the cache and without."""
    made = package(model, (1, 16), cache_dtype="float32")
    for name, engine in engines_of(model):
        try:
            greedy_sequence(model, made, engine)
        except Exception as e:
            e.add_note(name)
            raise


def greedy_sequence(model, made, engine):
    ids = prompt(model, 5)
    lm = DecoderModel(made, engine=engine)
    sequence, out = lm.open(), list(ids)
    new = ids
    for _ in range(NEW):
        row = lm.logits(lm.forward(sequence, new))
        new = [int(np.argmax(row))]
        out += new
    lm.free()
    reference = logits_of(model)
    # near ties may be decided differently: each chosen token is within the tolerance of the best
    if model.dynamic_quantization:
        rows = reference(out[:-1])[len(ids) - 1 :]
        for row, token in zip(rows, out[len(ids) :]):
            assert row[token] >= row.max() - DYNAMIC * max(1.0, np.abs(row).max())
    elif reference.reference.one_by_one:
        assert [int(x) for x in reference(out[:-1]).argmax(1)[len(ids) - 1 :]] == out[len(ids) :]
    # the rows of a causal model do not depend on later tokens, so one run of the whole sequence
    # gives every choice
    else:
        rows = reference(out[:-1])
        assert [int(x) for x in rows.argmax(1)[len(ids) - 1 :]] == out[len(ids) :]
        half = len(out) // 2
        assert int(reference(out[:half])[-1].argmax()) == out[half]

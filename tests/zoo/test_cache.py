"""`CausalLM`, whose cache is written in place, against the same model run without a cache."""
import numpy as np
import pytest

from edgewise.compile import compile_package
from edgewise.inspect import every_node
from edgewise.session.decoder import CausalLM, folder_files

from .reference import Reference
from .zoo import causal_lms

LMS = causal_lms()
LENGTH, NEW = 12, 24
# Dynamic 8-bit quantization takes its scale from all rows of a run: cutting a sequence otherwise gives other numbers, in onnxruntime as here.
DYNAMIC = 0.1


def tolerance_of(model):
    """The cache changes nothing but the order of sums. Logits that the file declares as float16 are rounded in the run without a cache. Where the file allows 8-bit activations
    (accuracy_level 4), single tokens and many may take different kernels."""
    if any(n.attrs.get("accuracy_level", 0) >= 4 for n in every_node(model.graph)):
        return 2e-2
    return DYNAMIC if model.dynamic_quantization else 2e-3 if model.expected["logits"].dtype == np.float16 else 1e-4


def package(model, chunks, capacity=LENGTH + NEW + 8):
    files, root = folder_files(model.path)
    return compile_package(files, capacity=capacity, chunks=chunks, model_file=model.path.name)


def prompt(model, length=LENGTH):
    return [int(x) for x in np.random.default_rng(len(model.name)).integers(1, model.expected["logits"].shape[-1] - 1, length)]


def close(got, want, tolerance, scale=0.0):
    error = np.abs(np.asarray(got, "f8") - want).max() / max(1.0, scale, np.abs(want).max())
    assert error <= tolerance, f"error {error:.2e} > {tolerance:.0e}"


@pytest.fixture(params=LMS, ids=repr)
def model(request):
    return request.param


def test_all_ways_to_cut_a_sequence(model, engine):
    """One run, one by one, padded and unpadded chunks, after copy() and after truncate(): always the logits of the run without a cache."""
    reference = Reference(model, engine)
    tolerance = tolerance_of(model)
    ids = prompt(model)
    want = reference.logits(ids)
    scale = np.abs(want).max()  # of the whole output, as check_zoo.py has it
    lm = CausalLM(package(model, (1, 4, 16)), engine=engine)
    assert lm.vocab_size == want.shape[1] and lm.max_length == LENGTH + NEW + 8

    def forward(sequence, part):
        return lm.logits(lm.forward(sequence, part))
    whole = lm.open()
    close(forward(whole, ids), want[-1], tolerance, scale)                     # a padded chunk of 16
    single = lm.open()
    for i, token in enumerate(ids):
        close(forward(single, [token]), want[i], tolerance, scale)             # one by one
    mixed, at = lm.open(), 0
    for n in (4, 3, 1, 4):                                              # full, padded, single, full behind a gap that padding wrote into
        at += n
        close(forward(mixed, ids[at - n:at]), want[at - 1], tolerance, scale)
    assert lm.length(mixed) == LENGTH
    twin = lm.open()
    lm.truncate(mixed, 5)
    lm.copy(mixed, twin)                                                # a copy of the first five
    assert lm.length(mixed) == lm.length(twin) == 5
    close(forward(whole, [ids[0]]), reference.logits(ids + ids[:1])[-1], tolerance, scale)  # others do not disturb it
    close(forward(twin, ids[5:]), want[-1], tolerance, scale)
    close(forward(mixed, ids[5:7]), want[6], tolerance, scale)                 # nor does what the copy went on with
    lm.truncate(twin, 0)
    close(forward(twin, ids[:3]), want[2], tolerance, scale)
    lm.close(twin)
    close(forward(mixed, ids[7:8]), want[7], tolerance, scale)
    lm.free()
    reference.session.free()


def test_greedy_sequences(model, engine):
    """24 tokens, the likeliest each time: with the cache and without."""
    ids = prompt(model, 5)
    lm = CausalLM(package(model, (1, 16)), engine=engine)
    sequence, out = lm.open(), list(ids)
    new = ids
    for _ in range(NEW):
        row = lm.logits(lm.forward(sequence, new))
        new = [int(np.argmax(row))]
        out += new
    lm.free()
    reference = Reference(model, engine)
    if model.dynamic_quantization:  # near ties may fall otherwise: what was chosen is among the best within the tolerance
        rows = reference.logits(out[:-1])[len(ids) - 1:]
        for row, token in zip(rows, out[len(ids):]):
            assert row[token] >= row.max() - DYNAMIC * max(1.0, np.abs(row).max())
    elif reference.one_by_one:
        assert [int(x) for x in reference.logits(out[:-1]).argmax(1)[len(ids) - 1:]] == out[len(ids):]
    else:  # a causal model's rows do not depend on what follows: one run over the sequence tells each choice it would have made
        rows = reference.logits(out[:-1])
        assert [int(x) for x in rows.argmax(1)[len(ids) - 1:]] == out[len(ids):]
        half = len(out) // 2
        assert int(reference.logits(out[:half])[-1].argmax()) == out[half]
    reference.session.free()

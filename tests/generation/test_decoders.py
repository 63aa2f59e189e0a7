"""Decoders with states of many kinds: keys and values in bytes, of a window, of another layer, in
any layout; logits and tokens are those of onnxruntime's loop.
"""

import itertools

import numpy as np
import pytest
from edgewise import CausalLM, generate
from edgewise.compiler.compile.causal_lm import compile_causal_lm
from edgewise.compiler.onnx import as_source, read_model
from edgewise.errors import InputError, UnsupportedOp
from edgewise.inspect import inspect

from .decoders import ROWS, SIZE, WINDOW, Loop, decoder

VOCAB, CAPACITY = 61, 96


def gqa(**options):
    return "gqa", options


DECODERS = {
    "attention": [gqa()],
    "window": [gqa(window=WINDOW), gqa()],
    "cache_of_a_window": [gqa(window=WINDOW, rows=ROWS), gqa()],
    "int8": [gqa(bits=8)],
    "int8_per_channel": [gqa(bits=8, channels=True), gqa()],
    "int4": [gqa(bits=4)],
    "int4_per_channel": [gqa(bits=4, channels=True)],
    "int8_of_a_window": [gqa(bits=8, window=WINDOW, rows=ROWS)],
    "shared": [gqa(), "conv", gqa(of=0), gqa()],
    "shared_int8": [gqa(bits=8), gqa(of=0, bits=8)],
    "shared_with_a_window": [gqa(window=WINDOW), gqa(of=0, window=WINDOW)],
    "hybrid": ["causal_conv", "linear", gqa(), "conv", "recurrent", "attention"],
    **{f"layout_{k}": [("laid_out", {"layout": k})] for k in ("bthd", "bhdt", "btc")},
}


def load(tmp_path, *args, **options):
    """(CausalLM, Loop)"""
    made = decoder(*args, **options)
    (tmp_path / "model.onnx").write_bytes(made.model.SerializeToString())
    return CausalLM(tmp_path, capacity=CAPACITY), Loop(made)


def caches(model):
    """As the manifest describes them."""
    graph = read_model(as_source(model.SerializeToString()))
    return compile_causal_lm(graph, capacity=CAPACITY)[0]["caches"]


def prompt(n, seed=0):
    return [int(x) for x in np.random.default_rng(seed).integers(0, VOCAB, n)]


def near(lm, address, expected):
    np.testing.assert_allclose(lm.logits(address), expected, atol=3e-5, rtol=3e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_logits(tmp_path, name):
    """Prompts of any length, tokens after them, a cut and a copy."""
    lm, loop = load(tmp_path, DECODERS[name])
    for n in (1, 2, 15, 16, 17, 33, 50):
        sequence, copy = lm.open(), lm.open()
        near(lm, lm.forward(sequence, prompt(n)), loop.start().logits(prompt(n)))
        for token in prompt(2, seed=n):
            near(lm, lm.forward(sequence, [token]), loop.logits([token]))
        lm.copy(sequence, copy)
        near(lm, lm.forward(copy, [7]), loop.logits([7]))
        lm.truncate(sequence, n)
        near(lm, lm.forward(sequence, [9, 11]), loop.start().logits([*prompt(n), 9, 11]))
        lm.close(sequence)
        lm.close(copy)


def test_only_the_latest_logits_are_read(tmp_path):
    """Any other address would be of memory that is something else, or none."""
    lm, _ = load(tmp_path, DECODERS[next(iter(DECODERS))])
    sequence = lm.open()
    address = lm.forward(sequence, [1, 2])
    assert len(lm.logits(address)) == VOCAB
    for other in (0, 8, address - 4, address + 4, 2**63, "8", None):
        with pytest.raises(InputError, match="latest logits"):
            lm.logits(other)
    with pytest.raises(InputError):
        lm.forward(sequence, [VOCAB])
    with pytest.raises(InputError, match="latest logits"):
        lm.logits(address)
    again = lm.forward(sequence, [3])
    lm.free()
    with pytest.raises(InputError):
        lm.logits(again)


@pytest.mark.parametrize("name", DECODERS)
def test_tokens(tmp_path, name):
    """Greedy, of two prompts of different lengths, and beams with and without the caches."""
    lm, loop = load(tmp_path, DECODERS[name], seed=2)
    for n in (5, 20):
        out = generate(lm, [prompt(n)], max_new_tokens=24, do_sample=False)
        assert list(out[0]) == loop.greedy(prompt(n), 24)
    beams = {"num_beams": 3, "max_new_tokens": 8, "do_sample": False}
    cached, whole = (generate(lm, [prompt(6)], use_cache=c, **beams) for c in (True, False))
    assert list(cached[0]) == list(whole[0])


def test_rows_in_another_order(tmp_path):
    """A state that grows, but not at its end."""
    lm, loop = load(tmp_path, ["newest_first", "attention"])
    for n in (1, 16, 21):
        sequence = lm.open()
        expected = [loop.logits([t]) for t in prompt(n)] if loop.start() else []
        for token, logits in zip(prompt(n), expected):
            near(lm, lm.forward(sequence, [token]), logits)
        lm.truncate(sequence, n // 2)
        near(lm, lm.forward(sequence, [5]), after(loop, [*prompt(n)[: n // 2], 5]))


def after(loop, ids):
    loop.start()
    return [loop.logits([t]) for t in ids][-1]


def test_bytes_stay_bytes():
    """Quantized keys and values take as much memory as they declare, and no more."""
    sizes = {b: {c["bytes"] for c in caches(decoder([gqa(bits=b)]).model)} for b in (None, 8, 4)}
    assert sizes == {None: {CAPACITY * SIZE * 4}, 8: {CAPACITY * SIZE}, 4: {CAPACITY * SIZE // 2}}


def test_a_window_of_fixed_size(tmp_path):
    """A cache that declares its rows."""
    made = decoder([gqa(window=WINDOW, rows=ROWS), gqa(window=WINDOW, rows=ROWS, bits=8)])
    for info in itertools.chain(made.model.graph.input, made.model.graph.output):
        if "past" in info.name or "present" in info.name:
            info.type.tensor_type.shape.dim[2].dim_value = ROWS
    (tmp_path / "model.onnx").write_bytes(made.model.SerializeToString())
    lm, loop = CausalLM(tmp_path, capacity=CAPACITY), Loop(made)
    for n in (1, 4, 15, 33):
        sequence = lm.open()
        near(lm, lm.forward(sequence, prompt(n)), loop.start().logits(prompt(n)))
        near(lm, lm.forward(sequence, [3]), loop.logits([3]))
    assert all(c["fixed"] for c in caches(made.model))


def refused(layers, change):
    """What compiling a changed decoder says."""
    model = decoder(layers).model
    change({i.name: i for i in itertools.chain(model.graph.input, model.graph.output)})
    graph = read_model(as_source(model.SerializeToString()))
    with pytest.raises(UnsupportedOp) as e:
        compile_causal_lm(graph, capacity=CAPACITY)
    return str(e.value)


def dims(info):
    return info.type.tensor_type.shape.dim


def test_a_state_of_another_size_than_its_output():
    def change(infos):
        dims(infos["present_conv.0"])[1].dim_value = 7

    said = refused(["conv", "attention"], change)
    assert "'past_conv.0' of float32[1, 16, 2]" in said
    assert "'present_conv.0' is float32[1, 7, 2]" in said


def test_two_states_of_one_output():
    def change(infos):
        infos["present.1.value"].name = "other"
        infos["past_key_values.1.value"].name = "past_key_values.1.key "

    said = refused(["conv", "attention"], change)
    assert "'past_key_values.1.key ' of float32[1, 2, past, 8]" in said
    assert "'present.1.key' replaces 'past_key_values.1.key'" in said


def test_a_state_without_a_shape():
    def change(infos):
        infos["past_conv.0"].type.tensor_type.ClearField("shape")

    said = refused(["conv", "attention"], change)
    assert "input 'past_conv.0': its shape is not declared" in said


def test_inspect_knows_the_bytes_of_states(tmp_path):
    for bits, size, dtype in ((8, 32, "int8"), (4, 16, "uint8"), (None, 128, "float32")):
        model = decoder(["conv", gqa(bits=bits)]).model
        (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
        cache = inspect(tmp_path / "model.onnx").cache
        assert (cache.bytes_per_token, cache.dtype) == (size, dtype)
        assert cache.fixed_bytes == 16 * 2 * 4

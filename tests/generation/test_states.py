"""Language models with states of any kind: what grows with the sequence, and what has a fixed shape
(convolution, recurrent). Expected logits and tokens are onnxruntime's.
"""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise import CausalLM, generate, page
from edgewise.compiler.compile.caches import interface
from edgewise.compiler.compile.model_file import (
    find_embedding_file,
    missing_embedding,
    pick_model_file,
)
from edgewise.compiler.onnx import as_source, read_model
from edgewise.errors import Aborted, InputError, UnsupportedOp
from edgewise.inspect import inspect

from .hybrid import (
    DIM,
    HEADS,
    NAMES,
    VOCAB,
    Loop,
    attention_model,
    hybrid_model,
    split_at_embeddings,
)
from .test_families import EXPECTED, PROMPTS, stored

CAPACITY = 96
CLOSE = {np.float32: 2e-5, np.float16: 5e-3}


def load(tmp_path, **options):
    """(CausalLM, Loop) of a model."""
    model = hybrid_model(**options)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    options.pop("count", None)
    return CausalLM(tmp_path, capacity=CAPACITY), Loop(model, **options)


@pytest.fixture
def hybrid(tmp_path):
    return load(tmp_path)


def prompt(n, seed=0):
    return [int(x) for x in np.random.default_rng(seed).integers(0, VOCAB, n)]


def near(lm, address, expected, dtype=np.float32):
    np.testing.assert_allclose(lm.logits(address), expected, atol=CLOSE[dtype], rtol=CLOSE[dtype])


@pytest.mark.parametrize("exporter", NAMES)
def test_pairs(exporter):
    """Each state with the output that replaces it, by names, or by data and shapes alone."""
    found = interface(read_model(as_source(hybrid_model(exporter).SerializeToString())))
    past, present = NAMES[exporter]
    assert {s.name: s.output for s in found.states.values()} == dict(zip(past, present))
    assert [found.states[name].axis for name in past] == [None, None, 2, 2]
    assert found.logits == "logits"


@pytest.mark.parametrize("first", [1, 2], ids=["other places", "other numbers"])
def test_names_that_are_numbers(tmp_path, first):
    """They number inputs and outputs, and a number says nothing of the other side: here each layer
    has its keys and values among the inputs, and the outputs are all keys and then all values.
    """
    k0, v0, k1, v1 = past = [f"input_{first + i}" for i in range(4)]
    present = dict(zip((k0, k1, v0, v1), (f"output_{i}" for i in range(1, 5))))
    model = attention_model(past, present)
    found = interface(read_model(as_source(model.SerializeToString())))
    assert {s.name: s.output for s in found.states.values()} == present
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    lm, session = (
        CausalLM(tmp_path, capacity=CAPACITY),
        onnxruntime.InferenceSession(model.SerializeToString()),
    )
    sequence, states = lm.open(), {name: np.zeros((1, HEADS, 0, DIM), np.float32) for name in past}
    for ids in (prompt(20), [3], [4]):
        logits, *new = session.run(
            ["logits", *(present[name] for name in past)], {"input_ids": np.array([ids]), **states}
        )
        states = dict(zip(past, new))
        near(lm, lm.forward(sequence, ids), logits[0, -1])


MASKS = ["attention_mask.full_attention", "attention_mask.sliding_attention"]
WINDOW = 5


def masked_model(dtype, masks=MASKS):
    """(model, {state: output}) with a layer for each mask: one that sees all tokens, and one that
    sees a window.
    """
    names = [(layer, part) for layer in range(len(masks)) for part in ("key", "value")]
    states = {f"past_key_values.{n}.{part}": f"present.{n}.{part}" for n, part in names}
    return attention_model(list(states), states, masks, dtype), states


SLIDING = {"sliding_window": WINDOW}
CHUNKED = ["attention_mask.full_attention", "attention_mask.chunked_attention"]


@pytest.mark.parametrize("dtype", [bool, np.float32])
@pytest.mark.parametrize(
    ("masks", "kinds", "config"),
    [
        (MASKS, ("full", "sliding"), SLIDING),
        (MASKS, ("full", "sliding"), {"text_config": SLIDING}),
        (CHUNKED, ("full", "chunked"), {"attention_chunk_size": WINDOW}),
        (CHUNKED, ("full", "chunked"), {"text_config": {"attention_chunk_size": WINDOW}}),
        (["attention_mask"], ["sliding"], {**SLIDING, "model_type": "mistral"}),
        (["attention_mask"], ["sliding"], {**SLIDING, "layer_types": ["sliding_attention"] * 2}),
        (["attention_mask"], ["full"], {**SLIDING, "layer_types": ["full_attention"] * 2}),
        (["attention_mask"], ["full"], {**SLIDING, "model_type": "qwen2"}),
    ],
)
def test_a_mask_of_a_window(tmp_path, dtype, masks, kinds, config):
    """Its layers' caches grow as the others do, and hold more than a token sees. The masks are
    transformers' own."""
    rules = pytest.importorskip("transformers.masking_utils")
    torch = pytest.importorskip("torch")
    rule = {
        "full": rules.causal_mask_function,
        "sliding": rules.sliding_window_causal_mask_function(WINDOW),
        "chunked": rules.chunked_causal_mask_function(WINDOW, torch.zeros(1, dtype=torch.int64)),
    }
    sees = [rule[kind] for kind in kinds]
    model, states = masked_model(dtype, masks)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "config.json").write_text(json.dumps(config))
    lm = CausalLM(tmp_path, capacity=CAPACITY)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    sequence, past = lm.open(), 0
    caches = {name: np.zeros((1, HEADS, 0, DIM), np.float32) for name in states}
    for ids in (prompt(3), prompt(20), [3], [4], prompt(WINDOW + 1)):
        rows, columns = np.arange(past, past + len(ids))[:, None], np.arange(past + len(ids))
        seen = [tensor_rule(see, rows, columns) for see in sees]
        given = [m if dtype is bool else np.where(m, 0, np.float32(-1e9)) for m in seen]
        feeds = {name: m[None, None] for name, m in zip(masks, given)}
        feeds |= {"input_ids": np.array([ids]), **caches}
        logits, *new = session.run(["logits", *states.values()], feeds)
        caches, past = dict(zip(states, new)), past + len(ids)
        near(lm, lm.forward(sequence, ids), logits[0, -1])


def tensor_rule(see, rows, columns):
    """Which column each row sees, by a rule of transformers, which takes tensors."""
    torch = pytest.importorskip("torch")
    return see(0, 0, torch.from_numpy(rows), torch.from_numpy(columns)).numpy()


@pytest.mark.parametrize(
    ("masks", "field"), [(MASKS, "sliding_window"), (CHUNKED, "attention_chunk_size")]
)
def test_a_mask_of_a_window_of_unknown_size(tmp_path, masks, field):
    model, _ = masked_model(bool, masks)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedOp, match=f"{masks[1]}.*unknown size.*{field}"):
        CausalLM(tmp_path, capacity=CAPACITY)
    assert "unknown size" in inspect(tmp_path / "model.onnx").why_no_text
    (tmp_path / "config.json").write_text(json.dumps({field: WINDOW}))
    assert inspect(tmp_path / "model.onnx").why_no_text == ""


def test_a_state_without_an_output():
    model = hybrid_model()
    del model.graph.output[1]
    with pytest.raises(UnsupportedOp, match=r"'past_conv.0' of float32\[1, 16, 2\].* no output"):
        interface(read_model(as_source(model.SerializeToString())))


def test_hidden_states_are_no_logits():
    """As models without their last layer have them (ONNX Runtime GenAI's exclude_lm_head)."""
    model = hybrid_model()
    next(o for o in model.graph.output if o.name == "logits").name = "hidden_states"
    model.graph.node[-1].output[0] = "hidden_states"
    with pytest.raises(UnsupportedOp, match=r"outputs hidden_states.* `logits` out"):
        interface(read_model(as_source(model.SerializeToString())))


@pytest.mark.parametrize("exporter", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
def test_prompts_and_steps(tmp_path, exporter, dtype):
    """Prompts of any length, in runs of several sizes, then tokens one by one."""
    lm, loop = load(tmp_path, exporter=exporter, dtype=dtype)
    for n in (1, 2, 15, 16, 17, 31, 50):
        sequence = lm.open()
        near(lm, lm.forward(sequence, prompt(n)), loop.start().logits(prompt(n)), dtype)
        for token in prompt(3, seed=n):
            near(lm, lm.forward(sequence, [token]), loop.logits([token]), dtype)
        lm.close(sequence)


def test_a_model_of_one_token_per_run(tmp_path):
    lm, loop = load(tmp_path, count=1)
    near(lm, lm.forward(lm.open(), prompt(20)), loop.start().logits(prompt(20)))


def test_a_model_of_two_tokens_per_run(tmp_path):
    """Its states would take padding for tokens."""
    with pytest.raises(UnsupportedOp, match="takes 2 tokens in each run"):
        load(tmp_path, count=2)


def test_caches_of_a_size_that_the_file_declares(tmp_path):
    """The size is the maximum length; states of a window have their own."""
    known, files = EXPECTED["transformers_gemma3_static"], stored("transformers_gemma3_static")
    model = onnx.load_from_string(files["model.onnx"])
    room = next(i for i in model.graph.input if i.name == "attention_mask.full_attention")
    name = room.type.tensor_type.shape.dim[3].dim_param
    for info in (*model.graph.input, *model.graph.output):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param == name:
                dim.dim_value = 40
    for file, content in {**files, "model.onnx": model.SerializeToString()}.items():
        (tmp_path / file).write_bytes(content)
    lm = CausalLM(tmp_path)
    assert lm.max_length == 40
    made = generate(lm, PROMPTS[0], max_new_tokens=24, do_sample=False, eos_token_id=None)
    assert list(made[0])[len(PROMPTS[0]) :] == known["greedy"][0]
    with pytest.raises(InputError, match=r"41 tokens are more than the model has .* \(40\)"):
        CausalLM(tmp_path, capacity=41)


def test_sequences_in_turn_and_copies(hybrid):
    """Each sequence has states of its own; a copy goes its own way."""
    lm, loop = hybrid
    a, b = lm.open(), lm.open()
    lm.forward(a, prompt(20, 1))
    lm.forward(b, prompt(9, 2))
    near(lm, lm.forward(a, [5]), loop.start().logits([*prompt(20, 1), 5]))
    near(lm, lm.forward(b, [6]), loop.start().logits([*prompt(9, 2), 6]))
    c = lm.open()
    lm.copy(a, c)
    near(lm, lm.forward(c, [7]), loop.start().logits([*prompt(20, 1), 5, 7]))
    near(lm, lm.forward(a, [8]), loop.start().logits([*prompt(20, 1), 5, 8]))


@pytest.mark.parametrize("keep", [0, 1, 7, 19, 20])
def test_truncated(hybrid, keep):
    """States cannot be cut: they are computed again from the tokens that are left."""
    lm, loop = hybrid
    sequence = lm.open()
    lm.forward(sequence, prompt(20))
    lm.truncate(sequence, keep)
    assert lm.length(sequence) == keep
    near(lm, lm.forward(sequence, [3, 4]), loop.start().logits([*prompt(20)[:keep], 3, 4]))
    lm.truncate(sequence, keep)
    copy = lm.open()
    lm.copy(sequence, copy)
    near(lm, lm.forward(copy, [9]), loop.start().logits([*prompt(20)[:keep], 9]))
    assert lm.length(sequence) == keep


def test_random_edits(hybrid):
    """Forward passes, cuts and copies of several sequences in any order."""
    lm, loop = hybrid
    rng = np.random.default_rng(3)
    sequences = {lm.open(): [] for _ in range(3)}
    for _ in range(120):
        one, other = (int(x) for x in rng.choice(list(sequences), 2, replace=False))
        what = rng.integers(4)
        if what == 0:
            keep = int(rng.integers(len(sequences[one]) + 1))
            lm.truncate(one, keep)
            del sequences[one][keep:]
        elif what == 1:
            lm.copy(one, other)
            sequences[other] = list(sequences[one])
        else:
            ids = prompt(int(rng.integers(1, 20)), int(rng.integers(1000)))
            if len(sequences[one]) + len(ids) > CAPACITY:
                continue
            sequences[one] += ids
            near(lm, lm.forward(one, ids), loop.start().logits(sequences[one]))


def test_a_run_that_ends_early(hybrid):
    """Nothing of it stays, though states were written before the end."""
    lm, loop = hybrid
    sequence = lm.open()
    lm.forward(sequence, prompt(20))
    run = lm.plans[0].loaded.run
    for done in range(3):
        calls = iter(range(100))

        def stopped(done=done, calls=calls):
            if next(calls) == done:
                run()
                raise Aborted("stopped", "test")
            run()

        for plan in lm.plans:
            plan.loaded.run = stopped
        with pytest.raises(Aborted):
            lm.forward(sequence, prompt(3, seed=done))
        for plan in lm.plans:
            del plan.loaded.run
        assert lm.length(sequence) == 20
    near(lm, lm.forward(sequence, [3]), loop.start().logits([*prompt(20), 3]))


def test_greedy_tokens(hybrid):
    lm, loop = hybrid
    for n in (1, 8, 33):
        made = generate(lm, prompt(n), max_new_tokens=20, do_sample=False)
        assert list(made[0]) == loop.greedy(prompt(n), 20)


def test_beams_and_several_sequences(hybrid):
    """With copied states the same as with states that are computed again for each token."""
    lm, _ = hybrid
    for options in (
        {"num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "num_return_sequences": 3, "seed": 4},
    ):
        with_states, without = (
            generate(lm, prompt(18), max_new_tokens=12, use_cache=use, **options)
            for use in (True, False)
        )
        assert [list(x) for x in with_states] == [list(x) for x in without]


@pytest.mark.parametrize(
    "names", [("embed_tokens", "decoder_model_merged"), ("embedding", "model")]
)
def test_embeddings_in_a_graph_of_their_own(tmp_path, names):
    """As multimodal models are exported; text has no pictures' features."""
    model = hybrid_model()
    for name, part in zip(names, split_at_embeddings(model)):
        (tmp_path / f"{name}.onnx").write_bytes(part.SerializeToString())
    (tmp_path / "vision_encoder.onnx").write_bytes(b"not read")
    lm, loop = CausalLM(tmp_path, capacity=CAPACITY), Loop(model)
    sequence = lm.open()
    near(lm, lm.forward(sequence, prompt(20)), loop.start().logits(prompt(20)))
    near(lm, lm.forward(sequence, [3]), loop.logits([3]))


def test_dtypes_of_each_file(tmp_path):
    """Of the decoder, and of the graph that embeds token ids."""
    models = {}
    for seed, dtype in enumerate(("", "_q4", "_fp16")):
        model = hybrid_model(seed=seed)
        parts = split_at_embeddings(model)
        for part, name in zip(parts, ("embed_tokens", "decoder_model_merged")):
            models[name + dtype] = part
            (tmp_path / f"{name}{dtype}.onnx").write_bytes(part.SerializeToString())
    (tmp_path / "vision_encoder_q4.onnx").write_bytes(b"not read")
    for dtypes in (
        {"decoder_model_merged": "q4", "embed_tokens": "fp16", "vision_encoder": "q4"},
        {"decoder_model_merged": "fp32", "embed_tokens": "q4"},
        {"embed_tokens": "fp16"},
    ):
        lm = CausalLM(tmp_path, dtypes, capacity=CAPACITY)
        suffixes = {"fp32": "", "q4": "_q4", "fp16": "_fp16"}
        names = [
            n + suffixes[dtypes.get(n, "fp32")] for n in ("embed_tokens", "decoder_model_merged")
        ]
        embedding, decoder = (
            onnxruntime.InferenceSession(models[n].SerializeToString()) for n in names
        )
        made = embedding.run(
            None, {"input_ids": np.array([[5]]), "image_features": np.zeros((0, 16), np.float32)}
        )
        feeds = dict(zip(("inputs_embeds", "per_layer_inputs"), made))
        states = Loop(hybrid_model()).states
        feeds |= dict(zip(NAMES["optimum"][0], states))
        (logits,) = decoder.run(["logits"], feeds)
        near(lm, lm.forward(lm.open(), [5]), logits[0, -1])


def test_a_decoder_of_embeddings_alone(tmp_path):
    _, decoder = split_at_embeddings(hybrid_model())
    (tmp_path / "decoder_model_merged.onnx").write_bytes(decoder.SerializeToString())
    with pytest.raises(UnsupportedOp, match="inputs_embeds.*embed_tokens.onnx"):
        CausalLM(tmp_path)


def test_the_file_of_the_embedding():
    """The names that transformers.js and ONNX Runtime GenAI give it, in the order of preference."""

    def wanted(decoder, dtypes=None):
        return list(missing_embedding(decoder, dtypes).files)

    merged = wanted("onnx/decoder_model_merged_q4f16.onnx")
    assert merged[:3] == [
        "onnx/embed_tokens_q4f16.onnx",
        "onnx/embedding_q4f16.onnx",
        "onnx/embed_tokens.onnx",
    ]
    assert len(merged) == len(set(merged)) <= 26
    assert wanted("model.onnx")[:2] == ["embedding.onnx", "embed_tokens.onnx"]
    names = ["onnx/embed_tokens_q4.onnx", "onnx/embed_tokens_quantized.onnx"]
    decoder = "onnx/decoder_model_merged_q4.onnx"
    dtypes = {"embed_tokens": "q8", "decoder_model_merged": "q4"}
    assert find_embedding_file(names, decoder) == names[0]
    assert find_embedding_file(names, decoder, dtypes) == names[1]
    assert find_embedding_file(names, decoder, {"embed_tokens": "fp16"}) is None
    assert wanted(decoder, {"embed_tokens": "q8"})[0] == names[1]
    assert find_embedding_file(names, decoder, {"embed_tokens": "auto"}) == names[0]


def test_the_file_of_a_type():
    """As transformers.js names it; "auto" is the first that there is."""
    names = ["onnx/decoder_model_merged_q1.onnx", "onnx/embed_tokens_q1.onnx"]
    assert pick_model_file(names) == pick_model_file(names, "auto") == names[0]
    assert pick_model_file([*names, "model_q1f16.onnx"], "q1f16") == "model_q1f16.onnx"
    assert find_embedding_file(names, names[0]) == names[1]
    # what transformers 5's ExportedModel.save_pretrained writes
    assert pick_model_file(["prefill.onnx", "decode.onnx", "manifest.json"]) == "decode.onnx"


def test_pages_are_told_which_embedding_is_missing():
    """A decoder of another folder: one of the names is enough, then the model compiles."""
    model = hybrid_model()
    embedding, decoder = (part.SerializeToString() for part in split_at_embeddings(model))
    asked = json.dumps({"of": "package", "model_file": "decoder_model_merged.onnx"})
    files = {"decoder_model_merged.onnx": Js(decoder)}
    name, what, _, remedy, missing = page.run(files, asked)
    assert name == "UnsupportedOp" and "inputs_embeds" in what and "embed_tokens.onnx" in remedy
    assert missing[0] == "embed_tokens.onnx"
    manifest, _ = page.run({**files, missing[0]: Js(embedding)}, asked)
    assert {w["file"] for w in json.loads(manifest)["weights"]} >= {missing[0]}


class Js:
    """A page's file, as JsSource takes it."""

    def __init__(self, data):
        self.data, self.size = data, len(data)

    def read(self, offset, size):
        return self.data[offset : offset + size]

    def exponents(self, offset, size):
        return ()

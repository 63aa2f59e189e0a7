"""Random language models with states of any layout: random calls of one decoder and of one session,
compared with onnxruntime. `python -m tests.generation.test_layouts FIRST LAST` runs more of them.
"""

import sys
import tempfile
from pathlib import Path

import edgewise
import numpy as np
import pytest
from edgewise import CausalLM, generate
from edgewise.compiler.compile.caches import interface
from edgewise.compiler.onnx import as_source, read_model
from edgewise.errors import UnsupportedOp

from .layouts import VOCAB, Loop, feeds, random_model

CAPACITY = 64
LENGTHS = (1, 1, 2, 3, 9, 16, 17, 20)


def close(states):
    """The difference that is allowed: states of halves round."""
    return 3e-2 if any(s.dtype == np.float16 for s in states) else 1e-4


def near(got, expected, allowed):
    assert got.shape == expected.shape and got.dtype == expected.dtype
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    largest = max(1.0, np.abs(expected).max(initial=0))
    assert np.abs(got - expected).max(initial=0) < allowed * largest


def calls_of_a_decoder(lm, loop, rng, allowed):
    """Prompts, continuations, cuts, copies and new sequences; then greedy tokens of a batch."""
    sequences = {lm.open(): [] for _ in range(2)}
    for _ in range(16):
        one, other = (int(x) for x in rng.choice(list(sequences), 2, replace=False))
        what = rng.integers(7)
        if what == 0:
            keep = int(rng.integers(len(sequences[one]) + 1))
            lm.truncate(one, keep)
            del sequences[one][keep:]
        elif what == 1:
            lm.copy(one, other)
            sequences[other] = list(sequences[one])
        elif what == 2:
            lm.close(one)
            del sequences[one]
            sequences[lm.open()] = []
        else:
            ids = [int(x) for x in rng.integers(0, VOCAB, rng.choice(LENGTHS))]
            if len(sequences[one]) + len(ids) <= CAPACITY:
                sequences[one] += ids
                logits = np.float32(lm.logits(lm.forward(one, ids)))
                near(logits, loop.logits(sequences[one]), allowed)
    prompts = [[int(x) for x in rng.integers(0, VOCAB, n)] for n in (3, 19)]
    for ids, made in zip(prompts, generate(lm, prompts, max_new_tokens=3, do_sample=False)):
        for length in range(len(ids), len(made)):
            logits = loop.logits(made[:length])
            assert logits[made[length]] > logits.max() - allowed * np.abs(logits).max()


def calls_of_a_session(model, states, given, loop, rng):
    """Sequences of several batches in turn, each with its states: all outputs."""
    session = edgewise.InferenceSession(model.SerializeToString())
    names = [o.name for o in loop.session.get_outputs()]
    ids = next(i for i in loop.session.get_inputs() if i.name == "input_ids")
    batches = ids.shape[0] != 1 and all(s.shape[:1] == ["batch"] for s in states)
    turns = []
    for _ in range(16):
        if not turns or rng.random() < 0.3:
            batch = int(rng.integers(1, 4)) if batches else 1
            turns = [*turns[-2:], [batch, 0, {s.name: s.first(batch) for s in states}]]
        turn = turns[rng.integers(len(turns))]
        batch, past, now = turn
        count = 1 if ids.shape[1] == 1 else int(rng.choice([1, 1, 1, 2, 5, 11]))
        run = feeds(given, now, past, rng.integers(0, VOCAB, (batch, count)))
        expected = loop.session.run(names, run)
        for got, value in zip(session.run(names, run), expected):
            near(got, value, close(states))
        outputs = dict(zip(names, expected))
        turn[1:] = past + count, {s.name: outputs[s.output] for s in states}


def check(seed, folder):
    """Runs one model; whether text generation takes it."""
    model, states, given = random_model(seed)
    loop, rng = Loop(model, states, given), np.random.default_rng(seed + 1000)
    calls_of_a_session(model, states, given, loop, rng)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    try:
        lm = CausalLM(folder, capacity=CAPACITY)
    except UnsupportedOp as e:
        cut = {f"input '{s.name}': its output '{s.output}' is the last" for s in states if s.most}
        assert any(text in str(e) for text in cut)  # docs/limits.md
        return False
    calls_of_a_decoder(lm, loop, rng, close(states))
    return True


def test_pairs():
    """Each state with the output that replaces it; some are the last token's rows of two layers."""
    alike = 0
    for seed in range(600):
        model, states, _ = random_model(seed)
        found = interface(read_model(as_source(model.SerializeToString()))).states
        assert {s.name: s.output for s in found.values()} == {s.name: s.output for s in states}
        alike += sum(s.kind == "shift" for s in states) > 1
    assert alike > 12


@pytest.mark.parametrize("first", range(0, 24, 6))
def test_random_layouts(tmp_path, first):
    assert sum(check(seed, tmp_path) for seed in range(first, first + 6)) > 1


if __name__ == "__main__":
    for seed in range(*map(int, sys.argv[1:3])):
        with tempfile.TemporaryDirectory() as folder:
            print(seed, check(seed, Path(folder)), flush=True)

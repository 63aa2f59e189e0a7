"""Conversations in pages: what was read is not read again, and answers are those of a new one."""

import io
import json
import random
import shutil

import pytest
from edgewise import CausalLM, generate
from edgewise.compiler.compile import compile_package
from edgewise.host.session.open import folder_files

from tests.generation.decoders import decoder
from tests.generation.hybrid import hybrid_model
from tests.generation.test_kept import MADE

from .conftest import MODEL

CONVERSE = """
    const p = await ew.pipeline("text-generation", arg.model, arg.options);
    const run = async (input_ids, fields) => {
      const all = { do_sample: false, return_tensors: true, ...fields };
      const [{ generated_token_ids: ids }] = await p({ input_ids }, all);
      return { ids, cached: p.stats.cached_tokens };
    };
    const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    const results = [];
    for (const { prompt, fields, pause, abort } of arg.calls) {
      if (abort) {
        const end = new AbortController();
        const streamer = { put: () => end.abort(), end() {} };
        await p({ input_ids: prompt }, { signal: end.signal, streamer, max_new_tokens: 50 }).catch(
          (e) => { if (e.name !== "Aborted") throw e; });
      }
      if (pause) await wait(900); // the answer is read ahead
      const kept = await run(prompt, fields);
      const plain = await run(prompt, { ...fields, cache: false });
      results.push({ same: String(kept.ids) === String(plain.ids), ...kept, plain: plain.cached });
    }
    const memory = p.info.memory.kept;
    await p.clearCache();
    const again = await run(arg.calls[0].prompt, { max_new_tokens: 1 });
    await p.dispose();
    return { results, memory, again: again.cached };
"""


def script(r, vocab, count, tokens):
    """Calls: turns of a conversation, another answer, another conversation, an edit."""
    calls, turns = [], [[r.randrange(5, vocab) for _ in range(200)]]
    for i in range(count):
        deed = r.choice(["turn", "turn", "again", "edit", "new"]) if i else "again"
        if deed == "turn":
            turns = [*turns, [r.randrange(5, vocab) for _ in range(r.choice([9, 90]))]]
        elif deed == "edit":
            turns = [*turns[:1], [r.randrange(5, vocab) for _ in range(150)]]
        elif deed == "new":
            turns = [[r.randrange(5, vocab) for _ in range(r.choice([40, 140]))]]
        while sum(map(len, turns)) > 420:
            turns = turns[:-1]
        sampled = {"do_sample": True, "temperature": 1.0, "seed": r.randrange(99)}
        calls.append(
            {
                "prompt": [t for turn in turns for t in turn],
                "fields": {**r.choice([{}, sampled, {"num_beams": 2}]), "max_new_tokens": tokens},
                "pause": r.random() < 0.3,
                "abort": r.random() < 0.2,
            }
        )
    return calls


def conversations(page, model, vocab, options, count=8, least=512, tokens=30):
    r = random.Random(5)
    calls = script(r, vocab, count, tokens)
    got = page.run(CONVERSE, {"model": model, "calls": calls, "options": options})
    assert "error" not in got, got
    assert [one["same"] for one in got["results"]] == [True] * len(calls)
    assert sum(one["cached"] for one in got["results"]) >= least
    assert all(one["plain"] == 0 for one in got["results"])
    assert got["memory"] > 0 and got["again"] == 0
    return calls, [one["ids"] for one in got["results"]]


@pytest.mark.parametrize("options", [{}, {"cache_dtype": "int4"}], ids=["float32", "int4"])
def test_conversations(visit, server, options):
    vocab = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    conversations(visit(server), "/demo/model/", vocab, {"capacity": 512, **options})


@pytest.mark.parametrize("kind", ["hybrid", "windows"])
def test_states_that_cannot_be_cut(visit, server, files, tmp_path, kind):
    vocab = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, tmp_path)
    (tmp_path / "config.json").write_text("{}")
    if kind == "hybrid":
        model = hybrid_model("optimum", vocab=vocab)
    else:
        model = decoder(MADE[kind], vocab=vocab).model
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    sources, _ = folder_files(tmp_path)
    compile_package(sources, capacity=512).write(target := io.BytesIO())
    (files / "kept.edge").write_bytes(target.getvalue())
    calls, found = conversations(visit(server), "/files/kept.edge", vocab, {})
    if kind == "windows":
        lm = CausalLM(files / "kept.edge")
        assert lm.window is not None
        for call, ids in zip(calls, found):
            fields = {"do_sample": False, **call["fields"], "cache": False}
            assert list(generate(lm, call["prompt"], **fields)[0]) == ids

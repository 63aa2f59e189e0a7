"""A smaller model that guesses tokens in pages: texts are those without it."""

import json
import shutil

from .conftest import MODEL

RUN = """
    const load = (options) => ew.pipeline("text-generation", "/demo/model/", options);
    const [plain, pipe] = [await load({}), await load({ assistant_model: "/files/model.edge" })];
    const results = [];
    for (const fields of arg) {
      const all = { return_tensors: true, ...fields };
      const ids = async (p) => (await p("Once upon a time", all)).map((r) => r.generated_token_ids);
      results.push([await ids(plain), await ids(pipe)]);
    }
    const refused = async (options, call = {}) => {
      try { await (await load(options))("Once", call); return ""; } catch (e) { return e.message; }
    };
    const other = await refused({ assistant_model: "/files/other/" });
    const small = { assistant_model: "/files/model.edge" };
    const zero = await refused(small, { num_assistant_tokens: 0 });
    await Promise.all([plain.dispose(), pipe.dispose()]);
    return { results, other, zero };
"""


def test_texts_are_those_without_it(visit, server, files):
    """Of the model itself in a package, which guesses right, and of one with another tokenizer."""
    shutil.copytree(MODEL, files / "other")
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    a, b = sorted(vocab, key=vocab.get)[-2:]
    vocab[a], vocab[b] = vocab[b], vocab[a]
    (files / "other" / "tokenizer.json").write_text(json.dumps(tokenizer))
    fields = [
        {"max_new_tokens": 50, "do_sample": False},
        {"max_new_tokens": 50, "do_sample": True, "seed": 4, "num_return_sequences": 2},
        {"max_new_tokens": 30, "do_sample": False, "repetition_penalty": 1.3},
    ]
    got = visit(server).run(RUN, fields)
    for want, found in got["results"]:
        assert found == want
    assert "the assistant_model has another tokenizer: its token" in got["other"]
    assert "num_assistant_tokens" in got["zero"]

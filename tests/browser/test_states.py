"""A language model with states of fixed shape in a page: tokens are those of onnxruntime's loop."""

import io
import json
import shutil

import pytest
from edgewise.compiler.compile import compile_package
from edgewise.host.session.open import folder_files

from tests.generation.hybrid import Loop, hybrid_model

from .conftest import MODEL

PROMPT = "Once upon a time there was a little dog who"

IN_TURN = """
    const p = await ew.pipeline("text-generation", arg.model);
    const run = async (prompt, fields) => {
      const ids = [];
      const streamer = { put: (x) => ids.push(...x), end() {} };
      await p(prompt, { max_new_tokens: 12, do_sample: false, streamer, ...fields });
      return ids;
    };
    const abort = new AbortController();
    const stopped = await p(arg.prompt, {
      max_new_tokens: 50, // the abort is heard every 8 ms
      do_sample: false,
      signal: abort.signal,
      streamer: { put: () => abort.abort(), end() {} },
    }).catch((e) => e.name);
    const first = await run(arg.prompt);
    const other = await run(arg.other);
    const again = await run(arg.prompt);
    const beams = { max_new_tokens: 8, num_beams: 3, do_sample: false };
    const [{ generated_text: cached }] = await p(arg.prompt, beams);
    const [{ generated_text: whole }] = await p(arg.prompt, { ...beams, use_cache: false });
    await p.dispose();
    return { stopped, first, other, again, cached, whole };
"""


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    """(package, model) with the demo's tokenizer."""
    folder = tmp_path_factory.mktemp("hybrid")
    vocab = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    model = hybrid_model("genai", vocab=vocab)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, folder)
    (folder / "config.json").write_text("{}")
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    sources, _ = folder_files(folder)
    compile_package(sources, capacity=64).write(target := io.BytesIO())
    return target.getvalue(), model


def test_tokens(visit, server, files, hybrid):
    """Of several prompts in turn, after one that was stopped, and of beams, for which states are
    copied.
    """
    from tokenizers import Tokenizer

    package, model = hybrid
    (files / "hybrid.edge").write_bytes(package)
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    other = "The sun"
    expected = [
        Loop(model, "genai").greedy(tokenizer.encode(text).ids, 12) for text in (PROMPT, other)
    ]
    page = visit(server)
    got = page.run(IN_TURN, {"model": "/files/hybrid.edge", "prompt": PROMPT, "other": other})
    assert "error" not in got, got
    assert got["stopped"] == "Aborted"
    assert [got["first"], got["other"], got["again"]] == [expected[0], expected[1], expected[0]]
    assert got["cached"] == got["whole"]

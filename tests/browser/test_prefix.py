"""Prefixes as files in pages: answers are those without, and files go to Python and back."""

import base64
import io
import json
import random
import shutil

import pytest
from edgewise import CausalLM
from edgewise.compiler.compile import compile_package
from edgewise.host.session.open import folder_files
from edgewise.logic.generation.prefix import PREFIX

from tests.generation.hybrid import hybrid_model
from tests.generation.test_prefix import closed, opened

from .conftest import MODEL

SAVE = """
    const p = await ew.pipeline("text-generation", arg.model, arg.options);
    const save = async () => {
      const blob = await p.savePrefix({ input_ids: arg.prefix });
      return new Uint8Array(await blob.arrayBuffer());
    };
    const bytes = await save();
    await p.clearCache();
    const again = await save();
    await p.dispose();
    const file = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    return { file, same: String(bytes) === String(again) };
"""

LOAD = """
    const p = await ew.pipeline("text-generation", arg.model, arg.options);
    const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const refused = [];
    for (const wrong of arg.wrong)
      await p.loadPrefix(bytes(wrong)).then(
        () => refused.push("loaded"), (e) => refused.push(e.name));
    const none = p.info.memory.kept;
    const count = await p.loadPrefix(new Blob([bytes(arg.file)]));
    const results = [];
    for (const input_ids of arg.prompts) {
      const run = async (fields) => {
        const all = { max_new_tokens: 8, do_sample: false, return_tensors: true, ...fields };
        const [{ generated_token_ids: ids }] = await p({ input_ids }, all);
        return { ids, cached: p.stats.cached_tokens };
      };
      const got = await run({});
      results.push({ ...got, plain: (await run({ cache: false })).ids });
    }
    await p.dispose();
    return { refused, none, count, results };
"""


FIRST = """
    const p = await ew.pipeline("text-generation", arg.model);
    const { kept } = p.info.memory;
    const fields = { max_new_tokens: 8, do_sample: false, return_tensors: true };
    const input = { input_ids: arg.prompt };
    const [{ generated_token_ids: ids }] = await p(input, fields);
    const cached = p.stats.cached_tokens;
    const [{ generated_token_ids: plain }] = await p(input, { ...fields, cache: false });
    await p.dispose();
    return { kept, cached, ids, plain };
"""


def packaged(tmp_path, files, kind, dtype):
    """(path of a package, its address, size of its vocabulary)"""
    vocab = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    folder = MODEL
    if kind == "hybrid":
        folder = tmp_path
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(MODEL / name, tmp_path)
        (tmp_path / "config.json").write_text("{}")
        model = hybrid_model("optimum", vocab=vocab)
        (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    sources, _ = folder_files(folder)
    package = compile_package(sources, capacity=512, cache_dtype=dtype)
    package.write(target := io.BytesIO())
    name = f"prefix-{kind}-{dtype}.edge"
    (files / name).write_bytes(target.getvalue())
    return files / name, f"/files/{name}", vocab


@pytest.mark.parametrize(
    "kind, dtype", [("demo", None), ("demo", "int4"), ("hybrid", None)], ids=str
)
def test_prefixes(visit, server, files, tmp_path, kind, dtype):
    path, address, vocab = packaged(tmp_path, files, kind, dtype)
    r = random.Random(1)
    prefix = [r.randrange(5, vocab) for _ in range(300)]
    page = visit(server)
    saved = page.run(SAVE, {"model": address, "options": {}, "prefix": prefix})
    assert saved.get("same") is True, saved
    data = base64.b64decode(saved["file"])
    tensors, metadata = opened(data)
    damaged = bytearray(data)
    damaged[-1] ^= 1
    wrong = [
        (b"abc", "ModelError"),
        (bytes(damaged), "ModelError"),
        (data[:-4], "ModelError"),
        (closed(tensors, {**metadata, "model": "0"}), "InputError"),
        (closed(tensors, {**metadata, "adapter": "0"}), "InputError"),
        (closed(tensors, {**metadata, "engine": "1"}), "InputError"),
        (closed({k: v for k, v in tensors.items() if k != "ids"}, metadata), "ModelError"),
    ]
    prompts = [prefix + [r.randrange(5, vocab) for _ in range(n)] for n in (1, 60)]
    given = {
        "model": address,
        "options": {},
        "file": saved["file"],
        "wrong": [base64.b64encode(one).decode() for one, _ in wrong],
        "prompts": prompts,
    }
    got = page.run(LOAD, given)
    assert got.get("refused") == [name for _, name in wrong], got
    assert got["none"] == 0 and got["count"] == 256
    for one in got["results"]:
        assert one["ids"] == one["plain"] and one["cached"] >= 256
    # Python takes the page's file, and the page Python's
    lm = CausalLM(str(path))
    assert lm.load_prefix(data) == 256
    written = lm.save_prefix(prefix)
    given |= {"file": base64.b64encode(written).decode(), "wrong": []}
    assert page.run(LOAD, given)["count"] == 256
    if dtype == "int4":  # and Python's in a package
        parts = [name for name in lm.package.manifest["files"] if name != "weights"]
        lm.package.blobs = {name: lm.package.file(name) for name in parts}
        lm.package.blobs[PREFIX] = written
        lm.package.save(files / "with-prefix.edge")
        got = page.run(FIRST, {"model": "/files/with-prefix.edge", "prompt": prompts[1]})
        assert got["kept"] > 0 and got["cached"] == 256 and got["ids"] == got["plain"]


CHAT = """
    const p = await ew.pipeline("text-generation", arg.model, { capacity: 600 });
    const story = "Once upon a time there was a little dog. ".repeat(30);
    const file = await p.savePrefix(story);
    const short = await p.savePrefix("Once").catch((e) => `${e.name}: ${e.message}`);
    const end = new AbortController();
    end.abort();
    const aborted = await p.savePrefix(story + "It", { signal: end.signal }).catch((e) => e.name);
    await p.clearCache();
    const count = await p.loadPrefix(file);
    const options = { max_new_tokens: 8, do_sample: false };
    const got = await p(story + "The dog", options);
    const cached = p.stats.cached_tokens;
    const plain = await p(story + "The dog", { ...options, cache: false });
    const other = await ew.pipeline("text-generation", arg.model, { capacity: 500 });
    const refused = await other.loadPrefix(file).catch((e) => e.name);
    const none = await ew.pipeline("text-generation", arg.model, { capacity: 600, cache_bytes: 0 });
    const kept = await none.loadPrefix(file).catch((e) => e.message);
    for (const one of [p, other, none]) await one.dispose();
    const same = JSON.stringify(got) === JSON.stringify(plain);
    return { short, aborted, count, cached, same, refused, kept };
"""


def test_texts_and_models_that_a_page_compiles(visit, server):
    got = visit(server).run(CHAT, {"model": "/demo/model/"})
    assert got.get("same") is True, got
    assert got["count"] % 128 == 0 and got["cached"] >= got["count"] > 0
    assert got["short"].startswith("InputError") and "whole pieces of 128" in got["short"]
    assert got["aborted"] == "Aborted" and got["refused"] == "InputError"
    assert "keeps no states" in got["kept"]

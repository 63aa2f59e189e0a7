"""Language models with states of fixed shape, and with an embedding in a file of its own, in pages:
tokens are those of onnxruntime's loop.
"""

import io
import json
import shutil

import onnx
import pytest
from edgewise.compiler.compile import compile_package
from edgewise.host.session.open import folder_files

from tests.generation.hybrid import Loop, hybrid_model, split_at_embeddings

from .conftest import MODEL, greedy
from .hub import ID
from .loading import error

PROMPT = "Once upon a time there was a little dog who"

IN_TURN = """
    const p = await ew.pipeline("text-generation", arg.model);
    const run = async (prompt, fields) => {
      const ids = [];
      const streamer = { put: (x) => ids.push(...x), end() {} };
      await p(prompt, { max_new_tokens: 12, do_sample: false, streamer, ...fields });
      return ids;
    };
    let stopped;
    for (let i = 0; i < 200 && stopped !== "Aborted"; i++) {
      // the abort is heard every 8 ms: a fast engine may have written everything by then
      const abort = new AbortController();
      stopped = await p(arg.prompt, {
        max_new_tokens: 50,
        do_sample: false,
        signal: abort.signal,
        streamer: { put: () => abort.abort(), end() {} },
      }).catch((e) => e.name);
    }
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


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """(files, model) of a model whose embedding is a file of its own, with external data."""
    folder = tmp_path_factory.mktemp("split")
    vocab = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    model = hybrid_model("genai", vocab=vocab)
    embedding, decoder = split_at_embeddings(model)
    (folder / "onnx").mkdir()
    for part, name in ((embedding, "embed_tokens_quantized"), (decoder, "decoder_model_merged_q4")):
        onnx.save_model(
            part,
            folder / "onnx" / f"{name}.onnx",
            save_as_external_data=True,
            location=f"{name}.onnx_data",
            size_threshold=1024,
        )
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, folder)
    (folder / "config.json").write_text("{}")
    paths = [p for p in folder.rglob("*") if p.is_file()]
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in paths}, model


def wanted(model):
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(MODEL / "tokenizer.json")).encode(PROMPT).ids
    return Loop(model, "genai").greedy(ids, 12)


def put(files, name, contents):
    for path, data in contents.items():
        (files / name / path).parent.mkdir(parents=True, exist_ok=True)
        (files / name / path).write_bytes(data)


EACH = {"decoder_model_merged": "q4", "embed_tokens": "q8"}


@pytest.mark.parametrize("dtype", ["q4", EACH], ids=["one", "each"])
def test_an_embedding_beside_the_decoder(visit, server, files, split, dtype):
    """In a folder of a site: it is fetched once, its plans are kept, and made again where it is
    another.
    """
    contents, model = split
    name = "split-one" if dtype == "q4" else "split-each"
    put(files, name, contents)
    v = visit(server)
    first = greedy(v, f"/files/{name}/", {"dtype": dtype}, PROMPT)
    assert first["info"]["origin"] == "compiled" and first["ids"] == wanted(model)
    asked = [r.url for r in v.requests]
    assert sum(u.endswith("/embed_tokens_quantized.onnx") for u in asked) == 1
    again = greedy(v, f"/files/{name}/", {"dtype": dtype}, PROMPT)
    assert again["info"]["origin"] == "cache" and again["ids"] == first["ids"]

    other = hybrid_model("genai", vocab=first["info"]["vocabSize"], seed=1)
    embedding = onnx.load_from_string(split_at_embeddings(other)[0].SerializeToString())
    embedding, _ = split_at_embeddings(other)
    put(files, name, {"onnx/embed_tokens_quantized.onnx": embedding.SerializeToString()})
    assert greedy(v, f"/files/{name}/", {"dtype": dtype}, PROMPT)["info"]["origin"] == "compiled"


def test_an_embedding_of_a_hub(visit, server, hub, split):
    """Nothing is asked for that the hub does not have, and the second visit asks for nothing."""
    contents, model = split
    hub.files = dict(contents)
    hub.files["onnx/vision_encoder_q4.onnx"] = b"not read"
    v = visit(server)
    v.run("ew.env.remoteHost = arg", hub.url)
    got = greedy(v, ID, {"dtype": "q4"}, PROMPT)
    assert got["ids"] == wanted(model)
    asked = {path.removeprefix(f"{ID}/resolve/main/") for path, _ in hub.asked}
    asked = {path.removeprefix("cdn/") for path in asked}
    assert {path for path in asked if "onnx" in path} == {p for p in contents if "onnx" in p}
    hub.forget()
    assert greedy(v, ID, {"dtype": "q4"}, PROMPT)["ids"] == got["ids"] and hub.asked == []


CHOSEN = """
    const list = [];
    for (const path of arg.paths) {
      const data = await (await fetch(arg.folder + path)).blob();
      list.push(new File([data], path.split("/").pop()));
    }
    const p = await ew.pipeline("text-generation", list);
    const ids = [];
    const streamer = { put: (x) => ids.push(...x), end() {} };
    await p(arg.prompt, { max_new_tokens: 12, do_sample: false, streamer });
    await p.dispose();
    return ids;
"""


def test_an_embedding_among_chosen_files(visit, server, files, split):
    """Without it the error says so, as for a folder that lacks it."""
    contents, model = split
    put(files, "split-chosen", contents)
    v = visit(server)
    asked = {"folder": "/files/split-chosen/", "paths": list(contents), "prompt": PROMPT}
    assert v.run(CHOSEN, asked) == wanted(model)
    paths = [path for path in contents if "embed_tokens" not in path]
    error(
        v.run(CHOSEN, {**asked, "paths": paths}), "UnsupportedOp", "inputs_embeds", "embed_tokens"
    )
    put(files, "split-without", {path: contents[path] for path in paths})
    got = greedy(v, "/files/split-without/", {"dtype": "q4"}, PROMPT)
    error(got, "UnsupportedOp", "inputs_embeds", "embed_tokens")

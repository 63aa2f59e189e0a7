"""Families of language models in pages: tokens are those of transformers (see
tests/generation/families).
"""

import io
import json
import lzma

import pytest
from edgewise.compiler.compile import compile_package
from edgewise.compiler.targets import target_named
from edgewise.host.session.open import folder_files

from tests.generation.test_families import EXPECTED, HERE, PROMPTS, SWITCHED, stored

pytestmark = pytest.mark.families("tests/generation/test_families.py")
WORDS = {
    "version": "1.0",
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(96)}, "unk_token": "w0"},
}
ONE = """
    const p = await ew.pipeline("text-generation", arg.model);
    const ids = [];
    const streamer = { put: (x) => ids.push(...x), end() {} };
    await p(arg.prompt, { max_new_tokens: 24, do_sample: false, streamer });
    await p.dispose();
    return ids;
"""
RUN = """
    const made = {};
    for (const [name, [prompts, searched]] of Object.entries(arg)) {
      try {
        const p = await ew.pipeline("text-generation", `/files/${name}.edge`);
        made[name] = [];
        for (const [prompt, count] of prompts) {
          const ids = [];
          const streamer = { put: (x) => ids.push(...x), end() {} };
          const lookup = { prompt_lookup_num_tokens: made[name].length ? 15 : null };
          await p(prompt, { max_new_tokens: count, do_sample: false, streamer, ...lookup });
          made[name].push(ids.slice(-count));
        }
        if (searched) {
          const beams = { max_new_tokens: 10, num_beams: 3, do_sample: false };
          const [{ generated_text }] = await p(prompts[0][0], beams);
          made[name].push(generated_text.split(" ").slice(-10).map((w) => Number(w.slice(1))));
        }
        await p.dispose();
      } catch (e) {
        made[name] = `${e.name}: ${e.message}`;
      }
    }
    return made;
"""


def packed(folder, name, target="cpu"):
    """A package of a model for a device, as bytes."""
    folder.mkdir()
    for file, content in stored(name).items():
        (folder / file).write_bytes(content)
    (folder / "tokenizer.json").write_text(json.dumps(WORDS))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    sources, _ = folder_files(folder)
    package = compile_package(sources, capacity=96, target=target_named(target))
    package.write(out := io.BytesIO())
    return out.getvalue()


def test_a_folder_of_genai(visit, server, files):
    """Without config.json: sizes and special tokens are in genai_config.json."""
    name = "GenAI_hunyuan"
    greedy = EXPECTED[name]["greedy"][0]
    (files / "genai").mkdir()
    model = lzma.decompress((HERE / f"{name}.onnx.xz").read_bytes())
    config = {"model": {"eos_token_id": greedy[5], "decoder": {"head_size": 16}}}
    for file, content in (
        ("model.onnx", model),
        ("tokenizer.json", json.dumps(WORDS).encode()),
        ("tokenizer_config.json", b'{"tokenizer_class": "PreTrainedTokenizerFast"}'),
        ("genai_config.json", json.dumps(config).encode()),
    ):
        (files / "genai" / file).write_bytes(content)
    page = visit(server)
    prompt = " ".join(f"w{i}" for i in PROMPTS[0])
    wanted = greedy[: greedy.index(greedy[5]) + 1]
    got = page.run(ONE, {"model": "/files/genai/", "prompt": prompt})
    assert got[-len(wanted) :] == wanted and len(got) in (
        len(wanted),
        len(wanted) + len(PROMPTS[0]),
    )
    asked = [r.url.rsplit("/", 1)[-1] for r in page.requests]
    assert asked.count("genai_config.json") == 1


def test_tokens(visit, server, files, tmp_path):
    """Of two prompts in turn, greedily, and of beams."""
    asked, expected = {}, {}
    for name in sorted(set(EXPECTED) - SWITCHED):
        (files / f"{name}.edge").write_bytes(packed(tmp_path / name, name))
        greedy, beams = EXPECTED[name]["greedy"], EXPECTED[name]["beams"]
        asked[name] = [(" ".join(f"w{i}" for i in ids), 24) for ids in PROMPTS], beams is not None
        expected[name] = [*greedy, beams] if beams else greedy
    assert visit(server).run(RUN, asked) == expected

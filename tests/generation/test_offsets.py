"""Offsets, pairs and truncation of the page's encodings are those of the `tokenizers` library."""

import json
import subprocess

import pytest
from tokenizers import Tokenizer, processors

from . import tokenizer_files
from .test_javascript import ESBUILD, ROOT

TEXTS = [
    "Once upon a time there was a small dragon.",
    "  Leading and   several spaces; it's 12.50!  ",
    "Der Zwölfbeinige grüßt naïve Café-Gäste; où es-tu?",
    "日本語 and 你好, mixed",
    "emoji 🐉🎉 here",
    "x",
]
PAIRS = [
    (TEXTS[0], TEXTS[2], {}),
    (TEXTS[0], TEXTS[2], {"truncation": "longest_first", "max_length": 20}),
    (TEXTS[0], TEXTS[2], {"truncation": "only_first", "max_length": 60}),
    (TEXTS[5], TEXTS[2], {"truncation": "only_second", "max_length": 14, "stride": 3}),
]
KINDS = {
    "bert": tokenizer_files.words,
    "bert cased": tokenizer_files.words,
    "clip": tokenizer_files.words,
    "gpt2": tokenizer_files.byte_level,
    "roberta": tokenizer_files.byte_level,
    "llama3": tokenizer_files.byte_level,
    "metaspace first": tokenizer_files.sentencepiece,
    "fused": tokenizer_files.sentencepiece,
    "llama2": tokenizer_files.sentencepiece,
}


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    """({name: Tokenizer}, what the page's code makes of the texts)"""
    script = tmp_path_factory.mktemp("offsets") / "offsets.mjs"
    subprocess.run(
        [
            ESBUILD,
            ROOT / "tests/generation/offsets.ts",
            "--bundle",
            "--platform=node",
            "--format=esm",
            f"--outfile={script}",
            "--log-level=error",
        ],
        check=True,
        env={"NODE_PATH": str(ROOT / "web/node_modules"), "PATH": "/usr/bin:/bin"},
    )
    made = {}
    for name, file in KINDS.items():
        tokenizer = made[name] = Tokenizer.from_str(json.dumps(file()[name]))
        first = tokenizer.id_to_token(0)
        template = {"special_tokens": [(first, 0)], "single": f"{first} $A {first}"}
        tokenizer.post_processor = processors.TemplateProcessing(
            **template, pair=f"{first} $A {first} $B:1 {first}:1"
        )
    files = {name: tokenizer.to_str() for name, tokenizer in made.items()}
    question = {"files": files, "texts": TEXTS, "pairs": PAIRS}
    done = subprocess.run(
        ["node", script], input=json.dumps(question), text=True, stdout=subprocess.PIPE, check=True
    )
    return made, json.loads(done.stdout)


def units(text, offsets):
    """Offsets in UTF-16 units instead of characters."""
    at = [len(text[:i].encode("utf-16-le")) // 2 for i in range(len(text) + 1)]
    return [[at[start], at[end]] for start, end in offsets]


@pytest.mark.parametrize("kind", KINDS)
def test_offsets(kind, encoded):
    made, answers = encoded
    for text, (ids, offsets, _, _) in zip(TEXTS, answers[kind][0]):
        want = made[kind].encode(text)
        assert ids == want.ids, text
        got = list(zip(want.tokens, offsets))
        assert got == list(zip(want.tokens, units(text, want.offsets))), text


@pytest.mark.parametrize("kind", KINDS)
def test_pairs(kind, encoded):
    made, answers = encoded
    for (text, pair, options), parts in zip(PAIRS, answers[kind][1]):
        tokenizer = made[kind]
        tokenizer.no_truncation()
        if options:
            tokenizer.enable_truncation(
                options["max_length"],
                stride=options.get("stride", 0),
                strategy=options["truncation"],
            )
        if parts == "InputError":
            with pytest.raises(Exception, match="too short"):
                tokenizer.encode(text, pair)
            continue
        want = tokenizer.encode(text, pair)
        wanted = (
            [want] if options.get("truncation") == "longest_first" else [want, *want.overflowing]
        )
        assert [[p[0], p[3]] for p in parts] == [[w.ids, w.type_ids] for w in wanted]
        for (_, offsets, _, _), w in zip(parts, wanted):
            for got, here, which in zip(offsets, w.offsets, w.sequence_ids):
                if which is not None:
                    assert [got] == units((text, pair)[which], [here])
    made[kind].no_truncation()

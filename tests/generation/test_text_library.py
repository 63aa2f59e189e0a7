"""The text library of pages and of the wheel for Pyodide gives the ids, texts and offsets of the
`tokenizers` library. tests/notebook/test_text.py runs it in Pyodide.
"""

import json
import os
import random
import subprocess
import unicodedata
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers")

from conformance.vectors import vectors

from . import tokenizer_files

ROOT = Path(__file__).parents[2]
SHARED = [
    ROOT / "web/demo/model/tokenizer.json",
    *sorted((ROOT / "tests/zoo/models").glob("*/tokenizer.json")),
    *sorted(
        Path(os.environ.get("EDGEWISE_ZOO") or ROOT.parent / "shared/zoo").glob("*/tokenizer.json")
    ),
    *sorted(Path(os.environ.get("EDGEWISE_REAL", "/nowhere")).glob("*/tokenizer.json")),
]
ODD = [
    *("", " ", "   ", "\n", "\t\t", "\r\n \r", "a\r\nb", "  a  b ", "x" * 300 + " " * 40 + "y"),
    "\x00\x01\x7f\x85\ufeff\ufffd\u2028\xa0\u3000\u200b",
    "Ⓐ ΑΣ ſs 'S 'ſ I'LL K Å İ ß ﬁ½",
    "<|end|> x<|end|> <left> a <left>  b <right>  c word words word! time  times time",
    "<|a|>b <|a|> <|both|> <unk> <s>a</s> <0x41> [CLS] [MASK] a <|endoftext|><|im_start|>",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 ©️ 🇩🇪 1234567890123 12.5 1,234",
]
OFFSET_TEXTS = [
    *tokenizer_files.TEXT[:6],
    "Élise ate a crème brûlée in Montréal.  Two  spaces, 漢字 and ☃!",
    "e\u0301 decomposed, ﬁ ligature, İ, ß, ½ and \u200b",
    " leads and trails ",
    "unbelievably [MASK] tokens<mask>here </s>",
]
# The library's normalization forms are those of Unicode 11, which lacks these characters; and it
# may know characters that this Python does not know.
NEWER = {0x32FF, 0xA7F2, 0xA7F3, 0xA7F4, 0xAB69, 0x11938, 0x1F16C, *range(0x1FBF0, 0x1FBFA)}
NEWER |= set(range(0x10780, 0x107BB))
KNOWN = [
    chr(code)
    for code in range(0x20000)
    if code not in NEWER and unicodedata.category(chr(code)) not in ("Cs", "Cn")
]


def fuzzed(seed, n):
    """n random texts: common characters, any characters, and pieces of sentences."""
    rng = random.Random(seed)
    common = "abcdeth 'sT12\n\t.,é漢字 \r▁ |-\u0301"
    for _ in range(n):
        size = rng.randrange(1, 40)
        if rng.random() < 0.3:
            text = rng.choice(tokenizer_files.TEXT)
            start = rng.randrange(len(text))
            yield text[start : start + size] + " " + text[: rng.randrange(size)]
        else:
            rare = rng.choice([0, 0.1, 0.5])
            yield "".join(
                rng.choice(KNOWN) if rng.random() < rare else rng.choice(common)
                for _ in range(size)
            )


SCRIPT = """
import { readFileSync } from "node:fs";
const library = (0, eval)(readFileSync(process.argv[2], "utf8"));
const tried = (work) => {
  try {
    return work();
  } catch (e) {
    return { name: e.name, message: String(e.message) };
  }
};
const { files, calls } = JSON.parse(readFileSync(0, "utf8"));
const made = files.map((file) => tried(() => library.tokenizer(file)));
const plain = (value) => (ArrayBuffer.isView(value) ? Array.from(value) : value ?? null);
process.stdout.write(JSON.stringify(calls.map(([file, name, ...given]) => {
  const of = made[file];
  if (of.message) return of;
  return tried(() => plain(of[name]?.call ? of[name](...given) : of[name]));
})));
"""


def ask(files, calls, tmp_path):
    """What the library answers. calls: [index of the file, method or member, arguments ...]"""
    (tmp_path / "ask.mjs").write_text(SCRIPT)
    done = subprocess.run(
        ["node", tmp_path / "ask.mjs", ROOT / "web/dist/python/text-library.js"],
        input=json.dumps({"files": [json.dumps(file) for file in files], "calls": calls}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def library(value):
    made = tokenizers.Tokenizer.from_str(json.dumps(value))
    made.no_truncation()
    made.no_padding()
    return made


def in_units(text, offsets):
    """Offsets in UTF-16 units instead of characters."""
    at = [len(text[:i].encode("utf-16-le")) // 2 for i in range(len(text) + 1)]
    return [(at[start], at[end]) for start, end in offsets]


def compare(value, texts, seed, tmp_path, decode=True, offsets=()):
    """Compares ids and decoded texts of both, also for ids in any order.

    offsets: texts whose offsets and words are compared, too.
    """
    theirs, rng = library(value), random.Random(seed)
    size = theirs.get_vocab_size(with_added_tokens=True)
    calls, expected, count = [[0, "size"]], [size], 0
    for text in texts:
        for special in (True, False):
            ids = theirs.encode(text, add_special_tokens=special).ids
            calls.append([0, "encode", text, special])
            expected.append(ids)
            count += len(ids)
        for some in (ids, [rng.randrange(size + 3) for _ in range(12)]) if decode else ():
            for skip in (True, False):
                calls.append([0, "decode", some, skip])
                expected.append(theirs.decode(some, skip_special_tokens=skip))
    for text in offsets:
        found = theirs.encode(text, add_special_tokens=False)
        words = [-1 if w is None else w for w in found.word_ids]
        spans = in_units(text, found.offsets)
        calls.append([0, "tokens", text])
        expected.append([x for i, s, w in zip(found.ids, spans, words) for x in (i, *s, w)])
    for call, got, want in zip(calls, ask([value], calls, tmp_path), expected):
        assert got == want, call
    assert count > 1000


# What the library does otherwise, by name of the tokenizer.
OTHERWISE = {
    "t5": "sentencepiece's rules are those of nmt_nfkc, whatever the file's are",
    "pieces": "FixedLength counts UTF-16 units",
    "added tokens": "tokens of single words are found within words, too",
}
# Decoded texts lose white space at their ends.
STRIPPED = ("clip", "speech")
# Offsets differ where one character becomes several tokens of bytes, or is no character of a word.
SHIFTED = ("unigram bytes", "roberta")


def known(text):
    """Whether both take the characters of a text as the same kinds: the tables of Python's library
    are older, and for JavaScript U+FEFF is white space.
    """
    return "\ufeff" not in text and not any(
        c > "\uffff" and unicodedata.category(c)[0] not in "S" for c in text
    )


@pytest.mark.parametrize("family", ["byte_level", "sentencepiece", "words"])
def test_generated_tokenizers(family, tmp_path):
    for i, (name, value) in enumerate(getattr(tokenizer_files, family)().items()):
        texts = [*tokenizer_files.TEXT[:7], *OFFSET_TEXTS]
        if name not in OTHERWISE:
            texts += filter(known, [*ODD, *fuzzed(i, 250)])
        elif name == "added tokens":
            texts += fuzzed(i, 250)
        else:
            texts = [text for text in texts if text.isascii()] * 3
        print(name)
        offsets = () if name in (*OTHERWISE, *SHIFTED) else OFFSET_TEXTS
        compare(value, texts, i, tmp_path, name not in STRIPPED, offsets)


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.parent.name)
def test_tokenizers_of_models(path, tmp_path):
    value = json.loads(path.read_text())
    texts = [*ODD, *tokenizer_files.TEXT[:7], *fuzzed(7, 250)]
    texts += (ROOT / "docs/limits.md").read_text().split("\n\n")
    # After characters that a vocabulary lacks and drops, the offsets of both are shifted.
    drops = "\u0120" not in value["model"]["vocab"]
    compare(value, texts, 7, tmp_path, offsets=() if drops else OFFSET_TEXTS)


PATTERNS = [
    *(r"[a-z&&[^aeiou]]+", r"[^\W\d_]+", r"\p{^L}", r"\P{^L}+", r"[[:punct:]]+", r"\h+", r"\R"),
    *(r"(?i)straße|ǆ", r"(?i:s)t", r"a(?i)b|c", r"(?m).+", r".+", r"(?x) a b # c", r"\u00e9|\x61"),
    *(r"^.", r".$", r"\A.", r".\z", r".\Z", r"\b", r"(?<=a)b", r"(?<!a)b", r"(?=a)", r""),
    *(r"a{1,2}?", r"a{2}+", r"a{,2}b", r"a++b", r"(?>a*)b", r"([ab.])\1+", r"a|", r"x*"),
    *(r"[\p{Han}\p{Hiragana}]+", r"[]a]", r"[a-]", r"[^-a]", r"[a\-z]", r"a{x}", r"\0a"),
]


# Parts of patterns that are refused: repetitions that may be ambiguous, and what JavaScript lacks.
REFUSED = (r"\G", ")*)+", r"(?:\r?\n)+", r"([\w-]+\.)+", "(http(s)?")
REFUSED += (r"\p{^", r"\P{^", r"\R", "(?i)", "(?m)", "(?x)", "(?#", "a{3}{2}")


def isolated(pattern, behavior="Isolated", invert=False):
    """A tokenizer whose words are those of a Split."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}
    model = {"type": "WordLevel", "vocab": {"<?>": 0}, "unk_token": "<?>"}
    return {"version": "1.0", "added_tokens": [], "pre_tokenizer": split, "model": model}


def words_of(theirs, text):
    return in_units(text, [span for _, span in theirs.pre_tokenize_str(text)])


@pytest.mark.parametrize(
    "pattern",
    PATTERNS + [p for p, width in vectors("tokenizers")["patterns"] if isinstance(width, int)],
)
def test_regular_expressions(pattern, tmp_path):
    texts = [*ODD, *tokenizer_files.TEXT[:7], *fuzzed(3, 300), "aab aaab abab..b a-x 1-2 aaaa\n"]
    texts = [text for text in texts if text]
    calls = [[0, "tokens", text] for text in texts]
    answers = ask([isolated(pattern)], calls, tmp_path)
    try:
        theirs = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    except Exception:
        return
    if isinstance(answers[0], dict):
        assert any(x in pattern for x in REFUSED), (pattern, answers[0])
        assert answers[0]["name"] == "NotSupported"
        return
    for text, got in zip(texts, answers):
        assert list(zip(got[1::4], got[2::4])) == words_of(theirs, text), text


@pytest.mark.parametrize("behavior", ["removed", "isolated", "merged_with_previous",
                                      "merged_with_next", "contiguous"])  # fmt: skip
def test_what_happens_to_matches(behavior, tmp_path):
    pattern = r"[\s.]"
    theirs = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), behavior)
    texts = [*ODD, *fuzzed(4, 200), "..a..b  c", "a", "."]
    texts = [text for text in texts if text and "\u2581" not in text]  # it stands for a space
    value = isolated(pattern, behavior.title().replace("_", ""))
    for text, got in zip(texts, ask([value], [[0, "tokens", text] for text in texts], tmp_path)):
        assert list(zip(got[1::4], got[2::4])) == words_of(theirs, text), text


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+c", "(a*)*b", "a?" * 30 + "a" * 30])
def test_patterns_that_may_not_end_are_refused(pattern, tmp_path):
    [answer] = ask([isolated(pattern)], [[0, "size"]], tmp_path)
    assert answer["name"] == "NotSupported" and "exponential" in answer["message"]


def test_what_is_not_supported_is_refused(tmp_path):
    value = isolated("a") | {"pre_tokenizer": {"type": "UnicodeScripts"}}
    [answer] = ask([value], [[0, "size"]], tmp_path)
    assert answer["name"] == "NotSupported" and "UnicodeScripts" in answer["message"]


def test_long_texts_take_linear_time(tmp_path):
    """One word of many characters: a model that looked at each pair of places would take hours."""
    letters = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3, "aa": 4},
               "merges": ["a b", "ab ab", "a a"]}  # fmt: skip
    nested = [["<?>", 0.0], *(["ab" * n, -0.9 * n - 1] for n in range(1, 200))]
    pieces = {"a": 0, "##a": 1, "##b": 2, "##ab": 3, "[UNK]": 4}
    models = {
        200_000: letters,
        100_000: {"type": "Unigram", "unk_id": 0, "vocab": nested},
        4_000: {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                 "max_input_chars_per_word": 10_000, "vocab": pieces},
    }  # fmt: skip
    rng = random.Random(1)
    for size, model in models.items():
        value = {"added_tokens": [], "model": model}
        texts = ("ab" * (size // 2), "a" * size, "a" + "".join(rng.choices("ab", k=size - 1)))
        answers = ask([value], [[0, "encode", text, True] for text in texts], tmp_path)
        for text, got in zip(texts, answers):
            assert got == library(value).encode(text).ids

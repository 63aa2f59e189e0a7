"""The tokenizer in Python gives the ids and texts of the `tokenizers` library."""

import json
import os
import random
import sys
import unicodedata
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers")

from conformance.vectors import vectors
from edgewise.errors import TokenizerError
from edgewise.text import Tokenizer
from edgewise.text.tokenization import NotSupported, PythonTokenizer
from edgewise.text.tokenization.patterns import Pattern
from pipelines import tiny

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


def compare(value, texts, seed):
    """Compares ids and decoded texts of both, also for ids in any order."""
    theirs = tokenizers.Tokenizer.from_str(json.dumps(value))
    theirs.no_truncation()
    theirs.no_padding()
    ours, rng = PythonTokenizer(value), random.Random(seed)
    size = theirs.get_vocab_size(with_added_tokens=True)
    assert ours.get_vocab_size() == size
    count = 0
    for text in texts:
        for special in (True, False):
            ids = theirs.encode(text, add_special_tokens=special).ids
            assert ours.encode(text, add_special_tokens=special).ids == ids, text
            count += len(ids)
        for some in (ids, [rng.randrange(size + 3) for _ in range(12)]):
            for skip in (True, False):
                expected = theirs.decode(some, skip_special_tokens=skip)
                assert ours.decode(some, skip_special_tokens=skip) == expected
    assert count > 1000


@pytest.mark.parametrize("family", ["byte_level", "sentencepiece", "words"])
def test_generated_tokenizers(family):
    for i, (name, value) in enumerate(getattr(tokenizer_files, family)().items()):
        texts = [*ODD, *tokenizer_files.TEXT[:7], *fuzzed(i, 250)]
        print(name)
        compare(value, texts, i)


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.parent.name)
def test_tokenizers_of_models(path):
    texts = [*ODD, *tokenizer_files.TEXT[:7], *fuzzed(7, 250)]
    texts += (ROOT / "docs/limits.md").read_text().split("\n\n")
    compare(json.loads(path.read_text()), texts, 7)


PATTERNS = [
    *(r"[a-z&&[^aeiou]]+", r"[^\W\d_]+", r"\p{^L}", r"\P{^L}+", r"[[:punct:]]+", r"\h+", r"\R"),
    *(r"(?i)straße|ǆ", r"(?i:s)t", r"a(?i)b|c", r"(?m).+", r".+", r"(?x) a b # c", r"\u00e9|\x61"),
    *(r"^.", r".$", r"\A.", r".\z", r".\Z", r"\b", r"\B", r"(?<=a)b", r"(?<!a)b", r"(?=a)", r""),
    *(r"a{2}?", r"a{1,2}?", r"a{2}+", r"a{,2}b", r"a++b", r"(?>a*)b", r"([ab.])\1+", r"a|", r"x*"),
    *(r"[\p{Han}\p{Hiragana}]+", r"[]a]", r"[a-]", r"[^-a]", r"[a\-z]", r"a{x}", r"\0a"),
]


# Parts of patterns that are refused: repetitions that may be ambiguous, and what `re` lacks.
REFUSED = (r"\G", ")*)+", r"(?:\r?\n)+", r"([\w-]+\.)+", "(http(s)?", "[:al")


@pytest.mark.parametrize(
    "pattern",
    PATTERNS + [p for p, width in vectors("tokenizers")["patterns"] if isinstance(width, int)],
)
def test_regular_expressions(pattern):
    try:
        theirs = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    except Exception:
        with pytest.raises(ValueError):
            Pattern(pattern)
        return
    try:
        find = Pattern(pattern).find
    except NotSupported:
        assert any(x in pattern for x in REFUSED), pattern
        return
    from edgewise.text.tokenization.pre_tokenizers import split

    texts = [*ODD, *tokenizer_files.TEXT[:7], *fuzzed(3, 300), "aab aaab abab..b a-x 1-2 aaaa\n"]
    for text in texts:
        expected = [word for word, _ in theirs.pre_tokenize_str(text)]
        assert [word for word, _ in split([(text, True)], find, "Isolated")] == expected, text


@pytest.mark.parametrize("behavior", ["removed", "isolated", "merged_with_previous",
                                      "merged_with_next", "contiguous"])  # fmt: skip
@pytest.mark.parametrize("invert", [False, True])
def test_what_happens_to_matches(behavior, invert):
    from edgewise.text.tokenization.pre_tokenizers import split

    pattern = r"[\s.]"
    theirs = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), behavior, invert)
    name = behavior.title().replace("_", "")
    for text in [*ODD, *fuzzed(4, 200), "..a..b  c", "a", "."]:
        expected = [word for word, _ in theirs.pre_tokenize_str(text)]
        got = split([(text, True)], Pattern(pattern).find, name, invert)
        assert [word for word, _ in got] == expected


def test_without_the_library(monkeypatch):
    """edgewise.text.Tokenizer uses the tokenizer in Python where the library is not installed."""
    folder = ROOT / "web/demo/model"
    theirs = Tokenizer.from_pretrained(folder)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    ours = Tokenizer.from_pretrained(folder)
    assert isinstance(ours.backend, PythonTokenizer) and ours.backend is not theirs.backend
    for text in tokenizer_files.TEXT:
        ids = theirs.encode(text)
        assert ours.encode(text) == ids and len(ids) > 10
        assert ours.decode(ids) == theirs.decode(ids)
    assert (ours.bos_token_id, ours.eos_token_id, ours.vocab_size) == (
        theirs.bos_token_id,
        theirs.eos_token_id,
        theirs.vocab_size,
    )
    text = (folder / "tokenizer.json").read_text()
    value = json.loads(text)
    value["pre_tokenizer"] = {"type": "UnicodeScripts"}
    with pytest.raises(TokenizerError, match="needs the `tokenizers` library") as error:
        Tokenizer(json.dumps(value))
    assert "edgewise[text]" in error.value.remedy


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+c", "(a*)*b", "a?" * 30 + "a" * 30])
def test_patterns_that_may_not_end_are_refused(pattern):
    with pytest.raises(NotSupported, match="exponential"):
        Pattern(pattern)


def test_long_texts_take_linear_time():
    """One word of 200,000 characters: a merge that looked at every pair would take hours."""
    letters = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3, "aa": 4},
               "merges": ["a b", "ab ab", "a a"]}  # fmt: skip
    ours = PythonTokenizer({"model": letters})
    theirs = tokenizers.Tokenizer.from_str(json.dumps({"added_tokens": [], "model": letters}))
    rng = random.Random(1)
    for text in ("ab" * 100_000, "a" * 200_000, "".join(rng.choices("ab", k=200_000))):
        assert ours.encode(text).ids == theirs.encode(text).ids


OFFSET_TEXTS = [
    *tokenizer_files.TEXT[:6],
    "Élise ate a crème brûlée in Montréal.  Two  spaces, 漢字 and ☃!",
    "e\u0301 decomposed, ﬁ ligature, İ, ß, ½ and \u200b",
    " leads and trails ",
    "unbelievably [MASK] tokens<mask>here </s>",
]


def offsets_of(backend, text):
    if isinstance(backend, PythonTokenizer):
        return [tuple(t) for t in backend.tokens(text)]
    found = backend.encode(text, add_special_tokens=False)
    return [(i, *o, w) for i, o, w in zip(found.ids, found.offsets, found.word_ids)]


def trained(kind):
    """tokenizer.json of the tiny models of tests/pipelines."""
    return json.loads(tiny.tokenizer_of(kind).backend_tokenizer.to_str())


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_pipelines_run_without_the_library(kind, monkeypatch):
    """Encodings of pairs, overlapping parts and words are the same with both backends."""
    pytest.importorskip("transformers")
    text = json.dumps(trained(kind))
    config = {"model_max_length": 40}
    theirs = Tokenizer(text, config)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    ours = Tokenizer(text, config)
    assert isinstance(ours.backend, PythonTokenizer)
    for a, b in zip(tiny.TEXTS, tiny.TEXTS[1:]):
        long = f"{a} {b} {a}"
        assert ours.encodings(a, b, truncation="only_second", stride=5) == theirs.encodings(
            a, b, truncation="only_second", stride=5
        )
        assert ours.encodings(long, truncation=True, stride=7) == theirs.encodings(
            long, truncation=True, stride=7
        )
        assert ours.encodings(a.split()) == theirs.encodings(a.split())


@pytest.mark.parametrize("path", SHARED, ids=lambda p: p.parent.name)
def test_offsets_and_words_are_those_of_the_library(path):
    value = json.loads(path.read_text())
    try:
        ours = PythonTokenizer(value)
    except NotSupported:
        pytest.skip("it needs the library")
    theirs = tokenizers.Tokenizer.from_str(path.read_text())
    theirs.no_truncation()
    theirs.no_padding()
    if ours.marks.byte_level and "Ġ" not in ours.model.vocabulary:
        pytest.skip("it drops characters, after which the library's offsets are shifted")
    for text in OFFSET_TEXTS:
        assert offsets_of(ours, text) == offsets_of(theirs, text), text

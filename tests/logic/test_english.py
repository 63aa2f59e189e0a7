"""Phonemes of English texts on both forms. Words of numbers are num2words', sounds of letters those
of CMUdict (make_english.py).
"""

import json
import random
from difflib import SequenceMatcher
from pathlib import Path

import edgewise
import pytest
from edgewise.errors import InputError

from .forms import both, module

CASES = json.loads(Path(__file__).with_name("english.json").read_text())
LEXICON = "dollar\tdˈɑːlɚ\ncat\tkˈæt\nhouse\thˈaʊs\nrun\tɹˈʌn\nbake\tbˈeɪk\napple\tˈæpəl\n"
IPA = {
    "AA": "ɑː",
    "AE": "æ",
    "AH0": "ə",
    "AH": "ʌ",
    "AO": "ɔː",
    "AW": "aʊ",
    "AY": "aɪ",
    "CH": "tʃ",
    "DH": "ð",
    "EH": "ɛ",
    "ER": "ɚ",
    "EY": "eɪ",
    "G": "ɡ",
    "HH": "h",
    "IH": "ɪ",
    "IY": "iː",
    "JH": "dʒ",
    "NG": "ŋ",
    "OW": "oʊ",
    "OY": "ɔɪ",
    "R": "ɹ",
    "SH": "ʃ",
    "TH": "θ",
    "UH": "ʊ",
    "UW": "uː",
    "Y": "j",
    "ZH": "ʒ",
}


def english(form, lexicon="", alphabet="espeak"):
    return module(form, "speech.english").English(lexicon, alphabet)


@both
@pytest.mark.parametrize("name", ["cardinal", "ordinal", "year"])
def test_words_of_numbers(form, name):
    words = getattr(module(form, "speech.english_numbers"), name)
    for digits, expected in CASES[name].items():
        assert words(digits) == expected


@both
def test_letters(form):
    """Rules of 1976: they get most sounds of English words right, not all."""
    spelled = module(form, "speech.english_letters").spelled
    match = total = 0
    for word, phones in CASES["words"].items():
        parts = [IPA.get(p) or IPA.get(p.rstrip("012"), p.lower()) for p in phones.split()]
        meant, made = "".join(parts), spelled(word)
        blocks = SequenceMatcher(None, meant, made, autojunk=False).get_matching_blocks()
        match += sum(block.size for block in blocks)
        total += max(len(meant), len(made))
    assert match / total > 0.75
    assert spelled("thing") == "θɪŋ" and spelled("station") == "steɪʃən"


@both
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat, the apple.", "ðə kˈæt, ðɪ ˈæpəl."),
        ("A cat's house; houses!", "ɐ kˈæts hˈaʊs; hˈaʊsᵻz!"),
        ("running, baked baker", "ɹˈʌnɪŋ, bˈeɪkt bˈeɪkɚ"),
        ("cathouse", "kˈæthˌaʊs"),  # a compound
        ("A TV in the U.S. house", "ɐ tˌiː vˈiː ɪn ðə jˌuː ˈɛs hˈaʊs"),
        ("CAT", "kˈæt"),
        ("$1.50", "wˈʌn dˈɑːlɚ fˈɪftiː"),
        ("$1.5, $1.05", "wˈʌn dˈɑːlɚ fˈɪftiː, wˈʌn dˈɑːlɚ ˈoʊ fˈaɪv"),
        ("It is 10:05—no", "ɪt ɪz tˈɛn ˈoʊ fˈaɪv— nˈoʊ"),
        ("(cat)\ncat", "kˈæt, kˈæt"),
        ("CAT\u2019s caf\u00e9", "kˈæts kˈeɪf"),
        ("\U0001f600 \u732b", ""),  # nothing that it can read
        ("", ""),
    ],
)
def test_texts(form, text, expected):
    assert english(form, LEXICON).phonemes(text) == expected


@both
def test_alphabets_and_what_is_refused(form):
    assert english(form, LEXICON, "kokoro").phonemes("A baker runs") == "ɐ bˈAkəɹ ɹˈʌnz"
    with pytest.raises(InputError, match="there is no alphabet"):
        english(form, "", "arpabet")
    with pytest.raises(InputError, match="Write a tab"):
        english(form, "cat k")


@both
def test_letters_with_accents(form):
    """They are read without; letters of other alphabets are no letters."""
    read = english(form, LEXICON + "cafe\tkæfˈeɪ\n").phonemes
    assert read("café") == read("cafe\u0301") == read("cafe 猫") == "kæfˈeɪ"


@both
def test_numbers_in_texts(form):
    """Words of numbers are num2words'."""
    forms = english(form)
    for text, said in (
        ("1:23.45", "one twenty three point four five"),
        ("1:2:03", "one two oh three"),
        ("10:00", "ten"),
        ("3.5th", "three point five th"),
        ("21st", "twenty first"),
        ("1,000th", "one thousandth"),
        ("$3.5 million", "three point five million dollars"),
        ("$1 Billion now", "one billion dollars now"),
        ("$2 cats", "two dollars cats"),
        ("$1.234", "one point two three four dollars"),
        ("1.2.3", "one point two point three"),
        ("12.5", "twelve point five"),
    ):
        assert forms.phonemes(text) == forms.phonemes(said), text


def test_random_texts_are_read_alike():
    """No text raises an error, and both forms make the same of it."""
    draw = random.Random(5)
    here, page = english("python", LEXICON), english("page", LEXICON)
    pieces = [*"0123456789", *":.,$€ -'%", "st", "th", " million", "a", "cat", "U.S.", "é", "\n"]
    for _ in range(3000):
        text = "".join(draw.choices(pieces, k=draw.randint(1, 12)))
        assert here.phonemes(text) == page.phonemes(text), text


def test_it_is_public(tmp_path):
    (tmp_path / "lexicon.txt").write_text(LEXICON, encoding="utf-8")
    assert edgewise.english_phonemizer(tmp_path / "lexicon.txt")("cat") == "kˈæt"
    assert edgewise.english_phonemizer(LEXICON, alphabet="kokoro")("house") == "hˈWs"
    with pytest.raises(InputError):
        edgewise.english_phonemizer(3)

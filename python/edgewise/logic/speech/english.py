"""English texts as phonemes, by a lexicon; words that are not in it by their parts or letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...errors import InputError
from ..native import nfd, written
from .english_letters import CONSONANTS, spelled
from .english_numbers import THOUSANDS, cardinal, digits, ordinal, year

Alphabet = Literal["espeak", "kokoro"]

NAMES = (  # of the letters
    "ˈeɪ bˈiː sˈiː dˈiː ˈiː ˈɛf dʒˈiː ˈeɪtʃ ˈaɪ dʒˈeɪ kˈeɪ ˈɛl ˈɛm ˈɛn ˈoʊ pˈiː kjˈuː ˈɑːɹ ˈɛs tˈiː"
    " jˈuː vˈiː dˈʌbəljˌuː ˈɛks wˈaɪ zˈiː"
).split(" ")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPELLED = ("us", "uk", "eu", "un", "tv", "ai", "pc", "id", "it")  # in capitals
VOWELS = "aeiouæɐɑɔəɚɛɜɪʊʌᵻ"
STOPS = "ptkfθ"
HISSES = "szʃʒ"
ORDERS = ("st", "nd", "rd", "th")
MARKS = ".,!?;:—…"
# What other signs become.
SIGNS: dict[str, str] = {
    "–": "—",
    "(": ",",
    ")": ",",
    "[": ",",
    "]": ",",
    "\n": ",",
    "%": "percent",
    "&": "and",
    "+": "plus",
    "=": "equals",
    "@": "at",
    "°": "degrees",
}
MONEY: dict[str, tuple[str, str]] = {
    "$": ("dollar", "dollars"),
    "€": ("euro", "euros"),
    "£": ("pound", "pounds"),
}
SHORT: dict[str, str] = {  # with a full stop
    "mr": "mister",
    "mrs": "missus",
    "ms": "miz",
    "dr": "doctor",
    "prof": "professor",
    "st": "saint",
    "vs": "versus",
    "etc": "etcetera",
    "no": "number",
}
# Words whose sound depends on what follows: before a consonant, before a vowel.
WEAK: dict[str, tuple[str, str]] = {"a": ("ɐ", "ɐ"), "the": ("ðə", "ðɪ"), "to": ("tə", "tʊ")}
# Common words that the rules of letters get wrong.
COMMON = (
    "of ʌv|and ænd|was wʌz|were wɜː|are ɑːɹ|is ɪz|his hɪz|as æz|has hæz|had hæd|have hæv|been bɪn"
    "|be biː|he hiː|she ʃiː|we wiː|me miː|you juː|your jʊɹ|their ðɛɹ|there ðɛɹ|where wˌɛɹ|what wʌt"
    "|who hˌuː|one wˈʌn|two tˈuː|from fɹʌm|for fɔːɹ|or ɔːɹ|an ɐn|in ɪn|on ˌɔn|at æt|it ɪt|its ɪts"
    "|i aɪ|my maɪ|by baɪ|with wɪð|this ðɪs|that ðæt|said sˈɛd|says sˈɛz|some sʌm|come kˈʌm"
    "|done dˈʌn|does dˈʌz|do duː|give ɡˈɪv|live lˈɪv|love lˈʌv|above əbˈʌv|once wˈʌns|only ˈoʊnli"
    "|other ˈʌðɚ|mother mˈʌðɚ|people pˈiːpəl|would wʊd|could kʊd|should ʃʊd|any ˈɛni|many mˈɛni"
    "|very vˈɛɹi|again əɡˈɛn|water wˈɔːɾɚ|world wˈɜːld|word wˈɜːd|work wˈɜːk|first fˈɜːst"
    "|learn lˈɜːn|eye ˈaɪ|eyes ˈaɪz|want wˈɔnt|put pˈʊt|hello həlˈoʊ|nothing nˈʌθɪŋ|gone ɡˈɔn"
    "|great ɡɹˈeɪt|here hˈɪɹ|never nˈɛvɚ|ever ˈɛvɚ|over ˈoʊvɚ|into ˈɪntʊ|about ɐbˈaʊt|know nˈoʊ"
    "|now nˈaʊ|how hˌaʊ|down dˈaʊn|friend fɹˈɛnd|heart hˈɑːɹt|science sˈaɪəns|idea aɪdˈiːə"
    "|voice vˈɔɪs|computer kəmpjˈuːɾɚ|seven sˈɛvən|eleven ɪlˈɛvən|hundred hˈʌndɹəd|oh ˈoʊ"
)
# Kokoro's letters for sounds of several characters.
KOKORO = (
    ("eɪ", "A"),
    ("aɪ", "I"),
    ("oʊ", "O"),
    ("aʊ", "W"),
    ("ɔɪ", "Y"),
    ("tʃ", "ʧ"),
    ("dʒ", "ʤ"),
    ("ɜː", "ɜɹ"),
    ("ɚ", "əɹ"),
    ("ɾ", "T"),
    ("ː", ""),
)
# {ending: what the stem has without it}; "-": one letter of two.
ENDINGS = (
    ("'s", ("",)),
    ("s'", ("s", "")),
    ("ies", ("y",)),
    ("es", ("e", "")),
    ("s", ("",)),
    ("ied", ("y",)),
    ("ed", ("e", "", "-")),
    ("ing", ("", "e", "-")),
    ("ly", ("",)),
    ("ness", ("",)),
    ("less", ("",)),
    ("ful", ("",)),
    ("er", ("e", "", "-")),
)
SAID: dict[str, str] = {
    "ing": "ɪŋ",
    "ly": "li",
    "ness": "nəs",
    "less": "ləs",
    "ful": "fəl",
    "er": "ɚ",
}


@dataclass(frozen=True)
class Word:
    """A word that is said, or a mark.

    Attributes:
        text: in small letters; a mark.
        phonemes: "" of a mark.
        ends: whether a full stop after it belongs to it.
    """

    text: str
    phonemes: str
    ends: bool = False


class English:
    """Makes phonemes of English texts.

    Words are looked up in a lexicon; others are made of their parts (endings, compounds), or of
    their letters by the rules of the Naval Research Laboratory, or spelled. Numbers, amounts of
    money and times become words.

    Args:
        lexicon: the text of a file with lines `word TAB phonemes`, words in small letters, phonemes
            in IPA as espeak-ng writes them, a mark of stress before its vowel. "": about a hundred
            common words.
        alphabet: "espeak" for Piper's voices and VITS, "kokoro" for Kokoro.

    Raises:
        InputError: the lexicon is no text, a line has no tab, or the alphabet is not known.
    """

    def __init__(self, lexicon: str, alphabet: Alphabet) -> None:
        if alphabet not in ("espeak", "kokoro"):
            raise InputError(
                f"there is no alphabet {written(alphabet)}",
                "alphabet",
                "Give 'espeak' or 'kokoro'.",
            )
        self.alphabet = alphabet
        self.words = _read(COMMON.replace(" ", "\t").replace("|", "\n"))
        self.words.update(_read(_text(lexicon, "lexicon")))

    def phonemes(self, text: str) -> str:
        """The phonemes of a text, with its punctuation. Raises InputError: it is no text."""
        made = _joined(self._said(_text(text, "text")))
        if self.alphabet == "kokoro":
            for sounds, letter in KOKORO:
                made = made.replace(sounds, letter)
        return made

    def _said(self, text: str) -> list[Word]:
        """The words and marks of a text."""
        pieces = ["", *_pieces(text), "", "", ""]
        loud = text.upper() == text  # capitals say nothing
        made: list[Word] = []
        at = 1
        while pieces[at]:
            piece, after = pieces[at], pieces[at + 1]
            sign = SIGNS[piece] if piece in SIGNS else piece
            at += 1
            if _is_digit(piece[0]):
                large = _large(pieces[at - 2], pieces[at : at + 2])
                for word in _number(piece, pieces[at - 2], after, large):
                    made.append(self._word(word))
                at += 2 if large else 1 if _is_place(piece, after) else 0
            elif _is_letter(sign[0]):
                made.append(self._read_word(sign, after, pieces[at + 1 :], loud))
                at += 1 if after == "." and made[-1].ends else 0
            elif sign in MARKS and made and made[-1].phonemes:
                made.append(Word(sign, ""))
        return made

    def _read_word(self, piece: str, after: str, rest: Sequence[str], loud: bool) -> Word:
        """A word of a text: before `after`, `rest`."""
        small = piece.lower()
        if small in SHORT and after == ".":
            # "no." ends a sentence, unless a number follows
            if small != "no" or (rest[0] == " " and rest[1] and _is_digit(rest[1][0])):
                return replace(self._word(SHORT[small]), ends=True)
        if "." in piece:
            return replace(_spelled_out(small), ends=True)
        if len(piece) > 1 and piece == piece.upper() and not loud:
            if small in SPELLED or (len(small) <= 5 and small not in self.words):
                return _spelled_out(small)
        return self._word(small)

    def _word(self, word: str) -> Word:
        found = self.known(word)
        return Word(word, found if found else self._by_letters(word))

    def known(self, word: str) -> str:
        """The phonemes by the lexicon, as it is or with an ending; "": it is not there."""
        if word in self.words:
            return self.words[word]
        for ending, stems in ENDINGS:
            if not word.endswith(ending) or len(word) < len(ending) + 2:
                continue
            stem = word[: len(word) - len(ending)]
            for more in stems:
                if more == "-" and not _is_doubled(stem):
                    continue
                found = self.words.get(stem[:-1] if more == "-" else stem + more)
                if found:
                    return _ended(found, ending)
        return ""

    def _by_letters(self, word: str) -> str:
        """By two words that it is made of, or by its letters."""
        for end in range(len(word) - 3, 2, -1):
            first, last = self.words.get(word[:end]), self.words.get(word[end:])
            if first and last and "ˈ" in first:
                return first + last.replace("ˈ", "ˌ")
        if not [c for c in list(word) if c in "aeiouy"]:
            return _spelled_out(word).phonemes
        return _stressed(spelled(word))


def _text(given: object, where: str) -> str:
    if isinstance(given, str):
        return given
    raise InputError("it is no text", where, "Give a string.")


def _read(lexicon: str) -> dict[str, str]:
    words: dict[str, str] = {}
    for line in lexicon.split("\n"):
        parts = line.split("\t")
        if len(parts) > 1:
            words[parts[0]] = parts[1].strip()
        elif line.strip():
            raise InputError(
                f"a line is {written(line)}", "lexicon", "Write a tab between word and phonemes."
            )
    return words


# Words


def _pieces(text: str) -> list[str]:
    """Words, numbers and signs."""
    found: list[str] = []
    before = ""  # the kind of the character before
    characters = list(nfd(text.replace("\u2019", "'").replace("--", "—").replace("...", "…")))
    for i in range(len(characters)):
        c = characters[i]
        after = characters[i + 1] if i + 1 < len(characters) else " "
        kind = "sign"
        if _is_letter(c) or (c == "'" and before == "word" and _is_letter(after)):
            kind = "word"
        elif _is_digit(c) or (c in ",.:" and before == "number" and _is_digit(after)):
            kind = "number"
        elif "\u0300" <= c <= "\u036f":
            continue  # the accent of a letter
        if c == "." and before == "word" and _is_letter(after) and _is_single(found[-1]):
            kind = "word"  # between letters: e.g.
        if kind == "sign" or kind != before:
            found.append(c)
        else:
            found[-1] += c
        before = kind
    return found


def _is_single(piece: str) -> bool:
    """Whether it is a letter, or ends in one after a full stop."""
    return len(piece) == 1 or piece[-2] == "."


def _is_letter(c: str) -> bool:
    return "a" <= c <= "z" or "A" <= c <= "Z"


def _is_digit(c: str) -> bool:
    return "0" <= c <= "9"


def _is_place(piece: str, after: str) -> bool:
    """Whether a number is one of an order: 3 before "rd", but not 3.5."""
    return after in ORDERS and "." not in piece and ":" not in piece


def _large(before: str, rest: Sequence[str]) -> str:
    """Of an amount of money, the word of thousands after it; "": there is none."""
    if before not in MONEY or len(rest) < 2 or rest[0] != " ":
        return ""
    word = rest[1].lower()
    return word if word in THOUSANDS else ""


def _number(piece: str, before: str, after: str, large: str) -> list[str]:
    """The words of a number. large: of `_large`."""
    plain = piece.replace(",", "")
    if _is_place(piece, after):
        return ordinal(plain)
    if ":" in piece:
        return _time(plain.split(":"))
    if before in MONEY:
        return _money(plain, MONEY[before], large)
    if len(piece) == 4 and plain == piece and "." not in piece and "1100" <= piece < "2100":
        return year(piece)
    return _decimal(plain)


def _decimal(text: str) -> list[str]:
    """The words of digits, with full stops."""
    parts = text.split(".")
    words = cardinal(parts[0])
    for fraction in parts[1:]:
        words = [*words, "point", *digits(fraction)]
    return words


def _time(fields: Sequence[str]) -> list[str]:
    """The words of hours, minutes and seconds: "oh" before one digit, nothing for a full hour."""
    words = _decimal(fields[0])
    for field in fields[1:]:
        if field == "00" and len(fields) == 2:
            continue
        late = ["oh"] if field.startswith("0") and len(field.split(".")[0]) == 2 else []
        words = [*words, *late, *_decimal(field[1:] if late else field)]
    return words


def _money(text: str, names: tuple[str, str], large: str) -> list[str]:
    """The words of an amount: dollars and cents, or of a decimal number of thousands."""
    one, many = names
    parts = text.split(".")
    whole = parts[0]
    if large:
        return [*_decimal(text), large, many]
    cents = parts[1] if len(parts) > 1 else "00"
    if len(parts) > 2 or len(cents) > 2:
        return [*_decimal(text), many]
    cents = f"{cents}0" if len(cents) == 1 else cents
    words = [*cardinal(whole), one if whole == "1" else many]
    if cents == "00":
        return words
    return [*words, *(["oh", *cardinal(cents[1:])] if cents.startswith("0") else cardinal(cents))]


def _joined(said: Sequence[Word]) -> str:
    """The phonemes of words, those of weak ones by what follows."""
    made = ""
    for i in range(len(said)):
        word = said[i]
        phonemes = word.phonemes
        after = said[i + 1].phonemes if i + 1 < len(said) else ""
        if word.text in WEAK and after:
            consonant, vowel = WEAK[word.text]
            phonemes = vowel if _first(after) in VOWELS else consonant
        made += phonemes if not phonemes or not made else f" {phonemes}"
        made += "" if phonemes else word.text
    return made


def _first(phonemes: str) -> str:
    """The first sound."""
    found = [c for c in list(phonemes) if c not in "ˈˌ"]
    return found[0] if found else ""


# Phonemes of a word


def _is_doubled(stem: str) -> bool:
    return len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] in CONSONANTS


def _ended(stem: str, ending: str) -> str:
    """The phonemes of a word with an ending."""
    last = stem[-1]
    if ending in SAID:
        return stem + SAID[ending]
    if ending.endswith("d"):
        if last in "td":
            return f"{stem}ᵻd"
        return stem + ("t" if last in "pkfθʃs" else "d")
    if ending == "s'" and last in "sz":
        return stem
    if last in HISSES:
        return f"{stem}ᵻz"
    return stem + ("s" if last in STOPS else "z")


def _stressed(phonemes: str) -> str:
    """With a stress on the first vowel that may have one."""
    characters = list(phonemes)
    for i in range(len(characters)):
        if characters[i] in VOWELS and characters[i] not in "əɚ":
            return "".join([*characters[:i], "ˈ", *characters[i:]])
    return phonemes


def _spelled_out(word: str) -> Word:
    """Letter by letter, the last one with the stress."""
    names = [NAMES[LETTERS.index(c)] for c in list(word) if c in LETTERS]
    weak = [name.replace("ˈ", "ˌ") for name in names[:-1]]
    return Word(word, " ".join([*weak, *names[-1:]]))

"""Speech by language models: which tokens are codes of sound, the prompts that ask for them, and
the parts of frames that are decoded while they arrive. Orpheus, OuteTTS, and rules of a caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import listed, option
from ..options import is_id

TASK = "text-to-speech"
RULE = "audio_tokens"
LEFT = 4  # frames of a part: those before it,
NEW = 4  # its own,
RIGHT = 2  # and those after it
MAX_COLUMNS = 64


@dataclass(frozen=True)
class Column:
    """The tokens of a place in a frame: PREFIX number SUFFIX.

    Attributes:
        prefix, suffix: of a token's text.
        first: the number of the code 0.
        stream: of codes.
    """

    prefix: str
    suffix: str
    first: int
    stream: int


@dataclass(frozen=True)
class TokenRule:
    """How a language model speaks.

    Attributes:
        name: "orpheus", "outetts" or "".
        columns: of a frame, in the order of its tokens.
        size: codes of a codebook.
        streams: codebooks.
        end: tokens that end the speech.
        fields: of GenerationConfig, by default.
    """

    name: str
    columns: list[Column]
    size: int
    streams: int
    end: list[str]
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class PromptPart:
    """A part of a prompt; whether the tokenizer adds what it adds to texts."""

    text: str
    special: bool


ORPHEUS = TokenRule(
    "orpheus",
    [Column("<custom_token_", ">", 10 + 4096 * i, s) for i, s in enumerate([0, 1, 2, 2, 1, 2, 2])],
    4096,
    3,
    ["<custom_token_2>"],
    {
        "max_new_tokens": 1200,
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.8,
        "repetition_penalty": 1.3,
    },
)
OUTETTS = TokenRule(
    "outetts",
    [Column("<|c1_", "|>", 0, 0), Column("<|c2_", "|>", 0, 1)],
    1025,
    2,
    ["<|im_end|>", "<|audio_end|>"],
    {
        "max_new_tokens": 4096,
        "do_sample": True,
        "temperature": 0.4,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
    },
)
KNOWN = [ORPHEUS, OUTETTS]


def token_of(rule: TokenRule, column: int, code: int) -> str:
    """The text of the token of a code."""
    of = rule.columns[column]
    return f"{of.prefix}{of.first + code}{of.suffix}"


def rule_of(given: object, known: Sequence[bool]) -> TokenRule:
    """The rule of a model.

    Args:
        given: option `audio_tokens`: None; "orpheus" or "outetts"; or {"tokens": "<a_{}>" or one of
            each column, "streams": [stream of each column], "size": codes of a codebook, "first":
            number of the code 0, "step": of it from column to column, "end": [tokens]}.
        known: for each of KNOWN whether the vocabulary has its tokens.

    Raises:
        InputError: it is none, or the vocabulary has no tokens that are known.
    """
    if given is None:
        for i, rule in enumerate(KNOWN):
            if known[i]:
                return rule
        raise InputError(
            "the vocabulary has no tokens of sound that are known",
            option(RULE),
            "Give their rule: {tokens, streams, size, first}.",
        )
    if isinstance(given, str):
        for rule in KNOWN:
            if rule.name == given:
                return rule
        raise InputError(
            f"there is no rule {given!r}",
            option(RULE),
            f"Give one of {', '.join([r.name for r in KNOWN])}, or the rule itself.",
        )
    if not isinstance(given, dict):
        raise InputError("it is no rule", option(RULE), "Give {tokens, streams, size, first}.")
    return _own_rule(given)


def _own_rule(given: Mapping[str, Any]) -> TokenRule:
    streams_given: object = given.get("streams")
    streams: list[Any] | None = listed(streams_given)
    tokens: object = given.get("tokens")
    if streams is None or not streams or len(streams) > MAX_COLUMNS:
        raise _refused("streams", "Give the stream of each token of a frame, as [0, 1].")
    if not all(is_id(s) for s in streams):
        raise _refused("streams", "Give the stream of each token of a frame, as [0, 1].")
    count = 1 + max([int(s) for s in streams])
    if any(i not in streams for i in range(count)):
        raise _refused("streams", f"Give all streams from 0 to {count - 1}.")
    texts: list[Any] | None = (
        [tokens for s in streams] if isinstance(tokens, str) else listed(tokens)
    )
    if texts is None or len(texts) != len(streams):
        raise _refused("tokens", 'Give "<token_{}>", or one for each of `streams`.')
    size = _count(given, "size", 0)
    if size < 1:
        raise _refused("size", "Give the number of codes of a codebook.")
    first = _count(given, "first", 0)
    step = _count(given, "step", size if isinstance(tokens, str) else 0)
    columns: list[Column] = []
    for i, text in enumerate(texts):
        halves = text.split("{}") if isinstance(text, str) else []
        if len(halves) != 2 or not halves[0] or not halves[1]:
            raise _refused("tokens", 'Give "<token_{}>", or one for each of `streams`.')
        columns.append(Column(halves[0], halves[1], first + i * step, int(streams[i])))
    end_given: object = given.get("end")
    end: list[Any] | None = [] if end_given is None else listed(end_given)
    if end is None or not all(isinstance(t, str) for t in end):
        raise _refused("end", "Give a list of tokens.")
    return TokenRule("", columns, size, count, [str(t) for t in end], {})


def _count(given: Mapping[str, Any], name: str, otherwise: int) -> int:
    value: object = given.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 30:
        raise _refused(name, "Give an integer from 0 on.")
    return value


def _refused(name: str, remedy: str) -> InputError:
    return InputError(f"its {name!r} is none", option(RULE), remedy)


# ---- prompts


def prompt_parts(rule: TokenRule, text: str, voice: object) -> list[PromptPart]:
    """The parts of a prompt, which are encoded one by one.

    Args:
        rule: of the model.
        text: to be spoken.
        voice: of Orpheus a name; of OuteTTS a speaker {"text", "words": [{"word", "duration",
            "c1", "c2", "features"}]}, as its library makes them of a recording; None: the model
            chooses.

    Raises:
        InputError: the voice is none of this model.
    """
    if rule.name == "orpheus":
        if voice is not None and (not isinstance(voice, str) or not voice):
            raise InputError("it is no name", option("voice"), 'Give one, such as "tara".')
        said = f"{voice}: {text}" if isinstance(voice, str) else text
        end = "<|eot_id|><custom_token_4><custom_token_5><custom_token_1>"
        return [
            PromptPart("<custom_token_3>", False),
            PromptPart(said, True),
            PromptPart(end, False),
        ]
    if rule.name == "outetts":
        return [PromptPart(_outetts(text, voice), False)]
    if voice is not None:
        raise InputError(
            "a model with a rule of its own has no voices",
            option("voice"),
            "Write it into the text, as the model was trained.",
        )
    return [PromptPart(text, True)]


def _outetts(text: str, voice: object) -> str:
    said = " ".join([word for word in text.split(" ") if word])
    if voice is None:
        return f"<|im_start|>\n<|text_start|>{said}<|text_end|>\n<|audio_start|>\n"
    if not isinstance(voice, dict):
        raise InputError("it is no speaker", option("voice"), "Give the contents of its .json.")
    known: object = voice.get("text")
    words_given: object = voice.get("words")
    words: list[Any] | None = listed(words_given)
    if not isinstance(known, str) or words is None or not words:
        raise InputError("it has no text and words", option("voice"), "Give OuteTTS' .json.")
    first = known.strip()
    asian = any("\u3040" <= c <= "\u30ff" or "\u4e00" <= c <= "\u9fff" for c in list(first))
    ends = "\u3002\uff1f\uff01?!" if asian else ".?!"
    ended = bool(first) and first[-1] in ends
    mark = "" if ended else "\u3002" if asian else "."
    gap = "" if asian else " "
    joined = f"{first}{mark}{gap}{said}"
    codes = [_word(w, mark if i == len(words) - 1 else "") for i, w in enumerate(words)]
    prompt = f"<|im_start|>\n<|text_start|>{joined}<|text_end|>\n<|audio_start|>\n"
    lines = "\n".join(codes)
    return f"{prompt}{lines}\n<|word_start|>"


def _word(word: Mapping[str, Any], mark: str) -> str:
    """A word of a speaker, with its length, its features and its codes."""
    text: object = word.get("word")
    seconds: object = word.get("duration")
    c1_given: object = word.get("c1")
    c2_given: object = word.get("c2")
    c1: list[Any] | None = listed(c1_given)
    c2: list[Any] | None = listed(c2_given)
    features: object = word.get("features")
    numbers: Mapping[str, Any] = features if isinstance(features, dict) else {}
    is_time = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not isinstance(text, str) or not is_time or c1 is None or c2 is None or len(c1) != len(c2):
        raise InputError("a word of it has no codes", option("voice"), "Give OuteTTS' .json.")
    made = f"<|word_start|>{text}{mark}<|features|><|t_{float(str(seconds)):.2f}|>"
    for name in ("energy", "spectral_centroid", "pitch"):
        value: object = numbers.get(name)
        number = value if isinstance(value, int) else 0
        made += f"<|{name}_{number}|>"
    made += "<|code|>"
    for a, b in zip(c1, c2):
        made += f"<|c1_{a}|><|c2_{b}|>"
    return f"{made}<|word_end|>"


# ---- codes


def code_of(rule: TokenRule, text: str, column: int) -> int:
    """The code of a token at a place of a frame; -1: it has none there."""
    of = rule.columns[column]
    if not text.startswith(of.prefix) or not text.endswith(of.suffix):
        return -1
    digits = text[len(of.prefix) : len(text) - len(of.suffix)]
    if not digits or len(digits) > 9 or any(not "0" <= d <= "9" for d in list(digits)):
        return -1
    code = int(digits) - of.first
    return code if 0 <= code < rule.size else -1


class Frames:
    """Codes that arrive as tokens. Tokens between those of sound are left out; a frame whose tokens
    are not those of its places is left out as well.

    Args:
        rule: of the model.

    Attributes:
        streams: the codes of each codebook, of whole frames.
        count: number of frames.
        dropped: number of tokens of sound that belong to no frame.
    """

    def __init__(self, rule: TokenRule) -> None:
        self.rule = rule
        self.streams: list[list[int]] = [[] for i in range(rule.streams)]
        self.count, self.dropped = 0, 0
        self._open: list[int] = []

    def feed(self, text: str) -> bool:
        """Takes a token; returns whether it completes a frame."""
        rule = self.rule
        code = code_of(rule, text, len(self._open))
        if code < 0 and self._open:
            if all(code_of(rule, text, i) < 0 for i in range(len(rule.columns))):
                return False  # no token of sound
            self.dropped += len(self._open)
            self._open = []
            code = code_of(rule, text, 0)
        if code < 0:
            if any(code_of(rule, text, i) >= 0 for i in range(len(rule.columns))):
                self.dropped += 1
            return False
        self._open.append(code)
        if len(self._open) < len(rule.columns):
            return False
        for i, c in enumerate(self._open):
            self.streams[rule.columns[i].stream].append(c)
        self._open = []
        self.count += 1
        return True

    def codes(self, start: int, count: int) -> list[list[int]]:
        """The codes of some frames, by codebook."""
        made: list[list[int]] = []
        for i, of in enumerate(self.streams):
            per = len([1 for c in self.rule.columns if c.stream == i])
            made.append(of[start * per : (start + count) * per])
        return made


@dataclass(frozen=True)
class Piece:
    """Frames to decode, and the part of them that is given: the frames [first, last) of these."""

    start: int
    count: int
    first: int
    last: int


class Pieces:
    """Divides frames that arrive into parts, which are decoded with those around them.

    Attributes:
        given: number of frames that were given.
    """

    def __init__(self) -> None:
        self.given = 0

    def next(self, count: int, over: bool) -> Piece | None:
        """The next part; None: there are too few frames.

        Args:
            count: frames so far.
            over: whether there are no more.
        """
        left = count - self.given
        if left <= 0 or (not over and left < NEW + RIGHT):
            return None
        start = max(0, self.given - LEFT)
        size = left if over and left <= NEW + RIGHT else NEW
        end = min(count, self.given + size + RIGHT)
        piece = Piece(start, end - start, self.given - start, self.given + size - start)
        self.given += size
        return piece


def check_fit(rule: TokenRule, streams: int, books: int, size: int) -> None:
    """Raises InputError: a codec does not fit the model.

    Args:
        rule: of the model.
        streams: tensors that the codec's decoder takes.
        books: its codebooks; 0: it does not say.
        size: its codes of a codebook; 0: it does not say.
    """
    has = books if streams == 1 else streams
    if has > 0 and has != rule.streams:
        raise InputError(
            f"it has {has} codebooks, the language model speaks in {rule.streams}",
            option("codec"),
            "Give the codec that the model was trained with.",
        )
    if 0 < size < rule.size - 1:
        raise InputError(
            f"its codebooks have {size} codes, the language model speaks in {rule.size}",
            option("codec"),
            "Give the codec that the model was trained with.",
        )


def fields_of(rule: TokenRule, own: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of GenerationConfig: those of a call over the rule's. Without samples nothing that
    shapes their probabilities is left of the rule's.
    """
    made: dict[str, Any] = {}
    greedy = own.get("do_sample") is False
    for name in rule.fields:
        if not greedy or name in ("max_new_tokens", "repetition_penalty"):
            made[name] = rule.fields[name]
    for name in own:
        made[name] = own[name]
    return made

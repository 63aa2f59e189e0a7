"""Checks of tokenizer.json, which is an untrusted program: limits.py has the limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypedDict

from ...errors import TokenizerError
from ..native import from_base64, size
from .limits import COPY, LIMITS
from .regex_limits import RegexError, check_regex, may_not_end

# Members of a component of tokenizer.json that hold components, and texts that it may insert.
COMPONENT_LISTS = ("normalizers", "pretokenizers", "processors", "decoders")
INSERTED_TEXTS = (
    "content",
    "prepend",
    "replacement",
    "prefix",
    "suffix",
    "unk_token",
    "pad_token",
    "word_delimiter_token",
)


class LimitError(ValueError):
    """A limit is exceeded; the message says which."""


class Growth(TypedDict):
    """How many times longer a text can become."""

    encode: float
    decode: float


def check_tokenizer(value: dict[str, Any]) -> Growth:
    """Checks the limits of a tokenizer.json.

    Values of a wrong type are ignored; the tokenizer library reports them.

    Args:
        value: contents of the file.

    Returns:
        How many times longer a text can become.

    Raises:
        LimitError: a limit is exceeded.
    """
    _check_depth(value)
    growth: Growth = {"encode": 1.0, "decode": 1.0}
    count = 0
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        for component in _components(value.get(part)):
            count += 1
            if count > LIMITS.components:
                raise LimitError(
                    f"it has more than {LIMITS.components} normalizers, pre-tokenizers,"
                    " post-processors and decoders"
                )
            side: Literal["encode", "decode"] = "decode" if part == "decoder" else "encode"
            growth[side] *= _check_component(component, part)
            if growth[side] > LIMITS.growth:
                raise LimitError(f"its {part} makes a text more than {LIMITS.growth} times longer")
    _check_added(value.get("added_tokens"))
    _check_model(value.get("model"))
    return growth


def check_growth(growth: Growth, side: Literal["encode", "decode"], chars: int, where: str) -> None:
    """Checks that a text cannot become too long.

    Args:
        growth: of the tokenizer.json.
        side: what is done with it.
        chars: length of the text, or number of tokens.
        where: for errors.

    Raises:
        TokenizerError: it could.
    """
    times = growth[side]
    if times > 1 and chars * times > LIMITS.text_chars:
        raise TokenizerError(
            f"the file may make a text of {chars} characters {times:.0f} times as long", where, COPY
        )


def may_take_forever(value: dict[str, Any]) -> bool:
    """Whether a matcher without a limit of steps may need exponential time for a text, with a file
    that check_tokenizer accepts.
    """
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        for component in _components(value.get(part)):
            pattern = component.get("pattern")
            if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
                if may_not_end(pattern["Regex"], LIMITS.regex_depth):
                    return True
    return False


def _check_depth(value: object) -> None:
    level: list[Any] = [value]
    for _ in range(LIMITS.depth):
        level = [
            x
            for v in level
            for x in (v.values() if isinstance(v, dict) else v)
            if isinstance(x, (dict, list))
        ]
        if not level:
            return
    raise LimitError(f"its objects are nested more than {LIMITS.depth} deep")


def _components(value: object) -> Iterator[dict[str, Any]]:
    """The components of a part, including those of sequences, in the order of execution."""
    if not isinstance(value, dict):
        return
    lists = [value[name] for name in COMPONENT_LISTS if isinstance(value.get(name), list)]
    if not lists:
        yield value
    for one in lists:
        for component in one:
            yield from _components(component)


def _check_component(component: dict[str, Any], part: str) -> float:
    """How many times longer a component can make a text."""
    kind = component.get("type")
    pattern = component.get("pattern")
    narrow = 0  # the fewest characters that a match has
    if isinstance(pattern, dict):
        if isinstance(pattern.get("Regex"), str):
            narrow = _regex_width(pattern["Regex"])
        elif isinstance(pattern.get("String"), str):
            narrow = len(pattern["String"])
    longest = 0
    for name in INSERTED_TEXTS:
        text = component.get(name)
        if isinstance(text, str):
            if len(text) > LIMITS.content_chars:
                raise LimitError(f"'{name}' of a {kind} has {len(text)} characters")
            longest = max(longest, len(text))
    if kind == "Replace":
        return max(1.0, longest / narrow) if narrow else 1.0 + longest
    if kind == "Prepend":
        return 1.0 + longest / 64  # once, before the text
    if kind == "Precompiled" and part == "normalizer":
        return _charsmap_growth(component.get("precompiled_charsmap"))
    for name in ("single", "pair"):
        pieces = component.get(name)
        if (
            kind == "TemplateProcessing"
            and isinstance(pieces, list)
            and len(pieces) > LIMITS.components
        ):
            raise LimitError(f"'{name}' of its TemplateProcessing has {len(pieces)} pieces")
    return 1.0


def _charsmap_growth(data: object) -> float:
    """How many times longer sentencepiece's normalization can make a text, from the longest of its
    NUL-terminated replacements.
    """
    raw = _bytes(data)
    if len(raw) < 4:
        return 1.0  # the library reports the error
    longest = 0
    at = 4 + int.from_bytes(raw[:4], "little")  # after the trie
    while at < len(raw):
        end = raw.find(b"\0", at)
        if end < 0:
            end = len(raw)
        longest = max(longest, end - at)
        at = end + 1
    if longest > LIMITS.content_chars:
        raise LimitError(f"a replacement of its precompiled_charsmap has {longest} bytes")
    return 1.0 + longest / 64 if longest < 64 else float(longest)  # few characters have a long one


def _bytes(data: object) -> bytes:
    """Bytes of base64, or of a list of them; none where it is neither."""
    if isinstance(data, str):
        found = from_base64(data)
        return b"" if found is None else found
    if isinstance(data, list) and all(isinstance(x, int) and 0 <= x < 256 for x in data):
        return bytes(data)
    return b""


def _check_added(added: object) -> None:
    if not isinstance(added, list):
        return
    if len(added) > LIMITS.added_tokens:
        raise LimitError(f"it has {len(added)} added tokens")
    for token in added:
        content = token.get("content") if isinstance(token, dict) else None
        if isinstance(content, str) and len(content) > LIMITS.added_token_chars:
            raise LimitError(f"an added token has {len(content)} characters")


def _check_model(model: object) -> None:
    if not isinstance(model, dict):
        return
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        text = model.get(name)
        if isinstance(text, str) and len(text) > LIMITS.content_chars:
            raise LimitError(f"'{name}' of its model has {len(text)} characters")
    most = model.get("max_input_chars_per_word")
    if isinstance(most, (int, float)) and most > LIMITS.word_chars:
        raise LimitError(f"max_input_chars_per_word is {most}")
    vocab = model.get("vocab")
    tokens: list[Any] = []
    if isinstance(vocab, dict):
        tokens = list(vocab.keys())
    elif isinstance(vocab, list):
        tokens = [entry[0] for entry in vocab if isinstance(entry, list) and entry]
    for token in tokens:
        if isinstance(token, str) and size(token) > LIMITS.token_chars:
            if len(token) > LIMITS.token_chars:  # which takes long to count in pages
                raise LimitError(f"a token of its vocabulary has {len(token)} characters")


def _regex_width(pattern: str) -> int:
    """The minimum length of a match of a pattern.

    Raises:
        LimitError: matching can take exponential time, or the pattern is too large.
    """
    try:
        return check_regex(pattern, LIMITS.regex_chars, LIMITS.regex_depth, LIMITS.regex_states)
    except RegexError as e:
        quoted = pattern if len(pattern) <= 80 else pattern[:77] + "..."
        raise LimitError(f"its regular expression '{quoted}' {e}") from None

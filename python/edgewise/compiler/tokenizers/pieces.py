"""Vocabularies of models that hear pieces of words: the lines "token id" of NeMo's and k2's
exports, tokenizer.json, and vocab.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...errors import TokenizerError
from ...json_text import object_field, parse_json_object
from ...logic.speech.pieces import SPACE, Pieces

MAX_TOKENS = 1 << 20
COPY = "Copy the tokenizer's files again from the model they belong to."
LISTS = ("vocab.txt", "tokens.txt")
BLANKS = ("<blk>", "<blank>", "<pad>", "[PAD]", "<b>")
# Tokens that are no text, besides <|...|>.
HIDDEN = ("<unk>", "<s>", "</s>", "<pad>", "<sos/eos>", "<blk>", "<blank>", "<eps>")


def vocabulary_file(names: Iterable[str]) -> str | None:
    """The list of tokens among the files of a model; None: there is none."""
    names = sorted(names)
    for ending in LISTS:
        for found in (
            [n for n in names if n.rsplit("/", 1)[-1] == ending],
            [n for n in names if n.endswith((f"_{ending}", f"-{ending}"))],
        ):
            if found:
                return found[0]
    return None


def read_pieces(
    read: Callable[[str], bytes | None],
    file: str | None,
    blank: int | None = None,
    ctc: bool = False,
) -> Pieces:
    """The tokens of a model.

    Args:
        read: function(file name) that returns the bytes of a file of the model, or None.
        file: name of the list of tokens; None: there is none.
        blank: id of the token that is none, where config.json says it.
        ctc: whether transformers decodes the tokens as those of CTC: then all but the blank are
            text.

    Raises:
        TokenizerError: there is no vocabulary, or it is damaged.
    """
    data = None if file is None else read(file)
    hidden: set[int] = set()
    if data is not None:
        assert file is not None
        tokens = _listed(data, file)
        if blank is None:
            blank = next((tokens[b] for b in BLANKS[:2] if b in tokens), None)
        table = _table(tokens, file)
        hidden = {i for i, token in enumerate(table) if _is_special(token)}
    else:
        table, hidden = _fast(read)
        if blank is None:
            blank = next((table.index(b) for b in BLANKS if b in table), None)
        if ctc:
            hidden = set()
    if blank is None:
        blank = len(table)  # NeMo's is after all others
    if not 0 <= blank < MAX_TOKENS:
        raise TokenizerError(f"the id of its blank is {blank}", "config.json", COPY)
    return Pieces(table, blank, sorted(hidden | {blank}))


def _listed(data: bytes, file: str) -> dict[str, int]:
    """{token: id} of lines."""
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise TokenizerError("it is not UTF-8", file, COPY) from None
    found: dict[str, int] = {}
    for number, line in enumerate(lines):
        line = line.rstrip("\r")
        if not line.strip():
            continue
        at = max(line.rfind(" "), line.rfind("\t"))
        if at < 0 or not line[at + 1 :].isdecimal() or int(line[at + 1 :]) >= MAX_TOKENS:
            raise TokenizerError(f"line {number + 1} is not 'token id'", file, COPY)
        token = line[:at] or " "
        found[token.replace(" ", SPACE)] = int(line[at + 1 :])
    if not found:
        raise TokenizerError("it has no tokens", file, COPY)
    return found


def _is_special(token: str) -> bool:
    return token in HIDDEN or (token.startswith("<|") and token.endswith("|>"))


def _table(tokens: Mapping[str, Any], file: str) -> list[str]:
    """Tokens by id. Raises TokenizerError."""
    size = 0
    for i in tokens.values():
        if type(i) is not int or not 0 <= i < MAX_TOKENS:
            raise TokenizerError("it is not {token: id}", file, COPY)
        size = max(size, i + 1)
    if size > 2 * len(tokens) + 1024:
        raise TokenizerError(f"it has {len(tokens)} tokens with ids up to {size - 1}", file, COPY)
    table = [""] * size
    for token, i in tokens.items():
        table[i] = token
    return table


def _fast(read: Callable[[str], bytes | None]) -> tuple[list[str], set[int]]:
    """Tokens by id of tokenizer.json or vocab.json, and ids of those that are no text."""
    data = read("tokenizer.json")
    if data is None:
        data = read("vocab.json")
        if data is None:
            raise TokenizerError(
                "there is no vocabulary",
                "vocab.txt",
                "Put vocab.txt, tokens.txt or tokenizer.json of the model into its folder.",
            )
        return _table(parse_json_object(data, "vocab.json", TokenizerError), "vocab.json"), set()
    file = "tokenizer.json"
    fast = parse_json_object(data, file, TokenizerError)
    model = object_field(fast, "model", file, TokenizerError)
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, list):  # of a unigram model: [token, score]
        if not all(isinstance(x, list) and x and isinstance(x[0], str) for x in vocabulary):
            raise TokenizerError("its vocabulary is not [[token, score]]", file, COPY)
        vocabulary = {entry[0]: i for i, entry in enumerate(vocabulary)}
    if not isinstance(vocabulary, dict):
        raise TokenizerError("it has no vocabulary", file, COPY)
    if _has(fast.get("decoder"), "ByteLevel"):
        vocabulary = {_bytes_as_pieces(token): i for token, i in vocabulary.items()}
    added = fast.get("added_tokens") or []
    hidden: set[int] = set()
    for token in added if isinstance(added, list) else [added]:
        if not isinstance(token, dict) or type(token.get("content")) is not str:
            raise TokenizerError("`added_tokens` is no list of tokens with ids", file, COPY)
        vocabulary[token["content"]] = token.get("id")
        if token.get("special"):
            hidden.add(token["id"])
    return _table(vocabulary, file), hidden


def _has(decoder: Any, kind: str) -> bool:
    """Whether a decoder of tokenizer.json is, or contains, one of a type."""
    if not isinstance(decoder, dict):
        return False
    parts = decoder.get("decoders")
    inner = parts if isinstance(parts, list) else []
    return decoder.get("type") == kind or any(_has(one, kind) for one in inner)


def _bytes_as_pieces(token: str) -> str:
    """A token of a byte-level vocabulary as a piece: with the space that begins a word, or, where
    it is no whole characters, as one byte.
    """
    data = bytes(_BYTES[c] for c in token if c in _BYTES)
    try:
        return data.decode().replace(" ", SPACE)
    except UnicodeDecodeError:
        return f"<0x{data[0]:02X}>" if len(data) == 1 else token


def _byte_table() -> dict[str, int]:
    """{character: byte} of GPT-2's vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(i): i for i in plain}
    others = [i for i in range(256) if i not in set(plain)]
    return table | {chr(256 + n): i for n, i in enumerate(others)}


_BYTES = _byte_table()

"""Encodings of texts and pairs of texts: truncation, overlapping parts, special tokens, offsets.

Mirrors what transformers' fast tokenizers return for `return_offsets_mapping`,
`return_overflowing_tokens`, `return_special_tokens_mask`, `word_ids` and `sequence_ids`. The
libraries of the hosts encode a text without special tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...errors import InputError

STRATEGIES = ("longest_first", "only_first", "only_second", "do_not_truncate")
"""Which text is cut."""


class NotSupported(ValueError):
    """A valid file needs what is not implemented; the message says what."""


class Token(NamedTuple):
    """A token of a text: its id, the characters [start, end) of the text as of the host, and the
    index of its word, None if the tokenizer has no words there.
    """

    id: int
    start: int
    end: int
    word: int | None


@dataclass
class Encoding:
    """A text or a pair, or a part of it, as a model reads it. All lists have one entry per token.

    Attributes:
        ids: token ids.
        type_ids: 0 or 1, which text it belongs to (`token_type_ids`).
        special: 1 for tokens that the tokenizer added (`special_tokens_mask`).
        offsets: (start, end) in characters of its text; (0, 0) for added tokens.
        words: index of the word in its text, or None.
        sequences: 0 for the first text, 1 for the second, None for added tokens.
    """

    ids: list[int] = field(default_factory=list)
    type_ids: list[int] = field(default_factory=list)
    special: list[int] = field(default_factory=list)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    words: list[int | None] = field(default_factory=list)
    sequences: list[int | None] = field(default_factory=list)


@dataclass(frozen=True)
class EncodeOptions:
    """How a text or a pair is encoded.

    Attributes:
        truncation: one of STRATEGIES: which text is cut.
        max_length: of an encoding in tokens, with special tokens; None: what the model takes.
        stride: tokens that neighboring parts share.
        add_special_tokens: whether the tokenizer's special tokens are added.
    """

    truncation: str = "longest_first"
    max_length: int | None = None
    stride: int = 0
    add_special_tokens: bool = True


class Piece(NamedTuple):
    """A part of a template.

    Attributes:
        text: "A" or "B"; "": special tokens.
        ids: of the special tokens.
        type_id: of its tokens.
    """

    text: str
    ids: list[int]
    type_id: int


class Template(NamedTuple):
    """Where special tokens are put around a text and around a pair."""

    single: list[Piece]
    pair: list[Piece]


def plain() -> Template:
    """The template without special tokens."""
    return Template([Piece("A", [], 0)], [Piece("A", [], 0), Piece("B", [], 1)])


def surrounding(first: Sequence[int], last: Sequence[int]) -> Template:
    """The template of Llama's tokenizers: ids before and after a text; a second text follows."""
    single = [Piece("", list(first), 0), Piece("A", [], 0), Piece("", list(last), 0)]
    return Template(single, [*single, Piece("B", [], 1)])


def read_template(value: object) -> Template:
    """The template of a tokenizer.json.

    Args:
        value: member `post_processor` of the file.

    Raises:
        ValueError: it is malformed. NotSupported: several processors add tokens.
    """
    found = _templates(value)
    if len(found) > 1:
        raise NotSupported("several post-processors add tokens")
    return found[0] if found else plain()


def _templates(value: object) -> list[Template]:
    """The templates of the processors that add tokens."""
    if value is None:
        return []
    one = _object(value, "post_processor")
    kind = str(one.get("type"))
    if kind == "Sequence":
        return [made for part in _list(one, "processors", kind) for made in _templates(part)]
    if kind == "ByteLevel":
        return []
    if kind == "TemplateProcessing":
        made = _processing(one)
        return [] if made == plain() else [made]
    if kind not in ("BertProcessing", "RobertaProcessing"):
        raise NotSupported(f"post_processor has the type {kind[:80]!r}")
    first, last = _special(one, "cls"), _special(one, "sep")
    single = [Piece("", [first], 0), Piece("A", [], 0), Piece("", [last], 0)]
    if kind == "BertProcessing":
        return [Template(single, [*single, Piece("B", [], 1), Piece("", [last], 1)])]
    after = [Piece("", [last], 0), Piece("B", [], 0), Piece("", [last], 0)]
    return [Template(single, [*single, *after])]


def _processing(one: dict[str, Any]) -> Template:
    """The template of a TemplateProcessing."""
    special: object = one.get("special_tokens")
    entries: list[object] = []
    if isinstance(special, dict):
        entries = list(special.values())
    elif isinstance(special, list):
        entries = special
    tokens: dict[str, list[int]] = {}
    for entry in entries:
        token = _object(entry, "a special token of TemplateProcessing")
        tokens[_text(token)] = _list(token, "ids", "a special token of TemplateProcessing")
    single = _pieces(one, "single", tokens)
    return Template(single, _pieces(one, "pair", tokens) if one.get("pair") else plain().pair)


def _pieces(one: dict[str, Any], name: str, tokens: dict[str, list[int]]) -> list[Piece]:
    out: list[Piece] = []
    for given in _list(one, name, "TemplateProcessing"):
        piece = _object(given, "a piece of TemplateProcessing")
        is_text = piece.get("Sequence") is not None
        inside: object = piece.get("Sequence") if is_text else piece.get("SpecialToken")
        part = _object(inside, "a piece of TemplateProcessing")
        named = _text(part)
        type_id = part.get("type_id")
        if type_id is None:
            type_id = 0
        if type(type_id) is not int or type_id < 0:
            raise ValueError(f"type_id of {named[:80]!r} is no integer of 0 or more")
        ids = tokens.get(named)
        if is_text:
            out.append(Piece("B" if named == "B" else "A", [], type_id))
        elif ids is None:
            raise ValueError(f"TemplateProcessing lacks the ids of {named[:80]!r}")
        else:
            out.append(Piece("", ids, type_id))
    return out


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    return value


def _list(value: dict[str, Any], name: str, where: str) -> list[Any]:
    found: object = value.get(name)
    if not isinstance(found, list):
        raise ValueError(f"{name} of {where} is not a list")
    return found


def _text(value: dict[str, Any]) -> str:
    found: object = value.get("id")
    if not isinstance(found, str):
        raise ValueError("the id of a part of TemplateProcessing is not a string")
    return found


def _special(value: dict[str, Any], name: str) -> int:
    found = _list(value, name, "the post_processor")
    if len(found) != 2 or type(found[1]) is not int:
        raise ValueError(f"{name} of the post_processor is no pair of a text and an id")
    return int(found[1])


def assemble(
    template: Template,
    first: Sequence[Token],
    second: Sequence[Token] | None,
    add_special_tokens: bool,
) -> Encoding:
    """The encoding of tokenized texts with special tokens around them."""
    out = Encoding()
    for piece in template.single if second is None else template.pair:
        tokens: Sequence[Token] = second or []
        if piece.text == "A":
            tokens = first
        elif not piece.text:
            tokens = [Token(i, 0, 0, None) for i in piece.ids] if add_special_tokens else []
        for token in tokens:
            out.ids.append(token.id)
            out.type_ids.append(piece.type_id)
            out.special.append(0 if piece.text else 1)
            out.offsets.append((token.start, token.end))
            out.words.append(token.word)
            out.sequences.append((0 if piece.text == "A" else 1) if piece.text else None)
    return out


def parts_of(
    tokens: Sequence[Token], most: int, stride: int, side: str = "right"
) -> list[Sequence[Token]]:
    """Overlapping parts of at most `most` tokens, of which neighbors share `stride`.

    Args:
        tokens: of a text.
        most: see there.
        stride: see there.
        side: which end is cut: "right" or "left". The first part is what truncation keeps.

    Raises:
        InputError: stride is not less than `most`.
    """
    count = len(tokens)
    if count <= most:
        return [tokens]
    if most <= 0:
        return [tokens[:0]]
    if not 0 <= stride < most:
        raise InputError(
            f"stride is {stride}, but a part has {most} tokens", "stride", "Lower the stride."
        )
    parts: list[Sequence[Token]] = []
    at = 0
    while True:
        if side == "left":
            parts.append(tokens[max(0, count - at - most) : count - at])
        else:
            parts.append(tokens[at : at + most])
        if at + most >= count:
            return parts
        at += most - stride


def truncated(
    template: Template,
    first: Sequence[Token],
    second: Sequence[Token] | None,
    strategy: str,
    max_length: int | None,
    stride: int = 0,
    side: str = "right",
    add_special_tokens: bool = True,
) -> list[Encoding]:
    """The encodings of one or two tokenized texts, cut to a length.

    Args:
        template: special tokens around them.
        first: the text.
        second: the second text.
        strategy: one of STRATEGIES: which text is cut.
        max_length: of an encoding in tokens, with special tokens; None: no limit.
        stride: tokens that neighboring parts share.
        side: which end is cut.
        add_special_tokens: whether they are added.

    Returns:
        what truncation keeps, followed by the parts that it cuts off; only the former for
        "longest_first" with a pair, which has no parts

    Raises:
        InputError: the text that may be cut is shorter than what has to go.
    """
    if strategy not in STRATEGIES:
        raise InputError(
            f"{strategy!r} is not a way of truncation",
            "truncation",
            f"Use {', '.join(STRATEGIES)}.",
        )
    firsts: list[Sequence[Token]] = [first]
    seconds: list[Sequence[Token] | None] = [second]
    length = len(first) + (0 if second is None else len(second))
    if max_length is not None and strategy != "do_not_truncate":
        around = assemble(template, [], None if second is None else [], add_special_tokens)
        room = max(max_length - len(around.ids), 0)
        over = length - room
        if over <= 0:
            pass
        elif second is None:
            most = room if strategy != "only_second" else _left(0, over)
            firsts = parts_of(first, most, stride, side)
        elif strategy == "longest_first":
            keep = _longest_first(len(first), len(second), room)
            firsts = parts_of(first, keep[0], 0, side)[:1]
            seconds = [parts_of(second, keep[1], 0, side)[0]]
        elif strategy == "only_first":
            firsts = parts_of(first, _left(len(first), over), stride, side)
        else:
            seconds = [*parts_of(second, _left(len(second), over), stride, side)]
    return [assemble(template, a, b, add_special_tokens) for b in seconds for a in firsts]


def _left(length: int, remove: int) -> int:
    """The length of a text without so many tokens."""
    if length <= remove:
        raise InputError(
            f"{remove} tokens have to be cut from a text of {length}",
            "truncation",
            "Shorten the other text, or raise max_length if the model takes more.",
        )
    return length - remove


def _longest_first(one: int, two: int, room: int) -> tuple[int, int]:
    """Lengths to keep of two texts, as the `tokenizers` library chooses them."""
    short = min(one, two)
    long = short if short > room else max(short, room - short)
    if short + long > room:
        short = room // 2
        long = short + room % 2
    return (short, long) if one <= two else (long, short)

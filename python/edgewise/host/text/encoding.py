"""Encodings of texts and pairs of texts: truncation, overlapping parts, special tokens, offsets.

Mirrors what transformers' fast tokenizers return for `return_offsets_mapping`,
`return_overflowing_tokens`, `return_special_tokens_mask`, `word_ids` and `sequence_ids`. The
libraries encode a text without special tokens; what follows is the same code for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import InputError
from .component import Component, NotSupported, build


class Token(NamedTuple):
    """A token of a text: its id, the characters [start, end) of the text, and the index of its
    word, None if the tokenizer has no words there.
    """

    id: int
    start: int
    end: int
    word: int | None


STRATEGIES = ("longest_first", "only_first", "only_second", "do_not_truncate")


def check_characters(text: str) -> None:
    """Raises InputError for half of a surrogate pair, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"character {error.start} is half of a surrogate pair",
            "text",
            'Make texts of bytes with errors="replace".',
        ) from None


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


Piece = tuple[str | tuple[int, ...], int]  # "A", "B" or ids of special tokens; type id


class Template(NamedTuple):
    """Where special tokens are put around a text and around a pair."""

    single: list[Piece]
    pair: list[Piece]

    def added(self, pair: bool) -> int:
        """Number of special tokens."""
        return sum(
            len(p) for p, _ in (self.pair if pair else self.single) if not isinstance(p, str)
        )


PLAIN = Template([("A", 0)], [("A", 0), ("B", 1)])


def read_template(value: object) -> Template:
    """The template of a tokenizer.json.

    Args:
        value: member `post_processor` of the file.

    Raises:
        ValueError: it is malformed. NotSupported: several processors add tokens.
    """
    found = [t for t in build(value, "post_processor", "processors", _MAKERS) if t != PLAIN]
    if len(found) > 1:
        raise NotSupported("several post-processors add tokens")
    return found[0] if found else PLAIN


def surrounding(first: Sequence[int], last: Sequence[int]) -> Template:
    """The template of Llama's tokenizers: ids before and after a text; a second text follows."""
    single: list[Piece] = [(tuple(first), 0), ("A", 0), (tuple(last), 0)]
    return Template(single, [*single, ("B", 1)])


def _special(component: Component, name: str) -> tuple[int, ...]:
    value = component.items(name)
    if len(value) != 2 or type(value[1]) is not int:
        raise ValueError(f"{name} of {component.where} is no pair of a text and an id")
    return (value[1],)


def _bert(component: Component) -> Template:
    first, last = _special(component, "cls"), _special(component, "sep")
    single: list[Piece] = [(first, 0), ("A", 0), (last, 0)]
    return Template(single, [*single, ("B", 1), (last, 1)])


def _roberta(component: Component) -> Template:
    first, last = _special(component, "cls"), _special(component, "sep")
    single: list[Piece] = [(first, 0), ("A", 0), (last, 0)]
    return Template(single, [*single, (last, 0), ("B", 0), (last, 0)])


def _template(component: Component) -> Template:
    special = component.value.get("special_tokens", {})
    tokens: dict[str, tuple[int, ...]] = {}
    for entry in special.values() if isinstance(special, dict) else special:
        token = Component(entry, "a special token of TemplateProcessing")
        tokens[token.text("id")] = tuple(token.items("ids"))

    def pieces(name: str) -> list[Piece]:
        out: list[Piece] = []
        for piece in component.items(name):
            one = Component(piece, "a piece of TemplateProcessing")
            part = one.part("Sequence" if "Sequence" in one.value else "SpecialToken")
            named, kind = part.text("id"), part.count("type_id", 0)
            if "Sequence" in one.value:
                out.append((named, kind))
            elif named in tokens:
                out.append((tokens[named], kind))
            else:
                raise ValueError(f"TemplateProcessing lacks the ids of {named[:80]!r}")
        return out

    pair = pieces("pair") if "pair" in component.value else PLAIN.pair
    return Template(pieces("single"), pair)


_MAKERS = {
    "BertProcessing": _bert,
    "ByteLevel": lambda component: PLAIN,
    "RobertaProcessing": _roberta,
    "TemplateProcessing": _template,
}


def assemble(
    template: Template,
    first: Sequence[Token],
    second: Sequence[Token] | None,
    add_special_tokens: bool = True,
) -> Encoding:
    """The encoding of tokenized texts with special tokens around them."""
    out = Encoding()
    for piece, kind in template.single if second is None else template.pair:
        if not isinstance(piece, str):
            n = len(piece) if add_special_tokens else 0
            out.ids += piece[:n]
            out.special += [1] * n
            out.offsets += [(0, 0)] * n
            out.words += [None] * n
            out.sequences += [None] * n
            out.type_ids += [kind] * n
            continue
        tokens = first if piece == "A" else second or ()
        n = len(tokens)
        out.ids += [t.id for t in tokens]
        out.special += [0] * n
        out.offsets += [(t.start, t.end) for t in tokens]
        out.words += [t.word for t in tokens]
        out.sequences += [0 if piece == "A" else 1] * n
        out.type_ids += [kind] * n
    return out


def parts_of(
    tokens: Sequence[Token], most: int, stride: int, side: str = "right"
) -> list[Sequence[Token]]:
    """Overlapping parts of at most `most` tokens, of which neighbors share `stride`.

    Args:
        side: which end is cut: "right" or "left". The first part is what truncation keeps.

    Raises:
        InputError: stride is not less than `most`.
    """
    n = len(tokens)
    if n <= most:
        return [tokens]
    if most <= 0:
        return [tokens[:0]]
    if not 0 <= stride < most:
        raise InputError(
            f"stride is {stride}, but a part has {most} tokens", "stride", "Lower the stride."
        )
    step, parts = most - stride, []
    if side == "left":
        for stop in range(n, 0, -step):
            parts.append(tokens[max(0, stop - most) : stop])
            if stop <= most:
                break
        return parts
    for start in range(0, n, step):
        parts.append(tokens[start : start + most])
        if start + most >= n:
            break
    return parts


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
    room = None
    if max_length is not None and strategy != "do_not_truncate":
        room = max_length - (template.added(second is not None) if add_special_tokens else 0)
    firsts: list[Sequence[Token]] = [first]
    seconds: list[Sequence[Token] | None] = [second]
    length = len(first) + len(second or ())
    if room is not None and length > room:
        room = max(room, 0)
        if second is None and strategy != "only_second":
            firsts = parts_of(first, room, stride, side)
        elif strategy == "longest_first":
            keep = _longest_first(len(first), len(second or ()), room)
            firsts = parts_of(first, keep[0], 0, side)[:1]
            seconds = [parts_of(second or (), keep[1], 0, side)[0]]
        elif strategy == "only_first":
            firsts = parts_of(first, _left(len(first), length - room), stride, side)
        else:
            seconds = [
                *parts_of(second or (), _left(len(second or ()), length - room), stride, side)
            ]
    return [assemble(template, a, b, add_special_tokens) for b in seconds for a in firsts]


def _left(length: int, remove: int) -> int:
    if length <= remove:
        raise InputError(
            f"{remove} tokens have to be cut from a text of {length}",
            "truncation",
            "Shorten the other text, or raise max_length.",
        )
    return length - remove


def _longest_first(one: int, two: int, room: int) -> tuple[int, int]:
    """Lengths to keep of two texts, as the `tokenizers` library chooses them."""
    short, long = min(one, two), max(one, two)
    long = short if short > room else max(short, room - short)
    if short + long > room:
        short = room // 2
        long = short + room % 2
    return (short, long) if one <= two else (long, short)


__all__ = ["Encoding", "NotSupported", "Template", "Token", "read_template", "truncated"]

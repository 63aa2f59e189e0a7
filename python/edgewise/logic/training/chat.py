"""Tokens of records, and which of them are learned: the assistant's turns of messages, the
completion of a prompt, all of a text.

Turns are those that the template marks by {% generation %}, as transformers finds them. In other
templates a turn is the difference of the tokens with and without it, as TRL finds completions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import InputError
from ..native import size
from ..text.encoding import Token
from .data import IGNORED, Row, learned
from .packing import documents_of, packed
from .preview import Seen
from .records import Record, normal, text_of

# What a template writes at the ends of an assistant's text: code points that no text has.
START = "\ufdd0"
END = "\ufdd1"


@dataclass(frozen=True)
class Render:
    """Render messages with the model's chat template; `marked`: with the marks of
    `marked_template`. The answer: the text.
    """

    messages: list[Record]
    tools: Any
    prompt: bool
    marked: bool
    kind: Literal["render"] = "render"


@dataclass(frozen=True)
class Encode:
    """Encode a text, with the special tokens that the tokenizer adds or without them. The answer:
    its token ids.
    """

    text: str
    special: bool
    kind: Literal["encode"] = "encode"


@dataclass(frozen=True)
class Locate:
    """Encode a text without added special tokens. The answer: its Tokens."""

    text: str
    kind: Literal["locate"] = "locate"


DataRequest = Render | Encode | Locate


@dataclass
class Example:
    """Tokens, and for each whether it is learned. `prompt`: those before the completion, of a
    record that has one.
    """

    ids: list[int]
    counts: list[bool]
    prompt: int = 0


@dataclass
class Report:
    """What became of records.

    Attributes:
        examples: of the records.
        truncated: examples of which the end was cut off.
        lost: learned tokens that were cut off. Where the template has no marks, turns after the
            one at the end of the row are not counted.
        dropped: examples without a row: nothing of what is learned fits.
    """

    examples: int
    truncated: int = 0
    lost: int = 0
    dropped: int = 0


def marked_template(source: str) -> str | None:
    """A template that writes START and END in place of the tags generation and endgeneration;
    None: it has no such tags.

    White space around the tags is left out as jinja2 does with trim_blocks and lstrip_blocks.
    """
    made, at, found = "", 0, False
    while True:
        tag = _next_tag(source, at)
        if tag is None:
            return made + source[at:] if found else None
        first, last, name = tag
        before, after = source[at:first], last
        if source[first + 2] == "-":
            before = before.rstrip()
        elif source[first + 2] != "+":
            line = before.rfind("\n") + 1
            if not before[line:].strip(" \t") and (line or not made):
                before = before[:line]
        if source[last - 3] == "-":
            while after < len(source) and source[after] in " \t\r\n":
                after += 1
        elif source[last - 3] != "+" and source[after : after + 1] == "\n":
            after += 1
        mark = START if name == "generation" else END
        made += before + "{{ '" + mark + "' }}"
        at, found = after, True


def _next_tag(source: str, at: int) -> tuple[int, int, str] | None:
    """(first, after the last character, name) of the next tag of an assistant's text."""
    while True:
        first = source.find("{%", at)
        last = source.find("%}", first)
        if first < 0 or last < 0:
            return None
        name = source[first + 2 : last].strip("-+ \t\r\n")
        if name in ("generation", "endgeneration"):
            return first, last + 2, name
        at = first + 2


def example_of(
    record: Record, template: str | None, end: int | None, sequence: int, where: str
) -> Generator[DataRequest, Any, list[Example]]:
    """The examples of a record: one, or one for each of the assistant's turns where the template
    writes earlier turns in another way than the last one.

    Args:
        record: as records.normal takes it.
        template: the model's chat template, or None.
        end: id of the token that ends a text, or None.
        sequence: tokens of a row. Turns after it are not looked for.
        where: for errors.

    Raises:
        InputError: it has other fields, or nothing to learn. TokenizerError: the template rejects
            the messages.
    """
    one = normal(record, template is not None, where)
    if "text" in one:
        ids: list[int] = yield Encode(one["text"], True)
        ids = _ended(ids, end)
        return [Example(ids, [True for _ in ids])]
    if "prompt" in one:
        tools: Any = one.get("tools")
        example = yield from completed(one["prompt"], one["completion"], tools, end, where)
        return [example]
    messages: list[Record] = one["messages"]
    if not any(m["role"] == "assistant" for m in messages):
        raise InputError(
            "there is no message of the assistant to learn from",
            where,
            'Give one with the role "assistant".',
        )
    tools = one.get("tools")
    if template is not None and marked_template(template) is not None:
        example = yield from _marked(messages, tools, where)
        return [example]
    return (yield from _turns(messages, tools, sequence, where))


def completed(
    prompt: Any, completion: Any, tools: Any, end: int | None, where: str
) -> Generator[DataRequest, Any, Example]:
    """The example of a prompt and a completion, both texts or both messages. The completion
    begins where the tokens of the prompt end, as in TRL; without a prompt, where its text does.

    Raises:
        InputError: the template does not show where that is.
    """
    before: list[int] = []
    ids: list[int] = []
    if isinstance(prompt, str):
        before = yield Encode(prompt, True)
        ids = yield Encode(prompt + str(completion), True)
        ids = _ended(ids, end)
    else:
        asked: list[Record] = prompt
        answered: list[Record] = completion
        text = ""
        if asked:
            text = yield Render(asked, tools, True, False)
            before = yield Encode(text, False)
        text = yield Render([*asked, *answered], tools, False, False)
        ids = yield Encode(text, False)
        if not asked:
            before = yield from _before_first(answered, text, tools, where)
    first = common(before, ids)
    return Example(ids, [i >= first for i in range(len(ids))], first)


def _before_first(
    messages: list[Record], text: str, tools: Any, where: str
) -> Generator[DataRequest, Any, list[int]]:
    """The tokens that a template writes before the text of the first message, such as a system
    prompt of its own. text: of the messages.
    """
    first: Record = {**messages[0], "content": START}
    other: str = yield Render([first, *messages[1:]], tools, False, False)
    at = other.find(START)
    if at < 0 or not text.startswith(other[:at]):
        raise InputError(
            "the chat template does not show where the text of the first message begins",
            where,
            "Begin with a message of the user.",
        )
    ids: list[int] = yield Encode(other[:at], False)
    return ids


def _ended(ids: list[int], end: int | None) -> list[int]:
    return [*ids, end] if end is not None and (not ids or ids[-1] != end) else ids


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many first tokens two lists share."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _marked(messages: list[Record], tools: Any, where: str) -> Generator[DataRequest, Any, Example]:
    """The example of messages whose template marks the assistant's text."""
    if _has_marks(messages) or _has_marks(tools):
        raise InputError(
            "a message has the code point U+FDD0 or U+FDD1", where, "Leave such code points out."
        )
    marked: str = yield Render(messages, tools, False, True)
    spans: list[tuple[int, int]] = []
    text, at = "", 0
    while True:
        first = marked.find(START, at)
        if first < 0:
            break
        last = marked.find(END, first)
        inner = marked[first + 1 : last]
        if last < 0 or START in inner:
            raise InputError(
                "the chat template marks the assistant's text inside of itself",
                where,
                "Close {% generation %} by {% endgeneration %} before the next one.",
            )
        text += marked[at:first]
        begin = size(text)
        text += inner
        spans.append((begin, size(text)))
        at = last + 1
    text += marked[at:]
    tokens: list[Token] = yield Locate(text)
    counts: list[bool] = []
    at = 0
    for token in tokens:
        while at < len(spans) and spans[at][1] <= token.start:
            at += 1
        inside = at < len(spans) and token.end > spans[at][0] and token.start < spans[at][1]
        counts.append(inside and token.end > token.start)
    return Example([token.id for token in tokens], counts)


def _has_marks(value: object) -> bool:
    """Whether a text of JSON has START or END."""
    if isinstance(value, str):
        return START in value or END in value
    if isinstance(value, dict):
        fields: Record = value
        return any(_has_marks(name) or _has_marks(fields[name]) for name in fields)
    if isinstance(value, list):
        parts: list[object] = value
        return any(_has_marks(one) for one in parts)
    return False


def _turns(
    messages: list[Record], tools: Any, sequence: int, where: str
) -> Generator[DataRequest, Any, list[Example]]:
    """The examples of messages whose template does not mark the assistant's text."""
    text: str = yield Render(messages, tools, False, False)
    whole: list[int] = yield Encode(text, False)
    counts = [False for _ in whole]
    apart: list[Example] = []
    alike = True  # whether the turns so far are written as in the whole
    for i in range(len(messages)):
        if messages[i]["role"] != "assistant":
            continue
        one: Example = yield from completed(messages[:i], [messages[i]], tools, None, where)
        apart.append(one)
        if alike and common(one.ids, whole) == len(one.ids):
            for at in range(one.prompt, len(one.ids)):
                counts[at] = True
        else:
            alike = False
        # each turn renders all before it: those after the end of the row are left out
        if (len(one.ids) if alike else one.prompt) >= sequence:
            break
    return [Example(whole, counts)] if alike else apart


def fitted(
    examples: Sequence[Example], sequence: int, pad: int, where: str, packing: bool = False
) -> tuple[list[Row], Report]:
    """One row for each example, so that no document sees another one: positions begin at 0 in each
    row, and padding stands on the right, where causal attention hides it.

    Args:
        examples: at least one.
        sequence: tokens of a row. The end of longer examples is cut off.
        pad: id of padding.
        where: for errors.
        packing: whether rows have several examples, which the model separates.

    Raises:
        InputError: nothing is left to learn.
    """
    kept = kept_rows(examples, sequence, pad, where)
    if not packing:
        return kept.rows, kept.report
    return packed(documents_of(kept.rows), sequence, pad), kept.report


@dataclass
class Kept:
    """Rows of examples, and the number of the example of each."""

    rows: list[Row]
    examples: list[int]
    report: Report


def kept_rows(examples: Sequence[Example], sequence: int, pad: int, where: str) -> Kept:
    """As `fitted`, with the examples that have a row."""
    kept = Kept([], [], Report(len(examples)))
    report = kept.report
    for i, example in enumerate(examples):
        row = row_of(example, sequence, pad)
        count = learned([row])
        report.lost += len([x for x in example.counts[1:] if x]) - count
        if len(example.ids) > sequence:
            report.truncated += 1
        if count:
            kept.rows.append(row)
            kept.examples.append(i)
        else:
            report.dropped += 1
    if not kept.rows:
        raise nothing_left(report, sequence, where)
    return kept


def nothing_left(report: Report, sequence: int, where: str) -> InputError:
    """The error where no row has a token that is learned."""
    cut = f": the first {sequence} tokens are all prompt" if report.truncated else ""
    return InputError(
        f"no token is left to learn from{cut}",
        where,
        "Give answers, shorter prompts, or a longer sequence_length.",
    )


def stated(report: Report, sequence: int) -> str:
    """What was cut off, in words; "" if nothing was."""
    if not report.truncated and not report.dropped:
        return ""
    words = f"{report.truncated} of {report.examples} examples are longer than {sequence} tokens"
    words += f": {report.lost} tokens that would be learned were cut off"
    if report.dropped:
        words += f", and {report.dropped} examples have none left"
    return words


def stream_texts(records: Sequence[Record], where: str) -> list[str] | None:
    """The texts of records that are all texts, which form one stream as other texts do; None: some
    have parts that are not learned.
    """
    texts: list[str] = []
    for i, record in enumerate(records):
        if "text" not in record or "messages" in record or "prompt" in record:
            return None
        texts.append(text_of(record, "text", f"{where}, record {i + 1}"))
    return texts


def row_of(example: Example, sequence: int, pad: int) -> Row:
    """The row of an example, cut or padded on the right."""
    ids = example.ids[:sequence]
    labels = [ids[i] if example.counts[i] else IGNORED for i in range(len(ids))]
    missing = sequence - len(ids)
    return ids + [pad] * missing, labels + [IGNORED] * missing


def seen(example: Example, decode: Callable[[list[int]], str], sequence: int) -> list[Seen]:
    """The tokens of an example. The first token of a row is never predicted.

    Args:
        example: as it will be learned.
        decode: the text of token ids.
        sequence: tokens of a row.
    """
    made: list[Seen] = []
    for i, text in enumerate(_texts(example.ids, decode)):
        made.append(Seen(text, example.counts[i] and 0 < i < sequence, i < sequence))
    return made


def _texts(ids: Sequence[int], decode: Callable[[list[int]], str]) -> list[str]:
    """The text of each token. A token that begins a text may lose its space: the one before it
    shows that.
    """
    made: list[str] = []
    for i in range(len(ids)):
        text = decode([ids[i]])
        if i:
            before = decode([ids[i - 1]])
            both = decode([ids[i - 1], ids[i]])
            if both.startswith(before) and both.endswith(text):
                text = both[len(before) :]
        made.append(text)
    return made


def rows_seen(rows: Sequence[Row], count: int) -> list[Example]:
    """The first rows of a stream of texts, as examples without padding."""
    made: list[Example] = []
    for ids, labels in rows[:count]:
        kept = [ids[i] for i in range(len(ids)) if labels[i] != IGNORED]
        made.append(Example(kept, [True for _ in kept]))
    return made


__all__ = [
    "DataRequest",
    "Encode",
    "Example",
    "Kept",
    "Locate",
    "Render",
    "Report",
    "completed",
    "example_of",
    "fitted",
    "kept_rows",
    "marked_template",
    "nothing_left",
    "row_of",
    "rows_seen",
    "seen",
    "stated",
    "stream_texts",
]

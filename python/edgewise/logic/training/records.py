"""Records of training data: their formats in files, and their fields.

The names are TRL's: `messages`, `prompt` and `completion`, `text`, and for preferences `chosen`,
`rejected` and `label`. ShareGPT's and Alpaca's fields become these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ...errors import InputError
from ..native import meant, number_of, option, setting, written

Format = Literal["jsonl", "csv", "text"]
FORMATS: tuple[Format, ...] = ("jsonl", "csv", "text")
Record = dict[str, Any]

MAX_RECORDS = 1_000_000
"""Records of a file. More of them take days in a page."""
ROLES = ("system", "developer", "user", "assistant", "tool")
# Names of roles in ShareGPT's files.
SPEAKERS = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "function_response": "tool",
}
_FIELDS = (
    "Give messages; prompt and completion; text; conversations (ShareGPT); or instruction and"
    " output (Alpaca)."
)
_ALPACA = (
    "Below is an instruction that describes a task{0}. Write a response that appropriately"
    " completes the request.\n\n### Instruction:\n"
)


def format_of(name: str, text: str) -> Format:
    """The format of a file: by its name, else by its first character."""
    low = name.lower()
    if low.endswith(".csv"):
        return "csv"
    if low.endswith((".jsonl", ".json", ".ndjson")):
        return "jsonl"
    if low.endswith((".txt", ".md")):
        return "text"
    first = text[:1000].strip()[:1]
    return "jsonl" if first in ("{", "[") and first else "text"


def check_format(format: object) -> Format:
    """A format that was given. Raises InputError: there is no such format."""
    for one in FORMATS:
        if format == one:
            return one
    raise InputError(
        f"there is no format {written(format)[:80]}",
        option("format"),
        f"Give {', '.join(FORMATS)}.",
    )


def read_records(text: str, format: Format, where: str) -> list[Record]:
    """The records of a file.

    Args:
        text: of the file.
        format: "jsonl": an object of JSON in each line, one list of them, or one object; "csv":
            fields separated by commas, with their names in the first line; "text": one record,
            `text`.
        where: name of the file, for errors.

    Raises:
        InputError: it has none, too many, or one that cannot be read; the message says which.
    """
    text = text.removeprefix("\ufeff")
    if len(text.strip()) == 0:
        raise InputError("it is empty", where, "Give at least one record.")
    if format == "text":
        return [{"text": text}]
    lines = text.count("\n") + 1
    if lines > MAX_RECORDS + 2:
        raise InputError(
            f"it has {lines} lines; at most {MAX_RECORDS} records are read",
            where,
            "Take a part of it: a page learns from some thousands of records in a day.",
        )
    records = _csv(text, where) if format == "csv" else _json(text, where)
    if not records:
        raise InputError("it has no records", where, "Give at least one record.")
    return records


def _json(text: str, where: str) -> list[Record]:
    if text.strip()[:1] == "[":
        value, fits = number_of(text)
        if not fits or not isinstance(value, list):
            raise InputError("it is not a list of JSON", where, "Is it complete?")
        listed: list[object] = value
        return [_object(x, f"{where}, record {i + 1}") for i, x in enumerate(listed)]
    records: list[Record] = []
    for i, line in enumerate(text.split("\n")):
        line = line.strip()
        if line:
            value, fits = number_of(line)
            if not fits and not records:  # it may be one object with line breaks
                whole, is_whole = number_of(text)
                if is_whole:
                    return [_object(whole, where)]
            if not fits:
                raise InputError(
                    f"{written(line)[:80]} is not JSON",
                    f"{where}, line {i + 1}",
                    "Each line is an object, such as"
                    ' {"messages": [{"role": "user", "content": "..."}, ...]}.',
                )
            records.append(_object(value, f"{where}, line {i + 1}"))
    return records


def _object(value: object, where: str) -> Record:
    if not isinstance(value, dict):
        raise InputError(f"{written(value)[:80]} is not an object", where, _FIELDS)
    record: Record = value
    return record


def _csv(text: str, where: str) -> list[Record]:
    """Records of RFC 4180: fields may be in quotes, in which quotes are doubled."""
    rows = [row for row in _rows(text, where) if len(row) > 1 or row[0].strip()]
    names = [name.strip() for name in rows[0]]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InputError(
                f"its first line names {written(name)} twice",
                where,
                "Give each field its own name.",
            )
    for mark in (";", "\t"):
        if len(names) == 1 and mark in names[0]:
            raise InputError(
                f"the names in its first line are separated by {written(mark)}",
                where,
                "Separate fields by commas.",
            )
    records: list[Record] = []
    for i, fields in enumerate(rows[1:]):
        if len(fields) != len(names):
            raise InputError(
                f"it has {len(fields)} fields; the first line names {len(names)}",
                f"{where}, record {i + 1}",
                "Put fields with commas or line breaks into quotes.",
            )
        record: Record = {}
        for name, field in zip(names, fields):
            record[name] = field
        records.append(record)
    return records


def _rows(text: str, where: str) -> list[list[str]]:
    """The fields of each line. Fields in quotes may have several lines."""
    rows: list[list[str]] = []
    row: list[str] = []
    quoted: list[str] = []  # parts of a field in quotes
    opened = False
    for line in text.split("\n"):
        pieces = line.split(",")
        for i, piece in enumerate(pieces):
            last = i == len(pieces) - 1
            if not opened and not piece.startswith('"'):
                row.append(piece.removesuffix("\r") if last else piece)
                continue
            quotes = piece.count('"')
            if opened:
                quoted.append(piece)
            else:
                quoted = [piece[1:]]
                quotes -= 1
            opened = quotes % 2 == 0
            if opened:
                quoted.append("\n" if last else ",")
            else:
                field = "".join(quoted)
                field = field.removesuffix("\r") if last else field
                row.append(_unquoted(field, f"{where}, record {len(rows)}"))
        if not opened:
            rows.append(row)
            row = []
    if opened:
        raise InputError("a quote is not closed", f"{where}, record {len(rows)}", 'Write "" for ".')
    return rows


def _unquoted(field: str, where: str) -> str:
    """A field from its opening quote on."""
    inner = field[:-1]
    if not field.endswith('"') or '"' in inner.replace('""', ""):
        raise InputError(
            "a field goes on after its closing quote",
            where,
            'Write "" for ", and separate fields by commas.',
        )
    return inner.replace('""', '"')


# Fields


def normal(record: Record, chats: bool, where: str) -> Record:
    """A record with TRL's fields: `messages`; `prompt` and `completion`; `text`.

    Args:
        record: with these fields, ShareGPT's `conversations`, or Alpaca's `instruction`, `input`
            and `output`.
        chats: whether the model has a chat template. Otherwise Alpaca's own prompt is used.
        where: for errors.

    Raises:
        InputError: it has other fields, or one has another form.
    """
    made: Record = {}
    if "messages" in record or "conversations" in record:
        given: object = record.get("messages", record.get("conversations"))
        made["messages"] = check_messages(given, where)
        if record.get("tools") is not None:
            made["tools"] = record["tools"]
    elif "prompt" in record and "completion" in record:
        made["prompt"] = part_of(record, "prompt", where)
        made["completion"] = part_of(record, "completion", where)
        _alike(made, "prompt", "completion", where)
    elif "instruction" in record and "output" in record:
        made = _alpaca(record, chats, where)
    elif "text" in record:
        made["text"] = text_of(record, "text", where)
    elif "chosen" in record and "rejected" in record:
        raise InputError(
            "it is a preference", where, f"Give {setting('loss', 'dpo')}, or another loss of them."
        )
    else:
        names = list(record)
        raise InputError(
            f"its fields are {', '.join(names)[:120] or 'none'}",
            where,
            meant(names[0], ["messages", "prompt", "text"], _FIELDS) if names else _FIELDS,
        )
    return made


def text_of(record: Record, name: str, where: str) -> str:
    """A field that is a text. Raises InputError: it is none."""
    value: object = record.get(name)
    if not isinstance(value, str):
        raise InputError(f"{name} is {written(value)[:80]}", where, "Give a text.")
    return value


def part_of(record: Record, name: str, where: str) -> str | list[Record]:
    """A field that is a text, or messages. Raises InputError: it is neither."""
    value: object = record.get(name)
    return value if isinstance(value, str) else check_messages(value, where)


def _alike(record: Record, one: str, other: str, where: str) -> None:
    if isinstance(record[one], str) != isinstance(record[other], str):
        raise InputError(
            f"one of {one} and {other} is a text, the other one messages",
            where,
            "Give both as texts, or both as messages.",
        )


def check_messages(value: object, where: str) -> list[Record]:
    """Messages with `role` and `content`; those of ShareGPT have `from` and `value`.

    Raises:
        InputError: there are none, or one has another form.
    """
    if not isinstance(value, list) or len(value) == 0:
        raise InputError(
            f"{written(value)[:80]} is not a list of messages",
            where,
            'Give [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}].',
        )
    given: list[object] = value
    made: list[Record] = []
    for i, message in enumerate(given):
        place = f"{where}, message {i + 1}"
        if not isinstance(message, dict):
            raise InputError(f"{written(message)[:80]} is not a message", place, "Give an object.")
        one: Record = message
        role: object = one.get("role", one.get("from"))
        if isinstance(role, str) and role in SPEAKERS:
            role = SPEAKERS[role]
        if role not in ROLES:
            raise InputError(
                f"its role is {written(role)[:80]}", place, f"Roles are {', '.join(ROLES)}."
            )
        if "from" in one and "role" not in one:
            one = {"role": role, "content": one.get("value")}
        content: object = one.get("content")
        if not isinstance(content, (str, list)) and "tool_calls" not in one:
            raise InputError(f"its content is {written(content)[:80]}", place, "Give a text.")
        made.append({**one, "role": role})
    return made


def _alpaca(record: Record, chats: bool, where: str) -> Record:
    """Alpaca's fields as messages, or in the prompt that Alpaca was trained with."""
    instruction, answer = text_of(record, "instruction", where), text_of(record, "output", where)
    more = text_of(record, "input", where) if record.get("input") else ""
    made: Record = {}
    if chats:
        asked = instruction + ("\n\n" + more if more else "")
        messages: list[Record] = [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": answer},
        ]
        if record.get("system"):
            messages.insert(0, {"role": "system", "content": text_of(record, "system", where)})
        made["messages"] = messages
        return made
    paired = ", paired with an input that provides further context" if more else ""
    prompt = _ALPACA.replace("{0}", paired) + instruction
    prompt += f"\n\n### Input:\n{more}" if more else ""
    made["prompt"] = prompt + "\n\n### Response:\n"
    made["completion"] = answer
    return made


def are_records(data: Sequence[object], where: str) -> bool:
    """Whether data are records: objects.

    Raises:
        InputError: a part of them is; the message says which is not.
    """
    others = [i for i, one in enumerate(data) if not isinstance(one, dict)]
    if len(others) == len(data):
        return False
    if others:
        raise InputError(
            f"{written(data[others[0]])[:80]} is not a record, as others are",
            f"{where}, record {others[0] + 1}",
            "Give records, or texts, alone.",
        )
    return True

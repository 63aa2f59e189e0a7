"""The calls in the part of an answer that has them, by the way a family of models writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..native import listed
from .values import Call, Reader, Unread, check_name, json_of

Body = Literal[
    "json", "function", "python", "gemma", "mistral", "deepseek", "llama", "functools", "bare"
]
"""How calls are written: as JSON or XML; that without its beginning; as in Python; and others."""

GEMMA_QUOTES = ("<escape>", '<|"|>')
DEEPSEEK_CALL = "<\uff5ctool\u2581call\u2581begin\uff5c>"
DEEPSEEK_PART = "<\uff5ctool\u2581sep\uff5c>"
DEEPSEEK_END = "<\uff5ctool\u2581call\u2581end\uff5c>"
ARGS = "[ARGS]"
CALL_ID = "[CALL_ID]"


def calls_of(body: Body, text: str, tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    """The calls in a text; none if it is not what it should be, or no JSON can have its numbers.

    Args:
        body: how they are written.
        text: without the marks around it.
        tools: as `tools_of` returns them.
    """
    try:
        found = _read(body, text.strip(), tools)
        for call in found:
            json_of(call.arguments)
        return found
    except Unread:
        return []


def _read(body: Body, text: str, tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    if body == "function":
        return _functions("<function=" + text, tools)
    if body == "python":
        return _of_json(text) if text.startswith(("{", "[{")) else _of_python(text, tools)
    if body == "bare":
        return _known(_of_python(text, tools) if text.startswith("[") else _of_json(text), tools)
    if body == "functools":
        return _of_json("[" + text)
    if body == "gemma":
        return _of_gemma(text, tools)
    if body == "mistral":
        return _of_json(text) if text.startswith("[{") else _of_mistral(text)
    if body == "deepseek":
        return _of_deepseek(text)
    if body == "llama" and not text.startswith("{"):
        return [_builtin(text)]
    return _functions(text, tools) if text.startswith("<function=") else _of_json(text)


def _known(calls: list[Call], tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    """Calls without marks, all of which have to be of tools: they may be any JSON."""
    names: set[str] = set()
    for tool in tools:
        function: dict[str, Any] = tool["function"]
        names.add(function["name"])
    return calls if all(c.name in names for c in calls) else []


def _of_json(text: str) -> list[Call]:
    """Objects, or a list of them: {"name", "arguments" or "parameters"}. Text after them is left
    out.
    """
    reader = Reader(text)
    found: list[Call] = []
    while reader.peek() in ("{", "[") or (reader.peek() != "" and len(found) == 0):
        value = reader.json()
        items: list[Any] = value if isinstance(value, list) else [value]
        found.extend([_call(item) for item in items])
        while reader.peek() in (";", ","):
            reader.at += 1
    return found


def _call(item: Any) -> Call:
    if not isinstance(item, dict):
        raise Unread("a call is no object")
    inner: Any = item.get("function")
    if isinstance(inner, dict):
        return _call(inner)
    name: Any = item.get("name", inner)
    if not isinstance(name, str) or name == "":
        raise Unread("a call has no name")
    given: Any = item.get("arguments")
    if given is None:
        given = item.get("parameters")
    return Call(name, _arguments(given))


def _arguments(given: Any) -> dict[str, Any]:
    """The arguments of a call, which may be an object, or its text."""
    value = given
    if isinstance(given, str):
        value = Reader(given).json() if given.strip() != "" else None
    if value is None:
        nothing: dict[str, Any] = {}
        return nothing
    if not isinstance(value, dict):
        raise Unread("arguments are no object")
    return value


def _functions(text: str, tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    """<function=name><parameter=key>value</parameter></function>"""
    found: list[Call] = []
    for part in text.split("<function=")[1:]:
        name, close, rest = part.partition(">")
        if close == "" or name.strip() == "":
            raise Unread("a call has no name")
        kinds = properties_of(name.strip(), tools)
        fields: dict[str, Any] = {}
        for field in rest.partition("</function>")[0].split("<parameter=")[1:]:
            key, _, after = field.partition(">")
            value = after.partition("</parameter>")[0].removeprefix("\n").removesuffix("\n")
            check_name(key.strip())
            fields[key.strip()] = typed(value, kinds.get(key.strip()))
        found.append(Call(name.strip(), fields))
    return found


def properties_of(name: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The schemas of a tool's arguments."""
    for tool in tools:
        function: dict[str, Any] = tool["function"]
        if function["name"] == name:
            parameters: dict[str, Any] = function["parameters"]
            found: Any = parameters.get("properties")
            if isinstance(found, dict):
                return found
    none: dict[str, Any] = {}
    return none


def typed(text: str, schema: Any) -> Any:
    """A text as a value of a schema's type; the text if it is a string, or no such value."""
    if is_text(schema):
        return text
    kinds = _kinds(schema)
    bare = text.strip()
    lowered = bare.lower()
    if lowered in ("true", "false") and "boolean" in kinds:
        return lowered == "true"
    if lowered in ("null", "none") and "null" in kinds:
        return None
    value: Any = text
    try:
        value = _whole(bare, True)
    except Unread:
        try:
            value = _whole(bare, False)
        except Unread:
            return text
    return text if "string" in kinds and _kind(value) not in kinds else value


def is_text(schema: Any) -> bool:
    """Whether values of a schema are texts alone."""
    kinds = _kinds(schema)
    return len(kinds) == 0 or (len(kinds) == 1 and kinds[0] == "string")


def _whole(text: str, is_json: bool) -> Any:
    """A value that is all of a text. is_json: otherwise as Python writes it. Raises Unread."""
    reader = Reader(text)
    value = reader.json() if is_json else reader.value()
    if reader.peek() != "":
        raise Unread("more follows")
    return value


def _kinds(schema: Any) -> list[str]:
    """The types of a schema, and of its alternatives."""
    if not isinstance(schema, dict):
        return []
    own: dict[str, Any] = schema
    kind: Any = own.get("type")
    found: list[str] = [kind] if isinstance(kind, str) else []
    found.extend([k for k in listed(kind) or [] if isinstance(k, str)] if kind != "" else [])
    for name in ("anyOf", "oneOf"):
        for one in listed(own.get(name)) or []:
            found.extend(_kinds(one))
    return found


def _kind(value: Any) -> str:
    """The type of a value in schemas; "number" for all numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    return "array" if listed(value) is not None else "number"


def _of_python(text: str, tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    """[f(a=1), g()], or a call per line."""
    reader = Reader(text)
    listed = reader.take("[")
    found: list[Call] = []
    while reader.peek() not in ("", "]"):
        name = reader.name()
        reader.need("(")
        if name == "print":
            name = reader.name()
            reader.need("(")
            found.append(Call(name, _python_arguments(reader, name, tools)))
            reader.need(")")
        else:
            found.append(Call(name, _python_arguments(reader, name, tools)))
        while reader.peek() in (",", ";"):
            reader.at += 1
    if listed:
        reader.need("]")
    return found


def _python_arguments(
    reader: Reader, name: str, tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Arguments up to a bracket; those without names are in the order of the schema."""
    names = list(properties_of(name, tools))
    found: dict[str, Any] = {}
    count = 0
    while not reader.take(")"):
        start = reader.at
        key = ""
        if _is_letter(reader.peek()):
            key = reader.name()
        if key != "" and reader.take("="):
            check_name(key)
            found[key] = reader.value()
        else:
            reader.at = start
            if count >= len(names):
                raise Unread("an argument has no name")
            found[names[count]] = reader.value()
        count += 1
        if not reader.take(","):
            reader.need(")")
            break
    return found


def _is_letter(c: str) -> bool:
    return c.isalpha() or c == "_"


def _of_gemma(text: str, tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    """call:name{key:<escape>value<escape>}, where FunctionGemma puts any value between marks."""
    reader = Reader(text, GEMMA_QUOTES)
    found: list[Call] = []
    while reader.peek() != "":
        if reader.name() != "call":
            raise Unread("it is no call")
        reader.need(":")
        name = reader.name()
        reader.need("{")
        kinds = properties_of(name, tools)
        fields: dict[str, Any] = {}
        for key, value in reader.fields("}", ":").items():
            fields[key] = typed(value, kinds.get(key)) if isinstance(value, str) else value
        found.append(Call(name, fields))
        reader.take(",")
    return found


def _of_mistral(text: str) -> list[Call]:
    """name[ARGS]{...}, name[CALL_ID]id[ARGS]{...} or name{...}; one after the other."""
    reader = Reader(text)
    found: list[Call] = []
    while len(found) == 0 or reader.peek() != "":
        name = reader.name()
        before = reader.until("{")
        if ARGS in before:
            before = before.partition(ARGS)[2]
        if before.strip() != "":
            raise Unread("a call has no arguments")
        found.append(Call(name, _arguments(reader.json())))
        reader.take(",")
    return found


def _of_deepseek(text: str) -> list[Call]:
    """The forms of V3 (function, mark, name, a block of JSON) and V3.1 (name, mark, JSON)."""
    found: list[Call] = []
    for part in text.split(DEEPSEEK_CALL)[1:]:
        first, mark, second = part.partition(DEEPSEEK_END)[0].partition(DEEPSEEK_PART)
        if mark == "":
            raise Unread("a call has no name")
        if first.strip() == "function":
            name, _, block = second.partition("\n")
            given = block.strip().removeprefix("```json").removesuffix("```")
        else:
            name, given = first, second
        if name.strip() == "":
            raise Unread("a call has no name")
        found.append(Call(name.strip(), _arguments(given)))
    return found


def _builtin(text: str) -> Call:
    """Llama's own tools: brave_search.call(query="...")"""
    reader = Reader(text)
    name = reader.name()
    if not name.endswith(".call"):
        raise Unread("it is no call")
    reader.need("(")
    return Call(name.removesuffix(".call"), reader.fields(")", "="))


def arguments_of_text(text: str) -> Any:
    """The value of arguments that are a text, as in OpenAI's API; the text if it is not JSON."""
    try:
        return _whole(text, True)
    except Unread:
        return text

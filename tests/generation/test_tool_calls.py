"""Calls whose arguments are constrained by their schema: random texts that the grammar of each
family allows are read by its parser, and their arguments satisfy the schema.
"""

import random
import re

import pytest
from edgewise.errors import InputError, UnsupportedField
from edgewise.logic.grammar.constraint import Formats
from edgewise.logic.grammar.vocabulary import alphabet_of
from edgewise.logic.tools.choice import calls_format, choice_of
from edgewise.logic.tools.definitions import tools_of
from edgewise.logic.tools.families import all_marks, family_of, marks_of
from edgewise.logic.tools.parser import parser_of

from .grammars import ENGINE, Walk, _alphabet

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 6, "pattern": "^[A-Z][a-z ']*$"},
        "days": {"type": "integer", "minimum": -9, "maximum": 12},
        "unit": {"enum": ["C", "F"]},
        "wind": {"type": ["boolean", "null"]},
        "list": {"type": "array", "items": {"type": "number"}, "maxItems": 2},
        "place": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "name": {"type": "string", "maxLength": 4}},
            "required": ["lat"],
            "additionalProperties": False,
        },
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = tools_of(
    [
        {"name": "get_weather", "parameters": SCHEMA},
        {"name": "now", "parameters": {"type": "object", "additionalProperties": False}},
    ]
)


def check(call):
    """Checks a call by what the schema says."""
    given = call.arguments
    if call.name == "now":
        assert given == {}
        return
    assert call.name == "get_weather"
    assert {"city", "days"} <= set(given) <= set(SCHEMA["properties"])
    assert re.fullmatch("[A-Z][a-z ']{0,5}", given["city"])
    assert type(given["days"]) is int and -9 <= given["days"] <= 12
    assert given.get("unit", "C") in ("C", "F")
    assert given.get("wind") in (True, False, None)
    numbers = given.get("list", [])
    assert len(numbers) <= 2 and all(type(n) in (int, float) for n in numbers)
    place = given.get("place", {"lat": 0})
    assert {"lat"} <= set(place) <= {"lat", "name"} and type(place["lat"]) in (int, float)
    assert len(place.get("name", "")) <= 4


SIGNS = {
    "hermes": "<tool_call>",
    "coder": "<function=",
    "llama": "<|start_header_id|>",
    "mistral": "[TOOL_CALLS]",
    "lfm2": "<|tool_list_start|>",
    "functiongemma": "<start_function_call>",
    "gemma4": "<tool_call|>",
    "list": "<|tool_call|>",
    "deepseek": "<\uff5ctool\u2581calls\u2581begin\uff5c>",
    "harmony": "<|channel|>analysis",
    "gemma": "<start_of_turn>",
    "json": "",
}


class Tokens:
    """Bytes, an end, and marks that are added tokens."""

    def __init__(self, marks):
        self.marks = dict(enumerate(marks, 257))
        added = [{"id": i, "content": mark} for i, mark in self.marks.items()]
        alphabet = alphabet_of({"decoder": {"type": "ByteLevel"}, "added_tokens": added})
        letters = dict(enumerate(_alphabet()))
        self.formats = Formats(ENGINE, 257 + len(self.marks), alphabet, letters.get)

    def sample(self, form, draw, prefix=b"", most=1500):
        """A random text, which ends the sooner the longer it is."""
        walk, made = Walk(self.formats, form, 256), [prefix]
        try:
            for byte in prefix:
                walk.take(byte)
            for n in range(most):
                ids, _ = walk.allowed()
                assert ids
                closing = [i for i in ids if i >= 256 or i in b"\"'}])<`\n"]
                if closing and draw.random() < 0.2 + n / 100:
                    ids = [256] if 256 in closing and n > 100 else closing
                token = draw.choice([i for i in ids if i < 127 or i >= 256] or ids)
                if token == 256:
                    return b"".join(made).decode()
                made.append(self.marks[token].encode() if token > 256 else bytes([token]))
                walk.take(token)
            return None
        finally:
            walk.close()


def parsed(family, text, thinking=False):
    parser = parser_of(family, TOOLS, thinking)
    return [*parser.push(text), *parser.end()]


@pytest.mark.parametrize("name", sorted(SIGNS))
@pytest.mark.parametrize("are_tokens", [True, False], ids=["tokens", "texts"])
def test_calls_are_valid(name, are_tokens):
    family = family_of(SIGNS[name], [])
    assert family.name == name
    marks = marks_of(family) if are_tokens or name in ("harmony", "gemma4", "functiongemma") else []
    marks = list(dict.fromkeys(marks))
    tokens = Tokens(marks)
    draw = random.Random(name)
    try:
        for wanted, parallel in (("required", True), ("required", False), (":now", True)):
            for thinking in (False, are_tokens and name in ("hermes", "coder", "deepseek")):
                form = calls_format(family, TOOLS, wanted, parallel, thinking, marks, "")
                made = 0
                for _ in range(6):
                    text = tokens.sample(form, draw)
                    if text is None:
                        continue
                    made += 1
                    calls = [d for d in parsed(family, text, thinking) if d.kind == "call"]
                    assert calls and (parallel or len(calls) == 1), text
                    assert not [d for d in parsed(family, text, thinking) if d.kind == "text"], text
                    for call in calls:
                        check(call)
                        assert wanted == "required" or call.name == "now"
                assert made > 2
    finally:
        tokens.formats.free()


@pytest.mark.parametrize("name", ["hermes", "lfm2", "llama", "coder"])
def test_strict_tools_are_valid_where_they_are_called(name):
    """With "auto", an answer may be any text; a call in it satisfies the schema."""
    family = family_of(SIGNS[name], [])
    marks = list(dict.fromkeys(marks_of(family)))
    tools = [{**t, "function": {**t["function"], "strict": True}} for t in TOOLS]
    form = calls_format(family, tools, "auto", True, False, marks, "")
    tokens = Tokens(marks)
    draw = random.Random(name)
    seen = set()
    try:
        for text in ("It is sunny.", "a < b", ""):
            walk = Walk(tokens.formats, form, 256)
            assert walk.accepts(text.encode())
            walk.close()
        for _ in range(30):
            text = tokens.sample(form, draw, b"{" if name == "llama" else b"")
            calls = [d for d in parsed(family, text or "") if d.kind == "call"]
            seen.add(bool(calls))
            for call in calls:
                check(call)
        assert True in seen
    finally:
        tokens.formats.free()


def test_what_cannot_be_constrained_is_refused():
    family = family_of("<tool_call>", [])
    for parameters, error, words in (
        (
            {
                "properties": {"a": {"type": "string", "minLength": 3, "maxLength": 1}},
                "required": ["a"],
            },
            InputError,
            "no arguments satisfy the schema",
        ),
        ({"type": "object", "unevaluatedProperties": False}, UnsupportedField, "tools, now, #"),
        ({"type": "array"}, InputError, "tools, now: its parameters are of the type 'array'"),
    ):
        tools = tools_of([{"name": "now", "parameters": parameters}])
        form = calls_format(family, tools, "required", True, False, all_marks(), "")
        tokens = Tokens([])
        with pytest.raises(error, match=words):
            tokens.formats.format(form)
        tokens.formats.free()
    assert choice_of(None, ["a"]) == "auto"
    assert choice_of({"type": "function", "function": {"name": "a"}}, ["a"]) == ":a"
    assert choice_of({"type": "function", "name": "a"}, ["a"]) == ":a"
    for wrong, words in (("any", "it is"), ({"name": "b"}, "there is no tool b"), (3, "it is 3")):
        with pytest.raises(InputError, match=words):
            choice_of(wrong, ["a"])

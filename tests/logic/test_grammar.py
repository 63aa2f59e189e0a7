"""Formats of generated text in both forms: the tables of both are the same, and tests/generation
compares those of Python with other libraries. Values of JSON that is cut are those of `json`.
"""

import json
import random

import pytest
from edgewise.errors import EdgewiseError
from edgewise.logic.grammar import response_format as python

from tests.generation.json_values import random_schema
from tests.generation.make_grammar_masks import FORMATS

from .forms import both, module

GRAMMARS = [
    {"type": "grammar", "grammar": 'root ::= "a" [^b-d]{2,9} | "é" (root | "x"){5}\n'},
    {"type": "grammar", "syntax": "lark", "grammar": 'start: start "+" A | A\nA: /[0-9]+/i'},
    {"type": "choices", "choices": ["yes", "no", "日本"]},
    {"type": "regex", "regex": "(a|[^\\W_]{3,80})*\\u{1F600}"},
    {"type": "json_object"},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}, "y$": {}}},
]


@both
def test_tables(form):
    rules = module(form, "grammar.response_format")
    draw = random.Random(7)
    forms = [*FORMATS, *GRAMMARS, *[random_schema(draw) for _ in range(40)]]
    compared = 0
    for one in forms:
        if "type" not in one:
            one = {"type": "json_schema", "schema": one}
        try:
            expected = python.compiled(one)
        except EdgewiseError as error:
            with pytest.raises(type(error)) as found:
                rules.compiled(one)
            assert str(found.value).split(", but is")[0] == str(error).split(", but is")[0]
            continue
        assert tuple(rules.compiled(one)) == tuple(expected), one
        compared += 1
    assert compared > 60


@both
def test_values_of_json_that_is_cut(form):
    partial = module(form, "grammar.partial")
    value = {"a": [1, -2.5e3, True, None, 'q"\\\n\u00e9\U0001f600'], "b": {"c": {}}, "d": "x"}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert partial.parsed(text) == value
        for end in range(len(text)):
            found = partial.parsed(text[:end])
            assert found is None or (found.keys() <= value.keys())
    for text, expected in (
        ('{"a": [1, 2', {"a": [1]}),
        ('{"a": "b\\', {"a": "b"}),
        ('{"a": "b\\ud83d\\ude0', {"a": "b"}),
        ('{"a": tru', {}),
        ('{"a"', {}),
        ("[1, ", [1]),
        ("", None),
        ("12", 12),
    ):
        assert partial.parsed(text) == expected, text
    for given, expected in (
        ({"type": "json_object"}, True),
        ({"properties": {}}, True),
        ({"type": "regex"}, False),
        (None, False),
    ):
        assert partial.is_json(given) is expected


@both
def test_bytes_of_tokens(form):
    """As the `tokenizers` library decodes them."""
    import tokenizers

    vocabulary = module(form, "grammar.vocabulary")
    byte_level = tokenizers.decoders.ByteLevel()
    fallback = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("\u2581", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
        ]
    )
    replaced = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    several = {"type": "Sequence", "decoders": [replaced, {"type": "ByteFallback"}]}
    for decoder, json_form, tokens in (
        (byte_level, {"type": "ByteLevel"}, ["\u0120the", "\u00c3\u00a9", "\u010a", "a\u2581"]),
        (fallback, several, ["\u2581the\u2581", "<0x41>", "\u00e9", "<0xZZ>", "<0x410>"]),
    ):
        alphabet = vocabulary.alphabet_of({"decoder": json_form, "added_tokens": [{"id": 9}]})
        assert alphabet.added == [9]
        ends, data = vocabulary.vocabulary_of(
            10, alphabet, lambda i, tokens=tokens: tokens[i] if i < len(tokens) else "x"
        )
        assert ends[9] == ends[8] == len(data)
        for i, token in enumerate(tokens):
            expected = decoder.decode([token]).encode()
            assert bytes(data[ends[i - 1] if i else 0 : ends[i]]) == expected, token
    broken = vocabulary.alphabet_of({"decoder": {"type": "WordPiece"}, "added_tokens": []})
    with pytest.raises(EdgewiseError, match="not parts of a text"):
        vocabulary.vocabulary_of(3, broken, lambda i: "x")

"""Formats of generated text: JSON schemas against the official suite, masks against those of
llguidance, and what they do together with the options of a generation.
"""

import functools
import itertools
import json
import pathlib
import random
import re
import threading

import edgewise
import pytest
from edgewise.errors import EdgewiseError, InputError, UnsupportedField
from edgewise.logic.grammar.constraint import Machine, key_of
from edgewise.logic.grammar.partial import parsed
from edgewise.logic.grammar.response_format import compiled
from edgewise.text import TextStreamer

from .grammars import ENGINE, Bytes, Masks
from .json_values import known, random_schema, same, valid
from .make_grammar_masks import FILE, FORMATS, PERSON, TOKENIZER, TREE, digest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITE = json.loads((FILE.parent / "json_schema_suite.json").read_text("utf-8"))
# Valid texts that a format leaves out: leap seconds, addresses with quotes or numbers, URIs
# without "//".
NARROW = ("format/time", "format/date-time", "format/email", "format/uri")
BYTES = functools.cache(Bytes)


def of_schema(schema, **more):
    return {"type": "json_schema", "json_schema": {"schema": schema}, **more}


def texts_of(value):
    """A value as JSON, with its properties in every order."""
    if isinstance(value, dict):
        entries = [[(name, one) for one in texts_of(x)] for name, x in value.items()]
        for order in itertools.permutations(entries):
            for some in itertools.product(*order):
                inside = [f"{json.dumps(k, ensure_ascii=False)}:{one}" for k, one in some]
                yield "{" + ",".join(inside) + "}"
    elif isinstance(value, list):
        for some in itertools.product(*[list(texts_of(x)) for x in value]):
            yield "[" + ",".join(some) + "]"
    elif isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        yield from (str(int(value)), repr(value))
    else:
        yield json.dumps(value, ensure_ascii=False)


def test_masks_are_those_of_llguidance():
    """Of 1000 random prefixes, in the vocabulary of the demo's model."""
    content = json.loads(TOKENIZER.read_text("utf-8"))
    masks = Masks(TOKENIZER, len(content["model"]["vocab"]), 0)
    wrong = []
    for number, prefix, count, expected in json.loads(FILE.read_text("utf-8")):
        found = masks.after(FORMATS[number], prefix)
        if (len(found), digest(found)) != (count, expected):
            wrong.append((FORMATS[number], prefix))
    assert not wrong


def test_schema_suite():
    """The cases of the official suite: a schema is refused by name, or has exactly the valid
    values.
    """
    counts = {"schemas": 0, "valid": 0, "invalid": 0}
    for name, schema, tests in SUITE:
        try:
            compiled(of_schema(schema))
        except UnsupportedField:
            continue
        except InputError as error:
            known = "refers to itself" in str(error) or "regular expression" in str(error)
            assert known or not any(fine for _, fine in tests), (name, schema, error)
            continue
        counts["schemas"] += 1
        for value, fine in tests:
            some = itertools.islice(texts_of(value), 200)
            found = any(BYTES().accepts(of_schema(schema), text) for text in some)
            if found != fine and fine and name.endswith(NARROW):
                continue
            if name in ("const", "ref") and value in (9007199254740992.0, 5):
                continue  # 2^53 with a point; a $ref that an $id moves
            assert found == fine, (name, schema, value)
            counts["valid" if fine else "invalid"] += 1
    assert counts["schemas"] > 150 and min(counts["valid"], counts["invalid"]) > 380


def test_the_tests_own_rules_are_those_of_the_suite():
    compared = 0
    for _, schema, tests in SUITE:
        if known(schema) and "\\\\" not in json.dumps(schema):  # escapes of Python differ
            for value, fine in tests:
                assert valid(schema, value) == fine, (schema, value)
                compared += 1
    assert compared > 150


@pytest.mark.parametrize("seed", range(4))
def test_random_schemas(seed):
    """Random texts of random schemas are valid."""
    draw, done = random.Random(seed), 0
    for _ in range(75):
        schema = random_schema(draw)
        space = draw.choice(["flexible", "compact"])
        try:
            text = BYTES().sample(of_schema(schema, whitespace=space), draw)
        except (UnsupportedField, InputError) as error:
            reasons = "values in common", "no finite value", "more than", "two different"
            assert any(reason in str(error) for reason in reasons), (schema, error)
            continue
        if text is not None:
            assert valid(schema, json.loads(text)), (schema, text)
            assert parsed(text) == json.loads(text)
            done += 1
    assert done > 40


def test_texts_of_patterns_and_formats():
    draw = random.Random(5)
    for source in ("[a-f]{2,4}x?", "(?:0|[1-9]\\d*)(?:\\.\\d+)?", "é+|日[本语]{1,3}", "a{20,300}b"):
        for _ in range(5):
            text = BYTES().sample({"type": "regex", "regex": source}, draw)
            assert text is None or re.fullmatch(source, text), (source, text)
    assert not BYTES().accepts({"type": "regex", "regex": "a{20,300}b"}, "a" * 19 + "b")
    assert not BYTES().accepts({"type": "regex", "regex": "a{20,300}b"}, "a" * 301 + "b")
    assert BYTES().accepts({"type": "regex", "regex": "a{20,300}b"}, "a" * 300 + "b")
    for form, fine, wrong in (
        ({"format": "date"}, "2024-02-29", "2023-02-29"),
        ({"format": "ipv6"}, "::ffff:1.2.3.4", "1::2::3"),
        ({"pattern": "^\\d{3}$"}, "123", "1234"),
        ({"minLength": 2, "maxLength": 2}, "é\U0001f600", "abc"),
    ):
        for text, expected in ((fine, True), (wrong, False)):
            found = BYTES().accepts(of_schema({"type": "string", **form}), json.dumps(text))
            found |= BYTES().accepts(of_schema({"type": "string", **form}), f'"{text}"')
            assert found == expected, (form, text)


LIST = 'root ::= "[" ws (item ("," ws item)*)? "]"\nitem ::= [a-z]+ | root\nws ::= " "?\n'
SUM = """
// a comment
start: sum
?sum: sum "+" product | product
product: product "*" atom | atom
atom: NUMBER | "(" sum ")" | "x"i~2..3
%import common.INT -> NUMBER
"""


@pytest.mark.parametrize(
    ("grammar", "syntax", "fine", "wrong"),
    [
        (LIST, "gbnf", ["[]", "[ a,[b, cd]]"], ["[a,]", "[a", "[A]"]),
        ('root ::= "\\x41" [^"\\\\\\n]{2,} "é" | . # x', "gbnf", ["Abcé", "日"], ["Abé", "A\né"]),
        ('root ::= (\n "a" |\n "b"\n)\n', "gbnf", ["a", "b"], ["ab", ""]),
        (SUM, "lark", ["1+2*(3+4)", "xX*1", "(xxx)"], ["1+", "x", "xxxx", "1 + 2"]),
        ('start: "a".."c" /[0-9]/i? [ "x" | "y" ]', "lark", ["a1x", "b", "c9"], ["d", "axy"]),
    ],
)
def test_grammars(grammar, syntax, fine, wrong):
    form = {"type": "grammar", "grammar": grammar, "syntax": syntax}
    for text in fine:
        assert BYTES().accepts(form, text), text
    for text in wrong:
        assert not BYTES().accepts(form, text), text


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"type": "array", "uniqueItems": True}, "#: the schema has 'uniqueItems'"),
        ({"properties": {"a": {"not": {}}}}, "#/properties/a: the schema has 'not'"),
        ({"typ": "object"}, "the schema has 'typ'"),
        ({"type": "string", "format": "zip"}, "the format 'zip' is not supported"),
        ({"$ref": "other.json"}, "refers to 'other.json'"),
        ({"$ref": "#/$defs/x"}, "there is no '#/\\$defs/x'"),
        ({"$ref": "#"}, "refers to itself without a property"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "refers to itself"),
        ({"required": ["a"], "properties": {"a": {"$ref": "#"}}, "type": "object"}, "no finite"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "no finite value"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "no finite value"),
        ({"type": "string", "pattern": "^a$", "minLength": 3}, "no finite value"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, "alternatives 0 and 1 of oneOf"),
        ({"type": "string", "pattern": "(?=a)b"}, "are not regular"),
        ({"type": "string", "pattern": "((a{99}){99}){99}b", "maxLength": 9}, "more than 10000"),
        ({"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for i in range(9)]} for j in range(9)]},
         "more than 500 alternatives"),
        ({"enum": list(range(20_001))}, "enum has 20001 values, and 20000 are the most"),
        ({"type": "jsonschema"}, "Did you mean 'json_schema'"),
        ({"type": "json_schema"}, 'an object with the member "schema"'),
        ({"type": "choices", "choices": []}, "a list of texts"),
        ({"type": "grammar", "grammar": "root ::= x"}, "there is no rule 'x'"),
        ({"type": "grammar", "grammar": "root ::= root \"a\" | \"b\""}, "can call itself"),
        ({"type": "grammar", "grammar": "root ::= \"a\" root"}, "no finite text"),
        ({"type": "grammar", "grammar": "root = x"}, "line 1.*'::=' is missing"),
        ({"type": "grammar", "syntax": "lark", "grammar": "a: b"}, "no rule 'start'"),
        ({"type": "grammar", "syntax": "lark", "grammar": "%ignore /x/"}, "%ignore is not supp"),
        ({"type": "regex", "regex": "a{3,2}"}, "3 is above 2"),
        ("json", "response_format has to be an object"),
        ({"type": "object", "default": {1, 2}}, "no JSON"),
    ],
)  # fmt: skip
def test_refusals(form, message):
    with pytest.raises(EdgewiseError, match="(?s)" + message):
        key_of(form)
        compiled(form)


def test_little_memory_and_ambiguous_grammars():
    """States that do not fit are found again. Readings without end are refused in words."""
    formats, draw = BYTES().formats, random.Random(3)
    format = formats.format(of_schema(TREE))
    spare, format.spare = format.spare, []
    try:
        text = BYTES().sample(of_schema(TREE), draw)
        format.spare = [Machine(ENGINE.alloc(300_000), 300_000)]
        assert BYTES().sample(of_schema(TREE), random.Random(3)) == text
    finally:
        format.spare += spare
    source = 'root ::= "a" root "b" | "a" root "c" | "a"'
    walk = BYTES().walk({"type": "grammar", "grammar": source})
    try:
        with pytest.raises(InputError, match="too many ways"):
            for _ in range(40):
                walk.allowed()
                walk.take(ord("a"))
    finally:
        walk.close()


@pytest.fixture(scope="module")
def write():
    return edgewise.pipeline("text-generation", ROOT / "web" / "demo" / "model")


MAIL = {"type": ["string", "null"], "maxLength": 20}
SCHEMA = {**PERSON, "properties": {**PERSON["properties"], "mail": MAIL}}
OPTIONS = {"max_new_tokens": 150, "return_full_text": False, "return_dict_in_generate": True}


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": False},
        {"seed": 1, "temperature": 3.0, "top_k": 0},
        {"seed": 2, "num_return_sequences": 3},
        {"do_sample": False, "num_beams": 4, "num_return_sequences": 2},
        {"seed": 3, "num_beams": 3},
        {"seed": 4, "min_new_tokens": 140},
        {"seed": 5, "logits_processor": lambda ids, scores: None},
        {"seed": 6, "repetition_penalty": 1.2, "no_repeat_ngram_size": 0, "use_cache": False},
    ],
)
def test_with_options_of_generation(write, options):
    results = write("Once", response_format=of_schema(SCHEMA), **OPTIONS, **options)
    assert len(results) == options.get("num_return_sequences", 1)
    for result in results:
        assert result["finish_reasons"] == "eos", result
        value = json.loads(result["generated_text"])
        assert valid(SCHEMA, value) and same(result["parsed"], value)
    again = write("Once", response_format=of_schema(SCHEMA), **OPTIONS, **options)
    assert again == results  # states and masks of the first call are used again


def test_ends(write):
    form = of_schema(SCHEMA)
    cut = write("Once", response_format=form, **{**OPTIONS, "max_new_tokens": 5}, seed=1)[0]
    assert cut["finish_reasons"] == "length" and isinstance(cut["parsed"], dict)
    stopped = write("Once", response_format=form, stop_strings=["age"], **OPTIONS, seed=1)[0]
    assert stopped["finish_reasons"] == "stop_string"
    assert stopped["generated_text"].endswith('"age')
    choice = {"type": "choices", "choices": ["yes", "no"]}
    for end in (None, 0):
        out = write("Once", response_format=choice, eos_token_id=end, **OPTIONS, seed=1)[0]
        assert out["generated_text"] in ("yes", "no") and out["finish_reasons"] == "eos"
    with pytest.raises(InputError, match="the model has none"):
        write("Once", response_format=choice, num_beams=2, eos_token_id=[], **OPTIONS)
    with pytest.raises(InputError, match="needs the tokens of a tokenizer"):
        edgewise.generate(write.model, [1, 2], response_format=choice)
    with pytest.raises(InputError, match="on_parsed needs a response_format of JSON"):
        write("Once", response_format=choice, on_parsed=print)
    plain = write("Once", response_format={"type": "text"}, **OPTIONS, seed=1)
    assert plain == write("Once", **OPTIONS, seed=1)


def test_values_while_they_are_written(write):
    values, pieces = [], []
    streamer = TextStreamer(write.tokenizer, True, pieces.append, skip_special_tokens=True)
    result = write(
        "Once",
        response_format=of_schema(SCHEMA),
        on_parsed=values.append,
        streamer=streamer,
        **OPTIONS,
        seed=1,
    )[0]
    assert values[-1] == result["parsed"] and len(values) > 3
    assert "".join(pieces) == result["generated_text"]
    for before, after in itertools.pairwise(values):
        assert before.keys() <= after.keys()


def test_several_threads(write):
    form, found = of_schema(SCHEMA), {}

    def work(seed):
        found[seed] = write("Once", response_format=form, **OPTIONS, seed=seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        assert found[seed] == write("Once", response_format=form, **OPTIONS, seed=seed)

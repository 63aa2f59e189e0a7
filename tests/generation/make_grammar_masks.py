"""Writes grammar_masks.json: the tokens that llguidance allows after random prefixes.

    python tests/generation/make_grammar_masks.py [tokenizer.json] [--check]

needs llguidance 1.9.1 and edgewise. Prefixes are random walks through llguidance's own masks.
`--check` compares with Edgewise's masks instead of writing, for a tokenizer that is not committed.
"""

import hashlib
import json
import pathlib
import random
import sys

HERE = pathlib.Path(__file__).parent
FILE = HERE / "grammar_masks.json"
TOKENIZER = HERE.parents[1] / "web" / "demo" / "model" / "tokenizer.json"
PREFIXES = 1000
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "mail": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"enum": ["a", "b\n", 'c"d']}, "maxItems": 4},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "number"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
SCHEMAS = [
    {"type": "object"},
    {},
    PERSON,
    TREE,
    {"type": "string"},
    {"type": "string", "pattern": "^[A-Z]{2,3}-\\d+$"},
    {"type": "string", "pattern": "x[^yz]+"},
    {"type": "string", "minLength": 3, "maxLength": 9, "pattern": "^a"},
    {"type": "string", "format": "uuid"},
    {"type": "integer", "minimum": -37, "maximum": 1250},
    {"type": "number", "minimum": 0.5, "maximum": 2.25},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 5},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"const": "x"}], "items": False},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "null"}}]},
    {"allOf": [PERSON, {"properties": {"age": {"minimum": 18}}, "required": ["mail"]}]},
    {"enum": ["one", "two", 3, None, {"a": [1, 2]}]},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"a": {}, "ab": {}}, "required": ["ab"]},
]
FORMATS = [
    *[
        {"type": "json_schema", "json_schema": {"schema": schema}, "whitespace": space}
        for schema in SCHEMAS
        for space in ("flexible", "compact")
    ],
    {"type": "regex", "regex": "(?:yes|no)[!?]{1,3}"},
    {"type": "regex", "regex": "[a-zA-Z ]{5,40}\\."},
    {"type": "regex", "regex": "[^\\n]*é[0-9]+"},
    {
        "type": "grammar",
        "syntax": "lark",
        "grammar": 'start: sum\nsum: sum "+" item | item\nitem: /[0-9]+/ | "(" sum ")"\n',
    },
    {
        "type": "grammar",
        "grammar": 'root ::= "the " ("cat" | "dog")+ tail\ntail ::= " sat" | " ran" [.!]\n',
        "lark": 'start: "the " ("cat" | "dog")+ tail\ntail: " sat" | " ran" /[.!]/\n',
    },
]


def reference(form):
    """A format as llguidance takes it. It would otherwise allow one token alone where characters
    are the only ones, as the tokenizer writes them.
    """
    from llguidance import LLMatcher

    if form["type"] == "regex":
        source = f"start: /{form['regex']}/"
    elif form["type"] == "grammar":
        source = form.get("lark", form["grammar"])
    else:
        options = {"whitespace_flexible": form["whitespace"] == "flexible"}
        schema = {"x-guidance": options, **form["json_schema"]["schema"]}
        source = f"start: %json {json.dumps(schema)}"
    return LLMatcher.grammar_from_lark('%llguidance {"no_forcing": true}\n' + source)


def allowed(matcher, count):
    """Ids of the tokens that a matcher allows."""
    mask = matcher.compute_bitmask()
    return [i for i in range(count) if mask[i // 8] >> (i % 8) & 1]


def digest(ids):
    """What is kept of a mask."""
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16]


def rows(tokenizer, end, count):
    """[number of the format, prefix, allowed tokens] for each prefix."""
    from llguidance import LLMatcher

    draw = random.Random(1)
    grammars = [reference(form) for form in FORMATS]
    made = 0
    while made < PREFIXES:
        number = made % len(FORMATS)
        matcher = LLMatcher(tokenizer, grammars[number], log_level=0)
        prefix = []
        for _ in range(draw.randrange(14)):
            ids = [i for i in allowed(matcher, count) if i != end]
            if not ids:
                break
            short = [i for i in ids if len(tokenizer.decode_bytes([i])) < 3]
            prefix.append(draw.choice(short if short and draw.random() < 0.6 else ids))
            if not matcher.consume_token(prefix[-1]):
                raise SystemExit(matcher.get_error())
        yield number, prefix, allowed(matcher, count)
        made += 1


def main():
    from llguidance import LLTokenizer

    paths = [a for a in sys.argv[1:] if not a.startswith("-")]
    path = pathlib.Path(paths[0]) if paths else TOKENIZER
    text = path.read_text("utf-8")
    content = json.loads(text)
    ids = {token["content"]: token["id"] for token in content["added_tokens"]}
    end = ids["<|endoftext|>"]
    count = len(content["model"]["vocab"]) + sum(t not in content["model"]["vocab"] for t in ids)
    tokenizer = LLTokenizer(text, n_vocab=count, eos_token=end)
    if "--check" in sys.argv:
        from generation.grammars import Masks

        masks = Masks(path, count, end)
        different = 0
        for number, prefix, expected in rows(tokenizer, end, count):
            found = masks.after(FORMATS[number], prefix)
            if found != expected:
                different += 1
                more = set(found) ^ set(expected)
                print(FORMATS[number], tokenizer.decode_bytes(prefix), len(expected), len(found))
                print(
                    "   ", [(i, tokenizer.decode_bytes([i]), i in found) for i in sorted(more)[:8]]
                )
        print(f"{different} of {PREFIXES} masks are different")
        return
    kept = [
        [number, prefix, len(found), digest(found)]
        for number, prefix, found in rows(tokenizer, end, count)
    ]
    FILE.write_text(json.dumps(kept, separators=(",", ":")).replace("],[", "],\n[") + "\n")


if __name__ == "__main__":
    main()

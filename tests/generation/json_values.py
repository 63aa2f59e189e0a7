"""Whether a value follows a schema, for the keywords that random schemas of tests have. Tests
compare it with the cases of the JSON Schema Test Suite.
"""

import re

KEYWORDS = {
    "type", "enum", "const", "properties", "required", "additionalProperties", "items",
    "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern", "minimum",
    "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "anyOf", "oneOf", "allOf",
}  # fmt: skip
TYPES = {
    "null": lambda x: x is None,
    "boolean": lambda x: isinstance(x, bool),
    "integer": lambda x: _number(x) and abs(x) != float("inf") and x == int(x),
    "number": lambda x: _number(x),
    "string": lambda x: isinstance(x, str),
    "array": lambda x: isinstance(x, list),
    "object": lambda x: isinstance(x, dict),
}


def _number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def same(a, b):
    """Whether two values of JSON are equal: true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b


def valid(schema, x):
    """Whether a value follows a schema."""
    if isinstance(schema, bool):
        return schema
    s = schema
    types = s.get("type", list(TYPES))
    return (
        any(TYPES[t](x) for t in ([types] if isinstance(types, str) else types))
        and ("const" not in s or same(s["const"], x))
        and ("enum" not in s or any(same(one, x) for one in s["enum"]))
        and all(valid(one, x) for one in s.get("allOf", []))
        and ("anyOf" not in s or any(valid(one, x) for one in s["anyOf"]))
        and ("oneOf" not in s or sum(valid(one, x) for one in s["oneOf"]) == 1)
        and (not _number(x) or _valid_number(s, x))
        and (not isinstance(x, str) or _valid_text(s, x))
        and (not isinstance(x, list) or _valid_array(s, x))
        and (not isinstance(x, dict) or _valid_object(s, x))
    )


def _valid_number(s, x):
    return (
        x >= s.get("minimum", x)
        and x <= s.get("maximum", x)
        and ("exclusiveMinimum" not in s or x > s["exclusiveMinimum"])
        and ("exclusiveMaximum" not in s or x < s["exclusiveMaximum"])
        and ("multipleOf" not in s or x % s["multipleOf"] == 0)
    )


def _valid_text(s, x):
    return s.get("minLength", 0) <= len(x) <= s.get("maxLength", len(x)) and (
        "pattern" not in s or re.search(s["pattern"], x) is not None
    )


def _valid_array(s, x):
    first = s.get("prefixItems", [])
    return (
        s.get("minItems", 0) <= len(x) <= s.get("maxItems", len(x))
        and all(map(valid, first, x))
        and all(valid(s.get("items", True), one) for one in x[len(first) :])
    )


def _valid_object(s, x):
    known = s.get("properties", {})
    return all(name in x for name in s.get("required", [])) and all(
        valid(known.get(name, s.get("additionalProperties", True)), value)
        for name, value in x.items()
    )


def known(schema):
    """Whether `valid` knows all keywords of a schema."""
    if isinstance(schema, bool):
        return True
    s = schema
    some = [*s.get("properties", {}).values()]
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        some += s.get(name, [])
    some += [s[name] for name in ("items", "additionalProperties") if name in s]
    if not isinstance(s.get("multipleOf", 1), int):
        return False
    return s.keys() - {"$schema", "$comment"} <= KEYWORDS and all(map(known, some))


def random_schema(draw, depth=0):
    """A schema that most likely has values."""
    kinds = ["integer", "number", "string", "boolean", "null", "enum", "const"]
    if depth < 3:
        kinds += ["object", "array", "anyOf", "oneOf", "allOf", "object", "array"]
    kind = draw.choice(kinds)
    some = lambda n: [random_schema(draw, depth + 1) for _ in range(n)]  # noqa: E731
    if kind in ("boolean", "null"):
        return {"type": kind}
    if kind in ("enum", "const"):
        pool = [1, -2.5, "a", 'q"\\\n', "é\U0001f600", True, None, [1, {"x": []}], {"k": "v"}]
        values = draw.sample(pool, draw.randint(1, 4))
        return {"enum": values} if kind == "enum" else {"const": values[0]}
    if kind in ("integer", "number"):
        made = {"type": kind}
        low = draw.choice([draw.randint(-2000, 2000), draw.randint(-9, 9)])
        if kind == "number" and draw.random() < 0.5:
            low += draw.choice([0.5, 0.125, 0.001])
        if draw.random() < 0.5:
            made[draw.choice(["minimum", "exclusiveMinimum"])] = low
        if draw.random() < 0.5:
            made[draw.choice(["maximum", "exclusiveMaximum"])] = low + draw.choice([2, 2.25, 999])
        if kind == "integer" and draw.random() < 0.2:
            made["multipleOf"] = draw.choice([1, 2, 7, 10])
        return made
    if kind == "string":
        made = {"type": "string"}
        if draw.random() < 0.4:
            made["pattern"] = draw.choice(
                ["^[a-c]+$", "x", "^a.*z$", "[0-9]{2,3}-", "^(ab|cd){1,3}$", "^[^\\n]{2,}$"]
            )
        if draw.random() < 0.4:
            made["minLength"] = draw.randint(0, 5)
        if draw.random() < 0.4:
            made["maxLength"] = draw.randint(5, 40)
        return made
    if kind == "array":
        made = {"type": "array"}
        if draw.random() < 0.8:
            made["items"] = random_schema(draw, depth + 1)
        if draw.random() < 0.3:
            made["prefixItems"] = some(draw.randint(1, 3))
        if draw.random() < 0.5:
            made["minItems"] = draw.randint(0, 3)
        if draw.random() < 0.5:
            made["maxItems"] = draw.randint(3, 7)
        return made
    if kind == "object":
        names = draw.sample(["a", "b", "ab", "c d", 'q"', "é", "long name"], draw.randint(0, 4))
        made = {"type": "object", "properties": dict(zip(names, some(len(names)), strict=True))}
        made["required"] = [name for name in names if draw.random() < 0.5]
        if draw.random() < 0.6:
            made["additionalProperties"] = draw.choice([False, random_schema(draw, depth + 1)])
        return made
    return {kind: some(2)}

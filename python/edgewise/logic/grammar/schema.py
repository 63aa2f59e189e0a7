"""JSON Schema (2020-12, with the forms of earlier drafts and OpenAPI's `nullable`).

Every keyword is followed, is an annotation, or is refused by its name and place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import InputError, UnsupportedField
from ..native import listed, written
from .automaton import automaton_of, is_empty
from .formats import FORMATS
from .nodes import Node
from .numbers import Bound
from .regex import expression_of, pattern_of
from .rules import (
    ANYTHING,
    NOTHING,
    Arrays,
    Numbers,
    Objects,
    Option,
    Pattern,
    Texts,
    both_numbers,
    both_texts,
    element,
    everything,
    is_possible,
    texts_automaton,
    value_of,
)

WHERE = "response_format"
MAX_OPTIONS = 500
"""Alternatives of a schema, after those within it are written out."""
MAX_NAMES = 20_000
"""Schemas within a schema, with those that result from merging."""
MAX_COUNT = 1_000_000
MAX_MULTIPLE = 2000
DEPTH = 8
"""Levels on which alternatives of `oneOf` are compared."""

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
ANNOTATIONS = {
    "title",
    "description",
    "default",
    "example",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$schema",
    "$id",
    "id",
    "$comment",
    "$anchor",
    "$defs",
    "definitions",
    "$vocabulary",
    "discriminator",
    "contentMediaType",
    "contentEncoding",
}
KEYWORDS = {
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "minProperties",
    "maxProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "nullable",
}


class Schemas:
    """The schemas within a schema, by their names: JSON pointers, and names of merged ones.

    Args:
        root: the schema.
    """

    def __init__(self, root: Any) -> None:
        self.root = root
        self.found: dict[str, list[Option]] = {}
        self.values: dict[str, Any] = {}  # schemas by name
        self.pairs: dict[str, tuple[str, str]] = {}
        self.constants: dict[str, Any] = {}
        self.anchors: dict[str, str] = {}
        self.open: list[str] = []
        self.expressions: dict[str, Node] = {}  # of patterns and formats
        self.values["#"] = root
        self.id = ""
        if isinstance(root, dict):
            own: object = root.get("$id")
            self.id = own if isinstance(own, str) else ""
            for name in ("$defs", "definitions"):
                some: object = root.get(name)
                if isinstance(some, dict):
                    for key, value in some.items():
                        self._anchor(f"#/{name}/{_escaped(key)}", value)
            self._anchor("#", root)

    def _anchor(self, pointer: str, value: Any) -> None:
        if isinstance(value, dict):
            anchor: object = value.get("$anchor")
            if isinstance(anchor, str):
                self.anchors["#" + anchor] = pointer

    # Names

    def part(self, pointer: str, value: Any) -> str:
        """The name of a schema at a pointer."""
        if value is True:
            return ANYTHING
        if value is False:
            return NOTHING
        if pointer not in self.values:
            if len(self.values) >= MAX_NAMES:
                raise too_many(pointer)
            self.values[pointer] = value
        return pointer

    def both(self, a: str, b: str) -> str:
        """The name of a schema of what two allow."""
        if a == b or b == ANYTHING:
            return a
        if a == ANYTHING:
            return b
        if NOTHING in (a, b):
            return NOTHING
        name = f"({a} & {b})"
        if name not in self.pairs:
            if len(self.pairs) >= MAX_NAMES or len(name) > 4000:
                raise too_many(a)
            self.pairs[name] = (a, b)
        return name

    def all_of(self, names: Sequence[str]) -> str:
        """The name of a schema of what all of some allow."""
        made = ANYTHING
        for name in names:
            made = self.both(made, name)
        return made

    def constant(self, value: Any) -> str:
        """The name of a schema with one value."""
        name = f"constant {len(self.constants)}"
        if len(self.constants) >= MAX_NAMES:
            raise too_many("enum")
        self.constants[name] = value
        return name

    def options(self, name: str) -> list[Option]:
        """The alternatives of a schema; each has other values or not."""
        found = self.found.get(name)
        if found is not None:
            return found
        if name in self.open:
            raise InputError(
                "the schema refers to itself without a property or an element between",
                at(name),
                "Let the recursion go through properties or items.",
            )
        self.open.append(name)
        if name == ANYTHING:
            made = [everything()]
        elif name == NOTHING:
            made = []
        elif name in self.constants:
            made = self._of_value(self.constants[name])
        elif name in self.pairs:
            one, two = self.pairs[name]
            made = self.meet(self.options(one), self.options(two), name)
        else:
            made = self._read(name, self.values[name])
        self.open.pop()
        self.found[name] = made
        return made

    # Reading

    def _read(self, pointer: str, value: Any) -> list[Option]:
        if isinstance(value, bool):
            return [everything()] if value else []
        if not isinstance(value, dict):
            raise InputError(f"{written(value)} is no schema", at(pointer), "Give an object.")
        schema: dict[str, Any] = value
        if pointer != "#" and "$id" in schema:
            raise refused("$id", pointer)  # references in it would be relative to it
        for name in schema:
            if name not in KEYWORDS and name not in ANNOTATIONS and not name.startswith("x-"):
                raise refused(name, pointer)
        made = [self._typed(schema, pointer)]
        reference: object = schema.get("$ref")
        if reference is not None:
            made = self.meet(made, self.options(self._referred(reference, pointer)), pointer)
        for i, one in enumerate(_schemas(schema, "allOf", pointer)):
            made = self.meet(made, self.options(self.part(f"{pointer}/allOf/{i}", one)), pointer)
        for keyword in ("anyOf", "oneOf"):
            if keyword not in schema:
                continue
            some = _schemas(schema, keyword, pointer)
            lists = [
                self.options(self.part(f"{pointer}/{keyword}/{i}", one))
                for i, one in enumerate(some)
            ]
            if keyword == "oneOf":
                self._check_exclusive(made, lists, pointer)
            made = self.meet(made, [option for options in lists for option in options], pointer)
        if "const" in schema:
            made = self.meet(made, self._of_value(schema["const"]), pointer)
        if "enum" in schema:
            values = listed(schema["enum"])
            if values is None:
                raise _wrong("enum", schema["enum"], "a list of values", pointer)
            if len(values) > MAX_NAMES:
                what = f"enum has {len(values)} values, and {MAX_NAMES} are the most"
                raise InputError(what, at(pointer), "Give fewer, or a pattern.")
            made = self.meet(made, self._of_values(values), pointer)
        if schema.get("nullable") is True:
            made = [*made, Option(null=True)]
        return _joined([option for option in made if is_possible(option)])

    def _referred(self, reference: object, pointer: str) -> str:
        """The name of the schema of a `$ref`."""
        if not isinstance(reference, str):
            raise _wrong("$ref", reference, "a string", pointer)
        target: str = reference
        if self.id and target.startswith(self.id):
            target = target.removeprefix(self.id) or "#"
        if target in self.anchors:
            target = self.anchors[target]
        if target != "#" and not target.startswith("#/"):
            raise UnsupportedField(
                f"the schema refers to {target[:200]!r}",
                f"{at(pointer)}, $ref",
                "Put it into $defs, and refer to '#/$defs/name'.",
            )
        value: Any = self.root
        names = target.split("/")[1:]
        for name in names:
            key = _percent(name).replace("~1", "/").replace("~0", "~")
            value = _member(value, key)
            if value is None:
                raise InputError(
                    f"there is no {target[:200]!r}", f"{at(pointer)}, $ref", "Check its spelling."
                )
        return self.part(target, value)

    def _typed(self, schema: dict[str, Any], pointer: str) -> Option:
        """What the keywords of each type allow."""
        types: Any = schema.get("type")
        names = [types] if isinstance(types, str) else listed(types)
        if types is None:
            names = [name for name in TYPES if name != "integer"]
        if not names or not all(name in TYPES for name in names):
            raise _wrong("type", types, f"one or several of {', '.join(TYPES)}", pointer)
        made = Option()
        made.null = "null" in names
        if "boolean" in names:
            made.booleans = [False, True]
        if "number" in names or "integer" in names:
            made.numbers = _numbers(schema, "number" not in names, pointer)
        if "string" in names:
            made.texts = self._texts(schema, pointer)
        if "array" in names:
            made.arrays = self._arrays(schema, pointer)
        if "object" in names:
            made.objects = self._objects(schema, pointer)
        return made

    def _arrays(self, schema: dict[str, Any], pointer: str) -> Arrays | None:
        least = _count(schema, "minItems", pointer)
        most = _count(schema, "maxItems", pointer)
        if schema.get("uniqueItems") is True and not 0 <= most <= 1:
            raise refused("uniqueItems", pointer)
        items: Any = schema.get("items", True)
        prefix: list[str] = []
        place, first = "prefixItems", listed(schema.get("prefixItems"))
        if isinstance(items, list):
            place, first = "items", items
            items = schema.get("additionalItems", True)
            rest = self.part(f"{pointer}/additionalItems", items)
        else:
            rest = self.part(f"{pointer}/items", items)
        for i, one in enumerate(first or []):
            prefix.append(self.part(f"{pointer}/{place}/{i}", one))
        if most >= 0 and max(least, 0) > most:
            return None
        return Arrays(prefix, rest, max(least, 0), most)

    def _objects(self, schema: dict[str, Any], pointer: str) -> Objects | None:
        made = Objects()
        for name, value in _members(schema, "properties", pointer):
            made.properties[name] = self.part(f"{pointer}/properties/{_escaped(name)}", value)
        for source, value in _members(schema, "patternProperties", pointer):
            place = f"{pointer}/patternProperties/{_escaped(source)}"
            names = automaton_of(pattern_of(source, at(place)), at(place))
            made.patterns.append(Pattern(source, names, self.part(place, value)))
        additional: Any = schema.get("additionalProperties", True)
        made.additional = self.part(f"{pointer}/additionalProperties", additional)
        required: Any = schema.get("required")
        names_of = [] if required is None else listed(required)
        if names_of is None or not all(isinstance(name, str) for name in names_of):
            raise _wrong("required", required, "a list of names", pointer)
        made.required = list(names_of)
        distinct = set(made.required)
        if _count(schema, "minProperties", pointer) > len(distinct):
            raise refused("minProperties", pointer)
        most = _count(schema, "maxProperties", pointer)
        closed = made.additional == NOTHING and not made.patterns
        if most >= 0 and not (closed and len(made.properties) <= most):
            if len(distinct) > most:
                return None
            raise refused("maxProperties", pointer)
        return made

    def _texts(self, schema: dict[str, Any], pointer: str) -> Texts | None:
        least, most = _count(schema, "minLength", pointer), _count(schema, "maxLength", pointer)
        made = Texts(max(least, 0), most)
        pattern: Any = schema.get("pattern")
        if pattern is not None:
            if not isinstance(pattern, str):
                raise _wrong("pattern", pattern, "a string", pointer)
            made.source = "pattern " + pattern
            if made.source not in self.expressions:
                read = pattern_of(pattern, f"{at(pointer)}, pattern")
                self.expressions[made.source] = read
            made.parts.append(self.expressions[made.source])
        name: Any = schema.get("format")
        if name is not None:
            if not isinstance(name, str) or name not in FORMATS:
                raise UnsupportedField(
                    f"the format {written(name)} is not supported",
                    at(pointer),
                    f"Known are {', '.join(sorted(FORMATS))}; remove it, and check the result.",
                )
            made.source = "format " + name
            if made.source not in self.expressions:
                read = expression_of(FORMATS[name], f"{at(pointer)}, format")
                self.expressions[made.source] = read
            made.parts.append(self.expressions[made.source])
        if len(made.parts) != 1:
            made.source = ""
        return None if most >= 0 and made.least > most else made

    # Values

    def _of_value(self, value: Any) -> list[Option]:
        if value is None:
            return [Option(null=True)]
        if isinstance(value, bool):
            return [Option(booleans=[value])]
        if isinstance(value, str):
            return [Option(texts=Texts(values=[value]))]
        if isinstance(value, (int, float)):
            return [Option(numbers=Numbers(values=[value]))]
        elements = listed(value)
        if elements is not None:
            names = [self.constant(one) for one in elements]
            return [Option(arrays=Arrays(names, NOTHING, len(names), len(names)))]
        made = Objects(additional=NOTHING)
        table: dict[str, Any] = value
        for name, one in table.items():
            made.properties[name] = self.constant(one)
            made.required.append(name)
        return [Option(objects=made)]

    def _of_values(self, values: Sequence[Any]) -> list[Option]:
        """The alternatives of an enumeration. Those of one type are together."""
        texts: list[str] = []
        numbers: list[float] = []
        made: list[Option] = []
        for value in values:
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers.append(value)
            else:
                made.extend(self._of_value(value))
        if texts:
            made.append(Option(texts=Texts(values=texts)))
        if numbers:
            made.append(Option(numbers=Numbers(values=numbers)))
        return made

    # What two allow

    def meet(self, a: list[Option], b: list[Option], place: str) -> list[Option]:
        """The alternatives of what both allow."""
        made: list[Option] = []
        for one in a:
            for two in b:
                found = self.meeting(one, two, place)
                if is_possible(found):
                    made.append(found)
        if len(made) > MAX_OPTIONS:
            raise too_many(place)
        return made

    def meeting(self, a: Option, b: Option, place: str) -> Option:
        """What two alternatives allow."""
        made = Option(a.null and b.null, [x for x in a.booleans if x in b.booleans])
        if a.numbers is not None and b.numbers is not None:
            made.numbers = both_numbers(a.numbers, b.numbers)
        if a.texts is not None and b.texts is not None:
            made.texts = both_texts(a.texts, b.texts, at(place))
        if a.arrays is not None and b.arrays is not None:
            made.arrays = self._both_arrays(a.arrays, b.arrays)
        if a.objects is not None and b.objects is not None:
            made.objects = self._both_objects(a.objects, b.objects, place)
        return made

    def _both_arrays(self, a: Arrays, b: Arrays) -> Arrays | None:
        count = max(len(a.prefix), len(b.prefix))
        prefix = [self.both(element(a, i), element(b, i)) for i in range(count)]
        most = b.most if a.most < 0 else a.most if b.most < 0 else min(a.most, b.most)
        made = Arrays(prefix, self.both(a.items, b.items), max(a.least, b.least), most)
        return None if most >= 0 and made.least > most else made

    def _both_objects(self, a: Objects, b: Objects, place: str) -> Objects:
        made = Objects(required=[*a.required, *[x for x in b.required if x not in a.required]])
        for name in [*a.properties, *[x for x in b.properties if x not in a.properties]]:
            made.properties[name] = self.all_of([*value_of(a, name), *value_of(b, name)])
        made.additional = self.both(a.additional, b.additional)
        if a.patterns and b.patterns and (a.additional, b.additional) != (ANYTHING, ANYTHING):
            raise UnsupportedField(
                "schemas that are merged have both patternProperties and additionalProperties",
                at(place),
                "Write them as one object.",
            )
        made.patterns = [*self._patterns(a, b), *self._patterns(b, a)]
        return made

    def _patterns(self, rule: Objects, other: Objects) -> list[Pattern]:
        """The patterns of a rule that another one applies beside."""
        made: list[Pattern] = []
        for p in rule.patterns:
            value = p.value if other.patterns else self.both(p.value, other.additional)
            made.append(Pattern(p.source, p.names, value))
        return made

    # oneOf

    def _check_exclusive(self, base: list[Option], lists: list[list[Option]], pointer: str) -> None:
        """Raises UnsupportedField if two alternatives may have a value in common."""
        some = [self.meet(base, options, pointer) for options in lists]
        for i in range(len(some)):
            for j in range(i):
                for one in some[i]:
                    for two in some[j]:
                        if not self._apart(one, two, pointer, 0):
                            raise UnsupportedField(
                                f"alternatives {j} and {i} of oneOf can have values in common",
                                at(pointer),
                                "Use anyOf, or tell them apart by their types, or by a required"
                                " property with different constants.",
                            )

    def _apart(self, a: Option, b: Option, place: str, depth: int) -> bool:
        """Whether two alternatives have no value in common, as far as it is found."""
        both = self.meeting(a, b, place)
        if both.null or both.booleans or both.numbers is not None:
            return False
        if both.texts is not None and (
            both.texts.values is not None or not is_empty(texts_automaton(both.texts, at(place)))
        ):
            return False
        arrays = both.arrays
        if arrays is not None:
            names = [element(arrays, i) for i in range(min(arrays.least, MAX_OPTIONS))]
            if not any(self._never(name, depth) for name in names):
                return False
        objects = both.objects
        if objects is None:
            return True
        return any(self._never(self.all_of(value_of(objects, x)), depth) for x in objects.required)

    def _never(self, name: str, depth: int) -> bool:
        """Whether a schema has no value, as far as it is found."""
        if name == NOTHING:
            return True
        if depth > DEPTH or name in self.open:
            return False
        return all(self._apart(option, option, name, depth + 1) for option in self.options(name))


def at(name: str) -> str:
    """Where a schema is, for errors."""
    return f"{WHERE}, {name[:300]}"


def refused(name: str, pointer: str) -> UnsupportedField:
    """The error of a keyword."""
    return UnsupportedField(
        f"the schema has {name[:100]!r}, which is not supported",
        at(pointer),
        "Remove it, and check the result yourself.",
    )


def too_many(pointer: str) -> InputError:
    """The error of a schema that explodes."""
    return InputError(
        f"the schema has more than {MAX_OPTIONS} alternatives, or {MAX_NAMES} parts",
        at(pointer),
        "Write allOf and anyOf within each other as one.",
    )


def _wrong(name: str, value: object, expected: str, pointer: str) -> InputError:
    return InputError(f"{name} has to be {expected}, but is {written(value)}", at(pointer))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _percent(name: str) -> str:
    """A part of a URI without its escapes of ASCII."""
    parts = name.split("%")
    made = [parts[0]]
    for part in parts[1:]:
        high = "0123456789abcdef".find(part[:1].lower()) if part[:1] else -1
        low = "0123456789abcdef".find(part[1:2].lower()) if part[1:2] else -1
        if high < 0 or low < 0:
            made.append("%" + part)
        else:
            made.append(chr(16 * high + low) + part[2:])
    return "".join(made)


def _member(value: Any, key: str) -> Any:
    """A member of an object or a list; None: there is none."""
    elements = None if isinstance(value, dict) else listed(value)
    if elements is not None:
        i = int(key) if key.isdigit() else -1
        return elements[i] if 0 <= i < len(elements) else None
    if not isinstance(value, dict):
        return None
    table: dict[str, Any] = value
    return table.get(key)


def _members(schema: dict[str, Any], name: str, pointer: str) -> list[tuple[str, Any]]:
    found: Any = schema.get(name)
    if found is None:
        return []
    if not isinstance(found, dict):
        raise _wrong(name, found, "an object", pointer)
    table: dict[str, Any] = found
    return list(table.items())


def _schemas(schema: dict[str, Any], name: str, pointer: str) -> list[Any]:
    found: Any = schema.get(name)
    if found is None:
        return []
    some = listed(found)
    if not some:
        raise _wrong(name, found, "a list of schemas", pointer)
    return some


def _count(schema: dict[str, Any], name: str, pointer: str) -> int:
    """A number of things; -1: there is none."""
    found: Any = schema.get(name)
    if found is None:
        return -1
    if isinstance(found, float) and found == int(found):
        found = int(found)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MAX_COUNT:
        raise _wrong(name, found, f"an integer from 0 to {MAX_COUNT}", pointer)
    return found


def _number(schema: dict[str, Any], name: str, pointer: str) -> float | None:
    found: Any = schema.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or abs(found) > 1e300:
        raise _wrong(name, found, "a number", pointer)
    return found


def _numbers(schema: dict[str, Any], integer: bool, pointer: str) -> Numbers | None:
    made = Numbers(integer)
    low, high = _number(schema, "minimum", pointer), _number(schema, "maximum", pointer)
    rules = [made]
    if low is not None:
        rules.append(Numbers(low=Bound(low, schema.get("exclusiveMinimum") is True)))
    if high is not None:
        rules.append(Numbers(high=Bound(high, schema.get("exclusiveMaximum") is True)))
    for name in ("exclusiveMinimum", "exclusiveMaximum"):
        if isinstance(schema.get(name), bool):  # as in draft 4
            continue
        value = _number(schema, name, pointer)
        if value is not None and name == "exclusiveMinimum":
            rules.append(Numbers(low=Bound(value, True)))
        elif value is not None:
            rules.append(Numbers(high=Bound(value, True)))
    multiple = _number(schema, "multipleOf", pointer)
    if multiple is not None:
        if multiple != int(multiple) or not 0 < multiple <= MAX_MULTIPLE:
            raise UnsupportedField(
                f"multipleOf is {written(multiple)}",
                at(pointer),
                f"Integers from 1 to {MAX_MULTIPLE} are supported.",
            )
        rules.append(Numbers(True, multiple=int(multiple)))
    found: Numbers | None = made
    for rule in rules[1:]:
        found = None if found is None else both_numbers(found, rule)
    return found


def _joined(options: list[Option]) -> list[Option]:
    """Alternatives of different types as one."""
    made: list[Option] = []
    for option in options:
        if made and not _overlap(made[-1], option):
            last = made[-1]
            made[-1] = Option(
                last.null or option.null,
                [*last.booleans, *option.booleans],
                last.numbers if option.numbers is None else option.numbers,
                last.texts if option.texts is None else option.texts,
                last.arrays if option.arrays is None else option.arrays,
                last.objects if option.objects is None else option.objects,
            )
        else:
            made.append(option)
    return made


def _overlap(a: Option, b: Option) -> bool:
    return (
        (a.null and b.null)
        or (len(a.booleans) > 0 and len(b.booleans) > 0)
        or (a.numbers is not None and b.numbers is not None)
        or (a.texts is not None and b.texts is not None)
        or (a.arrays is not None and b.arrays is not None)
        or (a.objects is not None and b.objects is not None)
    )

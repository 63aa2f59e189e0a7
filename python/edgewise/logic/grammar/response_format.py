"""`response_format`: its forms, and the grammar of each."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import InputError
from ..native import listed, meant, written
from ..tools.choice import CALLS
from ..tools.grammar import calls_program
from .gbnf import gbnf_program
from .json_grammar import JsonGrammar, flexible_space
from .lark import lark_program
from .network import Network
from .nodes import Node, choice, literal
from .program import program_of
from .regex import expression_of

WHERE = "response_format"
TYPES = ("text", "json_object", "json_schema", "regex", "grammar", "choices")
MAX_CHOICES = 20_000


class Compiled(NamedTuple):
    """A format.

    Attributes:
        program: words for the engine.
        is_json: whether its texts are JSON.
    """

    program: list[int]
    is_json: bool


def compiled(given: Any) -> Compiled | None:
    """The grammar of a `response_format`; None: any text.

    Args:
        given: `{"type": "json_schema", "json_schema": {"schema": ...}}` or `"schema"` beside the
            type; `{"type": "json_object"}`; `{"type": "regex", "regex": ...}`; `{"type":
            "grammar", "grammar": ..., "syntax": "gbnf" or "lark"}`; `{"type": "choices",
            "choices": [...]}`; `{"type": "text"}`; or a bare schema.

    Raises:
        InputError: it is none of these, or contradicts itself. UnsupportedField: it has what is not
            supported.
    """
    if not isinstance(given, dict):
        raise _wrong("response_format", given, "an object")
    form: dict[str, Any] = given
    kind: Any = form.get("type")
    space = flexible_space(_flexible(form))
    if kind == "text":
        return None
    if kind == CALLS:
        return Compiled(calls_program(form), False)
    if kind == "json_object":
        return Compiled(JsonGrammar({"type": "object"}, space).program(), True)
    if kind == "json_schema":
        return Compiled(JsonGrammar(_schema_of(form), space).program(), True)
    if kind == "regex":
        source: Any = _text(form, "regex", form.get("pattern"))
        return Compiled(_program(expression_of(source, WHERE)), False)
    if kind == "grammar":
        return Compiled(_grammar(form), False)
    if kind == "choices":
        texts = listed(form.get("choices"))
        if not texts or not all(isinstance(x, str) and x for x in texts):
            raise _wrong("choices", form.get("choices"), "a list of texts, none empty")
        if len(texts) > MAX_CHOICES:
            raise InputError(f"there are more than {MAX_CHOICES} choices", WHERE)
        return Compiled(_program(choice([literal(x) for x in texts])), False)
    if isinstance(kind, str) and kind not in _JSON_TYPES:
        raise InputError(
            f"there is no type {kind[:100]!r}",
            WHERE,
            meant(kind[:100], TYPES, f"Known are {', '.join(TYPES)}, and schemas."),
        )
    bare = {name: value for name, value in form.items() if name != "whitespace"}
    return Compiled(JsonGrammar(bare, space).program(), True)


_JSON_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


def _flexible(form: dict[str, Any]) -> bool:
    """Whether white space is allowed."""
    value: Any = form.get("whitespace")
    if value is not None and value not in ("flexible", "compact"):
        raise _wrong("whitespace", value, '"flexible" or "compact"')
    return value == "flexible"


def _schema_of(form: dict[str, Any]) -> Any:
    """The schema of the type json_schema."""
    inside: Any = form.get("json_schema")
    schema: Any = form.get("schema")
    if isinstance(inside, dict):
        wrapped: dict[str, Any] = inside
        schema = wrapped.get("schema", wrapped)
    if isinstance(schema, (dict, bool)):
        return schema
    raise _wrong("json_schema", inside, 'an object with the member "schema"')


def _grammar(form: dict[str, Any]) -> list[int]:
    source = _text(form, "grammar", form.get("grammar"))
    syntax: Any = form.get("syntax", "gbnf")
    if syntax == "gbnf":
        return gbnf_program(source)
    if syntax == "lark":
        return lark_program(source)
    raise _wrong("syntax", syntax, '"gbnf" or "lark"')


def _text(form: dict[str, Any], name: str, other: Any) -> str:
    value: Any = form.get(name, other)
    if not isinstance(value, str):
        raise _wrong(name, value, "a text")
    return value


def _program(node: Node) -> list[int]:
    network = Network(WHERE)
    network.define("start", node)
    return program_of(network, "start", "no text fits")


def _wrong(name: str, value: object, expected: str) -> InputError:
    return InputError(f"{name} has to be {expected}, but is {written(value)}", WHERE)

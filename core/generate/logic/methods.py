"""Prints calls of the methods of Python's built-in types."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import calls
from mypy import types as t
from printed import ATOM, CALL, Code, Unsupported, member
from types_of import LISTS, element, kind, kinds, members

if TYPE_CHECKING:
    from expressions import Expressions

# Methods that are helpers with the object as first argument, by kind.
TEXT = """split rsplit splitlines strip lstrip rstrip find rfind index count isspace isdigit isalpha
    isalnum isupper islower isdecimal partition rpartition removeprefix removesuffix startswith
    endswith encode zfill ljust rjust""".split()


def call(p: Expressions, node: ast.Call, func: ast.Attribute) -> Code | None:
    if isinstance(func.value, ast.Name) and func.value.id in (
        "math",
        "dataclasses",
        "int",
        "re",
        "dict",
    ):
        if func.value.id == "re":
            return Code(calls.pattern(node))
        if func.value.id == "dataclasses" and func.attr == "replace":
            return calls.replaced(p, node)
        if func.value.id == "dict" and func.attr == "fromkeys":
            raise Unsupported("dict.fromkeys: write {key: value for key in keys}", node)
        if func.value.id == "int" and func.attr == "from_bytes":
            return Code(f"py.intFromBytes({', '.join(p.text(a) for a in node.args)})", CALL)
        if func.value.id == "math" and func.attr == "fsum":
            return Code(f"py.exactSum({p.iterable(node.args[0])})", CALL)
        if func.value.id == "math" and func.attr == "log" and len(node.args) == 1:
            return Code(f"Math.log({p.text(node.args[0])})", CALL)
        return None
    _expect_given(p, node, func)
    word = p.kind(func.value)
    if word == "union":
        words = p.kinds(func.value) - {"none"}
        word = words.pop() if len(words) == 1 else word
    table = _METHODS.get(word)
    if table is None:
        if word in ("any", "object", "union") and func.attr in _AMBIGUOUS:
            raise Unsupported(
                f"{func.attr} of a value whose type is not known: annotate a variable for it", node
            )
        return None
    if word == "str" and func.attr in TEXT:
        texts = [p.text(func.value), *(p.text(a) for a in node.args)]
        return Code(f"py.{func.attr}({', '.join(texts)})", CALL)
    write = table.get(func.attr)
    if write is None:
        raise Unsupported(f"the method {func.attr} of {word}: add it to _METHODS", node)
    if callable(write):
        return Code(*write(p, node, func))
    args = [p.text(a) for a in node.args] + [p.text(k.value) for k in node.keywords]
    if write.startswith("{0}."):
        args[0] = p.text(node.args[0], CALL)
    text = write.replace("{x}", p.text(func.value, CALL)).replace("{bare}", p.text(func.value))
    text = text.replace("{args}", ", ".join(args)).replace(", )", ")")
    for i, a in enumerate(args):
        text = text.replace(f"{{{i}}}", a)
    if any(f"{{{i}}}" in text for i in range(4)):
        raise Unsupported(f"{func.attr} with {len(args)} arguments", node)
    return Code(text, CALL)


def _expect_given(p: Expressions, node: ast.Call, func: ast.Attribute) -> None:
    """Notes the form of arguments that become elements, or stand for them."""
    if func.attr not in ("append", "insert", "get", "setdefault", "pop", "update", "extend"):
        return
    for owner in members(p.type(func.value)):
        word = kind(owner)
        given = node.args if word in LISTS or func.attr == "update" else node.args[1:]
        for value in given:
            if word == "json":
                p.expect_json(value)
            elif isinstance(owner, t.Instance) and owner.args:
                whole = func.attr in ("update", "extend")
                p.expect(value, owner if whole else owner.args[-1])


def _get(p: Expressions, node: ast.Call, func: ast.Attribute) -> tuple[str, int]:
    word, owner = p.kind(func.value), p.type(func.value)
    for default in node.args[1:]:
        if isinstance(owner, t.TypedDictType) and isinstance(node.args[0], ast.Constant):
            p.expect(default, owner.items.get(str(node.args[0].value)))
    other = p.text(node.args[1], 4) if len(node.args) > 1 else "null"
    if word == "dict":
        key = p.text(node.args[0])
        found = p.type(func.value)
        values = kinds(found.args[1]) if isinstance(found, t.Instance) else {"any"}
        if not p.kinds(node.args[0]) <= kinds(element(found)):
            key += " as any"
        if "none" in values and other != "null":
            return f"py.get({p.text(func.value)}, {key}, {other})", CALL
        return f"({p.text(func.value, CALL)}.get({key}) ?? {other})", ATOM
    if word == "typeddict" and isinstance(node.args[0], ast.Constant):
        return f"({member(p.text(func.value, CALL), node.args[0].value)} ?? {other})", ATOM
    texts = ", ".join(p.text(a) for a in node.args)
    return f"py.get({p.text(func.value)}, {texts})", CALL


def _join(p: Expressions, node: ast.Call, func: ast.Attribute) -> tuple[str, int]:
    return f"{p.array(node.args[0])}.join({p.text(func.value)})", CALL


def _pop(p: Expressions, node: ast.Call, func: ast.Attribute) -> tuple[str, int]:
    target = p.text(func.value, CALL)
    if not node.args:
        return f"{target}.pop()!", CALL
    if isinstance(node.args[0], ast.Constant) and node.args[0].value == 0:
        return f"{target}.shift()!", CALL
    return f"{target}.splice({p.text(node.args[0])}, 1)[0]!", CALL


def _sort(p: Expressions, node: ast.Call, func: ast.Attribute) -> tuple[str, int]:
    options = f", {calls.options_of(p, node.keywords)}" if node.keywords else ""
    return f"py.sort({p.text(func.value)}{options})", CALL


def _text_replace(p: Expressions, node: ast.Call, func: ast.Attribute) -> tuple[str, int]:
    if len(node.args) != 2:
        raise Unsupported("replace with a count", node)
    old, new = p.text(node.args[0]), p.text(node.args[1])
    if not (isinstance(node.args[0], ast.Constant) and node.args[0].value):
        return f"py.replace({p.text(func.value)}, {old}, {new})", CALL
    return f"{p.text(func.value, CALL)}.replaceAll({old}, () => {new})", CALL


_SEQUENCE = {"index": "py.index({bare}, {args})", "count": "py.countOf({bare}, {args})"}
_JSON = {
    "get": _get,
    "items": "Object.entries({bare})",
    "keys": "Object.keys({bare})",
    "values": "Object.values({bare})",
    "copy": "{ ...{bare} }",
    "update": "Object.assign({bare}, {0})",
    "setdefault": "py.setDefault({bare}, {0}, {1})",
    "pop": "py.pop({bare}, {args})",
}
_METHODS: dict[str, dict[str, Any]] = {
    "str": {
        "join": _join,
        "lower": "{x}.toLowerCase()",
        "upper": "{x}.toUpperCase()",
        "replace": _text_replace,
    },
    "list": {
        **_SEQUENCE,
        "append": "{x}.push({0})",
        "extend": "py.extend({bare}, {0})",
        "insert": "{x}.splice({0}, 0, {1})",
        "pop": _pop,
        "reverse": "{x}.reverse()",
        "clear": "{x}.splice(0)",
        "copy": "{x}.slice()",
        "sort": _sort,
        "remove": "py.remove({bare}, {0})",
        "popleft": "{x}.shift()!",
    },
    "tuple": _SEQUENCE,
    "sequence": _SEQUENCE,
    "array": {**_SEQUENCE, "tolist": "[...{x}]", "tobytes": "py.bytesOf({bare})"},
    "bytes": {
        "decode": "py.decode({bare}, {args})",
        "hex": "py.hex({bare})",
        "find": "py.findBytes({bare}, {args})",
        "startswith": "py.startsWith({bare}, {args})",
        "tolist": "[...{x}]",
        "tobytes": "{x}.slice()",
    },
    "dict": {
        "get": _get,
        "items": "{x}.entries()",
        "keys": "{x}.keys()",
        "values": "{x}.values()",
        "pop": "py.pop({bare}, {args})",
        "setdefault": "py.setDefault({bare}, {0}, {1})",
        "update": "py.update({bare}, {0})",
        "copy": "new Map({bare})",
        "clear": "{x}.clear()",
    },
    "json": _JSON,
    "typeddict": _JSON,
    "mapping": _JSON,
    "set": {
        "add": "{x}.add({0})",
        "discard": "{x}.delete({0})",
        "remove": "{x}.delete({0})",
        "update": "py.update({bare}, {0})",
        "copy": "new Set({bare})",
        "clear": "{x}.clear()",
        "union": "py.union({bare}, {0})",
        "isdisjoint": "py.isDisjoint({bare}, {0})",
        "intersection": "py.intersection({bare}, {0})",
        "issubset": "py.isSubset({bare}, {0})",
        "difference": "py.difference({bare}, {0})",
    },
    "pattern": {
        "fullmatch": "py.fullMatch({bare}, {0})",
        "search": "{x}.exec({0})",
        "match": "py.match({bare}, {0})",
        "findall": "py.findAll({bare}, {0})",
        "split": "{0}.split({x})",
        "finditer": '{0}.matchAll(new RegExp({bare}, "gu"))',
    },
    "match": {
        "group": "({x}[{0}] ?? null)",
        "start": "{x}.index",
        "end": "({x}.index + {x}[0].length)",
    },
}
_AMBIGUOUS = {*TEXT, *(n for table in _METHODS.values() for n in table)} - {"add", "update"}

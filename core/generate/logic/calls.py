"""Prints calls, and what the built-in types of Python do, as TypeScript."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import methods
from mypy import types as t
from printed import CALL, EQUAL, SUM, UNARY, Code, Unsupported
from types_of import KEYED, LISTS, PRIMITIVE, element, kind, kinds, members

if TYPE_CHECKING:
    from expressions import Expressions


MATH = {
    **{n: f"Math.{n}" for n in "sqrt exp log2 log10 log1p expm1 sin cos tan tanh floor".split()},
    "trunc": "py.trunc",
    "ceil": "py.ceil",
    **{n: f"Math.{n}" for n in "asin acos atan atan2 sinh cosh hypot".split()},
    "fabs": "Math.abs",
    "isnan": "Number.isNaN",
    "isfinite": "Number.isFinite",
    "prod": "py.product",
    "log": "py.log",
    "fsum": "py.exactSum",
    "isinf": "py.isInfinite",
    "copysign": "py.copySign",
    "gcd": "py.gcd",
    "pow": "Math.pow",
}
CONSTANTS = {
    "inf": "Infinity",
    "pi": "Math.PI",
    "nan": "NaN",
    "e": "Math.E",
    "tau": "(2 * Math.PI)",
}
# Functions that are values too, as in map(repr, names).
BUILTINS = {
    "len": "py.length",
    "repr": "py.repr",
    "str": "py.str",
    "float": "py.float",
    "int": "py.int",
    "abs": "Math.abs",
    "sum": "py.sum",
    "min": "py.min",
    "max": "py.max",
    "bool": "py.truth",
    "sorted": "py.sorted",
    "ord": "py.ord",
    "chr": "String.fromCodePoint",
    "round": "py.round",
    "any": "py.any",
    "all": "py.all",
    "list": "py.list",
    "zip": "py.zip",
    "range": "py.range",
    "set": "py.set",
    "enumerate": "py.enumerate",
    "ValueError": "py.ValueError",
    "divmod": "py.divmod",
    "KeyError": "py.KeyError",
    "tuple": "py.list",
    "IndexError": "py.IndexError",
    "Exception": "Error",
    "TypeError": "TypeError",
    "NotImplementedError": "py.NotImplementedError",
    "AssertionError": "py.AssertionError",
}
ERRORS = {"ValueError", "KeyError", "IndexError", "Exception", "TypeError"}
BUILTINS |= dict.fromkeys(
    ("ArithmeticError", "OverflowError", "ZeroDivisionError"), "py.ArithmeticError"
)
ERRORS |= {"NotImplementedError", "AssertionError"}


def value_of(node: ast.Name) -> str:
    """A built-in function as a value."""
    return BUILTINS[node.id]


def math_value(node: ast.Attribute) -> str:
    """A constant or function of the module math."""
    if node.attr in CONSTANTS:
        return CONSTANTS[node.attr]
    if node.attr not in MATH:
        raise Unsupported(f"math.{node.attr} has no counterpart: add it to MATH", node)
    return MATH[node.attr]


def is_pure(node: ast.expr) -> bool:
    """Whether computing it twice gives the same and costs little."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "len" and is_pure(node.args[0])
    if isinstance(node, ast.Subscript):
        return is_pure(node.value) and not isinstance(node.slice, ast.Slice) and is_pure(node.slice)
    if isinstance(node, ast.BinOp):
        return is_pure(node.left) and is_pure(node.right)
    return isinstance(node, (ast.Name, ast.Attribute, ast.Constant))


def may_be_negative(node: ast.expr) -> bool:
    """Whether an index counts from the end, or may do so."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return True
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Sub):
            return True
        return may_be_negative(node.left) or may_be_negative(node.right)
    if isinstance(node, ast.IfExp):
        return may_be_negative(node.body) or may_be_negative(node.orelse)
    return False


def combined(p: Expressions, node: ast.BinOp, sign: str, left: str, right: str) -> Code | None:
    """An operator of texts, lists, sets and dicts."""
    a, b = p.text(node.left), p.text(node.right)
    both = {left, right}
    if sign == "Add":
        if both == {"str"}:
            return Code(f"{p.text(node.left, SUM)} + {p.text(node.right, SUM + 1)}", SUM)
        if both == {"bytes"}:
            return Code(f"py.joined({a}, {b})", CALL)
        if both <= {"list", "tuple", "sequence"}:
            return Code(f"[...{p.text(node.left, CALL)}, ...{p.text(node.right, CALL)}]")
    if sign == "Mult":
        if left in ("int", "bool"):
            node, left, a, b = ast.BinOp(node.right, node.op, node.left), right, b, a
        if left == "str":
            return Code(f"{p.text(node.left, CALL)}.repeat({b})", CALL)
        return _repeated(p, node, left, a, b)
    names = {"BitOr": "union", "BitAnd": "intersection", "Sub": "difference", "BitXor": "exclusive"}
    if sign in names and both == {"set"}:
        return Code(f"py.{names[sign]}({a}, {b})", CALL)
    if sign == "BitOr" and both == {"dict"}:
        return Code(f"new Map([...{p.text(node.left, CALL)}, ...{p.text(node.right, CALL)}])", CALL)
    if sign == "BitOr" and both <= {"json", "mapping"}:
        return Code(f"{{ ...{a}, ...{b} }}")
    return None


def _repeated(p: Expressions, node: ast.BinOp, left: str, a: str, b: str) -> Code | None:
    value = node.left
    if left == "array" and isinstance(value, ast.Call) and len(value.args) == 2:
        items = value.args[1]
        if isinstance(items, ast.List) and len(items.elts) == 1:
            made = f"new {_array(value)}({b})"
            zero = isinstance(items.elts[0], ast.Constant) and items.elts[0].value == 0
            return Code(made if zero else f"{made}.fill({p.text(items.elts[0])})", CALL)
    if left in ("list", "tuple"):
        if isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) == 1:
            one = value.elts[0]
            if not isinstance(one, ast.Starred) and p.kinds(one) <= PRIMITIVE:
                item = p.writer.text(element(p.type(node)) or p.type(one))
                return Code(f"Array<{item}>({b}).fill({p.text(one)})", CALL)
        return Code(f"py.repeated({a}, {b})", CALL)
    return None


def _array(node: ast.Call) -> str:
    code = node.args[0]
    if not isinstance(code, ast.Constant):
        raise Unsupported("an array of a computed type", node)
    names = {"f": "Float32Array", "d": "Float64Array", "i": "Int32Array", "B": "Uint8Array"}
    names |= {"I": "Uint32Array", "H": "Uint16Array", "h": "Int16Array", "b": "Int8Array"}
    if code.value not in names:
        raise Unsupported(f"array({code.value!r}): use {', '.join(names)}", node)
    return names[code.value]


def contains(p: Expressions, a: ast.expr, b: ast.expr) -> Code:
    """a in b"""
    word, target = p.kind(b), p.text(b, CALL)
    if word == "iterable" and isinstance(b, ast.Call) and isinstance(b.func, ast.Attribute):
        b, word = b.func.value, p.kind(b.func.value)
        target = p.text(b, CALL)
    if word in ("json", "typeddict", "mapping"):
        return Code(f"Object.hasOwn({p.text(b)}, {p.text(a)})", CALL)
    if word in KEYED:
        key = p.text(a) if p.kinds(a) <= kinds(element(p.type(b))) else f"{p.text(a)} as any"
        return Code(f"{target}.has({key})", CALL)
    if word == "str":
        return Code(f"{target}.includes({p.text(a)})", CALL)
    if word in LISTS and p.kinds(a) <= PRIMITIVE:
        if isinstance(b, (ast.Tuple, ast.List)):
            item = p.writer.text(p.type(a))
            if not {"str", "int", "float", "bool"} >= p.kinds(a) or isinstance(
                p.type(a), t.LiteralType
            ):
                item = "unknown"
            literal = item not in ("string", "number", "boolean")
            cast = f"({target} as unknown[])" if literal else target
            return Code(f"{cast}.includes({p.text(a)})", CALL)
        item = element(p.type(b))
        literal = any(isinstance(x, t.LiteralType) for x in members(item))
        wide = kinds(item) >= p.kinds(a) and not literal
        return Code(f"{target}.includes({p.text(a)}{'' if wide else ' as any'})", CALL)
    if word in LISTS or word in ("any", "object", "union"):
        return Code(f"py.contains({p.text(b)}, {p.text(a)})", CALL)
    raise Unsupported(f"`in` of {word}", b)


def type_test(p: Expressions, a: ast.expr, op: ast.cmpop, b: ast.expr) -> Code | None:
    """type(x) is int"""
    if not isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
        return None
    if not (isinstance(a, ast.Call) and isinstance(a.func, ast.Name) and a.func.id == "type"):
        return None
    if isinstance(b, ast.Call) and isinstance(b.func, ast.Name) and b.func.id == "type":
        return Code(f"py.sameType({p.text(a.args[0])}, {p.text(b.args[0])})", CALL)
    return instance_of(p, a.args[0], b)


def instance_of(p: Expressions, value: ast.expr, wanted: ast.expr) -> Code:
    """isinstance(x, T)"""
    if isinstance(wanted, ast.Tuple):
        parts = [instance_of(p, value, x) for x in wanted.elts]
        if {ast.unparse(x) for x in wanted.elts} == {"int", "float"}:
            return parts[[ast.unparse(x) for x in wanted.elts].index("float")]
        return Code(" || ".join(dict.fromkeys(c.text for c in parts)), 3)
    name, text = ast.unparse(wanted), p.text(value)
    typeof = {"str": "string", "float": "number", "bool": "boolean"}
    if name in typeof:
        return Code(f'typeof {p.text(value, UNARY)} === "{typeof[name]}"', EQUAL)
    tests = {
        "int": "py.isInt({})",
        "list": "Array.isArray({})",
        "tuple": "Array.isArray({})",
        "dict": "py.isObject({})",
        "Mapping": "py.isObject({})",
        "bytes": "({} instanceof Uint8Array)",
        "set": "({} instanceof Set)",
    }
    if name == "dict" and kinds(p.type(value)) & {"dict"}:
        return Code(f"({text} instanceof Map)")
    if name in tests:
        return Code(tests[name].format(text), CALL)
    found = p.type(wanted)
    item = found.ret_type if isinstance(found, t.CallableType) else None
    if kind(item) != "class":
        raise Unsupported(
            f"isinstance of {name}, which is an interface in TypeScript: give it a field `kind: "
            "Literal[...]`",
            wanted,
        )
    return Code(f"{p.text(value, 10)} instanceof {p.text(wanted)}", 9)


def slice_of(p: Expressions, node: ast.Subscript) -> Code:
    """x[a:b:c]"""
    part, word = node.slice, p.kind(node.value)
    assert isinstance(part, ast.Slice)
    bounds = [p.text(x) if x is not None else None for x in (part.lower, part.upper)]
    if word == "str":
        args = [p.text(node.value), *(x or "null" for x in bounds)]
        if part.step is not None:
            raise Unsupported("a slice of a text with a step: use list(text)", node)
        return Code(f"py.substring({', '.join(args)})", CALL)
    if word not in LISTS and word not in ("any", "union"):
        raise Unsupported(f"a slice of {word}", node)
    if part.step is not None:
        args = [p.text(node.value), *(x or "null" for x in bounds), p.text(part.step)]
        if bounds == [None, None] and args[-1] == "-1" and word in ("list", "tuple"):
            return Code(f"[...{p.text(node.value, CALL)}].reverse()", CALL)
        return Code(f"py.slice({', '.join(args)})", CALL)
    target = p.text(node.value, CALL)
    bounds = [
        f"{b} ?? undefined" if b and x is not None and "none" in p.kinds(x) else b
        for b, x in zip(bounds, (part.lower, part.upper))
    ]
    if bounds == [None, None]:
        return Code(f"{target}.slice()", CALL)
    if bounds[1] is None:
        return Code(f"{target}.slice({bounds[0]})", CALL)
    return Code(f"{target}.slice({bounds[0] or 0}, {bounds[1]})", CALL)


def array_of(p: Expressions, node: ast.Call) -> str | None:
    """A call as an array, where a comprehension goes through it."""
    if isinstance(node.func, ast.Attribute):
        word = p.kind(node.func.value)
        if node.func.attr == "items" and word in ("json", "mapping"):
            return f"Object.entries({p.text(node.func.value)})"
        if node.func.attr == "values" and word in ("json", "mapping"):
            return f"Object.values({p.text(node.func.value)})"
        if node.func.attr == "keys" and word in ("json", "mapping"):
            return f"Object.keys({p.text(node.func.value)})"
        if node.func.attr == "items" and word == "dict":
            return f"[...{p.text(node.func.value, CALL)}]"
        if word == "dict" and node.func.attr in ("keys", "values"):
            return f"[...{p.text(node.func.value, CALL)}.{node.func.attr}()]"
    if isinstance(node.func, ast.Name) and node.func.id in ("zip", "range", "enumerate", "sorted"):
        return str(call(p, node).text)
    if isinstance(node.func, ast.Name) and node.func.id in ("map", "reversed", "filter"):
        return str(call(p, node).text)
    return None


# Calls


def call(p: Expressions, node: ast.Call) -> Code:
    """A call."""
    func = node.func
    if isinstance(func, ast.Name) and func.id not in p.imported:
        made = _builtin(p, node, func.id)
        if made is not None:
            return made
    if isinstance(func, ast.Attribute):
        made = methods.call(p, node, func)
        if made is not None:
            return made
    return _own(p, node)


def _builtin(p: Expressions, node: ast.Call, name: str) -> Code | None:
    args = node.args
    special = _SPECIAL.get(name)
    if special is not None:
        return special(p, node)
    if name in ERRORS:
        texts = ", ".join(p.text(a) for a in args)
        return Code(f"new {BUILTINS[name]}({texts})", CALL)
    if name in BUILTINS:
        texts = [p.text(a) for a in args]
        if node.keywords:
            texts.append(options_of(p, node.keywords))
        return Code(f"{BUILTINS[name]}({', '.join(texts)})", CALL)
    return None


def options_of(p: Expressions, keywords: list[ast.keyword]) -> str:
    parts = []
    for k in keywords:
        if k.arg is None:
            parts.append(f"...{p.text(k.value)}")
        else:
            text = p.text(k.value)
            parts.append(k.arg if text == k.arg else f"{k.arg}: {text}")
    return f"{{ {', '.join(parts)} }}"


def _len(p: Expressions, node: ast.Call) -> Code:
    value = node.args[0]
    found = p.kinds(value) - {"none"}
    if found <= LISTS:
        return Code(f"{p.text(value, CALL)}.length", CALL)
    if found <= KEYED:
        return Code(f"{p.text(value, CALL)}.size", CALL)
    if found <= {"json", "mapping", "typeddict"}:
        return Code(f"Object.keys({p.text(value)}).length", CALL)
    return Code(f"py.length({p.text(value)})", CALL)


def _callable(p: Expressions, node: ast.Call) -> Code:
    return Code(f'typeof {p.text(node.args[0], UNARY)} === "function"', EQUAL)


def _isinstance(p: Expressions, node: ast.Call) -> Code:
    return instance_of(p, node.args[0], node.args[1])


def _cast(p: Expressions, node: ast.Call) -> Code:
    found = p.type(node)
    return Code(f"({p.text(node.args[1], 10)} as {p.writer.text(found)})")


def _list(p: Expressions, node: ast.Call) -> Code:
    if not node.args:
        return Code("[]")
    value = node.args[0]
    if isinstance(value, (ast.GeneratorExp, ast.ListComp)):
        return p.code(value)
    if isinstance(value, ast.Call):
        made = array_of(p, value)
        if made is not None:
            return Code(made, CALL)
    return Code(f"[...{p.iterable(value)}]")


def _set(p: Expressions, node: ast.Call) -> Code:
    found = p.writer.text(p.type(node))[len("Set") :] if not node.args else ""
    return Code(f"new Set{found}({p.iterable(node.args[0]) if node.args else ''})", CALL)


def _dict(p: Expressions, node: ast.Call) -> Code:
    word = p.kind(node)
    if word in ("json", "mapping"):
        if not node.args:
            return Code(options_of(p, node.keywords) if node.keywords else "{}")
        if p.kind(node.args[0]) in ("json", "mapping", "typeddict"):
            more = f", {options_of(p, node.keywords)[2:-2]}" if node.keywords else ""
            return Code(f"{{ ...{p.text(node.args[0])}{more} }}")
        return Code(f"py.record({p.text(node.args[0])})", CALL)
    if node.keywords:
        raise Unsupported("dict() with keywords: write a display", node)
    if node.args and p.kind(node.args[0]) == "mapping":
        return Code(f"new Map(Object.entries({p.text(node.args[0])}))", CALL)
    return Code(f"new Map({p.text(node.args[0]) if node.args else ''})", CALL)


def _number(p: Expressions, node: ast.Call) -> Code:
    name, value = node.func.id, node.args[0]  # type: ignore[attr-defined]
    found = p.kinds(value)
    if found == {"bool"}:
        return Code(f"Number({p.text(value)})", CALL)
    if name == "float" and found <= {"int", "float"}:
        return p.code(value)
    if name == "float" and isinstance(value, ast.Constant):
        return Code({"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[value.value])
    if name == "int" and found == {"int"}:
        return p.code(value)
    if name == "int" and found <= {"float", "int"}:
        return Code(f"py.trunc({p.text(value)})", CALL)
    texts = ", ".join(p.text(a) for a in node.args)
    return Code(f"py.{name}({texts})", CALL)


def _str(p: Expressions, node: ast.Call) -> Code:
    value = node.args[0]
    if p.kinds(value) == {"str"}:
        return p.code(value)
    if p.kinds(value) == {"int"}:
        return Code(f"String({p.text(value)})", CALL)
    return Code(f"py.str({p.with_float(value)})", CALL)


def _repr(p: Expressions, node: ast.Call) -> Code:
    return Code(f"py.repr({p.with_float(node.args[0])})", CALL)


def _bool(p: Expressions, node: ast.Call) -> Code:
    made = p._condition(node.args[0])
    return made if p.kinds(node.args[0]) == {"bool"} else Code(f"Boolean({made.text})", CALL)


def _any(p: Expressions, node: ast.Call) -> Code:
    value, some = node.args[0], node.func.id == "any"  # type: ignore[attr-defined]
    if isinstance(value, ast.GeneratorExp) and len(value.generators) == 1:
        first = value.generators[0]
        source = p.array(first.iter)
        p.names.append({})
        target = p.parameter(first.target)
        for test in first.ifs:
            source = f"{source}.filter(({target}) => {p.condition(test)})"
        body = p.condition(value.elt)
        p.names.pop()
        return Code(f"{source}.{'some' if some else 'every'}(({target}) => {body})", CALL)
    return Code(f"py.{'any' if some else 'all'}({p.text(value)})", CALL)


def _extreme(p: Expressions, node: ast.Call) -> Code:
    name = node.func.id  # type: ignore[attr-defined]
    if len(node.args) > 1 and not node.keywords:
        found = {k for a in node.args for k in p.kinds(a)}
        if found <= {"int", "float", "bool"} and not any(
            isinstance(a, ast.Starred) for a in node.args
        ):
            return Code(f"Math.{name}({', '.join(p.number(a, 1) for a in node.args)})", CALL)
        texts = ", ".join(p.text(a) for a in node.args)
        return Code(f"py.{name}([{texts}])", CALL)
    value = node.args[0]
    if len(node.args) > 1:
        value = ast.copy_location(ast.List(node.args, ast.Load()), node)
    texts = [f"[{p.text(value)}]" if isinstance(value, ast.Starred) else p.iterable(value)]
    texts += [options_of(p, node.keywords)] if node.keywords else []
    return Code(f"py.{name}({', '.join(texts)})", CALL)


def _map(p: Expressions, node: ast.Call) -> Code:
    if len(node.args) != 2:
        raise Unsupported("map of several iterables: write a comprehension", node)
    func, source = node.args[0], p.array(node.args[1])
    if isinstance(func, ast.Lambda):
        return Code(f"{source}.map({p.text(func)})", CALL)
    if isinstance(func, ast.Name) and func.id == "len":
        return Code(f"{source}.map((x) => x.length)", CALL)
    return Code(f"{source}.map((x) => {p.text(func, CALL)}(x))", CALL)


def _zip(p: Expressions, node: ast.Call) -> Code:
    texts = [
        f"...{p.iterable(a.value)}" if isinstance(a, ast.Starred) else p.iterable(a)
        for a in node.args
    ]
    return Code(f"py.zip({', '.join(texts)})", CALL)


def _enumerate(p: Expressions, node: ast.Call) -> Code:
    first = node.args[1] if len(node.args) > 1 else None
    first = next((k.value for k in node.keywords if k.arg == "start"), first)
    texts = [p.iterable(node.args[0])] + ([p.text(first)] if first is not None else [])
    return Code(f"py.enumerate({', '.join(texts)})", CALL)


def _iterable(name: str) -> Any:
    def made(p: Expressions, node: ast.Call) -> Code:
        texts = [p.iterable(node.args[0]), *(p.text(a) for a in node.args[1:])]
        texts += [options_of(p, node.keywords)] if node.keywords else []
        return Code(f"py.{name}({', '.join(texts)})", CALL)

    return made


def _bytes(p: Expressions, node: ast.Call) -> Code:
    if not node.args:
        return Code("new Uint8Array()", CALL)
    value = node.args[0]
    text = p.text(value) if p.kind(value) == "int" else p.iterable(value)
    return Code(f"new Uint8Array({text})", CALL)


def _new_array(p: Expressions, node: ast.Call) -> Code:
    value = node.args[1] if len(node.args) > 1 else None
    if value is None:
        raise Unsupported("an array that grows: use a list", node)
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)) and len(value.generators) == 1:
        loop = value.generators[0]
        plain = None if loop.ifs else p.mapping(loop, value.elt)
        if plain is not None:
            source, function = plain
            return Code(f"{_array(node)}.from({p.iterable(source)}, {function})", CALL)
    return Code(f"new {_array(node)}({p.iterable(value)})", CALL)


def replaced(p: Expressions, node: ast.Call) -> Code:
    if p.kind(node.args[0]) != "record":
        raise Unsupported("replace of a class with methods: call its constructor", node)
    return Code(f"{{ ...{p.text(node.args[0])}, {options_of(p, node.keywords)[2:-2]} }}")


def _next(p: Expressions, node: ast.Call) -> Code:
    value = node.args[0]
    other = p.text(node.args[1]) if len(node.args) > 1 else None
    if isinstance(value, ast.GeneratorExp) and len(value.generators) == 1:
        first = value.generators[0]
        same = ast.unparse(first.target) == ast.unparse(value.elt)
        if same:
            source = p.array(first.iter)
            p.names.append({})
            target = p.parameter(first.target)
            tests = " && ".join(p.condition(x, 5) for x in first.ifs) or "true"
            p.names.pop()
            found = f"{source}.find(({target}) => {tests})"
            return Code(f"{found}!", CALL) if other is None else Code(f"{found} ?? {other}", 3)
    if isinstance(value, ast.GeneratorExp):
        return Code(f"py.first({p.text(value)}{'' if other is None else f', {other}'})", CALL)
    if other is None:
        return Code(f"py.next({p.text(value)})", CALL)
    return Code(f"py.next({p.text(value)}, {other})", CALL)


_SPECIAL: dict[str, Any] = {
    "len": _len,
    "callable": _callable,
    "isinstance": _isinstance,
    "cast": _cast,
    "list": _list,
    "tuple": _list,
    "set": _set,
    "frozenset": _set,
    "dict": _dict,
    "int": _number,
    "float": _number,
    "str": _str,
    "repr": _repr,
    "bool": _bool,
    "any": _any,
    "all": _any,
    "min": _extreme,
    "max": _extreme,
    "map": _map,
    "zip": _zip,
    "enumerate": _enumerate,
    "bytes": _bytes,
    "bytearray": _bytes,
    "memoryview": _bytes,
    "array": _new_array,
    "replace": replaced,
    "sorted": _iterable("sorted"),
    "sum": _iterable("sum"),
    "next": _next,
    "reversed": _iterable("reversed"),
    "iter": _iterable("iterator"),
    "filter": _iterable("filter"),
}


# Names with a meaning to the printer, of Python and of TypeScript.
TAKEN = {*BUILTINS, *_SPECIAL, *"dict type super math re dataclasses error_".split()}
TAKEN |= set(
    """Array BigInt Boolean Error Float32Array Float64Array Infinity Int16Array Int32Array Int8Array
    Map Math NaN Number Object RegExp Set String Symbol TypeError Uint16Array Uint32Array
    Uint8Array""".split()
)


def pattern(node: ast.Call) -> str:
    """re.compile of a constant as a regular expression of JavaScript."""
    first = node.args[0]
    if (
        ast.unparse(node.func) != "re.compile"
        or not isinstance(first, ast.Constant)
        or len(node.args) > 1
    ):
        raise Unsupported("re: use re.compile of a constant without flags", node)
    text = str(first.value)
    for mark in (
        r"\\d",
        r"\\w",
        r"\\s",
        r"\\b",
        r"\\A",
        r"\\Z",
        "(?i",
        "(?s",
        "(?x",
        "(?m",
        "(?a",
        "(?P=",
    ):
        if (
            re.search(mark.replace("(?", r"\(\?").replace("(?P=", r"\(\?P="), text)
            if mark.startswith("(")
            else mark[1:] in text
        ):
            raise Unsupported(f"{mark} means other characters in JavaScript: write them out", node)
    text = text.replace("(?P<", "(?<").replace("/", r"\/").replace("\n", r"\n")
    return f"/{text}/u"


# Calls of the project's own functions and classes


def _own(p: Expressions, node: ast.Call) -> Code:
    found = p.type(node.func)
    if isinstance(node.func, ast.Call) and ast.unparse(node.func) == "super()":
        raise Unsupported("super() as a value", node)
    if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "super()":
        target = "super" if node.func.attr == "__init__" else f"super.{node.func.attr}"
        return Code(f"{target}({', '.join(arguments(p, node, found))})", CALL)
    if not isinstance(found, t.CallableType):
        if node.keywords:
            raise Unsupported(
                f"keywords of {ast.unparse(node.func)}, whose type is not known", node
            )
        return Code(f"{p.text(node.func, CALL)}({', '.join(p.text(a) for a in node.args)})", CALL)
    if found.is_type_obj():
        return _construct(p, node, found)
    return Code(f"{p.text(node.func, CALL)}({', '.join(arguments(p, node, found))})", CALL)


def _construct(p: Expressions, node: ast.Call, found: t.CallableType) -> Code:
    made = t.get_proper_type(found.ret_type)
    if kind(made) in ("record", "namedtuple", "typeddict"):
        if kind(made) == "typeddict":
            for k in node.keywords:
                passed(p, k.value, dict(zip(found.arg_names, found.arg_types)).get(k.arg))
            return Code(options_of(p, node.keywords) if node.keywords else "{}")
        return Code(_record(p, node, found, made))
    return Code(f"new {p.text(node.func, CALL)}({', '.join(arguments(p, node, found))})", CALL)


def _record(p: Expressions, node: ast.Call, found: t.CallableType, made: Any) -> str:
    """The object that a call of a dataclass gives, with its defaults."""
    given: dict[str, str] = {}
    names = [n or "" for n in found.arg_names]
    wanted = dict(zip(names, found.arg_types))
    for name, value in zip(names, node.args):
        if isinstance(value, ast.Starred):
            raise Unsupported("* in a call of a dataclass", node)
        given[name] = passed(p, value, wanted[name])
    spread = ""
    for k in node.keywords:
        if k.arg is None:
            spread = f"...{p.text(k.value)}"
        else:
            given[k.arg] = passed(p, k.value, wanted.get(k.arg))
    info = made.partial_fallback.type if isinstance(made, t.TupleType) else made.type
    parts = [spread] if spread else []
    for name in names:
        if name not in given:
            given[name] = p.default_of(info, name, node)
        parts.append(name if given[name] == name else f"{name}: {given[name]}")
    return f"{{ {', '.join(parts)} }}"


def arguments(p: Expressions, node: ast.Call, found: Any) -> list[str]:
    """The arguments in the order of the parameters; those of keywords alone as an object."""
    types = found.arg_types if isinstance(found, t.CallableType) else []
    texts = [
        f"...{p.iterable(a.value)}"
        if isinstance(a, ast.Starred)
        else passed(p, a, types[i] if i < len(types) else None)
        for i, a in enumerate(node.args)
    ]
    if not isinstance(found, t.CallableType):
        if node.keywords:
            raise Unsupported("keywords of a function whose type is not known", node)
        return texts
    named = {k.arg: k.value for k in node.keywords if k.arg is not None}
    wanted = dict(zip(found.arg_names, types))
    for name, value in named.items():
        passed(p, value, wanted.get(name))
    spread = [k.value for k in node.keywords if k.arg is None]
    positional = [n for n, k in zip(found.arg_names, found.arg_kinds) if k.is_positional()]
    while any(n in named for n in positional[len(texts) :]):
        name = positional[len(texts)]
        texts.append(p.text(named.pop(name)) if name in named else "undefined")
    if named or spread:
        options = [ast.keyword(n, v) for n, v in named.items()]
        options += [ast.keyword(None, v) for v in spread]
        while len(texts) < len(positional):
            texts.append("undefined")
        texts.append(options_of(p, options))
    return texts


def passed(p: Expressions, value: ast.expr, wanted: t.Type | None) -> str:
    """An argument, whose form in TypeScript must be that of the parameter."""
    p.expect(value, wanted)
    word, given = kind(wanted), p.kind(value)
    maps = word in ("mapping", "json") and given == "dict"
    if maps or (word == "dict" and given in ("json", "mapping")):
        raise Unsupported(
            f"a {given} where a {word} is taken: one is a Map and the other an object in "
            "TypeScript. Annotate both as dict, or as Mapping",
            value,
        )
    return p.text(value)

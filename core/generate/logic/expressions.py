"""Prints expressions as TypeScript."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence

import calls
from mypy import types as t
from printed import (
    AND,
    ARROW,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    CALL,
    CONDITIONAL,
    EQUAL,
    OR,
    POWER,
    PRODUCT,
    RELATION,
    SHIFT,
    SUM,
    UNARY,
    Code,
    Unsupported,
    member,
    quoted,
    safe,
)
from types_of import (
    KEYED,
    LISTS,
    PLAIN_TRUTH,
    PRIMITIVE,
    Types,
    Writer,
    element,
    kind,
    kinds,
    members,
)


class Expressions:
    """Prints the expressions of one module.

    Attributes:
        types: of the module's expressions.
        writer: prints types.
        names: local names that mean something else: the first argument of a method, or a loop's
            variable that a helper names.
    """

    def __init__(self, types: Types, writer: Writer, modules: dict[str, str]) -> None:
        self.types, self.writer, self.modules = types, writer, modules
        self.names: list[dict[str, str]] = [{}]
        self.imported: dict[str, tuple[str, str]] = {}
        self.plain: set[int] = set()  # ids of dicts where a Mapping is wanted

    # What an expression is

    def type(self, node: ast.expr) -> t.ProperType | None:
        """Its type. Displays of tuples take those of their elements."""
        found = self.types.find(node)
        if found is None and isinstance(node, ast.BinOp):
            return self.type(node.left)
        if found is None and isinstance(node, ast.Attribute):
            owner = self.type(node.value)
            symbol = owner.type.get(node.attr) if isinstance(owner, t.Instance) else None
            found = t.get_proper_type(getattr(symbol.node, "type", None)) if symbol else None
        if found is None and isinstance(node, ast.Subscript):
            owner = self.type(node.value)
            if (
                isinstance(owner, t.Instance)
                and owner.args
                and not isinstance(node.slice, ast.Slice)
            ):
                found = t.get_proper_type(owner.args[-1])
        if found is None and isinstance(node, ast.Tuple):
            items = [self.type(x) or t.AnyType(t.TypeOfAny.explicit) for x in node.elts]
            return t.TupleType(items, t.Instance(self.types.tuple_info(), []))
        return found

    def kind(self, node: ast.expr) -> str:
        """The word for its type."""
        if id(node) in self.plain:
            return "mapping"
        if isinstance(node, ast.Tuple):
            return "tuple"
        if isinstance(node, ast.JoinedStr):
            return "str"
        if isinstance(node, ast.Constant):
            return {"NoneType": "none"}.get(type(node.value).__name__, type(node.value).__name__)
        if isinstance(node, (ast.Compare,)) or _is_not(node):
            return "bool"
        found = self.type(node)
        if isinstance(node, (ast.Dict, ast.DictComp)) and isinstance(found, t.Instance):
            if found.args and kind(found.args[0]) == "any":
                return "dict"  # where Any is wanted, all that is known of it
        return kind(found)

    def kinds(self, node: ast.expr) -> set[str]:
        """The words for the members of its type."""
        word = self.kind(node)
        return {word} if word in ("bool", "str", "none") else kinds(self.type(node)) or {word}

    def expect(self, node: ast.expr, wanted: t.Type | None) -> None:
        """Notes which dicts of an expression are to be Mappings, which are plain objects."""
        if isinstance(node, ast.IfExp):
            self.expect(node.body, wanted)
            self.expect(node.orelse, wanted)
        if isinstance(node, ast.BoolOp):
            for x in node.values:
                self.expect(x, wanted)
        for one in members(wanted):
            if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
                self.expect(node.elt, element(one))
            elif isinstance(node, (ast.List, ast.Set)):
                for x in node.elts:
                    self.expect(x, element(one))
            elif isinstance(node, ast.Tuple) and isinstance(one, t.TupleType):
                for x, item in zip(node.elts, one.items):
                    self.expect(x, item)
            elif kind(one) == "json":
                self.expect_json(node)
            elif kind(one) == "mapping" and isinstance(one, t.Instance):
                for value in self._plain_values(node):
                    self.expect(value, one.args[1])

    def expect_json(self, node: ast.expr) -> None:
        """Notes that the dicts of an expression are a value of JSON, so plain objects all through.

        Raises:
            Unsupported: one is a Map.
        """
        parts: list[ast.expr] = []
        if isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.BoolOp):
            parts = node.values
        elif isinstance(node, (ast.List, ast.Tuple)):
            parts = [x for x in node.elts if not isinstance(x, ast.Starred)]
        elif isinstance(node, ast.ListComp):
            parts = [node.elt]
        elif isinstance(node, (ast.Dict, ast.DictComp)) or _is_dict_call(node):
            parts = self._plain_values(node)
        elif self.kind(node) == "dict":
            raise Unsupported(
                "a dict in a value of JSON, one a Map and the other an object in TypeScript: "
                "annotate it as dict[str, Any]",
                node,
            )
        for part in parts:
            self.expect_json(part)

    def _plain_values(self, node: ast.expr) -> list[ast.expr]:
        """Notes that a display is a plain object, if it is one. Returns its values."""
        if isinstance(node, ast.Dict):
            keys: list[ast.expr] = [k for k in node.keys if k is not None]
            values = [v for k, v in zip(node.keys, node.values) if k is not None]
        elif isinstance(node, ast.DictComp):
            keys, values = [node.key], [node.value]
        elif _is_dict_call(node):
            keys, values = [], []
        else:
            return []
        for key in keys:
            if not self.kinds(key) <= {"str", "any"}:
                raise Unsupported("a key of a plain object that is no text: use str(key)", key)
        self.plain.add(id(node))
        return values

    # Printing

    def text(self, node: ast.expr, level: int = ARROW) -> str:
        """An expression, in parentheses where its operator binds less than `level`."""
        code = self.code(node)
        return code.text if code.level >= level else f"({code.text})"

    def code(self, node: ast.expr) -> Code:
        """An expression."""
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None:
            raise Unsupported(f"{type(node).__name__} is not in the subset", node)
        made: Code = method(node)
        return made

    def condition(self, node: ast.expr, level: int = ARROW) -> str:
        """An expression of which only the truth counts."""
        code = self._condition(node)
        return code.text if code.level >= level else f"({code.text})"

    def _condition(self, node: ast.expr) -> Code:
        if _is_not(node):
            return _negated(self._condition(node.operand))  # type: ignore[attr-defined]
        if isinstance(node, ast.BoolOp):
            sign, level = ("&&", AND) if isinstance(node.op, ast.And) else ("||", OR)
            parts = [
                self.condition(x, level if i == 0 else level + 1) for i, x in enumerate(node.values)
            ]
            return Code(f" {sign} ".join(parts), level)
        if isinstance(node, ast.NamedExpr) and self.kinds(node) <= PLAIN_TRUTH:
            return self.code(node)
        found = self.kinds(node)
        if found <= PLAIN_TRUTH:
            return self.code(node)
        if found == {"float"} or found == {"float", "int"}:
            return Code(f"{self.text(node, EQUAL)} !== 0", EQUAL)
        if found <= LISTS:
            return Code(f"{self.text(node, CALL)}.length > 0", RELATION)
        if found <= KEYED:
            return Code(f"{self.text(node, CALL)}.size > 0", RELATION)
        if found <= LISTS | {"none"} and not isinstance(node, ast.NamedExpr):
            return Code(f"{self.text(node, CALL)}?.length", CALL)
        if found <= KEYED | {"none"} and not isinstance(node, ast.NamedExpr):
            return Code(f"{self.text(node, CALL)}?.size", CALL)
        return Code(f"py.truth({self.text(node)})", CALL)

    def _constant(self, node: ast.Constant) -> Code:
        value = node.value
        if value is None or isinstance(value, bool):
            return Code({None: "null", True: "true", False: "false"}[value])
        if isinstance(value, str):
            return Code(quoted(value))
        if isinstance(value, int) and abs(value) >= 2**53:
            raise Unsupported("an integer of more than 53 bits: keep it in a native function", node)
        if isinstance(value, (int, float)):
            return Code(repr(value).removesuffix(".0"))
        if isinstance(value, bytes):
            return Code(f"Uint8Array.of({', '.join(map(str, value))})", CALL)
        raise Unsupported(f"the constant {value!r} has no counterpart", node)

    def _name(self, node: ast.Name) -> Code:
        for scope in reversed(self.names):
            if node.id in scope:
                return Code(scope[node.id])
        if node.id in self.imported:
            return Code(self.writer.name(*self.imported[node.id], False))
        if node.id in calls.BUILTINS and isinstance(node.ctx, ast.Load):
            return Code(calls.value_of(node))
        return Code(safe(node.id))

    def _attribute(self, node: ast.Attribute) -> Code:
        if isinstance(node.value, ast.Name) and node.value.id == "math":
            return Code(calls.math_value(node))
        return Code(f"{self.text(node.value, CALL)}.{node.attr}", CALL)

    def _elements(self, elts: Sequence[ast.expr]) -> str:
        return ", ".join(
            f"...{self.iterable(x.value)}" if isinstance(x, ast.Starred) else self.text(x)
            for x in elts
        )

    def _list(self, node: ast.List | ast.Tuple) -> Code:
        return Code(f"[{self._elements(node.elts)}]")

    _tuple = _list

    def _set(self, node: ast.Set) -> Code:
        return Code(f"new Set([{self._elements(node.elts)}])", CALL)

    def _dict(self, node: ast.Dict) -> Code:
        word = self.kind(node)
        spread = [self.kind(v) for k, v in zip(node.keys, node.values) if k is None]
        if "dict" in spread and (word != "dict" or "json" in spread):
            raise Unsupported(
                "a dict spread in an object of JSON, one a Map and the other an object in "
                "TypeScript: annotate it as dict[str, Any]",
                node,
            )
        if word in ("json", "typeddict", "mapping", "any") or "json" in spread:
            found = self.type(node)
            for key, value in zip(node.keys, node.values):
                if isinstance(found, t.TypedDictType) and isinstance(key, ast.Constant):
                    self.expect(value, found.items.get(str(key.value)))
                elif word == "json" and key is not None:
                    self.expect_json(value)
            return Code(f"{{ {', '.join(self._properties(node))} }}" if node.keys else "{}")
        if word != "dict":
            raise Unsupported("a dict of an unknown type: annotate the variable", node)
        found = self.type(node)
        values = found.args[1] if isinstance(found, t.Instance) else None
        if len(set(kinds(values)) - {"none", "int", "float"}) > 1 or kind(values) in (
            *("object", "sequence", "iterable"),
        ):
            raise Unsupported(
                "a dict of several types: annotate dict[str, Any] or a TypedDict", node
            )
        if not node.keys:
            return Code("new Map()", CALL)
        parts = [
            f"...{self.text(v)}" if k is None else f"[{self.text(k)}, {self.text(v)}]"
            for k, v in zip(node.keys, node.values)
        ]
        return Code(f"new Map([{', '.join(parts)}])", CALL)

    def _properties(self, node: ast.Dict) -> list[str]:
        parts = []
        for key, value in zip(node.keys, node.values):
            if key is None:
                text = self.text(value)
                if self.kind(value) == "dict":
                    text = f"Object.fromEntries({text})"
                parts.append(f"...{text}")
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                name = key.value if key.value.isidentifier() else quoted(key.value)
                if name == "__proto__":
                    raise Unsupported("the key __proto__", key)
                text = self.text(value)
                parts.append(name if text == name else f"{name}: {text}")
            else:
                parts.append(f"[{self.text(key)}]: {self.text(value)}")
        return parts

    def _joinedstr(self, node: ast.JoinedStr) -> Code:
        parts = []
        for value in node.values:
            if isinstance(value, ast.Constant):
                text = json.dumps(value.value)[1:-1].replace('\\"', '"')
                parts.append(text.replace("`", "\\`").replace("${", "\\${"))
            elif isinstance(value, ast.FormattedValue):
                parts.append("${" + self._formatted(value) + "}")
        return Code(f"`{''.join(parts)}`")

    def _formatted(self, node: ast.FormattedValue) -> str:
        text = self.text(node.value)
        if node.format_spec is not None:
            parts = getattr(node.format_spec, "values", [])
            spec = parts[0] if len(parts) == 1 else None
            if not isinstance(spec, ast.Constant):
                raise Unsupported("a format that is computed: write two texts", node)
            fixed = re.fullmatch(r"\.(\d+)f", spec.value)
            if fixed and self.kinds(node.value) <= {"float", "int"}:
                return f"py.fixed({text}, {fixed[1]})"
            return f"py.format({text}, {quoted(spec.value)})"
        if node.conversion == ord("r"):
            return f"py.repr({self.with_float(node.value)})"
        return (
            text
            if self.kinds(node.value) <= {"str", "int"}
            else f"py.str({self.with_float(node.value)})"
        )

    def with_float(self, node: ast.expr) -> str:
        """An argument of `repr` or `str`. A float is marked, since 1.0 is written "1.0"."""
        text = self.text(node)
        return f"{text}, true" if self.kinds(node) == {"float"} else text

    def _ifexp(self, node: ast.IfExp) -> Code:
        test = self.condition(node.test, OR)
        return Code(
            f"{test} ? {self.text(node.body)} : {self.text(node.orelse, CONDITIONAL)}", CONDITIONAL
        )

    def _namedexpr(self, node: ast.NamedExpr) -> Code:
        return Code(f"({self.text(node.target)} = {self.text(node.value)})")

    def _yield(self, node: ast.Yield) -> Code:
        return Code(f"yield {self.text(node.value)}" if node.value else "yield", ARROW)

    def _yieldfrom(self, node: ast.YieldFrom) -> Code:
        return Code(f"yield* {self.text(node.value)}", ARROW)

    def _lambda(self, node: ast.Lambda) -> Code:
        names = [a.arg for a in node.args.args]
        self.names.append({n: safe(n) for n in names})
        body = self.text(node.body)
        self.names.pop()
        if body.startswith("{"):
            body = f"({body})"
        return Code(f"({', '.join(map(safe, names))}) => {body}", ARROW)

    # Operators

    def _unaryop(self, node: ast.UnaryOp) -> Code:
        if isinstance(node.op, ast.Not):
            return self._condition(node)
        if isinstance(node.op, ast.Invert):
            raise Unsupported("~ of 32 bits is negative: write mask - x", node)
        sign = "-" if isinstance(node.op, ast.USub) else "+"
        inner = self.number(node.operand, UNARY)
        return Code(sign + (f"({inner})" if inner[0] == sign else inner), UNARY)

    def number(self, node: ast.expr, level: int) -> str:
        """An operand of arithmetic; a bool becomes a number."""
        if self.kinds(node) == {"bool"}:
            return f"Number({self.text(node)})"
        return self.text(node, level)

    def _binop(self, node: ast.BinOp) -> Code:
        sign = type(node.op).__name__
        if all(isinstance(x, ast.Constant) for x in (node.left, node.right)) and sign != "Mult":
            return self._constant(ast.Constant(eval(ast.unparse(node))))  # noqa: S307
        left, right = self.kind(node.left), self.kind(node.right)
        if {left, right} <= {"int", "float", "bool", "any"}:
            return self._arithmetic(node, sign)
        made = calls.combined(self, node, sign, left, right)
        if made is None:
            made = self._arithmetic(node, sign) if "union" in (left, right) else None
        if made is None:
            raise Unsupported(f"{sign} of {left} and {right}", node)
        return made

    def _arithmetic(self, node: ast.BinOp, sign: str) -> Code:
        plain = {
            "Add": ("+", SUM),
            "Sub": ("-", SUM),
            "Mult": ("*", PRODUCT),
            "Div": ("/", PRODUCT),
        }
        if sign in plain:
            mark, level = plain[sign]
            left, right = self.number(node.left, level), self.number(node.right, level + 1)
            return Code(f"{left} {mark} {right}", level)
        if sign == "FloorDiv":
            left, right = self.number(node.left, PRODUCT), self.number(node.right, PRODUCT + 1)
            return Code(f"Math.floor({left} / {right})", CALL)
        if sign == "Mod":
            return Code(
                f"py.mod({self.number(node.left, ARROW)}, {self.number(node.right, ARROW)})", CALL
            )
        if sign == "Pow":
            base = self.number(node.left, POWER + 2)
            return Code(f"{base} ** {self.number(node.right, POWER)}", POWER)
        if sign == "LShift":
            power = f"2 ** {self.number(node.right, POWER)}"
            return Code(f"{self.number(node.left, PRODUCT)} * {power}", PRODUCT)
        if sign == "RShift":
            power = f"2 ** {self.number(node.right, POWER)}"
            return Code(f"Math.floor({self.number(node.left, PRODUCT)} / {power})", CALL)
        bits = {"BitAnd": "&", "BitOr": "|", "BitXor": "^"}
        level = {"BitAnd": BIT_AND, "BitOr": BIT_OR, "BitXor": BIT_XOR}.get(sign)
        if level is None:
            raise Unsupported(f"the operator {sign}", node)
        if self.kinds(node.left) == {"bool"} == self.kinds(node.right):
            raise Unsupported("bits of bool: write `and`, `or` or !=", node)
        left, right = self.number(node.left, level), self.number(node.right, level + 1)
        return Code(f"({left} {bits[sign]} {right}) >>> 0", SHIFT)

    def _boolop(self, node: ast.BoolOp) -> Code:
        if all(self.kinds(x) == {"bool"} for x in node.values):
            return self._condition(node)
        sign, level = ("&&", AND) if isinstance(node.op, ast.And) else ("||", OR)
        if all(self.kinds(x) <= PLAIN_TRUTH for x in node.values[:-1]) or _or_empty(node):
            parts = [
                self.text(x, level if i == 0 else level + 1) for i, x in enumerate(node.values)
            ]
            return Code(f" {sign} ".join(parts), level)
        made = self.code(node.values[-1])
        for value in reversed(node.values[:-1]):
            if not isinstance(value, (ast.Name, ast.Attribute)):
                raise Unsupported("`or` of a value whose truth needs a look: name it first", value)
            text, other = self.text(value), made.text
            if made.level < CONDITIONAL:
                other = f"({other})"
            both = f"{other} : {text}" if sign == "&&" else f"{text} : {other}"
            made = Code(f"{self.condition(value, OR)} ? {both}", CONDITIONAL)
        return made

    def _compare(self, node: ast.Compare) -> Code:
        operands = [node.left, *node.comparators]
        if len(node.ops) > 1:
            for middle in operands[1:-1]:
                if not isinstance(
                    middle, (ast.Name, ast.Attribute, ast.Constant)
                ) and not calls.is_pure(middle):
                    raise Unsupported("a chain of comparisons would compute twice: name it", middle)
        parts = [self._comparison(a, op, b) for a, op, b in zip(operands, node.ops, operands[1:])]
        if len(parts) == 1:
            return parts[0]
        return Code(" && ".join(p.text for p in parts), AND)

    def _comparison(self, a: ast.expr, op: ast.cmpop, b: ast.expr) -> Code:
        if isinstance(op, (ast.In, ast.NotIn)):
            made = calls.contains(self, a, b)
            if isinstance(op, ast.In):
                return made
            return Code(f"!{made.text}" if made.level >= UNARY else f"!({made.text})", UNARY)
        if isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            return self._equal(a, op, b)
        sign = {"Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">="}[type(op).__name__]
        if (self.kinds(a) | self.kinds(b)) <= {"int", "float", "bool", "any"}:
            return Code(
                f"{self.text(a, RELATION + 1)} {sign} {self.text(b, RELATION + 1)}", RELATION
            )
        return Code(f"py.compare({self.text(a)}, {self.text(b)}) {sign} 0", RELATION)

    def _equal(self, a: ast.expr, op: ast.cmpop, b: ast.expr) -> Code:
        no = isinstance(op, (ast.IsNot, ast.NotEq))
        typed = calls.type_test(self, a, op, b)
        if typed is not None:
            return (
                Code(f"!{typed.text}" if typed.level >= UNARY else f"!({typed.text})", UNARY)
                if no
                else typed
            )
        loose = any(isinstance(x, ast.Constant) and x.value is None for x in (a, b))
        exact = isinstance(op, (ast.Is, ast.IsNot)) or self.kinds(a) <= PRIMITIVE
        exact = exact or self.kinds(b) <= PRIMITIVE
        left, right = self.text(a, EQUAL + 1), self.text(b, EQUAL + 1)
        if not exact:
            return Code(
                f"{'!' if no else ''}py.equal({self.text(a)}, {self.text(b)})",
                UNARY if no else CALL,
            )
        sign = ("!=" if no else "==") + ("" if loose else "=")
        if {*self.kinds(a), *self.kinds(b)} == {"bool", "int"}:
            left, right = self.number(a, EQUAL + 1), self.number(b, EQUAL + 1)
        return Code(f"{left} {sign} {right}", EQUAL)

    # Elements

    def _subscript(self, node: ast.Subscript) -> Code:
        word, value = self.kind(node.value), node.value
        if isinstance(node.slice, ast.Slice):
            return calls.slice_of(self, node)
        target = self.text(value, CALL)
        if word in ("json", "typeddict", "mapping"):
            sure = word == "json" or (word == "typeddict" and not self._may_lack(node))
            sure = sure or isinstance(node.ctx, ast.Store)
            return Code(self.property(node) + ("" if sure else "!"), CALL)
        if word == "dict":
            return Code(f"{target}.get({self.text(node.slice)})!", CALL)
        if word == "str":
            return Code(f"py.character({self.text(value)}, {self.text(node.slice)})", CALL)
        if word == "match":
            return Code(f"{target}[{self.text(node.slice)}]!", CALL)
        if word in ("any", "object", "union"):
            if word == "union":
                word = "list"
            elif word == "any":
                return Code(f"{target}[{self.text(node.slice)}]", CALL)
        if word not in LISTS:
            raise Unsupported(f"an element of {word}", node)
        at = node.slice
        if calls.may_be_negative(at):
            return Code(f"{target}.at({self.text(at)})!", CALL)
        if word == "tuple" and isinstance(at, ast.Constant):
            return Code(f"{target}[{self.text(at)}]", CALL)
        return Code(f"{target}[{self.text(at)}]!", CALL)

    def _may_lack(self, node: ast.Subscript) -> bool:
        """Whether the key of a TypedDict is one that may be missing."""
        found, key = self.type(node.value), node.slice
        return (
            isinstance(found, t.TypedDictType)
            and isinstance(key, ast.Constant)
            and key.value not in found.required_keys
        )

    def property(self, node: ast.Subscript) -> str:
        """A property of a JSON object."""
        target, at = self.text(node.value, CALL), node.slice
        if isinstance(at, ast.Constant) and isinstance(at.value, str):
            return member(target, at.value)
        found = self.type(node.value)
        if isinstance(found, t.TypedDictType) and not isinstance(self.type(at), t.LiteralType):
            return f"{target}[{self.text(at, CALL)} as keyof {self.writer.text(found)}]"
        return f"{target}[{self.text(at)}]"

    def iterable(self, node: ast.expr) -> str:
        """An expression that a loop goes through."""
        if self.kind(node) in ("json", "mapping", "typeddict"):
            return f"Object.keys({self.text(node)})"
        if self.kind(node) == "dict":
            return f"{self.text(node, CALL)}.keys()"
        return self.text(node, CALL)

    # Comprehensions

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> Code:
        return Code(self.mapped(node.generators, node.elt), CALL)

    def _generatorexp(self, node: ast.GeneratorExp) -> Code:
        return self._listcomp(node)

    def _setcomp(self, node: ast.SetComp) -> Code:
        return Code(f"new Set({self.mapped(node.generators, node.elt)})", CALL)

    def _dictcomp(self, node: ast.DictComp) -> Code:
        pair = ast.Tuple([node.key, node.value], ast.Load())
        word = self.kind(node)
        if word == "json":
            self.expect_json(node.value)
        if word == "dict":
            text = self.writer.text(self.type(node))
            result = text[len("Map") :] if text.startswith("Map") else "<any, any>"
            return Code(
                f"new Map{result}({self.mapped(node.generators, pair, '[any, any]')})", CALL
            )
        return Code(f"py.record({self.mapped(node.generators, pair)})", CALL)

    def mapped(self, generators: list[ast.comprehension], elt: ast.expr, tuple_: str = "") -> str:
        """An array of what a comprehension gives."""
        first, rest = generators[0], generators[1:]
        plain = None if rest or first.ifs else self.mapping(first, elt)
        if plain is not None:
            source, function = plain
            word = self.kind(source)
            if word in ("list", "tuple"):
                return f"{self.text(source, CALL)}.map({function})"
            return f"Array.from({self.iterable(source)}, {function})"
        if first.is_async:
            raise Unsupported("async: yield a request instead", elt)
        source = self.array(first.iter)
        looped = self.iterable(first.iter)
        spread = looped if source == f"[...{looped}]" else None  # a copy alone, to have methods
        self.names.append({})
        target = self.parameter(first.target)
        if any(isinstance(x, ast.NamedExpr) for test in first.ifs for x in ast.walk(test)):
            made = self._tested(first, rest, elt, source, target)
            self.names.pop()
            return made
        for test in first.ifs:
            source = f"{source}.filter(({target}) => {self.condition(test)})"
        if rest:
            inner = self.mapped(rest, elt, tuple_)
            made = f"{source}.flatMap(({target}) => {inner})"
        elif (
            isinstance(elt, ast.Name)
            and isinstance(first.target, ast.Name)
            and elt.id == first.target.id
        ):
            made = source if first.ifs or source.startswith("[...") else f"[...{source}]"
        else:
            body = self.text(elt)
            if body.startswith("{"):
                body = f"({body})"
            result = self._result_of(elt)
            head = f"({target}){result} =>"
            ranged = _range_length(source)
            if ranged is not None and not first.ifs:
                made = f"Array.from({{ length: {ranged} }}, (_, {target}){result} => {body})"
            elif spread is not None and not first.ifs:
                made = f"Array.from({spread}, {head} {body})"
            else:
                made = f"{source}.map({head} {body})"
        self.names.pop()
        return made

    def mapping(self, loop: ast.comprehension, elt: ast.expr) -> tuple[ast.expr, str] | None:
        """What a comprehension goes through and the function of an element (and its number) that it
        maps with; None where it does not go through a list, or enumerate of one.
        """
        source, target = loop.iter, loop.target
        if isinstance(elt, ast.Name) and ast.unparse(elt) == ast.unparse(target):
            return None
        index: ast.expr | None = None
        if isinstance(source, ast.Call) and ast.unparse(source.func) == "enumerate":
            if len(source.args) != 1 or source.keywords or not isinstance(target, ast.Tuple):
                return None
            source, (index, target) = source.args[0], target.elts
            if not isinstance(index, ast.Name):
                return None
        if self.kind(source) not in LISTS or isinstance(source, (ast.ListComp, ast.Call)):
            return None
        self.names.append({})
        parameters = [self.parameter(target)] + ([self.parameter(index)] if index else [])
        body = self.text(elt)
        body = f"({body})" if body.startswith("{") else body
        result = self._result_of(elt)
        self.names.pop()
        return source, f"({', '.join(parameters)}){result} => {body}"

    def _tested(
        self,
        first: ast.comprehension,
        rest: list[ast.comprehension],
        elt: ast.expr,
        source: str,
        target: str,
    ) -> str:
        """A comprehension whose tests set variables: each element's tests precede its value."""
        if rest:
            raise Unsupported("a := in a comprehension of several loops", elt)
        tests = " && ".join(self.condition(x, AND + 1) for x in first.ifs)
        return f"{source}.flatMap(({target}) => ({tests} ? [{self.text(elt)}] : []))"

    def _result_of(self, elt: ast.expr) -> str:
        """The annotation of an arrow function that returns a tuple."""
        if not isinstance(elt, ast.Tuple):
            return ""
        parts = [
            self._wide(x)
            if isinstance(x, ast.Constant)
            else "py.Json"
            if id(x) in self.plain
            else self.writer.text(self.type(x))
            for x in elt.elts
        ]
        return f": [{', '.join(parts)}]"

    def _wide(self, node: ast.Constant) -> str:
        return {"str": "string", "bool": "boolean", "none": "null"}.get(self.kind(node), "number")

    def array(self, node: ast.expr) -> str:
        """An expression with the methods of Array."""
        word = self.kind(node)
        if isinstance(node, ast.Call):
            made = calls.array_of(self, node)
            if made is not None:
                return made
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self.text(node, CALL)
        if word in ("list", "tuple"):
            return self.text(node, CALL)
        return f"[...{self.iterable(node)}]"

    def parameter(self, target: ast.expr) -> str:
        """The parameter that a comprehension's target becomes."""
        if isinstance(target, ast.Name):
            self.names[-1][target.id] = safe(target.id)
            return safe(target.id)
        if isinstance(target, (ast.Tuple, ast.List)):
            return f"[{', '.join(self._part(x) for x in target.elts)}]"
        raise Unsupported("this target of a loop", target)

    def _part(self, target: ast.expr) -> str:
        if isinstance(target, ast.Starred):
            return "..." + self.parameter(target.value)
        return "" if isinstance(target, ast.Name) and target.id == "_" else self.parameter(target)

    def _call(self, node: ast.Call) -> Code:
        return calls.call(self, node)

    def _starred(self, node: ast.Starred) -> Code:
        return Code(f"...{self.iterable(node.value)}")


def _is_dict_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "dict"


def _or_empty(node: ast.BoolOp) -> bool:
    """Whether this is `x or []`: an empty x is true in JavaScript, and as good."""
    last = node.values[-1]
    empty = isinstance(last, ast.List) and not last.elts
    return empty and isinstance(node.op, ast.Or) and len(node.values) == 2


def _negated(code: Code) -> Code:
    """The opposite of a condition."""
    for sign, other in ((" > 0", " === 0"), (" !== 0", " === 0")):
        head = code.text.removesuffix(sign)
        if (
            head != code.text
            and code.level in (RELATION, EQUAL)
            and (".length" in sign + head or "size" in head or sign == " !== 0")
        ):
            if head.endswith((".length", ".size")) or sign == " !== 0":
                return Code(head + other, EQUAL)
    return Code("!" + (code.text if code.level >= UNARY else f"({code.text})"), UNARY)


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _range_length(source: str) -> str | None:
    """n of the array `py.range(n)`."""
    inner = source.removeprefix("py.range(").removesuffix(")")
    return inner if source.startswith("py.range(") and "," not in inner else None

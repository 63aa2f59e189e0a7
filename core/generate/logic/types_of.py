"""Types of expressions, as mypy finds them, and how they are written in TypeScript."""

from __future__ import annotations

import ast
import pathlib
import sys
from typing import Any

from mypy import build, nodes, options
from mypy import types as t
from mypy.modulefinder import BuildSource
from printed import Unsupported

ALWAYS_TRUE = {"class", "record", "namedtuple", "callable"}
PLAIN_TRUTH = {"int", "bool", "str", "none", *ALWAYS_TRUE}
PRIMITIVE = {"int", "float", "bool", "str", "none"}
LISTS = {"list", "tuple", "array", "bytes", "sequence"}
KEYED = {"dict", "set"}
_KINDS = {
    "builtins.int": "int",
    "builtins.float": "float",
    "builtins.bool": "bool",
    "builtins.str": "str",
    "builtins.bytes": "bytes",
    "builtins.bytearray": "bytes",
    "builtins.memoryview": "bytes",
    "builtins.list": "list",
    "builtins.tuple": "tuple",
    "builtins.set": "set",
    "builtins.frozenset": "set",
    "builtins.object": "object",
    "builtins.range": "range",
    "array.array": "array",
    "collections.deque": "list",
    "typing.Sequence": "sequence",
    "typing.MutableSequence": "list",
    "typing.AbstractSet": "set",
    "typing.Iterable": "iterable",
    "typing.Iterator": "iterable",
    "typing.Collection": "iterable",
    "typing.KeysView": "iterable",
    "typing.ValuesView": "iterable",
    "typing.ItemsView": "iterable",
    "typing.Generator": "iterable",
    "builtins.zip": "iterable",
    "builtins.map": "iterable",
    "builtins.filter": "iterable",
    "builtins.enumerate": "iterable",
    "builtins.reversed": "iterable",
    "_collections_abc.dict_keys": "iterable",
    "_collections_abc.dict_values": "iterable",
    "_collections_abc.dict_items": "iterable",
    "re.Pattern": "pattern",
    "re.Match": "match",
}
_ITERATORS = {"zip", "map", "filter", "enumerate", "reversed", "Iterator", "Generator"}
ARRAYS = {"Float32Array": "f", "Float64Array": "d", "Int32Array": "i", "Uint8Array": "B"}


class Types:
    """Types of the expressions of one module, by their positions."""

    def __init__(self, result: build.BuildResult, module: str) -> None:
        self.module = module
        self.file = result.files[module]
        self._by_position: dict[tuple[int, int, int, int], t.Type] = {}
        self._result = result
        self._seen: set[int] = set()
        self._functions: dict[tuple[int, str], nodes.FuncDef] = {}
        self._walk(self.file.defs)

    def _walk(self, node: Any) -> None:
        """mypy's compiled visitors cannot be subclassed, so this reads the attributes of nodes."""
        if isinstance(node, (list, tuple)):
            for one in node:
                self._walk(one)
            return
        if not isinstance(node, nodes.Node) or id(node) in self._seen:
            return
        if isinstance(node, (nodes.TypeInfo, nodes.Var)):
            return
        self._seen.add(id(node))
        if isinstance(node, nodes.FuncDef):
            self._functions[node.line, node.name] = node
        if isinstance(node, nodes.Expression):
            found = self._result.types.get(node)
            if found is None or isinstance(found, t.PartialType):
                found = getattr(getattr(node, "node", None), "type", None)
            if found is None and isinstance(node, nodes.MemberExpr) and node.def_var is not None:
                found = node.def_var.type
            if isinstance(found, t.Type):
                self._by_position.setdefault(_position(node), found)
        for base in type(node).__mro__:
            for name in getattr(base, "__mypyc_attrs__", ()):
                if name not in _ELSEWHERE:
                    self._walk(getattr(node, name, None))

    def find(self, node: ast.expr) -> t.ProperType | None:
        """The type of an expression; None if mypy has none, as for code it cannot reach."""
        places = (
            (*_begin(node, False), *_end(node, False)),
            (*_begin(node, True), *_end(node, True)),
        )
        found = next((self._by_position[p] for p in places if p in self._by_position), None)
        return None if found is None else t.get_proper_type(found)

    def tuple_info(self) -> nodes.TypeInfo:
        """The class tuple."""
        found = self._result.files["builtins"].names["tuple"].node
        assert isinstance(found, nodes.TypeInfo)
        return found

    def variable(self, node: ast.Name) -> t.Type | None:
        """The declared or inferred type of the variable that a store sets."""
        return self._by_position.get(
            (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
        )

    def function_at(self, line: int, name: str) -> Any:
        """A function inside a function."""
        return self._functions.get((line, name))

    def raw(self, node: ast.expr) -> t.Type | None:
        """As `find`, with the names of aliases."""
        return self._by_position.get(
            (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
        )


_ELSEWHERE = {
    *("node", "info", "type", "unanalyzed_type", "definition", "fullname", "names", "defn"),
    *("method_type", "callee_type", "right_always", "analyzed_type"),
}


def _begin(node: ast.expr, bare: bool) -> tuple[int, int]:
    """Where an expression begins; bare: without the parentheses of a first operand, as in mypy."""
    if bare and isinstance(node, ast.BinOp):
        return _begin(node.left, bare)
    return node.lineno, node.col_offset


def _end(node: ast.expr, bare: bool) -> tuple[int, int]:
    """Where an expression ends, as `_begin`: without the parentheses of a last operand."""
    if bare and isinstance(node, ast.BinOp):
        return _end(node.right, bare)
    return node.end_lineno or 0, node.end_col_offset or 0


def _position(node: Any) -> tuple[int, int, int, int]:
    return node.line, node.column, node.end_line or 0, node.end_column or 0


def check(
    root: pathlib.Path, package: str, modules: dict[str, pathlib.Path], texts: dict[str, str]
) -> build.BuildResult:
    """mypy's results for all modules.

    Args:
        root: of the package.
        package: modules below it are printed.
        modules: {module: file}
        texts: {module: source}

    Raises:
        Unsupported: one of them has an error of types.
    """
    chosen = options.Options()
    chosen.export_types = chosen.preserve_asts = True
    chosen.incremental = False
    chosen.explicit_package_bases = True
    chosen.mypy_path = [str(root)]
    chosen.disallow_untyped_defs = True
    chosen.python_version = sys.version_info[:2]
    sources = [BuildSource(str(path), name, texts[name]) for name, path in modules.items()]
    # The package's own __init__ imports everything; it is none of what is printed.
    sources.append(BuildSource(None, package.split(".")[0], ""))
    result = build.build(sources, chosen)
    if result.errors:
        raise Unsupported("\n".join(result.errors))
    return result


def kind(found: t.Type | None) -> str:
    """The word for a type by which the printer decides."""
    found = t.get_proper_type(found) if found is not None else None
    if found is None or isinstance(found, t.AnyType):
        return "any"
    if isinstance(found, t.NoneType):
        return "none"
    if isinstance(found, t.LiteralType):
        return kind(found.fallback)
    if isinstance(found, t.TupleType):
        base = found.partial_fallback.type.fullname
        return "tuple" if base == "builtins.tuple" else "namedtuple"
    if isinstance(found, t.TypedDictType):
        return "typeddict"
    if isinstance(found, (t.CallableType, t.Overloaded, t.TypeType)):
        return "callable"
    if isinstance(found, t.UninhabitedType):
        return "never"
    if isinstance(found, t.TypeVarType):
        return "object" if kind(found.upper_bound) == "object" else kind(found.upper_bound)
    if isinstance(found, t.UnionType):
        words = {kind(item) for item in found.items}
        return words.pop() if len(words) == 1 else "union"
    if not isinstance(found, t.Instance):
        return "any"
    name = found.type.fullname
    if name in ("builtins.dict", "typing.Mapping", "typing.MutableMapping"):
        if kind(found.args[0]) in ("str", "any") and kinds(found.args[1]) & {"any", "object"}:
            return "json"  # dict[Any, Any] is what `isinstance(x, dict)` makes of an object
        return "mapping" if name == "typing.Mapping" and kind(found.args[0]) == "str" else "dict"
    if name in _KINDS:
        return _KINDS[name]
    return "record" if is_record(found.type) else "class"


def kinds(found: t.Type | None) -> set[str]:
    """The kinds of the members of a union, or that of another type."""
    proper = t.get_proper_type(found) if found is not None else None
    if isinstance(proper, t.UnionType):
        return {k for item in proper.items for k in kinds(item)}
    return {kind(proper)}


def members(found: t.Type | None) -> list[t.ProperType]:
    """The members of a union other than None, or the type alone."""
    proper = t.get_proper_type(found) if found is not None else None
    if isinstance(proper, t.UnionType):
        return [one for item in proper.items for one in members(item)]
    return [] if proper is None or isinstance(proper, t.NoneType) else [proper]


def of_literals(found: t.Type | None) -> bool:
    """Whether a type is a union of literals."""
    proper = t.get_proper_type(found) if found is not None else None
    return isinstance(proper, t.UnionType) and all(
        isinstance(t.get_proper_type(x), t.LiteralType) for x in proper.items
    )


def is_record(info: nodes.TypeInfo) -> bool:
    """Whether a class is an interface in TypeScript: a dataclass without methods and bases."""
    if "dataclass" not in info.metadata or any(
        base.fullname != "builtins.object" for base in info.mro[1:]
    ):
        return False
    return not any(
        isinstance(symbol.node, (nodes.FuncDef, nodes.Decorator, nodes.OverloadedFuncDef))
        and not symbol.plugin_generated
        for symbol in info.names.values()
    )


def element(found: t.Type | None) -> t.Type | None:
    """The type of the elements of a list, a tuple or another iterable; of a dict, of its keys."""
    proper = t.get_proper_type(found) if found is not None else None
    if isinstance(proper, t.TupleType):
        return t.UnionType.make_union(list(proper.items)) if proper.items else None
    if isinstance(proper, t.Instance):
        if proper.type.fullname in ("builtins.bytes", "builtins.bytearray", "builtins.memoryview"):
            return t.Instance(proper.type, [])  # numbers; the caller asks for the kind alone
        return proper.args[0] if proper.args else None
    return None


class Writer:
    """Writes types in TypeScript.

    Args:
        module: of the file that is printed.
        package: modules below it are printed too.
        name: gives the name by which the file knows a class or alias of (module, name).
    """

    def __init__(self, module: str, package: str, name: Any) -> None:
        self.module, self.package, self.name = module, package, name

    def text(self, found: t.Type | None, readonly: bool = False) -> str:
        """The text of a type."""
        if isinstance(found, t.TypeAliasType) and found.alias is not None:
            return self._alias(found)
        proper = t.get_proper_type(found) if found is not None else None
        if proper is None or isinstance(proper, t.AnyType):
            return "any"
        if isinstance(proper, t.NoneType):
            return "null"
        if isinstance(proper, t.LiteralType):
            return _literal(proper.value)
        if isinstance(proper, t.UnionType):
            return self._union(proper)
        if isinstance(proper, t.TupleType):
            return self._tuple(proper)
        if isinstance(proper, t.TypedDictType):
            return self._class(proper.fallback)
        if isinstance(proper, t.CallableType):
            return self._callable(proper)
        if isinstance(proper, t.TypeVarType):
            return proper.name
        if isinstance(proper, t.UninhabitedType):
            return "never"
        if isinstance(proper, t.Instance):
            return self._instance(proper)
        if isinstance(proper, t.TypeType):
            return f"typeof {self.text(proper.item)}"
        raise Unsupported(f"the type {proper} has no counterpart in TypeScript")

    def result(self, found: t.Type) -> str:
        """The type that a function returns."""
        if kind(found) == "bytes":
            return "Uint8Array<ArrayBuffer>"
        return "void" if isinstance(t.get_proper_type(found), t.NoneType) else self.text(found)

    def _alias(self, found: t.TypeAliasType) -> str:
        assert found.alias is not None
        module, _, name = found.alias.fullname.rpartition(".")
        if name in ARRAYS and module.endswith(".native"):
            return name
        if not (module + ".").startswith(self.package + "."):
            return self.text(t.get_proper_type(found))
        text = self.name(module, name, True)
        args = ", ".join(self.text(one) for one in found.args)
        return f"{text}<{args}>" if args else str(text)

    def _union(self, found: t.UnionType) -> str:
        texts = dict.fromkeys(self.text(one) for one in found.items)
        if "number" in texts:
            texts = dict.fromkeys(x for x in texts if not x.lstrip("-").replace(".", "").isdigit())
        return " | ".join(f"({x})" if "=>" in x else x for x in texts)

    def _tuple(self, found: t.TupleType) -> str:
        if found.partial_fallback.type.fullname != "builtins.tuple":
            return self._class(found.partial_fallback)
        parts = [
            f"...{self._list(one.type)}" if isinstance(one, t.UnpackType) else self.text(one)
            for one in found.items
        ]
        return f"[{', '.join(parts)}]"

    def _list(self, item: t.Type) -> str:
        text = self.text(item)
        return f"({text})[]" if "|" in text or "=>" in text else f"{text}[]"

    def _callable(self, found: t.CallableType) -> str:
        names = [n or f"argument{i}" for i, n in enumerate(found.arg_names)]
        args = [
            f"...{n}: {self._list(x)}" if k.is_star() else f"{n}: {self.text(x)}"
            for n, x, k in zip(names, found.arg_types, found.arg_kinds)
        ]
        return f"({', '.join(args)}) => {self.result(found.ret_type)}"

    def _class(self, found: t.Instance) -> str:
        module, _, name = found.type.fullname.rpartition(".")
        text = str(self.name(module, name, True))
        args = ", ".join(self.text(one) for one in found.args)
        return f"{text}<{args}>" if args else text

    def _instance(self, found: t.Instance) -> str:
        word, name = kind(found), found.type.fullname.rpartition(".")[2]
        if word in ("int", "float"):
            return "number"
        simple = {"bool": "boolean", "str": "string", "bytes": "Uint8Array", "object": "unknown"}
        simple |= {"json": "py.Json", "range": "number[]", "pattern": "RegExp"}
        simple |= {"match": "RegExpExecArray"}
        if word in simple:
            return simple[word]
        args = [self.text(one) for one in found.args]
        if word == "array":
            base = "Int32Array" if kind(found.args[0]) == "int" else "Float32Array"
            return f"{base}<ArrayBuffer>"
        if word in ("list", "tuple"):
            return self._list(found.args[0])
        if word == "sequence":
            return f"py.Sequence<{args[0]}>"
        if word == "set":
            return f"Set<{args[0]}>"
        if word == "dict":
            return f"Map<{', '.join(args)}>"
        if word == "mapping":
            return f"Readonly<Record<{', '.join(args)}>>"
        if name == "Generator":
            last = t.get_proper_type(found.args[2])  # answers of hosts: of any buffer
            made = "void" if isinstance(last, t.NoneType) else args[2]
            return f"Generator<{args[0]}, {made}, {args[1]}>"
        if word == "iterable":
            form = "IterableIterator" if name in _ITERATORS else "Iterable"
            return f"{form}<{', '.join(args)}>" if len(args) == 1 else f"{form}<any>"
        return self._class(found)


def _literal(value: object) -> str:
    import json

    return json.dumps(value)

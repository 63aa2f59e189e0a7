"""Prints modules: statements, functions, classes, comments and documentation."""

# long: a method for each kind of statement, which share the output and the scopes

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import calls
from expressions import Expressions
from mypy import nodes
from mypy import types as t
from printed import CALL, Unsupported, safe
from scope import Scope, bound, comments, independent, loaded
from types_of import LISTS, PRIMITIVE, Types, Writer, element, is_record, kind, kinds, of_literals

SKIPPED_BASES = {"NamedTuple", "Protocol", "TypedDict", "Generic", "object"}


class Line(NamedTuple):
    """A line of the output.

    Attributes:
        text: with its indentation.
        source: number of the line of Python that it came from; 0: none.
    """

    text: str
    source: int


class Module(Expressions):
    """Prints one module.

    Args:
        source: Python.
        trees: {module: syntax tree} of all modules that are printed, for defaults of dataclasses.
    """

    def __init__(
        self, source: str, types: Types, writer: Writer, trees: dict[str, ast.Module]
    ) -> None:
        super().__init__(types, writer, {})
        self.trees = trees
        self.tree = trees[types.module]
        self.lines: list[Line] = []
        self.indent = 0
        self.line = 0
        self.comments = comments(source)
        self.functions: list[Scope] = []
        self.results: list[t.Type] = []  # of the functions
        self.used: set[str] = set()  # names of variables, parameters, functions, imports

    # Output

    def put(self, text: str, node: ast.AST | None = None) -> None:
        """Adds lines at the present indentation."""
        if node is not None:
            self.line = getattr(node, "lineno", self.line)
        for part in text.split("\n"):
            self.lines.append(Line("  " * self.indent + part if part else "", self.line))

    def leadingcomments(self, node: ast.stmt) -> None:
        """The comments on lines of their own that precede a statement."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        for line in sorted(n for n in self.comments if n < first and self.comments[n][0]):
            self.line = line
            self.put("// " + self.comments.pop(line)[1].lstrip("# "))

    def trailing_comment(self, node: ast.stmt, at: int) -> None:
        """The comment at the end of a statement's first line goes to the end of its output."""
        if node.lineno in self.comments and not self.comments[node.lineno][0]:
            text = self.comments.pop(node.lineno)[1].lstrip("# ")
            if at < len(self.lines) and not text.startswith(("type:", "noqa")):
                line = self.lines[at]
                self.lines[at] = Line(f"{line.text} // {text}", line.source)

    def documentation(self, body: Sequence[ast.stmt]) -> None:
        """A docstring as a comment of TSDoc."""
        first = body[0] if body else None
        if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
            return
        if not isinstance(first.value.value, str):
            return
        text = inspect.cleandoc(first.value.value).replace("*/", "*\\/")
        if "\n" not in text:
            self.put(f"/** {text} */")
            return
        self.put("/**")
        for part in text.split("\n"):
            self.put(f" * {part}".rstrip())
        self.put(" */")

    # Modules

    def module(self) -> list[Line]:
        """All lines, without the imports, which are known at the end."""
        self._check_names()
        body = self.tree.body
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            for part in str(body[0].value.value).strip().split("\n"):
                self.put(f"// {part.strip()}".rstrip())
            body = body[1:]
        for node in body:
            self._top(node)
        return self.lines

    def _check_names(self) -> None:
        places = dict(bound(self.tree))
        self.used = set(places)
        for name, node in places.items():
            if name in calls.TAKEN:
                raise Unsupported(f"{name} has another meaning already: rename it", node)
            if safe(name) != name and safe(name) in places:
                what = f"{name} is {safe(name)} in TypeScript as well: rename one of them"
                raise Unsupported(what, node)

    def _top(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ImportFrom):
            return self._import(node)
        if isinstance(node, ast.Import):
            if all(a.name in ("math", "re", "dataclasses") for a in node.names):
                return None
            raise Unsupported(f"the module {node.names[0].name}", node)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for inner in node.body:
                self._top(inner)
            return None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return None  # documentation of the constant before, printed with it
        self.put("")
        self.leadingcomments(node)
        at = len(self.lines)
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            self._constant_of_module(node)
        elif isinstance(node, ast.FunctionDef):
            self._function(node, "export function ")
        elif isinstance(node, ast.ClassDef):
            self._class(node)
        elif isinstance(node, ast.AugAssign):
            self.statement(node)
        else:
            raise Unsupported(f"{type(node).__name__} at the top of a module", node)
        self.trailing_comment(node, at)
        return None

    def _import(self, node: ast.ImportFrom) -> None:
        if not node.level:
            if node.module in ("typing", "collections.abc", "dataclasses", "array", "__future__"):
                return
            raise Unsupported(f"the module {node.module}", node)
        parts = self.types.module.split(".")
        base = parts[: len(parts) - node.level]
        base += node.module.split(".") if node.module else []
        for alias in node.names:
            where = ".".join(base)
            if f"{where}.{alias.name}" in self.trees:
                raise Unsupported("a module as a name: import its functions", node)
            if alias.asname not in (None, alias.name):
                raise Unsupported("an import by another name: rename what is imported", node)
            self.used.add(alias.name)
            self.imported[alias.name] = (where, alias.name)

    def _constant_of_module(self, node: ast.Assign | ast.AnnAssign) -> None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if not isinstance(target, ast.Name):
            raise Unsupported("an assignment to several names at the top of a module", node)
        if node.value is None or target.id in ("__all__",):
            return
        symbol = self.types.file.names.get(target.id)
        found = symbol.node if symbol else None
        at = self.tree.body.index(node)
        self.documentation(self.tree.body[at + 1 : at + 2])
        if isinstance(found, nodes.TypeAlias):
            args = [v.name for v in found.alias_tvars]
            head = f"<{', '.join(args)}>" if args else ""
            self.put(f"export type {target.id}{head} = {self.writer.text(found.target)};", node)
            return
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in (
            "TypeVar",
            "ParamSpec",
        ):
            return
        if symbol is None or not isinstance(found, nodes.Var):
            raise Unsupported("a name that is no constant", node)
        self.expect(node.value, found.type)
        text = self.text(node.value)
        note = f": {self._constant_type(found.type)}" if self._needs_note(node, found.type) else ""
        self.put(f"export const {safe(target.id)}{note} = {text};", node)

    def _constant_type(self, found: t.Type | None) -> str:
        """A long tuple of equal types is written as a list."""
        proper = t.get_proper_type(found) if found is not None else None
        if isinstance(proper, t.TupleType) and len(proper.items) > 2:
            texts = {self.writer.text(one) for one in proper.items}
            if len(texts) == 1:
                return f"readonly ({texts.pop()})[]".replace("(string)", "string").replace(
                    "(number)", "number"
                )
        return self.writer.text(found)

    def _needs_note(self, node: ast.stmt, found: t.Type | None) -> bool:
        """Whether TypeScript would find another type than Python's."""
        if isinstance(node, ast.AnnAssign):
            return not kinds(found) <= PRIMITIVE or len(kinds(found)) > 1 or of_literals(found)
        value = getattr(node, "value", None)
        if isinstance(value, (ast.List, ast.Dict, ast.Tuple, ast.Set)):
            return True
        if isinstance(value, ast.IfExp) and kind(found) == "tuple":
            return True
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            return value.func.id in ("list", "dict", "set") and not value.args
        return isinstance(value, ast.Constant) and value.value is None

    # Functions

    def _function(self, node: ast.FunctionDef, head: str, info: Any = None) -> None:
        found = self._signature(node, info)
        static = any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
        skip = 1 if info is not None and not static else 0
        scope = Scope(node)
        self.functions.append(scope)
        self.results.append(found.ret_type)
        args = node.args.posonlyargs + node.args.args
        mapped = {args[0].arg: "this"} if skip else {}
        self.names.append(mapped)
        self.documentation(node.body)
        generics = [v.name for v in found.variables if isinstance(v, t.TypeVarType)]
        if info is not None:
            generics = [n for n in generics if n not in {v.name for v in info.defn.type_vars}]
        generic = f"<{', '.join(generics)}>" if generics else ""
        star = "*" if scope.yields else ""
        name = safe(node.name) if info is None else node.name
        lead = f"{head.rstrip()}{star} " if head and star else head + star
        result = "" if node.name == "__init__" else f": {self.writer.result(found.ret_type)}"
        if node.name == "__init__":
            name, generic = "constructor", ""
        parameters = ", ".join(self._parameters(node, found, skip))
        self.put(f"{lead}{name}{generic}({parameters}){result} {{", node)
        self.block(node.body)
        self.put("}")
        self.names.pop()
        self.functions.pop()
        self.results.pop()

    def _signature(self, node: ast.FunctionDef, info: Any) -> t.CallableType:
        if info is not None:
            symbol = info.names[node.name].node
        else:
            entry = self.types.file.names.get(node.name)
            symbol = entry.node if entry else None
        if isinstance(symbol, nodes.Decorator):
            symbol = symbol.func
        if symbol is None:
            symbol = self.types.function_at(node.lineno, node.name)
        found = t.get_proper_type(symbol.type) if symbol is not None else None
        if not isinstance(found, t.CallableType):
            raise Unsupported(f"{node.name} has no single signature", node)
        return found

    def _parameters(self, node: ast.FunctionDef, found: t.CallableType, skip: int) -> Iterator[str]:
        args = node.args
        if args.kwarg is not None:
            raise Unsupported("**: name the parameters", node)
        places = args.posonlyargs + args.args
        defaults = [None] * (len(places) - len(args.defaults)) + list(args.defaults)
        wanted = dict(zip([n or "" for n in found.arg_names], found.arg_types))
        for arg, default in list(zip(places, defaults))[skip:]:
            if default is not None:
                self.expect(default, wanted[arg.arg])
            text = f"{safe(arg.arg)}: {self.writer.text(wanted[arg.arg])}"
            yield f"{text} = {self.text(default)}" if default is not None else text
        if args.vararg is not None:
            yield f"...{safe(args.vararg.arg)}: {self.writer._list(wanted[args.vararg.arg])}"
        if args.kwonlyargs:
            yield self._options(args, wanted)

    def _options(self, args: ast.arguments, wanted: dict[str, t.Type]) -> str:
        """The parameters of keywords alone, as one object."""
        names, kinds_, optional = [], [], True
        for arg, default in zip(args.kwonlyargs, args.kw_defaults):
            text = self.writer.text(wanted[arg.arg])
            if default is not None:
                self.expect(default, wanted[arg.arg])
            names.append(f"{arg.arg} = {self.text(default)}" if default is not None else arg.arg)
            kinds_.append(f"{arg.arg}{'?' if default is not None else ''}: {text}")
            optional = optional and default is not None
        tail = " = {}" if optional else ""
        return f"{{ {', '.join(names)} }}: {{ {'; '.join(kinds_)} }}{tail}"

    # Classes

    def _class(self, node: ast.ClassDef) -> None:
        symbol = self.types.file.names[node.name].node
        if isinstance(symbol, nodes.Var) or not isinstance(symbol, nodes.TypeInfo):
            raise Unsupported("this class", node)
        bases = [ast.unparse(b) for b in node.bases]
        fields = [m for m in node.body if isinstance(m, ast.AnnAssign)]
        self.documentation(node.body)
        generics = [v.name for v in symbol.defn.type_vars]
        generic = f"<{', '.join(generics)}>" if generics else ""
        head = f"{node.name}{generic}"
        bare = [b.split("[")[0] for b in bases]
        if "Protocol" in bare:
            return self._protocol(node, symbol, head)
        if "TypedDict" in bare or symbol.typeddict_type is not None:
            return self._typed_dict(node, symbol, head, [b for b in bases if b != "TypedDict"])
        if is_record(symbol) or "NamedTuple" in bare:
            if "NamedTuple" in bare and any(isinstance(m, ast.FunctionDef) for m in node.body):
                raise Unsupported("a NamedTuple with methods: use a dataclass", node)
            self.put(f"export interface {head} {{", node)
            self._fields(fields, symbol)
            self.put("}")
            return None
        data = "dataclass" in symbol.metadata
        extends = [b for b in bases if b.split("[")[0] not in SKIPPED_BASES]
        if len(extends) > 1:
            raise Unsupported("a class with two bases", node)
        tail = f" extends {self.text(node.bases[bases.index(extends[0])])}" if extends else ""
        self.put(f"export class {head}{tail} {{", node)
        self._members(node, symbol, fields, data, bool(extends))
        self.put("}")
        return None

    def _fields(
        self, fields: list[ast.AnnAssign], info: nodes.TypeInfo, frozen: bool = False
    ) -> None:
        self.indent += 1
        for field in fields:
            assert isinstance(field.target, ast.Name)
            found = info.names[field.target.id].node
            text = self.writer.text(getattr(found, "type", None))
            self.leadingcomments(field)
            at = len(self.lines)
            self.put(f"{'readonly ' if frozen else ''}{field.target.id}: {text};", field)
            self.trailing_comment(field, at)
        self.indent -= 1

    def _protocol(self, node: ast.ClassDef, info: nodes.TypeInfo, head: str) -> None:
        self.put(f"export interface {head} {{", node)
        self._fields([m for m in node.body if isinstance(m, ast.AnnAssign)], info)
        self.indent += 1
        for m in node.body:
            if isinstance(m, ast.FunctionDef):
                found = self._signature(m, info)
                self.documentation(m.body)
                result = self.writer.result(found.ret_type)
                if any(ast.unparse(d) == "property" for d in m.decorator_list):
                    self.put(f"readonly {m.name}: {result};", m)
                elif m.name == "__call__":
                    self.put(f"({', '.join(self._parameters(m, found, 1))}): {result};", m)
                else:
                    texts = self._bare_parameters(m, found)
                    self.put(f"{m.name}({', '.join(texts)}): {result};", m)
        self.indent -= 1
        self.put("}")

    def _bare_parameters(self, node: ast.FunctionDef, found: t.CallableType) -> list[str]:
        args = node.args.args
        first = len(args) - len(node.args.defaults)
        wanted = dict(zip([n or "" for n in found.arg_names], found.arg_types))
        texts = [
            f"{safe(a.arg)}{'?' if i >= first else ''}: {self.writer.text(wanted[a.arg])}"
            for i, a in enumerate(args)
        ][1:]
        rest = node.args.vararg
        if rest is not None:
            texts.append(f"...{safe(rest.arg)}: {self.writer._list(wanted[rest.arg])}")
        return texts

    def _typed_dict(
        self, node: ast.ClassDef, info: nodes.TypeInfo, head: str, bases: list[str]
    ) -> None:
        tail = f" extends {', '.join(bases)}" if bases else ""
        self.put(f"export interface {head}{tail} {{", node)
        self.indent += 1
        found = info.typeddict_type
        assert found is not None
        own = {m.target.id for m in node.body if isinstance(m, ast.AnnAssign)}  # type: ignore
        for name, item in found.items.items():
            if name in own:
                mark = "" if name in found.required_keys else "?"
                key = name if name.isidentifier() else repr(name)
                self.put(f"{key}{mark}: {self.writer.text(item)};", node)
        self.indent -= 1
        self.put("}")

    def _members(
        self,
        node: ast.ClassDef,
        info: nodes.TypeInfo,
        fields: list[ast.AnnAssign],
        data: bool,
        derived: bool,
    ) -> None:
        self.indent += 1
        methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
        for m in node.body:
            if isinstance(m, ast.Assign) and isinstance(m.targets[0], ast.Name):
                if m.targets[0].id == "__slots__":
                    continue
                self.expect(m.value, getattr(info.names[m.targets[0].id].node, "type", None))
                self.put(f"static readonly {m.targets[0].id} = {self.text(m.value)};", m)
        declared = self._declared(info, fields if data else [], methods)
        for name, text in declared.items():
            self.put(f"{name}!: {text};")
        if data:
            self._data_constructor(node, info, fields, derived)
        for m in methods:
            self._method(m, info)
        self.indent -= 1

    def _declared(
        self, info: nodes.TypeInfo, fields: list[ast.AnnAssign], methods: list[ast.FunctionDef]
    ) -> dict[str, str]:
        """The attributes that methods set, with their types."""
        names: dict[str, str] = {}
        skip = {f.target.id for f in fields if isinstance(f.target, ast.Name)}
        for m in methods:
            first = m.args.args[0].arg if m.args.args else ""
            for x in ast.walk(m):
                if not (isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store)):
                    continue
                if not (isinstance(x.value, ast.Name) and x.value.id == first):
                    continue
                symbol = info.names.get(x.attr)
                if x.attr in skip or symbol is None or x.attr in names:
                    continue
                if isinstance(symbol.node, nodes.Var):
                    names[x.attr] = self.writer.text(symbol.node.type)
        return names

    def _data_constructor(
        self, node: ast.ClassDef, info: nodes.TypeInfo, fields: list[ast.AnnAssign], derived: bool
    ) -> None:
        if derived:
            raise Unsupported("a dataclass with a base: write __init__", node)
        parts = []
        for f in fields:
            assert isinstance(f.target, ast.Name)
            if ast.unparse(f.annotation).startswith("ClassVar"):
                assert f.value is not None
                self.put(f"static readonly {f.target.id} = {self.text(f.value)};", f)
                continue
            text = self.writer.text(getattr(info.names[f.target.id].node, "type", None))
            default = self.default_of(info, f.target.id, f) if f.value is not None else None
            parts.append(f"public {f.target.id}: {text}" + (f" = {default}" if default else ""))
        post = "__post_init__" in info.names
        self.put(f"constructor({', '.join(parts)}) {{{'' if post else '}'}", node)
        if post:
            self.put("  this.__post_init__();")
            self.put("}")

    def _method(self, node: ast.FunctionDef, info: nodes.TypeInfo) -> None:
        self.put("")
        self.leadingcomments(node)
        marks = [ast.unparse(d) for d in node.decorator_list]
        head = ""
        if "staticmethod" in marks:
            head = "static "
        elif "property" in marks or "functools.cached_property" in marks:
            head = "get "
        elif "classmethod" in marks:
            head = "static "
        elif marks:
            raise Unsupported(f"the decorator {marks[0]}", node)
        special = {"__len__": "get length", "__iter__": "[Symbol.iterator]"}
        if node.name in special:
            raise Unsupported(f"{node.name}: write a method with a name", node)
        self._function(node, head, info)

    def default_of(self, info: nodes.TypeInfo, name: str, node: ast.AST) -> str:
        """The default of a dataclass's field.

        Raises:
            Unsupported: it has none that can be written where an object is made.
        """
        module = info.fullname.rpartition(".")[0]
        tree = self.trees.get(module)
        for x in ast.walk(tree) if tree else ():
            if not (isinstance(x, ast.ClassDef) and x.name == info.name):
                continue
            for m in x.body:
                if isinstance(m, ast.AnnAssign) and ast.unparse(m.target) == name and m.value:
                    return self._default(
                        m.value, module, getattr(info.names[name].node, "type", None)
                    )
        raise Unsupported(f"{info.name} without {name}", node)

    def _default(self, value: ast.expr, module: str, found: Any) -> str:
        if isinstance(value, ast.Call) and ast.unparse(value.func) in (
            "field",
            "dataclasses.field",
        ):
            given = {k.arg: k.value for k in value.keywords}
            if "default" in given:
                return self._default(given["default"], module, found)
            factory = ast.unparse(given["default_factory"])
            empty = {"list": "[]", "set": "new Set()", "dict": "new Map()"}
            if factory == "dict" and kind(found) in ("json", "mapping"):
                return "{}"
            if factory not in empty:
                raise Unsupported("a default_factory other than list, dict and set", value)
            return empty[factory]
        self.expect(value, found)
        self._check_default(value, module)
        if isinstance(value, ast.Name) and module != self.types.module:
            return str(self.writer.name(module, value.id, False))
        return self.text(value)

    def _check_default(self, value: ast.expr, module: str) -> None:
        """A default is written where an object is made: its names have to mean the same there."""
        names = {x.id for x in ast.walk(value) if isinstance(x, ast.Name)}
        here = {n for scope in self.functions for n, _ in bound(scope.node)}
        for name in sorted(names & here):
            raise Unsupported(f"the variable {name}, also the default of a field: rename it")
        plain = isinstance(value, (ast.Name, ast.Constant)) or not names
        if module != self.types.module and not plain:
            raise Unsupported(f"the default {ast.unparse(value)} of another module: name it there")

    # Statements

    def block(self, body: Sequence[ast.stmt]) -> None:
        """The statements of a block, one level deeper."""
        self.indent += 1
        for node in body:
            self.statement(node)
        self.indent -= 1

    def statement(self, node: ast.stmt) -> None:
        """A statement, with the declarations it needs and its comments."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        self.leadingcomments(node)
        at = len(self.lines)
        try:
            if self.functions:
                self._hoist(node)
                at = len(self.lines)
            method = getattr(self, "_s_" + type(node).__name__.lower(), None)
            if method is None:
                raise Unsupported(f"{type(node).__name__} is not in the subset", node)
            self.line = node.lineno
            method(node)
        except Unsupported as e:
            e.line = e.line or node.lineno
            raise
        self.trailing_comment(node, at)

    def _hoist(self, node: ast.stmt) -> None:
        """Declares the variables that cannot be declared where they are set."""
        for name, store in self.functions[-1].hoisted(node):
            found = self.types.variable(store)
            self.put(f"let {safe(name)}!: {self.writer.text(found)};", node)

    def _s_pass(self, node: ast.Pass) -> None:
        pass

    def _s_nonlocal(self, node: ast.Nonlocal) -> None:
        pass

    def _s_break(self, node: ast.Break) -> None:
        self.put("break;", node)

    def _s_continue(self, node: ast.Continue) -> None:
        self.put("continue;", node)

    def _s_expr(self, node: ast.Expr) -> None:
        self.put(f"{self.text(node.value)};", node)

    def _s_return(self, node: ast.Return) -> None:
        if node.value is None:
            self.put("return;", node)
        elif isinstance(node.value, ast.Constant) and node.value.value is None:
            self.put("return null;", node)
        else:
            if self.results:
                self.expect(node.value, self.results[-1])
            self.put(f"return {self.text(node.value)};", node)

    def _s_assert(self, node: ast.Assert) -> None:
        text = self.text(node.msg) if node.msg else f'"{ast.unparse(node.test)}"'.replace("\\", "")
        test = self.condition(node.test)
        self.put(f"if (!({test})) throw new py.AssertionError({text});", node)

    def _s_raise(self, node: ast.Raise) -> None:
        self.put(f"throw {self.text(node.exc) if node.exc else 'error_'};", node)

    def _s_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Subscript):
                raise Unsupported("del of a variable", node)
            word, x = self.kind(target.value), self.text(target.value, CALL)
            if isinstance(target.slice, ast.Slice):
                part = target.slice
                low = self.text(part.lower) if part.lower else "0"
                high = self.text(part.upper) if part.upper else f"{x}.length"
                self.put(f"py.removeSlice({x}, {low}, {high});", node)
            elif word == "dict":
                self.put(f"{x}.delete({self.text(target.slice)});", node)
            elif word in ("json", "typeddict"):
                self.put(f"delete {self.property(target)};", node)
            else:
                self.put(f"{x}.splice({self.text(target.slice)}, 1);", node)

    def _s_if(self, node: ast.If) -> None:
        self.put(f"if ({self.condition(node.test)}) {{", node)
        self._branches(node)

    def _branches(self, node: ast.If) -> None:
        self.block(node.body)
        other = node.orelse
        if len(other) == 1 and isinstance(other[0], ast.If):
            inner = other[0]
            if not list(self.functions[-1].peek(inner)) and not self._comment_before(inner):
                self.put(f"}} else if ({self.condition(inner.test)}) {{", inner)
                self._branches(inner)
                return
        if other:
            self.put("} else {")
            self.block(other)
        self.put("}")

    def _comment_before(self, node: ast.stmt) -> bool:
        return any(n < node.lineno and self.comments[n][0] for n in self.comments)

    def _s_while(self, node: ast.While) -> None:
        if node.orelse:
            raise Unsupported("else of a loop: write a function that returns", node)
        self.put(f"while ({self.condition(node.test)}) {{", node)
        self.block(node.body)
        self.put("}")

    def _s_for(self, node: ast.For) -> None:
        if node.orelse:
            raise Unsupported("else of a loop: write a function that returns", node)
        scope = self.functions[-1] if self.functions else None
        fresh = scope is None or scope.is_own(node)
        head = (self._counted(node) or self._indexed(node)) if fresh else None
        if head is None:
            head = (
                f"for ({'const ' if fresh and not self._set_in(node) else 'let ' if fresh else ''}"
            )
            head += f"{self._target(node.target)} of {self._looped(node.iter)}) {{"
        self.put(head, node)
        self.block(node.body)
        self.put("}")

    def _indexed(self, node: ast.For) -> str | None:
        """The head of a loop over enumerate(list), which counts and needs no pairs."""
        call, target = node.iter, node.target
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            return None
        if call.func.id != "enumerate" or len(call.args) != 1 or call.keywords:
            return None
        if not isinstance(target, ast.Tuple) or self.kind(call.args[0]) not in LISTS:
            return None
        index, item = target.elts
        if not isinstance(index, ast.Name) or self._set_in(node):
            return None
        name, values = safe(index.id), self.text(call.args[0])
        held = ""
        if not (isinstance(call.args[0], ast.Name) and self._kept(values, node)):
            whole = self._fresh(f"{name}_of")
            held, values = f", {whole} = {values}", whole
        if isinstance(item, ast.Name) and item.id == "_":
            return f"for (let {name} = 0{held}; {name} < {values}.length; {name}++) {{"
        head = f"for (let {name} = 0{held}; {name} < {values}.length; {name}++) {{"
        return f"{head}\n  const {self._target(item)} = {values}[{name}]!;"

    def _set_in(self, node: ast.For) -> bool:
        """Whether the body sets the loop's variable."""
        names = {x.id for x in ast.walk(node.target) if isinstance(x, ast.Name)}
        return any(
            isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store) and x.id in names
            for stmt in node.body
            for x in ast.walk(stmt)
        )

    def _counted(self, node: ast.For) -> str | None:
        """The head of a loop over a range that counts."""
        call = node.iter
        if not (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "range"
        ):
            return None
        if not isinstance(node.target, ast.Name) or self._set_in(node) or len(call.args) > 3:
            return None
        step = call.args[2] if len(call.args) == 3 else None
        down = isinstance(step, ast.UnaryOp) and isinstance(step.operand, ast.Constant)
        if step is not None and not down and not isinstance(step, ast.Constant):
            return None
        name = safe(node.target.id)
        first = self.text(call.args[0]) if len(call.args) > 1 else "0"
        last = self.text(call.args[1] if len(call.args) > 1 else call.args[0], 10)
        end, held = self._fresh(f"{name}_end"), ""
        if not (last.isalnum() and self._kept(last, node)):
            held, last = f", {end} = {last}", end
        sign = ">" if down else "<"
        if step is None:
            move = f"{name}++"
        else:
            move = (
                f"{name} += {self.text(step)}"
                if not down
                else f"{name} -= {self.text(step.operand)}"
            )  # type: ignore
        return f"for (let {name} = {first}{held}; {name} {sign} {last}; {move}) {{"

    def _fresh(self, name: str) -> str:
        """A name for a variable of the printer, which no other has."""
        return self._fresh(name + "_") if name in self.used else name

    def _kept(self, name: str, node: ast.For) -> bool:
        """Whether the body leaves a variable as it is."""
        return name.isdigit() or not any(
            isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store) and x.id == name
            for stmt in node.body
            for x in ast.walk(stmt)
        )

    def _looped(self, node: ast.expr) -> str:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            word = self.kind(node.func.value)
            if word == "dict" and node.func.attr == "items":
                return self.text(node.func.value, CALL)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "enumerate":
            if len(node.args) == 1 and self.kinds(node.args[0]) <= LISTS:
                return f"{self.text(node.args[0], CALL)}.entries()"
        return self.iterable(node)

    def _target(self, node: ast.expr) -> str:
        if isinstance(node, (ast.Tuple, ast.List)):
            parts = [
                "" if isinstance(x, ast.Name) and x.id == "_" else self._target(x)
                for x in node.elts
            ]
            return f"[{', '.join(parts)}]"
        if isinstance(node, ast.Starred):
            return "..." + self._target(node.value)
        if isinstance(node, ast.Name):
            return safe(node.id)
        return self.text(node)

    def _s_try(self, node: ast.Try) -> None:
        if node.orelse:
            raise Unsupported("else of try: move it into the body", node)
        self.put("try {", node)
        self.block(node.body)
        if node.handlers:
            self.put("} catch (error_) {")
            self.indent += 1
            for i, handler in enumerate(node.handlers):
                self._handler(handler, i)
            if node.handlers[-1].type is not None:
                self.put("} else {")
                self.put("  throw error_;")
                self.put("}")
            self.indent -= 1
        if node.finalbody:
            self.put("} finally {")
            self.block(node.finalbody)
        self.put("}")

    def _handler(self, node: ast.ExceptHandler, i: int) -> None:
        if node.type is None:
            raise Unsupported("except without a class", node)
        wanted = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        tests = " || ".join(f"error_ instanceof {self.text(one)}" for one in wanted)
        self.put(f"{'} else ' if i else ''}if ({tests}) {{", node)
        if node.name:
            self.put(f"  const {safe(node.name)} = error_;")
        self.block(node.body)

    def _s_functiondef(self, node: ast.FunctionDef) -> None:
        found = self._signature(node, None)
        scope = Scope(node)
        self.results.append(found.ret_type)
        self.functions.append(scope)
        self.names.append({})
        args = ", ".join(self._parameters(node, found, 0))
        result = self.writer.result(found.ret_type)
        if scope.yields:
            self.put(f"function* {safe(node.name)}({args}): {result} {{", node)
        else:
            self.put(f"const {safe(node.name)} = ({args}): {result} => {{", node)
        self.block(node.body)
        self.put("}" if scope.yields else "};")
        self.names.pop()
        self.functions.pop()
        self.results.pop()

    # Assignments

    def _s_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            return
        if isinstance(node.target, ast.Name):
            self._assign_name(node.target, node.value, node)
        else:
            self.expect(node.value, self.type(node.target))
            self._store(node.target, self.text(node.value), node)

    def _s_assign(self, node: ast.Assign) -> None:
        if len(node.targets) > 1:
            if not isinstance(node.value, (ast.Name, ast.Constant)):
                raise Unsupported("one value for several targets: name it first", node)
            for target in node.targets:
                self._assign(target, node.value, node)
            return
        self._assign(node.targets[0], node.value, node)

    def _assign(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> None:
        if isinstance(target, ast.Name):
            self._assign_name(target, value, node)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._assign_several(target, value, node)
        else:
            self._expect_stored(target, value)
            self._store(target, self.text(value), node)

    def _expect_stored(self, target: ast.expr, value: ast.expr) -> None:
        """Notes the form of a value that is stored in an attribute or an element."""
        if isinstance(target, ast.Subscript) and self.kind(target.value) == "json":
            self.expect_json(value)
        else:
            self.expect(value, self.type(target))

    def _assign_name(self, target: ast.Name, value: ast.expr, node: ast.stmt) -> None:
        word = self.functions[-1].declaration(target) if self.functions else ""
        if isinstance(node, ast.AnnAssign):
            self.expect(value, self.types.variable(target))
        text = self.text(value)
        if not word:
            self.put(f"{self.text(target)} = {text};", node)
            return
        found = self.types.variable(target)
        note = ""
        record = isinstance(value, ast.Call) and text.startswith("{")
        if (
            self._needs_note(node, found)
            or record
            or isinstance(value, (ast.List, ast.Dict, ast.Tuple))
            or (word == "let" and not _plain(found))
        ):
            note = f": {self.writer.text(found)}"
        self.put(f"{word} {safe(target.id)}{note} = {text};", node)

    def _assign_several(
        self, target: ast.Tuple | ast.List, value: ast.expr, node: ast.stmt
    ) -> None:
        scope = self.functions[-1]
        names = [x for x in target.elts if isinstance(x, ast.Name)]
        words = [scope.declaration(x) for x in names]
        own = len(names) == len(target.elts) and all(words)
        if self.kind(value) == "namedtuple":
            raise Unsupported("a NamedTuple taken apart: name its fields", node)
        if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
            used = {x.id for v in value.elts for x in ast.walk(v) if isinstance(x, ast.Name)}
            stored = {x.id for x in names}
            if not used & stored and not any(isinstance(v, ast.Starred) for v in value.elts):
                if own or independent(target.elts, value.elts):
                    for one, part in zip(target.elts, value.elts):
                        self._assign(one, part, ast.copy_location(ast.Assign([one], part), node))
                    return
        if own:
            word = "const" if all(w == "const" for w in words) else "let"
            note = ""
            if word == "let" and not all(_plain(self.types.variable(x)) for x in names):
                note = f": [{', '.join(self.writer.text(self.types.variable(x)) for x in names)}]"
            text = self._taken_apart(value, len(target.elts))
            self.put(f"{word} {self._target(target)}{note} = {text};", node)
            return
        for x, word in zip(names, words):
            if word:
                self.put(f"let {safe(x.id)}!: {self.writer.text(self.types.variable(x))};", node)
        if any(isinstance(x, ast.Subscript) and self.kind(x.value) == "dict" for x in target.elts):
            raise Unsupported("elements of a dict among several targets: assign one by one", node)
        parts = [self._place(x) for x in target.elts]
        self.put(f"[{', '.join(parts)}] = {self._taken_apart(value, len(target.elts))};", node)

    def _taken_apart(self, value: ast.expr, count: int) -> str:
        """A value of which `count` elements are taken."""
        text = self.iterable(value) if self.kind(value) == "dict" else self.text(value, CALL)
        item = element(self.type(value))
        if self.kind(value) in ("list", "sequence", "iterable") and item is not None:
            one = self.writer.text(item)
            return f"[...{text}] as [{', '.join([one] * count)}]"
        return text

    def _place(self, target: ast.expr) -> str:
        """A target within a pattern."""
        if isinstance(target, ast.Subscript):
            word = self.kind(target.value)
            if word in ("json", "typeddict"):
                return self.property(target)
            return f"{self.text(target.value, CALL)}[{self._at(target)}]"
        return self._target(target)

    def _at(self, target: ast.Subscript) -> str:
        """The index of an element that is set, counted from the start."""
        text = self.text(target.slice)
        if text.startswith("-"):
            return f"{self.text(target.value, CALL)}.length - {text[1:]}"
        return text

    def _store(self, target: ast.expr, text: str, node: ast.stmt) -> None:
        if isinstance(target, ast.Attribute):
            self.put(f"{self.text(target.value, CALL)}.{target.attr} = {text};", node)
            return
        if not isinstance(target, ast.Subscript):
            raise Unsupported("this target of an assignment", node)
        word, x = self.kind(target.value), self.text(target.value, CALL)
        if isinstance(target.slice, ast.Slice):
            part = target.slice
            bounds = [self.text(b) if b else "null" for b in (part.lower, part.upper)]
            bounds += [self.text(part.step)] if part.step else []
            self.put(f"py.setSlice({x}, {text}, {', '.join(bounds)});", node)
        elif word == "dict":
            self.put(f"{x}.set({self.text(target.slice)}, {text});", node)
        elif word in ("json", "typeddict"):
            self.put(f"{self.property(target)} = {text};", node)
        else:
            self.put(f"{x}[{self._at(target)}] = {text};", node)

    def _s_augassign(self, node: ast.AugAssign) -> None:
        target, sign = node.target, type(node.op).__name__
        read = ast.copy_location(loaded(target), target)
        word = (
            self.kind(read)
            if not isinstance(target, ast.Name)
            else kind(self.types.variable(target))
        )
        both = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
        if word == "list" and sign == "Add":
            self.put(f"py.extend({self.text(read)}, {self.iterable(node.value)});", node)
            return
        if word in ("set", "dict") and sign == "BitOr":
            self.put(f"py.update({self.text(read)}, {self.text(node.value)});", node)
            return
        plain = {"Add": "+=", "Sub": "-=", "Mult": "*=", "Div": "/="}
        is_map = isinstance(target, ast.Subscript) and (
            self.kind(target.value) == "dict" or calls.may_be_negative(target.slice)
        )
        if sign in plain and word in ("int", "float", "str", "any", "union") and not is_map:
            self.put(f"{self.text(read)} {plain[sign]} {self.number(node.value, 1)};", node)
            return
        if isinstance(target, ast.Name):
            self.put(f"{self.text(target)} = {self.text(both)};", node)
        else:
            self._store(target, self.text(both), node)


def _plain(found: t.Type | None) -> bool:
    """Whether TypeScript infers the same type from any value."""
    found = t.get_proper_type(found) if found is not None else None
    return (
        kinds(found) <= PRIMITIVE - {"none"}
        and len(kinds(found)) == 1
        and not isinstance(found, t.LiteralType)
    )

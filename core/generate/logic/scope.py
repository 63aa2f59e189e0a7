"""Facts of a syntax tree: where variables are declared, comments, what depends on what."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from typing import Any


class Scope:
    """Where the variables of a function are declared.

    TypeScript's variables belong to blocks, Python's to functions. A variable is declared where it
    is first set, if that is a statement of the innermost block that has all its uses; otherwise
    before the statement of the function's own block that has the first of them.
    """

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node
        self.yields = any(isinstance(x, (ast.Yield, ast.YieldFrom)) for x in own_nodes(node))
        outside = {n for x in own_nodes(node) if isinstance(x, ast.Nonlocal) for n in x.names}
        args = node.args
        parameters = {a.arg for a in args.posonlyargs + args.args + args.kwonlyargs}
        parameters |= {a.arg for a in (args.vararg, args.kwarg) if a}
        self.stores: dict[str, list[ast.Name]] = {}
        for x in own_nodes(node):
            if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store):
                if x.id not in outside | parameters:
                    self.stores.setdefault(x.id, []).append(x)
        self.places: dict[int, str] = {}  # id of a store: const or let
        self.before: dict[int, list[tuple[str, ast.Name]]] = {}  # id of a statement
        self.of_loops = self._loop_variables()
        for name in self.stores:
            self._place(name)

    def _loop_variables(self) -> set[str]:
        """Variables that are used in loops only that set them, with all others of these loops."""
        loops = [x for x in own_nodes(self.node) if isinstance(x, ast.For)]
        own = {n for n in self.stores if self._only_in(n, self.node.body)}
        while True:
            mixed = {
                n
                for loop in loops
                if not (names := {x for x in _uses(loop.target) if x in self.stores}) <= own
                for n in names & own
            }
            if not mixed:
                return own
            own -= mixed

    def _only_in(self, name: str, body: Sequence[ast.stmt]) -> bool:
        """Whether all uses of a variable in a block are in loops that set it."""
        for node in body:
            if name not in _uses(node):
                continue
            if isinstance(node, ast.For) and name in _stored(node.target):
                if name in _uses(node.iter) or any(name in _uses(s) for s in node.orelse):
                    return False
                continue
            if any(name in _uses(h) for h in _heads(node)):
                return False
            inner = _blocks(node)
            if not inner or not all(self._only_in(name, b) for b in inner):
                return False
        return True

    def _place(self, name: str) -> None:
        stores = self.stores[name]
        block = self._block(self.node.body, name)
        first = next(s for s in block if name in _uses(s))
        target = _direct(first, name)
        nested = self._assigned_inside(name)
        if name in self.of_loops:
            return
        if target is not None:
            several = len(stores) > 1 or nested
            self.places[id(target)] = "let" if several else "const"
            return
        outer = next(s for s in self.node.body if name in _uses(s))
        self.before.setdefault(id(outer), []).append((name, stores[0]))

    def _assigned_inside(self, name: str) -> bool:
        return any(isinstance(x, ast.Nonlocal) and name in x.names for x in ast.walk(self.node))

    def _block(self, body: Sequence[ast.stmt], name: str) -> Sequence[ast.stmt]:
        """The innermost block with all uses of a variable."""
        having = [s for s in body if name in _uses(s)]
        if len(having) == 1:
            one = having[0]
            heads = _heads(one)
            if not any(name in _uses_of(h) for h in heads):
                inner = [b for b in _blocks(one) if any(name in _uses(s) for s in b)]
                if len(inner) == 1:
                    return self._block(inner[0], name)
        return body

    def hoisted(self, node: ast.stmt) -> list[tuple[str, ast.Name]]:
        """The variables to declare before a statement, once."""
        return self.before.pop(id(node), [])

    def peek(self, node: ast.stmt) -> list[tuple[str, ast.Name]]:
        """As `hoisted`, and leaves them."""
        return self.before.get(id(node), [])

    def declaration(self, target: ast.Name) -> str:
        """The word that declares the variable where this store does so; else an empty text."""
        return self.places.get(id(target), "")

    def is_own(self, node: ast.For) -> bool:
        """Whether the loop declares its variables."""
        return _stored(node.target) <= self.of_loops


def bound(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The variables, parameters, functions and classes of a tree, each with its place. What is in
    the body of a class is named with its object and left out.
    """
    own = [m for x in ast.walk(tree) if isinstance(x, ast.ClassDef) for m in x.body]
    members = {id(x) for m in own for x in (m, *getattr(m, "targets", ()))}
    members |= {id(getattr(m, "target", None)) for m in own}
    for x in ast.walk(tree):
        if id(x) in members:
            continue
        if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store):
            yield x.id, x
        elif isinstance(x, ast.arg):
            yield x.arg, x
        elif isinstance(x, (ast.ClassDef, ast.FunctionDef, ast.ExceptHandler)) and x.name:
            yield x.name, x


def _stored(target: ast.expr) -> set[str]:
    """The names that a target sets."""
    return {
        x.id for x in ast.walk(target) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
    }


def _heads(node: ast.stmt) -> list[ast.AST]:
    if isinstance(node, (ast.If, ast.While)):
        return [node.test]
    if isinstance(node, ast.For):
        return [node.target, node.iter]
    if isinstance(node, ast.Try):
        return [h.type for h in node.handlers if h.type]
    return [node] if not isinstance(node, ast.Try) else []


def _blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    found = [getattr(node, n, []) for n in ("body", "orelse", "finalbody")]
    found += [h.body for h in getattr(node, "handlers", [])]
    return [b for b in found if b] if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []


def _direct(node: ast.stmt, name: str) -> ast.Name | None:
    """The store by which a statement sets a variable in any case, before it reads it."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        if node.value is None:
            return None
        return node.target if node.target.id == name and name not in _uses_of(node.value) else None
    if not isinstance(node, ast.Assign) or name in _uses_of(node.value):
        return None
    first = node.targets[0]
    if isinstance(first, ast.Name):
        return first if first.id == name else _other(node, name)
    if isinstance(first, (ast.Tuple, ast.List)):
        names = [x for x in first.elts if isinstance(x, ast.Name)]
        return next((x for x in names if x.id == name), None)
    return _other(node, name)


def _other(node: ast.Assign, name: str) -> ast.Name | None:
    return next((x for x in node.targets if isinstance(x, ast.Name) and x.id == name), None)


def _uses(node: ast.AST) -> set[str]:
    """The variables of the function that a node sets or reads, without those of comprehensions."""
    if isinstance(node, ast.Name):
        return {node.id}
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        found |= _uses(child)
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        own = {n for g in node.generators for n in _stored(g.target)}
        found = found - own | _uses(node.generators[0].iter)
    return found


_uses_of = _uses


def own_nodes(node: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's body without those of functions and comprehensions inside, whose
    variables are their own; walrus targets inside comprehensions belong to the function.
    """
    for stmt in node.body:
        yield from own_nodes_of(stmt)


def own_nodes_of(node: ast.AST) -> Iterator[ast.AST]:
    """As `own_nodes`, of another node."""
    yield node
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        return
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        for x in ast.walk(node):
            if isinstance(x, ast.NamedExpr):
                yield x.target
        return
    for child in ast.iter_child_nodes(node):
        yield from own_nodes_of(child)


def independent(targets: Sequence[ast.expr], values: Sequence[ast.expr]) -> bool:
    """Whether assigning one after the other gives the same as all at once."""
    stored = {ast.unparse(x) for x in targets}
    used = {
        ast.unparse(x)
        for v in values[1:]
        for x in ast.walk(v)
        if isinstance(x, (ast.Name, ast.Attribute, ast.Subscript))
    }
    calls = any(
        isinstance(x, (ast.Call, ast.Yield, ast.YieldFrom)) for v in values for x in ast.walk(v)
    )
    plain = all(isinstance(x, (ast.Name, ast.Attribute)) for x in targets)
    return (
        plain
        and not stored & used
        and not (calls and any(isinstance(x, ast.Attribute) for x in targets))
    )


def loaded(node: Any) -> Any:
    made = ast.parse(ast.unparse(node), mode="eval").body
    for new, old in zip(ast.walk(made), ast.walk(node)):
        if isinstance(new, ast.expr):
            ast.copy_location(new, old)
    return made


def comments(source: str) -> dict[int, tuple[bool, str]]:
    """{line: (whether it stands alone, text)}"""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            found[token.start[0]] = (not token.line[: token.start[1]].strip(), token.string)
    return found

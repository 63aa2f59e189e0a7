"""Concrete shapes of a graph's inputs, from sizes for the names and expressions that exporters
write as dimensions.
"""

from __future__ import annotations

import ast
import operator
import re

from ..errors import InputError

MOST_DIM = 1 << 40


def input_shapes(graph, dims, shapes=None):
    """({input name: [int]}, [what is missing, in words]).

    Args:
        graph: Graph. dims: {name: int} of the symbolic dimensions of its inputs; expressions of
        them in the file ("past + sequence") are computed. shapes: {input name: [int]} instead of
        what the file declares.
    Raises:
        InputError: a size is no size, no input has such a dimension, or a shape does not fit what
        is declared.
    """
    shapes = shapes or {}
    inputs = {i.name: i for i in graph.input_names()}
    for name, d in dims.items():
        if type(d) is not int or not 0 <= d < MOST_DIM:
            raise InputError(
                f"{d!r} is no size", f"dimension '{name}'", "Give a whole number from 0 on."
            )
    check_names(graph, "shapes", shapes)
    for name, shape in shapes.items():
        if not isinstance(shape, (list, tuple)) or any(
            type(d) is not int or not 0 <= d < MOST_DIM for d in shape
        ):
            raise InputError(
                f"{shape!r} is no shape",
                f"input '{name}'",
                "Give a list of whole numbers from 0 on.",
            )
    known, full, needs = (
        {d for i in inputs.values() for d in i.shape or () if isinstance(d, str)},
        {},
        [],
    )
    known |= {n for d in known for n in re.findall(r"[A-Za-z_]\w*", d)}
    for name in dims:
        if name not in known:
            raise InputError(
                f"no input of the model has a dimension '{name}'",
                "dims",
                f"Its dimensions are: {', '.join(sorted(known)) or 'all fixed'}.",
            )
    for name, info in inputs.items():
        if name in shapes:
            if info.shape is not None and (
                len(shapes[name]) != len(info.shape)
                or any(
                    isinstance(d, int) and d >= 0 and d != s
                    for d, s in zip(info.shape, shapes[name])
                )
            ):
                raise InputError(
                    f"the shape {list(shapes[name])} does not fit {info.shape}",
                    f"input '{name}'",
                    "Give one that does.",
                )
            full[name] = list(shapes[name])
            continue
        if (
            info.shape is None
            or None in info.shape
            or any(isinstance(d, int) and d < 0 for d in info.shape)
        ):
            needs.append(f"the shape of '{name}'")
            continue
        full[name] = [d if isinstance(d, int) else _dimension(d, dims) for d in info.shape]
        for d, size in zip(info.shape, full[name]):
            if size is None:
                names = (
                    [n for n in re.findall(r"[A-Za-z_][\w.]*", d) if n not in dims]
                    if re.fullmatch(r"[\w\s.+*/()-]+", d)
                    else []
                )
                needs += [n for n in names or [d] if n not in needs]
    return full, needs


def check_names(graph, what, table):
    """InputError where a table has a name that is no input's."""
    inputs = {i.name for i in graph.input_names()}
    for name in table:
        if name not in inputs:
            raise InputError(
                f"the model has no input '{name}'", what, f"It has: {', '.join(inputs)}."
            )


_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
}


def _dimension(text, dims):
    """The size of a symbolic dimension, a name or an expression of names as exporters write it;
    None where a name is not given.
    """
    if text in dims:
        return dims[text]

    def value(node):
        if isinstance(node, ast.Name):
            return dims[node.id]
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.BinOp):
            return _ARITHMETIC[type(node.op)](value(node.left), value(node.right))
        raise KeyError

    try:
        size = value(ast.parse(text[:500], mode="eval").body)
    except (KeyError, SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return size if 0 <= size < MOST_DIM else None

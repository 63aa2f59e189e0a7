"""Concrete shapes of a graph's inputs, from sizes for the names and expressions that exporters
write as dimensions.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...errors import InputError
from ..ir import Graph, Info

MAX_DIM = 1 << 40


def input_shapes(
    graph: Graph, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[dict[str, list[int]], list[str]]:
    """Concrete shapes of the inputs of a graph.

    Args:
        graph: the model.
        dims: {name: size} of symbolic dimensions of its inputs. Expressions of them in the file
            ("past + sequence") are computed.
        shapes: {input name: shape} instead of what the file declares.

    Returns:
        ({input name: shape}, [what has no size yet: a dimension, or "the shape of 'NAME'"])

    Raises:
        InputError: a size is not an integer, no input has the dimension, or a shape
            contradicts the declared one.
    """
    shapes = shapes or {}
    inputs = {i.name: i for i in graph.input_names()}
    _check_sizes(graph, dims, shapes)
    _check_dimensions(inputs.values(), dims)
    full: dict[str, list[int]] = {}
    needs: list[str] = []
    for name, info in inputs.items():
        if name in shapes:
            _check_shape(info, shapes[name])
            full[name] = list(shapes[name])
            continue
        declared = info.shape
        if declared is None or any(d is None or isinstance(d, int) and d < 0 for d in declared):
            needs.append(f"the shape of '{name}'")
            continue
        sizes = [d if isinstance(d, int) else _dimension(d, dims) for d in declared]
        full[name] = sizes  # type: ignore[assignment]  # None only where `needs` is not empty
        for d, size in zip(declared, sizes):
            if size is None:
                needs += [n for n in _missing_names(d, dims) if n not in needs]
    return full, needs


def _check_sizes(
    graph: Graph, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> None:
    for name, d in dims.items():
        if type(d) is not int or not 0 <= d < MAX_DIM:
            raise InputError(
                f"{d!r} is not a valid size", f"dimension '{name}'", "Give a non-negative integer."
            )
    check_names(graph, "shapes", shapes)
    for name, shape in shapes.items():
        if not isinstance(shape, (list, tuple)) or any(
            type(d) is not int or not 0 <= d < MAX_DIM for d in shape
        ):
            raise InputError(
                f"{shape!r} is not a valid shape",
                f"input '{name}'",
                "Give a list of non-negative integers.",
            )


def _check_dimensions(inputs: Iterable[Info], dims: Mapping[str, int]) -> None:
    known = {d for i in inputs for d in i.shape or () if isinstance(d, str)}
    known |= {n for d in known for n in re.findall(r"[A-Za-z_]\w*", d)}
    for name in dims:
        if name not in known:
            raise InputError(
                f"no input of the model has a dimension '{name}'",
                "dims",
                f"Its dimensions are: {', '.join(sorted(known)) or 'all fixed'}.",
            )


def _check_shape(info: Info, shape: Sequence[int]) -> None:
    if info.shape is not None and (
        len(shape) != len(info.shape)
        or any(isinstance(d, int) and d >= 0 and d != s for d, s in zip(info.shape, shape))
    ):
        raise InputError(
            f"the shape {list(shape)} does not fit {info.shape}",
            f"input '{info.name}'",
            "Give one that does.",
        )


def _missing_names(text: str, dims: Mapping[str, int]) -> list[str]:
    """The names in a dimension that have no size; the dimension itself where it is no
    arithmetic.
    """
    names = []
    if re.fullmatch(r"[\w\s.+*/()-]+", text):
        names = [n for n in re.findall(r"[A-Za-z_][\w.]*", text) if n not in dims]
    return names or [text]


def check_names(graph: Graph, what: str, table: Iterable[str]) -> None:
    """Raises InputError where a table has a name that is not an input's.

    Args:
        graph: the model.
        what: the table, for the message.
        table: names of inputs.
    """
    inputs = {i.name: i for i in graph.input_names()}
    for name in table:
        if name not in inputs:
            raise InputError(
                f"the model has no input '{name}'", what, f"It has: {', '.join(inputs)}."
            )


_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
}


def _dimension(text: str, dims: Mapping[str, int]) -> int | None:
    """The size of a symbolic dimension, a name or an expression of names as exporters write it;
    None where a name is not given.
    """
    if text in dims:
        return dims[text]

    def value(node: ast.expr) -> int:
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
    return size if 0 <= size < MAX_DIM else None

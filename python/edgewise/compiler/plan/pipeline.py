"""The stages from a graph to a plan: bind, optimize, lower; for inference and training alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from ..bind import BindOptions, BoundGraph, bind
from ..declare.dtypes import FLOAT
from ..declare.symbolic import Sym
from ..ir import Graph
from ..passes import optimize
from ..targets import CPU, Target
from .builder import Register, SlidingCaches, lower
from .explain import compiler_errors
from .plan import Plan

Change = Callable[[BoundGraph], Any]


def recognised(
    graph: Graph,
    shapes: Mapping[str, Sequence[int | Sym]],
    dtypes: Mapping[str, int] | None = None,
    known: Mapping[str, Sequence[Any]] | None = None,
    *,
    doing: str = "be compiled",
    target: Target = CPU,
    **options: Unpack[BindOptions],
) -> BoundGraph:
    """Binds a graph and recognises its ops, for those that only look at it.

    Args:
        graph, shapes, dtypes, known, doing, target, options: as of `compile_graph`.

    Raises:
        As `compile_graph`.
    """
    with compiler_errors(graph, doing):
        bound = bind(graph, shapes, dtypes, known, **options)
        for p in target.recognise:
            p(bound)
        return bound


def compile_graph(
    graph: Graph,
    shapes: Mapping[str, Sequence[int | Sym]],
    dtypes: Mapping[str, int] | None = None,
    known: Mapping[str, Sequence[Any]] | None = None,
    *,
    prepare: Change | None = None,
    transform: Change | None = None,
    finish: Change | None = None,
    optimized: bool = True,
    cache_shapes: Mapping[str, Sequence[int | Sym]] | None = None,
    cache_dtype: int = FLOAT,
    registers: Sequence[Register] = (),
    sliding: SlidingCaches | None = None,
    doing: str = "be compiled",
    target: Target = CPU,
    **options: Unpack[BindOptions],
) -> tuple[Plan, BoundGraph]:
    """Binds, optimizes and lowers a graph.

    Args:
        graph: the model.
        shapes, dtypes, known, options: as of `bind.bind`.
        prepare: a change of the bound graph before all passes.
        transform: a change once the ops are recognised, before they are combined.
        finish: a change after all passes.
        optimized: whether passes run; without them nodes that no output needs are dropped.
        cache_shapes, cache_dtype, registers, sliding: as of `builder.lower`. `finish` may change
            them.
        doing: the purpose that a malformed graph cannot serve, for errors.
        target: device that the plan is for.

    Returns:
        (plan, the bound graph that it was made of)

    Raises:
        ModelError, UnsupportedOp, OutOfMemory: with the node.
        NeedsValue, NeedsHost, NotStatic: as of `bind.bind`; `explain` makes errors for users of
            them.
    """
    with compiler_errors(graph, doing):
        bound = bind(graph, shapes, dtypes, known, **options)
        if prepare is not None:
            prepare(bound)
        if optimized:
            optimize(bound, transform, target.recognise, target.combine)
        else:
            bound.prune()
        if finish is not None:
            finish(bound)
        return lower(bound, cache_shapes, registers, cache_dtype, target, sliding), bound

"""A graph and its shapes to a plan, through all stages."""
from __future__ import annotations

from ..bind import bind
from ..passes import optimize
from .builder import lower


def compile_graph(graph, shapes, dtypes=None, known=None, roles=None, outputs=None, cache_shapes=None, registers=(), transform=None, computed=None, float_outputs=False):
    """Binds, optimizes and lowers a Graph; arguments as `bind.bind` and `builder.lower`. transform(bound): a change once the ops are recognised.

    Returns (Plan, BoundGraph)."""
    bound = bind(graph, shapes, dtypes, known, roles, outputs, computed, float_outputs)
    optimize(bound, transform)
    return lower(bound, cache_shapes, registers), bound

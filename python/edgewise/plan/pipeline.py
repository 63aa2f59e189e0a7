"""A graph and its shapes to a plan, through all stages."""

from __future__ import annotations

from ..bind import bind
from ..declare.dtypes import FLOAT
from ..errors import EdgewiseError, ModelError, OutOfMemory
from ..ir import BROKEN
from ..passes import optimize
from .builder import lower


def compile_graph(
    graph,
    shapes,
    dtypes=None,
    known=None,
    roles=None,
    outputs=None,
    cache_shapes=None,
    registers=(),
    transform=None,
    computed=None,
    float_outputs=False,
    trainable=(),
    run_seed=False,
    cache_dtype=FLOAT,
    max_bytes=None,
):
    """Binds, optimizes and lowers a Graph; arguments as `bind.bind` and `builder.lower`.
    transform(bound): a change once the ops are recognised.

    Returns (Plan, BoundGraph).
    """
    try:
        bound = bind(
            graph,
            shapes,
            dtypes,
            known,
            roles,
            outputs,
            computed,
            float_outputs,
            trainable,
            run_seed=run_seed,
            max_bytes=max_bytes,
        )
        optimize(bound, transform)
        return lower(bound, cache_shapes, registers, cache_dtype=cache_dtype), bound
    except EdgewiseError:
        raise
    except MemoryError as e:
        raise OutOfMemory(
            "compiling it takes more memory than there is",
            graph.name or "graph",
            "Use smaller shapes, or a smaller model.",
        ) from e
    # the stages check what they know; a graph that makes no sense in a way they don't ends here,
    # not in the caller's face
    except BROKEN as e:
        raise ModelError(
            f"it cannot be compiled ({type(e).__name__}: {str(e)[:200]})",
            graph.name or "graph",
            "If it runs elsewhere, report it.",
        ) from e

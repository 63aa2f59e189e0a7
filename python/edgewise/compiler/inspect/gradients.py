"""Which parameters of a model gradients reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import EdgewiseError, MissingGradient
from ..bind.autodiff import Gradients, add_gradients
from ..declare.dtypes import FLOAT
from ..declare.symbolic import most
from ..ir import BROKEN, BoundNode, Graph
from ..plan import recognised
from ..training.language_model import causal_lm_inputs
from ..training.parameters import parameters
from .memory import Numbers, Shapes, attempt, input_dtypes
from .report import Trainability

# Sizes for dimensions that were not given: only the structure of the graph matters here.
GUESSES = (16, 64, 224)


def find_trainability(
    graph: Graph, shapes: Mapping[str, list[int]], values: Numbers, needs: Sequence[str]
) -> tuple[Trainability | None, str]:
    """Differentiates a model for the first of these shapes that can be bound: the given ones, those
    of training a language model, or guessed ones.

    Args:
        graph: the model.
        shapes: of the inputs, as far as they are known.
        values: flat numbers of inputs that shapes or branches depend on.
        needs: missing information on shapes.

    Returns:
        (the result, "") or (None, why there is none).
    """
    tries: list[dict[str, Any]] = [] if needs else [{"shapes": shapes, "known": values}]
    try:
        tries.append(causal_lm_inputs(graph, 1, 16))
    except (EdgewiseError, *BROKEN):
        pass  # not a language model
    if needs:
        tries += [
            {"shapes": _guess_shapes(graph, shapes, guess), "known": values} for guess in GUESSES
        ]
    problems = []
    for arguments in tries:
        found, problem = attempt(lambda: _differentiate(graph, **arguments))
        if found is not None:
            return found, ""
        problems.append(problem)
    return None, problems[0] if problems else ""


def _guess_shapes(
    graph: Graph, shapes: Mapping[str, list[int]], guess: int
) -> dict[str, list[int]]:
    """Shapes of the inputs with `guess` for unknown dimensions."""
    return {
        i.name: [_guess_dim(d, axis, guess) for axis, d in enumerate(shapes.get(i.name) or i.shape)]
        for i in graph.input_names()
        if i.shape is not None
    }


def _guess_dim(dim: int | str | None, axis: int, guess: int) -> int:
    """No past, a batch of one, `guess` for every other unknown dimension."""
    if isinstance(dim, int) and dim >= 0:
        return dim
    if "past" in str(dim) and "+" not in str(dim):
        return 0
    return 1 if axis == 0 else guess


def _differentiate(
    graph: Graph, shapes: Shapes, known: Numbers, computed: dict[str, Any] | None = None
) -> Trainability:
    names = parameters(graph)
    bound = recognised(
        graph,
        shapes,
        input_dtypes(graph),
        known,
        computed=computed,
        float_outputs=True,
        trainable=names,
    ).prune()
    builder = Gradients(bound)
    outputs = {name: v for name, v in bound.outputs.items() if v.dtype == FLOAT}
    seeds = [
        (v, builder.op("Expand", builder.number(1.0), builder.ints(v.shape)))
        for v in outputs.values()
    ]
    missing: list[tuple[BoundNode, EdgewiseError]] = []
    found = add_gradients(bound, seeds, [bound.states[name] for name in names], missing)
    by_op: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    for node, error in reversed(missing):
        op = f"{node.domain}.{node.op}" if node.domain else node.op
        by_op.setdefault(op, []).append(
            node.name or next((o.name for o in node.outputs if o is not None), "")
        )
        if not isinstance(error, MissingGradient) or node.decl.grad_fn is not None:
            refused[op] = error.what
    return Trainability(
        {name: list(map(most, shape)) for name, shape in shapes.items()},
        list(outputs),
        sum(gradient is not None for gradient in found),
        by_op,
        refused,
    )

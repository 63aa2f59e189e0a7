"""Types and shapes of a model's outputs, where the file does not declare them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...errors import EdgewiseError
from ..declare.op import TooLong
from ..declare.registers import Registers
from ..declare.symbolic import NeedsHost, NotStatic, Sym, TooShort
from ..ir import Graph, Info, NeedsValue
from .binder import bind

LOW, HIGH = 2, 1 << 20  # lengths of a free dimension
MAX_TRIES = 20


def declared_outputs(graph: Graph) -> list[Info]:
    """The outputs of a graph, with types and shapes that follow from its nodes where the file does
    not declare them.

    A dimension that is one of an input has its name; other free dimensions are None. What cannot be
    known without running the model (data decides it, or a node that no plan computes) stays as it
    is declared.
    """
    missing = {
        o.name for o in graph.outputs if o.kind == "tensor" and (not o.dtype or o.shape is None)
    }
    found = _inferred(graph, sorted(missing)) if missing else {}
    return [replace(o, **found[o.name]) if o.name in found else o for o in graph.outputs]


def _inferred(graph: Graph, names: list[str]) -> dict[str, dict[str, Any]]:
    """{output: its dtype and shape} of these outputs; of none where the graph cannot be bound."""
    inputs = graph.input_names()
    if any(i.kind != "tensor" or not i.dtype or i.shape is None for i in inputs):
        return {}
    # A name is one length, each nameless dimension another.
    free = [
        d if isinstance(d, str) else (i.name, axis)
        for i in inputs
        for axis, d in enumerate(i.shape or ())
        if not isinstance(d, int)
    ]
    free = list(dict.fromkeys(free))
    low, high = LOW, HIGH
    for _ in range(MAX_TRIES):
        registers = Registers([(low, high)] * len(free))
        shapes = {
            i.name: [
                d
                if isinstance(d, int)
                else registers.length(free.index(d if isinstance(d, str) else (i.name, axis)))
                for axis, d in enumerate(i.shape or ())
            ]
            for i in inputs
        }
        try:
            bound = bind(graph, shapes, outputs=names)
        except TooLong as e:
            high -= max(e.excess, 1)
            if high < low:
                return {}
        except TooShort:
            low *= 2
            if low > high:
                return {}
        except (NeedsHost, NeedsValue, NotStatic):
            return {}
        except EdgewiseError:  # a tensor is too large where all lengths are the highest
            high //= 16
            if high < low:
                return {}
        else:
            return {
                name: {"dtype": v.dtype, "shape": [_dimension(d, free) for d in v.shape]}
                for name, v in bound.outputs.items()
            }
    return {}


def _dimension(d: Any, free: list[Any]) -> int | str | None:
    """A dimension as a file declares it."""
    if not isinstance(d, Sym):
        return int(d)
    same = d.reg < len(free) and (d.scale, d.add) == (1, 0)
    return free[d.reg] if same and isinstance(free[d.reg], str) else None

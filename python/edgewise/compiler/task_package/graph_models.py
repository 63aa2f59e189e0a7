"""Packages of models of graphs that rules of logic/speech run one after the other: codecs, voices
of several graphs, segmentation, enhancement. Each graph is a program of its own name; the rules are
rehearsed at several lengths, and each graph gets plans for the shapes that it was fed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import InputError, ModelError, UnsupportedOp
from ...json_text import parse_json_object
from ...logic.speech import codecs, kinds
from ..compile.programs import Programs
from ..declare.dtypes import FLOATS
from ..declare.op import TooLong
from ..declare.symbolic import NeedsHost, NotStatic, Sym
from ..ir import Graph, NeedsValue
from .rehearsal import Pattern, Rehearsal, patterns_of
from .rehearsals import REHEARSALS, STEPS, Model, roles_of

if TYPE_CHECKING:
    from ..package import Package
    from . import Request

MAX_TRIES = 24


def graphs_package(request: Request) -> Package:
    """Makes the package of a model of several graphs.

    Raises:
        InputError: files of the model are missing, or an option has no sensible value.
        UnsupportedOp: it is none of the models that are known, or has no plans for all lengths.
    """
    if request.max_length is not None and request.max_length < 1:
        raise InputError(f"{request.max_length} is no length", "max_length", "Give seconds.")
    graphs = {name: request.read(name) for name in request.graphs}
    styles = [s.size // 4 for n, s in sorted(request.files.items()) if n.startswith("voices/")]
    model = Model(
        _json(request, "config.json"),
        _json(request, "preprocessor_config.json"),
        request.max_length,
        styles[0] if styles else 0,
    )
    task = request.task
    if task == codecs.TASK:
        graphs = roles_of(graphs)
    kind = kinds.kind_of([*graphs]) if task == kinds.TASK else task
    rehearsal = Rehearsal(graphs)
    if not REHEARSALS[kind or ""](rehearsal, model):
        raise UnsupportedOp(
            "they take sounds and texts of no length", "its graphs", "Export the model again."
        )
    programs = request.programs()
    for name, graph in graphs.items():
        runs = rehearsal.fed.get(name)
        if not runs:
            raise UnsupportedOp("it is never run", name, "Leave the file out of the folder.")
        for pattern in patterns_of(runs):
            _add(programs, name, graph, pattern, model.spoken * STEPS)
    return programs.package


def _json(request: Request, name: str) -> Mapping[str, Any]:
    data = request.texts.get(name)
    return {} if data is None else parse_json_object(data, name, ModelError)


def _add(programs: Programs, name: str, graph: Graph, pattern: Pattern, steps: int) -> None:
    """Adds a plan for the shapes of a pattern, for as many lengths as there is one for.

    Args:
        steps: by how much lengths that grow from run to run exceed those of the rehearsal.
    """
    ranges = [
        (low, high + (steps if grows else 0))
        for (low, high), grows in zip(pattern.ranges, pattern.grows)
    ]
    switches = {i.name for i in graph.input_names() if i.dtype not in FLOATS}
    units = [1] * len(ranges)
    fixed: dict[str, Any] | None = None
    why: Exception | None = None
    for _ in range(MAX_TRIES):
        try:
            programs.add(name, graph, [(pattern.at(ranges, units), None)], fixed=fixed)
            _add_shorter(programs, name, graph, pattern, ranges, fixed)
            return
        except TooLong as e:
            longest = max(range(len(ranges)), key=lambda i: ranges[i][1])
            low, high = ranges[longest]
            if high - e.excess <= low:
                raise
            ranges[longest] = (low, high - max(1, e.excess))
        except NeedsValue as e:
            known = {n: x for n, x in pattern.numbers.items() if n in switches}
            if fixed is not None or not known:
                why = e
                break
            fixed = known
        except (NotStatic, NeedsHost, ModelError) as e:  # a window may not fit
            why = e
            if units != pattern.units:  # the graph may need lengths of whole units
                units = pattern.units
                continue
            rehearsed = [high for _, high in pattern.ranges]
            if any(high > most for (_, high), most in zip(ranges, rehearsed)):
                ranges = [
                    (low, most + (high - most) // 2) for (low, high), most in zip(ranges, rehearsed)
                ]
                continue
            if not ranges or all(4 * low >= high for low, high in ranges):
                break
            ranges = [(min(2 * low, max(low, high // 2)), high) for low, high in ranges]
    raise UnsupportedOp(
        f"its shapes do not follow from the lengths of what it gets ({why})",
        name,
        "Use the model's folder, or export the model again.",
    )


def _add_shorter(
    programs: Programs,
    name: str,
    graph: Graph,
    pattern: Pattern,
    ranges: list[tuple[int, int]],
    fixed: dict[str, Any] | None,
) -> None:
    """Adds plans for those lengths of the rehearsal that are below the ranges of a plan."""
    for values in pattern.below([low for low, _ in ranges]):
        ends = [(x, x) for x in values]
        shapes = pattern.at(ends, [1] * len(ends))
        fixed_shapes = {
            n: [d.min if isinstance(d, Sym) else d for d in of] for n, of in shapes.items()
        }
        programs.add(name, graph, [(fixed_shapes, None)], fixed=fixed)

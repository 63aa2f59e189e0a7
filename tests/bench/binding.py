"""Case `bind`: native time to compile a plan of a model for a new input shape.

This is the only case in which a single process measures itself.
"""

from __future__ import annotations

import gc
import time

from edgewise.arrays import as_input
from edgewise.compiler.bind import bind
from edgewise.compiler.ir import NeedsValue
from edgewise.compiler.passes import optimize
from edgewise.compiler.plan.builder import lower
from edgewise.engine import default_engine
from edgewise.onnx import FileSource, read_model

from ..zoo import zoo
from .contenders import ONE
from .language import model_files
from .stats import show

CASES = ("bind",)
STEPS = ("bind", "passes", "lower", "load")
ARENA = "arena over what is alive at once"
# number of models from the zoo: those with the highest time per node, and the largest ones
SHOWN = 8


def run(bench, cases, rounds, seconds):
    found = {}
    for name, path, feeds in models():
        times = measure(path, feeds, rounds)
        if times:
            found[name] = times
    of_zoo = [n for n in found if not n.startswith("SmolLM2")]
    costly = sorted(of_zoo, key=lambda n: -per_node(found[n]))[:SHOWN]
    largest = sorted(of_zoo, key=lambda n: -found[n]["nodes"])[:SHOWN]
    shown = {
        name: t
        for name, t in found.items()
        if name in costly or name in largest or name not in of_zoo
    }
    table = [
        [
            name,
            str(t["nodes"]),
            *(show(t[s]) for s in ("read", *STEPS)),
            f"{show(t['all'])} ms",
            f"{per_node(t):.3f} ms",
            "≤ 0.25 ms",
            f"{t['arena']:.3f}×" if t["arena"] else "–",
        ]
        for name, t in shown.items()
    ]
    arenas = {name: t["arena"] for name, t in found.items() if t["arena"]}
    worst = max(arenas, key=arenas.get, default=None)
    notes = [
        (
            "Processor time of one thread, the quickest of the rounds. Nodes as in the file; all is"
            " binding to a loaded plan, without reading the file, which happens once."
        ),
        (
            f"Of {len(of_zoo)} models of the zoo those that cost most for each node and the"
            f" largest; all of them: {show(sum(found[n]['all'] for n in of_zoo))} ms."
        ),
    ]
    if worst:
        notes.append(
            "Last column: the memory between a plan's steps over the most that is alive at any one"
            f" of them, below which no plan can be; largest for {worst} ({arenas[worst]:.3f}×), of"
            f" {len(arenas)} graphs."
        )
    return {
        "bind": {
            "title": "Binding a model to a new input shape",
            "columns": ["model", "nodes", "read", *STEPS, "all", "per node", "goal", "arena"],
            "table": table,
            "summaries": shown,
            "unit": "×",
            "values": {ARENA: {ONE: [arenas[worst]]}} if worst else {},
            "notes": notes,
        }
    }


def per_node(times):
    return times["all"] / times["nodes"]


def models():
    """Returns [(name, path, {input: (dtype, shape)})]."""
    yield "SmolLM2-135M-sized, 16 tokens behind 112", model_files() / "model.onnx", None
    for model in zoo.models():
        if "train" not in model.path.relative_to(model.root).parts:
            yield (
                model.name,
                model.path,
                {name: as_input(x, name, None)[:2] for name, x in model.feeds.items()},
            )


def measure(path, feeds, rounds):
    """Returns the milliseconds of each stage, or None if a shape depends on the data of an
    input.
    """
    begin = time.process_time()
    graph = read_model(FileSource(path))
    times = {
        "nodes": sum(1 for _ in graph.every_node()),
        "read": 1e3 * (time.process_time() - begin),
        "all": float("inf"),
    }
    names = {i.name: i for i in graph.input_names()}
    if feeds is None:
        sizes = {
            "batch_size": 1,
            "sequence_length": 16,
            "past_sequence_length": 112,
            "total_sequence_length": 128,
        }
        feeds = {
            n: (
                i.dtype,
                [
                    d if isinstance(d, int) else next((s for k, s in sizes.items() if k == d), 128)
                    for d in i.shape
                ],
            )
            for n, i in names.items()
        }
    engine = default_engine()
    for _ in range(rounds):
        gc.collect()
        at = [time.process_time()]
        try:
            bound = bind(
                graph, {n: list(feeds[n][1]) for n in names}, {n: feeds[n][0] for n in names}
            )
        except NeedsValue:
            return None
        at.append(time.process_time())
        optimize(bound)
        at.append(time.process_time())
        plan = lower(bound)
        at.append(time.process_time())
        engine.load(plan).free()
        at.append(time.process_time())
        if 1e3 * (at[-1] - at[0]) < times["all"]:
            times |= {
                "all": 1e3 * (at[-1] - at[0]),
                "arena": plan.arena_bytes / plan.arena_least if plan.arena_least else None,
                **{s: 1e3 * (b - a) for s, a, b in zip(STEPS, at, at[1:])},
            }
    return times

"""A case of a number: a model and the inputs of several runs."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import onnx

from .families import BYTES, FLOATS
from .graph import OPSETS, Graph, Run
from .lengths import draw_lengths, draw_order

FORMS = {"float32": 6, "float16": 1.2, "float64": 0.4, "int8": 2}
FLOATS_OF = {"float16": "f2", "float64": "f8"}  # form: how often


@dataclasses.dataclass
class Case:
    """lengths: of each run."""

    number: int
    form: str
    model: onnx.ModelProto
    runs: list[Run]
    lengths: list[dict[str, int]]
    families: list[str]


def draw_inputs(g):
    """One to three inputs: tokens, ids, sound, pictures, masks, rows."""
    b, n, m, c = g.dim("b"), g.dim("n"), g.dim("m"), g.fixed(g.rng.choice((4, 8)))
    if g.rng.random() < 0.15:
        b = g.fixed(1)
    kinds = (
        ("f", (b, n, c), "normal"), ("f", (b, n, c), "normal"), ("f", (b, m, c), "normal"),
        ("f", (b, c, n), "normal"), ("f", (b, g.fixed(2), n, m), "normal"),
        ("f", (b, n), "normal"), ("f", (n, c), "normal"), ("f", (n, m), "normal"),
        ("f", (b, c), "normal"), ("f", (b, g.fixed(2), n, g.fixed(4)), "normal"),
        ("i8", (b, n), 16), ("?", (b, n), "mask"), ("i8", (b, n), "mask"),
    )  # fmt: skip
    first, *others = g.rng.choices(kinds, k=g.rng.randint(1, 3))
    if first[2] != "normal":
        first = kinds[0]
    for dtype, dims, kind in (first, *others):
        g.input(dtype, dims, kind)


def generate(number: int, seed: int = 0, form: str | None = None) -> Case:
    """The case of a number and a seed; form: one of FORMS, else they draw it."""
    rng = random.Random(f"{seed}/{number}")
    form = rng.choices(list(FORMS), FORMS.values())[0] if form is None else form
    lengths = draw_lengths(rng)
    order = draw_order(rng, len(lengths))
    g = Graph(rng, lengths, FLOATS_OF.get(form, "f4"), rng.choice(OPSETS))
    draw_inputs(g)
    families, most = [], rng.randint(2, 7)
    table = dict(FLOATS)
    if form == "int8":
        table |= {name: (weight * 4, make) for name, (weight, make) in BYTES.items()}
    names, weights = list(table), [w for w, _ in table.values()]
    for _ in range(60):
        name = rng.choices(names, weights)[0]
        if table[name][1](g):
            families.append(name)
        if len(families) >= most or len(g.nodes) > 40:
            break
    if not g.finish():
        return generate(number + (1 << 40), seed, form)
    numpy = np.random.default_rng(rng.getrandbits(32))
    runs = [Run(g.feeds(at, numpy), None) for at in order]
    if rng.random() < 0.12:  # some of the outputs, in any order
        names = [v.name for v in g.outputs]
        for i in range(len(runs)):
            some = rng.sample(names, rng.randint(1, len(names)))
            runs[i] = runs[rng.randrange(i)] if i and rng.random() < 0.4 else runs[i]
            runs[i] = runs[i]._replace(names=some)
    return Case(number, form, g.model(), runs, [lengths[at] for at in order], families)

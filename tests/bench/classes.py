"""Case `classes`: pre-trained models natively, on each class of processors that the engine has a
library for, beside onnxruntime.

The libraries of lower classes run on this machine, too, so one machine gives the table of all of
them. onnxruntime has no such switch: it uses all instructions of the machine in every column.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import edgewise
import numpy as np
from edgewise.host.engine import native

from .browser import Bench, say
from .contenders import NATIVE, Native, leave_out, native_session
from .real import difference, reference_of
from .real_models import FOLDER, MODELS, SMOLLM2, Feeds, RealModel, smollm2_prompt
from .stats import ratio, show, summary

CASES = ("classes",)
# The words of the tables for the instruction sets, see core/CMakeLists.txt
CLASSES = {"x86-64-v4": "AVX-512", "x86-64-v3": "AVX2", "x86-64": "SSE2"}
MS = 250  # of each contender in a round
GOAL = 1.2  # times the speed of onnxruntime


def models() -> list[RealModel]:
    """The models that are there, without the one whose graph draws random numbers, and a prompt."""
    token = next(m for m in MODELS if m.file == SMOLLM2)
    prompt = replace(token, title="SmolLM2-135M, 4 bits, 128 tokens", feeds=smollm2_prompt)
    return [m for m in (*MODELS, prompt) if m.path.exists() and not m.shape_only]


def libraries() -> dict[str, Path]:
    """{class: library} of those that this machine can run, the best one first."""
    best = Path(native.library_path())
    names = ("libedgewise-v4.so", "libedgewise-v3.so", "libedgewise.so")
    at = names.index(best.name)
    return dict(zip(list(CLASSES.values())[at:], (best.with_name(n) for n in names[at:])))


@contextmanager
def library(path: Path) -> Iterator[None]:
    """Within it, engines are opened from this library."""
    os.environ["EDGEWISE_LIBRARY"] = str(path)
    try:
        yield
    finally:
        del os.environ["EDGEWISE_LIBRARY"]


def contenders(model: RealModel, feeds: Feeds) -> dict[str, Native]:
    """Sessions with one thread."""
    found = {}
    for name, path in libraries().items():
        with library(path):
            engine = edgewise.open_engine(threads=1)
        ours = edgewise.InferenceSession(str(model.path), engine=engine)
        found[name] = Native(lambda ours=ours: ours.run(None, feeds)[0])
    theirs = native_session(model.path)
    return found | {NATIVE: Native(lambda: theirs.run(None, feeds)[0])}


def time(bench: Bench, model: RealModel, rounds: int, random: np.random.Generator) -> dict:
    """{contender: [milliseconds in each round]}, without those with other results."""
    feeds = model.feeds(random)
    engines = contenders(model, feeds)
    for one in engines.values():
        one.times(0)
    exact = reference_of(model.path)
    reference = engines[NATIVE].result
    if exact is not model.path:
        reference = native_session(exact).run(None, feeds)[0]
    off = {who: difference(model, one.result, reference) for who, one in engines.items()}
    times: dict[str, list[float]] = {who: [] for who in engines}
    leave_out(bench, model.title, off, dict.fromkeys(off, model.tolerance), engines, times)
    for _ in range(rounds):
        for who, one in engines.items():
            times[who].append(float(np.median(one.times(MS)[1:])))
    return times


def run(bench: Bench, cases: list[str], rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Runs the case. `seconds` has no effect."""
    if not (chosen := models()):
        say(f"  no pre-trained model is in {FOLDER}: set EDGEWISE_REAL to the folder that has them")
        return {}
    ours = list(libraries())
    values, table = {}, []
    for number, model in enumerate(chosen):
        try:
            times = time(bench, model, min(rounds, 5), np.random.default_rng(number))
        except Exception as e:
            bench.failed(model.title, e)
            continue
        values[model.title] = times
        row = [model.title]
        for who in (NATIVE, *ours):
            row.append(show(summary(times[who])["median"]) if times.get(who) else "–")
            if who != NATIVE:
                r = ratio(times.get(NATIVE), times.get(who))
                row.append(f"{r['median']:.2f}×" if r else "–")
        table.append(row)
        say(f"  {' | '.join(row)}")
    met = {
        who: sum(
            ratio(t[NATIVE], t[who])["median"] >= GOAL
            for t in values.values()
            if t.get(NATIVE) and t.get(who)
        )
        for who in ours
    }
    return {
        "classes": {
            "title": "Pre-trained models natively, by class of processors",
            "unit": "ms",
            "values": values,
            "columns": [
                "one thread",
                "onnxruntime, ms",
                *(c for who in ours for c in (f"{who}, ms", "")),
            ],
            "table": table,
            "notes": [
                "The run() of both Python packages, NumPy arrays in and out, in turns in one"
                " process. Edgewise is opened from the library of each class; onnxruntime uses all"
                " instructions of this machine in every column, so that lower classes are compared"
                " with more than they would meet.",
                f"At least {GOAL} × onnxruntime: "
                + ", ".join(f"{n} of {len(values)} ({who})" for who, n in met.items())
                + ".",
            ],
        }
    }

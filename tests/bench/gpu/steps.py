"""Case `webgpu`: training steps on a GPU. Of the peers jax-js alone trains there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..browser import WORK, Bench, Contender, say
from ..contenders import leave_out, turns
from ..stats import cell, ratio, show
from ..training.models import model_files
from ..training.networks import ON_GPU
from ..training.plans import program, write_plan
from .tokens import JAX, OURS, WASM

TOLERANCE = 1e-3  # of the losses, relative
STEPS = 3  # in each round


def open_all(bench: Bench, name: str) -> dict[str, Contender]:
    """The contenders that could be opened for a network."""
    from edgewise.compiler.targets import target_named

    path = model_files(name)
    about = json.loads(path.with_suffix(".json").read_text())
    for target in ("cpu", "webgpu"):
        planned = program(path, target_named(target))
        write_plan(planned, WORK / "train" / f"{name}-{target}", about)
    url = f"/bench/train/{name}"
    listed: dict[str, tuple[str, tuple[Any, ...]]] = {
        OURS: ("webgpu/training.js", (url + "-webgpu",)),
        JAX: ("jax.js", (url, 1, "webgpu")),
        WASM: ("training.js", (url + "-cpu", "relaxed-threads", 1)),
    }
    found = {}
    for who, (script, arguments) in listed.items():
        if one := bench.contend(who, script, "open", *arguments):
            found[who] = one
            if beside := one.opened.get("onWasm"):
                bench.trouble.append(f"{who}, {name}: in WebAssembly: {', '.join(beside)}")
    return found


def network(bench: Bench, name: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Times, and what else is in the table's rows, by contender."""
    contenders = open_all(bench, name)
    everyone = dict(contenders)
    losses: dict[str, list[float]] = {}
    first: dict[str, float] = {}
    counts: dict[str, dict[str, float]] = {}

    def turn(who: str, one: Contender, number: int) -> tuple[float, float]:
        """(milliseconds of a step, processor time of the page for it)"""
        before = one.call("counts") if who != WASM else {}
        found = one.call_and_find("steps", 6 if number < 0 else STEPS, 0)
        if number < 0:  # the losses before the first step, after one step and after five
            losses[who], first[who] = found["losses"], found["ms"][0]
            say(f"  {who}, {name}: first step in {first[who] / 1e3:.2f} s")
        elif who != WASM:
            after = one.call("counts")
            counts[who] = {n: (after[n] - before[n]) / STEPS for n in after}
            counts[who]["MB"] = after["peakBytes"] / 1e6
        return float(np.median(found["ms"])), one.worked / len(found["ms"])

    found = turns(bench, contenders, rounds, seconds, turn, title=name)
    reference = losses.get(WASM)
    off = {
        who: max(abs(x[i] / reference[i] - 1) for i in (0, 1, 5))
        for who, x in losses.items()
        if reference
    }
    leave_out(bench, name, off, dict.fromkeys(off, TOLERANCE), found, contenders)
    rows = []
    for who, of in found.items():
        if not of:
            continue
        one, counted = contenders[who], counts.get(who, {})
        rows.append(
            [
                f"{who}, {ON_GPU[name][2]}",
                cell([ms for ms, _ in of]),
                show((one.opened["ms"] + first[who]) / 1e3),
                show(float(np.median([cpu for _, cpu in of]))),
                show(one.peak_mb()),
                *(show(counted[n]) if counted else "–" for n in COUNTED),
                show(off[who], 1) if who in off else "–",
            ]
        )
    for one in everyone.values():
        one.close()
    return {"rows": rows, "times": {who: [ms for ms, _ in of] for who, of in found.items() if of}}


def measured(bench: Bench, adapter: str, rounds: int, seconds: float) -> dict[str, Any]:
    """The case's result."""
    table: list[list[str]] = []
    values: dict[str, dict[str, list[float]]] = {}
    ratios = []
    for name, (_, _, title) in ON_GPU.items():
        found = network(bench, name, rounds, seconds / len(ON_GPU))
        table += found["rows"]
        values[name] = times = found["times"]
        for theirs in (JAX, WASM):
            if r := ratio(times.get(theirs), times.get(OURS)):
                ratios.append({"ours": f"{OURS}, {title}", "theirs": theirs, **r, "cpu": None})
    return {
        "title": f"WebGPU: training steps on {adapter}",
        "unit": "ms",
        "values": values,
        "columns": COLUMNS,
        "table": table,
        "ratios": ratios,
        "notes": list(NOTES),
    }


COUNTED = ("MB", "dispatches", "submits", "maps", "buffers", "pipelines")
COLUMNS = [
    "",
    "ms per step",
    "first step after opening, s",
    "page's processor ms a step",
    "peak of the page, MB",
    "GPUBuffers, MB",
    "dispatches a step",
    "submits",
    "maps",
    "buffers made",
    "programs made",
    "difference",
]
NOTES = (
    (
        "Same weights, same batch, AdamW in float32; a step is forward, backward and the optimizer,"
        f" with the loss read. Losses agree with those of WebAssembly within {TOLERANCE:g}. jax-js"
        " multiplies one-hot rows, since its embedding lookup has no gradient."
    ),
    (
        "The adapter is software on the same processor: counts do not depend on it, times do. First"
        " step after opening: with reading the file, and what is compiled."
    ),
    (
        "Neither onnxruntime-web (its last release that trains, 1.19.2, has no WebGPU) nor wllama"
        " trains on WebGPU."
    ),
)

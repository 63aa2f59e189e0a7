"""Chooses tunables of shaders by measuring them (logic/gpu/tuning.py)."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING

from ...compiler.declare.dtypes import FLOAT, unpack
from ...compiler.gpu.tuned import NAMES, Case, Tuning, tuning_of
from ...errors import EngineError
from ...logic.gpu.self_test import difference
from ...logic.gpu.tuning import MAX_MS, Trial, fastest, goes_on, refusal, runs_of, untried
from .loaded import WebGPUPlan
from .self_test import adapter_of, given_of, results_of

if TYPE_CHECKING:
    from .engine import WebGPUEngine

_TRIALS: dict[tuple[str, str], list[Trial]] = {}  # {(adapter, tunable): what was measured}


def tune(engine: WebGPUEngine, kernels: set[str]) -> None:
    """Chooses the tunables of a plan's kernels, once for each adapter: `engine.tuned` then has
    their values, and `engine.refused` kernels whose default computes wrongly. What there is no time
    for has its default in this engine. On a GPU in software there is nothing to choose.
    """
    if engine.gpu.software:
        return
    left: float = MAX_MS
    for name, (kernel, values) in NAMES.items():
        if kernel not in kernels or name in engine.tuned:
            continue
        key = adapter_of(engine), name
        if key not in _TRIALS and left > 0:
            _TRIALS[key], took = try_values(engine, tuning_of(name), left)
            left -= took
        trials = _TRIALS.get(key)
        engine.tuned[name] = fastest(trials) if trials else values[0]
        if trials and (why := refusal(trials)):
            engine.refused[kernel] = why
            warnings.warn(f"steps of {kernel} run on the processor: {why}", stacklevel=2)


def try_values(engine: WebGPUEngine, tuning: Tuning, left: float) -> tuple[list[Trial], float]:
    """Tries the values of a tunable in all its plans, and measures those that are right in the
    last one.

    Args:
        left: milliseconds of measurements after which no further round begins.

    Returns:
        (what was found of each, milliseconds of the measurements).
    """
    trials, took = untried(tuning.name, tuning.values), 0.0
    for case in tuning.cases:
        with ExitStack() as held:
            plans = _compared(engine, tuning.name, trials, case, held)
            if case is tuning.cases[-1]:
                right = [(trial, plans[trial.value]) for trial in trials if trial.right]
                took = _measure(right, left)
    return trials, took


def _compared(
    engine: WebGPUEngine, name: str, trials: list[Trial], case: Case, held: ExitStack
) -> dict[int, WebGPUPlan]:
    """Runs a plan with each value. held: closes the plans.

    Returns:
        {value: the plan}.
    """
    plan, slots = case
    device, host = engine.device, engine.host_device
    expected = results_of(host, host.load_plan(plan), plan, slots)
    buffers = [device.allocate(slot.nbytes) for slot in plan.slots]
    out: dict[int, WebGPUPlan] = {}
    for i, (slot, buffer) in enumerate(zip(slots, buffers)):
        held.callback(device.release, buffer)
        if slot.kind != "result":
            device.write(buffer, given_of(i, slot))
    for trial in trials:
        if trial.refused:
            continue
        try:
            one = WebGPUPlan(engine, plan, {**engine.tuned, name: trial.value})
            held.callback(one.free)
            for i, (slot, buffer) in enumerate(zip(slots, buffers)):
                one.bind(i, buffer)
                if slot.kind == "result":  # NaN, in place of what the value before it has left
                    device.fill(buffer, 0xFF)
            if plan.init_count:
                one.init()
            one.run()
            found = [device.read(b) if s.kind == "result" else b"" for s, b in zip(slots, buffers)]
        except EngineError:
            trial.refused, trial.difference = True, float("inf")
            continue
        out[trial.value] = one
        for slot, data, wanted in zip(slots, found, expected):
            if slot.kind == "result":
                apart = difference(wanted, unpack(FLOAT, data, slot.count))
                trial.difference = max(trial.difference, apart)
    return out


def _measure(tried: list[tuple[Trial, WebGPUPlan]], left: float) -> float:
    """Measures values in turns, as often as there is time for. Returns milliseconds."""
    begin = perf_counter()
    for trial, one in tried:
        trial.ms = 1000 * one.seconds(1)
    runs = [runs_of(trial.ms) for trial, _ in tried]
    rounds = 0
    while goes_on(rounds, runs, left - 1000 * (perf_counter() - begin)):
        for (trial, one), count in zip(tried, runs):
            ms = 1000 * one.seconds(count) / count
            trial.ms = min(trial.ms, ms) if rounds else ms
        rounds += 1
    return 1000 * (perf_counter() - begin)

"""Chooses tunables of shaders by measuring them (logic/gpu/tuning.py)."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from ...compiler.declare.dtypes import FLOAT, unpack
from ...compiler.gpu.tuned import Tuning, tunings
from ...errors import EngineError
from ...logic.gpu.self_test import difference
from ...logic.gpu.tuning import MAX_MS, Trial, fastest, rounds_of, runs_of
from .loaded import WebGPUPlan
from .self_test import adapter_of, given_of, results_of

if TYPE_CHECKING:
    from .engine import WebGPUEngine

_TRIALS: dict[tuple[str, str], list[Trial]] = {}  # {(adapter, tunable): what was measured}


def tune(engine: WebGPUEngine, kernels: set[str]) -> None:
    """Chooses the tunables of a plan's kernels, once for each adapter: `engine.tuned` then has
    their values. On a GPU in software there is nothing to choose.
    """
    fresh = [t for t in tunings() if t.kernel in kernels and t.name not in engine.tuned]
    if engine.gpu.software or not fresh:
        return
    end = perf_counter() + MAX_MS / 1000
    for tuning in fresh:
        key = adapter_of(engine), tuning.name
        if key not in _TRIALS:
            _TRIALS[key] = trials_of(engine, tuning, end)
        engine.tuned[tuning.name] = fastest(_TRIALS[key])


def trials_of(engine: WebGPUEngine, tuning: Tuning, end: float) -> list[Trial]:
    """Tries the values of a tunable. end: when no further measurement begins, as of perf_counter.

    A value with which the GPU fails has an infinite difference.
    """
    plan, slots, host = tuning.plan, tuning.slots, engine.host_device
    expected = results_of(host, host.load_plan(plan), plan, slots)
    result = next(i for i, slot in enumerate(slots) if slot.kind == "result")
    trials = [Trial(value, float("inf"), 0.0) for value in tuning.values]
    buffers = [engine.device.allocate(slot.nbytes) for slot in plan.slots]
    tried: list[tuple[Trial, WebGPUPlan]] = []
    loaded: list[WebGPUPlan] = []
    try:
        for i, slot in enumerate(slots):
            if slot.kind != "result":
                engine.device.write(buffers[i], given_of(i, slot))
        for trial in trials:
            if perf_counter() > end:
                break
            try:
                one = WebGPUPlan(engine, plan, {**engine.tuned, tuning.name: trial.value})
                loaded.append(one)
                for i, buffer in enumerate(buffers):
                    one.bind(i, buffer)
                one.run()
                data = engine.device.read(buffers[result])
            except EngineError:
                continue
            found = unpack(FLOAT, data, slots[result].count)
            trial.difference = difference(expected[result], found)
            if trial.right or trial is trials[0]:  # which may be more exact
                tried.append((trial, one))
        _measure(tried, end)
    finally:
        for one in loaded:
            one.free()
        for buffer in buffers:
            engine.device.release(buffer)
    return trials


def _measure(tried: list[tuple[Trial, WebGPUPlan]], end: float) -> None:
    """Measures values in turns, as often as there is time for."""
    for trial, one in tried:
        if perf_counter() > end:
            return
        trial.ms = 1000 * one.seconds(1)
    runs = [runs_of(trial.ms) for trial, _ in tried]
    left = 1000 * (end - perf_counter())
    for _ in range(rounds_of([trial.ms for trial, _ in tried], left)):
        for (trial, one), count in zip(tried, runs):
            trial.ms = min(trial.ms, 1000 * one.seconds(count) / count)

"""Tests a GPU before it is used: wrong numbers without a word are the commonest fault of GPUs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ...compiler.declare.dtypes import FLOAT, INT64, pack, unpack
from ...compiler.gpu.self_test import TestCase, self_test, test_cases
from ...errors import EngineError
from ...logic.gpu.self_test import (
    PERIOD,
    PERIOD_OF_INTEGERS,
    TestSlot,
    difference,
    integers,
    numbers,
    wrong_of,
)

if TYPE_CHECKING:
    from ...compiler.plan import Plan
    from ..engine import Device, LoadedPlan
    from .engine import WebGPUEngine

_TESTED: set[str] = set()  # adapters that compute rightly, with their drivers
# {(adapter, name of a test, values of tunables): what is wrong}
_WRONG: dict[tuple[str, str, str], str | None] = {}


def check_gpu(engine: WebGPUEngine) -> None:
    """Compares the results of a GPU with those of the engine in C; once for each adapter.

    Raises:
        EngineError: they differ.
    """
    name = adapter_of(engine)
    if name in _TESTED:
        return
    wrong = _wrong(engine, *self_test())
    if wrong is not None:
        raise EngineError(
            f"the GPU {engine.gpu.name} computes wrongly: {wrong}",
            "webgpu",
            "Use the processor (device 'cpu'), or another driver, and report this to its maker.",
        )
    _TESTED.add(name)


def check_kernels(engine: WebGPUEngine, kernels: set[str]) -> None:
    """Tests the kernels of a plan, once for each adapter; `engine.refused` then has those that the
    GPU computes wrongly: their steps run on the processor.
    """
    for case in test_cases():
        if case.name in engine.tested or kernels.isdisjoint(case.kernels):
            continue
        wrong = _wrong_in(engine, case)
        engine.tested.add(case.name)
        if wrong is not None:
            why = f"this GPU computes it wrongly ({wrong})"
            engine.refused |= dict.fromkeys(case.kernels, why)
            words = ", ".join(case.kernels)
            warnings.warn(f"steps of {words} run on the processor: {why}", stacklevel=2)


def check_forms(engine: WebGPUEngine, forms: set[str]) -> bool:
    """Tests what a plan runs besides the kernels as such: shaders of special cases, and steps that
    share a dispatch, once for each adapter. `engine.refused` then has those that the GPU computes
    wrongly: steps run alone, or on the processor.

    Returns:
        Whether it has more than before.
    """
    before = len(engine.refused)
    for case in test_cases():
        fresh = forms.intersection(case.forms[engine.serial]) - engine.tested
        if not fresh:
            continue
        wrong = _wrong_in(engine, case)
        engine.tested |= fresh
        if wrong is not None:
            engine.refused |= dict.fromkeys(fresh, f"this GPU computes it wrongly ({wrong})")
            words = ", ".join(sorted(fresh))
            warnings.warn(f"not used: {words}: this GPU computes {wrong} wrongly", stacklevel=2)
    return len(engine.refused) > before


def _wrong_in(engine: WebGPUEngine, case: TestCase) -> str | None:
    """As _wrong, of a test that runs once for each adapter and values of tunables."""
    key = adapter_of(engine), case.name, str(sorted(engine.tuned.items()))
    if key not in _WRONG:
        _WRONG[key] = _wrong(engine, case.plan, case.slots)
    return _WRONG[key]


def _wrong(engine: WebGPUEngine, plan: Plan, slots: list[TestSlot]) -> str | None:
    """What a GPU computes wrongly; None: nothing."""
    host, device = engine.host_device, engine.device
    expected = results_of(host, host.load_plan(plan), plan, slots)
    found = results_of(device, device.load_untested(plan), plan, slots)
    return wrong_of(slots, [difference(a, b) for a, b in zip(expected, found)])


def adapter_of(engine: WebGPUEngine) -> str:
    """What results are kept for."""
    return f"{engine.gpu.name} {engine.serial} {engine.gpu.subgroups}"


def results_of(
    device: Device, loaded: LoadedPlan, plan: Plan, slots: list[TestSlot]
) -> list[list[float]]:
    """The numbers of each slot after a run; none for what is given."""
    buffers = [device.allocate(slot.nbytes) for slot in plan.slots]
    try:
        for i, (slot, buffer) in enumerate(zip(slots, buffers)):
            loaded.bind(i, buffer)
            if slot.kind != "result":
                device.write(buffer, given_of(i, slot))
        if plan.init_count:
            loaded.init()
        loaded.run()
        return [
            unpack(FLOAT, device.read(buffer), slot.count) if slot.kind == "result" else []
            for slot, buffer in zip(slots, buffers)
        ]
    finally:
        loaded.free()
        for buffer in buffers:
            device.release(buffer)


def given_of(i: int, slot: TestSlot) -> bytes:
    """What slot i is given. Numbers repeat after PERIOD, integers a little earlier."""
    if slot.kind == "numbers":
        return _repeated(pack(FLOAT, numbers(i, min(slot.count, PERIOD))), 4 * slot.count)
    if slot.kind == "ids":
        return pack(INT64, integers(i, slot.count, slot.limit))
    if slot.kind == "zeros":
        return bytes(slot.count)
    return _repeated(bytes(integers(i, min(slot.count, PERIOD_OF_INTEGERS), 256)), slot.count)


def _repeated(data: bytes, count: int) -> bytes:
    return (data * -(-count // len(data)))[:count]

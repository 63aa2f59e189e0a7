"""Tests a GPU before it is used: wrong numbers without a word are the commonest fault of GPUs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ...compiler.declare.dtypes import FLOAT, INT64, pack, unpack
from ...compiler.gpu.self_test import self_test, tested_groups
from ...errors import EngineError
from ...logic.gpu.self_test import TestSlot, difference, integers, numbers, refused, wrong_of

if TYPE_CHECKING:
    from ...compiler.plan import Plan
    from ..engine import Device
    from .engine import WebGPUEngine

_TESTED: set[str] = set()  # adapters that compute rightly, with their drivers
_REFUSED: dict[tuple[str, str], dict[str, str]] = {}  # {(adapter, group): {kernel: why}}


def check_gpu(engine: WebGPUEngine) -> None:
    """Compares the results of a GPU with those of the engine in C; once for each adapter.

    Raises:
        EngineError: they differ.
    """
    name = _adapter(engine)
    if name in _TESTED:
        return
    plan, slots = self_test()
    expected = _results(engine.host_device, plan, slots)
    found = _results(engine.device, plan, slots)
    wrong = wrong_of(slots, [difference(a, b) for a, b in zip(expected, found)])
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
    for group, test in tested_groups().items():
        if group in engine.tested or kernels.isdisjoint(test.kernels):
            continue
        engine.tested.add(group)  # its own plan has the same kernels
        key = _adapter(engine), group
        if key not in _REFUSED:
            expected = _results(engine.host_device, test.plan, test.slots)
            found = _results(engine.device, test.plan, test.slots)
            apart = [difference(a, b) for a, b in zip(expected, found)]
            _REFUSED[key] = refused(test.slots, apart)
        engine.refused |= _REFUSED[key]
        if _REFUSED[key]:
            words = "; ".join(f"{kernel}: {why}" for kernel, why in _REFUSED[key].items())
            warnings.warn(f"{words}: such steps run on the processor", stacklevel=2)


def _adapter(engine: WebGPUEngine) -> str:
    return f"{engine.gpu.name} {engine.serial} {engine.gpu.subgroups}"


def _results(device: Device, plan: Plan, slots: list[TestSlot]) -> list[list[float]]:
    """The numbers of each slot after a run; none for what is given."""
    loaded = device.load_plan(plan)
    buffers = [device.allocate(slot.nbytes) for slot in plan.slots]
    try:
        for i, (slot, buffer) in enumerate(zip(slots, buffers)):
            loaded.bind(i, buffer)
            if slot.kind != "result":
                device.write(buffer, _given(i, slot))
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


def _given(i: int, slot: TestSlot) -> bytes:
    if slot.kind == "numbers":
        return pack(FLOAT, numbers(i, slot.count))
    if slot.kind == "ids":
        return pack(INT64, integers(i, slot.count, slot.limit))
    if slot.kind == "zeros":
        return bytes(slot.count)
    return bytes(integers(i, slot.count, 256))

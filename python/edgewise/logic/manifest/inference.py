"""Rules of plans that run a model of any kind: their registers, inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...element_types import ELEMENT_BITS
from .checker import Checker
from .limits import MAX_LENGTH, MAX_RANK, MAX_REGISTERS, MAX_SIZE
from .rules import Contents, check_plan_file, check_slots
from .schema import Dim, Inference, InferencePlan, ManifestSlot

Range = tuple[int, int]
"""Lowest and highest value of a register."""
RULE = 7  # numbers of a register that follows from others (declare.registers.Rule)
OWN = ("part", "known", "beyond", "numbers")  # fields that only plans of a page's own storage have


def check_inference(c: Checker, inference: Inference, at: str, contents: Contents) -> None:
    """Checks `inference`, the part of a package of task "inference", or one of its `programs`."""
    for field in ("programs", "overridable"):
        if field in inference and not contents.own:
            c.fail(f"{at}.{field}", "are only valid in a page's own storage")
    declared = {value["name"] for value in inference["inputs"]}
    for i, plan in enumerate(inference["plans"]):
        path = f"{at}.plans[{i}]"
        check_inference_plan(c, plan, path, contents)
        for name in plan["inputs"]:
            if name not in declared and "part" not in plan:
                c.fail(f"{path}.inputs", f"has '{name}', which is not an input of the model")


def check_inference_plan(c: Checker, plan: InferencePlan, at: str, contents: Contents) -> None:
    """Checks one plan."""
    for field in OWN:
        if field in plan and not contents.own:
            c.fail(f"{at}.{field}", "is only valid in a page's own storage")
    if "file" in plan:
        check_plan_file(c, plan["file"], at, contents)
    elif "part" not in plan or plan["slots"] or plan["outputs"]:
        c.fail(f"{at}.file", "is missing")
    check_slots(c, plan["slots"], f"{at}.slots", contents)
    for i, slot in enumerate(plan["slots"]):
        if slot["kind"] in ("cache", "state"):
            c.fail(f"{at}.slots[{i}]", f"is a {slot['kind']}, which such a plan cannot have")
    ranges = check_registers(c, plan, at)
    inputs = _check_inputs(c, plan, at, ranges)
    _check_input_slots(c, plan, at, inputs)
    _check_outputs(c, plan, at, ranges)
    for name, source in plan.get("passed", {}).items():
        if source not in plan["inputs"]:
            c.fail(f"{at}.passed['{name}']", f"is '{source}', which is not an input")
        if name in plan["outputs"]:
            c.fail(f"{at}.passed['{name}']", "is computed as well")


def check_registers(c: Checker, plan: InferencePlan, at: str) -> list[Range]:
    """The ranges of the registers that dimensions of a plan follow; empty where they are fixed."""
    if "register" not in plan:
        if "registers" in plan:
            c.fail(f"{at}.registers", "needs a register")
        return []
    found = [_check_range(c, plan["register"], f"{at}.register")]
    # None is not the same as nothing: it is no list.
    given: object = plan["registers"] if "registers" in plan else []
    entries = c.read_list(given, f"{at}.registers", MAX_REGISTERS)
    for i, entry in enumerate(entries):
        path = f"{at}.registers[{i}]"
        if isinstance(entry, list) and len(entry) == RULE:
            found.append(_check_rule(c, entry, path, found))
        else:
            found.append(_check_range(c, entry, path))
    return found


def _check_range(c: Checker, value: object, path: str) -> Range:
    low, high = c.read_tuple(value, path, 2)
    c.read_integer(low, f"{path}[0]", 0, MAX_LENGTH)
    c.read_integer(high, f"{path}[1]", low, MAX_LENGTH)
    return low, high


def _check_rule(c: Checker, entry: Sequence[object], path: str, before: Sequence[Range]) -> Range:
    """A register that follows from others, for the lowest and the highest values of those."""
    most, last = MAX_LENGTH, len(before) - 1
    least = (0, 0, 0, 0, 0, -most, 1)
    highest = (last, last, most, most, most, most, most)
    a, b, product, of_a, of_b, add, divisor = (
        c.read_integer(x, f"{path}[{i}]", least[i], highest[i]) for i, x in enumerate(entry)
    )
    low, high = (
        (product * x * y + of_a * x + of_b * y + add) // divisor
        for x, y in zip(before[a], before[b])
    )
    if low < 0 or high > MAX_SIZE:
        c.fail(path, "has values out of range")
    return low, high


def _check_inputs(
    c: Checker, plan: InferencePlan, at: str, ranges: Sequence[Range]
) -> dict[str, list[int]]:
    """The largest shape of each input."""
    inputs: dict[str, list[int]] = {}
    lengths: set[int] = set()  # registers that are the size of a dimension
    for name, (_, dims) in plan["inputs"].items():
        inputs[name] = check_dims(c, dims, f"{at}.inputs['{name}'][1]", ranges)
        for dim in dims:
            if isinstance(dim, list) and dim[1] == 0:  # or a multiple of the register
                lengths.add(dim[2] if len(dim) == 3 else 0)
    for i in range(len(ranges)):
        rule = i > 0 and len(plan["registers"][i - 1]) == RULE
        if not rule and i not in lengths:
            path = f"{at}.registers[{i - 1}]" if i else f"{at}.register"
            c.fail(path, "is not the size of a dimension of an input")
    return inputs


def check_dims(c: Checker, value: object, path: str, ranges: Sequence[Range]) -> list[int]:
    """Checks a shape (schema.Dim); returns it for the registers' highest values."""
    shape: list[int] = []
    for i, dim in enumerate(c.read_list(value, path, MAX_RANK)):
        at = f"{path}[{i}]"
        if not ranges or not isinstance(dim, list):
            shape.append(c.read_integer(dim, at))
            continue
        number = 0
        if len(dim) == 3:
            number = c.read_integer(dim[2], f"{at}[2]", 1, len(ranges) - 1)
        scale, add = c.read_tuple(dim[:2] if len(dim) == 3 else dim, at, 2)
        c.read_integer(scale, f"{at}[0]", 1, MAX_LENGTH)
        c.read_integer(add, f"{at}[1]", -MAX_LENGTH, MAX_LENGTH)
        low, high = ranges[number]
        if scale * low + add < 0:
            c.fail(at, "is negative at the register's lowest value")
        shape.append(scale * high + add)
    return shape


def _sizes_of(slots: Sequence[ManifestSlot], kind: str) -> dict[str, int]:
    return {slot["name"]: slot["bytes"] for slot in slots if slot["kind"] == kind}


def _check_input_slots(
    c: Checker, plan: InferencePlan, at: str, inputs: dict[str, list[int]]
) -> None:
    """Checks the slots of inputs, and that of the seed of random numbers."""
    sizes = _sizes_of(plan["slots"], "input")
    seed = plan.get("seed")
    if seed is not None and (seed in inputs or sizes.get(seed) != 8):
        c.fail(f"{at}.seed", f"is '{seed}', which is not an input slot of 8 bytes of its own")
    for name, nbytes in sizes.items():
        if name == seed:
            continue
        if name not in inputs:
            c.fail(at, f"has a slot for an input '{name}', which its inputs lack")
        if nbytes != _tensor_bytes(plan["inputs"][name][0], inputs[name], nbytes):
            what = f"has a slot of {nbytes} bytes for its input '{name}'"
            c.fail(at, f"{what}, which has another size")


def _check_outputs(c: Checker, plan: InferencePlan, at: str, ranges: Sequence[Range]) -> None:
    sizes = _sizes_of(plan["slots"], "output")
    for name, (slot, dtype, dims, nbytes) in plan["outputs"].items():
        path = f"{at}.outputs['{name}']"
        shape = check_dims(c, dims, f"{path}[2]", ranges)
        if sizes.get(slot, -1) < nbytes:
            c.fail(path, f"lies in the slot '{slot}', which is missing or too short")
        if nbytes != _tensor_bytes(dtype, shape, nbytes):
            text = ", ".join(str(d) for d in shape)
            c.fail(path, f"has {nbytes} bytes, which do not match {dtype[:40]} [{text}]")


def _tensor_bytes(dtype: str, shape: Sequence[int], unknown: int) -> int:
    """Bytes of a tensor; `unknown` for a dtype without a fixed size."""
    return -(-math.prod(shape) * ELEMENT_BITS[dtype] // 8) if dtype in ELEMENT_BITS else unknown


__all__ = ["Dim", "check_dims", "check_inference", "check_inference_plan", "check_registers"]

"""Checks of the plans that run a model of any kind."""

from __future__ import annotations

from math import prod

from ...element_types import ELEMENT_BITS
from ..manifest_limits import LIMITS
from .checker import Checker, JsonObject
from .files import Contents
from .slots import ManifestSlot, check_plan_file, check_slots

Inputs = dict[str, tuple[str, list[int]]]  # dtype and largest shape of each
Range = tuple[int, int]  # lowest and highest value of a register
Registers = list[Range]
RULE = 7  # numbers of a register that follows from others (declare.registers.Rule)


def check_inference(
    c: Checker, value: object, contents: Contents, where: str = "inference"
) -> None:
    """Checks `inference`, the part of a package of task "inference", or one of its `programs`.

    Args:
        c: the checker.
        value: the value.
        contents: what the plans may refer to.
        where: its position in the manifest.
    """
    inference = c.read_object(value, where)
    declared = _check_declared(c, inference, f"{where}.inputs", "inputs")
    _check_declared(c, inference, f"{where}.outputs", "outputs")
    _check_metadata(c, inference.get("metadata", {}), f"{where}.metadata")
    if inference.get("programs"):
        c.fail(f"{where}.programs", "are only valid in a page's own storage")
    most = LIMITS["MAX_INFERENCE_PLANS"]
    for i, entry in enumerate(c.read_list(inference.get("plans"), f"{where}.plans", most)):
        at = f"{where}.plans[{i}]"
        for name in _check_plan(c, c.read_object(entry, at), at, contents):
            if name not in declared:
                c.fail(f"{at}.inputs", f"has '{name}', which is not an input of the model")


def _check_metadata(c: Checker, value: object, at: str) -> None:
    """Checks what the model's file says about the model (ir.ModelMetadata); all is optional."""
    fields = dict(c.read_object(value, at))
    custom = c.read_object(fields.pop("custom_metadata_map", {}), f"{at}.custom_metadata_map")
    for name, text in (*fields.items(), *custom.items()):
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2 if isinstance(text, str) else -1
        if not 0 <= units <= LIMITS["MAX_METADATA_TEXT"]:
            c.fail(f"{at}['{name}']", "is not a text of a model's metadata")


def _check_declared(c: Checker, inference: JsonObject, at: str, key: str) -> set[str]:
    """Checks the inputs or outputs as the model declares them; returns their names."""
    names = set()
    entries = c.read_list(inference.get(key), at, LIMITS["MAX_VALUES"])
    for i, entry in enumerate(entries):
        path = f"{at}[{i}]"
        tensor = c.read_object(entry, path)
        for field in ("name", "type", "dtype"):
            c.read_text(tensor.get(field), f"{path}.{field}")
        names.add(tensor["name"])
        if tensor.get("shape") is None:
            continue
        shape = c.read_list(tensor["shape"], f"{path}.shape", LIMITS["MAX_DECLARED_RANK"])
        for k, dim in enumerate(shape):
            if dim is not None and not isinstance(dim, str):
                c.read_integer(dim, f"{path}.shape[{k}]", -1)
    return names


def _check_plan(c: Checker, plan: JsonObject, at: str, contents: Contents) -> Inputs:
    """Checks one plan; returns its inputs."""
    check_plan_file(c, plan, at, contents)
    slots = check_slots(c, plan.get("slots"), f"{at}.slots", contents)
    for slot in slots:
        if slot.kind in ("cache", "state"):
            c.fail(slot.path, f"is a {slot.kind}, which such a plan cannot have")
    register = _check_registers(c, plan, at)
    inputs = _check_inputs(c, plan, at, register)
    _check_input_slots(c, plan, at, slots, inputs)
    _check_outputs(c, plan, at, slots, register)
    _check_passed(c, plan, at, inputs)
    for field in ("part", "known", "numbers"):
        if plan.get(field):
            c.fail(f"{at}.{field}", "is only valid in a page's own storage")
    return inputs


def _check_registers(c: Checker, plan: JsonObject, at: str) -> Registers:
    """The ranges of the registers that dimensions of a plan follow; empty where they are fixed."""
    if "register" not in plan:
        if "registers" in plan:
            c.fail(f"{at}.registers", "needs a register")
        return []
    found = [_check_range(c, plan["register"], f"{at}.register")]
    entries = c.read_list(plan.get("registers", []), f"{at}.registers", LIMITS["MAX_REGISTERS"])
    for i, entry in enumerate(entries):
        path = f"{at}.registers[{i}]"
        if isinstance(entry, list) and len(entry) == RULE:
            found.append(_check_rule(c, entry, path, found))
        else:
            found.append(_check_range(c, entry, path))
    return found


def _check_range(c: Checker, value: object, path: str) -> Range:
    low, high = c.read_tuple(value, path, 2)
    c.read_integer(low, f"{path}[0]", 0, LIMITS["MAX_LENGTH"])
    c.read_integer(high, f"{path}[1]", low, LIMITS["MAX_LENGTH"])
    return low, high


def _check_rule(c: Checker, entry: list[object], path: str, before: Registers) -> Range:
    """A register that follows from others, for the lowest and the highest values of those."""
    most = LIMITS["MAX_LENGTH"]
    least = (0, 0, 0, 0, 0, -most, 1)
    highest = (len(before) - 1, len(before) - 1, most, most, most, most, most)
    a, b, product, of_a, of_b, add, divisor = (
        c.read_integer(x, f"{path}[{i}]", least[i], highest[i]) for i, x in enumerate(entry)
    )
    low, high = (
        (product * x * y + of_a * x + of_b * y + add) // divisor
        for x, y in zip(before[a], before[b])
    )
    if low < 0 or high > LIMITS["MAX_SIZE"]:
        c.fail(path, "has values out of range")
    return low, high


def _check_inputs(c: Checker, plan: JsonObject, at: str, register: Registers) -> Inputs:
    inputs: Inputs = {}
    entries = c.read_object(plan.get("inputs"), f"{at}.inputs")
    for name, entry in entries.items():
        path = f"{at}.inputs['{name}']"
        c.read_text(name, f"the name in {at}.inputs")
        dtype, shape = c.read_tuple(entry, path, 2)
        c.read_text(dtype, f"{path}[0]")
        inputs[name] = dtype, _largest_shape(c, shape, f"{path}[1]", register)
    sizes = [d for _, shape in entries.values() for d in shape]
    if register and [1, 0] not in sizes:
        c.fail(f"{at}.register", "is not the size of a dimension of an input")
    for i, entry in enumerate(plan.get("registers", [])):
        if len(entry) != RULE and [1, 0, i + 1] not in sizes:
            c.fail(f"{at}.registers[{i}]", "is not the size of a dimension of an input")
    return inputs


def _largest_shape(c: Checker, value: object, path: str, registers: Registers) -> list[int]:
    """Checks a shape; returns it for the registers' highest values.

    A dimension may be [scale, add], the value scale * register 0 + add, or [scale, add, register].
    """
    shape = []
    for i, dim in enumerate(c.read_list(value, path, LIMITS["MAX_RANK"])):
        at = f"{path}[{i}]"
        if not registers or not isinstance(dim, list):
            shape.append(c.read_integer(dim, at))
            continue
        number = 0
        if len(dim) == 3:
            number = c.read_integer(dim[2], f"{at}[2]", 1, len(registers) - 1)
            dim = dim[:2]
        register = registers[number]
        scale, add = c.read_tuple(dim, at, 2)
        c.read_integer(scale, f"{at}[0]", 1, LIMITS["MAX_LENGTH"])
        c.read_integer(add, f"{at}[1]", -LIMITS["MAX_LENGTH"], LIMITS["MAX_LENGTH"])
        if scale * register[0] + add < 0:
            c.fail(at, "is negative at the register's lowest value")
        shape.append(scale * register[1] + add)
    return shape


def _check_input_slots(
    c: Checker, plan: JsonObject, at: str, slots: list[ManifestSlot], inputs: Inputs
) -> None:
    """Checks the slots of inputs, and that of the seed of random numbers."""
    sizes = {slot.name: slot.nbytes for slot in slots if slot.kind == "input"}
    seed = c.read_text(plan["seed"], f"{at}.seed") if "seed" in plan else None
    if seed is not None and (seed in inputs or sizes.get(seed) != 8):
        c.fail(f"{at}.seed", f"is '{seed}', which is not an input slot of 8 bytes of its own")
    for name, nbytes in sizes.items():
        if name == seed:
            continue
        if name not in inputs:
            c.fail(at, f"has a slot for an input '{name}', which its inputs lack")
        if nbytes != _tensor_bytes(*inputs[name], nbytes):
            c.fail(
                at, f"has a slot of {nbytes} bytes for its input '{name}', which has another size"
            )


def _check_outputs(
    c: Checker, plan: JsonObject, at: str, slots: list[ManifestSlot], register: Registers
) -> None:
    sizes = {slot.name: slot.nbytes for slot in slots if slot.kind == "output"}
    for name, entry in c.read_object(plan.get("outputs"), f"{at}.outputs").items():
        path = f"{at}.outputs['{name}']"
        c.read_text(name, f"the name in {at}.outputs")
        slot, dtype, dims, nbytes = c.read_tuple(entry, path, 4)
        c.read_text(slot, f"{path}[0]")
        c.read_text(dtype, f"{path}[1]")
        shape = _largest_shape(c, dims, f"{path}[2]", register)
        if sizes.get(slot, -1) < c.read_integer(nbytes, f"{path}[3]"):
            c.fail(path, f"lies in the slot '{slot}', which is missing or too short")
        if nbytes != _tensor_bytes(dtype, shape, nbytes):
            c.fail(path, f"has {nbytes} bytes, which do not match {dtype[:40]} {shape}")


def _check_passed(c: Checker, plan: JsonObject, at: str, inputs: Inputs) -> None:
    """Checks the outputs that are inputs unchanged."""
    for name, source in c.read_object(plan.get("passed", {}), f"{at}.passed").items():
        path = f"{at}.passed['{name}']"
        c.read_text(name, f"the name in {at}.passed")
        if c.read_text(source, path) not in inputs:
            c.fail(path, f"is '{source}', which is not an input")
        if name in plan["outputs"]:
            c.fail(path, "is computed as well")


def _tensor_bytes(dtype: str, shape: list[int], unknown: int) -> int:
    """Bytes of a tensor; `unknown` for a dtype without a fixed size."""
    return -(-prod(shape) * ELEMENT_BITS[dtype] // 8) if dtype in ELEMENT_BITS else unknown

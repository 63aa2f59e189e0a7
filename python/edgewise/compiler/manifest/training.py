"""Checks of training programs: their states and the plans of their steps."""

from __future__ import annotations

from math import prod

from ..manifest_limits import LIMITS, STATE_KINDS, STATE_SIZES, TRAINING_PLANS
from .checker import Checker, JsonObject
from .files import Contents
from .slots import ManifestSlot, check_plan_file, check_slots

States = dict[str, tuple[str, int]]  # kind and bytes of each


def check_training(c: Checker, value: object, contents: Contents) -> None:
    """Checks `training`, a list of programs; adds their adapters to `contents`."""
    names: set[str] = set()
    for i, entry in enumerate(c.read_list(value, "training", LIMITS["MAX_PROGRAMS"])):
        at = f"training[{i}]"
        program = c.read_object(entry, at)
        name = c.read_text(program.get("name"), f"{at}.name")
        if name in names:
            c.fail(at, f"has the duplicate name '{name}'")
        names.add(name)
        states = _check_program(c, program, at, contents)
        for state, (kind, nbytes) in states.items():
            if kind == "adapter":
                if state in contents.adapters:
                    c.fail(f"training '{name}'", f"has the adapter '{state}' of another program")
                contents.adapters[state] = nbytes


def _check_program(c: Checker, program: JsonObject, at: str, contents: Contents) -> States:
    if program.get("task") != "causal_lm":
        c.fail(f"{at}.task", "is not 'causal_lm'")
    batch = c.read_integer(program.get("batch"), f"{at}.batch", 1, LIMITS["MAX_BATCH"])
    sequence = c.read_integer(program.get("sequence"), f"{at}.sequence", 2, LIMITS["MAX_CAPACITY"])
    states = _check_states(c, program.get("states"), f"{at}.states", contents.weights)
    plans = c.read_object(program.get("plans"), f"{at}.plans")
    for kind, required in TRAINING_PLANS.items():
        path = f"{at}.plans.{kind}"
        plan = c.read_object(plans.get(kind), path)
        check_plan_file(c, plan, path, contents)
        c.read_integer(plan.get("arena_bytes"), f"{path}.arena_bytes")
        slots = check_slots(c, plan.get("slots"), f"{path}.slots", contents)
        for slot in slots:
            _check_slot(c, slot, states, 8 * batch * sequence)
        present = {slot.name for slot in slots if slot.kind in ("input", "output")}
        missing = next((name for name in required if name not in present), None)
        if missing is not None:
            c.fail(path, f"lacks '{missing}'")
    _check_options(c, program, at)
    return states


def _check_options(c: Checker, program: JsonObject, at: str) -> None:
    optimizer = c.read_object(program.get("optimizer"), f"{at}.optimizer")
    c.read_text(optimizer.get("type"), f"{at}.optimizer.type")
    c.read_number(optimizer.get("lr"), f"{at}.optimizer.lr")
    if program.get("lora") is not None:
        lora = c.read_object(program["lora"], f"{at}.lora")
        c.read_integer(lora.get("r"), f"{at}.lora.r", 1, LIMITS["MAX_LORA_RANK"])
        c.read_number(lora.get("lora_alpha"), f"{at}.lora.lora_alpha")
    for field in ("pad_token_id", "eos_token_id"):
        if program.get(field) is not None:
            c.read_integer(program[field], f"{at}.{field}", 0, LIMITS["MAX_VOCABULARY"])
    if program.get("max_grad_norm") is not None:
        c.read_number(program["max_grad_norm"], f"{at}.max_grad_norm")


def _check_states(c: Checker, value: object, at: str, weights: dict[str, int]) -> States:
    states: States = {}
    for i, entry in enumerate(c.read_list(value, at)):
        path = f"{at}[{i}]"
        state = c.read_object(entry, path)
        name = c.read_text(state.get("name"), f"{path}.name")
        kind = c.read_one_of(state.get("kind"), f"{path}.kind", STATE_KINDS)
        dtype = c.read_text(state.get("dtype"), f"{path}.dtype")
        shape = c.read_shape(state.get("shape"), f"{path}.shape")
        nbytes = c.read_integer(state.get("bytes"), f"{path}.bytes")
        if dtype not in STATE_SIZES or prod(shape) * STATE_SIZES[dtype] != nbytes:
            c.fail(path, f"has {nbytes} bytes, which do not match {dtype[:40]} {shape}")
        _check_initial(c, state, path, weights)
        if name in states:
            c.fail(path, f"has the duplicate name '{name}'")
        states[name] = kind, nbytes
    return states


def _check_initial(c: Checker, state: JsonObject, path: str, weights: dict[str, int]) -> None:
    """Checks ["constant", weight], ["fill", value], or [distribution, scale, stream]."""
    entries = c.read_list(state.get("initial"), f"{path}.initial", 3)
    method, first, second = [*entries, None, None, None][:3]
    if method == "constant":
        if c.read_text(first, f"{path}.initial[1]") not in weights:
            c.fail(path, f"is initialized from the weight '{first}', which is not in the package")
    elif method in ("fill", "uniform", "normal"):
        c.read_number(first, f"{path}.initial[1]")
        if method != "fill":
            c.read_integer(second, f"{path}.initial[2]", 0, LIMITS["MAX_DRAWN"])
    else:
        c.fail(f"{path}.initial", "is not one of 'constant', 'fill', 'uniform' and 'normal'")


def _check_slot(c: Checker, slot: ManifestSlot, states: States, ids_bytes: int) -> None:
    """Checks a slot of a training plan. ids_bytes: size of the input of token ids."""
    path, name, kind, dtype, _, nbytes = slot
    inputs = {
        "input_ids": ("int64", ids_bytes),
        "labels": ("int64", ids_bytes),
        "learning_rate": ("float32", 4),
        "gradient_scale": ("float32", 4),
        "seed": ("int64", 8),
    }
    if kind == "state" and states.get(name, ("", -1))[1] != nbytes:
        where = f"{path.partition('.plans.')[0]}.states"
        c.fail(path, f"is the state '{name}' of {nbytes} bytes, which {where} does not have")
    if kind == "cache":
        c.fail(path, "is a cache, which training does not have")
    if kind == "input" and (dtype, nbytes) != inputs.get(name):
        c.fail(
            path, f"is an input '{name}' ({dtype[:40]}, {nbytes} bytes) that training does not feed"
        )
    if kind == "output" and (name, dtype, nbytes) != ("loss", "float32", 4):
        c.fail(path, "is not the one output 'loss', float32")

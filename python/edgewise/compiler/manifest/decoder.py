"""Checks of the plans that generate text."""

from __future__ import annotations

from ..manifest_limits import CACHE_DTYPES, LIMITS
from .checker import Checker, JsonObject
from .files import Contents
from .slots import ManifestSlot, check_plan_file, check_slots


def check_decoder(c: Checker, value: object, contents: Contents) -> None:
    """Checks `decoder`, the part of a package of task "text-generation"."""
    decoder = c.read_object(value, "decoder")
    capacity = c.read_integer(
        decoder.get("capacity"), "decoder.capacity", 1, LIMITS["MAX_CAPACITY"]
    )
    vocabulary = c.read_integer(
        decoder.get("vocab_size"), "decoder.vocab_size", 1, LIMITS["MAX_VOCABULARY"]
    )
    _check_options(c, decoder)
    caches = check_caches(c, decoder)
    if decoder["recompute"] != (not caches):
        c.fail("decoder.recompute", "contradicts decoder.caches")
    tokens: list[int] = []
    plans = c.read_list(decoder.get("plans"), "decoder.plans", LIMITS["MAX_DECODER_PLANS"])
    for i, entry in enumerate(plans):
        at = f"decoder.plans[{i}]"
        plan = c.read_object(entry, at)
        tokens.append(c.read_integer(plan.get("tokens"), f"{at}.tokens", 1, capacity))
        check_plan_file(c, plan, at, contents)
        _check_registers(c, plan, at)
        slots = check_slots(c, plan.get("slots"), f"{at}.slots", contents)
        for slot in slots:
            _check_memory(c, slot, contents, caches)
            _check_ends(c, slot, tokens[-1], vocabulary)
        if not {"input", "output"} <= {slot.kind for slot in slots}:
            c.fail(at, "lacks the input 'input_ids' or the output 'logits'")
    if not tokens:
        c.fail("decoder.plans", "has no plan")
    for i, n in enumerate(sorted(tokens)):
        if i and n == sorted(tokens)[i - 1]:
            c.fail("decoder.plans", f"has two plans for {n} tokens")
    if decoder["recompute"] and max(tokens) != capacity:
        c.fail("decoder.plans", f"has no plan for {capacity} tokens")


def _check_options(c: Checker, decoder: JsonObject) -> None:
    if not isinstance(decoder.get("recompute"), bool):
        c.fail("decoder.recompute", "is neither true nor false")
    if decoder.get("logits_type") != "float32":
        c.fail("decoder.logits_type", "is not 'float32'")
    c.read_one_of(decoder.get("cache_dtype", CACHE_DTYPES[0]), "decoder.cache_dtype", CACHE_DTYPES)
    if decoder.get("lora") is not None:
        c.read_object(decoder["lora"], "decoder.lora")
    if decoder.get("saved") is not None and c.read_list(decoder["saved"], "decoder.saved"):
        c.fail("decoder.saved", "is not empty: packages hold adapters only")


def check_caches(c: Checker, decoder: JsonObject, field: str = "caches") -> dict[str, int]:
    """Bytes of each cache in a field of `decoder`."""
    caches: dict[str, int] = {}
    where = f"decoder.{field}"
    for i, entry in enumerate(c.read_list(decoder.get(field), where, LIMITS["MAX_CACHES"])):
        at = f"{where}[{i}]"
        cache = c.read_object(entry, at)
        name = c.read_text(cache.get("name"), f"{at}.name")
        if name in caches:
            c.fail(at, f"has the duplicate name '{name}'")
        caches[name] = c.read_integer(cache.get("bytes"), f"{at}.bytes")
    return caches


def _check_registers(c: Checker, plan: JsonObject, at: str) -> None:
    """Register 0 is the number of cached tokens, register 1 the last position."""
    registers = c.read_object(plan.get("registers"), f"{at}.registers")
    for name, number in (("past", 0), ("last", 1)):
        c.read_integer(registers.get(name), f"{at}.registers.{name}", number, number)
    if len(registers) != 2:
        c.fail(f"{at}.registers", "has registers other than 'past' and 'last'")


def _check_memory(
    c: Checker, slot: ManifestSlot, contents: Contents, caches: dict[str, int]
) -> None:
    """Checks slots that are bound to adapters' states or to caches."""
    path, name, kind, _, _, nbytes = slot
    if kind == "state" and name in contents.weights:
        c.fail(path, f"has the same name as the weight '{name}'")
    if kind == "state" and contents.adapters.get(name) != nbytes:
        c.fail(path, f"is the state '{name}' of {nbytes} bytes, which no adapter in 'training' has")
    if kind == "cache" and caches.get(name) != nbytes:
        c.fail(path, f"is the cache '{name}' of {nbytes} bytes, which decoder.caches does not have")
    if kind == "computed" and name in caches:
        c.fail(path, f"has the same name as the cache '{name}'")


def _check_ends(c: Checker, slot: ManifestSlot, tokens: int, vocabulary: int) -> None:
    """Checks the input and the output of a plan."""
    path, name, kind, dtype, _, nbytes = slot
    if kind == "input" and (name, dtype, nbytes) != ("input_ids", "int64", 8 * tokens):
        c.fail(path, f"is not the one input 'input_ids', int64 [1, {tokens}]")
    if kind == "output" and (name, dtype, nbytes) != ("logits", "float32", 4 * vocabulary):
        c.fail(path, f"is not the one output 'logits', float32 [1, {vocabulary}]")
